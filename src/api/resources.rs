//! `resources.gardener.cloud/v1alpha1`: ManagedResources.

use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::meta::{Key, ObjectMeta, Resource};
use crate::base::sorted::SortedMap;

/// The kind `ManagedResource` of `resources.gardener.cloud/v1alpha1`.
pub const MANAGED_RESOURCE: Resource =
    Resource::new("resources.gardener.cloud", "v1alpha1", "ManagedResource", "managedresources", true);

/// The namespace in a seed for the seed's own ManagedResources and their Secrets.
pub(crate) const GARDEN_NAMESPACE: &str = "garden";
/// The label of a ManagedResource that names its ControllerInstallation.
pub(crate) const INSTALLATION_LABEL: &str = "controllerinstallation-name";
/// The label of a ManagedResource that names the condition of the Shoot to which it contributes.
pub(crate) const CARE_LABEL: &str = "care.gardener.cloud/condition-type";

/// Label of Secrets and ConfigMaps that the garbage collector deletes when no object refers to them.
pub const GARBAGE_COLLECTABLE: &str = "resources.gardener.cloud/garbage-collectable-reference";
/// Prefix of the annotations that refer to them.
pub const REFERENCE_PREFIX: &str = "reference.resources.gardener.cloud/";

/// The ControllerInstallation of a ManagedResource.
pub(crate) fn installation_of(managed: &ObjectMeta) -> Option<Key> {
    let name = managed.labels.get(INSTALLATION_LABEL).filter(|name| !name.is_empty())?;
    (managed.namespace == GARDEN_NAMESPACE).then(|| Key::cluster(name.as_str()))
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ManagedResource {
    /// Name, labels, finalizers.
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ManagedResourceSpec,
    /// The state that the applier reports.
    pub(crate) status: ManagedResourceStatus,
}

/// The desired state of a ManagedResource.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ManagedResourceSpec {
    /// The class of the responsible applier; unset: the applier of the shoot.
    pub(crate) class: String,
    /// Secrets in the same namespace that hold the manifests.
    pub(crate) secret_refs: Vec<SecretReference>,
    /// Labels for every object, pod template and volume claim template.
    pub(crate) inject_labels: SortedMap<String, String>,
    /// Whether labels of other writers are dropped.
    pub(crate) force_overwrite_labels: bool,
    /// Whether annotations of other writers are dropped.
    pub(crate) force_overwrite_annotations: bool,
    /// Whether the objects stay when the ManagedResource is deleted.
    pub(crate) keep_objects: bool,
    /// Sets of kinds that count as one kind.
    pub(crate) equivalences: Vec<Vec<GroupKind>>,
    /// Whether volume claims of removed StatefulSets are deleted.
    pub(crate) delete_persistent_volume_claims: bool,
}

/// The name of a Secret in the same namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SecretReference {
    pub(crate) name: String,
}

/// A kind without its version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GroupKind {
    /// The API group; empty for the core.
    pub(crate) group: String,
    pub(crate) kind: String,
}

/// The status that an applier reports of a ManagedResource.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ManagedResourceStatus {
    /// `ResourcesApplied`, `ResourcesHealthy`, `ResourcesProgressing`.
    pub(crate) conditions: Vec<Condition>,
    /// The generation that was applied last.
    pub(crate) observed_generation: i64,
    /// The objects in their desired state when they were last applied.
    pub(crate) resources: Vec<ObjectReference>,
    /// Hex of SHA-256 over the manifests.
    pub(crate) secrets_data_checksum: String,
}

/// An object of a ManagedResource, with the desired labels and annotations.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectReference {
    /// The group and the version.
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The namespace; empty for objects without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Desired labels, including injected ones.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub(crate) labels: SortedMap<String, String>,
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub(crate) annotations: SortedMap<String, String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::format::view;

    #[test]
    fn a_spec_may_leave_out_everything_but_secrets() {
        let spec: ManagedResourceSpec = view::read(json!({
            "secretRefs": [{"name": "a"}, {"name": "b"}], "injectLabels": null, "keepObjects": null, "class": "seed",
            "equivalences": [[{"group": "apps", "kind": "Deployment"}, {"group": "x", "kind": "Deployment"}]],
        }))
        .unwrap();
        assert_eq!(spec.secret_refs.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (spec.class.as_str(), spec.keep_objects, spec.force_overwrite_labels),
            ("seed", false, false)
        );
        assert_eq!(spec.equivalences[0][1].group, "x");
    }

    #[test]
    fn references_are_written_without_what_is_empty() {
        let reference = ObjectReference {
            api_version: "v1".into(),
            kind: "Namespace".into(),
            name: "n".into(),
            ..ObjectReference::default()
        };
        let value = serde_json::to_value(&reference).unwrap();
        assert_eq!(value, json!({"apiVersion": "v1", "kind": "Namespace", "name": "n"}));
        assert_eq!(view::read::<ObjectReference>(value).unwrap(), reference);
    }
}
