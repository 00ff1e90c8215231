//! The status of a Shoot that is not reconciled now. All results are strategic merge patches of its status, and `None`
//! if nothing changes.

use serde_json::Value;

use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::format::time::rfc3339;

/// The task ID of errors that occur before the first task.
pub(crate) const INITIALIZE: &str = "initializeOperation";

/// It is reconciled later. Without a last operation, the garden would not accept a request for one.
pub(crate) fn pending(shoot: &Value) -> Option<Value> {
    let last = json!({"type": "Create", "state": "Pending"});
    shoot["status"]["lastOperation"].is_null().then(|| json!({"status": {"lastOperation": last}}))
}

/// Something else must change first. The last operation stays readable: a migration continues from it, a permanently
/// failed Shoot waits for its owner, and one that is up to date waits for its window. Only a lasting problem
/// (`is_error`) is an error.
pub(crate) fn blocked(shoot: &Value, why: &str, is_error: bool, now: Timestamp) -> Option<Value> {
    let last = &shoot["status"]["lastOperation"];
    // Earlier versions wrote Pending for a lasting problem of a new Shoot.
    let is_told = !is_error || last["state"] != "Pending";
    if last["description"] == why && is_told {
        return None;
    }
    let mut said = json!({"description": why, "lastUpdateTime": rfc3339(now)});
    match (text(&last["type"]), text(&last["state"])) {
        ("", _) => {
            said["type"] = json!("Create");
            said["state"] = json!(if is_error { "Error" } else { "Pending" });
        }
        ("Migrate" | "Restore", _) | (_, "Failed") => {}
        (_, state) if is_error => {
            if state == "Succeeded" {
                said["type"] = json!("Reconcile");
            }
            said["state"] = json!("Error");
        }
        // Keep the time: it shows in which window the Shoot was reconciled.
        (_, "Succeeded") => said = json!({"description": why}),
        _ => {}
    }
    Some(json!({"status": {"lastOperation": said}}))
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
    fn a_blocking_reason_is_written_once_and_keeps_the_last_operation() {
        let pending = json!({"type": "Create", "state": "Pending"});
        let (error, nothing) = (json!({"state": "Error"}), json!({}));
        let failed = json!({"type": "Reconcile", "state": "Error"});
        let never = json!({"type": "Create", "state": "Error"});
        // The present status, the patch while something blocks it, and the patch if that lasts.
        let table = [
            (Value::Null, &pending, &never),
            (json!({"state": "Pending"}), &pending, &never),
            (json!({"type": "Create", "state": "Pending"}), &nothing, &error),
            (json!({"type": "Reconcile", "state": "Succeeded"}), &nothing, &failed),
            (json!({"type": "Create", "state": "Succeeded"}), &nothing, &failed),
            (json!({"type": "Create", "state": "Processing"}), &nothing, &error),
            (json!({"type": "Delete", "state": "Processing"}), &nothing, &error),
            (json!({"type": "Create", "state": "Failed"}), &nothing, &nothing),
            (json!({"type": "Migrate", "state": "Succeeded"}), &nothing, &nothing),
            (json!({"type": "Restore", "state": "Error"}), &nothing, &nothing),
        ];
        for (last, for_now, lasting) in table {
            let shoot = json!({"status": {"lastOperation": last}});
            for (is_error, expected) in [(false, for_now), (true, lasting)] {
                let mut expected = expected.clone();
                expected["description"] = json!("why");
                let keeps_time = !is_error && last["state"] == "Succeeded" && last["type"] != "Migrate";
                if !keeps_time {
                    expected["lastUpdateTime"] = json!("2026-01-01T00:00:00Z");
                }
                let said = json!({"status": {"lastOperation": expected}});
                assert_eq!(blocked(&shoot, "why", is_error, NOW), Some(said.clone()), "{last} {is_error}");
                assert_eq!(blocked(&said, "why", is_error, NOW), None);
            }
        }
    }
}
