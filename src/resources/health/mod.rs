//! Whether one object is healthy: a function per kind. An object of any other kind is healthy if it exists.

use serde_json::Value;

use super::object::{group_of, text};

type HealthCheck = fn(&Value) -> Result<(), String>;

/// The check of a kind; `None` if an existing object is healthy, so that its body need not be read.
pub(super) fn check_of(api_version: &str, kind: &str) -> Option<HealthCheck> {
    let check: HealthCheck = match (group_of(api_version), kind) {
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

/// Whether an object with `apiVersion` and `kind` is healthy. Errors: the reason why it is not.
pub(crate) fn check_object(object: &Value) -> Result<(), String> {
    check_of(text(&object["apiVersion"]), text(&object["kind"])).map_or(Ok(()), |check| check(object))
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
    let (unavailable, current) =
        (number(&status["numberUnavailable"]), number(&status["currentNumberScheduled"]));
    let rolling_out = number(&status["updatedNumberScheduled"]) < desired;
    let allowed = if rolling_out { max_unavailable(object, desired) } else { 0 };
    if unavailable <= allowed {
        return Ok(());
    }
    let rule =
        if rolling_out { format!(", only max. {allowed} unavailable pods allowed") } else { String::new() };
    Err(format!("too many unavailable pods found ({unavailable}/{current}{rule})"))
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
        phase => {
            Err(format!("pod is in invalid phase {phase:?} (expected one of [\"Running\" \"Succeeded\"])"))
        }
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
    current(object, "Available")?;
    at_least(&object["status"]["availableReplicas"], replicas(object), "not enough available replicas")
}

fn vertical_pod_autoscaler(object: &Value) -> Result<(), String> {
    optional(object, "ConfigUnsupported", "False")
}

fn certificate(object: &Value) -> Result<(), String> {
    optional(object, "Ready", "True")?;
    state(object, "certificate")
}

fn issuer(object: &Value) -> Result<(), String> {
    state(object, "issuer")
}

fn state(object: &Value, what: &str) -> Result<(), String> {
    match text(&object["status"]["state"]) {
        "Ready" => Ok(()),
        state => Err(format!("{what} state is {state:?} (\"Ready\" expected)")),
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

/// Whether a condition is true, and about the present generation.
pub(super) fn current(object: &Value, kind: &str) -> Result<(), String> {
    let Some(condition) = condition(object, kind) else { return Err(missing(kind)) };
    outdated(number(&condition["observedGeneration"]), number(&object["metadata"]["generation"]))?;
    optional(object, kind, "True")
}

/// The condition of a type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

fn required(object: &Value, kind: &str, expected: &str) -> Result<(), String> {
    condition(object, kind).map_or_else(|| Err(missing(kind)), |_| optional(object, kind, expected))
}

/// The text about a missing condition.
pub(super) fn missing(kind: &str) -> String {
    format!("condition {kind:?} is missing")
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

/// `spec.replicas`, which defaults to 1.
pub(super) fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// A number; 0 if it is missing.
pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

#[cfg(test)]
mod tests;
