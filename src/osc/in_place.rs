//! What a node cannot change while pods run on it.
//!
//! Source: `CalculateWorkerPoolHashForInPlaceUpdate`, without what a rotation of credentials changes.

use serde_json::Value;

use crate::api::meta::text;
use crate::format::semver::Version;

use super::pool::{NodePool, evicted, reserved};

/// The fields of a pool that have changed, each with what changes. `before` is the pool in the Worker object, as its nodes were told.
pub(crate) fn drained_changes(before: &Value, pool: NodePool<'_>) -> Vec<String> {
    let (old, new) = (minor(text(&before["kubernetesVersion"])), minor(pool.version()));
    let mut all = Vec::new();
    if let (Some(old), Some(new)) = (&old, &new)
        && old != new
    {
        all.push(format!("kubernetes.version from {old} to {new}"));
    }
    let (old, new) = (&before["kubeletConfig"], pool.kubelet());
    for (field, is_changed) in [
        ("kubeReserved", reserved(&old["kubeReserved"]) != reserved(&new["kubeReserved"])),
        ("evictionHard", evicted(&old["evictionHard"]) != evicted(&new["evictionHard"])),
        ("cpuManagerPolicy", old["cpuManagerPolicy"] != new["cpuManagerPolicy"]),
    ] {
        if is_changed {
            all.push(format!("kubernetes.kubelet.{field}"));
        }
    }
    all
}

fn minor(version: &str) -> Option<String> {
    let version = Version::parse(version).ok()?;
    Some(format!("{}.{}", version.major, version.minor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn nodes_are_drained_for_a_minor_version_and_for_settings_of_their_kubelet() {
        let kubelet =
            json!({"kubeReserved": {"memory": "1024Mi"}, "evictionHard": {"memoryAvailable": "100Mi"}});
        let before = json!({"name": "a", "kubernetesVersion": "1.34.3", "kubeletConfig": kubelet});
        let shoot = json!({"spec": {"kubernetes": {"version": "1.35.4", "kubelet": {"maxPods": 50}}}});
        let of = |own: Value| {
            let worker = json!({"name": "a", "kubernetes": own});
            drained_changes(&before, NodePool { shoot: &shoot, worker: &worker, has_hosts: true })
        };
        let kubelet = |changes: Value| {
            let mut own =
                json!({"kubeReserved": {"memory": "1Gi"}, "evictionHard": {"memoryAvailable": "100Mi"}});
            own.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            json!({"version": "1.34.9", "kubelet": own})
        };
        let none: [&str; 0] = [];
        assert_eq!(of(kubelet(json!({}))), none, "the same quantity, and a patch version");
        assert_eq!(of(kubelet(json!({"maxPods": 20}))), none);
        assert_eq!(of(kubelet(json!({"kubeReserved": null}))), ["kubernetes.kubelet.kubeReserved"]);
        assert_eq!(
            of(kubelet(json!({"cpuManagerPolicy": "static"}))),
            ["kubernetes.kubelet.cpuManagerPolicy"]
        );
        let shoots = [
            "kubernetes.version from 1.34 to 1.35",
            "kubernetes.kubelet.kubeReserved",
            "kubernetes.kubelet.evictionHard",
        ];
        assert_eq!(of(Value::Null), shoots, "what counts for the Shoot");
    }
}
