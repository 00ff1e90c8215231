//! The labels of the nodes of a pool.

use crate::api::meta::text;
use crate::base::sorted::SortedMap;
use crate::shoot::pools::{POOL, SYSTEM_COMPONENTS};

use super::pool::NodePool;

/// The label of a node with the name of the Secret that its agent reads.
pub(crate) const SECRET_NAME: &str = "worker.gardener.cloud/gardener-node-agent-secret-name";
/// An older name of the label with the pool.
const GROUP: &str = "worker.garden.sapcloud.io/group";

/// The labels of a pool's nodes: its own, and those that nobody may change.
pub(crate) fn labels(pool: NodePool<'_>) -> SortedMap<String, String> {
    let own = pool.worker["labels"].as_object().into_iter().flatten();
    let mut all: SortedMap<String, String> =
        own.map(|(name, value)| (name.clone(), text(value).to_owned())).collect();
    let worker = pool.worker;
    let mut set = |name: &str, value: &str| all.insert(name.to_owned(), value.to_owned());
    let local_dns = if pool.has_local_dns() { "true" } else { "false" };
    let is_of_system = if worker["systemComponents"]["allow"] == false { "false" } else { "true" };
    set("node.kubernetes.io/role", "node");
    set("kubernetes.io/arch", pool.architecture());
    set("networking.gardener.cloud/node-local-dns-enabled", local_dns);
    set(SYSTEM_COMPONENTS, is_of_system);
    set(POOL, pool.name());
    set(GROUP, pool.name());
    set(SECRET_NAME, &pool.key());
    if let Some(name) = worker["cri"]["name"].as_str() {
        set("worker.gardener.cloud/cri-name", name);
    }
    for runtime in worker["cri"]["containerRuntimes"].as_array().into_iter().flatten() {
        set(&format!("containerruntime.worker.gardener.cloud/{}", text(&runtime["type"])), "true");
    }
    all
}

/// Whether a kubelet may give its node a label. Kubernetes keeps most names below its own domains for itself. Source:
/// `well_known_labels.go` in Kubernetes' `pkg/kubelet/apis`.
pub(super) fn is_allowed(name: &str) -> bool {
    const OWN: [&str; 11] = [
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    ];
    let Some((domain, _)) = name.split_once('/') else { return true };
    let is_below = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    if is_below("node-restriction.kubernetes.io") {
        return false;
    }
    let is_reserved = is_below("kubernetes.io") || is_below("k8s.io");
    !is_reserved || OWN.contains(&name) || is_below("kubelet.kubernetes.io") || is_below("node.kubernetes.io")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn labels_of_the_pool_do_not_replace_those_of_the_system() {
        let shoot = json!({"spec": {"kubernetes": {"version": "1.34.3"}}});
        let worker = json!({"name": "a", "labels": {POOL: "b", "own": "x"}, "systemComponents": {"allow": false},
            "machine": {"architecture": "arm64"}, "cri": {"name": "containerd", "containerRuntimes": [{"type": "gvisor"}]}});
        let all = labels(NodePool { shoot: &shoot, worker: &worker, has_hosts: true });
        let expected = [
            ("containerruntime.worker.gardener.cloud/gvisor", "true"),
            ("kubernetes.io/arch", "arm64"),
            ("networking.gardener.cloud/node-local-dns-enabled", "false"),
            ("node.kubernetes.io/role", "node"),
            ("own", "x"),
            ("worker.garden.sapcloud.io/group", "a"),
            ("worker.gardener.cloud/cri-name", "containerd"),
            ("worker.gardener.cloud/gardener-node-agent-secret-name", "gardener-node-agent-a"),
            ("worker.gardener.cloud/pool", "a"),
            ("worker.gardener.cloud/system-components", "false"),
        ];
        let found: Vec<(&str, &str)> =
            all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn names_that_kubernetes_keeps_for_itself() {
        let table = [
            ("own", true),
            ("example.org/a", true),
            ("kubernetes.io/arch", true),
            ("node.kubernetes.io/role", true),
            ("a.node.kubernetes.io/b", true),
            ("kubelet.kubernetes.io/a", true),
            ("topology.kubernetes.io/zone", true),
            ("kubernetes.io/role", false),
            ("node-role.kubernetes.io/worker", false),
            ("a.k8s.io/b", false),
            ("node-restriction.kubernetes.io/a", false),
            ("a.node-restriction.kubernetes.io/b", false),
            ("notkubernetes.io/a", true),
        ];
        for (name, expected) in table {
            assert_eq!(is_allowed(name), expected, "{name}");
        }
    }
}
