//! Whether an extension has finished an operation on an object (Gardener's predicate `LastOperationChanged`).

use serde::Deserialize;

use crate::api::gardener::{LastOperation, OPERATION};
use crate::api::meta::ObjectMeta;
use crate::runtime::informer::PartialObject;
use crate::runtime::store::Change;

/// The part of an object that is kept in memory: of an extension's, or of a garden object that is judged like one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ExtensionHead {
    pub(crate) metadata: ObjectMeta,
    pub(crate) status: ExtensionHeadStatus,
}

/// The status of an [`ExtensionHead`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ExtensionHeadStatus {
    pub(crate) last_operation: Option<LastOperation>,
}

impl PartialObject for ExtensionHead {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl ExtensionHead {
    fn operation(&self) -> &str {
        self.metadata.annotations.get(OPERATION).map_or("", String::as_str)
    }

    /// The last operation, if it has ended.
    fn ended(&self) -> Option<&LastOperation> {
        let last = self.status.last_operation.as_ref();
        last.filter(|last| ["Succeeded", "Error", "Failed"].contains(&last.state.as_str()))
    }
}

/// Whether the controller that triggered the extension must reconcile now. Upstream does not reconcile a deleted
/// object. Here the object may have to be created again, or something waits for its deletion.
pub(crate) fn has_ended(change: &Change<ExtensionHead>) -> bool {
    let Some(new) = change.new.as_deref() else { return true };
    let operation = new.operation();
    let Some(old) = change.old.as_deref() else {
        let is_failed = new.status.last_operation.as_ref().is_some_and(|last| last.state == "Failed");
        return operation != "reconcile" && is_failed;
    };
    // `reconcile` is removed when the extension starts, the others when it has finished.
    let is_picked_up = match operation {
        "reconcile" => false,
        "migrate" | "restore" => old.operation() == operation,
        _ => true,
    };
    is_picked_up && new.ended().is_some() && old.status.last_operation != new.status.last_operation
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::meta::Key;

    fn head(operation: &str, last: Option<(&str, &str)>) -> ExtensionHead {
        let last = last.map(|(state, at)| json!({"type": "Reconcile", "state": state, "lastUpdateTime": at}));
        serde_json::from_value(json!({"metadata": {"name": "x", "annotations": {OPERATION: operation}},
            "status": {"lastOperation": last}}))
        .unwrap()
    }

    #[test]
    fn when_somebody_looks() {
        let change = |old: Option<ExtensionHead>, new: Option<ExtensionHead>| {
            has_ended(&Change { key: Key::cluster("x"), old: old.map(Arc::new), new: new.map(Arc::new) })
        };
        let done = |at| Some(("Succeeded", at));
        let table = [
            ("it is gone", Some(head("", None)), None, true),
            ("it is new", None, Some(head("", done("1"))), false),
            ("it is new, and has failed", None, Some(head("", Some(("Failed", "1")))), true),
            (
                "it has failed, and was asked again",
                None,
                Some(head("reconcile", Some(("Failed", "1")))),
                false,
            ),
            ("first success", Some(head("", None)), Some(head("", done("1"))), true),
            ("the same again", Some(head("", done("1"))), Some(head("", done("1"))), false),
            ("a later success", Some(head("", done("1"))), Some(head("", done("2"))), true),
            ("an error", Some(head("", done("1"))), Some(head("", Some(("Error", "2")))), true),
            ("it goes on", Some(head("", done("1"))), Some(head("", Some(("Processing", "2")))), false),
            ("not picked up", Some(head("", done("1"))), Some(head("reconcile", done("2"))), false),
            ("asked to migrate", Some(head("", done("1"))), Some(head("migrate", done("2"))), false),
            ("migrated", Some(head("migrate", done("1"))), Some(head("migrate", done("2"))), true),
            ("restored", Some(head("restore", None)), Some(head("restore", done("2"))), true),
            ("waits for its state", Some(head("", None)), Some(head("wait-for-state", done("2"))), true),
        ];
        for (name, old, new, expected) in table {
            assert_eq!(change(old, new), expected, "{name}");
        }
    }
}
