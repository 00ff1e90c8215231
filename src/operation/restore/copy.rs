//! The backups of a Shoot that comes from another seed: whether they must be copied, and the entry through which this seed reads
//! them.

use serde_json::Value;

use crate::api::extensions;
use crate::api::gardener::BACKUP_ENTRY;
use crate::api::meta::{Key, text};
use crate::backup::garden::{self, EntryOperation, WantedEntry};
use crate::extension::{DesiredExtension, ExtensionObject, ExtensionPatience};
use crate::flow::{Failed, TaskStep};

use super::super::inputs::GardenInputs;
use super::super::objects::{Desired, Leaving, ObjectRow};
use super::super::work::{Environment, Work};

/// What the garden says about the backups.
#[derive(Clone, Copy, Debug)]
struct BackupTrace<'a> {
    /// The bucket of the Shoot's entry; empty without an entry.
    bucket: &'a str,
    /// The bucket of the entry that reads the other one; empty without such an entry.
    source: &'a str,
    /// The bucket of this seed.
    own: &'a str,
}

/// The bucket from which the backups are copied; `None` if they are in the bucket of this seed.
fn decide(trace: BackupTrace<'_>) -> Option<&str> {
    let other = |bucket: &&str| !bucket.is_empty() && *bucket != trace.own;
    // After an interrupted restoration, the entry of the Shoot already names the bucket of this seed.
    [trace.bucket, trace.source].into_iter().find(other)
}

/// Whether backups of a Shoot must be copied. Errors: a request fails.
pub(in super::super) fn is_needed(
    env: &Environment,
    shoot: &Value,
    inputs: &GardenInputs,
) -> Result<bool, Failed> {
    Ok(bucket(env, shoot, inputs)?.is_some())
}

/// The bucket from which the backups are copied, if they must be.
fn bucket(env: &Environment, shoot: &Value, inputs: &GardenInputs) -> Result<Option<String>, Failed> {
    let found = garden::entry(shoot).find(&env.garden)?.unwrap_or_default();
    let reads = garden::source_entry(shoot).find(&env.garden)?.unwrap_or_default();
    let trace = BackupTrace {
        bucket: text(&found["spec"]["bucketName"]),
        source: text(&reads["spec"]["bucketName"]),
        own: text(&inputs.seed["metadata"]["uid"]),
    };
    Ok(decide(trace).map(str::to_owned))
}

/// The bucket of another seed that the entry of the Shoot names. The entry names this seed's before the Shoot's etcd is created here.
pub(in super::super) fn elsewhere(
    env: &Environment,
    shoot: &Value,
    inputs: &GardenInputs,
) -> Result<Option<String>, Failed> {
    let found = garden::entry(shoot).find(&env.garden)?.unwrap_or_default();
    let (bucket, source) = (text(&found["spec"]["bucketName"]), "");
    let trace = BackupTrace { bucket, source, own: text(&inputs.seed["metadata"]["uid"]) };
    Ok(decide(trace).map(str::to_owned))
}

/// Errors: a request fails; or the garden would never let this seed read the backups, because they were given to another one.
pub(in super::super) fn check_owner(env: &Environment, shoot: &Value) -> Result<(), Failed> {
    let entry = garden::entry(shoot);
    let found = entry.find(&env.garden)?.unwrap_or_default();
    match text(&found["spec"]["seedName"]) {
        owner if found.is_null() || owner == text(&shoot["spec"]["seedName"]) => Ok(()),
        owner => Err(Failed::new(format!(
            "BackupEntry {} of the garden has been given to seed {owner}, and only that seed can restore the Shoot now: bind it to \
             seed {owner}",
            entry.key
        ))),
    }
}

/// The type of the provider of the other bucket, as the extension knows it.
pub(in super::super) fn provider(work: &Work) -> Result<Value, Failed> {
    let key = Key::cluster(garden::source_entry(&work.shoot).key.name);
    let found: Option<Value> = work.env.seed.find(&extensions::BACKUP_ENTRY, &key)?;
    let missing =
        || Failed::new(format!("BackupEntry {key} does not exist in the seed: it leads to the old bucket"));
    Ok(found.ok_or_else(missing)?["spec"]["type"].take())
}

/// The entry in the garden for the bucket of the other seed. With its deletion, the backups there are deleted.
pub(in super::super) const SOURCE_ENTRY: ObjectRow = ObjectRow {
    cluster: |work| &work.env.garden.0,
    desired: |work| Ok(vec![desired(garden::source_entry(&work.shoot))]),
    write: deploy,
    leaving,
    ..ObjectRow::NONE
};

fn desired(target: ExtensionObject) -> Desired {
    Desired { target, content: DesiredExtension::default(), patience: ExtensionPatience::of(&BACKUP_ENTRY) }
}

/// The garden accepts it only while the entry of the Shoot still names the other bucket.
fn deploy(work: &Work, desired: &Desired) -> Result<TaskStep, Failed> {
    let env = &work.env;
    let bucket = bucket(env, &work.shoot, &work.inputs)?.ok_or_else(|| {
        Failed::new("backups have not been copied and source and target backupentry point to the same bucket")
    })?;
    let wanted = WantedEntry { shoot: &work.shoot, bucket: &bucket, operation: EntryOperation::Reconcile };
    garden::deploy_entry(&env.garden, &desired.target, &wanted, work.now())?;
    Ok(TaskStep::Done)
}

fn leaving(work: &Work) -> Result<Vec<Leaving>, Failed> {
    Leaving::live(&work.env.garden, garden::source_entry(&work.shoot))
}

/// Deletes the entry and the backups in the other bucket, without the time that deleted backups are usually kept.
pub(in super::super) fn delete_source(work: &Work) -> Result<TaskStep, Failed> {
    let source = garden::source_entry(&work.shoot);
    // An earlier try may have deleted it, and the garden forbids writes to an entry that is not there.
    if source.find(&work.env.garden)?.is_none() {
        return Ok(TaskStep::Done);
    }
    garden::force_deletion(&work.env.garden, &source)?;
    SOURCE_ENTRY.delete(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_copied_from_the_bucket_of_another_seed() {
        let table = [
            (["a", "", "b"], Some("a")),
            (["a", "a", "b"], Some("a")),
            (["b", "a", "b"], Some("a")),
            // It was bound to this seed again before it had left, or its backups are copied.
            (["b", "", "b"], None),
            (["b", "b", "b"], None),
            (["", "", "b"], None),
        ];
        for ([bucket, source, own], expected) in table {
            assert_eq!(decide(BackupTrace { bucket, source, own }), expected, "{bucket} {source}");
        }
    }
}
