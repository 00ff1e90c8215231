//! The tasks of the etcds of a Shoot that moves: the last snapshot on the seed that it leaves, and the copy of its backups on
//! the seed to which it comes.

use serde_json::Value;

use super::super::super::evidence::only_in_the_log;
use super::super::super::facts::Facts;
use super::super::super::row::Row;
use super::super::super::times::{FIVE_MINUTES, FIVE_SECONDS, HOUR, SHORT};
use super::super::super::work::Work;
use super::super::super::{lost, restore, snapshots};
use super::super::workload::Workload;
use super::druid::copy::{self as task, CopyStores};
use super::druid::{BackupStore, backup_restore};
use super::plain::moving as jobs;
use super::plain::refused;
use super::plain::snapshots::{SECRET, SOURCE_SECRET, unfit};
use super::tasks::{self, input_of, mode_of};
use super::{Role, mode};
use crate::api::core;
use crate::api::meta::{Key, text};
use crate::backup::garden;
use crate::config::control_plane::EtcdMode;
use crate::extension::together;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::base64;

/// The tasks on the seed that the Shoot leaves.
pub(super) static MIGRATE: [Row; 6] = [
    Row::new("Deploying main and events etcd", tasks::deploy, tasks::written)
        .after(&["Initializing secrets management"])
        .when(Facts::uses_etcd)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until main and event etcd report readiness", tasks::wait, tasks::ready)
        .after(&["Deploying main and events etcd"])
        .when(Facts::uses_etcd)
        .within(FIVE_MINUTES),
    Row::new("Creating ETCD Snapshot", take_last, only_in_the_log)
        .after(&["Waiting until all extensions have been deleted"])
        .when(Facts::takes_last_snapshot)
        .within(HOUR),
    // Upstream stops them after the other seed has the backups. Nothing may be written behind the last snapshot.
    Row::new("Stopping main and events etcd", stop, only_in_the_log)
        .after(&["Creating ETCD Snapshot"])
        .when(Facts::takes_last_snapshot)
        .within(FIVE_MINUTES),
    Row::new("Destroying main and events etcd", tasks::delete, only_in_the_log)
        .after(&["Waiting for BackupEntry to be migrated to new seed"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until main and event etcd have been destroyed", tasks::wait_deleted, tasks::left)
        .after(&["Destroying main and events etcd"])
        .within(FIVE_MINUTES),
];

/// Takes a snapshot that the other seed recognizes as the last one. No server writes any more, and no other snapshot is taken.
fn take_last(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    if mode_of(work)? == EtcdMode::Druid {
        return Ok(backup_restore::take_final(work));
    }
    let (seed, namespace) = (&work.env.seed, work.plane());
    let step = jobs::suspend(seed, namespace)?;
    if step != TaskStep::Done {
        return Ok(step);
    }
    let wanted = snapshots::of_bucket(work)?;
    // Once in a flow: a Job that has failed since is reported, and replaced by the next try of the operation.
    if work.results.last_snapshot.get().is_none() {
        let input = input_of(work, Role::Main, 1)?;
        let step = jobs::take_final(seed, &input, &wanted.input(work), &identity(work))?;
        if step != TaskStep::Done {
            return Ok(step);
        }
        work.results.last_snapshot.set(());
    }
    jobs::wait(&work.env.seed, work.plane(), jobs::FINAL_JOB)
}

/// Tells the Jobs of this operation from those of another one. Each migration has a generation of its own.
fn identity(work: &Work) -> String {
    format!("{}-{}", work.facts.operation.as_str(), work.shoot["metadata"]["generation"])
}

fn stop(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let (seed, now) = (&work.env.seed, work.now());
    let steps = Role::ALL.map(|role| {
        Workload::Etcd(role).stop(seed, work.plane(), now)?;
        Workload::Etcd(role).wait_stopped(seed, work.plane())
    });
    together(steps.into())
}

/// Why a druid has to copy the backups, or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CopyTrace {
    /// The agent's own program can use both buckets.
    has_s3: bool,
    knows_image: bool,
}

/// Whether a druid copies the backups of its etcd. The agent's own Job is better: it knows what it copies, and refuses what is not whole.
const fn needs_druid(trace: CopyTrace) -> bool {
    !(trace.has_s3 && trace.knows_image)
}

/// What is lost with a copy that an etcd-druid has made.
const UNKNOWN_LOSS: &str = "The loss of data was accepted. An etcd-druid has copied the backups, and does not say whether a part of the \
    data is lost, or all of them: look into the Shoot.";

/// What is lost with a copy whose pod has gone.
const UNTOLD_LOSS: &str = "The loss of data was accepted. The pod that has copied the backups is gone, and nobody knows whether it has found \
    all of them: look into the Shoot.";

/// What is lost with a copy by the agent's own Job, as its pod tells it.
fn lost_with(told: Option<&Value>, accepts_older: bool) -> Option<&str> {
    match told {
        Some(told) => told["lost"].as_str(),
        None => accepts_older.then_some(UNTOLD_LOSS),
    }
}

/// Starts the copy of the backups. A Job of an earlier try that failed is replaced.
pub(super) fn copy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let mode = mode::choose(&work.env.seed, work.plane(), work.env.settings.edge.etcd.mode)?;
    work.results.etcd.set(mode);
    match mode {
        EtcdMode::Plain => drop(snapshots::restored(work)?),
        EtcdMode::Druid => {
            let is_s3 = |name| Ok::<_, Failed>(unfit(&secret(work, name)?).is_none());
            let has_s3 = is_s3(SOURCE_SECRET)? && is_s3(SECRET)?;
            let knows_image = !snapshots::image(work)?.is_empty();
            if needs_druid(CopyTrace { has_s3, knows_image }) {
                let stores = CopyStores {
                    source: store(work, SOURCE_SECRET, &restore::copy::provider(work)?)?,
                    target: store(work, SECRET, &work.view.backup["provider"])?,
                    waits: !snapshots::accepts_older(&work.shoot),
                };
                return Ok(task::deploy(&work.env.seed, &task_key(work), &stores, &identity(work))?);
            }
        }
    }
    let wanted = snapshots::of_bucket(work)?;
    let accepts_loss = snapshots::accepts_older(&work.shoot);
    let operation = copy_identity(work)?;
    jobs::copy(&work.env.seed, work.plane(), &wanted.input(work), accepts_loss, &operation)
}

/// A copy for an etcd that cannot start with the one before is another one. A pod gets one at most, and is replaced afterwards.
fn copy_identity(work: &Work) -> Result<String, Failed> {
    let first = identity(work);
    if !work.facts.found.has_etcd {
        return Ok(first);
    }
    Ok(format!("{first}-{}", refused::pod(&work.env.seed, work.plane())?))
}

fn secret(work: &Work, name: &str) -> Result<Value, Failed> {
    let key = Key::new(work.plane(), name);
    let found = work.env.seed.find::<Value>(&core::SECRET, &key)?;
    found.ok_or_else(|| {
        Failed::new(format!("Secret {key} does not exist: the extension of BackupEntries creates it"))
    })
}

/// Where the backups are that a Secret leads to.
pub(super) fn store(work: &Work, name: &'static str, provider: &Value) -> Result<BackupStore, Failed> {
    let bucket = secret(work, name)?["data"]["bucketName"].take();
    let bucket = base64::decode(text(&bucket).as_bytes()).unwrap_or_default();
    Ok(BackupStore {
        provider: text(provider).to_owned(),
        container: String::from_utf8_lossy(&bucket).into_owned(),
        prefix: format!("{}/etcd-main", garden::entry_name(work.plane(), &work.view.status_uid)),
        secret: name,
    })
}

/// It has the name that upstream gives it.
fn task_key(work: &Work) -> Key {
    Key::new(work.plane(), work.view.name.as_str())
}

/// Nothing may be written to an etcd that has lost its data.
pub(super) fn check_data(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    // The other one does not start without data.
    if mode_of(work)? == EtcdMode::Plain {
        return Ok(TaskStep::Done);
    }
    if !snapshots::accepts_loss(&work.shoot) {
        return backup_restore::check_data(work);
    }
    // Otherwise the copy in this operation has said it.
    let was_copied_before = !work.facts.copies_backups();
    if was_copied_before && lost::find(&work.env.seed, work.plane())?.is_none() {
        lost::remember(work, UNKNOWN_LOSS)?;
    }
    Ok(TaskStep::Done)
}

/// The API server has answered with the restored data.
pub(super) fn end_protection(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    jobs::end_restore(&work.env.seed, work.plane())?;
    Ok(TaskStep::Done)
}

pub(super) fn wait_copied(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    if mode_of(work)? == EtcdMode::Druid
        && let Some(step) = task::wait(&work.env.seed, &task_key(work))?
    {
        if step == TaskStep::Done && snapshots::accepts_older(&work.shoot) {
            lost::remember(work, UNKNOWN_LOSS)?;
        }
        return Ok(step);
    }
    let (seed, namespace) = (&work.env.seed, work.plane());
    let step = jobs::wait(seed, namespace, jobs::COPY_JOB)?;
    if step != TaskStep::Done {
        return Ok(step);
    }
    let told = jobs::told(seed, namespace, jobs::COPY_JOB)?;
    if let Some(what) = lost_with(told.as_ref(), snapshots::accepts_older(&work.shoot)) {
        lost::remember(work, what)?;
    }
    if let Some(revision) = told.and_then(|told| told["revision"].as_u64()) {
        work.results.copied.set(revision);
    }
    Ok(step)
}

pub(super) fn delete_copy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    if mode_of(work)? == EtcdMode::Druid {
        task::delete(&work.env.seed, &task_key(work))?;
    }
    jobs::delete(&work.env.seed, work.plane())?;
    Ok(TaskStep::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn a_loss_that_was_accepted_is_told_without_the_pod_of_the_copy() {
        let (whole, part) = (json!({"revision": 7}), json!({"revision": 7, "lost": "changes"}));
        let table = [
            (Some(&whole), true, None),
            (Some(&part), true, Some("changes")),
            (None, true, Some(UNTOLD_LOSS)),
            (None, false, None),
        ];
        for (told, accepts_older, expected) in table {
            assert_eq!(lost_with(told, accepts_older), expected, "{told:?}");
        }
    }

    #[test]
    fn a_druid_copies_only_what_the_agent_cannot() {
        for (has_s3, knows_image, expected) in
            [(true, true, false), (false, true, true), (true, false, true), (false, false, true)]
        {
            let trace = CopyTrace { has_s3, knows_image };
            assert_eq!(needs_druid(trace), expected, "{trace:?}");
        }
    }
}
