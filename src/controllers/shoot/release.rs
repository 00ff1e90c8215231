//! The end of a deletion: deletes the `Cluster`, writes the status, and removes the finalizer last.

use serde_json::Value;

use crate::api::extensions::CLUSTER;
use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, Metadata, text};
use crate::base::clock::Timestamp;
use crate::format::view;
use crate::kube;
use crate::operation::Operation;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};
use crate::runtime::write;

use super::act::EndError;
use super::decide::FINALIZER;
use super::finish::OperationEvent;
use super::report::{OperationReport, OperationStart, OperationSuccess};
use super::{CONFLICT_RETRY, ShootReconciler};

/// Whether the Shoot can be released at once: nothing but the `Cluster` is created in the seed before `status.uid` is
/// written, and nothing is left after a successful deletion.
pub(super) fn is_due(operation: Operation, shoot: &Value) -> bool {
    let (status, last) = (&shoot["status"], &shoot["status"]["lastOperation"]);
    let is_gone = last["type"] == "Delete" && last["state"] == "Succeeded";
    operation.is_deletion() && (is_gone || text(&status["uid"]).is_empty())
}

impl ShootReconciler {
    /// Releases a Shoot of which nothing was created, or nothing is left.
    pub(super) fn release(
        &self,
        key: &Key,
        shoot: &Value,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        let start = OperationStart {
            project: "",
            agent: &self.agent,
            retry_duration: self.env.settings.controllers.shoot.retry_duration,
            now: cx.clock.now(),
        };
        let report = OperationReport::new(shoot, Operation::Delete, &start);
        Ok(self.finalize(key, shoot, &report, cx.clock.now())?)
    }

    /// Reports that all tasks of a deletion have been done since `at`. Errors: a request fails; [`EndError`]
    /// tells whether the result is still to be reported.
    pub(super) fn deleted(
        &self,
        key: &Key,
        report: &OperationReport,
        at: Timestamp,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, EndError> {
        let Some(live) = self.env.garden.find::<Value>(&SHOOT, key)? else {
            return Ok(ReconcileOutcome::Done);
        };
        match self.finalize(key, &live, report, at) {
            Ok(outcome) => {
                self.tell(key, &live, report.operation(), OperationEvent::Succeeded, cx);
                let name = key.to_string();
                log::info!(shoot = name.as_str(); "The Shoot is deleted");
                Ok(outcome)
            }
            Err(error) => Err(EndError::of(error)),
        }
    }

    /// Deletes the `Cluster` of a Shoot of which nothing else is left in the seed.
    pub(super) fn delete_cluster(&self, shoot: &Value) -> Result<(), kube::Error> {
        let cluster = text(&shoot["status"]["technicalID"]);
        if cluster.is_empty() {
            return Ok(());
        }
        match write::delete(&self.env.seed, &CLUSTER, &Key::cluster(cluster)) {
            // An agent without permission to delete it could not create it either.
            Err(e) if e.status_code() == Some(403) => Ok(()),
            other => other.map(drop),
        }
    }

    fn finalize(
        &self,
        key: &Key,
        shoot: &Value,
        report: &OperationReport,
        at: Timestamp,
    ) -> Result<ReconcileOutcome, kube::Error> {
        self.delete_cluster(shoot)?;
        let facts = OperationSuccess { shoot, is_hibernated: shoot["status"]["hibernated"] == true };
        let live = self.patch_status(key, report.succeeded(at, &facts))?;
        let metadata = view::look::<Metadata>(&live).unwrap_or_default().metadata;
        match write::finalizer(&self.env.garden, &SHOOT, key, &metadata, FINALIZER, false) {
            Err(e) if e.is_conflict() => Ok(ReconcileOutcome::GoOn(CONFLICT_RETRY)),
            other => other.map(|()| ReconcileOutcome::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_shoot_without_objects_is_released() {
        let gone = json!({"uid": "u", "lastOperation": {"type": "Delete", "state": "Succeeded"}});
        let table = [
            (Operation::Delete, json!({}), true),
            (Operation::ForceDelete, json!({"technicalID": "shoot--p--s"}), true),
            (Operation::Delete, gone.clone(), true),
            (Operation::ForceDelete, gone.clone(), true),
            (Operation::Delete, json!({"uid": "u"}), false),
            (
                Operation::Delete,
                json!({"uid": "u", "lastOperation": {"type": "Delete", "state": "Error"}}),
                false,
            ),
            (
                Operation::Delete,
                json!({"uid": "u", "lastOperation": {"type": "Create", "state": "Succeeded"}}),
                false,
            ),
            (Operation::Reconcile, json!({}), false),
            (Operation::Migrate, json!({}), false),
        ];
        for (operation, status, expected) in table {
            assert_eq!(is_due(operation, &json!({"status": status})), expected, "{operation:?} {status}");
        }
    }
}
