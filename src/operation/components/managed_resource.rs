//! ManagedResources of a Shoot.

use crate::api::meta::Key;
use crate::components::managed::{self, Managed};
use crate::flow::{Failed, TaskStep};

use super::super::times::{FIVE_SECONDS, STORE_PERIOD};
use super::super::work::Work;

/// Writes a ManagedResource of the Shoot.
pub(super) fn deploy(work: &mut Work, managed: &Managed) -> Result<TaskStep, Failed> {
    let key = Key::new(work.plane(), managed.name.as_str());
    let present = work.env.managed.get(&key);
    if present.is_some_and(|present| present.metadata.deletion_timestamp.is_some()) {
        return Ok(TaskStep::again(STORE_PERIOD, format!("ManagedResource {key} is still being deleted")));
    }
    let generation = managed::deploy(&work.env.seed, managed)?;
    work.generations.insert(managed.name.clone(), generation);
    Ok(TaskStep::Done)
}

/// The step of a task that asks the cluster for what a ManagedResource has; None if it is applied, or does not exist.
pub(super) fn step_until_applied(work: &Work, name: &str) -> Option<TaskStep> {
    let managed = work.env.managed.get(&Key::new(work.plane(), name))?;
    let why = || format!("ManagedResource {name} is not applied yet");
    (!managed.is_applied()).then(|| TaskStep::again(FIVE_SECONDS, why()))
}

/// Whether its objects are applied and healthy.
pub(super) fn wait_healthy(work: &Work, name: &str) -> Result<TaskStep, Failed> {
    let key = Key::new(work.plane(), name);
    let generation = work.generations.get(name).copied().unwrap_or_default();
    let Some(found) = work.env.managed.get(&key) else {
        return Ok(TaskStep::again(STORE_PERIOD, format!("ManagedResource {key} does not exist yet")));
    };
    Ok(match found.unhealthy(generation) {
        None => TaskStep::Done,
        Some(why) => TaskStep::again(STORE_PERIOD, format!("ManagedResource {key} {why}")),
    })
}
