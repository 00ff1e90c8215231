//! The status of a BackupBucket or a BackupEntry in the garden. Pure.

use serde_json::{Map, Value};

use crate::api::gardener::OPERATION;
use crate::api::meta::annotation;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::flow::Failed;
use crate::format::time::rfc3339;

/// The current operation on an object (Gardener's `ComputeOperationType`).
pub(crate) fn operation(object: &Value) -> &'static str {
    let last = &object["status"]["lastOperation"];
    let is_unfinished = |kind: &str| last["type"] == kind && last["state"] != "Succeeded";
    match annotation(object, OPERATION) {
        "migrate" => "Migrate",
        _ if !object["metadata"]["deletionTimestamp"].is_null() => "Delete",
        "restore" => "Restore",
        _ if last.is_null() => "Create",
        _ => ["Create", "Migrate", "Restore"]
            .into_iter()
            .find(|kind| is_unfinished(kind))
            .unwrap_or("Reconcile"),
    }
}

/// The noun for an operation in a sentence.
pub(crate) fn noun(operation: &str) -> &'static str {
    match operation {
        "Migrate" => "Migration",
        "Restore" => "Restoration",
        "Delete" => "Deletion",
        _ => "Reconciliation",
    }
}

/// The progress of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OperationProgress {
    Processing,
    /// It will start later.
    Pending,
    Error(Failed),
    Succeeded,
}

impl OperationProgress {
    /// State and percents.
    const fn words(&self) -> (&'static str, u32) {
        match self {
            Self::Processing => ("Processing", 0),
            Self::Pending => ("Pending", 0),
            Self::Error(_) => ("Error", 50),
            Self::Succeeded => ("Succeeded", 100),
        }
    }
}

/// The content of a status report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BackupReport {
    pub(crate) operation: &'static str,
    pub(crate) way: OperationProgress,
    /// A description for people.
    pub(crate) description: String,
}

/// The patch of the status, or `None` if nothing changed. `more` are other fields of the status.
pub(crate) fn patch(
    object: &Value,
    report: &BackupReport,
    more: Map<String, Value>,
    now: Timestamp,
) -> Option<Value> {
    let (status, generation) = (&object["status"], &object["metadata"]["generation"]);
    let mut fields = Map::new();
    let is_observed = status["observedGeneration"] == *generation || generation.is_null();
    if !is_observed || !says(&status["lastOperation"], report) {
        let (state, progress) = report.way.words();
        fields.insert(
            "lastOperation".to_owned(),
            json!({"type": report.operation, "state": state, "progress": progress,
                "description": report.description, "lastUpdateTime": rfc3339(now)}),
        );
        fields.insert("observedGeneration".to_owned(), generation.clone());
    }
    let error = match &report.way {
        OperationProgress::Error(failed) => json!({"description": failed.text, "codes": codes(failed)}),
        OperationProgress::Succeeded => Value::Null,
        // The last error stays visible until a success.
        OperationProgress::Processing | OperationProgress::Pending => status["lastError"].clone(),
    };
    let told = |name: &str| &status["lastError"][name];
    if error.is_null() != status["lastError"].is_null()
        || (told("description"), told("codes")) != (&error["description"], &error["codes"])
    {
        fields.insert("lastError".to_owned(), error);
    }
    fields.extend(more.into_iter().filter(|(name, value)| status[name] != *value));
    (!fields.is_empty()).then(|| json!({ "status": fields }))
}

/// `None` if there are no codes.
fn codes(failed: &Failed) -> Value {
    if failed.codes.is_empty() { Value::Null } else { json!(failed.codes) }
}

fn says(last: &Value, report: &BackupReport) -> bool {
    let (state, progress) = report.way.words();
    let is_same = last["state"] == state && last["progress"] == progress;
    // Any success ends the operation that the status named before.
    let is_done = is_same
        && report.way == OperationProgress::Succeeded
        && !["Migrate", "Restore"].contains(&report.operation);
    is_done
        || is_same && last["type"] == report.operation && last["description"] == report.description.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_767_600_000);

    #[test]
    fn what_is_going_on() {
        let table = [
            ("", false, Value::Null, "Create"),
            ("", false, json!({"type": "Create", "state": "Error"}), "Create"),
            ("", false, json!({"type": "Create", "state": "Succeeded"}), "Reconcile"),
            ("", false, json!({"type": "Restore", "state": "Processing"}), "Restore"),
            ("", false, json!({"type": "Migrate", "state": "Succeeded"}), "Reconcile"),
            ("", false, json!({"type": "Delete", "state": "Error"}), "Reconcile"),
            ("reconcile", false, json!({"type": "Reconcile", "state": "Error"}), "Reconcile"),
            ("restore", false, json!({"type": "Migrate", "state": "Succeeded"}), "Restore"),
            ("restore", true, Value::Null, "Delete"),
            ("migrate", true, Value::Null, "Migrate"),
        ];
        for (asked, is_deleting, last, expected) in table {
            let deleted = if is_deleting { json!("2026-01-01T00:00:00Z") } else { Value::Null };
            let object = json!({"metadata": {"annotations": {OPERATION: asked}, "deletionTimestamp": deleted},
                "status": {"lastOperation": last.clone()}});
            assert_eq!(operation(&object), expected, "{asked} {is_deleting} {last}");
        }
    }

    #[test]
    fn operations_have_names() {
        let table = [
            ("Create", "Reconciliation"),
            ("Reconcile", "Reconciliation"),
            ("Restore", "Restoration"),
            ("Migrate", "Migration"),
            ("Delete", "Deletion"),
        ];
        for (operation, expected) in table {
            assert_eq!(noun(operation), expected);
        }
    }

    fn report(operation: &'static str, way: OperationProgress) -> BackupReport {
        BackupReport { operation, way, description: "words".to_owned() }
    }

    fn told(object: &mut Value, report: &BackupReport) -> Option<Vec<String>> {
        let found = patch(object, report, Map::new(), NOW)?;
        let fields = found["status"].as_object().unwrap().clone();
        let names = fields.keys().cloned().collect();
        for (name, value) in fields {
            object["status"][name] = value;
        }
        Some(names)
    }

    #[test]
    fn nothing_is_reported_twice() {
        let mut object = json!({"metadata": {"generation": 1}, "status": {}});
        let all = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let failed = |text: &str, codes: &[&str]| {
            let codes = codes.iter().map(|code| (*code).to_owned()).collect();
            OperationProgress::Error(Failed { codes, ..Failed::new(text) })
        };
        let table = [
            (report("Create", OperationProgress::Processing), all(&["lastOperation", "observedGeneration"])),
            (report("Create", OperationProgress::Processing), None),
            (
                report("Create", failed("a", &["X"])),
                all(&["lastError", "lastOperation", "observedGeneration"]),
            ),
            (report("Create", failed("a", &["X"])), None),
            (report("Create", failed("a", &[])), all(&["lastError"])),
            (report("Create", OperationProgress::Processing), all(&["lastOperation", "observedGeneration"])),
            (
                report("Create", OperationProgress::Succeeded),
                all(&["lastError", "lastOperation", "observedGeneration"]),
            ),
            (report("Reconcile", OperationProgress::Succeeded), None),
            (report("Restore", OperationProgress::Succeeded), all(&["lastOperation", "observedGeneration"])),
            (report("Delete", OperationProgress::Pending), all(&["lastOperation", "observedGeneration"])),
        ];
        for (n, (report, expected)) in table.into_iter().enumerate() {
            assert_eq!(told(&mut object, &report), expected, "{n}: {report:?}");
        }
        object["metadata"]["generation"] = json!(2);
        let again = told(&mut object, &report("Delete", OperationProgress::Pending));
        assert_eq!(again, all(&["lastOperation", "observedGeneration"]), "another generation");
        assert_eq!(object["status"]["observedGeneration"], 2);
        assert_eq!(object["status"]["lastOperation"]["lastUpdateTime"], rfc3339(NOW));
    }

    #[test]
    fn other_fields_are_written_if_they_differ() {
        let object = json!({"metadata": {}, "status": {"providerStatus": {"a": 1}, "lastOperation":
            {"type": "Create", "state": "Succeeded", "progress": 100, "description": "words"}}});
        let more = |value: Value| Map::from_iter([("providerStatus".to_owned(), value)]);
        let found =
            |value: Value| patch(&object, &report("Create", OperationProgress::Succeeded), more(value), NOW);
        assert_eq!(found(json!({"a": 1})), None);
        assert_eq!(found(json!({"a": 2})), Some(json!({"status": {"providerStatus": {"a": 2}}})));
    }
}
