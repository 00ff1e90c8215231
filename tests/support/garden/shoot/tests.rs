//! Defaults and generations, by tables.

use serde_json::{Value, json};

use super::generation::{asked, spec_counts, status_counts, take_operations};
use super::{add_tasks, checks, defaults};
use crate::json::{entry, set, text};

/// A Shoot with an operation annotation and a last operation.
fn with(operation: &str, last: &Value) -> Value {
    json!({"metadata": {"annotations": {"gardener.cloud/operation": operation}}, "status": {"lastOperation": last}})
}

#[test]
fn operations_count_and_stay_or_go() {
    let (good, failed) =
        (json!({"type": "Create", "state": "Succeeded"}), json!({"type": "Create", "state": "Failed"}));
    let pending = json!({"state": "Pending"});
    let table = [
        (Value::Null, "reconcile", false, "reconcile"),
        (Value::Null, "rotate-credentials-start", false, "rotate-credentials-start"),
        (pending.clone(), "reconcile", true, ""),
        (good.clone(), "", false, ""),
        (good.clone(), "reconcile", true, ""),
        (good.clone(), "retry", false, "retry"),
        (good.clone(), "maintain", false, "maintain"),
        (good.clone(), "migrate", false, "migrate"),
        (good.clone(), "force-in-place-update", false, "force-in-place-update"),
        (good.clone(), "rotate-credentials-start", true, "rotate-credentials-start"),
        (
            good.clone(),
            "rotate-ca-start-without-workers-rollout",
            true,
            "rotate-ca-start-without-workers-rollout",
        ),
        (good.clone(), "rotate-etcd-encryption-key", true, "rotate-etcd-encryption-key"),
        (good.clone(), "rotate-observability-credentials", true, "rotate-observability-credentials"),
        (good.clone(), "rollout-workers=a,b", true, "rollout-workers=a,b"),
        (good.clone(), "rotate-rollout-workers=a", true, "rotate-rollout-workers=a"),
        (good.clone(), "rotate-ssh-keypair", false, ""),
        (good.clone(), "reconcile; rotate-ca-start;rotate-ssh-keypair", true, "rotate-ca-start"),
        (failed.clone(), "retry", true, ""),
        (failed.clone(), "reconcile", false, "reconcile"),
        (failed, "rotate-ca-complete", false, "rotate-ca-complete"),
    ];
    for (last, operation, counts, left) in table {
        let mut shoot = with(operation, &last);
        assert_eq!(asked(&shoot).counts, counts, "{operation} {last}");
        take_operations(&mut shoot);
        let found = entry(&shoot, "/metadata/annotations", "gardener.cloud/operation").unwrap_or_default();
        assert_eq!(found, left, "{operation} {last}");
    }
    let mut with_workers = with("rotate-ssh-keypair", &good);
    set(&mut with_workers, "/spec/provider/workers", json!([{"name": "w"}]));
    assert_eq!((asked(&with_workers).counts, asked(&with_workers).left.len()), (true, 1));
    set(&mut with_workers, "/spec/provider/workersSettings/sshAccess/enabled", false);
    assert_eq!((asked(&with_workers).counts, asked(&with_workers).left.len()), (false, 0));
}

#[test]
fn a_confined_spec_counts_only_to_sleep_and_to_wake_up() {
    let spec = |confined: bool, enabled: bool, purpose: &str| {
        json!({"spec": {"maintenance": {"confineSpecUpdateRollout": confined}, "hibernation": {"enabled": enabled},
            "purpose": purpose}})
    };
    let table = [
        ((false, false, "a"), (false, false, "a"), false),
        ((false, false, "a"), (false, false, "b"), true),
        ((false, false, "a"), (false, true, "a"), true),
        ((true, false, "a"), (true, false, "b"), false),
        ((true, false, "a"), (true, true, "a"), true),
        ((true, true, "a"), (true, false, "b"), true),
        ((false, false, "a"), (true, false, "b"), false),
        ((true, false, "a"), (false, false, "a"), true),
    ];
    for (old, new, expected) in table {
        let counts = spec_counts(&spec(old.0, old.1, old.2), &spec(new.0, new.1, new.2));
        assert_eq!(counts, expected, "{old:?} {new:?}");
    }
}

#[test]
fn a_status_counts_when_somebody_else_must_go_on() {
    let last = |kind: &str, state: &str| json!({"status": {"lastOperation": {"type": kind, "state": state}}});
    let key = |phase: &str, auto: bool| json!({"status": {"credentials": {"rotation": {"etcdEncryptionKey": {"phase": phase, "autoCompleteAfterPrepared": auto}}}}});
    let table = [
        (last("Migrate", "Processing"), last("Migrate", "Succeeded"), true),
        (last("Migrate", "Processing"), last("Migrate", "Aborted"), true),
        (last("Migrate", "Succeeded"), last("Migrate", "Succeeded"), true),
        (last("Migrate", "Processing"), last("Migrate", "Error"), false),
        (last("Reconcile", "Processing"), last("Reconcile", "Succeeded"), false),
        (key("Preparing", true), key("Prepared", true), true),
        (key("Preparing", false), key("Prepared", false), false),
        (key("Prepared", true), key("Prepared", true), false),
        (key("Prepared", true), key("Completing", true), false),
    ];
    for (old, new, expected) in table {
        assert_eq!(status_counts(&old, &new), expected, "{old} {new}");
    }
}

#[test]
fn versions_are_completed_from_the_profile() {
    let profile = json!({"kubernetes": {"versions": [
        {"version": "1.33.9"}, {"version": "1.34.3"}, {"version": "1.34.10"},
        {"version": "1.34.11", "expirationDate": "2026-01-01T00:00:00Z"}, {"version": "1.35.0", "classification": "preview"}]}});
    let table = [
        ("", "1.34.10"),
        ("1", "1.34.10"),
        ("1.34", "1.34.10"),
        ("1.33", "1.33.9"),
        ("1.3", "1.3"),
        ("1.34.3", "1.34.3"),
        ("1.36", "1.36"),
    ];
    for (asked, expected) in table {
        let mut shoot = json!({"spec": {"kubernetes": {"version": asked}}});
        defaults::version(&mut shoot, &profile, "2026-11-22T13:00:00Z");
        assert_eq!(text(&shoot, "/spec/kubernetes/version"), expected, "{asked}");
    }
}

#[test]
fn the_window_for_maintenance_is_an_hour_of_the_day() {
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..200 {
        let mut shoot = json!({"metadata": {"name": format!("shoot-{number}")}, "spec": {}});
        defaults::complete(&mut shoot);
        let hour = |end: &str| {
            text(&shoot, &format!("/spec/maintenance/timeWindow/{end}"))[..2].parse::<u32>().unwrap()
        };
        assert_eq!((hour("begin") + 1) % 24, hour("end"));
        assert!(text(&shoot, "/spec/maintenance/timeWindow/end").ends_with("0000+0000"));
        seen.insert(hour("begin"));
    }
    assert!(seen.len() > 10, "Shoots do not have the same: {seen:?}");
    let mut given =
        json!({"spec": {"maintenance": {"timeWindow": {"begin": "220000+0100", "end": "230000+0100"}}}});
    defaults::complete(&mut given);
    assert_eq!(text(&given, "/spec/maintenance/timeWindow/begin"), "220000+0100");
}

#[test]
fn tasks_are_added_once() {
    let mut shoot = json!({"metadata": {"annotations": {"shoot.gardener.cloud/tasks": "deployInfrastructure,deployDNSRecordIngress"}}});
    add_tasks(&mut shoot, &super::DNS_TASKS);
    let tasks = entry(&shoot, "/metadata/annotations", "shoot.gardener.cloud/tasks");
    // The order of the real server after a Shoot has woken up.
    let expected =
        "deployInfrastructure,deployDNSRecordIngress,deployDNSRecordInternal,deployDNSRecordExternal";
    assert_eq!(tasks, Some(expected));
}

#[test]
fn a_pool_may_be_three_minor_versions_behind() {
    let table = [
        ("", "1.35.4", None),
        ("1.35.4", "1.35.4", None),
        ("1.34.3", "1.35.4", None),
        ("1.32.0", "1.35.4", None),
        ("1.31.9", "1.35.4", Some("three minor versions behind")),
        ("1.35.5", "1.35.4", Some("higher than")),
    ];
    for (own, control_plane, expected) in table {
        let found = checks::skew(own, control_plane);
        assert_eq!(found.is_some(), expected.is_some(), "{own} {control_plane}");
        assert!(expected.is_none_or(|words| found.unwrap_or_default().contains(words)), "{found:?}");
    }
}
