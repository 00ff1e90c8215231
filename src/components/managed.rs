//! ManagedResources that the agent writes to the seed, and the Secrets with their manifests. Names, labels and
//! checksums are Gardener's (`pkg/utils/managedresources`), so that another gardenlet or gardener-resource-manager can
//! take them over unchanged.

use ring::digest;
use serde_json::{Map, Value};

use crate::api::core::SECRET;
use crate::api::gardener::OPERATION;
use crate::api::meta::{Key, Metadata};
use crate::api::resources::{GARBAGE_COLLECTABLE, GARDEN_NAMESPACE, MANAGED_RESOURCE, REFERENCE_PREFIX};
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::yaml::{self, Dialect};
use crate::format::{base64, brotli, hex};
use crate::kube::{Error, Patch, Seed, unless_absent};
use crate::runtime::write;

const ROLE_LABEL: &str = "gardener.cloud/role";
const COMPONENT_ROLE: &str = "seed-system-component";

/// Objects as one text.
pub(crate) fn manifests(objects: &[Value]) -> String {
    let texts: Vec<String> = objects.iter().map(|object| yaml::emit(object, Dialect::V4)).collect();
    texts.join("---\n")
}

/// A ManagedResource, in the namespace of its Secret.
#[derive(Clone, Debug)]
pub struct Managed {
    pub(crate) name: String,
    /// The name of its Secret and the Secret itself.
    secret: (Key, Value),
    kind: Kind,
    /// Labels of the ManagedResource and its Secret, besides those of its kind.
    labels: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The seed's health depends on it; it has the label of a system component.
    Component,
    /// Copies for the seed.
    Copies,
    /// For the cluster of a Shoot.
    Shoot {
        /// Its objects stay when it is deleted.
        keep_objects: bool,
    },
}

impl Managed {
    /// A system component of the seed, from manifests in one text.
    pub fn component(name: &str, manifests: &str) -> Self {
        let data = SortedMap::from([("data.yaml.br".to_owned(), brotli::encode(manifests.as_bytes()))]);
        let secret = secret(&format!("managedresource-{name}"), &data);
        Self { name: name.to_owned(), secret, kind: Kind::Component, labels: Vec::new() }
    }

    /// Unchanged copies of objects. Annotations that others set on the
    /// copies stay (upstream's `CreateFromUnstructured`).
    pub(crate) fn copies(name: &str, objects: &[Value]) -> Self {
        Self::copies_in(GARDEN_NAMESPACE, name, objects)
    }

    /// The same in another namespace.
    pub(crate) fn copies_in(namespace: &str, name: &str, objects: &[Value]) -> Self {
        let mut data = SortedMap::new();
        if !objects.is_empty() {
            let text: String = objects.iter().map(|object| format!("\n---\n{object}")).collect();
            data.insert(name.to_owned(), text);
        }
        let secret = opaque_secret(namespace, name, &data);
        Self { name: name.to_owned(), secret, kind: Kind::Copies, labels: Vec::new() }
    }

    /// Objects for the cluster of a Shoot, from manifests in one text. The namespace is the one of its control plane.
    pub(crate) fn for_shoot(namespace: &str, name: &str, keep_objects: bool, manifests: &str) -> Self {
        let data = SortedMap::from([("data.yaml.br".to_owned(), brotli::encode(manifests.as_bytes()))]);
        let secret = opaque_secret(namespace, &format!("managedresource-{name}"), &data);
        Self { name: name.to_owned(), secret, kind: Kind::Shoot { keep_objects }, labels: Vec::new() }
    }

    /// With these labels on the ManagedResource and its Secret.
    #[must_use]
    pub(crate) fn labelled(mut self, labels: Vec<(&'static str, String)>) -> Self {
        for (name, value) in &labels {
            self.secret.1["metadata"]["labels"][*name] = json!(value);
        }
        self.labels = labels;
        self
    }

    /// The ManagedResource and the content of its Secret, like a golden file of the tests.
    #[cfg(test)]
    pub(crate) fn golden(&self) -> String {
        let (key, secret) = &self.secret;
        let mut object = json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
            "metadata": {"name": self.name, "namespace": key.namespace}});
        self.set(&mut object, &key.name);
        let mut golden = yaml::emit(&object, Dialect::V4);
        for (entry, content) in plain(secret).into_iter().flatten() {
            let content = String::from_utf8_lossy(&content).into_owned();
            let content = content.trim_start_matches("\n---\n");
            golden.push_str(&format!("---\n# {entry}\n{content}"));
        }
        golden
    }

    /// Checks a ManagedResource for the cluster of a Shoot against the manifests of a Go gardenlet.
    #[cfg(test)]
    pub(crate) fn assert_for_shoot(&self, manifests: &str, keeps_objects: bool) {
        let golden = self.golden();
        let (object, own) = golden.split_once("---\n# data.yaml.br\n").unwrap();
        let object = yaml::parse(object).unwrap();
        assert_eq!(own.trim_end(), manifests.trim_end(), "{}", self.name);
        assert_eq!(object["metadata"]["namespace"], "shoot--p--s2");
        assert_eq!(object["metadata"]["labels"], json!({"origin": "gardener"}));
        let secret = &object["spec"]["secretRefs"][0]["name"];
        assert_eq!(
            object["spec"],
            json!({"injectLabels": {"shoot.gardener.cloud/no-cleanup": "true"}, "keepObjects": keeps_objects,
                "secretRefs": [{"name": secret}]})
        );
        assert!(secret.as_str().unwrap().starts_with(&format!("managedresource-{}-", self.name)));
    }

    fn set(&self, object: &mut Value, secret: &str) {
        set_managed_resource(object, secret);
        let metadata = &mut object["metadata"];
        let refs = json!([{"name": secret}]);
        let spec = match self.kind {
            Kind::Component => {
                metadata["labels"][ROLE_LABEL] = json!(COMPONENT_ROLE);
                json!({"class": "seed", "secretRefs": refs, "keepObjects": false})
            }
            Kind::Copies => json!({"class": "seed", "secretRefs": refs, "keepObjects": false,
                "forceOverwriteAnnotations": false}),
            Kind::Shoot { keep_objects } => {
                metadata["labels"]["origin"] = json!("gardener");
                json!({"secretRefs": refs, "keepObjects": keep_objects,
                    "injectLabels": {"shoot.gardener.cloud/no-cleanup": "true"}})
            }
        };
        for (name, value) in &self.labels {
            metadata["labels"][*name] = json!(value);
        }
        object["spec"] = spec;
    }
}

/// The objects in the text of [`Managed::golden`].
#[cfg(test)]
pub(crate) fn objects_of(golden: &str) -> Vec<Value> {
    let (_, own) = golden.split_once("---\n# data.yaml.br\n").unwrap();
    golden_objects(own)
}

/// The objects in a golden file, without the status that Go writes.
#[cfg(test)]
pub(crate) fn golden_objects(text: &str) -> Vec<Value> {
    let mut all: Vec<Value> =
        text.trim_end().split("\n---\n").map(|document| yaml::parse(document).unwrap()).collect();
    for object in &mut all {
        if object["kind"] != "ManagedResource"
            && let Some(object) = object.as_object_mut()
        {
            object.remove("status");
        }
    }
    all
}

/// Writes the Secret and the ManagedResource if they differ. Returns the generation of the ManagedResource.
///
/// Another program may have compressed the same manifests into other bytes, which gives the Secret another
/// name. That Secret stays in use. Errors: the first request that fails.
pub fn deploy(seed: &Seed, managed: &Managed) -> Result<i64, Error> {
    let (key, secret) = &managed.secret;
    let object = Key::new(key.namespace.as_str(), managed.name.as_str());
    let live = seed.find::<Value>(&MANAGED_RESOURCE, &object)?;
    let others = live.as_ref().map(referenced_secrets).unwrap_or_default();
    if let [other] = others.as_slice()
        && other != key
        && let Some(found) = seed.find::<Value>(&SECRET, other)?
        && plain(&found) == plain(secret)
    {
        let set = |object: &mut Value| managed.set(object, &other.name);
        return write::ensure(seed, &MANAGED_RESOURCE, &object, &set).map(|object| generation(&object));
    }
    apply(seed, &managed.name, key, secret, &|object| managed.set(object, &key.name))
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// The uncompressed entries of a Secret; `None` if an entry does not have the format that its name promises.
fn plain(secret: &Value) -> Option<SortedMap<&str, Vec<u8>>> {
    let data = secret["data"].as_object();
    data.into_iter()
        .flatten()
        .map(|(key, value)| {
            let bytes = base64::decode(value.as_str()?.as_bytes()).ok()?;
            let is_compressed = key.ends_with(".br");
            let bytes = if is_compressed { brotli::decode(&bytes, PLAIN_BYTES_MAX).ok()? } else { bytes };
            Some((key.as_str(), bytes))
        })
        .collect()
}

/// The manifests of every component are smaller.
const PLAIN_BYTES_MAX: usize = 1 << 20;

/// Writes a Secret and the ManagedResource that refers to it, and returns the generation of the
/// ManagedResource. The Secret is written first, so that a ManagedResource never refers to a missing one.
/// Errors: the first request that fails.
pub(crate) fn apply(
    seed: &Seed,
    name: &str,
    key: &Key,
    wanted: &Value,
    set: &dyn Fn(&mut Value),
) -> Result<i64, Error> {
    write::ensure(seed, &SECRET, key, &|object| set_secret(object, wanted))?;
    let managed = Key::new(key.namespace.as_str(), name);
    release_old_secrets(seed, &managed, key)?;
    write::ensure(seed, &MANAGED_RESOURCE, &managed, set).map(|object| generation(&object))
}

/// Asks the applier of a ManagedResource to apply it now. Errors: the request fails. A missing
/// object is no error.
pub(crate) fn apply_again(seed: &Seed, key: &Key) -> Result<(), Error> {
    let patch = Patch::annotation(OPERATION, "reconcile");
    unless_absent(seed.patch::<Value>(&MANAGED_RESOURCE, key, &patch)).map(drop)
}

/// The progress of a removal of a ManagedResource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Removal {
    /// It was deleted just now.
    Begun,
    /// Its objects are being deleted.
    Pending,
    /// It is gone, and its Secret is garbage.
    Gone,
}

/// Deletes a ManagedResource. Errors: the request fails. A missing object or kind is no error.
pub(crate) fn remove(seed: &Seed, key: &Key) -> Result<Removal, Error> {
    let Some(live) = seed.find::<Metadata>(&MANAGED_RESOURCE, key)? else {
        return Ok(Removal::Gone);
    };
    if live.metadata.deletion_timestamp.is_some() {
        return Ok(Removal::Pending);
    }
    let is_gone = write::delete(seed, &MANAGED_RESOURCE, key)?;
    Ok(if is_gone { Removal::Gone } else { Removal::Begun })
}

/// Marks Secrets that are no longer referenced for garbage collection: older agents did not mark them.
fn release_old_secrets(seed: &Seed, managed: &Key, present: &Key) -> Result<(), Error> {
    let live = seed.find::<Value>(&MANAGED_RESOURCE, managed)?;
    let old = live.as_ref().map(referenced_secrets).unwrap_or_default();
    for secret in old.into_iter().filter(|secret| secret != present) {
        if let Some(found) = seed.find::<Metadata>(&SECRET, &secret)?
            && found.metadata.labels.get(GARBAGE_COLLECTABLE).is_none_or(|value| value != "true")
        {
            let patch = Patch::Strategic(json!({"metadata": {"labels": {GARBAGE_COLLECTABLE: "true"}}}));
            seed.patch::<Value>(&SECRET, &secret, &patch)?;
        }
    }
    Ok(())
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// The first eight digits of SHA-256 over the digests of the values, ordered by key. The keys
/// themselves are not hashed.
pub(crate) fn checksum<V: AsRef<[u8]>>(data: &SortedMap<String, V>) -> String {
    let digests: String = data.values().map(|value| sha256_hex(value.as_ref())).collect();
    let mut sum = sha256_hex(digests.as_bytes());
    sum.truncate(8);
    sum
}

/// The immutable Secret with the manifests of a ManagedResource in namespace `garden`.
pub(crate) fn secret<V: AsRef<[u8]>>(name: &str, data: &SortedMap<String, V>) -> (Key, Value) {
    opaque_secret(GARDEN_NAMESPACE, name, data)
}

fn opaque_secret<V: AsRef<[u8]>>(namespace: &str, name: &str, data: &SortedMap<String, V>) -> (Key, Value) {
    let (key, mut object) = unique_secret(namespace, name, data);
    object["type"] = json!("Opaque");
    (key, object)
}

/// An immutable Secret whose name ends with the digest of its content. It is deleted when no object refers to it.
pub(crate) fn unique_secret<V: AsRef<[u8]>>(
    namespace: &str,
    name: &str,
    data: &SortedMap<String, V>,
) -> (Key, Value) {
    let name = format!("{name}-{}", checksum(data));
    let encoded: Map<String, Value> =
        data.iter().map(|(key, value)| (key.clone(), json!(base64::encode(value.as_ref())))).collect();
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {GARBAGE_COLLECTABLE: "true"}},
        "immutable": true,
    });
    // An API server stores no empty map, and treats one in a patch as a change of an immutable field.
    if !encoded.is_empty() {
        object["data"] = encoded.into();
    }
    (Key::new(namespace, name), object)
}

/// Sets a Secret to `wanted`: labels and content exactly, no annotations.
fn set_secret(object: &mut Value, wanted: &Value) {
    for field in ["type", "immutable"] {
        object[field] = wanted[field].clone();
    }
    object["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("annotations");
    }
    match wanted.get("data") {
        Some(data) => object["data"] = data.clone(),
        None => drop(object.as_object_mut().and_then(|object| object.remove("data"))),
    }
}

/// Sets a ManagedResource to its desired state: class `seed`, one Secret, no old references.
pub(crate) fn set_managed_resource(object: &mut Value, secret: &str) {
    let metadata = &mut object["metadata"];
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with(REFERENCE_PREFIX));
    }
    let sum = &sha256_hex(secret.as_bytes())[..8];
    metadata["annotations"][format!("{REFERENCE_PREFIX}secret-{sum}")] = json!(secret);
    object["spec"] = json!({"class": "seed", "secretRefs": [{"name": secret}]});
}

/// The Secrets that a ManagedResource refers to.
pub(crate) fn referenced_secrets(managed_resource: &Value) -> Vec<Key> {
    let refs = managed_resource.pointer("/spec/secretRefs").and_then(Value::as_array);
    let names = refs.into_iter().flatten().filter_map(|r| r["name"].as_str());
    let namespace = managed_resource.pointer("/metadata/namespace").and_then(Value::as_str);
    names.map(|name| Key::new(namespace.unwrap_or(GARDEN_NAMESPACE), name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_named_by_its_content() {
        let data = SortedMap::from([("a.yaml".to_owned(), "x"), ("b.yaml".to_owned(), "y")]);
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
    fn a_component_is_labelled_and_refers_to_one_secret() {
        let mut object = json!({
            "metadata": {
                "name": "system", "labels": {"foreign": "1"},
                "annotations": {"foreign": "1", "reference.resources.gardener.cloud/secret-00000000": "old"},
            },
            "spec": {"class": "seed", "keepObjects": true, "secretRefs": [{"name": "old"}]},
        });
        let component = Managed::component("system", "a: b\n");
        let secret = component.secret.0.name.as_str();
        component.set(&mut object, secret);
        assert!(secret.starts_with("managedresource-system-"), "{secret}");
        let reference =
            format!("reference.resources.gardener.cloud/secret-{}", &sha256_hex(secret.as_bytes())[..8]);
        assert_eq!(
            object,
            json!({
                "metadata": {
                    "name": "system",
                    "labels": {"foreign": "1", "gardener.cloud/role": "seed-system-component"},
                    "annotations": {"foreign": "1", reference: secret},
                },
                "spec": {"class": "seed", "keepObjects": false, "secretRefs": [{"name": secret}]},
            })
        );
    }

    /// The Go gardenlet's object for a Shoot without references.
    #[test]
    fn copies_of_nothing_are_an_empty_secret() {
        let nothing = Managed::copies("referenced-resources", &[]);
        let mut object = json!({"metadata": {"name": "referenced-resources"}});
        let secret = "referenced-resources-e3b0c442";
        assert_eq!(nothing.secret.0.name, secret);
        nothing.set(&mut object, secret);
        assert_eq!(
            object,
            json!({
                "metadata": {
                    "name": "referenced-resources",
                    "annotations": {"reference.resources.gardener.cloud/secret-1503ea48": secret},
                },
                "spec": {
                    "class": "seed", "forceOverwriteAnnotations": false, "keepObjects": false,
                    "secretRefs": [{"name": secret}],
                },
            })
        );
        assert_eq!(nothing.secret.1.get("data"), None);
        let mut live = json!({"metadata": {"name": secret}, "data": {"damaged": ""}});
        set_secret(&mut live, &nothing.secret.1);
        assert_eq!(live.get("data"), None);
    }

    #[test]
    fn the_same_manifests_in_other_bytes_are_the_same() {
        let text = "kind: A\n".repeat(9_000);
        let ours = Managed::component("system", &text).secret.1;
        let mut other = ours.clone();
        let mut stream = brotli::encode(text.as_bytes());
        let end = stream.pop().unwrap();
        // An empty metadata block before the end gives another stream with the same content.
        stream.extend([0b0000_0110, end]);
        other["data"]["data.yaml.br"] = json!(base64::encode(&stream));
        assert_ne!(ours, other);
        assert!(plain(&ours).is_some());
        assert_eq!(plain(&ours), plain(&other));
        other["data"]["data.yaml.br"] = json!(base64::encode(b"no stream"));
        assert_eq!(plain(&other), None);
    }
}
