//! The objects that an installation consists of in the seed: Namespace, Secret, ManagedResource. Names, labels and
//! checksums are those of Gardener (`pkg/utils/managedresources`): another agent, or gardener-resource-manager, finds
//! them as if it had written them.

use std::collections::BTreeMap;

use ring::digest;
use serde_json::{Map, Value, json};

use crate::api::meta::Key;
use crate::api::resources::{GARDEN_NAMESPACE, INSTALLATION_LABEL};
use crate::format::{base64, hex};

/// The registration that a namespace, or an account in the garden, belongs to.
pub(super) const REGISTRATION_NAME_LABEL: &str = "controllerregistration.core.gardener.cloud/name";
const REGISTRATION_LABEL: &str = "controllerregistration-name";
/// A Secret or ConfigMap that goes when nobody refers to it any more.
pub(super) const GARBAGE_LABEL: &str = "resources.gardener.cloud/garbage-collectable-reference";
/// Annotations that keep what they name from being collected as garbage.
pub(super) const REFERENCE_PREFIX: &str = "reference.resources.gardener.cloud/";

/// The namespace in the seed that the extension runs in.
pub(super) fn namespace_name(installation: &str) -> String {
    format!("extension-{installation}")
}

/// What the namespace's labels and annotations depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamespaceFacts<'a> {
    pub(super) registration: &'a str,
    pub(super) zones: &'a [String],
    pub(super) seed_is_garden: bool,
    /// Annotation `security.gardener.cloud/pod-security-enforce` of the installation.
    pub(super) pod_security: Option<&'a str>,
}

/// Labels the namespace; labels of others stay.
pub(super) fn label_namespace(namespace: &mut Value, facts: NamespaceFacts<'_>) {
    let metadata = &mut namespace["metadata"];
    let labels = &mut metadata["labels"];
    labels["gardener.cloud/role"] = json!("extension");
    labels[REGISTRATION_NAME_LABEL] = json!(facts.registration);
    labels["high-availability-config.resources.gardener.cloud/consider"] = json!("true");
    if facts.seed_is_garden {
        labels["networking.gardener.cloud/access-target-apiserver"] = json!("allowed");
    }
    let enforce = "pod-security.kubernetes.io/enforce";
    match facts.pod_security {
        Some(level) => labels[enforce] = json!(level),
        // Not null: in an object that is created, a server takes it for an empty text.
        None => drop(labels.as_object_mut().and_then(|labels| labels.remove(enforce))),
    }
    metadata["annotations"]["high-availability-config.resources.gardener.cloud/zones"] =
        json!(facts.zones.join(","));
}

/// SHA-256 in hexadecimal digits.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// First eight digits of SHA-256 over the digests of the values, in the order of their keys. Keys do not enter.
fn checksum(data: &BTreeMap<String, String>) -> String {
    let digests: String = data.values().map(|value| sha256_hex(value.as_bytes())).collect();
    let mut sum = sha256_hex(digests.as_bytes());
    sum.truncate(8);
    sum
}

/// The immutable Secret with the manifests.
pub(super) fn secret(installation: &str, data: &BTreeMap<String, String>) -> (Key, Value) {
    let (key, mut object) = unique_secret(GARDEN_NAMESPACE, installation, data);
    object["type"] = json!("Opaque");
    (key, object)
}

/// Brings a Secret to `wanted`: labels and content exactly, no annotations.
pub(super) fn set_secret(object: &mut Value, wanted: &Value) {
    for field in ["type", "immutable", "data"] {
        object[field] = wanted[field].clone();
    }
    let metadata = &mut object["metadata"];
    metadata["labels"] = wanted["metadata"]["labels"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("annotations");
    }
}

/// An immutable Secret whose name ends with the digest of its content; it goes when nobody refers to it any more.
pub(super) fn unique_secret(namespace: &str, name: &str, data: &BTreeMap<String, String>) -> (Key, Value) {
    let name = format!("{name}-{}", checksum(data));
    let encoded: Map<String, Value> =
        data.iter().map(|(key, text)| (key.clone(), json!(base64::encode(text.as_bytes())))).collect();
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {GARBAGE_LABEL: "true"}},
        "immutable": true,
        "data": encoded,
    });
    (Key::new(namespace, name), object)
}

/// Brings the ManagedResource to what it should be: class `seed`, one Secret, no old references.
pub(super) fn set_managed_resource(object: &mut Value, installation: &str, registration: &str, secret: &str) {
    let metadata = &mut object["metadata"];
    metadata["labels"][INSTALLATION_LABEL] = json!(installation);
    metadata["labels"][REGISTRATION_LABEL] = json!(registration);
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with(REFERENCE_PREFIX));
    }
    let sum = &sha256_hex(secret.as_bytes())[..8];
    metadata["annotations"][format!("{REFERENCE_PREFIX}secret-{sum}")] = json!(secret);
    object["spec"] = json!({"class": "seed", "secretRefs": [{"name": secret}]});
}

/// The Secrets that a ManagedResource refers to.
pub(super) fn referenced_secrets(managed_resource: &Value) -> Vec<Key> {
    let refs = managed_resource.pointer("/spec/secretRefs").and_then(Value::as_array);
    let names = refs.into_iter().flatten().filter_map(|r| r["name"].as_str());
    names.map(|name| Key::new(GARDEN_NAMESPACE, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_named_by_its_content() {
        let data =
            BTreeMap::from([("a.yaml".to_owned(), "x".to_owned()), ("b.yaml".to_owned(), "y".to_owned())]);
        let (key, object) = secret("ext-abcde", &data);
        // sha256(hex(sha256("x")) + hex(sha256("y")))
        assert_eq!(key.to_string(), "garden/ext-abcde-80d88848");
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "ext-abcde-80d88848",
                "namespace": "garden",
                "labels": {"resources.gardener.cloud/garbage-collectable-reference": "true"},
            },
            "type": "Opaque",
            "immutable": true,
            "data": {"a.yaml": "eA==", "b.yaml": "eQ=="},
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn the_managed_resource_refers_to_one_secret() {
        let mut object = json!({
            "metadata": {
                "name": "ext-abcde", "labels": {"foreign": "1"},
                "annotations": {"foreign": "1", "reference.resources.gardener.cloud/secret-00000000": "old"},
            },
            "spec": {"class": "seed", "keepObjects": true, "secretRefs": [{"name": "old"}]},
        });
        set_managed_resource(&mut object, "ext-abcde", "ext", "ext-abcde-12345678");
        assert_eq!(
            object,
            json!({
                "metadata": {
                    "name": "ext-abcde",
                    "labels": {
                        "foreign": "1", "controllerinstallation-name": "ext-abcde", "controllerregistration-name": "ext",
                    },
                    "annotations": {
                        "foreign": "1", "reference.resources.gardener.cloud/secret-001bab91": "ext-abcde-12345678",
                    },
                },
                "spec": {"class": "seed", "secretRefs": [{"name": "ext-abcde-12345678"}]},
            })
        );
    }

    #[test]
    fn the_namespace_follows_seed_and_installation() {
        let zones = ["a".to_owned(), "b".to_owned()];
        let mut namespace =
            json!({"metadata": {"labels": {"foreign": "1", "pod-security.kubernetes.io/enforce": "x"}}});
        let facts =
            NamespaceFacts { registration: "ext", zones: &zones, seed_is_garden: false, pod_security: None };
        label_namespace(&mut namespace, facts);
        assert_eq!(
            namespace["metadata"],
            json!({
                "labels": {
                    "foreign": "1",
                    "gardener.cloud/role": "extension",
                    "controllerregistration.core.gardener.cloud/name": "ext",
                    "high-availability-config.resources.gardener.cloud/consider": "true",
                },
                "annotations": {"high-availability-config.resources.gardener.cloud/zones": "a,b"},
            })
        );
        let facts = NamespaceFacts { seed_is_garden: true, pod_security: Some("baseline"), ..facts };
        label_namespace(&mut namespace, facts);
        let labels = &namespace["metadata"]["labels"];
        assert_eq!(labels["networking.gardener.cloud/access-target-apiserver"], "allowed");
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "baseline");
    }
}
