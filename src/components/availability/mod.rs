//! What webhooks of gardener-resource-manager set on the workloads of a control plane: how long their pods stay on a
//! lost node, how they spread over nodes and zones, and the seccomp profile. With the embedded applier, the agent sets
//! the same fields itself.

use serde_json::Value;

use crate::base::json::json;
use crate::config::settings::NodeToleration;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Availability<'a> {
    /// `nodeToleration`.
    pub(crate) toleration: NodeToleration,
    /// Feature gate `DefaultSeccompProfile`.
    pub(crate) has_seccomp_profile: bool,
    /// The failure that the control plane must survive: `node`, `zone`, or none.
    pub(crate) tolerance: &'a str,
    /// How many zones it may use.
    pub(crate) zones: usize,
    /// Whether the seed has more than one node.
    pub(crate) has_several_nodes: bool,
}

/// The minimum number of replicas of an active workload.
pub(crate) fn replicas(tolerance: &str) -> i64 {
    if tolerance.is_empty() { 1 } else { 2 }
}

impl Availability<'_> {
    /// Sets the fields on a Deployment or a StatefulSet. Fields that its manifest already sets stay.
    pub(crate) fn set(&self, workload: &mut Value) {
        let spread = self.spread(workload);
        let pod = &mut workload["spec"]["template"]["spec"];
        if self.has_seccomp_profile && pod["securityContext"]["seccompProfile"].is_null() {
            pod["securityContext"]["seccompProfile"] = json!({"type": "RuntimeDefault"});
        }
        let NodeToleration { not_ready, unreachable } = self.toleration;
        for (key, seconds) in [("not-ready", not_ready), ("unreachable", unreachable)] {
            tolerate(pod, &format!("node.kubernetes.io/{key}"), seconds);
        }
        if !spread.is_empty() {
            pod["topologySpreadConstraints"] = json!(spread);
        }
    }

    /// A single pod needs no spreading.
    fn spread(&self, workload: &Value) -> Vec<Value> {
        let spec = &workload["spec"];
        let replicas = spec["replicas"].as_u64().unwrap_or(1);
        if replicas <= 1 {
            return Vec::new();
        }
        let is_deployment = workload["kind"] == "Deployment";
        // The labels of a Deployment's template change between revisions. In a StatefulSet, pods that are not replaced
        // yet must still count.
        let selector = if is_deployment {
            json!({"matchLabels": spec["template"]["metadata"]["labels"]})
        } else {
            spec["selector"].clone()
        };
        let over = |key: &str, must: bool, domains: u64| {
            let mut constraint = json!({"topologyKey": key, "maxSkew": 1, "labelSelector": selector,
                "whenUnsatisfiable": if must { "DoNotSchedule" } else { "ScheduleAnyway" }});
            if must {
                constraint["minDomains"] = json!(domains.min(replicas));
            }
            if is_deployment {
                constraint["matchLabelKeys"] = json!(["pod-template-hash"]);
            }
            constraint
        };
        let must = !self.tolerance.is_empty() && self.has_several_nodes;
        let mut all = vec![over("kubernetes.io/hostname", must, 3)];
        if self.tolerance == "zone" && self.zones > 1 {
            all.push(over("topology.kubernetes.io/zone", true, self.zones as u64));
        }
        all
    }
}

fn tolerate(pod: &mut Value, key: &str, seconds: Option<i64>) {
    let Some(seconds) = seconds else { return };
    let mut all = pod["tolerations"].as_array().cloned().unwrap_or_default();
    let is_same = |found: &Value| {
        (found["key"] == key || found["key"].is_null())
            && (found["effect"] == "NoExecute" || found["effect"].is_null())
    };
    if !all.iter().any(is_same) {
        all.push(
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}),
        );
        pod["tolerations"] = json!(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(replicas: i64) -> Value {
        json!({"kind": "Deployment", "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b", "c": "d"}}, "spec": {"securityContext": {"runAsUser": 1}}}}})
    }

    #[test]
    fn one_pod_without_settings_is_left_as_it_is() {
        let mut workload = deployment(1);
        Availability::default().set(&mut workload);
        assert_eq!(workload, deployment(1));
    }

    #[test]
    fn pods_leave_a_lost_node_after_the_configured_time() {
        let toleration = NodeToleration { not_ready: Some(30), unreachable: Some(0) };
        let wanted = Availability { toleration, has_seccomp_profile: true, ..Availability::default() };
        let mut workload = deployment(1);
        wanted.set(&mut workload);
        let pod = &workload["spec"]["template"]["spec"];
        let expected = json!([
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
        ]);
        assert_eq!(pod["tolerations"], expected);
        assert_eq!(
            pod["securityContext"],
            json!({"runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}})
        );
        let before = workload.clone();
        wanted.set(&mut workload);
        assert_eq!(workload, before, "a second time");
        // A toleration of everything includes this one.
        let mut workload = deployment(1);
        workload["spec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        wanted.set(&mut workload);
        assert_eq!(workload["spec"]["template"]["spec"]["tolerations"], json!([{"operator": "Exists"}]));
    }

    #[test]
    fn replicas_spread_as_the_failure_tolerance_requires() {
        let any = |key: &str| json!([key, "ScheduleAnyway", null]);
        let must = |key: &str, domains: u64| json!([key, "DoNotSchedule", domains]);
        let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
        let table = [
            (1, "", 3, true, vec![]),
            (2, "", 3, true, vec![any(host)]),
            (2, "node", 3, false, vec![any(host)]),
            (2, "node", 3, true, vec![must(host, 2)]),
            (4, "node", 3, true, vec![must(host, 3)]),
            (4, "zone", 3, true, vec![must(host, 3), must(zone, 3)]),
            (2, "zone", 3, true, vec![must(host, 2), must(zone, 2)]),
            (2, "zone", 1, true, vec![must(host, 2)]),
        ];
        for (replicas, tolerance, zones, has_several_nodes, expected) in table {
            let wanted = Availability { tolerance, zones, has_several_nodes, ..Availability::default() };
            let mut workload = deployment(replicas);
            wanted.set(&mut workload);
            let found = workload["spec"]["template"]["spec"]["topologySpreadConstraints"].clone();
            let found: Vec<Value> = found.as_array().into_iter().flatten().cloned().collect();
            let told: Vec<Value> = found
                .iter()
                .map(|c| json!([c["topologyKey"], c["whenUnsatisfiable"], c["minDomains"]]))
                .collect();
            assert_eq!(told, expected, "{replicas} {tolerance} {zones} {has_several_nodes}");
            assert!(found.iter().all(|c| c["matchLabelKeys"] == json!(["pod-template-hash"])
                && c["labelSelector"]["matchLabels"] == json!({"a": "b", "c": "d"})));
        }
        let mut set = deployment(2);
        set["kind"] = json!("StatefulSet");
        Availability::default().set(&mut set);
        let constraint = &set["spec"]["template"]["spec"]["topologySpreadConstraints"][0];
        assert_eq!(constraint["labelSelector"]["matchLabels"], json!({"a": "b"}));
        assert_eq!(constraint["matchLabelKeys"], Value::Null);
        assert_eq!(["", "node", "zone"].map(replicas), [1, 2, 2]);
    }
}
