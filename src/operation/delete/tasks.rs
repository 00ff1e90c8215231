//! The tasks of a deletion. Each reads and writes, and returns at once.

use std::time::Duration;

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, NAMESPACE, SECRET};
use crate::api::extensions::CLUSTER;
use crate::api::meta::{Key, Metadata, Resource, text};
use crate::api::resources::{MANAGED_RESOURCE, ManagedResource};
use crate::base::json::json;
use crate::components::managed::{self, Removal};
use crate::extension::together;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::{ListParams, Patch, Seed};
use crate::limits;
use crate::runtime::write;
use crate::shoot::cleaner::{self, CleanupStage, CleanupSweep, CleanupTerms};
use crate::shoot::state;

use super::super::work::Work;
use super::super::{extensions, referenced as copies};

/// How soon to check again whether something is gone.
const SOON: Duration = Duration::from_secs(1);

const AGAIN: Duration = Duration::from_secs(5);

/// A step of the clean-up.
pub(crate) fn sweep(work: &mut Work, stage: CleanupStage) -> Result<TaskStep, Failed> {
    let now = work.now();
    let begun = match stage {
        CleanupStage::Resources => Some(cleaner::begun(&work.env.seed, work.plane(), now)?),
        _ => None,
    };
    let client = work.env.connector.connect(work.plane())?;
    let index = work.sweeps.iter().position(|sweep| sweep.stage() == stage).unwrap_or_else(|| {
        work.sweeps.push(CleanupSweep::new(stage));
        work.sweeps.len() - 1
    });
    work.sweeps[index].step(&client, &CleanupTerms { shoot: &work.shoot, begun, now })
}

pub(crate) fn list_managed(work: &Work, selector: &str) -> Result<Vec<ManagedResource>, Failed> {
    let params = ListParams { label_selector: selector.to_owned(), ..ListParams::default() };
    let mut all = Vec::new();
    work.env.seed.list_all(&MANAGED_RESOURCE, work.plane(), &params, &mut |found| all.push(found))?;
    Ok(all)
}

/// Selects the agent's own.
pub(crate) const OWN: &str = "origin=gardener";

/// Deletes the agent's ManagedResources for the cluster. Without its API server, their objects cannot be deleted.
pub(crate) fn managed(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    each(&list_managed(work, OWN)?, &|found| {
        managed::remove(&work.env.seed, &found.metadata.key())?;
        if work.facts.cleans() { Ok(()) } else { release(&work.env.seed, found) }
    })
}

/// Applies an action to all of them. A failure does not stop the others.
pub(crate) fn each(
    all: &[ManagedResource],
    act: &dyn Fn(&ManagedResource) -> Result<(), Failed>,
) -> Result<TaskStep, Failed> {
    together(all.iter().map(|one| act(one).map(|()| TaskStep::Done)).collect())
}

/// Releases a ManagedResource for the cluster of the Shoot, together with its objects.
fn release(seed: &Seed, managed: &ManagedResource) -> Result<(), Failed> {
    if !managed.spec.class.is_empty() {
        return Ok(());
    }
    finalize(seed, &MANAGED_RESOURCE, &managed.metadata.key())
}

fn finalize(seed: &Seed, resource: &Resource, key: &Key) -> Result<(), Failed> {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    match seed.patch_blindly(resource, key, &patch) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

fn are_gone(left: &[ManagedResource], after: Duration) -> TaskStep {
    if left.is_empty() {
        return TaskStep::Done;
    }
    let names: Vec<String> = left
        .iter()
        .take(limits::CLEANUP_NAMES_MAX)
        .map(|found| format!("{} ({})", found.metadata.key(), why(found)))
        .collect();
    TaskStep::again(after, format!("ManagedResources are still there: {}", names.join(", ")))
}

fn why(found: &ManagedResource) -> String {
    let applied = found.status.conditions.iter().find(|condition| condition.kind == "ResourcesApplied");
    applied.map_or("its applier has not said why".to_owned(), |condition| condition.message.clone())
}

pub(crate) fn wait_managed(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    Ok(are_gone(&list_managed(work, OWN)?, SOON))
}

pub(crate) fn wait_all_managed(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    release_going(work)?;
    let mut all = list_managed(work, "")?;
    all.retain(|found| found.spec.class.is_empty());
    Ok(are_gone(&all, SOON))
}

/// Without an API server, releases ManagedResources that are being deleted: extensions may wait for their own.
fn release_going(work: &Work) -> Result<(), Failed> {
    if work.facts.cleans() {
        return Ok(());
    }
    let mut all = list_managed(work, "")?;
    all.retain(|found| found.metadata.deletion_timestamp.is_some());
    each(&all, &|found| release(&work.env.seed, found)).map(drop)
}

pub(crate) fn wait_extensions_before(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    release_going(work)?;
    extensions::BEFORE.wait_gone(work, attempt)
}

pub(crate) fn wait_stale_extensions(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    release_going(work)?;
    extensions::STALE.wait_gone(work, attempt)
}

pub(crate) fn referenced(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let key = Key::new(work.plane(), copies::MANAGED_RESOURCE);
    Ok(match managed::remove(&work.env.seed, &key)? {
        Removal::Gone => TaskStep::Done,
        _ => TaskStep::again(SOON, format!("ManagedResource {key} is still there")),
    })
}

pub(crate) fn namespace(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    // Its Secrets are deleted with it.
    work.session = None;
    write::delete(&work.env.seed, &NAMESPACE, &Key::cluster(work.plane()))?;
    Ok(TaskStep::Done)
}

pub(crate) fn wait_namespace_gone(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let Some(found) = work.env.seed.find::<Value>(&NAMESPACE, &Key::cluster(work.plane()))? else {
        work.env.connector.forget(work.plane());
        return Ok(TaskStep::Done);
    };
    let mut why = format!("namespace {} of the seed is still there", work.plane());
    for condition in found["status"]["conditions"].as_array().into_iter().flatten() {
        if condition["status"] == "True" {
            why.push_str(&format!("; {}", text(&condition["message"])));
        }
    }
    Ok(TaskStep::again(AGAIN, why))
}

pub(crate) fn state(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    state::delete(&work.env.garden, &work.key())?;
    Ok(TaskStep::Done)
}

pub(crate) fn cluster(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    write::delete(&work.env.seed, &CLUSTER, &Key::cluster(work.plane()))?;
    Ok(TaskStep::Done)
}

/// Nothing waits any more for objects that could still be applied.
pub(crate) fn drop_objects(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let mut kept = list_managed(work, "")?;
    kept.retain(|found| found.spec.keep_objects);
    each(&kept, &|found| {
        let (key, patch) = (found.metadata.key(), Patch::Merge(json!({"spec": {"keepObjects": false}})));
        match work.env.seed.patch_blindly(&MANAGED_RESOURCE, &key, &patch) {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    })
}

/// All of them; those for the cluster are deleted without their objects.
pub(crate) fn force_managed(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    each(&list_managed(work, "")?, &|found| {
        managed::remove(&work.env.seed, &found.metadata.key())?;
        release(&work.env.seed, found)
    })
}

pub(crate) fn wait_any_managed(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    Ok(are_gone(&list_managed(work, "")?, AGAIN))
}

/// Removes finalizers that would keep ConfigMaps and Secrets.
pub(crate) fn force_resources(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let mut held = Vec::new();
    for resource in [CONFIG_MAP, SECRET] {
        let params = ListParams { metadata_only: true, ..ListParams::default() };
        work.env.seed.list_all::<Metadata>(&resource, work.plane(), &params, &mut |object| {
            if !object.metadata.finalizers.is_empty() {
                held.push((resource.clone(), object.metadata.key()));
            }
        })?;
    }
    let remove = |(resource, key): (Resource, Key)| {
        write::delete(&work.env.seed, &resource, &key)?;
        finalize(&work.env.seed, &resource, &key).map(|()| TaskStep::Done)
    };
    together(held.into_iter().map(remove).collect())
}
