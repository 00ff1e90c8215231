//! What gardener-node-agent reads in the cluster of a Shoot: a Secret for each pool with what its nodes apply, and its permissions.
//!
//! Source: `pkg/gardenlet/operation/botanist/operatingsystemconfig.go`.

use serde_json::Value;

use crate::base::json::json;
use crate::components::archive;
use crate::components::content::push;
use crate::components::managed::{Managed, manifests};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::hosts::membership;
use crate::osc::{self, MANAGED_RESOURCE, PoolConfig};

use super::super::evidence::only_in_the_log;
use super::super::facts::Facts;
use super::super::nodes::has_hosts;
use super::super::row::Row;
use super::super::times::{FIVE_MINUTES, FIVE_SECONDS, HOUR, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource;

mod applied;
mod asleep;
mod possible;

pub(super) static COMPONENT: Component = Component {
    needs_workers: true,
    images: &["gardener-node-agent", "hyperkube", "pause-container"],
    create: &[
        Row::new("Checking that hosts can be what their pools say", possible::check, only_in_the_log)
            .after(&["Deploying control plane namespace"])
            .when(|facts| facts.has_workers)
            .within(FIVE_MINUTES),
        Row::new(
            "Waiting until the nodes have followed the rotation of CAs",
            applied::wait_for_authorities,
            only_in_the_log,
        )
        .after(&["Deploying control plane namespace"])
        .when(|facts| facts.has_workers && facts.completes_authorities() && !facts.restores())
        .retrying(FIVE_SECONDS, FIVE_MINUTES),
        Row::new("Deploying managed resources for the gardener-node-agent", deploy, |seen| {
            seen.written(MANAGED_RESOURCE)
        })
        .after(&[
            "Initializing connection to Shoot",
            "Waiting until OperatingSystemConfig for worker pools have been reconciled",
        ])
        .when(Facts::serves_nodes)
        .retrying(FIVE_SECONDS, SHORT),
        Row::new("Emptying hosts before hibernation", asleep::empty, only_in_the_log)
            .after(&[
                "Initializing connection to Shoot",
                "Waiting until extension resources hibernated before kube-apiserver hibernation are ready",
            ])
            .when(|facts| facts.has_workers && facts.is_hibernated)
            .within(FIVE_MINUTES),
        Row::new("Opening hosts after hibernation", asleep::open, only_in_the_log)
            .after(&["Initializing connection to Shoot"])
            .when(Facts::serves_nodes)
            .retrying(FIVE_SECONDS, SHORT)
            .last(),
        Row::new(
            "Waiting until all shoot worker nodes have updated the operating system config",
            applied::wait,
            only_in_the_log,
        )
        .after(&[
            "Waiting until worker pools have been reconciled",
            "Waiting until the Kubernetes API server can connect to the Shoot workers",
        ])
        .when(Facts::serves_nodes)
        .within(HOUR)
        .last(),
    ],
    ..Component::NONE
};

/// Policies that read the pools of hosts.
const OF_HOSTS: [&str; 2] = ["edge-node-create", "edge-kubelet-renewal"];

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let pools = work.results.pools.need("the operating systems of the pools are not ready yet")?;
    let objects = objects(work.plane(), pools, has_hosts(work))?;
    managed_resource::deploy(work, &objects)
}

/// Errors: a file of an extension is missing.
fn objects(namespace: &str, pools: &[PoolConfig], has_hosts: bool) -> Result<Managed, String> {
    let mut all = pools.iter().map(osc::agent_secret).collect::<Result<Vec<_>, _>>()?;
    let mut access = archive::objects("node_agent/access.yaml");
    if has_hosts {
        access.extend(pools.iter().map(role));
    } else {
        // Nobody says to which pool the machine of an agent belongs.
        let names: Vec<&str> = pools.iter().map(|pool| pool.key.as_str()).collect();
        for role in access.iter_mut().filter(|object| object["kind"] == "Role") {
            push(&mut role["rules"], reads(&names));
        }
    }
    all.extend(access);
    let mut policies = archive::objects("node_agent/policies.yaml");
    // Names of machines are known to their extension only.
    let is_of_hosts = |policy: &Value| OF_HOSTS.iter().any(|name| policy["metadata"]["name"] == *name);
    policies.retain(|policy| has_hosts || !is_of_hosts(policy));
    all.extend(policies);
    Ok(Managed::for_shoot(namespace, MANAGED_RESOURCE, false, &manifests(&all)))
}

/// The Role of the agents on the nodes of a pool. The script of a host binds it.
fn role(pool: &PoolConfig) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": membership::role(&pool.pool), "namespace": "kube-system"},
        "rules": [reads(&[&pool.key])],
    })
}

/// Agents may read the Secrets of pools, and no others.
fn reads(secrets: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": secrets, "verbs": ["get", "list", "watch"]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sorted::SortedMap;
    use crate::components::managed;

    /// The objects for two pools.
    fn of_pools(has_hosts: bool) -> Vec<Value> {
        let pool = |name: &str| PoolConfig {
            pool: name.to_owned(),
            key: format!("gardener-node-agent-{name}"),
            object: json!({"spec": {"units": [{"name": "u"}]}}),
            secrets: SortedMap::new(),
            user_data: String::new(),
        };
        let managed = objects("shoot--p--w4", &[pool("a"), pool("b")], has_hosts).unwrap();
        managed::objects_of(&managed.golden())
    }

    fn names<'a>(all: &'a [Value], kind: &str) -> Vec<&'a str> {
        let of_kind = all.iter().filter(|object| object["kind"] == kind);
        of_kind.map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
    }

    /// Each Role that reads Secrets, with their names.
    fn readers(all: &[Value]) -> Vec<(&str, Value)> {
        let roles = all.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Role"));
        let rules = roles.flat_map(|role| {
            let name = role["metadata"]["name"].as_str().unwrap();
            role["rules"].as_array().unwrap().iter().map(move |rule| (name, rule))
        });
        let of_secrets = rules.filter(|(_, rule)| rule["resources"] == json!(["secrets"]));
        of_secrets.map(|(name, rule)| (name, rule["resourceNames"].clone())).collect()
    }

    #[test]
    fn agents_of_hosts_read_the_secret_of_their_pool_only() {
        let all = of_pools(true);
        let (a, b) = ("gardener-node-agent-a", "gardener-node-agent-b");
        assert_eq!(names(&all, "Secret"), [a, b]);
        let expected =
            [("gardener.cloud:node-agents:a", json!([a])), ("gardener.cloud:node-agents:b", json!([b]))];
        assert_eq!(readers(&all), expected);
        // The scripts of hosts bind these Roles.
        assert_eq!(names(&all, "RoleBinding"), ["gardener.cloud:node-agents"]);
        for policy in
            ["edge-node-create", "edge-kubelet-renewal", "edge-node-update", "edge-agent-lease", "edge-csr"]
        {
            assert!(names(&all, "ValidatingAdmissionPolicy").contains(&policy), "{policy}");
            assert!(names(&all, "ValidatingAdmissionPolicyBinding").contains(&policy), "{policy}");
        }
        // A token of one host must not become another node.
        assert!(
            !names(&all, "ClusterRoleBinding").iter().any(|name| name.ends_with(":nodeclient")),
            "{all:?}"
        );
    }

    #[test]
    fn agents_of_machines_read_the_secrets_of_all_pools() {
        let all = of_pools(false);
        let secrets = json!(["gardener-node-agent-a", "gardener-node-agent-b"]);
        assert_eq!(readers(&all), [("gardener.cloud:node-agents", secrets)]);
        assert!(!OF_HOSTS.iter().any(|name| names(&all, "ValidatingAdmissionPolicy").contains(name)));
        assert!(names(&all, "ValidatingAdmissionPolicy").contains(&"edge-node-update"));
    }
}
