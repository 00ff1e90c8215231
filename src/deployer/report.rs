//! The conditions of an object in the garden that describes an agent. Pure.

use serde_json::Value;

use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::flow::Failed;
use crate::format::view;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConditionReport {
    pub(crate) kind: &'static str,
    pub(crate) status: ConditionStatus,
    /// Its reason and message.
    pub(crate) finding: Finding,
}

impl ConditionReport {
    /// A condition that is true or false.
    pub(crate) fn new(kind: &'static str, is_true: bool, reason: &str, message: impl Into<String>) -> Self {
        let status = if is_true { ConditionStatus::True } else { ConditionStatus::False };
        Self { kind, status, finding: Finding::new(reason, message) }
    }

    pub(crate) fn failed(kind: &'static str, reason: &str, failed: &Failed) -> Self {
        let mut report = Self::new(kind, false, reason, failed.text.as_str());
        report.finding.codes.clone_from(&failed.codes);
        report
    }
}

/// The strategic merge patch of the report; `None` if nothing changed.
pub(crate) fn patch(object: &Value, reports: &[ConditionReport], now: Timestamp) -> Option<Value> {
    let known = &object["status"]["conditions"];
    let old: Vec<Condition> =
        if known.is_null() { Vec::new() } else { view::look(known).unwrap_or_default() };
    let wanted: Vec<Condition> = reports
        .iter()
        .map(|report| {
            condition::find_or_init(&old, report.kind, now).updated(
                now,
                report.status,
                report.finding.clone(),
            )
        })
        .collect();
    let mut patch = condition::status_patch(&old, &wanted, &[]);
    let generation = &object["metadata"]["generation"];
    if object["status"]["observedGeneration"] != *generation {
        patch.get_or_insert_with(|| json!({}))["status"]["observedGeneration"] = generation.clone();
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOOT_RECONCILED: &str = "ShootReconciled";
    const SEED_REGISTERED: &str = "SeedRegistered";
    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

    #[test]
    fn nothing_is_reported_twice() {
        let mut object = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}});
        let failed = Failed { codes: vec!["ERR_X".to_owned()], ..Failed::new("why") };
        let table = [
            (
                vec![
                    ConditionReport::new(SHOOT_RECONCILED, true, "Reconciled", "yes"),
                    ConditionReport::failed(SEED_REGISTERED, "ReconcileError", &failed),
                ],
                2,
                true,
            ),
            (vec![ConditionReport::new(SEED_REGISTERED, true, "Reconciled", "yes")], 1, false),
        ];
        for (reports, count, tells_generation) in table {
            let told = patch(&object, &reports, NOW).unwrap();
            let conditions = told["status"]["conditions"].as_array().unwrap();
            assert_eq!(conditions.len(), count);
            assert_eq!(told["status"].get("observedGeneration").is_some(), tells_generation);
            object["status"]["observedGeneration"] = json!(2);
            object["status"]["conditions"] = json!(conditions);
            assert_eq!(patch(&object, &reports, NOW), None);
        }
        assert_eq!(object["status"]["conditions"][0]["codes"], Value::Null);
    }
}
