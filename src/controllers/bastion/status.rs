//! The status of a Bastion in the garden: its condition, and its address. Pure.

use serde::Deserialize;
use serde_json::Value;

use crate::api::condition::{self, Condition, ConditionStatus, Finding};
use crate::api::meta::ObjectMeta;
use crate::api::patch::difference;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::extension::last_error;
use crate::flow::Failed;
use crate::format::view;
use crate::runtime::informer::PartialObject;

/// The type of the condition.
pub(super) const READY: &str = "BastionReady";
/// With this annotation, the deletion does not wait for objects that cannot be deleted.
pub(super) const FORCE: &str = "confirmation.gardener.cloud/force-deletion";

/// The part of a garden Bastion that is kept in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct BastionHead {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: Spec,
    status: Conditions,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) seed_name: String,
    pub(super) shoot_ref: ShootReference,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ShootReference {
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Conditions {
    conditions: Vec<Condition>,
    observed_generation: i64,
}

impl PartialObject for BastionHead {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl BastionHead {
    /// The values whose change requires a reconciliation.
    pub(super) fn asks(&self) -> (i64, bool) {
        (self.metadata.generation, self.is_forced())
    }

    /// Whether it has a deletion timestamp.
    pub(super) const fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether its deletion must not wait.
    pub(super) fn is_forced(&self) -> bool {
        self.metadata.annotations.get(FORCE).is_some_and(|value| value == "true")
    }

    /// Whether its extension still has work to do.
    pub(super) fn waits(&self) -> bool {
        let is_ready = condition::status_of(&self.status.conditions, READY) == Some(ConditionStatus::True);
        self.is_deleting() || !is_ready || self.status.observed_generation != self.metadata.generation
    }
}

/// The content of a report.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum BastionReport<'a> {
    /// It can be used. `status` is the status of the extension object.
    Ready(&'a Value),
    Failed(Failed),
    /// It is being deleted. `status` is the status of the extension object, if there is one.
    Deleting(&'a Value),
}

impl BastionReport<'_> {
    fn finding(&self) -> (ConditionStatus, Finding) {
        match self {
            Self::Ready(_) => {
                let message = "The bastion has been reconciled successfully.";
                (ConditionStatus::True, Finding::new("SuccessfullyReconciled", message))
            }
            Self::Failed(failed) => {
                let finding = Finding::new("FailedReconciling", failed.text.as_str());
                (ConditionStatus::False, Finding { codes: failed.codes.clone(), ..finding })
            }
            Self::Deleting(object) => {
                let mut finding = Finding::new("DeletionInProgress", "The bastion is being deleted.");
                if let Some(Failed { text, codes, .. }) = last_error(object) {
                    finding.message = format!("{} {text}", finding.message);
                    finding.codes = codes;
                }
                (ConditionStatus::False, finding)
            }
        }
    }
}

/// The strategic merge patch of the report; `None` if nothing changed.
pub(super) fn patch(bastion: &Value, report: &BastionReport<'_>, now: Timestamp) -> Option<Value> {
    let old = view::look::<BastionHead>(bastion).unwrap_or_default().status.conditions;
    let (status, finding) = report.finding();
    let wanted = condition::find_or_init(&old, READY, now).updated(now, status, finding);
    let mut patch = condition::status_patch(&old, &[wanted], &[]);
    if let BastionReport::Ready(object) = report {
        let known = &bastion["status"];
        let of = |ingress: &Value, generation: &Value| {
            let mut fields = json!({"observedGeneration": generation});
            if !ingress.is_null() {
                fields["ingress"] = ingress.clone();
            }
            fields
        };
        let told = of(&known["ingress"], &known["observedGeneration"]);
        let fields = of(&object["status"]["ingress"], &bastion["metadata"]["generation"]);
        for (name, value) in difference(&told, &fields).iter().filter_map(Value::as_object).flatten() {
            patch.get_or_insert_default()["status"][name] = value.clone();
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

    /// Applies the patch to these status fields like an API server.
    fn apply(bastion: &mut Value, patch: &Value) {
        for (name, value) in patch["status"].as_object().unwrap() {
            match (name.as_str(), value) {
                ("ingress", Value::Object(fields)) => {
                    for (field, value) in fields {
                        bastion["status"][name][field] = value.clone();
                    }
                    let ingress = bastion["status"][name].as_object_mut().unwrap();
                    ingress.retain(|_, value| !value.is_null());
                }
                _ => bastion["status"][name] = value.clone(),
            }
        }
    }

    #[test]
    fn nothing_is_reported_twice() {
        let refused =
            Failed { codes: vec!["ERR_INFRA_QUOTA_EXCEEDED".to_owned()], ..Failed::new("no quota") };
        let at = |ingress: Value| json!({"status": {"ingress": ingress}});
        let (first, second) = (at(json!({"ip": "192.0.2.1"})), at(json!({"hostname": "b.example.org"})));
        let stuck = json!({"status": {"lastError": {"description": "no way", "codes": ["ERR_X"]}}});
        let table = [
            (
                "fails",
                BastionReport::Failed(refused.clone()),
                "False",
                "FailedReconciling",
                "no quota",
                Value::Null,
            ),
            (
                "works",
                BastionReport::Ready(&first),
                "True",
                "SuccessfullyReconciled",
                "",
                json!({"ip": "192.0.2.1"}),
            ),
            (
                "elsewhere",
                BastionReport::Ready(&second),
                "True",
                "SuccessfullyReconciled",
                "",
                json!({"hostname": "b.example.org"}),
            ),
            (
                "nowhere",
                BastionReport::Ready(&Value::Null),
                "True",
                "SuccessfullyReconciled",
                "",
                Value::Null,
            ),
            ("goes", BastionReport::Deleting(&Value::Null), "False", "DeletionInProgress", "", Value::Null),
            ("stays", BastionReport::Deleting(&stuck), "False", "DeletionInProgress", "no way", Value::Null),
        ];
        let mut bastion = json!({"metadata": {"generation": 3}, "status": {}});
        for (name, report, status, reason, words, ingress) in table {
            let told = patch(&bastion, &report, NOW).unwrap();
            apply(&mut bastion, &told);
            assert_eq!(patch(&bastion, &report, NOW), None, "{name}");
            let condition = &bastion["status"]["conditions"][0];
            assert_eq!((&condition["type"], &condition["status"]), (&json!(READY), &json!(status)), "{name}");
            assert_eq!(condition["reason"], reason, "{name}");
            assert!(condition["message"].as_str().unwrap().contains(words), "{name}: {condition}");
            assert_eq!(bastion["status"]["ingress"], ingress, "{name}");
        }
        assert_eq!(bastion["status"]["observedGeneration"], 3);
        assert_eq!(bastion["status"]["conditions"][0]["codes"], json!(["ERR_X"]));
    }

    #[test]
    fn who_waits() {
        let head = |status: &str, observed: i64, deleted: Value| -> BastionHead {
            serde_json::from_value(json!({"metadata": {"name": "b", "generation": 2, "deletionTimestamp": deleted},
                "status": {"observedGeneration": observed, "conditions": [{"type": READY, "status": status}]}}))
            .unwrap()
        };
        assert!(!head("True", 2, Value::Null).waits());
        assert!(head("True", 1, Value::Null).waits());
        assert!(head("False", 2, Value::Null).waits());
        assert!(head("True", 2, json!("2026-01-01T00:00:00Z")).waits());
        assert!(BastionHead::default().waits());
    }
}
