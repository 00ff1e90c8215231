//! The configuration of the kube-apiserver's encryption in etcd.

use serde_json::Value;

use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::components::managed::unique_secret;
use crate::format::base64;
use crate::format::yaml::{self, Dialect};
use crate::secrets::SecretEntries;

/// Which key encrypts. Both keys decrypt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyOrder {
    /// The new one.
    #[default]
    NewFirst,
    /// The old one, because not all servers know the new one yet.
    OldFirst,
}

impl KeyOrder {
    /// The order for a phase of the key rotation. `is_populated` means that all servers have rolled out with the new
    /// key, as the Deployment's annotation [`KeyOrder::POPULATED`] shows.
    pub(crate) fn of(phase: &str, is_populated: bool) -> Self {
        if phase == "Preparing" && !is_populated { Self::OldFirst } else { Self::NewFirst }
    }

    /// The Deployment's annotation which shows that each server knows the new key.
    pub(crate) const POPULATED: &str = "credentials.gardener.cloud/new-encryption-key-populated";
}

/// The input of the configuration.
#[derive(Clone, Debug)]
pub struct Encryption<'a> {
    /// The namespace of the control plane.
    pub namespace: &'a str,
    /// `spec.kubernetes.kubeAPIServer.encryptionConfig.resources`; Secrets are always included.
    pub resources: &'a [String],
    /// The resources that were encrypted before (`status.credentials.encryptionAtRest.resources`).
    pub before: &'a [String],
    /// Secret `kube-apiserver-etcd-encryption-key`.
    pub current: &'a SecretEntries,
    /// The previous key, while it exists.
    pub old: Option<&'a SecretEntries>,
    /// Which key encrypts.
    pub order: KeyOrder,
}

/// The Secret with the configuration, named by its content. Errors: a key that lacks a field.
pub fn encryption(input: &Encryption<'_>) -> Result<Value, String> {
    let mut encrypted: Vec<&str> = input.resources.iter().map(String::as_str).collect();
    if !encrypted.contains(&"secrets") {
        encrypted.push("secrets");
    }
    let mut removed: Vec<&str> = input.before.iter().map(String::as_str).collect();
    removed.retain(|resource| !encrypted.contains(resource));
    removed.sort_unstable();

    let mut providers = providers(input)?;
    let mut entries = vec![json!({"resources": encrypted})];
    let identity = json!({"identity": {}});
    if !removed.is_empty() {
        let mut first = vec![identity.clone()];
        first.extend(providers.iter().cloned());
        entries.push(json!({"resources": removed, "providers": first}));
    }
    providers.push(identity);
    entries[0]["providers"] = providers.into();

    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": entries,
    });
    let name = "kube-apiserver-etcd-encryption-configuration";
    let text = yaml::emit(&configuration, Dialect::V4);
    let data = SortedMap::from([("encryption-configuration.yaml".to_owned(), text)]);
    let (_, mut secret) = unique_secret(input.namespace, name, &data);
    secret["type"] = json!("Opaque");
    secret["metadata"]["labels"]["role"] = json!(name);
    Ok(secret)
}

/// Keys of the same provider share one list.
fn providers(input: &Encryption<'_>) -> Result<Vec<Value>, String> {
    let mut keys = vec![input.current];
    match input.order {
        KeyOrder::NewFirst => keys.extend(input.old),
        KeyOrder::OldFirst => keys.splice(0..0, input.old).for_each(drop),
    }
    let mut all: Vec<(String, Vec<Value>)> = Vec::new();
    for key in keys {
        let kind = match field(key, "provider") {
            "" => "aescbc",
            kind => kind,
        };
        let secret = key.get("secret").filter(|secret| !secret.is_empty());
        let (name, Some(secret)) = (field(key, "key"), secret) else {
            return Err("the key that encrypts data in etcd has no field \"secret\"".to_owned());
        };
        let secret = match field(key, "encoding") {
            "none" => base64::encode(secret),
            _ => String::from_utf8_lossy(secret).into_owned(),
        };
        let entry = json!({"name": name, "secret": secret});
        match all.iter_mut().find(|(known, _)| known == kind) {
            Some((_, list)) => list.push(entry),
            None => all.push((kind.to_owned(), vec![entry])),
        }
    }
    Ok(all.into_iter().map(|(kind, keys)| json!({kind: {"keys": keys}})).collect())
}

fn field<'a>(key: &'a SecretEntries, name: &str) -> &'a str {
    key.get(name).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
}
