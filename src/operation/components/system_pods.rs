//! What the system components of a Shoot with nodes have in common. Without gardener-resource-manager, no webhook tells their
//! pods on which nodes they may run.

use serde_json::Value;

use crate::base::json::json;
use crate::shoot::pools::{Pool, SYSTEM_COMPONENTS, of_system_components};

/// Lets the pods of a Deployment run on the nodes of the pools for system components only, whose taints they tolerate.
/// Taints that an administrator sets on a node are not tolerated.
///
/// Source: the webhook `system-components-config` of gardener-resource-manager.
pub(super) fn place(deployment: &mut Value, pools: &[Pool]) {
    let spec = &mut deployment["spec"]["template"]["spec"];
    spec["nodeSelector"] = json!({SYSTEM_COMPONENTS: "true"});
    let mut tolerations: Vec<Value> = Vec::new();
    for taint in of_system_components(pools).flat_map(|pool| &pool.taints) {
        let mut toleration = json!({"key": taint["key"], "operator": "Exists", "effect": taint["effect"]});
        if let Some(value) = taint["value"].as_str().filter(|value| !value.is_empty()) {
            toleration["operator"] = json!("Equal");
            toleration["value"] = json!(value);
        }
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    if !tolerations.is_empty() {
        spec["tolerations"] = tolerations.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_of_pools_for_system_components_are_tolerated() {
        let pool = |allows_system_components, taints: &[Value]| Pool {
            maximum: 1,
            allows_system_components,
            taints: taints.to_vec(),
            ..Pool::default()
        };
        let taint = |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
        let placed = |pools: &[Pool]| {
            let mut deployment = json!({"spec": {"template": {"spec": {}}}});
            place(&mut deployment, pools);
            deployment["spec"]["template"]["spec"].take()
        };
        let selector = json!({"worker.gardener.cloud/system-components": "true"});
        assert_eq!(placed(&[pool(true, &[])]), json!({"nodeSelector": selector}));
        let pools = [
            pool(true, &[taint("a", "x"), taint("b", "")]),
            pool(true, &[taint("a", "x")]),
            pool(false, &[taint("c", "")]),
        ];
        let tolerations = json!([
            {"key": "a", "operator": "Equal", "value": "x", "effect": "NoSchedule"},
            {"key": "b", "operator": "Exists", "effect": "NoSchedule"},
        ]);
        assert_eq!(placed(&pools), json!({"nodeSelector": selector, "tolerations": tolerations}));
    }
}
