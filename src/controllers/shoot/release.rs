//! The end of a deletion: deletes the `Cluster`, writes the status, and removes the finalizer last.

use serde_json::Value;

use crate::api::extensions::CLUSTER;
use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, Metadata, text};
use crate::base::clock::Timestamp;
use crate::format::view;
use crate::kube;
use crate::operation::Operation;
use crate::runtime::controller::{Context, Failure, Outcome};
use crate::runtime::write;

use super::act::EndError;
use super::decide::FINALIZER;
use super::finish::News;
use super::frame::{Frame, Reconciled, Start};
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
    pub(super) fn release(&self, key: &Key, shoot: &Value, cx: &Context) -> Result<Outcome, Failure> {
        let start = Start {
            project: "",
            agent: &self.agent,
            retry_duration: self.env.settings.controllers.shoot.retry_duration,
            now: cx.clock.now(),
        };
        let frame = Frame::new(shoot, Operation::Delete, &start);
        Ok(self.finalize(key, shoot, &frame, cx.clock.now())?)
    }

    /// Reports that all tasks of a deletion have been done since `at`. Errors: a request fails; [`EndError`]
    /// tells whether the result is still to be reported.
    pub(super) fn deleted(
        &self,
        key: &Key,
        frame: &Frame,
        at: Timestamp,
        cx: &Context,
    ) -> Result<Outcome, EndError> {
        let Some(live) = self.env.garden.find::<Value>(&SHOOT, key)? else {
            return Ok(Outcome::Done);
        };
        match self.finalize(key, &live, frame, at) {
            Ok(outcome) => {
                self.tell(key, &live, frame.operation(), News::Succeeded, cx);
                let name = key.to_string();
                log::info!(shoot = name.as_str(); "The Shoot is deleted");
                Ok(outcome)
            }
            Err(error) => Err(EndError::of(error)),
        }
    }

    fn finalize(
        &self,
        key: &Key,
        shoot: &Value,
        frame: &Frame,
        at: Timestamp,
    ) -> Result<Outcome, kube::Error> {
        let cluster = text(&shoot["status"]["technicalID"]);
        if !cluster.is_empty() {
            match write::delete(&self.env.seed, &CLUSTER, &Key::cluster(cluster)) {
                // An agent without permission to delete it could not create it either.
                Err(e) if e.status_code() == Some(403) => {}
                other => drop(other?),
            }
        }
        let facts = Reconciled { shoot, is_hibernated: shoot["status"]["hibernated"] == true };
        let live = self.patch_status(key, frame.succeeded(at, &facts))?;
        let metadata = view::look::<Metadata>(&live).unwrap_or_default().metadata;
        let read = (metadata.finalizers.as_slice(), metadata.resource_version.as_str());
        match write::finalizer(&self.env.garden, &SHOOT, key, read, FINALIZER, false) {
            Err(e) if e.is_conflict() => Ok(Outcome::GoOn(CONFLICT_RETRY)),
            other => other.map(|()| Outcome::Done),
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
