//! The tasks of the etcds, and what is seen of them.

use serde_json::Value;

use super::super::super::evidence::{LookResult, Looker, Seen, all, missing, only_in_the_log};
use super::super::super::facts::Facts;
use super::super::super::kinds::Operation;
use super::super::super::row::Row;
use super::super::super::times::{FIVE_MINUTES, FIVE_SECONDS, HOUR, SHORT};
use super::super::super::work::Work;
use super::super::super::{pods, snapshots};
use super::super::component::{Component, Turn};
use super::super::workload::{Workload, kept, wait_gone};
use super::druid::EtcdUpkeep;
use super::plain::moving::FirstData;
use super::plain::snapshots::SECRET;
use super::{Input, Role, Secrets, claims, druid, mode, moving, plain};
use crate::api::core::STATEFUL_SET;
use crate::api::meta::{Key, Resource};
use crate::components::rollout;
use crate::config::control_plane::EtcdMode;
use crate::extension::together;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::pki::issue::{KeyUsage, ServerNames};
use crate::shoot::addresses::service_names;
use crate::shoot::secrets::Certificate;
use crate::shoot::{Outside, ShootView};

pub(crate) static COMPONENT: Component = Component {
    images: &["etcd"],
    certificates,
    workloads: &[Workload::Etcd(Role::Main), Workload::Etcd(Role::Events)],
    stops: Turn::Store,
    create: &CREATE,
    migrate: &moving::MIGRATE,
    delete: &[
        Row::new("Deploying main and events etcd", deploy, written)
            .after(&["Initializing secrets management"])
            .when(Facts::cleans)
            .retrying(FIVE_SECONDS, SHORT),
        Row::new("Waiting until main and event etcd report readiness", wait, ready)
            .after(&["Deploying main and events etcd"])
            .when(Facts::cleans)
            .within(FIVE_MINUTES),
        Row::new("Destroying main and events etcd", delete, only_in_the_log)
            .after(&[
                "Waiting until extension resources that should be handled after kube-apiserver have been deleted",
                "Waiting until all extension resources have been deleted",
                "Destroying external domain DNS record",
            ])
            .retrying(FIVE_SECONDS, SHORT),
        Row::new("Waiting until main and event etcd have been destroyed", wait_deleted, left)
            .after(&["Destroying main and events etcd"])
            .within(FIVE_MINUTES),
    ],
    force_delete: &[
        Row::new("Deleting Etcd resources", delete, only_in_the_log)
            .after(&["Deleting Cluster resource"])
            .retrying(FIVE_SECONDS, SHORT),
        Row::new("Waiting until Etcd resources have been deleted", wait_deleted, left)
            .after(&["Deleting Etcd resources"])
            .within(FIVE_MINUTES),
    ],
    ..Component::NONE
};

static CREATE: [Row; 7] = [
    // The first three only if the Shoot comes from another seed.
    Row::new("Copying etcd backups to new seed's backup bucket", moving::copy, only_in_the_log)
        .after(&[
            "Initializing secrets management",
            "Waiting until the BackupEntry for ETCD data has been reconciled",
        ])
        .when(Facts::copies_backups)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until etcd backups are copied", moving::wait_copied, only_in_the_log)
        .after(&["Copying etcd backups to new seed's backup bucket"])
        .when(Facts::copies_backups)
        .within(HOUR),
    Row::new("Destroying copy etcd backups task resource", moving::delete_copy, only_in_the_log)
        .after(&["Waiting until etcd backups are copied"])
        .when(Facts::copies_backups)
        .retrying(FIVE_SECONDS, SHORT)
        .last(),
    Row::new("Allowing the restored etcd to start without backups", moving::end_protection, only_in_the_log)
        .after(&["Initializing connection to Shoot"])
        .when(Facts::restores)
        .retrying(FIVE_SECONDS, SHORT)
        .last(),
    Row::new("Deploying main and events ETCDs", deploy, written)
        .after(&[
            "Initializing secrets management",
            "Deploying referenced resources",
            "Waiting until the BackupEntry for ETCD data has been reconciled",
            "Waiting until etcd backups are copied",
        ])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until main and event ETCDs have been reconciled", wait, ready)
        .after(&["Deploying main and events ETCDs"])
        .when(Facts::waits_awake)
        .within(FIVE_MINUTES)
        // An etcd that restores a large snapshot.
        .longer(Facts::restores, HOUR),
    // Upstream has no such task.
    Row::new("Checking that the restored main etcd has data", moving::check_data, only_in_the_log)
        .after(&["Waiting until main and event ETCDs have been reconciled"])
        .when(Facts::restores)
        .within(HOUR),
];

fn certificates(view: &ShootView, _: Option<&Outside>) -> Vec<Certificate> {
    let server = |word: &str| {
        let (name, names) = (format!("etcd-server-{word}"), names(word, &view.technical_id));
        Certificate::new("ca-etcd", &name, "etcd-server", KeyUsage::Both, names)
    };
    let client =
        Certificate::new("ca-etcd", "etcd-client", "etcd-client", KeyUsage::Client, ServerNames::default());
    vec![server("main"), server("events"), client]
}

fn names(word: &str, namespace: &str) -> ServerNames {
    let mut dns = vec![format!("etcd-{word}-local")];
    dns.extend(service_names(&format!("etcd-{word}-client"), namespace));
    dns.extend(service_names(&format!("*.etcd-{word}-peer"), namespace));
    ServerNames { dns, addresses: vec![[127, 0, 0, 1].into(), [0, 0, 0, 0, 0, 0, 0, 1].into()] }
}

/// Who runs the etcds of the Shoot. Looks once in an operation.
pub(super) fn mode_of(work: &mut Work) -> Result<EtcdMode, Failed> {
    if let Some(mode) = work.results.etcd.get() {
        return Ok(*mode);
    }
    let configured = work.env.settings.edge.etcd.mode;
    let mode = mode::of(&work.env.seed, work.plane(), configured)?;
    Ok(*work.results.etcd.set(mode))
}

pub(super) fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let mode = mode::choose(&work.env.seed, work.plane(), work.env.settings.edge.etcd.mode)?;
    work.results.etcd.set(mode);
    let accepts_loss = snapshots::accepts_loss(&work.shoot);
    let awaits_data = mode == EtcdMode::Plain && awaits_data(work)?;
    if awaits_data || mode == EtcdMode::Plain && leaves_with_data(&work.facts, accepts_loss) {
        let copied = work.results.copied.get().copied();
        let first = if accepts_loss { FirstData::Any } else { FirstData::Stored { copied } };
        plain::moving::begin_restore(&work.env.seed, work.plane(), first)?;
    }
    if awaits_data && work.facts.copies_backups() && work.facts.found.has_etcd {
        plain::refused::replace(&work.env.seed, work.plane())?;
    }
    let image = work.env.images.find("etcd", &work.view.kubernetes_version)?;
    let availability = pods::availability(work)?;
    let snapshots = match mode {
        EtcdMode::Plain if awaits_data => snapshots::restored(work)?,
        EtcdMode::Plain => snapshots::wanted(work)?,
        // A druid takes its own.
        EtcdMode::Druid => None,
    };
    for role in Role::ALL {
        let input = input_of(work, role, replicas(work, mode, role)?)?;
        match mode {
            EtcdMode::Plain => {
                let finish = |set: &mut Value| pods::set(availability.as_ref(), Some(set));
                let may_label = || druid::may_label(&work.env.seed);
                let snapshots = snapshots.as_ref().filter(|_| role.has_snapshots());
                let snapshots = snapshots.map(|wanted| wanted.input(work));
                plain::deploy(&work.env.seed, &input, &image, snapshots.as_ref(), &finish, &may_label)?;
            }
            EtcdMode::Druid => {
                druid::deploy(&work.env.seed, &input, &upkeep(work, role)?, work.now())?;
            }
        }
    }
    Ok(TaskStep::Done)
}

/// What is known about the data of an etcd that the agent runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DataTrace {
    restores: bool,
    has_etcd: bool,
    /// It may not start empty. This ends when its API server has answered. An etcd that has never left has no such protection.
    is_restoring: bool,
}

/// Whether an etcd may have to restore its data first, so that it must not lose the way to them.
const fn must_restore(trace: DataTrace) -> bool {
    trace.restores && (!trace.has_etcd || trace.is_restoring)
}

fn awaits_data(work: &Work) -> Result<bool, Failed> {
    let (restores, has_etcd) = (work.facts.restores(), work.facts.found.has_etcd);
    let is_restoring = restores && has_etcd && plain::moving::is_restoring(&work.env.seed, work.plane())?;
    Ok(must_restore(DataTrace { restores, has_etcd, is_restoring }))
}

/// Whether the etcd of a Shoot that leaves has to have data when it starts, or its owner accepts that it has none. A Shoot whose API
/// server never answered has none: it was created hibernated.
const fn leaves_with_data(facts: &Facts, accepts_loss: bool) -> bool {
    matches!(facts.operation, Operation::Migrate) && (facts.found.was_served || accepts_loss)
}

/// What a druid does with an etcd. A deletion must not need a bucket.
fn upkeep(work: &Work, role: Role) -> Result<EtcdUpkeep, Failed> {
    let has_backups =
        role.has_snapshots() && work.facts.has_backup && work.facts.operation != Operation::Delete;
    let store =
        has_backups.then(|| moving::store(work, SECRET, &work.view.backup["provider"])).transpose()?;
    Ok(EtcdUpkeep { defragmentation: schedule(&work.view), full_backup: snapshots::daily(&work.view), store })
}

/// What both implementations need.
pub(super) fn input_of(work: &Work, role: Role, replicas: u32) -> Result<Input<'_>, Failed> {
    let (made, settings) = (work.secrets()?, &work.env.settings.edge.etcd);
    let volume = match role {
        Role::Main => &settings.main,
        Role::Events => &settings.events,
    };
    let secrets = Secrets {
        ca: made.bundle("ca-etcd"),
        server: made.current(&format!("etcd-server-{}", role.as_str())),
        client: made.current("etcd-client"),
    };
    Ok(Input { namespace: work.plane(), role, replicas, secrets, volume })
}

pub(super) fn wait(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let mode = mode_of(work)?;
    let looks = Role::ALL.map(|role| match mode {
        EtcdMode::Plain => wait_plain(work, role, attempt),
        EtcdMode::Druid => druid::wait(&work.env.seed, work.plane(), role),
    });
    together(looks.into())
}

/// While it does not run, check whether its volume is the reason.
fn wait_plain(work: &Work, role: Role, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let key = Key::new(work.plane(), role.name());
    let set = rollout::find(&work.env.seed, &STATEFUL_SET, &key)?;
    let step = rollout::wait_for(&work.env.seed, &key, &set, attempt)?;
    let TaskStep::Again { after, .. } = step else { return Ok(step) };
    if role == Role::Main
        && work.facts.restores()
        && let Some(start) = plain::refused::find(&work.env.seed, work.plane())?
    {
        return Err(Failed::new(start.to_string()));
    }
    Ok(claims::look(&work.env.seed, &set)?.map_or(step, |why| TaskStep::Again { after, why }))
}

pub(super) fn delete(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let mode = mode_of(work)?;
    for role in Role::ALL {
        let key = Key::new(work.plane(), role.name());
        match mode {
            EtcdMode::Plain => plain::delete(&work.env.seed, work.plane(), role)?,
            EtcdMode::Druid => druid::delete(&work.env.seed, &key)?,
        }
    }
    Ok(TaskStep::Done)
}

pub(super) fn wait_deleted(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let resource = resource(mode_of(work)?);
    let looks =
        Role::ALL.map(|role| wait_gone(&work.env.seed, &resource, &Key::new(work.plane(), role.name())));
    together(looks.into())
}

/// The current number of replicas for an etcd.
fn replicas(work: &Work, mode: EtcdMode, role: Role) -> Result<u32, Failed> {
    if !work.facts.is_hibernated {
        return Ok(1);
    }
    Ok(u32::try_from(kept(work, &resource(mode), role.name())?).unwrap_or(0))
}

/// The object that the agent writes for an etcd. Its volumes are deleted with the namespace.
const fn resource(mode: EtcdMode) -> Resource {
    match mode {
        EtcdMode::Plain => STATEFUL_SET,
        EtcdMode::Druid => druid::ETCD,
    }
}

/// The cron schedule of a druid's defragmentation: once a day, in the maintenance time window. The minute differs
/// between Shoots.
fn schedule(view: &ShootView) -> String {
    let digits = |range| view.maintenance_begin.get(range).and_then(|text: &str| text.parse::<u32>().ok());
    let spread = view.uid.bytes().map(u32::from).sum::<u32>() % 60;
    format!("{spread} {} * * *", digits(0..2).unwrap_or(0) % 24)
}

fn mode_seen(seen: &Looker<'_>) -> Result<EtcdMode, Failed> {
    Ok(mode::of(seen.seed, seen.plane(), seen.settings.edge.etcd.mode)?)
}

fn each(look: impl FnMut(Role) -> LookResult) -> LookResult {
    Ok(all(Role::ALL.into_iter().map(look).collect::<Result<_, _>>()?))
}

pub(super) fn written(seen: &Looker<'_>) -> LookResult {
    let resource = resource(mode_seen(seen)?);
    each(|role| seen.exists(&resource, role.name()))
}

pub(super) fn ready(seen: &Looker<'_>) -> LookResult {
    let mode = mode_seen(seen)?;
    each(|role| match mode {
        EtcdMode::Plain => ready_plain(seen, role),
        EtcdMode::Druid => Ok(match druid::wait(seen.seed, seen.plane(), role)? {
            TaskStep::Done => Seen::There,
            TaskStep::Again { why, .. } => missing(why.text),
        }),
    })
}

fn ready_plain(seen: &Looker<'_>, role: Role) -> LookResult {
    let name = role.name();
    let mut found = seen.rollout(&STATEFUL_SET, name)?;
    if let Seen::Missing(lines) = &mut found
        && let Some(set) = seen.seed.find::<Value>(&STATEFUL_SET, &Key::new(seen.plane(), name))?
        && let Some(why) = claims::look(seen.seed, &set)?
    {
        lines.insert(0, why.text);
    }
    Ok(found)
}

pub(super) fn left(seen: &Looker<'_>) -> LookResult {
    let resource = resource(mode_seen(seen)?);
    each(|role| seen.is_gone(&resource, role.name()))
}

#[cfg(test)]
mod tests {
    use super::super::super::super::found::Found;
    use super::*;

    #[test]
    fn a_druid_makes_the_stateful_sets() {
        for (mode, kind) in [(EtcdMode::Plain, "StatefulSet"), (EtcdMode::Druid, "Etcd")] {
            assert_eq!(resource(mode).kind, kind);
        }
    }

    #[test]
    fn an_etcd_restores_until_its_api_server_has_answered() {
        let table = [
            (true, false, false, true),
            (true, false, true, true),
            // An earlier try has made the StatefulSet. Nobody knows whether it has data.
            (true, true, true, true),
            // The server has answered, or the Shoot has never left.
            (true, true, false, false),
            (false, false, false, false),
            (false, true, true, false),
        ];
        for (restores, has_etcd, is_restoring, expected) in table {
            let trace = DataTrace { restores, has_etcd, is_restoring };
            assert_eq!(must_restore(trace), expected, "{trace:?}");
        }
    }

    #[test]
    fn an_etcd_that_leaves_does_not_begin_empty() {
        let table = [
            (Operation::Create, true, false, false),
            (Operation::Reconcile, true, true, false),
            (Operation::Migrate, true, false, true),
            (Operation::Migrate, false, false, false),
            (Operation::Migrate, false, true, true),
            (Operation::Delete, true, false, false),
        ];
        for (operation, was_served, accepts_loss, expected) in table {
            let found = Found { was_served, ..Found::default() };
            let facts = Facts { operation, found, ..Facts::default() };
            assert_eq!(leaves_with_data(&facts, accepts_loss), expected, "{facts:?} {accepts_loss}");
        }
    }

    #[test]
    fn certificates_have_the_names_of_the_golden_ones() {
        assert_eq!(
            names("main", "shoot--p--s2").dns.join(","),
            "etcd-main-local,etcd-main-client,etcd-main-client.shoot--p--s2,etcd-main-client.shoot--p--s2.svc,\
             etcd-main-client.shoot--p--s2.svc.cluster.local,*.etcd-main-peer,*.etcd-main-peer.shoot--p--s2,\
             *.etcd-main-peer.shoot--p--s2.svc,*.etcd-main-peer.shoot--p--s2.svc.cluster.local"
        );
    }
}
