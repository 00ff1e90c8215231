//! The BackupEntry of a Shoot, if its seed has backups.

use crate::api::gardener::BACKUP_ENTRY;
use crate::api::meta::text;
use crate::backup::garden;
use crate::extension::{DesiredExtension, ExtensionPatience};
use crate::flow::{Failed, TaskStep};

use super::objects::{Desired, ObjectRow};
use super::work::Work;

/// The entry in the garden. Its own controller deletes it after the Shoot.
pub(super) const ENTRY: ObjectRow =
    ObjectRow { cluster: |work| &work.env.garden.0, desired, write: deploy, leaving: |_| Ok(Vec::new()) };

fn desired(work: &Work) -> Vec<Desired> {
    let name = garden::entry_name(work.plane(), &work.view.status_uid);
    let target = garden::entry(&work.view.namespace, &name);
    vec![Desired {
        target,
        wish: DesiredExtension::default(),
        patience: ExtensionPatience::of(&BACKUP_ENTRY),
    }]
}

/// Writes it, for the Seed's bucket.
fn deploy(work: &Work, desired: &Desired) -> Result<TaskStep, Failed> {
    let bucket = text(&work.inputs.seed["metadata"]["uid"]);
    garden::deploy_entry(&work.env.garden, &desired.target, &work.shoot, bucket, work.now())?;
    Ok(TaskStep::Done)
}
