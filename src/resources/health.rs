//! Whether one object is healthy: a function per kind (extension-api.md §3.8). Every other kind is healthy if it exists.

use serde_json::Value;

use super::object::{group_of, text};

type Check = fn(&Value) -> Result<(), String>;

/// The check of a kind; `None` if it is enough that the object exists, so that its body need not be read.
pub(super) fn check_of(api_version: &str, kind: &str) -> Option<Check> {
    let check: Check = match (group_of(api_version), kind) {
        ("apps" | "extensions", "Deployment") => deployment,
        ("apps", "StatefulSet") => stateful_set,
        ("apps" | "extensions", "DaemonSet") => daemon_set,
        ("apps" | "extensions", "ReplicaSet") | ("", "ReplicationController") => replica_set,
        ("batch", "Job") => job,
        ("", "Pod") => pod,
        ("", "Service") => service,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom_resource_definition,
        ("monitoring.coreos.com", "Prometheus" | "Alertmanager") => monitoring,
        ("autoscaling.k8s.io", "VerticalPodAutoscaler") => vertical_pod_autoscaler,
        ("cert.gardener.cloud", "Certificate") => certificate,
        ("cert.gardener.cloud", "Issuer") => issuer,
        _ => return None,
    };
    Some(check)
}

fn deployment(object: &Value) -> Result<(), String> {
    observed(object)?;
    required(object, "Available", "True")?;
    optional(object, "Progressing", "True")?;
    optional(object, "ReplicaFailure", "False")
}

fn stateful_set(object: &Value) -> Result<(), String> {
    observed(object)?;
    at_least(&object["status"]["readyReplicas"], replicas(object), "not enough ready replicas")
}

fn replica_set(object: &Value) -> Result<(), String> {
    observed(object)?;
    let wanted = number(&object["spec"]["replicas"]);
    at_least(&object["status"]["readyReplicas"], wanted, "not enough ready replicas")
}

fn daemon_set(object: &Value) -> Result<(), String> {
    observed(object)?;
    let status = &object["status"];
    let desired = number(&status["desiredNumberScheduled"]);
    at_least(&status["currentNumberScheduled"], desired, "not enough scheduled pods")?;
    let misscheduled = number(&status["numberMisscheduled"]);
    if misscheduled > 0 {
        return Err(format!("misscheduled pods found ({misscheduled})"));
    }
    let rolling_out = number(&status["updatedNumberScheduled"]) < desired;
    let allowed = if rolling_out { max_unavailable(object, desired) } else { 0 };
    let unavailable = number(&status["numberUnavailable"]);
    if unavailable > allowed {
        let counts = format!("{unavailable}/{desired}, only max. {allowed} unavailable pods allowed");
        return Err(format!("too many unavailable pods found ({counts})"));
    }
    Ok(())
}

/// How many pods of a DaemonSet a rolling update may take down at once; percentages are rounded down.
fn max_unavailable(object: &Value, desired: i64) -> i64 {
    let strategy = &object["spec"]["updateStrategy"];
    if strategy["type"] != "RollingUpdate" {
        return 0;
    }
    let setting = &strategy["rollingUpdate"]["maxUnavailable"];
    let percent = text(setting).strip_suffix('%').and_then(|p| p.parse::<i64>().ok());
    let count = percent.map_or_else(|| number(setting), |p| p.saturating_mul(desired) / 100);
    count.min(desired)
}

fn job(object: &Value) -> Result<(), String> {
    optional(object, "Failed", "False")
}

fn pod(object: &Value) -> Result<(), String> {
    match text(&object["status"]["phase"]) {
        "Running" | "Succeeded" => Ok(()),
        phase => Err(format!("pod is in phase {phase:?}, expected is Running or Succeeded")),
    }
}

fn service(object: &Value) -> Result<(), String> {
    let has_address =
        object["status"]["loadBalancer"]["ingress"].as_array().is_some_and(|list| !list.is_empty());
    if object["spec"]["type"] != "LoadBalancer" || has_address {
        return Ok(());
    }
    Err("service is missing ingress status".to_owned())
}

fn custom_resource_definition(object: &Value) -> Result<(), String> {
    required(object, "NamesAccepted", "True")?;
    required(object, "Established", "True")?;
    optional(object, "Terminating", "False")
}

fn monitoring(object: &Value) -> Result<(), String> {
    required(object, "Available", "True")?;
    current(object, "Available")?;
    at_least(&object["status"]["availableReplicas"], replicas(object), "not enough available replicas")
}

fn vertical_pod_autoscaler(object: &Value) -> Result<(), String> {
    optional(object, "ConfigUnsupported", "False")
}

fn certificate(object: &Value) -> Result<(), String> {
    issuer(object)?;
    optional(object, "Ready", "True")
}

fn issuer(object: &Value) -> Result<(), String> {
    match text(&object["status"]["state"]) {
        "Ready" => Ok(()),
        state => {
            Err(format!("state is {state:?}, expected is \"Ready\": {}", text(&object["status"]["message"])))
        }
    }
}

/// Whether the status is about the present generation.
pub(super) fn observed(object: &Value) -> Result<(), String> {
    let generation = number(&object["metadata"]["generation"]);
    outdated(number(&object["status"]["observedGeneration"]), generation)
}

fn outdated(observed: i64, generation: i64) -> Result<(), String> {
    if observed >= generation {
        return Ok(());
    }
    Err(format!("observed generation outdated ({observed}/{generation})"))
}

/// Whether a condition is about the present generation.
pub(super) fn current(object: &Value, kind: &str) -> Result<(), String> {
    let observed = condition(object, kind).map_or(0, |c| number(&c["observedGeneration"]));
    outdated(observed, number(&object["metadata"]["generation"]))
}

/// The condition of a type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

pub(super) fn required(object: &Value, kind: &str, expected: &str) -> Result<(), String> {
    match condition(object, kind) {
        None => Err(format!("condition {kind:?} is missing")),
        Some(_) => optional(object, kind, expected),
    }
}

fn optional(object: &Value, kind: &str, expected: &str) -> Result<(), String> {
    let Some(condition) = condition(object, kind) else { return Ok(()) };
    let status = text(&condition["status"]);
    if status == expected {
        return Ok(());
    }
    let (reason, message) = (text(&condition["reason"]), text(&condition["message"]));
    Err(format!(
        "condition {kind:?} has invalid status {status} (expected {expected}) due to {reason}: {message}"
    ))
}

fn at_least(have: &Value, want: i64, problem: &str) -> Result<(), String> {
    let have = number(have);
    if have >= want { Ok(()) } else { Err(format!("{problem} ({have}/{want})")) }
}

/// `spec.replicas`, which is 1 if nobody says otherwise.
pub(super) fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// A number; 0 if it is missing.
pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each row: what it shows, the object, and what must be in the complaint (nothing if it is healthy).
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
                (
                    "rolled out, one down",
                    set(10, 0, 10, 1, json!(3)),
                    "too many unavailable pods found (1/10, only max. 0",
                ),
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
                ("waiting", phase("Pending"), "pod is in phase \"Pending\""),
                ("failed", phase("Failed"), "pod is in phase \"Failed\""),
                ("new", json!({}), "pod is in phase \"\""),
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
                ("pending", state("Pending", &[]), "state is \"Pending\", expected is \"Ready\": why"),
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
            &[("ready", state("Ready", &[]), ""), ("new", json!({}), "state is \"\"")],
        );
    }

    #[test]
    fn other_kinds_only_exist() {
        let table = [
            ("v1", "ConfigMap"),
            ("example.org/v1", "Deployment"),
            ("batch/v1", "CronJob"),
            ("batch/v1", "Pod"),
        ];
        for (api_version, kind) in table {
            assert!(check_of(api_version, kind).is_none(), "{api_version} {kind}");
        }
    }
}
