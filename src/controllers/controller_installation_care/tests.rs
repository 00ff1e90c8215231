use serde_json::{Value, json};

use super::*;

const NOW: Timestamp = Timestamp::from_unix(1_000);

fn managed(observed: i64, conditions: &[(&str, &str)]) -> ManagedResourceHead {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status)| json!({"type": kind, "status": status, "reason": "r", "message": "why"}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": "garden", "name": "ci", "generation": 2},
        "spec": {"secretRefs": []},
        "status": {"observedGeneration": observed, "conditions": conditions},
    }))
    .unwrap()
}

#[test]
fn each_row_of_the_table() {
    let good =
        [("ResourcesApplied", "True"), ("ResourcesHealthy", "True"), ("ResourcesProgressing", "False")];
    let bad =
        [("ResourcesApplied", "False"), ("ResourcesHealthy", "Unknown"), ("ResourcesProgressing", "True")];
    let not = |kind, status| format!("condition {kind} of managed resource garden/ci is {status}: why");
    let missing = |kind| format!("condition {kind} for managed resource garden/ci has not been reported yet");
    let table = [
        (
            managed(2, &good),
            [
                (
                    "True",
                    "InstallationSuccessful",
                    "The controller was successfully installed in the seed cluster.".to_owned(),
                ),
                (
                    "True",
                    "ControllerHealthy",
                    "The controller running in the seed cluster is healthy.".to_owned(),
                ),
                (
                    "False",
                    "ControllerRolledOut",
                    "The controller has been rolled out successfully.".to_owned(),
                ),
            ],
        ),
        (
            managed(2, &bad),
            [
                ("False", "InstallationPending", not("ResourcesApplied", "False")),
                ("False", "ControllerNotHealthy", not("ResourcesHealthy", "Unknown")),
                ("True", "ControllerNotRolledOut", not("ResourcesProgressing", "True")),
            ],
        ),
        (
            managed(2, &[]),
            [
                ("False", "InstallationPending", missing("ResourcesApplied")),
                ("False", "ControllerNotHealthy", missing("ResourcesHealthy")),
                ("True", "ControllerNotRolledOut", missing("ResourcesProgressing")),
            ],
        ),
        (
            managed(1, &good),
            [
                (
                    "False",
                    "InstallationPending",
                    "observed generation of managed resource garden/ci outdated (1/2)".to_owned(),
                ),
                (
                    "True",
                    "ControllerHealthy",
                    "The controller running in the seed cluster is healthy.".to_owned(),
                ),
                (
                    "False",
                    "ControllerRolledOut",
                    "The controller has been rolled out successfully.".to_owned(),
                ),
            ],
        ),
    ];
    for (managed, expected) in table {
        let found = judge(&managed, None, &[], NOW);
        let found: Vec<_> =
            found.iter().map(|c| (c.status.as_str(), c.reason.as_str(), c.message.clone())).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_pending_installation_reports_the_obstacle() {
    let remark = Some("Somebody else applies.");
    let message = |managed: &ManagedResourceHead| judge(managed, remark, &[], NOW)[0].message.clone();
    let expected = "condition ResourcesApplied for managed resource garden/ci has not been reported yet. Somebody else applies.";
    assert_eq!(message(&managed(2, &[])), expected);
    let expected = "The controller was successfully installed in the seed cluster.";
    assert_eq!(message(&managed(2, &[("ResourcesApplied", "True")])), expected);
}

#[test]
fn what_wakes_the_care() {
    let labelled = |mut watched: ManagedResourceHead, namespace: &str, label: &str| {
        watched.metadata.namespace = namespace.to_owned();
        watched.metadata.labels.insert("controllerinstallation-name".to_owned(), label.to_owned());
        Some(watched)
    };
    let plain = labelled(managed(2, &[("ResourcesApplied", "True")]), "garden", "ci");
    let mut annotated = plain.clone();
    annotated.as_mut().unwrap().metadata.annotations.insert("a".to_owned(), "b".to_owned());
    let unhealthy = labelled(managed(2, &[("ResourcesApplied", "False")]), "garden", "ci");
    let outdated = labelled(managed(1, &[("ResourcesApplied", "True")]), "garden", "ci");
    let mut reworded = plain.clone();
    reworded.as_mut().unwrap().status.conditions[0].message = "other".to_owned();
    let table = [
        ("new", &None, &plain, true),
        ("gone", &plain, &None, true),
        ("same", &plain, &annotated, false),
        ("other status", &plain, &unhealthy, true),
        ("other message", &plain, &reworded, true),
        ("other observed generation", &plain, &outdated, true),
        ("of nobody", &None, &labelled(managed(2, &[]), "garden", ""), false),
        ("elsewhere", &None, &labelled(managed(2, &[]), "shoot--a--b", "ci"), false),
    ];
    for (name, old, new, expected) in table {
        let woken = wants_care(old.as_ref(), new.as_ref());
        assert_eq!(woken, expected.then(|| Key::cluster("ci")), "{name}");
    }
}

#[test]
fn an_unreadable_resource_makes_all_three_unknown() {
    let conditions = unreadable("ci", "404", &[], NOW);
    let kinds: Vec<_> = conditions.iter().map(|c| c.kind.as_str()).collect();
    assert_eq!(kinds, ["Installed", "Healthy", "Progressing"]);
    for c in conditions {
        assert_eq!((c.status, c.reason.as_str()), (ConditionStatus::Unknown, "SeedReadError"));
        assert_eq!(c.message, "Failed to get ManagedResource \"garden/ci\": 404");
    }
}

#[test]
fn changed_conditions_in_the_garden_are_checked_again() {
    let installation = |conditions: &[(&str, ConditionStatus)]| {
        let all = conditions.iter().map(|(kind, status)| set(&[], kind, NOW, *status, "R", "m")).collect();
        let mut installation = ControllerInstallation::default();
        installation.status.conditions = all;
        installation
    };
    let well = installation(&[("Healthy", ConditionStatus::True)]);
    let ill = installation(&[("Healthy", ConditionStatus::False)]);
    let required = installation(&[("Healthy", ConditionStatus::True), ("Required", ConditionStatus::False)]);
    let table = [
        ("new", None, Some(&well), true),
        ("as before", Some(&well), Some(&well), false),
        ("our own write, or of somebody else", Some(&well), Some(&ill), true),
        ("a condition of others", Some(&well), Some(&required), false),
    ];
    for (name, old, new, expected) in table {
        assert_eq!(is_told_otherwise(old, new), expected, "{name}");
    }
}
