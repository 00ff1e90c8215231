//! To which pool a host belongs: only there it may become a node, and its agent may read what the nodes of this pool apply. A host becomes a
//! member with its script, and stays one until an operator removes it.

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

fn pools_key() -> Key {
    Key::new(NAMESPACE, POOLS)
}

/// The binding of a host to the Role of its pool.
fn binding_key(host: &str) -> Key {
    Key::new(NAMESPACE, format!("gardener.cloud:node-agent:{host}"))
}

/// Makes a host a member of a pool, and of no other. Errors: a request fails.
pub(crate) fn admit(shoot: &Client, host: &str, pool: &str) -> Result<(), Error> {
    let entry = json!({"data": {host: pool}});
    let known = shoot.patch::<Value>(&CONFIG_MAP, &pools_key(), &Patch::Merge(entry.clone())).map(drop);
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

/// Ends the membership: the host does not become a node again, and its agent reads nothing of the pool. Errors: a request fails.
pub(crate) fn end(shoot: &Client, host: &str) -> Result<(), Error> {
    write::delete(shoot, &ROLE_BINDING, &binding_key(host))?;
    let none = Patch::Merge(json!({"data": {host: null}}));
    kube::unless_absent(shoot.patch::<Value>(&CONFIG_MAP, &pools_key(), &none)).map(drop)
}

/// Whether the host is a member of a pool. Errors: a request fails.
pub(crate) fn exists(shoot: &Client, host: &str) -> Result<bool, Error> {
    let pools = shoot.find::<Value>(&CONFIG_MAP, &pools_key())?.unwrap_or_default();
    Ok(pools["data"][host].is_string() || shoot.find::<Value>(&ROLE_BINDING, &binding_key(host))?.is_some())
}

/// The objects of a membership, for people.
pub(crate) fn words(host: &str) -> String {
    format!("ConfigMap {} and RoleBinding {}", pools_key(), binding_key(host))
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
