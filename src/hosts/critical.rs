//! The taint of a new node: ordinary pods come once what each of them needs runs there.
//!
//! Source: `pkg/resourcemanager/controller/node/criticalcomponents` of Gardener.

use serde_json::Value;

use crate::api::core::{DAEMON_SET, NODE, POD};
use crate::api::meta::{Key, Resource, text};
use crate::base::json::json;
use crate::components::rollout::has_condition_ready;
use crate::kube::{Client, Error, ListParams, Patch};
use crate::osc::NOT_READY;

const NAMESPACE: &str = "kube-system";
/// The label of what each pod of a node needs.
const CRITICAL: &str = "node.gardener.cloud/critical-component";
/// The start of the annotations of pods that wait for a driver of volumes; the value is its name.
const WAITS_FOR_DRIVER: &str = "node.gardener.cloud/wait-for-csi-node-";
const CSI_NODE: Resource = Resource::new("storage.k8s.io", "v1", "CSINode", "csinodes", false);

/// Whether ordinary pods must not come to the node yet.
pub(crate) fn is_closed(node: &Value) -> bool {
    taints(node).any(|taint| taint["key"] == NOT_READY)
}

fn taints(node: &Value) -> impl Iterator<Item = &Value> {
    node["spec"]["taints"].as_array().into_iter().flatten()
}

/// What a node with the taint has.
struct Inside<'a> {
    node: &'a Value,
    /// The DaemonSets with the label.
    daemons: &'a [Value],
    /// The pods with the label on the node.
    pods: &'a [Value],
    /// Its object about drivers of volumes; null if there is none.
    drivers: &'a Value,
}

/// What the node lacks.
fn lack(inside: &Inside<'_>) -> Option<String> {
    let Inside { node, daemons, pods, drivers } = inside;
    let is_labelled = |object: &Value| object["metadata"]["labels"][CRITICAL] == "true";
    let wanted = daemons.iter().filter(|daemons| {
        is_labelled(daemons) && is_labelled(&daemons["spec"]["template"]) && is_meant_for(daemons, node)
    });
    let owns = |daemons: &Value, pod: &Value| {
        let owners = pod["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| owner["uid"] == daemons["metadata"]["uid"])
    };
    for daemons in wanted {
        if !pods.iter().any(|pod| owns(daemons, pod)) {
            return Some(format!("no pod of DaemonSet {} yet", text(&daemons["metadata"]["name"])));
        }
    }
    for pod in *pods {
        let name = text(&pod["metadata"]["name"]);
        if !has_condition_ready(pod) {
            return Some(format!("pod {name} is not ready"));
        }
        for driver in needed_drivers(pod) {
            let known = drivers["spec"]["drivers"].as_array();
            if !known.into_iter().flatten().any(|known| known["name"] == *driver) {
                return Some(format!("driver {} of pod {name} is not registered", text(driver)));
            }
        }
    }
    None
}

/// The drivers of volumes for which a pod waits.
fn needed_drivers(pod: &Value) -> impl Iterator<Item = &Value> {
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    annotations.filter(|(name, _)| name.starts_with(WAITS_FOR_DRIVER)).map(|(_, driver)| driver)
}

/// Whether a DaemonSet selects the node by its labels.
fn is_meant_for(daemons: &Value, node: &Value) -> bool {
    let selector = daemons["spec"]["template"]["spec"]["nodeSelector"].as_object();
    selector.into_iter().flatten().all(|(label, value)| node["metadata"]["labels"][label] == *value)
}

/// What a node with the taint waits for; none if the taint may go. Errors: a request fails.
pub(crate) fn missing(client: &Client, node: &Value) -> Result<Option<String>, Error> {
    let name = text(&node["metadata"]["name"]);
    let labelled = |field_selector: String| ListParams {
        label_selector: format!("{CRITICAL}=true"),
        field_selector,
        ..ListParams::default()
    };
    let daemons = client.list::<Value>(&DAEMON_SET, NAMESPACE, &labelled(String::new()))?.items;
    let pods = client.list::<Value>(&POD, NAMESPACE, &labelled(format!("spec.nodeName={name}")))?.items;
    let drivers = if pods.iter().any(|pod| needed_drivers(pod).next().is_some()) {
        client.find::<Value>(&CSI_NODE, &Key::cluster(name))?.unwrap_or_default()
    } else {
        Value::Null
    };
    Ok(lack(&Inside { node, daemons: &daemons, pods: &pods, drivers: &drivers }))
}

/// Removes the taint of a node that has it, once nothing is missing. Errors: a request fails.
pub(crate) fn open(client: &Client, node: &Value) -> Result<(), Error> {
    let name = text(&node["metadata"]["name"]);
    if let Some(lack) = missing(client, node)? {
        log::debug!(node = name, lack = lack.as_str(); "The node is not open to all pods yet");
        return Ok(());
    }
    let left: Vec<&Value> = taints(node).filter(|taint| taint["key"] != NOT_READY).collect();
    let patch = json!({"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": left}});
    client.patch::<Value>(&NODE, &Key::cluster(name), &Patch::Merge(patch))?;
    log::info!(node = name; "The node is open to all pods");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemons(name: &str, selector: &Value) -> Value {
        let labels = json!({CRITICAL: "true"});
        json!({"metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"template": {"metadata": {"labels": labels}, "spec": {"nodeSelector": selector}}}})
    }

    fn pod(owner: &str, ready: &str) -> Value {
        json!({"metadata": {"name": format!("{owner}-1"), "ownerReferences": [{"uid": owner}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn a_node_opens_once_what_each_pod_needs_is_ready() {
        let node = json!({"metadata": {"name": "n", "labels": {"pool": "a"}}});
        let (here, elsewhere) = (daemons("p", &json!({"pool": "a"})), daemons("q", &json!({"pool": "b"})));
        let mut unlabelled = daemons("r", &json!({}));
        unlabelled["spec"]["template"]["metadata"] = json!({});
        let mut waits = pod("p", "True");
        waits["metadata"]["annotations"][format!("{WAITS_FOR_DRIVER}x")] = json!("driver");
        let all = [here, elsewhere, unlabelled];
        let none = Value::Null;
        let known = json!({"spec": {"drivers": [{"name": "driver"}]}});
        let table = [
            (vec![], &none, "no pod of DaemonSet p yet"),
            (vec![pod("other", "True")], &none, "no pod of DaemonSet p yet"),
            (vec![pod("p", "False")], &none, "pod p-1 is not ready"),
            (vec![pod("p", "True"), pod("other", "False")], &none, "pod other-1 is not ready"),
            (vec![pod("p", "True")], &none, ""),
            (vec![waits.clone()], &none, "driver driver of pod p-1 is not registered"),
            (vec![waits], &known, ""),
        ];
        for (pods, drivers, expected) in table {
            let found = lack(&Inside { node: &node, daemons: &all, pods: &pods, drivers });
            assert_eq!(found.unwrap_or_default(), expected, "{pods:?}");
        }
        assert_eq!(lack(&Inside { node: &node, daemons: &[], pods: &[], drivers: &none }), None);
    }

    #[test]
    fn a_closed_node_has_the_taint() {
        assert!(is_closed(&json!({"spec": {"taints": [{"key": "a"}, {"key": NOT_READY}]}})));
        assert!(!is_closed(&json!({"spec": {"taints": [{"key": "a"}]}})));
        assert!(!is_closed(&json!({"spec": {}})));
    }
}
