//! What is said of a Shoot with which nothing is done. All are strategic merge patches of its status, and none if the status
//! says it already.

use serde_json::{Value, json};

use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::format::time::rfc3339;

use super::decide::Operation;

/// The task of which errors are said that happen before the tasks begin.
pub const INITIALIZE: &str = "initializeOperation";

/// It has its turn later: without a last operation the garden would not let anybody ask for one.
pub fn pending(shoot: &Value) -> Option<Value> {
    let last = json!({"type": "Create", "state": "Pending"});
    shoot["status"]["lastOperation"].is_null().then(|| json!({"status": {"lastOperation": last}}))
}

/// Something else must change first. What was done last stays to be read: a migration goes on with it, and who failed for
/// good waits for its owner.
pub fn blocked(shoot: &Value, why: &str, now: Timestamp) -> Option<Value> {
    let last = &shoot["status"]["lastOperation"];
    if last["description"] == why {
        return None;
    }
    let mut said = json!({"description": why, "lastUpdateTime": rfc3339(now)});
    match (text(&last["type"]), text(&last["state"])) {
        ("", _) => {
            said["type"] = json!("Create");
            said["state"] = json!("Pending");
        }
        ("Migrate" | "Restore", _) | (_, "Failed") => {}
        _ => said["state"] = json!("Error"),
    }
    Some(json!({"status": {"lastOperation": said}}))
}

/// This version cannot do it.
pub fn not_built(shoot: &Value, operation: Operation, now: Timestamp) -> Option<Value> {
    let what = match operation {
        Operation::Create | Operation::Reconcile => "reconcile Shoots",
        Operation::Restore => "restore Shoots that come from other seeds",
        Operation::Migrate => "prepare the migration of Shoots to other seeds",
        Operation::Delete | Operation::ForceDelete => "delete Shoots",
    };
    let why = format!("This gardenlet cannot {what} yet. It has left everything as it is.");
    let errors = &shoot["status"]["lastErrors"];
    if errors.as_array().is_some_and(|errors| errors.iter().any(|error| error["description"] == why.as_str()))
    {
        return None;
    }
    let error = json!({"description": why, "taskID": INITIALIZE, "lastUpdateTime": rfc3339(now)});
    Some(json!({"status": {"lastErrors": [error]}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

    #[test]
    fn a_shoot_that_never_had_an_operation_waits() {
        let patch = pending(&json!({"status": {}})).unwrap();
        assert_eq!(patch, json!({"status": {"lastOperation": {"type": "Create", "state": "Pending"}}}));
        assert_eq!(pending(&json!({"status": patch["status"]})), None);
    }

    #[test]
    fn what_blocks_is_said_once_and_keeps_what_was() {
        let table = [
            (Value::Null, json!({"type": "Create", "state": "Pending"})),
            (json!({"state": "Pending"}), json!({"type": "Create", "state": "Pending"})),
            (json!({"type": "Reconcile", "state": "Succeeded"}), json!({"state": "Error"})),
            (json!({"type": "Delete", "state": "Processing"}), json!({"state": "Error"})),
            (json!({"type": "Create", "state": "Failed"}), json!({})),
            (json!({"type": "Migrate", "state": "Succeeded"}), json!({})),
            (json!({"type": "Restore", "state": "Error"}), json!({})),
        ];
        for (last, mut expected) in table {
            let shoot = json!({"status": {"lastOperation": last}});
            expected["description"] = json!("why");
            expected["lastUpdateTime"] = json!("2026-01-01T00:00:00Z");
            assert_eq!(
                blocked(&shoot, "why", NOW),
                Some(json!({"status": {"lastOperation": expected}})),
                "{last}"
            );
            assert_eq!(blocked(&json!({"status": {"lastOperation": expected}}), "why", NOW), None);
        }
    }

    #[test]
    fn what_is_not_built_is_an_error_of_no_task() {
        let patch = not_built(&json!({}), Operation::Migrate, NOW).unwrap();
        assert_eq!(patch["status"]["lastErrors"][0]["taskID"], "initializeOperation");
        assert_eq!(patch["status"].as_object().unwrap().len(), 1);
        assert_eq!(not_built(&json!({"status": patch["status"]}), Operation::Migrate, NOW), None);
        assert!(not_built(&json!({"status": patch["status"]}), Operation::Delete, NOW).is_some());
    }
}
