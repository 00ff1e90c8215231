use serde_json::json;

use super::*;

/// Each row: its purpose, the object, and a part of the expected error (empty if it is healthy).
fn check(api_version: &str, kind: &str, rows: &[(&str, Value, &str)]) {
    let check = check_of(api_version, kind).unwrap();
    for (name, object, expected) in rows {
        match check(object) {
            Ok(()) => assert_eq!(*expected, "", "{kind}: {name}"),
            Err(why) => assert!(!expected.is_empty() && why.contains(expected), "{kind}: {name}: {why}"),
        }
    }
}

fn conditions(list: &[(&str, &str)]) -> Value {
    list.iter()
        .map(|(kind, status)| json!({"type": kind, "status": status, "reason": "R", "message": "M"}))
        .collect()
}

#[test]
fn deployments() {
    let with = |list: &[(&str, &str)]| {
        json!({"metadata": {"generation": 2},
        "status": {"observedGeneration": 2, "conditions": conditions(list)}})
    };
    let mut outdated = with(&[("Available", "True")]);
    outdated["status"]["observedGeneration"] = json!(1);
    check(
        "apps/v1",
        "Deployment",
        &[
            ("available", with(&[("Available", "True")]), ""),
            (
                "everything",
                with(&[("Available", "True"), ("Progressing", "True"), ("ReplicaFailure", "False")]),
                "",
            ),
            ("outdated", outdated, "observed generation outdated (1/2)"),
            ("nothing known", with(&[]), "condition \"Available\" is missing"),
            (
                "unavailable",
                with(&[("Available", "False")]),
                "condition \"Available\" has invalid status False (expected True) due to R: M",
            ),
            (
                "stuck",
                with(&[("Available", "True"), ("Progressing", "False")]),
                "\"Progressing\" has invalid status",
            ),
            (
                "failing",
                with(&[("Available", "True"), ("ReplicaFailure", "True")]),
                "\"ReplicaFailure\" has invalid",
            ),
        ],
    );
}

#[test]
fn replicated_sets() {
    let set = |replicas: Value, ready: Value| {
        json!({"metadata": {"generation": 1}, "spec": {"replicas": replicas},
        "status": {"observedGeneration": 1, "readyReplicas": ready}})
    };
    let outdated = json!({"metadata": {"generation": 1}, "status": {"readyReplicas": 9}});
    check(
        "apps/v1",
        "StatefulSet",
        &[
            ("all ready", set(json!(2), json!(2)), ""),
            ("more than needed", set(json!(2), json!(3)), ""),
            ("too few", set(json!(2), json!(1)), "not enough ready replicas (1/2)"),
            ("one is the default", set(Value::Null, Value::Null), "not enough ready replicas (0/1)"),
            ("none wanted", set(json!(0), Value::Null), ""),
            ("outdated", outdated.clone(), "observed generation outdated (0/1)"),
        ],
    );
    for (api_version, kind) in [("apps/v1", "ReplicaSet"), ("v1", "ReplicationController")] {
        check(
            api_version,
            kind,
            &[
                ("all ready", set(json!(2), json!(2)), ""),
                ("too few", set(json!(2), json!(1)), "not enough ready replicas (1/2)"),
                ("nothing said", set(Value::Null, Value::Null), ""),
                ("outdated", outdated.clone(), "observed generation outdated (0/1)"),
            ],
        );
    }
}

#[test]
fn daemon_sets() {
    let set = |current: i64, misscheduled: i64, updated: i64, unavailable: i64, max: Value| {
        json!({"metadata": {"generation": 1},
            "spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max}}},
            "status": {"observedGeneration": 1, "desiredNumberScheduled": 10, "currentNumberScheduled": current,
                "numberMisscheduled": misscheduled, "updatedNumberScheduled": updated,
                "numberUnavailable": unavailable}})
    };
    let mut on_delete = set(10, 0, 5, 1, json!(5));
    on_delete["spec"]["updateStrategy"]["type"] = json!("OnDelete");
    check(
        "apps/v1",
        "DaemonSet",
        &[
            ("rolled out", set(10, 0, 10, 0, json!(3)), ""),
            ("rolled out, one down", set(10, 0, 10, 1, json!(3)), "too many unavailable pods found (1/10)"),
            ("rolling out", set(10, 0, 5, 3, json!(3)), ""),
            (
                "rolling out, too many down",
                set(10, 0, 5, 4, json!(3)),
                "(4/10, only max. 3 unavailable pods allowed)",
            ),
            ("per cent, rounded down", set(10, 0, 5, 2, json!("25%")), ""),
            ("per cent, too many", set(10, 0, 5, 3, json!("25%")), "only max. 2"),
            ("not rolling", on_delete, "only max. 0"),
            ("not scheduled", set(9, 0, 10, 0, json!(3)), "not enough scheduled pods (9/10)"),
            ("misscheduled", set(10, 1, 10, 0, json!(3)), "misscheduled pods found (1)"),
            ("outdated", json!({"metadata": {"generation": 1}}), "observed generation outdated"),
            ("no nodes", json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}), ""),
        ],
    );
}

#[test]
fn jobs_pods_services() {
    let with = |list: &[(&str, &str)]| json!({"status": {"conditions": conditions(list)}});
    check(
        "batch/v1",
        "Job",
        &[
            ("running", json!({}), ""),
            ("complete", with(&[("Complete", "True"), ("Failed", "False")]), ""),
            ("failed", with(&[("Failed", "True")]), "condition \"Failed\" has invalid status True"),
        ],
    );
    let phase = |phase: &str| json!({"status": {"phase": phase}});
    check(
        "v1",
        "Pod",
        &[
            ("running", phase("Running"), ""),
            ("done", phase("Succeeded"), ""),
            ("waiting", phase("Pending"), "pod is in invalid phase \"Pending\""),
            ("failed", phase("Failed"), "pod is in invalid phase \"Failed\""),
            ("new", json!({}), "pod is in invalid phase \"\""),
        ],
    );
    let service = |kind: &str, ingress: Value| json!({"spec": {"type": kind}, "status": {"loadBalancer": {"ingress": ingress}}});
    check(
        "v1",
        "Service",
        &[
            ("internal", service("ClusterIP", Value::Null), ""),
            ("has an address", service("LoadBalancer", json!([{"ip": "1.2.3.4"}])), ""),
            ("has none", service("LoadBalancer", json!([])), "service is missing ingress status"),
        ],
    );
}

#[test]
fn custom_resource_definitions() {
    let with = |list: &[(&str, &str)]| json!({"status": {"conditions": conditions(list)}});
    for api_version in ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"] {
        check(
            api_version,
            "CustomResourceDefinition",
            &[
                ("served", with(&[("NamesAccepted", "True"), ("Established", "True")]), ""),
                ("new", with(&[]), "condition \"NamesAccepted\" is missing"),
                (
                    "not served",
                    with(&[("NamesAccepted", "True"), ("Established", "False")]),
                    "\"Established\" has invalid",
                ),
                (
                    "going",
                    with(&[("NamesAccepted", "True"), ("Established", "True"), ("Terminating", "True")]),
                    "condition \"Terminating\" has invalid status True",
                ),
            ],
        );
    }
}

#[test]
fn kinds_of_others() {
    let monitor = |status: &str, observed: i64, available: Value| {
        json!({"metadata": {"generation": 2}, "status": {
        "availableReplicas": available,
        "conditions": [{"type": "Available", "status": status, "observedGeneration": observed}]}})
    };
    for kind in ["Prometheus", "Alertmanager"] {
        check(
            "monitoring.coreos.com/v1",
            kind,
            &[
                ("fine", monitor("True", 2, json!(1)), ""),
                (
                    "unavailable",
                    monitor("Degraded", 2, json!(1)),
                    "\"Available\" has invalid status Degraded",
                ),
                ("outdated", monitor("True", 1, json!(1)), "observed generation outdated (1/2)"),
                ("too few", monitor("True", 2, Value::Null), "not enough available replicas (0/1)"),
                ("new", json!({}), "condition \"Available\" is missing"),
            ],
        );
    }
    let with = |list: &[(&str, &str)]| json!({"status": {"conditions": conditions(list)}});
    check(
        "autoscaling.k8s.io/v1",
        "VerticalPodAutoscaler",
        &[
            ("fine", with(&[]), ""),
            (
                "unsupported",
                with(&[("ConfigUnsupported", "True")]),
                "\"ConfigUnsupported\" has invalid status True",
            ),
        ],
    );
    let state = |state: &str, list: &[(&str, &str)]| json!({"status": {"state": state, "message": "why", "conditions": conditions(list)}});
    check(
        "cert.gardener.cloud/v1alpha1",
        "Certificate",
        &[
            ("ready", state("Ready", &[]), ""),
            ("pending", state("Pending", &[]), "certificate state is \"Pending\" (\"Ready\" expected)"),
            (
                "expired",
                state("Ready", &[("Ready", "False")]),
                "condition \"Ready\" has invalid status False",
            ),
        ],
    );
    check(
        "cert.gardener.cloud/v1alpha1",
        "Issuer",
        &[
            ("ready", state("Ready", &[]), ""),
            ("new", json!({}), "issuer state is \"\" (\"Ready\" expected)"),
        ],
    );
}

#[test]
fn other_kinds_only_need_to_exist() {
    let table =
        [("v1", "ConfigMap"), ("example.org/v1", "Deployment"), ("batch/v1", "CronJob"), ("batch/v1", "Pod")];
    for (api_version, kind) in table {
        assert!(check_of(api_version, kind).is_none(), "{api_version} {kind}");
    }
}
