//! What a Shoot asks for and this version cannot do. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::meta::text;

use super::decide::{Operation, generation};
use super::rotation;

/// Something that is not built. Nothing of the Shoot is touched as long as it asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unbuilt {
    /// A whole operation.
    Operation(Operation),
    /// A control plane that runs is to stop.
    Hibernation,
    /// What etcd stores is to be encrypted with another key.
    EncryptionKey,
    /// Other resources than before are to be encrypted in etcd.
    EncryptedResources,
}

impl Unbuilt {
    /// What the operation needs and is not there.
    pub fn of(shoot: &Value, operation: Operation) -> Option<Self> {
        match operation {
            Operation::Create => stops_halfway(shoot).then_some(Self::Hibernation),
            Operation::Reconcile => {
                let needs = [
                    (is_to_stop(shoot), Self::Hibernation),
                    (rotation::prepares_encryption_key(shoot), Self::EncryptionKey),
                    (encrypts_others(shoot), Self::EncryptedResources),
                ];
                needs.into_iter().find_map(|(is_needed, what)| is_needed.then_some(what))
            }
            other => Some(Self::Operation(other)),
        }
    }

    /// In words, with what an owner can do.
    pub fn sentence(self) -> String {
        let (what, remedy) = match self {
            Self::Operation(operation) => (operation_in_words(operation), ""),
            Self::Hibernation => {
                ("hibernate a Shoot that runs", " Set spec.hibernation.enabled of the Shoot to false.")
            }
            Self::EncryptionKey => (
                "rotate the key that encrypts what etcd stores",
                " Take the rotation out of annotation gardener.cloud/operation of the Shoot. If it is already being prepared, \
                 let a gardenlet of Gardener finish it.",
            ),
            Self::EncryptedResources => (
                "change which resources of a running Shoot are encrypted",
                " Set spec.kubernetes.kubeAPIServer.encryptionConfig.resources to what status.credentials.encryptionAtRest says.",
            ),
        };
        format!("This gardenlet cannot {what} yet. It has left everything as it is.{remedy}")
    }
}

const fn operation_in_words(operation: Operation) -> &'static str {
    match operation {
        Operation::Create | Operation::Reconcile => "reconcile Shoots",
        Operation::Restore => "restore Shoots that come from other seeds",
        Operation::Migrate => "prepare the migration of Shoots to other seeds",
        Operation::Delete | Operation::ForceDelete => "delete Shoots",
    }
}

fn is_to_stop(shoot: &Value) -> bool {
    shoot["spec"]["hibernation"]["enabled"] == true && shoot["status"]["hibernated"] != true
}

/// A Shoot that is being made changes its mind: parts of its control plane may run.
fn stops_halfway(shoot: &Value) -> bool {
    let (metadata, status) = (&shoot["metadata"], &shoot["status"]);
    let is_other = generation(&metadata["generation"]) != generation(&status["observedGeneration"]);
    is_to_stop(shoot) && is_other && !text(&status["uid"]).is_empty()
}

/// Whether the Shoot says that other resources are to be encrypted than those that are. Their order does not matter.
pub(super) fn encrypts_others(shoot: &Value) -> bool {
    let present = &shoot["status"]["credentials"]["encryptionAtRest"];
    let wanted = &shoot["spec"]["kubernetes"]["kubeAPIServer"]["encryptionConfig"];
    // Without a provider, nobody has noted yet what is encrypted.
    !text(&present["provider"]["type"]).is_empty() && set(&present["resources"]) != set(&wanted["resources"])
}

fn set(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_shoot_asks_for_in_vain() {
        use Operation::{Create, Delete, Migrate, Reconcile, Restore};
        let asleep = json!({"hibernation": {"enabled": true}});
        let encrypts = |resources: &Value| json!({"kubernetes": {"kubeAPIServer": {"encryptionConfig": {"resources": resources}}}});
        let at_rest = |resources: &Value| json!({"credentials": {"encryptionAtRest": {"provider": {"type": "aescbc"}, "resources": resources}}});
        let nothing = json!({});
        let table = [
            (Reconcile, &nothing, nothing.clone(), None),
            (Create, &nothing, nothing.clone(), None),
            (Reconcile, &asleep, nothing.clone(), Some(Unbuilt::Hibernation)),
            (Reconcile, &asleep, json!({"hibernated": true}), None),
            (Reconcile, &nothing, json!({"hibernated": true}), None),
            (Create, &asleep, nothing.clone(), None),
            (Create, &asleep, json!({"uid": "u", "observedGeneration": 3}), None),
            (Create, &asleep, json!({"uid": "u", "observedGeneration": 2}), Some(Unbuilt::Hibernation)),
            (Create, &asleep, json!({"observedGeneration": 2}), None),
            (Reconcile, &encrypts(&json!(["a", "b"])), at_rest(&json!(["b", "a"])), None),
            (Reconcile, &encrypts(&json!([])), at_rest(&Value::Null), None),
            (Reconcile, &encrypts(&json!(["a"])), nothing.clone(), None),
            (
                Reconcile,
                &encrypts(&json!(["a"])),
                at_rest(&json!(["a", "b"])),
                Some(Unbuilt::EncryptedResources),
            ),
            (Create, &encrypts(&json!(["a"])), at_rest(&Value::Null), None),
            (
                Reconcile,
                &nothing,
                json!({"credentials": {"rotation": {"etcdEncryptionKey": {"phase": "Preparing"}}}}),
                Some(Unbuilt::EncryptionKey),
            ),
            (Migrate, &nothing, nothing.clone(), Some(Unbuilt::Operation(Migrate))),
            (Restore, &nothing, nothing.clone(), Some(Unbuilt::Operation(Restore))),
            (Delete, &asleep, nothing.clone(), Some(Unbuilt::Operation(Delete))),
        ];
        for (operation, spec, status, expected) in table {
            let shoot = json!({"metadata": {"generation": 3}, "spec": spec, "status": status});
            assert_eq!(Unbuilt::of(&shoot, operation), expected, "{operation:?} {shoot}");
        }
    }
}
