//! What the conditions of the Seed say about its components, and which pods are stale.

use std::time::Duration;

use serde_json::Value;

use crate::api::condition::{self, Condition, Finding, Patience, Status};
use crate::api::meta::{ObjectMeta, text};
use crate::base::clock::Timestamp;
use crate::format::time::parse_rfc3339;
use crate::resources::{REPORTED, Watched, WatchedCondition};

/// The condition about all ManagedResources of the seed.
pub(super) const COMPONENTS_HEALTHY: &str = "SeedSystemComponentsHealthy";
/// The condition that is there as long as shoots are left alone.
pub(super) const EMERGENCY_STOP: &str = "EmergencyStopShootReconciliations";
/// The annotation that asks for it.
const EMERGENCY_STOP_ANNOTATION: &str = "shoot.gardener.cloud/emergency-stop-reconciliations";

/// Whether a ManagedResource belongs to the seed, whoever made it.
pub(super) fn concerns(managed: &Watched) -> bool {
    REPORTED.contains(&managed.metadata.namespace.as_str()) && !managed.spec.class.is_empty()
}

/// What is wrong with a ManagedResource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// It cannot be applied, or is not healthy.
    Certain(Finding),
    /// The applier is at work, or what it has applied is. With every change of an extension there is a moment of this.
    Passing(Finding),
}

impl Fault {
    pub(super) const fn is_passing(&self) -> bool {
        matches!(self, Self::Passing(_))
    }

    pub(super) fn into_finding(self) -> Finding {
        match self {
            Self::Certain(finding) | Self::Passing(finding) => finding,
        }
    }
}

/// What is wrong with a ManagedResource, if something is.
pub(super) fn fault(managed: &Watched) -> Option<Fault> {
    let key = managed.metadata.key();
    let (observed, generation) = (managed.status.observed_generation, managed.metadata.generation);
    let find = |kind: &str| managed.status.conditions.iter().find(|c| c.kind == kind);
    let reported = |c: &WatchedCondition| {
        let finding = Finding::new(c.reason.clone(), c.message.clone());
        Some(if c.status == Status::False { Fault::Certain(finding) } else { Fault::Passing(finding) })
    };
    if observed != generation {
        if let Some(applied) = find("ResourcesApplied").filter(|c| c.reason == "ApplyFailed") {
            return reported(applied);
        }
        let text =
            format!("observed generation of managed resource '{key}' outdated ({observed}/{generation})");
        return Some(Fault::Passing(Finding::new("OutdatedStatus", text)));
    }
    let mut missing = Vec::new();
    for (kind, fault) in [
        ("ResourcesApplied", Status::False),
        ("ResourcesHealthy", Status::False),
        ("ResourcesProgressing", Status::True),
    ] {
        match find(kind) {
            Some(found) if [fault, Status::Unknown].contains(&found.status) => return reported(found),
            Some(_) => {}
            None => missing.push(kind),
        }
    }
    let text =
        format!("ManagedResource {key} is missing the following condition(s), [{}]", missing.join(" "));
    (!missing.is_empty()).then(|| Fault::Passing(Finding::new("MissingManagedResourceCondition", text)))
}

/// The condition about the components.
pub(super) fn components(
    old: &[Condition],
    fault: Option<Finding>,
    patience: Patience,
    now: Timestamp,
) -> Condition {
    let before = condition::find_or_init(old, COMPONENTS_HEALTHY, now);
    match fault {
        Some(fault) => before.failed(now, patience, fault),
        None => {
            let finding = Finding::new("SystemComponentsRunning", "All system components are healthy.");
            before.updated(now, Status::True, finding)
        }
    }
}

/// Whether somebody has asked for an emergency stop.
pub(super) fn is_stopped(seed: &ObjectMeta) -> bool {
    seed.annotations.get(EMERGENCY_STOP_ANNOTATION).is_some_and(|value| value == "true")
}

/// The condition about the emergency stop; `None`: it is not there.
pub(super) fn emergency_stop(seed: &ObjectMeta, old: &[Condition], now: Timestamp) -> Option<Condition> {
    let text = "Reconciliations of Shoots managed by this Seed cluster are currently disabled by annotation.";
    is_stopped(seed).then(|| {
        let before = condition::find_or_init(old, EMERGENCY_STOP, now);
        before.updated(now, Status::True, Finding::new(EMERGENCY_STOP, text))
    })
}

/// What to do about a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It stays.
    Stay,
    /// It is deleted.
    Delete,
    /// It is deleted without a wait for its node.
    Force,
}

const TERMINATING_MAX: Duration = Duration::from_secs(300);
const STALE_REASONS: [&str; 4] = ["Evicted", "NodeAffinity", "NodeLost", "Preempting"];

/// Pods that will never run again are only in the way (Gardener's `pkg/gardenlet/operation/care`, stale pods).
pub(super) fn fate(pod: &Value, now: Timestamp) -> Fate {
    let (metadata, status) = (&pod["metadata"], &pod["status"]);
    if let Ok(deleted) = parse_rfc3339(text(&metadata["deletionTimestamp"])) {
        return if now.since(deleted) > TERMINATING_MAX { Fate::Force } else { Fate::Stay };
    }
    let any =
        |list: &Value, is_it: &dyn Fn(&Value) -> bool| list.as_array().is_some_and(|l| l.iter().any(is_it));
    let reason = text(&status["reason"]);
    let is_stale = STALE_REASONS.iter().any(|stale| reason.contains(stale))
        || reason.starts_with("OutOf")
        || any(&status["conditions"], &|c| c["type"] == "DisruptionTarget" && c["status"] == "True");
    let is_over = matches!(text(&status["phase"]), "Succeeded" | "Failed");
    let of_replica_set = any(&metadata["ownerReferences"], &|owner| owner["kind"] == "ReplicaSet");
    if is_stale || (is_over && of_replica_set) { Fate::Delete } else { Fate::Stay }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

    fn managed(conditions: &[(&str, &str, &str)], observed: i64) -> Watched {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, reason)| json!({"type": kind, "status": status, "reason": reason, "message": "why"}))
            .collect();
        serde_json::from_value(json!({"metadata": {"name": "x", "namespace": "garden", "generation": 2},
            "spec": {"class": "seed"}, "status": {"conditions": conditions, "observedGeneration": observed}}))
        .unwrap()
    }

    #[test]
    fn faults_of_a_managed_resource() {
        let good = [
            ("ResourcesApplied", "True", "ApplySucceeded"),
            ("ResourcesHealthy", "True", "ResourcesHealthy"),
            ("ResourcesProgressing", "False", "ResourcesRolledOut"),
        ];
        let with = |index: usize, status: &'static str| {
            let mut changed = good;
            changed[index] = (good[index].0, status, "Reason");
            changed
        };
        let (certain, passing) = (|reason| Some((reason, false)), |reason| Some((reason, true)));
        let table = [
            (managed(&good, 2), None),
            (managed(&good, 1), passing("OutdatedStatus")),
            (managed(&[("ResourcesApplied", "False", "ApplyFailed")], 1), certain("ApplyFailed")),
            (managed(&with(0, "False"), 2), certain("Reason")),
            (managed(&with(0, "Unknown"), 2), passing("Reason")),
            (managed(&with(0, "Progressing"), 2), None),
            (managed(&with(1, "False"), 2), certain("Reason")),
            (managed(&with(1, "Unknown"), 2), passing("Reason")),
            (managed(&with(1, "Progressing"), 2), None),
            (managed(&with(2, "True"), 2), passing("Reason")),
            (managed(&with(2, "Unknown"), 2), passing("Reason")),
            (managed(&good[..2], 2), passing("MissingManagedResourceCondition")),
        ];
        for (managed, expected) in table {
            let found = fault(&managed);
            let is_passing = found.as_ref().is_some_and(Fault::is_passing);
            let found = found.map(Fault::into_finding);
            assert_eq!(found.as_ref().map(|f| (f.reason.as_str(), is_passing)), expected, "{managed:?}");
        }
    }

    #[test]
    fn which_managed_resources_count() {
        let of = |namespace: &str, class: &str| {
            let mut managed = managed(&[], 2);
            (managed.metadata.namespace, managed.spec.class) = (namespace.to_owned(), class.to_owned());
            concerns(&managed)
        };
        assert!(of("garden", "seed") && of("istio-system", "seed") && of("garden", "other"));
        assert!(!of("garden", "") && !of("shoot--a--b", "seed"));
    }

    #[test]
    fn the_condition_is_patient_if_it_was_told_to() {
        let patient = Patience { threshold: Some(Duration::from_secs(60)), succeeded_at: None };
        let sick = || Some(Finding::new("Reason", "why"));
        let well = components(&[], None, patient, NOW);
        assert_eq!((well.status, well.reason.as_str()), (Status::True, "SystemComponentsRunning"));
        let at = |seconds| Timestamp::from_unix(NOW.unix() + seconds);
        let impatient = components(std::slice::from_ref(&well), sick(), Patience::default(), at(1));
        assert_eq!((impatient.status, impatient.reason.as_str()), (Status::False, "Reason"));
        let first = components(&[well], sick(), patient, at(1));
        assert_eq!(first.status, Status::Progressing);
        assert_eq!(
            components(std::slice::from_ref(&first), sick(), patient, at(61)).status,
            Status::Progressing
        );
        assert_eq!(components(&[first], sick(), patient, at(62)).status, Status::False);
    }

    #[test]
    fn the_emergency_stop_follows_its_annotation() {
        let seed = |value: &str| ObjectMeta {
            annotations: [(EMERGENCY_STOP_ANNOTATION.to_owned(), value.to_owned())].into(),
            ..ObjectMeta::default()
        };
        let stop = emergency_stop(&seed("true"), &[], NOW).unwrap();
        assert_eq!((stop.status, stop.reason.as_str()), (Status::True, EMERGENCY_STOP));
        assert_eq!(emergency_stop(&seed("false"), &[stop], NOW), None);
        assert_eq!(emergency_stop(&ObjectMeta::default(), &[], NOW), None);
    }

    #[test]
    fn fates_of_pods() {
        let owned = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u"}]});
        let deleted = |seconds: i64| {
            let at = crate::format::time::rfc3339(Timestamp::from_unix(NOW.unix() - seconds));
            json!({"deletionTimestamp": at})
        };
        let table = [
            (json!({}), json!({"phase": "Running"}), Fate::Stay),
            (deleted(10), json!({"phase": "Running"}), Fate::Stay),
            (deleted(300), json!({"phase": "Failed", "reason": "Evicted"}), Fate::Stay),
            (deleted(301), json!({"phase": "Running"}), Fate::Force),
            (json!({}), json!({"phase": "Failed", "reason": "Evicted"}), Fate::Delete),
            (json!({}), json!({"phase": "Failed", "reason": "OutOfcpu"}), Fate::Delete),
            (json!({}), json!({"phase": "Failed", "reason": "Error"}), Fate::Stay),
            (json!({}), json!({"phase": "Succeeded"}), Fate::Stay),
            (owned.clone(), json!({"phase": "Succeeded"}), Fate::Delete),
            (owned.clone(), json!({"phase": "Failed"}), Fate::Delete),
            (owned, json!({"phase": "Pending"}), Fate::Stay),
            (
                json!({}),
                json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}),
                Fate::Delete,
            ),
            (
                json!({}),
                json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "False"}]}),
                Fate::Stay,
            ),
        ];
        for (metadata, status, expected) in table {
            let pod = json!({"metadata": metadata, "status": status});
            assert_eq!(fate(&pod, NOW), expected, "{pod}");
        }
    }
}
