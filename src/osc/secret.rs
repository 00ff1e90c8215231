//! The Secret in the cluster of a Shoot that gardener-node-agent reads: it has what the nodes of a pool apply.
//!
//! Source: `nodeagent.OperatingSystemConfigSecret`. The agent compares only the checksum, so it is that of the text in the Secret.

use serde_json::Value;

use crate::api::meta::text;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::components::managed::sha256_hex;
use crate::format::base64;
use crate::format::yaml::{self, Dialect};
use crate::shoot::pools::POOL;

/// The annotation with the checksum of what nodes apply. A node says with another one which checksum it has applied.
pub(crate) const CHECKSUM: &str = "checksum/data-script";
/// The annotation of a node with the checksum of what its agent has applied.
pub(crate) const APPLIED: &str = "checksum/cloud-config-data";
/// The ManagedResource with these Secrets, in the namespace of the control plane: a Shoot with nodes has it.
pub(crate) const MANAGED_RESOURCE: &str = "shoot-gardener-node-agent";
/// The entry of the Secret.
const ENTRY: &str = "osc.yaml";

/// The Secrets in the namespace of the control plane whose content files of an object refer to.
pub(crate) fn referenced(object: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for list in [&object["spec"]["files"], &object["status"]["extensionFiles"]] {
        for file in list.as_array().into_iter().flatten() {
            names.extend(file["content"]["secretRef"]["name"].as_str().map(str::to_owned));
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// What the nodes of a pool apply, as extensions have left it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PoolConfig {
    /// The name of the pool.
    pub(crate) pool: String,
    /// The name of the Secret that nodes read.
    pub(crate) key: String,
    /// The object of purpose `reconcile`.
    pub(crate) object: Value,
    /// The Secrets to which files of the object refer, by name.
    pub(crate) secrets: SortedMap<String, Value>,
    /// The name of the Secret with the user data of a new node.
    pub(crate) user_data: String,
}

/// The Secret for a pool. Errors: a file refers to an entry that does not exist.
pub(crate) fn agent_secret(config: &PoolConfig) -> Result<Value, String> {
    let PoolConfig { pool, key, object, secrets, .. } = config;
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut applied = json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "OperatingSystemConfig", "metadata": {},
        // Fields without a value that the agent requires.
        "spec": {"purpose": "", "type": ""},
    });
    for (part, source, field) in [
        ("spec", spec, "criConfig"),
        ("spec", spec, "files"),
        ("spec", spec, "inPlaceUpdates"),
        ("spec", spec, "units"),
        ("status", status, "extensionFiles"),
        ("status", status, "extensionUnits"),
        ("status", status, "inPlaceUpdates"),
    ] {
        if !source[field].is_null() {
            applied[part][field] = source[field].clone();
        }
    }
    for pointer in ["/spec/files", "/status/extensionFiles"] {
        let files = applied.pointer_mut(pointer).and_then(Value::as_array_mut);
        for file in files.into_iter().flatten() {
            write_content(file, secrets)?;
        }
    }
    let text = yaml::emit(&applied, Dialect::V4);
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": key, "namespace": "kube-system", "annotations": {CHECKSUM: sha256_hex(text.as_bytes())},
            "labels": {"gardener.cloud/role": "operating-system-config", POOL: pool}},
        "data": {ENTRY: base64::encode(text.as_bytes())},
    }))
}

/// Nodes cannot read the seed, so a reference becomes the content.
fn write_content(file: &mut Value, secrets: &SortedMap<String, Value>) -> Result<(), String> {
    let reference = file["content"]["secretRef"].take();
    if let Some(content) = file["content"].as_object_mut() {
        content.remove("secretRef");
    }
    let Some(name) = reference["name"].as_str() else { return Ok(()) };
    let (path, entry) = (text(&file["path"]).to_owned(), text(&reference["dataKey"]));
    let data = secrets.get(name).and_then(|secret| secret["data"][entry].as_str());
    let data = data
        .ok_or_else(|| format!("file {path} is in entry {entry} of Secret {name}, which does not exist"))?;
    file["content"]["inline"] = json!({"encoding": "b64", "data": data});
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret_of(object: &Value, secrets: SortedMap<String, Value>) -> Result<Value, String> {
        let (pool, key, user_data) = ("a".to_owned(), "key".to_owned(), String::new());
        agent_secret(&PoolConfig { pool, key, object: object.clone(), secrets, user_data })
    }

    fn applied(secret: &Value) -> Value {
        let text = base64::decode(text(&secret["data"][ENTRY]).as_bytes()).unwrap();
        assert_eq!(secret["metadata"]["annotations"][CHECKSUM], sha256_hex(&text));
        yaml::parse(&String::from_utf8(text).unwrap()).unwrap()
    }

    #[test]
    fn it_has_what_nodes_apply_and_nothing_else() {
        let object = json!({"metadata": {"name": "x"},
            "spec": {"type": "lab", "purpose": "reconcile", "providerConfig": {"a": 1}, "criConfig": {"name": "containerd"},
                "units": [{"name": "u"}], "files": [{"path": "/f", "content": {"inline": {"encoding": "", "data": "x"}}}]},
            "status": {"lastOperation": {}, "extensionUnits": [{"name": "e"}]}});
        let secret = secret_of(&object, SortedMap::new()).unwrap();
        assert_eq!(
            secret["metadata"]["labels"],
            json!({"gardener.cloud/role": "operating-system-config", POOL: "a"})
        );
        let expected = json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "OperatingSystemConfig", "metadata": {},
            "spec": {"purpose": "", "type": "", "criConfig": {"name": "containerd"}, "units": [{"name": "u"}],
                "files": object["spec"]["files"]},
            "status": {"extensionUnits": [{"name": "e"}]}});
        assert_eq!(applied(&secret), expected);
    }

    #[test]
    fn references_become_content() {
        let file =
            |path: &str| json!({"path": path, "content": {"secretRef": {"name": "s", "dataKey": "k"}}});
        let object = json!({"spec": {"files": [file("/a")]}, "status": {"extensionFiles": [file("/b")]}});
        assert_eq!(referenced(&object), ["s"]);
        let secrets = SortedMap::from([("s".to_owned(), json!({"data": {"k": "eA=="}}))]);
        let found = applied(&secret_of(&object, secrets).unwrap());
        let content = json!({"inline": {"encoding": "b64", "data": "eA=="}});
        assert_eq!(found["spec"]["files"][0]["content"], content);
        assert_eq!(found["status"]["extensionFiles"][0]["content"], content);
        let why = secret_of(&object, SortedMap::new()).unwrap_err();
        assert_eq!(why, "file /a is in entry k of Secret s, which does not exist");
    }
}
