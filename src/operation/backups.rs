//! The BackupEntry of a Shoot, if its seed has backups.

use crate::api::core::SECRET;
use crate::api::extensions;
use crate::api::gardener::BACKUP_ENTRY;
use crate::api::meta::{Key, Metadata, text};
use crate::backup::garden::{self, EntryOperation, WantedEntry};
use crate::extension::{DesiredExtension, ExtensionObject, ExtensionPatience};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::runtime::write;

use super::objects::{Desired, Leaving, ObjectRow};
use super::work::Work;

/// The entry in the garden. Its own controller deletes it after the Shoot.
pub(super) const ENTRY: ObjectRow =
    ObjectRow { cluster: |work| &work.env.garden.0, desired, write: deploy, ..ObjectRow::NONE };

fn desired(work: &Work) -> Result<Vec<Desired>, Failed> {
    Ok(vec![Desired {
        target: garden::entry(&work.shoot),
        content: DesiredExtension::default(),
        patience: ExtensionPatience::of(&BACKUP_ENTRY),
    }])
}

/// Writes it, for the Seed's bucket.
fn deploy(work: &Work, desired: &Desired) -> Result<TaskStep, Failed> {
    let wanted = WantedEntry {
        shoot: &work.shoot,
        bucket: text(&work.inputs.seed["metadata"]["uid"]),
        operation: if work.facts.restores() { EntryOperation::Restore } else { EntryOperation::Reconcile },
    };
    garden::deploy_entry(&work.env.garden, &desired.target, &wanted, work.now())?;
    Ok(TaskStep::Done)
}

/// Gives the entry to the other seed.
pub(super) fn migrate(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let (garden, entry) = (&work.env.garden, garden::entry(&work.shoot));
    // A seed may not write an entry that it has given away. The answer to an earlier try may be lost.
    let is_kept =
        entry.find(garden)?.is_some_and(|live| live["spec"]["seedName"] != work.shoot["spec"]["seedName"]);
    if is_kept {
        garden::migrate_entry(garden, &entry, &work.shoot, work.now())?;
    }
    Ok(TaskStep::Done)
}

/// Waits until the extension of this seed has released it.
pub(super) fn wait_migrated(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let entry = garden::entry(&work.shoot);
    let step = entry.wait_migrated(&work.env.garden, ExtensionPatience::of(&BACKUP_ENTRY), attempt)?;
    if step != TaskStep::Done {
        return Ok(step);
    }
    release_left(work, attempt)
}

/// The object of the entry in this seed, and its Secret.
const LEFT: ObjectRow = ObjectRow {
    moving: |work| {
        let key = Key::cluster(garden::entry(&work.shoot).key.name);
        Leaving::live(&work.env.seed, ExtensionObject { resource: extensions::BACKUP_ENTRY, key })
    },
    ..ObjectRow::NONE
};

/// The controller of the entry leaves nothing here. But if an administrator has released the entry in the garden (`gardenlet rescue`), it
/// has not seen that, and a later deletion of what is left would delete the backups.
fn release_left(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let step = LEFT.migrate_and_wait(work, attempt)?;
    if step != TaskStep::Done {
        return Ok(step);
    }
    LEFT.delete_migrated(work)?;
    let step = LEFT.wait_migrated_gone(work, attempt)?;
    let secret = garden::entry_secret(&garden::entry(&work.shoot).key.name);
    if step == TaskStep::Done && work.env.seed.find::<Metadata>(&SECRET, &secret)?.is_some() {
        write::delete(&work.env.seed, &SECRET, &secret)?;
    }
    Ok(step)
}
