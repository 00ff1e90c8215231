//! Deletes a Shoot that has no control plane yet.
//!
//! The deletion of a control plane is not built yet.

use serde_json::Value;

use crate::api::extensions::CLUSTER;
use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, Metadata, text};
use crate::format::view;
use crate::runtime::controller::{Failure, Outcome};
use crate::runtime::write;

use super::decide::{FINALIZER, Operation};
use super::{CONFLICT_RETRY, ShootReconciler};

/// Whether the Shoot may go at once: `status.uid` is written before anything but the `Cluster` is made in the seed.
pub(super) fn is_due(operation: Operation, shoot: &Value) -> bool {
    let is_deletion = matches!(operation, Operation::Delete | Operation::ForceDelete);
    is_deletion && text(&shoot["status"]["uid"]).is_empty()
}

impl ShootReconciler {
    /// Lets it go.
    pub(super) fn release(&self, key: &Key, shoot: &Value) -> Result<Outcome, Failure> {
        let cluster = text(&shoot["status"]["technicalID"]);
        if !cluster.is_empty() {
            match write::delete(&self.seed, &CLUSTER, &Key::new("", cluster)) {
                // An agent that may not delete it could not make it.
                Err(e) if e.status_code() == Some(403) => {}
                other => drop(other?),
            }
        }
        let metadata = view::look::<Metadata>(shoot)?.metadata;
        let read = (metadata.finalizers.as_slice(), metadata.resource_version.as_str());
        match write::finalizer(&self.garden, &SHOOT, key, read, FINALIZER, false) {
            Err(e) if e.is_conflict() => Ok(Outcome::GoOn(CONFLICT_RETRY)),
            other => Ok(other.map(|()| Outcome::Done)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_shoot_of_which_nothing_was_made_goes() {
        let table = [
            (Operation::Delete, json!({}), true),
            (Operation::ForceDelete, json!({"technicalID": "shoot--p--s"}), true),
            (Operation::Delete, json!({"uid": "u"}), false),
            (Operation::Reconcile, json!({}), false),
            (Operation::Migrate, json!({}), false),
        ];
        for (operation, status, expected) in table {
            assert_eq!(is_due(operation, &json!({"status": status})), expected, "{operation:?} {status}");
        }
    }
}
