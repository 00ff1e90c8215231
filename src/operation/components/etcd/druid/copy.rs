//! The copy of backups by an etcd-druid: an EtcdCopyBackupsTask like the one that Gardener's own gardenlet writes. A druid copies in whatever
//! storage it knows. It also succeeds if there is nothing to copy, so [`super::backup_restore`] looks at the data afterwards.

use std::time::Duration;

use serde_json::Value;

use super::BackupStore;
use crate::api::meta::{Key, Resource, annotation, text};
use crate::base::json::json;
use crate::flow::{Failed, TaskStep};
use crate::kube::{Error, Seed};
use crate::runtime::write;

/// Objects of an etcd-druid.
pub const COPY_TASK: Resource =
    Resource::new("druid.gardener.cloud", "v1alpha1", "EtcdCopyBackupsTask", "etcdcopybackupstasks", true);

/// The annotation with the operation that has created the object.
const OPERATION: &str = "moving.gardenlet.gardener.cloud/operation";
/// How often the object is checked.
const AGAIN: Duration = Duration::from_secs(5);

/// From where backups are copied, and to where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyStores {
    /// The bucket of the seed that the Shoot has left.
    pub source: BackupStore,
    /// The bucket of this seed.
    pub target: BackupStore,
    /// Whether the druid waits for a final snapshot. Where a loss is accepted, there may never be one.
    pub waits: bool,
}

/// The EtcdCopyBackupsTask with both stores.
pub(crate) fn fill(key: &Key, stores: &CopyStores, operation: &str) -> Value {
    let allowed = ["to-dns", "to-private-networks", "to-public-networks"]
        .map(|to| (format!("networking.gardener.cloud/{to}"), json!("allowed")));
    let labels: serde_json::Map<String, Value> = allowed.into_iter().collect();
    json!({
        "apiVersion": COPY_TASK.api_version(), "kind": COPY_TASK.kind,
        "metadata": {"name": key.name, "namespace": key.namespace, "annotations": {OPERATION: operation}},
        "spec": {"podLabels": labels, "sourceStore": stores.source.spec(), "targetStore": stores.target.spec(),
            "waitForFinalSnapshot": {"enabled": stores.waits, "timeout": "5m0s"}}
    })
}

/// Brings the object about. One that has ended is replaced, because the backups may be others now. Done once it is there.
pub fn deploy(seed: &Seed, key: &Key, stores: &CopyStores, operation: &str) -> Result<TaskStep, Error> {
    let again = |why: &str| Ok(TaskStep::again(AGAIN, format!("EtcdCopyBackupsTask {key} {why}")));
    let Some(live) = seed.find::<Value>(&COPY_TASK, key)? else {
        seed.create::<Value>(&COPY_TASK, &key.namespace, &fill(key, stores, operation))?;
        return Ok(TaskStep::Done);
    };
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return again("is being deleted: an etcd-druid of the seed does that");
    }
    let has_ended = ["Succeeded", "Failed"].into_iter().any(|kind| outcome(&live, kind).is_some());
    if annotation(&live, OPERATION) == operation && !has_ended {
        return Ok(TaskStep::Done);
    }
    write::delete(seed, &COPY_TASK, key)?;
    again("is replaced")
}

/// The message of a condition that is true.
fn outcome<'a>(task: &'a Value, kind: &str) -> Option<&'a str> {
    let mut all = task["status"]["conditions"].as_array().into_iter().flatten();
    let found = all.find(|condition| condition["type"] == kind && condition["status"] == "True")?;
    Some(text(&found["message"]))
}

/// Checks the object once; `None` if there is none. Errors: the copy failed.
pub fn wait(seed: &Seed, key: &Key) -> Result<Option<TaskStep>, Failed> {
    seed.find::<Value>(&COPY_TASK, key)?.map(|live| judge(key, &live)).transpose()
}

fn judge(key: &Key, live: &Value) -> Result<TaskStep, Failed> {
    let again = |why: &str| Ok(TaskStep::again(AGAIN, format!("EtcdCopyBackupsTask {key} {why}")));
    let status = &live["status"];
    if status["observedGeneration"].is_null()
        || status["observedGeneration"] != live["metadata"]["generation"]
    {
        return again("was not reconciled yet: an etcd-druid of the seed does that");
    }
    if let Some(error) = status["lastError"].as_str() {
        return again(&format!("has failed and is tried again: {error}"));
    }
    if let Some(why) = outcome(live, "Failed") {
        let job = format!("the log of Job {}-worker says more", key.name);
        return Err(Failed::new(format!("EtcdCopyBackupsTask {key} failed: {why}; {job}")));
    }
    match outcome(live, "Succeeded") {
        Some(_) => Ok(TaskStep::Done),
        None => again("has not ended: a Job of the etcd-druid copies the backups"),
    }
}

/// Deletes the object. A missing one is no error.
pub fn delete(seed: &Seed, key: &Key) -> Result<(), Error> {
    write::delete(seed, &COPY_TASK, key).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::archive;

    fn key() -> Key {
        Key::new("shoot--p--s2", "s2")
    }

    #[test]
    fn is_as_in_the_golden_file() {
        let store = |secret, container: &str, provider: &str| BackupStore {
            provider: provider.to_owned(),
            container: container.to_owned(),
            prefix: "shoot--p--s2--0a1b/etcd-main".to_owned(),
            secret,
        };
        let stores = CopyStores {
            source: store("source-etcd-backup", "bucket-a", "gcp"),
            target: store("etcd-backup", "bucket-b", "local"),
            waits: true,
        };
        let golden = include_str!("../../../../../tests/fixtures/components/etcd-druid-copy.yaml");
        assert_eq!(archive::golden(&[fill(&key(), &stores, "Restore-3")]), golden);
        let hurried = fill(&key(), &CopyStores { waits: false, ..stores }, "Restore-3");
        assert_eq!(hurried["spec"]["waitForFinalSnapshot"]["enabled"], false);
    }

    #[test]
    fn only_a_reconciled_object_says_how_the_copy_has_ended() {
        let condition =
            |kind: &str, status: &str| json!([{"type": kind, "status": status, "message": "too late"}]);
        let at = |observed: i64, conditions: Value| json!({"observedGeneration": observed, "conditions": conditions});
        let table = [
            (json!({}), "was not reconciled yet"),
            (at(1, condition("Succeeded", "True")), "was not reconciled yet"),
            (at(2, Value::Null), "has not ended"),
            (at(2, condition("Succeeded", "False")), "has not ended"),
            (at(2, condition("Succeeded", "True")), "done"),
            (at(2, condition("Failed", "True")), "failed: too late; the log of Job s2-worker says more"),
            (json!({"observedGeneration": 2, "lastError": "no room"}), "tried again: no room"),
        ];
        for (status, expected) in table {
            let live = json!({"metadata": {"generation": 2}, "status": status});
            let said = match judge(&key(), &live) {
                Ok(TaskStep::Done) => "done".to_owned(),
                Ok(TaskStep::Again { why, .. }) => why.text,
                Err(failed) => failed.text,
            };
            assert!(said.contains(expected), "{status}: {said}");
        }
    }
}
