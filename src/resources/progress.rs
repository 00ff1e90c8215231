//! Whether one object is still being rolled out: a function per kind.

use serde_json::Value;

use super::health::{self, condition, current, missing, number, observed, replicas};
use super::object::{group_of, text};

/// The result of a check of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RolloutProgress {
    /// It is rolled out.
    Done,
    /// It is being rolled out, for this reason.
    Running(String),
    /// It is rolled out if this many pods match its selector.
    Pods(i64),
}

type RolloutCheck = fn(&Value) -> Result<(), String>;

/// The check of a kind; `None` if it is never rolled out.
fn check_of(api_version: &str, kind: &str) -> Option<RolloutCheck> {
    let check: RolloutCheck = match (group_of(api_version), kind) {
        ("apps", "Deployment") => deployment,
        ("apps", "StatefulSet") => stateful_set,
        ("apps", "DaemonSet") => daemon_set,
        ("monitoring.coreos.com", "Prometheus" | "Alertmanager") => monitoring,
        ("cert.gardener.cloud", "Certificate" | "Issuer") => observed,
        _ => return None,
    };
    Some(check)
}

/// Whether objects of the kind have roll-outs at all.
pub(super) fn concerns(api_version: &str, kind: &str) -> bool {
    check_of(api_version, kind).is_some()
}

/// Whether the objects of a kind report their health. For other kinds, only their existence matters.
pub(super) fn is_read(api_version: &str, kind: &str) -> bool {
    health::check_of(api_version, kind).is_some() || concerns(api_version, kind)
}

pub(super) fn check(object: &Value) -> RolloutProgress {
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    match check_of(api_version, kind).map_or(Ok(()), |check| check(object)) {
        Err(why) => RolloutProgress::Running(why),
        Ok(()) if kind == "Deployment" => RolloutProgress::Pods(replicas(object)),
        Ok(()) => RolloutProgress::Done,
    }
}

fn deployment(object: &Value) -> Result<(), String> {
    observed(object)?;
    let Some(progressing) = condition(object, "Progressing") else {
        return Err(missing("Progressing"));
    };
    if progressing["status"] == "True" && progressing["reason"] == "NewReplicaSetAvailable" {
        return Ok(());
    }
    Err(text(&progressing["message"]).to_owned())
}

fn stateful_set(object: &Value) -> Result<(), String> {
    observed(object)?;
    updated(number(&object["status"]["updatedReplicas"]), replicas(object))
}

fn daemon_set(object: &Value) -> Result<(), String> {
    observed(object)?;
    let status = &object["status"];
    updated(number(&status["updatedNumberScheduled"]), number(&status["desiredNumberScheduled"]))
}

fn monitoring(object: &Value) -> Result<(), String> {
    current(object, "Reconciled")?;
    updated(number(&object["status"]["updatedReplicas"]), replicas(object))
}

fn updated(have: i64, want: i64) -> Result<(), String> {
    if have >= want { Ok(()) } else { Err(format!("{have} of {want} replica(s) have been updated")) }
}

/// Whether a pod counts for its Deployment: not if it has ended, was evicted or is being replaced.
pub(super) fn counts(pod: &Value) -> bool {
    let status = &pod["status"];
    let has = |kind: &str, value: &str, reason: &str| {
        condition(pod, kind)
            .is_some_and(|c| c["status"] == value && (reason.is_empty() || c["reason"] == reason))
    };
    let reason = text(&status["reason"]);
    let stale = ["Evicted", "NodeAffinity", "NodeLost", "Preempting"].iter().any(|r| reason.contains(r));
    let ended = matches!(text(&status["phase"]), "Succeeded" | "Failed");
    let completed = has("Ready", "False", "PodCompleted");
    let disrupted = has("DisruptionTarget", "True", "");
    !(ended || stale || reason.starts_with("OutOf") || completed || disrupted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn running(why: &str) -> RolloutProgress {
        RolloutProgress::Running(why.to_owned())
    }

    #[allow(clippy::needless_pass_by_value)] // tables of literals
    fn with(api_version: &str, kind: &str, spec: Value, status: Value) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"generation": 2}, "spec": spec, "status": status})
    }

    #[test]
    fn deployments() {
        let object = |observed: i64, conditions: Value| {
            let status = json!({"observedGeneration": observed, "conditions": conditions});
            with("apps/v1", "Deployment", json!({"replicas": 3}), status)
        };
        let progressing = |status: &str, reason: &str| json!([{"type": "Progressing", "status": status, "reason": reason, "message": "M"}]);
        let table = [
            (object(2, progressing("True", "NewReplicaSetAvailable")), RolloutProgress::Pods(3)),
            (
                object(1, progressing("True", "NewReplicaSetAvailable")),
                running("observed generation outdated (1/2)"),
            ),
            (object(2, json!([])), running("condition \"Progressing\" is missing")),
            (object(2, progressing("True", "ReplicaSetUpdated")), running("M")),
            (object(2, progressing("False", "NewReplicaSetAvailable")), running("M")),
        ];
        for (object, expected) in table {
            assert_eq!(check(&object), expected, "{object}");
        }
        let one = with(
            "apps/v1",
            "Deployment",
            json!({}),
            object(2, progressing("True", "NewReplicaSetAvailable"))["status"].clone(),
        );
        assert_eq!(check(&one), RolloutProgress::Pods(1));
    }

    #[test]
    fn sets() {
        let sets = |spec: Value, status: Value| check(&with("apps/v1", "StatefulSet", spec, status));
        let status = |updated: i64| json!({"observedGeneration": 2, "updatedReplicas": updated});
        assert_eq!(sets(json!({"replicas": 2}), status(2)), RolloutProgress::Done);
        assert_eq!(sets(json!({"replicas": 2}), status(1)), running("1 of 2 replica(s) have been updated"));
        assert_eq!(sets(json!({}), status(0)), running("0 of 1 replica(s) have been updated"));
        assert_eq!(sets(json!({"replicas": 0}), json!({})), running("observed generation outdated (0/2)"));
        let daemons = |status: Value| check(&with("apps/v1", "DaemonSet", json!({}), status));
        let status = |updated: i64| json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": updated});
        assert_eq!(daemons(status(3)), RolloutProgress::Done);
        assert_eq!(daemons(status(2)), running("2 of 3 replica(s) have been updated"));
        assert_eq!(daemons(json!({})), running("observed generation outdated (0/2)"));
    }

    #[test]
    fn kinds_of_others() {
        let status = |status: &str, observed: i64, updated: i64| {
            json!({"updatedReplicas": updated, "conditions": [
            {"type": "Reconciled", "status": status, "observedGeneration": observed, "reason": "R", "message": "M"}]})
        };
        for kind in ["Prometheus", "Alertmanager"] {
            let check = |status: Value| {
                check(&with("monitoring.coreos.com/v1", kind, json!({"replicas": 2}), status))
            };
            assert_eq!(check(status("True", 2, 2)), RolloutProgress::Done);
            assert_eq!(check(status("True", 1, 2)), running("observed generation outdated (1/2)"));
            assert_eq!(check(status("True", 2, 1)), running("1 of 2 replica(s) have been updated"));
            assert!(matches!(check(status("False", 2, 2)), RolloutProgress::Running(_)));
            assert_eq!(check(json!({})), running("condition \"Reconciled\" is missing"));
        }
        for kind in ["Certificate", "Issuer"] {
            let check = |observed: i64| {
                check(&with(
                    "cert.gardener.cloud/v1alpha1",
                    kind,
                    json!({}),
                    json!({"observedGeneration": observed}),
                ))
            };
            assert_eq!(check(2), RolloutProgress::Done);
            assert_eq!(check(1), running("observed generation outdated (1/2)"));
        }
    }

    #[test]
    fn groups_with_roll_outs() {
        let table = [
            ("apps/v1", "Deployment", true),
            ("apps/v1", "ReplicaSet", false),
            ("extensions/v1beta1", "Deployment", false),
            ("batch/v1", "Job", false),
            ("v1", "Pod", false),
        ];
        for (api_version, kind, expected) in table {
            assert_eq!(concerns(api_version, kind), expected, "{api_version} {kind}");
        }
    }

    #[test]
    fn pods_that_count() {
        let condition = |kind: &str, status: &str, reason: &str| json!({"conditions": [{"type": kind, "status": status, "reason": reason}]});
        let table = [
            (json!({}), true),
            (json!({"phase": "Running"}), true),
            (json!({"phase": "Pending"}), true),
            (json!({"phase": "Succeeded"}), false),
            (json!({"phase": "Failed"}), false),
            (json!({"reason": "Evicted"}), false),
            (json!({"reason": "NodeLost"}), false),
            (json!({"reason": "OutOfcpu"}), false),
            (condition("Ready", "False", "PodCompleted"), false),
            (condition("Ready", "False", "ContainersNotReady"), true),
            (condition("DisruptionTarget", "True", "EvictionByEvictionAPI"), false),
            (condition("DisruptionTarget", "False", ""), true),
        ];
        for (status, expected) in table {
            assert_eq!(counts(&json!({"status": status})), expected, "{status}");
        }
    }
}
