//! The etcds of a Shoot.

use serde_json::Value;

use crate::api::core::STATEFUL_SET;
use crate::api::meta::{Key, Resource};
use crate::components::etcd::{self, Role, druid, plain};
use crate::components::rollout;
use crate::config::control_plane::EtcdMode;
use crate::extension::together;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::shoot::ShootView;

use super::super::work::Work;
use super::super::{pods, snapshots};
use super::{kept, wait_gone};

pub(in crate::operation) fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let (view, made, settings) = (&work.view, work.secrets()?, &work.env.settings.edge.etcd);
    let image = work.env.images.find("etcd", &view.kubernetes_version)?;
    let availability = pods::availability(work)?;
    let snapshots = snapshots::wanted(work)?;
    for role in Role::ALL {
        let (volume, word) = match role {
            Role::Main => (&settings.main, "main"),
            Role::Events => (&settings.events, "events"),
        };
        let [ca, server, client] = made.of_etcd(word);
        let input = etcd::Input {
            namespace: work.plane(),
            role,
            replicas: replicas(work, role)?,
            secrets: etcd::Secrets { ca, server, client },
            volume,
        };
        match settings.mode {
            EtcdMode::Plain => {
                let finish = |set: &mut Value| pods::set(availability.as_ref(), Some(set));
                let may_label = || druid::may_label(&work.env.seed);
                let snapshots = snapshots.as_ref().filter(|_| role == Role::Main);
                let snapshots = snapshots.map(|wanted| wanted.input(work));
                plain::deploy(&work.env.seed, &input, (&image, snapshots.as_ref()), &finish, &may_label)?;
            }
            EtcdMode::Druid => {
                druid::deploy(&work.env.seed, &input, &schedule(&work.view), work.now())?;
            }
        }
    }
    Ok(TaskStep::Done)
}

pub(in crate::operation) fn wait(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let looks = Role::ALL.map(|role| match work.env.settings.edge.etcd.mode {
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
    Ok(etcd::claims::look(&work.env.seed, &set)?.map_or(step, |why| TaskStep::Again { after, why }))
}

pub(in crate::operation) fn delete(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    for role in Role::ALL {
        let key = Key::new(work.plane(), role.name());
        match work.env.settings.edge.etcd.mode {
            EtcdMode::Plain => plain::delete(&work.env.seed, work.plane(), role)?,
            EtcdMode::Druid => druid::delete(&work.env.seed, &key)?,
        }
    }
    Ok(TaskStep::Done)
}

pub(in crate::operation) fn wait_deleted(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let resource = resource(work.env.settings.edge.etcd.mode);
    let looks =
        Role::ALL.map(|role| wait_gone(&work.env.seed, &resource, &Key::new(work.plane(), role.name())));
    together(looks.into())
}

/// The current number of replicas for an etcd.
fn replicas(work: &Work, role: Role) -> Result<u32, Failed> {
    if !work.facts.is_hibernated {
        return Ok(1);
    }
    let resource = resource(work.env.settings.edge.etcd.mode);
    Ok(u32::try_from(kept(work, &resource, role.name())?).unwrap_or(0))
}

/// The object that the agent writes for an etcd. Its volumes are deleted with the namespace.
pub(in crate::operation) const fn resource(mode: EtcdMode) -> Resource {
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
