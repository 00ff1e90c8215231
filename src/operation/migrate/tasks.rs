//! The tasks of a migration that have no counterpart in other operations. Each reads and writes, and returns at once.

use crate::api::resources::MANAGED_RESOURCE;
use crate::base::json::json;
use crate::extension::together;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::Patch;
use crate::shoot::state;

use super::super::delete::tasks::{OWN, each, list_managed};
use super::super::records;
use super::super::work::Work;

/// The applier forgets the objects instead of deleting them.
pub(super) fn keep_objects(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let mut all = list_managed(work, OWN)?;
    all.retain(|found| !found.spec.keep_objects);
    each(&all, &|found| {
        let (key, patch) = (found.metadata.key(), Patch::Merge(json!({"spec": {"keepObjects": true}})));
        match work.env.seed.patch_blindly(&MANAGED_RESOURCE, &key, &patch) {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    })
}

/// Writes what the other seed needs, and reads it back: from now on, this seed deletes it.
pub(super) fn persist_state(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    state::persist(&work.env.garden, &work.env.seed, &work.shoot, work.now())?;
    Ok(TaskStep::Done)
}

pub(super) fn delete_records(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let records = [&records::EXTERNAL_RECORD, &records::INTERNAL_RECORD];
    together(records.map(|record| record.delete_and_wait(work, attempt)).into())
}
