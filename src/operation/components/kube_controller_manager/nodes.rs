//! The arguments of a kube-controller-manager that has nodes to care for.
//!
//! Source: `pkg/component/kubernetes/controllermanager`.

use serde_json::Value;

use crate::format::cidr::Cidr;
use crate::format::duration;

/// The folder with the CA that signs the certificates of kubelets.
pub(super) const CA_PATH: &str = "/srv/kubernetes/ca-kubelet";

/// Each node gets 256 addresses for pods.
const MASK_SIZE: u64 = 24;
/// The same for IPv6; the garden sets it.
const MASK_SIZE_IPV6: u64 = 64;

/// Fields of `spec.kubernetes.kubeControllerManager` that are durations, with their arguments and defaults.
const DURATIONS: [(&str, &str, &str); 5] = [
    (
        "/horizontalPodAutoscaler/downscaleStabilization",
        "horizontal-pod-autoscaler-downscale-stabilization",
        "5m0s",
    ),
    (
        "/horizontalPodAutoscaler/initialReadinessDelay",
        "horizontal-pod-autoscaler-initial-readiness-delay",
        "30s",
    ),
    (
        "/horizontalPodAutoscaler/cpuInitializationPeriod",
        "horizontal-pod-autoscaler-cpu-initialization-period",
        "5m0s",
    ),
    ("/horizontalPodAutoscaler/syncPeriod", "horizontal-pod-autoscaler-sync-period", "30s"),
    ("/nodeMonitorGracePeriod", "node-monitor-grace-period", "40s"),
];

/// The arguments that depend on the Shoot, and those of its kubelets' certificates. `pods` are the ranges of pods.
pub(super) fn arguments(kubernetes: &Value, pods: &[String]) -> Vec<String> {
    let own = &kubernetes["kubeControllerManager"];
    let mut all = vec![
        "--allocate-node-cidrs=true".to_owned(),
        "--attach-detach-reconcile-sync-period=1m0s".to_owned(),
        format!("--cluster-cidr={}", pods.join(",")),
        "--cluster-signing-kubelet-client-cert-file=/srv/kubernetes/ca-client/ca.crt".to_owned(),
        "--cluster-signing-kubelet-client-key-file=/srv/kubernetes/ca-client/ca.key".to_owned(),
        format!("--cluster-signing-kubelet-serving-cert-file={CA_PATH}/ca.crt"),
        format!("--cluster-signing-kubelet-serving-key-file={CA_PATH}/ca.key"),
        "--leader-elect=true".to_owned(),
        "--concurrent-deployment-syncs=50".to_owned(),
        "--concurrent-replicaset-syncs=50".to_owned(),
        "--concurrent-statefulset-syncs=15".to_owned(),
    ];
    all.extend(mask_sizes(own, pods));
    for (pointer, flag, default) in DURATIONS {
        let value = own.pointer(pointer).and_then(Value::as_str).unwrap_or(default);
        let value = duration::parse_nanos(value).map_or(value.to_owned(), duration::format_nanos);
        all.push(format!("--{flag}={value}"));
    }
    let tolerance = &own["horizontalPodAutoscaler"]["tolerance"];
    let tolerance = if tolerance.is_number() { tolerance.to_string() } else { "0.1".to_owned() };
    all.push(format!("--horizontal-pod-autoscaler-tolerance={tolerance}"));
    all
}

/// How large the part of a node is. With ranges of both families, each has its own argument.
fn mask_sizes(own: &Value, pods: &[String]) -> Vec<String> {
    let is_ipv6 = |range: &String| Cidr::parse(range).is_some_and(|range| range.nth(0).is_ipv6());
    let size = |default: u64| own["nodeCIDRMaskSize"].as_u64().unwrap_or(default);
    match (pods.iter().any(is_ipv6), pods.iter().all(is_ipv6)) {
        (false, _) => vec![format!("--node-cidr-mask-size={}", size(MASK_SIZE))],
        (true, true) => vec![format!("--node-cidr-mask-size={}", size(MASK_SIZE_IPV6))],
        (true, false) => vec![
            format!("--node-cidr-mask-size-ipv4={}", size(MASK_SIZE)),
            format!("--node-cidr-mask-size-ipv6={MASK_SIZE_IPV6}"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn each_family_has_its_mask() {
        let of = |own: &Value, pods: &[&str]| {
            mask_sizes(own, &pods.iter().map(|range| (*range).to_owned()).collect::<Vec<_>>()).join(" ")
        };
        let table = [
            (json!({}), &["100.96.0.0/11"][..], "--node-cidr-mask-size=24"),
            (json!({"nodeCIDRMaskSize": 26}), &["100.96.0.0/11"], "--node-cidr-mask-size=26"),
            (json!({}), &["fd00::/48"], "--node-cidr-mask-size=64"),
            (
                json!({"nodeCIDRMaskSize": 25}),
                &["100.96.0.0/11", "fd00::/48"],
                "--node-cidr-mask-size-ipv4=25 --node-cidr-mask-size-ipv6=64",
            ),
        ];
        for (own, pods, expected) in table {
            assert_eq!(of(&own, pods), expected);
        }
    }

    #[test]
    fn the_owner_decides_about_autoscalers_and_lost_nodes() {
        let own = json!({"kubeControllerManager": {"nodeMonitorGracePeriod": "2m",
            "horizontalPodAutoscaler": {"syncPeriod": "1m", "tolerance": 0.2}}});
        let all = arguments(&own, &["100.96.0.0/11".to_owned()]);
        for expected in [
            "--node-monitor-grace-period=2m0s",
            "--horizontal-pod-autoscaler-sync-period=1m0s",
            "--horizontal-pod-autoscaler-tolerance=0.2",
            "--horizontal-pod-autoscaler-downscale-stabilization=5m0s",
        ] {
            assert!(all.iter().any(|argument| argument == expected), "{expected}: {all:?}");
        }
    }
}
