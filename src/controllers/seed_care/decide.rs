//! Decides the Seed's conditions about its components, and which pods are stale.

use crate::api::condition::{self, Condition, ConditionStatus, FailurePatience, Finding};
use crate::api::meta::ObjectMeta;
use crate::base::clock::Timestamp;
use crate::resources::{ManagedResourceFault, ManagedResourceHead, REPORTED};

/// The condition about all ManagedResources of the seed.
pub(super) const COMPONENTS_HEALTHY: &str = "SeedSystemComponentsHealthy";
/// The condition that exists while the reconciliation of shoots is stopped.
pub(super) const EMERGENCY_STOP: &str = "EmergencyStopShootReconciliations";
/// The annotation that requests the stop.
const EMERGENCY_STOP_ANNOTATION: &str = "shoot.gardener.cloud/emergency-stop-reconciliations";

/// Whether a ManagedResource belongs to the seed, regardless of its creator.
pub(super) fn concerns(managed: &ManagedResourceHead) -> bool {
    REPORTED.contains(&managed.metadata.namespace.as_str()) && !managed.spec.class.is_empty()
}

/// The fault of a ManagedResource, if there is one.
pub(super) fn fault(managed: &ManagedResourceHead) -> Option<ManagedResourceFault> {
    managed.fault(None)
}

/// The condition about the components.
pub(super) fn components(
    old: &[Condition],
    fault: Option<Finding>,
    patience: FailurePatience,
    now: Timestamp,
) -> Condition {
    let before = condition::find_or_init(old, COMPONENTS_HEALTHY, now);
    match fault {
        Some(fault) => before.failed(now, patience, fault),
        None => {
            let finding = Finding::new("SystemComponentsRunning", "All system components are healthy.");
            before.updated(now, ConditionStatus::True, finding)
        }
    }
}

/// Whether an emergency stop is requested.
pub(super) fn is_stopped(seed: &ObjectMeta) -> bool {
    seed.annotations.get(EMERGENCY_STOP_ANNOTATION).is_some_and(|value| value == "true")
}

/// The condition about the emergency stop; `None` if there is none.
pub(super) fn emergency_stop(seed: &ObjectMeta, old: &[Condition], now: Timestamp) -> Option<Condition> {
    let text = "Reconciliations of Shoots managed by this Seed cluster are currently disabled by annotation.";
    is_stopped(seed).then(|| {
        let before = condition::find_or_init(old, EMERGENCY_STOP, now);
        before.updated(now, ConditionStatus::True, Finding::new(EMERGENCY_STOP, text))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

    fn managed(conditions: &[(&str, &str, &str)], observed: i64) -> ManagedResourceHead {
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
            let is_passing = found.as_ref().is_some_and(ManagedResourceFault::is_passing);
            let found = found.map(ManagedResourceFault::into_finding);
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
    fn the_condition_waits_for_its_threshold() {
        let patient =
            FailurePatience { threshold: Some(Duration::from_secs(60)), ..FailurePatience::default() };
        let sick = || Some(Finding::new("Reason", "why"));
        let well = components(&[], None, patient, NOW);
        assert_eq!((well.status, well.reason.as_str()), (ConditionStatus::True, "SystemComponentsRunning"));
        let at = |seconds| Timestamp::from_unix(NOW.unix() + seconds);
        let impatient = components(std::slice::from_ref(&well), sick(), FailurePatience::default(), at(1));
        assert_eq!((impatient.status, impatient.reason.as_str()), (ConditionStatus::False, "Reason"));
        let first = components(&[well], sick(), patient, at(1));
        assert_eq!(first.status, ConditionStatus::Progressing);
        assert_eq!(
            components(std::slice::from_ref(&first), sick(), patient, at(61)).status,
            ConditionStatus::Progressing
        );
        assert_eq!(components(&[first], sick(), patient, at(62)).status, ConditionStatus::False);
    }

    #[test]
    fn the_emergency_stop_follows_its_annotation() {
        let seed = |value: &str| ObjectMeta {
            annotations: [(EMERGENCY_STOP_ANNOTATION.to_owned(), value.to_owned())].into(),
            ..ObjectMeta::default()
        };
        let stop = emergency_stop(&seed("true"), &[], NOW).unwrap();
        assert_eq!((stop.status, stop.reason.as_str()), (ConditionStatus::True, EMERGENCY_STOP));
        assert_eq!(emergency_stop(&seed("false"), &[stop], NOW), None);
        assert_eq!(emergency_stop(&ObjectMeta::default(), &[], NOW), None);
    }
}
