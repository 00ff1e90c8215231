//! The garden objects that an operation reads besides the Shoot: its Project, its CloudProfile, the Seed.

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, ConfigMap, NAMESPACE, SECRET};
use crate::api::gardener::{CLOUD_PROFILE, NAMESPACED_CLOUD_PROFILE, PROJECT, seed_namespace};
use crate::api::meta::{Key, Metadata, Resource, text};
use crate::base::error::chain;
use crate::flow::Failed;
use crate::kube::{self, Garden, ListParams};
use crate::shoot::state::ShootState;
use crate::shoot::{ShootView, ShootViewSources};

/// The label of a Project's namespace that contains the name of the Project.
const PROJECT_LABEL: &str = "project.gardener.cloud/name";

/// The objects, as far as operations need them.
#[derive(Clone, Debug)]
pub(crate) struct GardenInputs {
    /// The name of the Project.
    pub(crate) project: String,
    /// A CloudProfile or NamespacedCloudProfile.
    pub(crate) profile: Value,
    /// The Seed of this agent.
    pub(crate) seed: Value,
    /// The identity of the garden cluster.
    pub(crate) garden_identity: String,
    /// The Secrets that the garden keeps for the seed, including those of domains.
    pub(crate) secrets: Vec<Value>,
    /// What another seed has left of the Shoot, for a restoration.
    pub(crate) state: Option<ShootState>,
}

/// Reads the objects, for a Shoot on this Seed. Projects cannot be listed, so the label of the Shoot's
/// namespace names its Project. Errors: a request fails, or an object is missing.
pub(crate) fn read(garden: &Garden, shoot: &Value, seed: Value) -> Result<GardenInputs, Failed> {
    let namespace = text(&shoot["metadata"]["namespace"]);
    let found: Metadata = required(garden, &NAMESPACE, &Key::cluster(namespace))?;
    let project = found.metadata.labels.get(PROJECT_LABEL).cloned().ok_or_else(|| {
        Failed::new(format!(
            "namespace {namespace} of the garden has no label {PROJECT_LABEL}: it belongs to no Project"
        ))
    })?;
    let _: Metadata = required(garden, &PROJECT, &Key::cluster(project.as_str()))?;
    let identity: ConfigMap = required(garden, &CONFIG_MAP, &Key::new("kube-system", IDENTITY))?;
    let kept = seed_namespace(text(&seed["metadata"]["name"]));
    let roles = ListParams { label_selector: "gardener.cloud/role".to_owned(), ..ListParams::default() };
    let mut secrets = Vec::new();
    garden.list_all::<Value>(&SECRET, &kept, &roles, &mut |secret| secrets.push(secret))?;
    Ok(GardenInputs {
        project,
        profile: profile(garden, shoot)?,
        seed,
        garden_identity: identity.data.get(IDENTITY).cloned().unwrap_or_default(),
        secrets,
        state: None,
    })
}

impl GardenInputs {
    /// The view of the Shoot that they belong to.
    pub(crate) fn view(&self, shoot: &Value) -> ShootView {
        ShootView::new(ShootViewSources {
            shoot,
            seed: &self.seed,
            project: &self.project,
            garden: &self.garden_identity,
            secrets: &self.secrets,
        })
    }
}

/// Name and key of the ConfigMap with a cluster's identity.
const IDENTITY: &str = "cluster-identity";

fn profile(garden: &Garden, shoot: &Value) -> Result<Value, Failed> {
    let (kind, name) = profile_of(shoot);
    if kind != NAMESPACED {
        return required(garden, &CLOUD_PROFILE, &Key::cluster(name));
    }
    let namespace = text(&shoot["metadata"]["namespace"]);
    required(garden, &NAMESPACED_CLOUD_PROFILE, &Key::new(namespace, name))
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
    key: &Key,
) -> Result<T, Failed> {
    let name = &key.name;
    let failed = |error: kube::Error| {
        let text = format!("read {} {name} of the garden: {}", resource.kind, chain(&error));
        Failed::request(text, &error)
    };
    garden.find(resource, key).map_err(failed)?.ok_or_else(|| {
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
