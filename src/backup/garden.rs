//! The garden's objects through which flows request backups: the BackupBucket of a seed and the BackupEntry of a Shoot.

use serde_json::Value;

use crate::api::gardener::{BACKUP_BUCKET, BACKUP_ENTRY, OPERATION};
use crate::api::meta::{Key, text};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::extension::credentials::{CredentialsReference, GardenCredentials};
use crate::extension::{ExtensionObject, TIMESTAMP};
use crate::flow::Failed;
use crate::format::time::rfc3339_nanos;
use crate::kube::{Client, Error, Garden, Patch, unless_absent};
use crate::runtime::write;

/// The annotation with which the backups of a deleted BackupEntry are deleted at once.
pub(crate) const FORCE_DELETION: &str = "backupentry.core.gardener.cloud/force-deletion";
/// The annotation with the purpose of the Shoot of a BackupEntry.
pub(crate) const PURPOSE: &str = "shoot.gardener.cloud/purpose";

/// Creates or updates the bucket of a Seed from its section `backup`, and triggers a reconciliation if there is a
/// reason. Upstream triggers one each minute to notice changed credentials; here the bucket controller watches them.
pub(crate) fn deploy_bucket(garden: &Garden, seed: &Value, now: Timestamp) -> Result<(), Error> {
    let key = Key::cluster(text(&seed["metadata"]["uid"]));
    write::ensure(garden, &BACKUP_BUCKET, &key, &|bucket| {
        let before = bucket.clone();
        bucket["metadata"]["ownerReferences"] = json!([owner("Seed", seed, true)]);
        bucket["spec"] = bucket_spec(seed);
        let is_right = before == *bucket && bucket["status"]["lastOperation"]["state"] == "Succeeded";
        if !is_right {
            ask(bucket, now);
        }
    })
    .map(drop)
}

fn bucket_spec(seed: &Value) -> Value {
    let spec = &seed["spec"];
    let backup = &spec["backup"];
    let region = if backup["region"].is_null() { &spec["provider"]["region"] } else { &backup["region"] };
    let mut wanted = json!({
        "provider": {"type": backup["provider"], "region": region},
        "credentialsRef": backup["credentialsRef"],
        "seedName": seed["metadata"]["name"],
    });
    if !backup["providerConfig"].is_null() {
        wanted["providerConfig"] = backup["providerConfig"].clone();
    }
    wanted
}

fn owner(kind: &str, object: &Value, blocks: bool) -> Value {
    let metadata = &object["metadata"];
    json!({"apiVersion": BACKUP_BUCKET.api_version(), "kind": kind, "name": metadata["name"], "uid": metadata["uid"],
        "controller": true, "blockOwnerDeletion": blocks})
}

fn ask(object: &mut Value, now: Timestamp) {
    object["metadata"]["annotations"][OPERATION] = json!("reconcile");
    object["metadata"]["annotations"][TIMESTAMP] = json!(rfc3339_nanos(now));
}

/// The prefix of the Secrets of BackupEntries in namespace `garden` of a seed.
pub(crate) const ENTRY_SECRETS: &str = "entry-";

/// The Secret in a seed with the credentials of a BackupEntry.
pub(crate) fn entry_secret(entry: &str) -> Key {
    Key::new(GARDEN_NAMESPACE, format!("{ENTRY_SECRETS}{entry}"))
}

/// The name of a Shoot's BackupEntry: the namespace of its control plane and its `status.uid`.
pub fn entry_name(plane: &str, uid: &str) -> String {
    format!("{plane}--{uid}")
}

/// The BackupEntry of a Shoot, in the namespace of its project.
pub(crate) fn entry(shoot: &Value) -> ExtensionObject {
    let status = &shoot["status"];
    let name = entry_name(text(&status["technicalID"]), text(&status["uid"]));
    ExtensionObject { resource: BACKUP_ENTRY, key: Key::new(text(&shoot["metadata"]["namespace"]), name) }
}

/// The BackupEntry through which a seed reads the backups that a Shoot has on the seed that it has left. The garden's
/// admission knows this name.
pub(crate) fn source_entry(shoot: &Value) -> ExtensionObject {
    let mut entry = entry(shoot);
    entry.key.name.insert_str(0, "source-");
    entry
}

/// What a seed does with a BackupEntry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryOperation {
    Reconcile,
    /// Take over an entry that another seed has released.
    Restore,
}

/// The desired state of a BackupEntry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedEntry<'a> {
    /// Its owner.
    pub(crate) shoot: &'a Value,
    /// The name of its BackupBucket.
    pub(crate) bucket: &'a str,
    pub(crate) operation: EntryOperation,
}

/// Creates or updates the BackupEntry of a Shoot in a bucket, and triggers its reconciliation.
pub(crate) fn deploy_entry(
    garden: &Garden,
    entry: &ExtensionObject,
    wanted: &WantedEntry<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    let shoot = wanted.shoot;
    write::ensure(garden, &BACKUP_ENTRY, &entry.key, &|object| {
        ask(object, now);
        if wanted.operation == EntryOperation::Restore {
            object["metadata"]["annotations"][OPERATION] = json!("restore");
        }
        if let Some(purpose) = shoot["spec"]["purpose"].as_str() {
            object["metadata"]["annotations"][PURPOSE] = json!(purpose);
        }
        object["metadata"]["ownerReferences"] = json!([owner("Shoot", shoot, false)]);
        object["spec"]["bucketName"] = json!(wanted.bucket);
        object["spec"]["seedName"] = shoot["spec"]["seedName"].clone();
    })
    .map(drop)
}

/// Gives the BackupEntry of a Shoot to the seed that the Shoot is bound to. The seed that has it releases it. Errors: a
/// request fails. A missing entry is no error.
pub(crate) fn migrate_entry(
    garden: &Garden,
    entry: &ExtensionObject,
    shoot: &Value,
    now: Timestamp,
) -> Result<(), Error> {
    let annotations = json!({OPERATION: "migrate", TIMESTAMP: rfc3339_nanos(now)});
    let patch =
        json!({"metadata": {"annotations": annotations}, "spec": {"seedName": shoot["spec"]["seedName"]}});
    unless_absent(garden.patch_blindly(&BACKUP_ENTRY, &entry.key, &Patch::Merge(patch))).map(drop)
}

/// Lets a deletion of a BackupEntry delete its backups at once. Errors: a request fails. A missing entry is no error.
pub(crate) fn force_deletion(garden: &Garden, entry: &ExtensionObject) -> Result<(), Error> {
    unless_absent(garden.patch_blindly(&BACKUP_ENTRY, &entry.key, &Patch::annotation(FORCE_DELETION, "true")))
        .map(drop)
}

/// Reads the credentials of a BackupBucket: those that its extension generated, or its own. Errors: a request fails; or
/// the garden does not have them.
pub(crate) fn credentials(garden: &Client, bucket: &Value) -> Result<GardenCredentials, Failed> {
    let name = text(&bucket["metadata"]["name"]);
    let generated = &bucket["status"]["generatedSecretRef"];
    if generated.is_object() {
        let of = format!("status.generatedSecretRef of BackupBucket {name}");
        return CredentialsReference::secret(generated).find(garden, &of);
    }
    let of = format!("spec.credentialsRef of BackupBucket {name}");
    CredentialsReference::read(&bucket["spec"]["credentialsRef"])?.find(garden, &of)
}

/// The error that an extension reported during a deletion.
pub(crate) fn said(error: &Value) -> Failed {
    let codes = error["codes"].as_array().into_iter().flatten();
    let codes = codes.filter_map(Value::as_str).map(str::to_owned).collect();
    Failed { codes, ..Failed::new(text(&error["description"])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_of_a_seed() {
        let mut seed = json!({"metadata": {"name": "edge", "uid": "u"}, "spec": {"provider": {"region": "here"},
            "backup": {"provider": "lab", "credentialsRef": {"kind": "Secret", "name": "c"}}}});
        let expected = json!({"provider": {"type": "lab", "region": "here"}, "seedName": "edge",
            "credentialsRef": {"kind": "Secret", "name": "c"}});
        assert_eq!(bucket_spec(&seed), expected);
        seed["spec"]["backup"]["region"] = json!("there");
        seed["spec"]["backup"]["providerConfig"] = json!({"x": 1});
        let spec = bucket_spec(&seed);
        assert_eq!((&spec["provider"]["region"], &spec["providerConfig"]["x"]), (&json!("there"), &json!(1)));
    }
}
