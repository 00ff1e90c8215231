//! The BackupEntry of a Shoot, if its seed has backups.

use crate::api::gardener::BACKUP_ENTRY;
use crate::api::meta::text;
use crate::backup::garden;
use crate::extension::{Patience, Target};
use crate::flow::{Attempt, Failed, Step};

use super::work::Work;

fn entry(work: &Work) -> Target {
    garden::entry(&work.view.namespace, &garden::entry_name(work.plane(), &work.view.status_uid))
}

/// Writes it, for the Seed's bucket.
pub(super) fn deploy(work: &mut Work, _: &Attempt) -> Result<Step, Failed> {
    let bucket = text(&work.inputs.seed["metadata"]["uid"]);
    garden::deploy_entry(&work.env.garden, &entry(work), (&work.shoot, bucket), work.now())?;
    Ok(Step::Done)
}

/// Waits until its controller has reconciled it.
pub(super) fn wait(work: &mut Work, attempt: &Attempt) -> Result<Step, Failed> {
    entry(work).wait_ready(&work.env.garden, Patience::of(&BACKUP_ENTRY), attempt)
}
