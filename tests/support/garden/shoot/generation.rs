//! The changes that increase the generation of a Shoot, which makes an agent reconcile it.

use serde_json::{Value, json};

use super::{is_hibernated, is_workerless};
use crate::api::rules::strip;
use crate::garden::rules::{FORCE_DELETION, OPERATION, operation};
use crate::json::{entry, map, text};

/// Values that start or end the rotation of credentials, or roll out workers. The agent removes them.
const ROTATIONS: [&str; 13] = [
    "rotate-credentials-start",
    "rotate-credentials-start-without-workers-rollout",
    "rotate-credentials-complete",
    "rotate-ca-start",
    "rotate-ca-start-without-workers-rollout",
    "rotate-ca-complete",
    "rotate-serviceaccount-key-start",
    "rotate-serviceaccount-key-start-without-workers-rollout",
    "rotate-serviceaccount-key-complete",
    "rotate-etcd-encryption-key",
    "rotate-etcd-encryption-key-start",
    "rotate-etcd-encryption-key-complete",
    "rotate-observability-credentials",
];
const ROLLOUTS: [&str; 2] = ["rotate-rollout-workers=", "rollout-workers="];

/// The effect of the operations of a Shoot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// Whether one of them counts.
    pub counts: bool,
    /// Those that stay in the annotation.
    pub left: Vec<String>,
}

/// The operations that the annotation names.
pub fn operations(shoot: &Value) -> impl Iterator<Item = &str> {
    operation(shoot).split(';').map(str::trim).filter(|o| !o.is_empty())
}

/// Sorts the operations. An annotation that stays counts again with each change of the object.
pub fn asked(shoot: &Value) -> Asked {
    let mut asked = Asked::default();
    for operation in operations(shoot) {
        let (counts, stays) = fate(shoot, operation);
        asked.counts |= counts;
        if stays {
            asked.left.push(operation.to_owned());
        }
    }
    asked
}

/// Whether an operation counts, and whether it stays.
fn fate(shoot: &Value, operation: &str) -> (bool, bool) {
    let state = match &shoot["status"]["lastOperation"] {
        Value::Null => return (false, true),
        last => text(last, "/state"),
    };
    if state == "Failed" {
        return if operation == "retry" { (true, false) } else { (false, true) };
    }
    let is_rotation =
        ROTATIONS.contains(&operation) || ROLLOUTS.iter().any(|prefix| operation.starts_with(prefix));
    match operation {
        "reconcile" => (true, false),
        "rotate-ssh-keypair" => (has_ssh(shoot), has_ssh(shoot)),
        _ => (is_rotation, true),
    }
}

fn has_ssh(shoot: &Value) -> bool {
    let enabled = shoot.pointer("/spec/provider/workersSettings/sshAccess/enabled");
    !is_workerless(shoot) && enabled != Some(&json!(false))
}

/// Removes the operations that the server has handled.
pub fn take_operations(shoot: &mut Value) {
    if operation(shoot).is_empty() {
        return;
    }
    let left = asked(shoot).left.join(";");
    let annotations = map(shoot, "/metadata/annotations");
    if left.is_empty() {
        annotations.remove(OPERATION);
    } else {
        annotations.insert(OPERATION.to_owned(), left.into());
    }
}

/// Whether a change of the spec counts. One that is confined to the maintenance time window does not, but hibernation and
/// wake-up do.
pub fn spec_counts(old: &Value, new: &Value) -> bool {
    if new.pointer("/spec/maintenance/confineSpecUpdateRollout") == Some(&json!(true)) {
        return is_hibernated(old) != is_hibernated(new);
    }
    strip(old) != strip(new)
}

/// Whether the deletion is forced from now on.
pub fn is_forced_anew(old: &Value, new: &Value) -> bool {
    let forced = |shoot| entry(shoot, "/metadata/annotations", FORCE_DELETION) == Some("true");
    forced(new) && !forced(old)
}

/// Whether a write of the status counts: a migration has left the Seed, which counts with each write, or a new encryption key waits
/// for its completion.
pub fn status_counts(old: &Value, new: &Value) -> bool {
    let migrated = |shoot: &Value| {
        let last = &shoot["status"]["lastOperation"];
        last["type"] == "Migrate" && (last["state"] == "Succeeded" || last["state"] == "Aborted")
    };
    let prepared = |shoot: &Value| {
        let rotation = &shoot["status"]["credentials"]["rotation"]["etcdEncryptionKey"];
        rotation["phase"] == "Prepared" && rotation["autoCompleteAfterPrepared"] == true
    };
    migrated(new) || (prepared(new) && !prepared(old))
}
