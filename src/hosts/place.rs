//! The place of a host in the cluster of a Shoot: the pool to which its Node belongs, and the right to read what the nodes of this pool
//! apply. A host gets it with its token, and keeps it until an operator removes the host.

use serde_json::Value;

use crate::api::core::CONFIG_MAP;
use crate::api::meta::Key;
use crate::api::rbac::ROLE_BINDING;
use crate::base::json::json;
use crate::kube::{self, Client, Error, Patch};
use crate::runtime::write;

use super::approval::AGENT;
use super::token::HOST;

const NAMESPACE: &str = "kube-system";
/// The ConfigMap with the pool of each host. The policy `edge-node-create` reads it.
const POOLS: &str = "edge-hosts";

/// The Role of the agents on the nodes of a pool.
pub(crate) fn role(pool: &str) -> String {
    format!("gardener.cloud:node-agents:{pool}")
}

/// The binding of a host to the Role of its pool.
fn binding_key(host: &str) -> Key {
    Key::new(NAMESPACE, format!("gardener.cloud:node-agent:{host}"))
}

/// Gives a host its place in a pool. Errors: a request fails.
pub(crate) fn give(shoot: &Client, host: &str, pool: &str) -> Result<(), Error> {
    let entry = json!({"data": {host: pool}});
    let pools = Key::new(NAMESPACE, POOLS);
    let known = shoot.patch::<Value>(&CONFIG_MAP, &pools, &Patch::Merge(entry.clone())).map(drop);
    if kube::unless_absent(known)?.is_none() {
        let mut fresh = entry;
        fresh["apiVersion"] = json!("v1");
        fresh["kind"] = json!("ConfigMap");
        fresh["metadata"] = json!({"name": POOLS, "namespace": NAMESPACE});
        shoot.create::<Value>(&CONFIG_MAP, NAMESPACE, &fresh)?;
    }
    let wanted = binding(host, pool);
    let key = binding_key(host);
    let found = shoot.find::<Value>(&ROLE_BINDING, &key)?;
    if found
        .is_some_and(|found| found["roleRef"] == wanted["roleRef"] && found["subjects"] == wanted["subjects"])
    {
        return Ok(());
    }
    // The Role of a binding cannot be changed.
    write::delete(shoot, &ROLE_BINDING, &key)?;
    shoot.create::<Value>(&ROLE_BINDING, NAMESPACE, &wanted).map(drop)
}

/// The objects of a place, for people.
pub(crate) fn words(host: &str) -> String {
    format!("ConfigMap {NAMESPACE}/{POOLS} and RoleBinding {}", binding_key(host))
}

fn binding(host: &str, pool: &str) -> Value {
    let key = binding_key(host);
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": {HOST: host}},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": role(pool)},
        "subjects": [{"apiGroup": group, "kind": "User", "name": format!("{AGENT}{host}")}],
    })
}
