//! What all objects have in common: the API path, the key and the metadata.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::clock::Timestamp;
use crate::base::sorted::SortedMap;
use crate::format::percent;

/// A kind and its place in the API.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// Version within the group, such as `v1`.
    pub version: Cow<'static, str>,
    /// Kind, such as `Secret`.
    pub kind: Cow<'static, str>,
    /// Name in paths, such as `secrets`.
    pub plural: Cow<'static, str>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// A kind that is known at compile time.
    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
            plural: Cow::Borrowed(plural),
            namespaced,
        }
    }

    /// The `apiVersion` of its objects: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone().into_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of its objects in a namespace; in all of them if it is empty. The namespace is
    /// ignored for cluster-scoped kinds.
    pub fn collection_path(&self, namespace: &str) -> String {
        self.path(namespace, &[])
    }

    /// The path of an object; with an empty name, of its collection. Every segment is percent-encoded.
    pub fn object_path(&self, key: &Key) -> String {
        self.path(&key.namespace, &[&key.name])
    }

    /// The path of a subresource of an object, such as `status`.
    pub fn subresource_path(&self, key: &Key, subresource: &str) -> String {
        self.path(&key.namespace, &[&key.name, subresource])
    }

    fn path(&self, namespace: &str, rest: &[&str]) -> String {
        let mut path = if self.group.is_empty() { "/api".to_owned() } else { "/apis".to_owned() };
        let mut push = |segment: &str| {
            if !segment.is_empty() {
                path.push('/');
                encode_segment(&mut path, segment);
            }
        };
        push(&self.group);
        push(&self.version);
        if self.namespaced && !namespace.is_empty() {
            push("namespaces");
            push(namespace);
        }
        push(&self.plural);
        for segment in rest {
            push(segment);
        }
        path
    }
}

/// RFC 3986 `pchar` unchanged, the rest as `%XX`. A segment of dots only is encoded too: paths must not climb.
fn encode_segment(out: &mut String, segment: &str) {
    let only_dots = segment.bytes().all(|b| b == b'.');
    percent::encode(out, segment.as_bytes(), &|byte| {
        let plain = percent::is_unreserved(byte) || b"!$&'()*+,;=:@".contains(&byte);
        plain && !(byte == b'.' && only_dots)
    });
}

/// The namespace of a list or a watch of all namespaces, or of a cluster-scoped kind.
pub const ALL_NAMESPACES: &str = "";
/// The namespace of a cluster-scoped object.
pub const CLUSTER_SCOPED: &str = "";

/// A text field of an object; empty if it is missing or something else.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// One annotation of an object; empty if it is missing.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    text(&object["metadata"]["annotations"][name])
}

/// Whether a text is what Go's `strconv.ParseBool` reads as true.
pub(crate) fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// Identifies an object of a kind within a cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Key {
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name within the namespace.
    pub name: String,
}

impl Key {
    /// The key of an object; its parts are empty if they are missing.
    pub fn of(object: &Value) -> Self {
        Self::new(text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
    }

    /// A key from its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: String::new(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// `ObjectMeta` as the program reads it. Unknown fields are dropped; an absent one has its default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Name; may be empty in a create with `generate_name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    /// Prefix of a name that the server chooses.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) generate_name: String,
    /// Identity over time: a re-created object has another UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    /// Opaque version of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Grows with each change of the desired state.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) generation: i64,
    /// When the server first stored it.
    #[serde(with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub(crate) creation_timestamp: Option<Timestamp>,
    /// When it was deleted, or will be.
    #[serde(with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub(crate) deletion_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub(crate) labels: SortedMap<String, String>,
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub(crate) annotations: SortedMap<String, String>,
    /// The controllers that must agree to its deletion.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) finalizers: Vec<String>,
    /// The owners: when they are deleted, this object is deleted too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) owner_references: Vec<OwnerReference>,
}

impl ObjectMeta {
    /// The key of the object.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace.clone(), self.name.clone())
    }
}

/// A reference to an owner in the same namespace, or to a cluster-scoped one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    /// `apiVersion` of the owner.
    pub(crate) api_version: String,
    /// Kind of the owner.
    pub(crate) kind: String,
    /// Name of the owner.
    pub(crate) name: String,
    /// UID of the owner.
    pub(crate) uid: String,
    /// Whether it is the managing controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<bool>,
    /// Whether a foreground deletion of the owner waits for this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) block_owner_deletion: Option<bool>,
}

/// The view of an object whose body is not read (`PartialObjectMetadata`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// `apiVersion`; `meta.k8s.io/v1` if only metadata was asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind; `PartialObjectMetadata` if only metadata was asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The metadata.
    pub metadata: ObjectMeta,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
const fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// RFC 3339 in JSON; absent, `null`, empty and unreadable are all `None`.
mod optional_time {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::base::clock::Timestamp;
    use crate::format::time::{parse_rfc3339, rfc3339};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<String>::deserialize(d)?.and_then(|text| parse_rfc3339(&text).ok()))
    }

    #[allow(clippy::ref_option)] // serde passes a reference
    pub(super) fn serialize<S: Serializer>(time: &Option<Timestamp>, s: S) -> Result<S::Ok, S::Error> {
        match time {
            None => s.serialize_none(),
            Some(time) => s.serialize_str(&rfc3339(*time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::view;

    #[test]
    fn paths_follow_group_scope_and_subresource() {
        let secret = Resource::new("", "v1", "Secret", "secrets", true);
        let csr = Resource::new(
            "certificates.k8s.io",
            "v1",
            "CertificateSigningRequest",
            "certificatesigningrequests",
            false,
        );
        let table = [
            (secret.collection_path(""), "/api/v1/secrets"),
            (secret.collection_path("garden"), "/api/v1/namespaces/garden/secrets"),
            (
                secret.subresource_path(&Key::new("garden", "a b/c"), "status"),
                "/api/v1/namespaces/garden/secrets/a%20b%2Fc/status",
            ),
            (secret.object_path(&Key::new("garden", "..")), "/api/v1/namespaces/garden/secrets/%2E%2E"),
            (
                csr.subresource_path(&Key::new("ignored", "system:x.y"), "approval"),
                "/apis/certificates.k8s.io/v1/certificatesigningrequests/system:x.y/approval",
            ),
        ];
        for (path, expected) in table {
            assert_eq!(path, expected);
        }
        assert_eq!((secret.api_version(), csr.api_version()), ("v1".into(), "certificates.k8s.io/v1".into()));
    }

    #[test]
    fn metadata_reads_nulls_and_drops_the_unknown() {
        let text = r#"{"name":"n","labels":null,"finalizers":null,"generation":null,"managedFields":[{}],
            "creationTimestamp":"2025-01-02T03:04:05Z","deletionTimestamp":null}"#;
        let meta: ObjectMeta = view::parse(text.as_bytes()).unwrap();
        assert_eq!(meta.creation_timestamp, Some(Timestamp::from_unix(1_735_787_045)));
        assert_eq!(
            serde_json::to_string(&meta).unwrap(),
            r#"{"name":"n","creationTimestamp":"2025-01-02T03:04:05Z"}"#
        );
        assert_eq!(meta.key().to_string(), "n");
        assert_eq!(Key::new("a", "b").to_string(), "a/b");
    }
}
