//! The tasks of the etcds of a Shoot that moves: the last snapshot on the seed that it leaves, and the copy of its backups on
//! the seed to which it comes.

use super::super::super::evidence::only_in_the_log;
use super::super::super::facts::Facts;
use super::super::super::row::Row;
use super::super::super::snapshots;
use super::super::super::times::{FIVE_MINUTES, FIVE_SECONDS, HOUR, SHORT};
use super::super::super::work::Work;
use super::super::workload::Workload;
use super::plain::moving as jobs;
use super::tasks::{self, input_of, mode_of};
use super::{Role, mode};
use crate::api::meta::text;
use crate::config::control_plane::EtcdMode;
use crate::extension::{problem, together};
use crate::flow::{Attempt, Failed, TaskStep};

/// The tasks on the seed that the Shoot leaves.
pub(super) static MIGRATE: [Row; 6] = [
    Row::new("Deploying main and events etcd", deploy, tasks::written)
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

/// What a druid would have to do, and this version does not ask of it.
fn is_built(mode: EtcdMode) -> Result<(), Failed> {
    match mode {
        EtcdMode::Plain => Ok(()),
        EtcdMode::Druid => Err(problem(
            "an etcd-druid runs the etcd of this Shoot, and this gardenlet cannot move such an etcd yet: let a gardenlet of Gardener \
             serve the seed for the move",
        )),
    }
}

fn deploy(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    is_built(mode_of(work)?)?;
    tasks::deploy(work, attempt)
}

/// Takes a snapshot that the other seed recognizes as the last one. No server writes any more, and no other snapshot is taken.
fn take_last(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    is_built(mode_of(work)?)?;
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

/// Starts the copy of the backups. A Job of an earlier try that failed is replaced.
pub(super) fn copy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    is_built(mode::of(&work.env.seed, work.plane(), work.env.settings.edge.etcd.mode)?)?;
    snapshots::restored(work)?;
    let wanted = snapshots::of_bucket(work)?;
    let accepts_loss = snapshots::accepts_older(&work.shoot);
    jobs::copy(&work.env.seed, work.plane(), &wanted.input(work), accepts_loss, &identity(work))
}

/// The API server has answered with the restored data.
pub(super) fn end_protection(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    jobs::never_empty(&work.env.seed, work.plane(), false)?;
    Ok(TaskStep::Done)
}

pub(super) fn wait_copied(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let (seed, namespace) = (&work.env.seed, work.plane());
    let step = jobs::wait(seed, namespace, jobs::COPY_JOB)?;
    if step == TaskStep::Done
        && let Some(lost) = jobs::told(seed, namespace, jobs::COPY_JOB)?.map(|told| told["lost"].clone())
        && !lost.is_null()
    {
        let (shoot, lost) = (work.view.name.as_str(), text(&lost));
        log::warn!(shoot, lost; "A Shoot is restored without a part of its data, which its owner has accepted");
        work.lost = Some(lost.to_owned());
    }
    Ok(step)
}

pub(super) fn delete_copy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    jobs::delete(&work.env.seed, work.plane())?;
    Ok(TaskStep::Done)
}
