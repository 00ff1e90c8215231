//! Deployments and other workloads. Nothing runs, but they report that all replicas are available.

use serde_json::{Value, json};

use crate::api::write::Patch;
use crate::api::{Api, Target, User};
use crate::json::text;

/// Set on an object, this annotation (value: anything) keeps it from becoming ready.
pub const HOLD: &str = "test.gardener.cloud/hold";

/// `left_out`: namespaces whose workloads another component handles.
pub fn sync(api: &Api, left_out: &dyn Fn(&str) -> bool) {
    for (group, plural, status) in [
        ("apps", "deployments", deployment as fn(&Value, &str) -> Value),
        ("apps", "statefulsets", stateful_set),
        ("apps", "daemonsets", daemon_set),
        ("apps", "replicasets", replica_set),
        ("batch", "jobs", job),
        ("", "pods", pod),
        ("", "persistentvolumeclaims", claim),
    ] {
        let Some(kind) = api.kind(group, plural) else { continue };
        for object in api.store.all(group, plural, "") {
            let held = object["metadata"]["annotations"].get(HOLD).is_some()
                || left_out(text(&object, "/metadata/namespace"));
            let settled = object["status"]["observedGeneration"] == object["metadata"]["generation"]
                && !object["status"]["observedGeneration"].is_null();
            if held || settled || !text(&object, "/metadata/deletionTimestamp").is_empty() {
                continue;
            }
            let name = text(&object, "/metadata/name");
            let target =
                Target::new(kind.clone(), text(&object, "/metadata/namespace"), name).subresource("status");
            let mut status = status(&object, &api.now());
            status["observedGeneration"] = object["metadata"]["generation"].clone();
            if status["observedGeneration"].is_null() {
                // Kinds without generations: once is enough.
                status.as_object_mut().unwrap().remove("observedGeneration");
                if object["status"]["phase"] == status["phase"] {
                    continue;
                }
            }
            // Another thread may have deleted it.
            let _ = api.patch(&target, &Patch::Merge(json!({"status": status})), &User::system());
        }
    }
}

fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// The same number under several names; zero is left out, as Go leaves it out.
fn counts(n: i64, names: &[&str]) -> Value {
    let value = |_: &&str| if n == 0 { Value::Null } else { n.into() };
    Value::Object(names.iter().map(|name| ((*name).to_owned(), value(name))).collect())
}

fn deployment(object: &Value, now: &str) -> Value {
    let mut status =
        counts(replicas(object), &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]);
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastUpdateTime": now,
            "lastTransitionTime": now})
    };
    status["conditions"] = json!([
        condition("Available", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        condition("Progressing", "NewReplicaSetAvailable", "ReplicaSet has successfully progressed."),
    ]);
    status
}

fn stateful_set(object: &Value, _now: &str) -> Value {
    let names = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentReplicas"];
    let mut status = counts(replicas(object), &names);
    status["currentRevision"] = "1".into();
    status["updateRevision"] = "1".into();
    status
}

fn daemon_set(_object: &Value, _now: &str) -> Value {
    json!({"currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberAvailable": 1, "numberMisscheduled": 0,
        "numberReady": 1, "updatedNumberScheduled": 1})
}

fn replica_set(object: &Value, _now: &str) -> Value {
    counts(replicas(object), &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"])
}

fn job(_object: &Value, now: &str) -> Value {
    json!({"succeeded": 1, "startTime": now, "completionTime": now, "conditions": [
        {"type": "Complete", "status": "True", "lastProbeTime": now, "lastTransitionTime": now}]})
}

fn pod(_object: &Value, now: &str) -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}]})
}

fn claim(_object: &Value, _now: &str) -> Value {
    json!({"phase": "Bound"})
}
