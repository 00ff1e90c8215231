//! Whether an extension has reconciled an object (Gardener's `pkg/utils/kubernetes/health/extensions.go`).

use serde_json::Value;

use crate::api::gardener::OPERATION;
use crate::base::clock::Timestamp;
use crate::flow::Failed;
use crate::format::time::parse_rfc3339;

/// The annotation with the time of the request.
pub const TIMESTAMP: &str = "gardener.cloud/timestamp";

/// Why an object is not ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum UnreadyReason {
    /// The extension reports an error. It may succeed with its next try.
    Error(Failed),
    /// It has not finished yet.
    Pending(String),
}

impl UnreadyReason {
    /// The failure for people.
    pub(crate) fn into_failed(self) -> Failed {
        match self {
            Self::Error(failed) => failed,
            Self::Pending(why) => Failed::new(why),
        }
    }
}

/// Checks an extension object, or a BackupBucket or BackupEntry of the garden. Errors: the first reason, in
/// upstream's order and words.
pub(crate) fn check(object: &Value) -> Result<(), UnreadyReason> {
    let status = &object["status"];
    let pending = |text: String| Err(UnreadyReason::Pending(text));
    if let Some(error) = last_error(object) {
        return Err(UnreadyReason::Error(error));
    }
    let observed = status["observedGeneration"].as_i64().unwrap_or(0);
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    if observed != generation {
        return pending(format!("observed generation outdated ({observed}/{generation})"));
    }
    let annotations = &object["metadata"]["annotations"];
    if let Some(operation) = annotations[OPERATION].as_str() {
        return pending(format!("gardener operation {operation:?} is not yet picked up by controller"));
    }
    let Some(operation) = status["lastOperation"].as_object() else {
        return pending("extension did not record a last operation yet".to_owned());
    };
    let state = operation.get("state").and_then(Value::as_str).unwrap_or_default();
    if state != "Succeeded" {
        return pending(format!("extension state is not succeeded but {state}"));
    }
    let Some(asked) = annotations[TIMESTAMP].as_str() else { return Ok(()) };
    let asked =
        parse_rfc3339(asked).map_err(|e| UnreadyReason::Pending(format!("annotation {TIMESTAMP}: {e}")))?;
    // Times in the status have no fractions.
    let asked = Timestamp::from_unix(asked.unix());
    let updated = operation.get("lastUpdateTime").and_then(Value::as_str);
    let updated = updated.and_then(|text| parse_rfc3339(text).ok()).unwrap_or_default();
    if updated < asked {
        return pending("last operation is older than the request for it".to_owned());
    }
    Ok(())
}

/// The last error, with its codes.
pub(crate) fn last_error(object: &Value) -> Option<Failed> {
    let error = object["status"]["lastError"].as_object()?;
    let text = error.get("description").and_then(Value::as_str).unwrap_or_default();
    let codes = error.get("codes").and_then(Value::as_array).into_iter().flatten();
    Some(Failed {
        text: format!("error during reconciliation: {text}"),
        codes: codes.filter_map(Value::as_str).map(str::to_owned).collect(),
        ..Failed::default()
    })
}

/// Whether the migration of the object has finished.
pub(crate) fn is_migrated(object: &Value) -> bool {
    let operation = &object["status"]["lastOperation"];
    operation["type"] == "Migrate" && operation["state"] == "Succeeded"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ready() -> Value {
        json!({"metadata": {"generation": 2, "annotations": {TIMESTAMP: "2026-01-01T00:00:01.9Z"}},
            "status": {"observedGeneration": 2,
                "lastOperation": {"type": "Reconcile", "state": "Succeeded", "lastUpdateTime": "2026-01-01T00:00:01Z"}}})
    }

    #[test]
    fn reasons_in_their_order() {
        assert_eq!(check(&ready()), Ok(()));
        let mut object = ready();
        let mut worse = |pointer: &str, key: &str, value: Value, expected: &str| {
            object.pointer_mut(pointer).unwrap()[key] = value;
            let why = check(&object).unwrap_err().into_failed().text;
            assert!(why.starts_with(expected), "{why}");
        };
        let annotations = "/metadata/annotations";
        worse(annotations, TIMESTAMP, json!("2026-01-01T00:00:02Z"), "last operation is older");
        worse(
            annotations,
            TIMESTAMP,
            json!("yesterday"),
            "annotation gardener.cloud/timestamp: parsing time",
        );
        worse(
            "/status/lastOperation",
            "state",
            json!("Processing"),
            "extension state is not succeeded but Processing",
        );
        worse("/status", "lastOperation", Value::Null, "extension did not record a last operation yet");
        worse(
            annotations,
            OPERATION,
            json!("reconcile"),
            "gardener operation \"reconcile\" is not yet picked up",
        );
        worse("/status", "observedGeneration", json!(1), "observed generation outdated (1/2)");
        let error = json!({"description": "no quota", "codes": ["ERR_INFRA_QUOTA_EXCEEDED"]});
        worse("/status", "lastError", error, "error during reconciliation: no quota");
        let Err(UnreadyReason::Error(failed)) = check(&object) else { panic!() };
        assert_eq!(failed.codes, ["ERR_INFRA_QUOTA_EXCEEDED"]);
    }

    #[test]
    fn an_object_without_request_is_ready() {
        let mut object = ready();
        object["metadata"]["annotations"] = Value::Null;
        assert_eq!(check(&object), Ok(()));
    }
}
