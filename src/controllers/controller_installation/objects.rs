//! The objects of an installation in the seed: its Namespace, and the labels of its ManagedResource. See [`managed`]
//! for Secret and ManagedResource.

use serde_json::Value;

use crate::api::resources::INSTALLATION_LABEL;
use crate::base::json::json;
use crate::components::managed;

/// The registration that a namespace, or an account in the garden, belongs to.
pub(super) const REGISTRATION_NAME_LABEL: &str = "controllerregistration.core.gardener.cloud/name";
const REGISTRATION_LABEL: &str = "controllerregistration-name";

/// The namespace in the seed that the extension runs in.
pub(super) fn namespace_name(installation: &str) -> String {
    format!("extension-{installation}")
}

/// The input of the namespace's labels and annotations.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamespaceFacts<'a> {
    pub(super) registration: &'a str,
    pub(super) zones: &'a [String],
    pub(super) seed_is_garden: bool,
    /// Annotation `security.gardener.cloud/pod-security-enforce` of the installation.
    pub(super) pod_security: Option<&'a str>,
}

/// Labels the namespace. Labels of other writers stay.
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
        // Not null: in a created object, a server reads null as an empty text.
        None => drop(labels.as_object_mut().and_then(|labels| labels.remove(enforce))),
    }
    metadata["annotations"]["high-availability-config.resources.gardener.cloud/zones"] =
        json!(facts.zones.join(","));
}

/// Sets the ManagedResource to its desired state, with the labels of its installation.
pub(super) fn set_managed_resource(object: &mut Value, installation: &str, registration: &str, secret: &str) {
    let labels = &mut object["metadata"]["labels"];
    labels[INSTALLATION_LABEL] = json!(installation);
    labels[REGISTRATION_LABEL] = json!(registration);
    managed::set_managed_resource(object, secret);
}

#[cfg(test)]
mod tests {
    use super::*;

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
