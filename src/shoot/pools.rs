//! The pools of workers of a Shoot.

use std::time::Duration;

use serde_json::Value;

use crate::api::meta::{annotation, text};

/// The label of a node with the name of its pool.
pub(crate) const POOL: &str = "worker.gardener.cloud/pool";
/// The label of a node with the version of its kubelet.
pub(crate) const KUBERNETES_VERSION: &str = "worker.gardener.cloud/kubernetes-version";
/// The label of nodes that system components may run on.
pub(crate) const SYSTEM_COMPONENTS: &str = "worker.gardener.cloud/system-components";

/// An entry of `spec.provider.workers`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pool {
    pub(crate) name: String,
    /// The version of its kubelets: its own, or that of the control plane.
    pub(crate) kubernetes_version: String,
    pub(crate) zones: Vec<String>,
    /// How many nodes it must have.
    pub(crate) minimum: i64,
    /// How many nodes it may have.
    pub(crate) maximum: i64,
    /// System components may run on its nodes.
    pub(crate) allows_system_components: bool,
    /// The taints of its nodes.
    pub(crate) taints: Vec<Value>,
}

/// The longest time by which the agent of a node delays a change: five minutes, unless an annotation of the Shoot says less than half an hour.
pub(crate) fn delay_max(shoot: &Value) -> Duration {
    let seconds = annotation(shoot, "shoot.gardener.cloud/cloud-config-execution-max-delay-seconds");
    let seconds = seconds.parse().ok().filter(|seconds| *seconds <= 1_800);
    Duration::from_secs(seconds.unwrap_or(300))
}

/// The pools of a Shoot. Missing fields have the garden's defaults.
pub(crate) fn read(shoot: &Value) -> Vec<Pool> {
    let spec = &shoot["spec"];
    let workers = spec["provider"]["workers"].as_array();
    let pool = |worker: &Value| Pool {
        name: text(&worker["name"]).to_owned(),
        kubernetes_version: [&worker["kubernetes"]["version"], &spec["kubernetes"]["version"]]
            .into_iter()
            .find_map(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        zones: worker["zones"].as_array().into_iter().flatten().map(|zone| text(zone).to_owned()).collect(),
        minimum: worker["minimum"].as_i64().unwrap_or_default(),
        maximum: worker["maximum"].as_i64().unwrap_or_default(),
        allows_system_components: worker["systemComponents"]["allow"] != false,
        taints: worker["taints"].as_array().cloned().unwrap_or_default(),
    };
    workers.into_iter().flatten().map(pool).collect()
}

/// The pools that can have nodes for system components.
pub(crate) fn of_system_components(pools: &[Pool]) -> impl Iterator<Item = &Pool> {
    pools.iter().filter(|pool| pool.allows_system_components && pool.maximum > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn pools_have_the_version_of_the_control_plane_or_their_own() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        let shoot = json!({"spec": {"kubernetes": {"version": "1.34.3"}, "provider": {"workers": [
            {"name": "a", "maximum": 2, "zones": ["z"]},
            {"name": "b", "maximum": 1, "kubernetes": {"version": "1.33.5"}, "systemComponents": {"allow": false}},
            {"name": "c", "maximum": 0, "taints": [taint]},
        ]}}});
        let pools = read(&shoot);
        let versions: Vec<&str> = pools.iter().map(|pool| pool.kubernetes_version.as_str()).collect();
        assert_eq!(versions, ["1.34.3", "1.33.5", "1.34.3"]);
        assert_eq!(
            (pools[0].zones.as_slice(), pools[2].taints.as_slice()),
            (&["z".to_owned()][..], &[taint][..])
        );
        let names: Vec<&str> = of_system_components(&pools).map(|pool| pool.name.as_str()).collect();
        assert_eq!(names, ["a"]);
        assert_eq!(read(&json!({"spec": {"provider": {"type": "x"}}})), []);
    }
}
