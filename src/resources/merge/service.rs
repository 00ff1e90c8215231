//! Services: addresses and ports that the cluster has assigned stay.

use serde_json::Value;

use super::super::object::{find_map, is_empty, map_at, set, text};

const OPENSTACK_PREFIX: &str = "loadbalancer.openstack.org";

/// Keeps the cluster's choices, as far as the type of the Service allows.
pub(super) fn merge(live: Option<&Value>, new: &mut Value) {
    if is_empty(&new["spec"]["type"]) {
        map_at(new, &["spec"]).insert("type".to_owned(), Value::String("ClusterIP".to_owned()));
    }
    let Some(live) = live else { return };
    keep_annotations(live, new);
    let kind = text(&new["spec"]["type"]).to_owned();
    match kind.as_str() {
        "ExternalName" => return,
        "LoadBalancer" | "NodePort" => {
            keep_node_ports(live, new);
            if is_empty(&new["spec"]["loadBalancerIP"]) {
                set(new, &["spec"], "loadBalancerIP", live["spec"]["loadBalancerIP"].clone());
            }
        }
        _ => {}
    }
    if new["spec"]["clusterIP"] != "None" && live["spec"]["type"] != "ExternalName" {
        set(new, &["spec"], "clusterIP", live["spec"]["clusterIP"].clone());
    }
    let is_local =
        |s: &Value| s["spec"]["type"] == "LoadBalancer" && s["spec"]["externalTrafficPolicy"] == "Local";
    let is_unset = new["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0) == 0;
    if is_local(live) && is_local(new) && is_unset {
        set(new, &["spec"], "healthCheckNodePort", live["spec"]["healthCheckNodePort"].clone());
    }
}

/// The cloud provider stores facts about its load balancer there.
fn keep_annotations(live: &Value, new: &mut Value) {
    for (key, value) in live["metadata"]["annotations"].as_object().into_iter().flatten() {
        if key.starts_with(OPENSTACK_PREFIX) {
            map_at(new, &["metadata", "annotations"]).entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// A port keeps its node port if its number or its name matches. Of several matches, the one with both
/// wins, otherwise the last.
fn keep_node_ports(live: &Value, new: &mut Value) {
    let old = live["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let ports = find_map(new, &["spec"]).and_then(|s| s.get_mut("ports")).and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if port["nodePort"].as_u64().unwrap_or(0) != 0 {
            continue;
        }
        let number = |o: &Value| o["port"] == port["port"];
        let name = |o: &Value| text(&o["name"]) == text(&port["name"]);
        let both = old.iter().rev().find(|o| number(o) && name(o));
        let either = || old.iter().rev().find(|o| number(o) || name(o));
        let kept = both.or_else(either).map_or(Value::Null, |o| o["nodePort"].clone());
        set(port, &[], "nodePort", kept);
    }
}
