//! The configuration of a kubelet, its flags and its environment.
//!
//! Source: `pkg/component/extensions/operatingsystemconfig/original/components/kubelet`.

use std::time::Duration;

use serde_json::Value;

use crate::api::meta::text;
use crate::base::json::json;
use crate::components::archive;
use crate::components::content::CIPHER_SUITES;
use crate::format::duration;
use crate::format::quantity::Quantity;
use crate::shoot::pools::KUBERNETES_VERSION;

use super::labels::{is_allowed, labels};
use super::pool::NodePool;

/// The taint of a node until what each of its pods needs runs on it.
pub(crate) const NOT_READY: &str = "node.gardener.cloud/critical-components-not-ready";

/// Fields that a pool sets under the same name.
const SAME: [&str; 21] = [
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "cpuCFSQuota",
    "cpuManagerPolicy",
    "evictionMaxPodGracePeriod",
    "evictionPressureTransitionPeriod",
    "failSwapOn",
    "featureGates",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imagePullCredentialsVerificationPolicy",
    "maxParallelImagePulls",
    "maxPods",
    "podPidsLimit",
    "preloadedImagesVerificationAllowlist",
    "protectKernelDefaults",
    "registryBurst",
    "serializeImagePulls",
    "singleProcessOOMKill",
    "streamingConnectionIdleTimeout",
    "registryPullQPS",
];
/// Maps with one entry for each signal of eviction.
const EVICTION: [&str; 4] =
    ["evictionHard", "evictionMinimumReclaim", "evictionSoft", "evictionSoftGracePeriod"];
/// The field of a pool for a signal, and the name of the signal.
const SIGNALS: [(&str, &str); 5] = [
    ("imageFSAvailable", "imagefs.available"),
    ("imageFSInodesFree", "imagefs.inodesFree"),
    ("memoryAvailable", MEMORY),
    ("nodeFSAvailable", "nodefs.available"),
    ("nodeFSInodesFree", "nodefs.inodesFree"),
];
const MEMORY: &str = "memory.available";
/// What each configuration begins with.
const USUAL: &str = "osc/kubelet.yaml";
/// Machines with more memory keep a fixed amount free.
const LARGE_BYTES: i128 = 8 << 30;

/// What kubelets reserve of the memory, and what they keep free: if their pool says nothing, what their configuration begins with.
pub(crate) fn memory_reserved(own: &Value) -> [Value; 2] {
    let usual = archive::object(USUAL);
    let of = |own: &Value, usual: &Value| if own.is_string() { own.clone() } else { usual.clone() };
    [
        of(&own["kubeReserved"]["memory"], &usual["kubeReserved"]["memory"]),
        of(&own["evictionHard"]["memoryAvailable"], &usual["evictionHard"][MEMORY]),
    ]
}

/// The configuration of the kubelets of a pool. `dns` are the addresses of the DNS servers, `memory` is that of the machine type; none if
/// its CloudProfile does not have the type.
pub(super) fn configuration(pool: NodePool<'_>, dns: &[String], memory: Option<&str>) -> Value {
    let own = pool.kubelet();
    let mut configuration = archive::object(USUAL);
    for field in SAME.iter().filter(|field| !own[**field].is_null()) {
        configuration[*field] = own[*field].clone();
    }
    for field in EVICTION {
        evict(&mut configuration[field], &own[field]);
    }
    for (field, few, many) in [("evictionHard", "5%", "1Gi"), ("evictionSoft", "10%", "1.5Gi")] {
        // As upstream: only if the pool sets the map, and not this entry.
        let is_open = own[field].is_object() && own[field]["memoryAvailable"].is_null();
        if let Some(memory) = memory.filter(|_| is_open) {
            let is_large = Quantity::parse(memory).is_ok_and(|memory| memory.whole() > LARGE_BYTES);
            configuration[field][MEMORY] = json!(if is_large { many } else { few });
        }
    }
    for (field, name) in
        [("cpu", "cpu"), ("memory", "memory"), ("pid", "pid"), ("ephemeralStorage", "ephemeral-storage")]
    {
        if let Some(amount) = own["kubeReserved"][field].as_str() {
            configuration["kubeReserved"][name] = json!(amount);
        }
    }
    if !own["seccompDefault"].is_null() {
        configuration["seccompDefault"] = own["seccompDefault"].clone();
    }
    if own["memorySwap"].is_object() {
        configuration["memorySwap"] = own["memorySwap"].clone();
    }
    configuration["clusterDNS"] = json!(dns);
    let mut taints = pool.worker["taints"].as_array().cloned().unwrap_or_default();
    taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    configuration["registerWithTaints"] = json!(taints);
    let suites = CIPHER_SUITES.split_once('=').map_or("", |(_, suites)| suites);
    configuration["tlsCipherSuites"] = json!(suites.split(',').collect::<Vec<_>>());
    configuration
}

fn evict(signals: &mut Value, own: &Value) {
    for (field, signal) in SIGNALS {
        if !own[field].is_null() {
            signals[signal] = own[field].clone();
        }
    }
}

/// The flags of the kubelets of a pool.
pub(super) fn flags(pool: NodePool<'_>) -> Vec<String> {
    let mut flags = vec![
        "--bootstrap-kubeconfig=/var/lib/kubelet/kubeconfig-bootstrap".to_owned(),
        "--config=/var/lib/kubelet/config/kubelet".to_owned(),
        "--kubeconfig=/var/lib/kubelet/kubeconfig-real".to_owned(),
        format!("--node-labels={KUBERNETES_VERSION}={}", pool.version()),
    ];
    let labels = labels(pool);
    let allowed = labels.iter().filter(|(name, _)| is_allowed(name));
    flags.extend(allowed.map(|(name, value)| format!("--node-labels={name}={value}")));
    if pool.worker["cri"]["name"] == "containerd" {
        flags.push("--container-runtime-endpoint=unix:///run/containerd/containerd.sock".to_owned());
        flags.push("--runtime-cgroups=/system.slice/containerd.service".to_owned());
    }
    flags.push("--v=2".to_owned());
    if pool.shoot["spec"]["networking"]["ipFamilies"][0] == "IPv6" {
        flags.push("--node-ip=\"::\"".to_owned());
    }
    flags
}

/// How soon a kubelet notices that its connection is dead: before its node counts as lost.
pub(super) fn environment(shoot: &Value) -> String {
    let grace = text(&shoot["spec"]["kubernetes"]["kubeControllerManager"]["nodeMonitorGracePeriod"]);
    let (idle, ping) = match duration::parse(grace) {
        Ok(grace) if grace < Duration::from_secs(46) => {
            let rest = grace.as_secs().saturating_sub(2);
            (rest * 2 / 3, rest / 3)
        }
        _ => (30, 15),
    };
    format!("\"HTTP2_READ_IDLE_TIMEOUT_SECONDS={idle}\" \"HTTP2_PING_TIMEOUT_SECONDS={ping}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(worker: &Value, memory: Option<&str>) -> Value {
        let shoot = json!({"spec": {"kubernetes": {"version": "1.34.3"}}});
        let pool = NodePool { shoot: &shoot, worker, has_hosts: false };
        configuration(pool, &["100.64.0.10".to_owned()], memory)
    }

    fn with(kubelet: &Value) -> Value {
        json!({"name": "a", "kubernetes": {"kubelet": kubelet}})
    }

    #[test]
    fn a_pool_sets_fields_of_its_kubelets() {
        let own = json!({"maxPods": 50, "failSwapOn": false, "kubeReserved": {"memory": "128Mi", "ephemeralStorage": "1Gi"},
            "imageMinimumGCAge": "9m0s", "evictionSoftGracePeriod": {"memoryAvailable": "2m0s"}, "featureGates": {"A": true}});
        let configuration = of(&with(&own), None);
        for (pointer, expected) in [
            ("/maxPods", json!(50)),
            ("/failSwapOn", json!(false)),
            ("/kubeReserved", json!({"cpu": "80m", "memory": "128Mi", "ephemeral-storage": "1Gi"})),
            // Upstream does not read it.
            ("/imageMinimumGCAge", json!("2m0s")),
            ("/evictionSoftGracePeriod/memory.available", json!("2m0s")),
            ("/evictionSoftGracePeriod/nodefs.available", json!("1m30s")),
            ("/featureGates/A", json!(true)),
            ("/clusterDNS/0", json!("100.64.0.10")),
        ] {
            assert_eq!(configuration.pointer(pointer), Some(&expected), "{pointer}");
        }
    }

    #[test]
    fn how_much_memory_stays_free() {
        let hard = with(&json!({"evictionHard": {"nodeFSAvailable": "7%"}}));
        let both = with(&json!({"evictionHard": {"memoryAvailable": "300Mi"}, "evictionSoft": {}}));
        let table = [
            (with(&json!({})), Some("16Gi"), "100Mi", "200Mi"),
            (hard.clone(), Some("4Gi"), "5%", "200Mi"),
            (hard.clone(), Some("8Gi"), "5%", "200Mi"),
            (hard.clone(), Some("16Gi"), "1Gi", "200Mi"),
            (hard, None, "100Mi", "200Mi"),
            (both, Some("16Gi"), "300Mi", "1.5Gi"),
        ];
        for (worker, memory, expected_hard, expected_soft) in table {
            let configuration = of(&worker, memory);
            let signal = |field: &str| configuration[field][MEMORY].clone();
            assert_eq!(signal("evictionHard"), expected_hard, "{worker} {memory:?}");
            assert_eq!(signal("evictionSoft"), expected_soft, "{worker} {memory:?}");
        }
    }

    #[test]
    fn a_dead_connection_is_noticed_before_the_node_counts_as_lost() {
        for (grace, idle, ping) in
            [("40s", 25, 12), ("46s", 30, 15), ("2m0s", 30, 15), ("1s", 0, 0), ("", 30, 15)]
        {
            let shoot =
                json!({"spec": {"kubernetes": {"kubeControllerManager": {"nodeMonitorGracePeriod": grace}}}});
            let expected =
                format!("\"HTTP2_READ_IDLE_TIMEOUT_SECONDS={idle}\" \"HTTP2_PING_TIMEOUT_SECONDS={ping}\"");
            assert_eq!(environment(&shoot), expected, "{grace}");
        }
    }
}
