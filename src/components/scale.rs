//! Scales workloads of a control plane down and up: sets the number of replicas, and waits until their pods are gone.
//!
//! A missing workload has nothing to scale. Others may write the same number: a repeated step writes nothing if it is
//! already right.

use std::time::Duration;

use serde_json::Value;

use super::rollout;
use crate::api::meta::{Key, Resource, text};
use crate::flow::{Failed, TaskStep};
use crate::format::human;
use crate::kube::{Error, Patch, Seed, unless_absent};

/// How often terminating pods are checked.
const AGAIN: Duration = Duration::from_secs(1);

/// The desired number of replicas; `None` if there is no such workload.
pub(crate) fn replicas(seed: &Seed, resource: &Resource, key: &Key) -> Result<Option<i64>, Error> {
    let found = seed.find::<Value>(resource, key)?;
    Ok(found.as_ref().map(wanted))
}

/// Scales a Deployment or a StatefulSet. Writes nothing if it is missing or already has that number.
pub(crate) fn to(seed: &Seed, resource: &Resource, key: &Key, replicas: i64) -> Result<(), Error> {
    let live = seed.find::<Value>(resource, key)?;
    if live.is_none_or(|live| wanted(&live) == replicas) {
        return Ok(());
    }
    let patch = Patch::replicas(replicas);
    unless_absent(seed.patch::<Value>(resource, key, &patch)).map(drop)
}

/// Checks once whether the pods of a Deployment or a StatefulSet without replicas are gone. Ended pods do not count,
/// because nothing would delete them.
pub(crate) fn wait_down(seed: &Seed, resource: &Resource, key: &Key) -> Result<TaskStep, Failed> {
    let Some(mut live) = seed.find::<Value>(resource, key)? else {
        return Ok(TaskStep::Done);
    };
    live["kind"] = Value::from(&*resource.kind);
    Ok(remains(&live, &rollout::pods(seed, key, &live)?)
        .map_or(TaskStep::Done, |why| TaskStep::again(AGAIN, why)))
}

/// What is left of a workload that must have no pods.
fn remains(workload: &Value, pods: &[Value]) -> Option<String> {
    let (metadata, status) = (&workload["metadata"], &workload["status"]);
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let title =
        format!("{} {}/{}", text(&workload["kind"]), text(&metadata["namespace"]), text(&metadata["name"]));
    if wanted(workload) != 0 {
        let replicas = human::counted(usize::try_from(wanted(workload)).unwrap_or_default(), "replica");
        return Some(format!("{title} is to have {replicas}: it was scaled up"));
    }
    if let Some(pod) = pods.first() {
        let (pod, node) = (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]));
        let advice = if node.is_empty() {
            String::new()
        } else {
            format!(": if node {node} is gone for good, delete its Node object in the seed")
        };
        return Some(format!("pod {pod} of {title} has not ended yet{advice}"));
    }
    // Its controller may create a pod until it has seen the new number.
    let is_seen = number(&status["observedGeneration"]) >= number(&metadata["generation"]);
    (!is_seen || number(&status["replicas"]) > 0)
        .then(|| format!("the controller of {title} has not scaled it down yet"))
}

fn wanted(workload: &Value) -> i64 {
    workload["spec"]["replicas"].as_i64().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_of_a_workload() {
        let workload = |replicas: Value, status: Value| {
            json!({"kind": "Deployment", "metadata": {"namespace": "n", "name": "a", "generation": 3},
                "spec": {"replicas": replicas}, "status": status})
        };
        let seen = json!({"observedGeneration": 3});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "node-1"}});
        let unbound = json!({"metadata": {"name": "p"}});
        let table: [(Value, &[Value], Option<&str>); 7] = [
            (workload(json!(0), seen.clone()), &[], None),
            (workload(json!(1), seen.clone()), &[], Some("it was scaled up")),
            // An absent field means 1 replica.
            (workload(Value::Null, seen.clone()), &[], Some("is to have 1 replica: it")),
            (
                workload(json!(0), seen.clone()),
                std::slice::from_ref(&pod),
                Some("pod p of Deployment n/a has not ended yet: if node node-1 is gone for good"),
            ),
            (workload(json!(0), seen), std::slice::from_ref(&unbound), Some("has not ended yet")),
            (workload(json!(0), json!({"observedGeneration": 2})), &[], Some("has not scaled it down yet")),
            (
                workload(json!(0), json!({"observedGeneration": 3, "replicas": 1})),
                &[],
                Some("has not scaled it down"),
            ),
        ];
        for (workload, pods, words) in table {
            let left = remains(&workload, pods);
            match (&left, words) {
                (None, None) => {}
                (Some(left), Some(words)) => assert!(left.contains(words), "{left}"),
                _ => panic!("{workload}: {left:?}"),
            }
        }
    }
}
