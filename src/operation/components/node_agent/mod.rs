//! What gardener-node-agent reads in the cluster of a Shoot: a Secret for each pool with what its nodes apply, and its permissions.
//!
//! Source: `pkg/gardenlet/operation/botanist/operatingsystemconfig.go`.

use serde_json::Value;

use crate::base::json::json;
use crate::components::archive;
use crate::components::content::push;
use crate::components::managed::{Managed, manifests};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::osc::{self, MANAGED_RESOURCE, PoolConfig};

use super::super::evidence::only_in_the_log;
use super::super::facts::Facts;
use super::super::row::Row;
use super::super::times::{FIVE_MINUTES, FIVE_SECONDS, SHORT};
use super::super::work::Work;
use super::component::Component;
use super::managed_resource;

mod followed;

pub(super) static COMPONENT: Component = Component {
    needs_workers: true,
    images: &["gardener-node-agent", "hyperkube", "pause-container"],
    create: &[
        Row::new(
            "Waiting until the nodes have followed the rotation of CAs",
            followed::wait,
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
    ],
    ..Component::NONE
};

fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let pools = work.results.pools.need("the operating systems of the pools are not ready yet")?;
    let objects = objects(work.plane(), pools)?;
    managed_resource::deploy(work, &objects)
}

/// Errors: a file of an extension is missing.
fn objects(namespace: &str, pools: &[PoolConfig]) -> Result<Managed, String> {
    let mut all = pools.iter().map(osc::agent_secret).collect::<Result<Vec<_>, _>>()?;
    let mut access = archive::objects("node_agent/access.yaml");
    let names: Vec<&str> = pools.iter().map(|pool| pool.key.as_str()).collect();
    for role in access.iter_mut().filter(|object| object["kind"] == "Role") {
        push(&mut role["rules"], reads(&names));
    }
    all.extend(access);
    all.extend(archive::objects("node_agent/policies.yaml"));
    Ok(Managed::for_shoot(namespace, MANAGED_RESOURCE, false, &manifests(&all)))
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

    #[test]
    fn agents_read_the_secrets_of_pools_only() {
        let pool = |name: &str| PoolConfig {
            pool: name.to_owned(),
            key: format!("gardener-node-agent-{name}"),
            object: json!({"spec": {"units": [{"name": "u"}]}}),
            secrets: SortedMap::new(),
            user_data: String::new(),
        };
        let managed = objects("shoot--p--w4", &[pool("a"), pool("b")]).unwrap();
        let all = managed::objects_of(&managed.golden());
        let names = |kind: &str| {
            let of_kind = all.iter().filter(|object| object["kind"] == kind);
            of_kind.map(|object| object["metadata"]["name"].as_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names("Secret"), ["gardener-node-agent-a", "gardener-node-agent-b"]);
        for policy in ["edge-node-update", "edge-agent-lease", "edge-csr"] {
            assert!(names("ValidatingAdmissionPolicy").contains(&policy), "{policy}");
            assert!(names("ValidatingAdmissionPolicyBinding").contains(&policy), "{policy}");
        }
        // A token of one host must not become another node.
        assert!(!names("ClusterRoleBinding").iter().any(|name| name.ends_with(":nodeclient")), "{all:?}");
        let rules = all.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Role"));
        let of_secrets: Vec<&Value> = rules
            .flat_map(|role| role["rules"].as_array().unwrap())
            .filter(|rule| rule["resources"].as_array().unwrap().iter().any(|kind| kind == "secrets"))
            .collect();
        assert_eq!(of_secrets, [&reads(&["gardener-node-agent-a", "gardener-node-agent-b"])]);
    }
}
