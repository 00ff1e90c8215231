//! Empties a node: no new pods come, and those that are there leave as their disruption budgets allow.
//!
//! Nothing waits here. Who empties a node repeats [`turn`] until nothing is left, and decides for how long.

use serde_json::Value;

use crate::api::core::{NODE, POD};
use crate::api::meta::{ALL_NAMESPACES, Key, annotation, text};
use crate::base::cut;
use crate::base::json::json;
use crate::kube::{Client, DeleteParams, Error, ListParams, Patch, unless_absent};
use crate::limits;

/// The annotation of a pod that a kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The cause of a refusal to evict, and of one in a namespace that is being deleted.
const BUDGET: &str = "DisruptionBudget";
const ENDING_NAMESPACE: &str = "NamespaceTerminating";

/// A pod that has to leave.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LeavingPod {
    pub(crate) key: Key,
    pub(crate) uid: String,
    /// When its time to end is over; empty if nobody has begun to delete it.
    pub(crate) ends: String,
    /// Whether something makes another one in its place.
    pub(crate) is_replaced: bool,
    /// Whether it uses a PersistentVolumeClaim.
    pub(crate) has_claims: bool,
}

/// A pod that is still there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RemainingPod {
    pub(crate) key: Key,
    /// Why, in a sentence.
    pub(crate) why: String,
}

/// Whether a pod stays on a node that is emptied: its DaemonSet or its kubelet would make it again at once, or it has ended.
fn stays(pod: &Value) -> bool {
    let is_of_daemons = controller(pod).is_some_and(|owner| owner["kind"] == "DaemonSet");
    let has_ended = matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed");
    is_of_daemons || has_ended || !annotation(pod, MIRROR).is_empty()
}

fn controller(pod: &Value) -> Option<&Value> {
    let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.find(|owner| owner["controller"] == true)
}

/// The pod, if it has to leave.
fn leaving(pod: &Value) -> Option<LeavingPod> {
    let volumes = || pod["spec"]["volumes"].as_array().into_iter().flatten();
    // The claim of an ephemeral volume is made for the pod.
    let is_claim =
        |volume: &Value| ["persistentVolumeClaim", "ephemeral"].iter().any(|kind| volume[kind].is_object());
    (!stays(pod)).then(|| LeavingPod {
        key: Key::of(pod),
        uid: text(&pod["metadata"]["uid"]).to_owned(),
        ends: text(&pod["metadata"]["deletionTimestamp"]).to_owned(),
        is_replaced: controller(pod).is_some(),
        has_claims: volumes().any(is_claim),
    })
}

/// Closes a node to new pods. Returns whether this was necessary. Errors: a request fails.
pub(crate) fn cordon(client: &Client, node: &Value) -> Result<bool, Error> {
    if node["spec"]["unschedulable"] == true {
        return Ok(false);
    }
    let patch = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    client.patch_blindly(&NODE, &Key::cluster(text(&node["metadata"]["name"])), &patch)?;
    Ok(true)
}

/// The pods of a node that have to leave. Errors: a request fails, or a pod cannot be read.
pub(crate) fn pods(client: &Client, node: &str) -> Result<Vec<LeavingPod>, Error> {
    let params = ListParams { field_selector: format!("spec.nodeName={node}"), ..ListParams::default() };
    client.list_kept(&POD, ALL_NAMESPACES, &params, usize::MAX, &mut |pod: Value| leaving(&pod))
}

/// What became of an eviction.
#[derive(Clone, PartialEq, Eq, Debug)]
enum EvictionAnswer {
    Begun,
    /// The pod is gone, or another one has its name.
    Gone,
    /// Not now, with the reason.
    Refused(String),
}

/// Reads an answer. Errors: it will be the same next time, or there is none.
fn eviction_answer(answer: Result<Value, Error>) -> Result<EvictionAnswer, Error> {
    let error = match answer {
        Ok(_) => return Ok(EvictionAnswer::Begun),
        Err(error) => error,
    };
    let Some(failure) = error.failure() else { return Err(error) };
    let causes = failure.details.causes.iter();
    let budgets: Vec<&str> =
        causes.clone().filter(|cause| cause.reason == BUDGET).map(|cause| cause.message.as_str()).collect();
    let is_of_namespace = causes.clone().any(|cause| cause.reason == ENDING_NAMESPACE);
    match failure.code {
        404 | 409 => Ok(EvictionAnswer::Gone),
        429 if !budgets.is_empty() => Ok(EvictionAnswer::Refused(head(&budgets.join("; ")))),
        401 => Err(error),
        403 if is_of_namespace => Ok(EvictionAnswer::Refused("its namespace is being deleted".to_owned())),
        // A pod with two budgets has 500. A webhook of the owner may refuse a single pod; the others leave.
        _ => Ok(EvictionAnswer::Refused(head(&failure.message))),
    }
}

/// What an API server says about a pod, cut: its owner may have written it.
fn head(text: &str) -> String {
    cut::one_line(cut::head(text, limits::SHOOT_NODE_BYTES_MAX))
}

fn evict(client: &Client, pod: &LeavingPod) -> Result<EvictionAnswer, Error> {
    let Key { namespace, name } = &pod.key;
    // Another pod of this name, such as that of a StatefulSet, may be on another node already.
    let options = json!({"preconditions": {"uid": pod.uid}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace}, "deleteOptions": options});
    eviction_answer(client.create_sub(&POD, &pod.key, "eviction", &eviction))
}

/// Asks each pod to leave, unless it is leaving. `evicting` gets each pod before it is asked. Returns the pods that are still there.
/// Errors: a request fails, and not only because of a budget.
pub(crate) fn turn(
    client: &Client,
    node: &str,
    evicting: &mut dyn FnMut(&LeavingPod),
) -> Result<Vec<RemainingPod>, Error> {
    let mut remaining = Vec::new();
    for pod in pods(client, node)? {
        let why = if pod.ends.is_empty() {
            evicting(&pod);
            match evict(client, &pod)? {
                EvictionAnswer::Gone => continue,
                EvictionAnswer::Begun => "it ends".to_owned(),
                EvictionAnswer::Refused(why) => why,
            }
        } else {
            format!("it ends, and its kubelet has time until {}", pod.ends)
        };
        remaining.push(RemainingPod { key: pod.key, why });
    }
    Ok(remaining)
}

/// Deletes the pods of a node that have to leave, without asking their budgets. They have their time to end. Returns those that are still
/// there. Errors: a request fails.
pub(crate) fn end(client: &Client, node: &str) -> Result<Vec<RemainingPod>, Error> {
    let mut remaining = Vec::new();
    for pod in pods(client, node)? {
        let params = DeleteParams { uid: Some(pod.uid.clone()), ..DeleteParams::default() };
        let why = match pod.ends.as_str() {
            "" => unless_other(client.delete(&POD, &pod.key, &params)).map(drop),
            _ => Ok(()),
        };
        let why = match why {
            Ok(()) => "it ends".to_owned(),
            Err(error) => match error.failure() {
                Some(failure) => head(&failure.message),
                None => return Err(error),
            },
        };
        remaining.push(RemainingPod { key: pod.key, why });
    }
    Ok(remaining)
}

/// Deletes a pod whose kubelet will never say that it has ended, as the garbage collector of Kubernetes does: its phase becomes `Failed` first, so
/// that its Job or its StatefulSet counts it. A pod that is gone is no error.
pub(crate) fn delete_by_force(client: &Client, pod: &LeavingPod) -> Result<(), Error> {
    let failed = Patch::Merge(json!({"metadata": {"uid": pod.uid}, "status": {"phase": "Failed"}}));
    let is_there = unless_other(client.patch_status_blindly(&POD, &pod.key, &failed))?;
    if !is_there {
        return Ok(());
    }
    let params =
        DeleteParams { uid: Some(pod.uid.clone()), grace_period_seconds: Some(0), ..DeleteParams::default() };
    unless_other(client.delete(&POD, &pod.key, &params)).map(drop)
}

/// Whether the pod was still there.
fn unless_other(done: Result<(), Error>) -> Result<bool, Error> {
    match unless_absent(done) {
        Err(error) if error.is_conflict() => Ok(false),
        other => other.map(|done| done.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::chain;
    use crate::kube::StatusFailure;

    fn pod(owner: &str, phase: &str) -> Value {
        let owners =
            json!([{"kind": "Other", "name": "x"}, {"kind": owner, "name": "o", "controller": true}]);
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "ownerReferences": owners},
            "spec": {"nodeName": "h"}, "status": {"phase": phase}})
    }

    #[test]
    fn which_pods_have_to_leave() {
        let mut mirror = pod("Node", "Running");
        mirror["metadata"]["annotations"] = json!({MIRROR: "hash"});
        let mut bare = pod("", "Running");
        bare["metadata"]["ownerReferences"] = Value::Null;
        let mut referenced = pod("ReplicaSet", "Running");
        referenced["metadata"]["ownerReferences"] =
            json!([{"kind": "DaemonSet", "name": "not-its-controller"}]);
        let table = [
            (pod("ReplicaSet", "Running"), true),
            (pod("StatefulSet", "Pending"), true),
            (pod("Job", "Unknown"), true),
            (bare, true),
            (referenced, true),
            (pod("DaemonSet", "Running"), false),
            (pod("Job", "Succeeded"), false),
            (pod("ReplicaSet", "Failed"), false),
            (mirror, false),
        ];
        for (pod, expected) in table {
            assert_eq!(leaving(&pod).is_some(), expected, "{pod}");
        }
    }

    #[test]
    fn what_is_known_of_a_pod_that_leaves() {
        let mut found = pod("StatefulSet", "Running");
        let expected = LeavingPod {
            key: Key::new("n", "p"),
            uid: "u".to_owned(),
            ends: String::new(),
            is_replaced: true,
            has_claims: false,
        };
        assert_eq!(leaving(&found), Some(expected.clone()));
        found["metadata"]["ownerReferences"] = json!([{"kind": "StatefulSet", "name": "o"}]);
        found["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
        found["spec"]["volumes"] = json!([{"emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "c"}}]);
        let ends = "2026-01-01T00:00:30Z".to_owned();
        assert_eq!(
            leaving(&found),
            Some(LeavingPod { ends, is_replaced: false, has_claims: true, ..expected.clone() })
        );
        found["spec"]["volumes"] = json!([{"emptyDir": {}}, {"secret": {"secretName": "s"}}]);
        assert!(!leaving(&found).unwrap().has_claims);
        found["spec"]["volumes"] = json!([{"ephemeral": {"volumeClaimTemplate": {}}}]);
        assert!(leaving(&found).unwrap().has_claims);
    }

    fn failure(code: u16, details: &Value) -> Error {
        let details = crate::format::view::read(details.clone()).unwrap();
        Error::Api(Box::new(StatusFailure {
            code,
            message: "told".to_owned(),
            details,
            ..StatusFailure::default()
        }))
    }

    #[test]
    fn answers_to_evictions() {
        let refused = |why: &str| Ok(EvictionAnswer::Refused(why.to_owned()));
        let cause = |reason: &str, message: &str| json!({"causes": [{"reason": reason, "message": message}]});
        let needs = "The disruption budget web needs 1 healthy pods and has 1 currently";
        let table = [
            (Ok(json!({"kind": "Status", "status": "Success", "code": 201})), Ok(EvictionAnswer::Begun)),
            (Err(failure(404, &json!({}))), Ok(EvictionAnswer::Gone)),
            (Err(failure(409, &json!({}))), Ok(EvictionAnswer::Gone)),
            (Err(failure(429, &cause(BUDGET, needs))), refused(needs)),
            (Err(failure(429, &json!({}))), refused("told")),
            (Err(failure(500, &json!({}))), refused("told")),
            (Err(failure(403, &cause(ENDING_NAMESPACE, "x"))), refused("its namespace is being deleted")),
            (Err(failure(403, &json!({}))), refused("told")),
            (Err(failure(422, &json!({}))), refused("told")),
            (Err(failure(401, &json!({}))), Err("401: told".to_owned())),
            (Err(Error::Stopped), Err("stopped".to_owned())),
        ];
        for (answer, expected) in table {
            let shown = format!("{answer:?}");
            assert_eq!(eviction_answer(answer).map_err(|error| chain(&error)), expected, "{shown}");
        }
    }
}
