//! The garden objects that an operation reads besides the Shoot: its Project, its CloudProfile, the Seed.

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, ConfigMap, NAMESPACE, SECRET};
use crate::api::gardener::{CLOUD_PROFILE, NAMESPACED_CLOUD_PROFILE, PROJECT, seed_namespace};
use crate::api::meta::{Key, Metadata, Resource, text};
use crate::base::error::chain;
use crate::flow::Failed;
use crate::kube::{self, Garden, ListParams};

/// The label of a Project's namespace that contains the name of the Project.
const PROJECT_LABEL: &str = "project.gardener.cloud/name";

/// The objects.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// The name of the Project.
    pub(super) project: String,
    /// A CloudProfile or NamespacedCloudProfile.
    pub(super) profile: Value,
    /// The Seed of this agent.
    pub(super) seed: Value,
    /// The identity of the garden cluster.
    pub(super) garden: String,
    /// The Secrets that the garden keeps for the seed, including those of domains.
    pub(super) secrets: Vec<Value>,
}

/// Reads the objects. Projects cannot be listed, so the label of the Shoot's namespace names its Project.
pub(super) fn read(garden: &Garden, shoot: &Value, seed: Value) -> Result<Surroundings, Failed> {
    let namespace = text(&shoot["metadata"]["namespace"]);
    let found: Metadata = required(garden, &NAMESPACE, "", namespace)?;
    let project = found.metadata.labels.get(PROJECT_LABEL).cloned().ok_or_else(|| {
        Failed::new(format!(
            "namespace {namespace} of the garden has no label {PROJECT_LABEL}: it belongs to no Project"
        ))
    })?;
    let _: Metadata = required(garden, &PROJECT, "", &project)?;
    let identity: ConfigMap = required(garden, &CONFIG_MAP, "kube-system", IDENTITY)?;
    let kept = seed_namespace(text(&seed["metadata"]["name"]));
    let roles = ListParams { label_selector: "gardener.cloud/role".to_owned(), ..ListParams::default() };
    let mut secrets = Vec::new();
    garden.list_all::<Value>(&SECRET, &kept, &roles, &mut |secret| secrets.push(secret))?;
    Ok(Surroundings {
        project,
        profile: profile(garden, shoot)?,
        seed,
        garden: identity.data.get(IDENTITY).cloned().unwrap_or_default(),
        secrets,
    })
}

/// Name and key of the ConfigMap with a cluster's identity.
const IDENTITY: &str = "cluster-identity";

fn profile(garden: &Garden, shoot: &Value) -> Result<Value, Failed> {
    let (kind, name) = profile_of(shoot);
    if kind != NAMESPACED {
        return required(garden, &CLOUD_PROFILE, "", name);
    }
    let namespace = text(&shoot["metadata"]["namespace"]);
    required(garden, &NAMESPACED_CLOUD_PROFILE, namespace, name)
}

const NAMESPACED: &str = "NamespacedCloudProfile";

/// Kind and name of the Shoot's profile, from the present field or the older one.
fn profile_of(shoot: &Value) -> (&str, &str) {
    let reference = &shoot["spec"]["cloudProfile"];
    match text(&reference["name"]) {
        "" => ("CloudProfile", text(&shoot["spec"]["cloudProfileName"])),
        name => (reference["kind"].as_str().unwrap_or("CloudProfile"), name),
    }
}

fn required<T: serde::de::DeserializeOwned>(
    garden: &Garden,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<T, Failed> {
    let failed = |error: kube::Error| Failed {
        text: format!("read {} {name} of the garden: {}", resource.kind, chain(&error)),
        postponed: error.postponed(),
        ..Failed::default()
    };
    garden.find(resource, &Key::new(namespace, name)).map_err(failed)?.ok_or_else(|| {
        Failed::new(format!("the garden has no {} {name}, which the Shoot needs", resource.kind))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn which_profile_a_shoot_names() {
        let table = [
            (json!({"cloudProfileName": "old"}), ("CloudProfile", "old")),
            (json!({"cloudProfileName": "old", "cloudProfile": {"name": "new"}}), ("CloudProfile", "new")),
            (
                json!({"cloudProfile": {"kind": "NamespacedCloudProfile", "name": "own"}}),
                ("NamespacedCloudProfile", "own"),
            ),
            (json!({}), ("CloudProfile", "")),
        ];
        for (spec, expected) in table {
            assert_eq!(profile_of(&json!({"spec": spec})), expected);
        }
    }
}
