//! The object `Cluster` of the seed, from which extensions read a Shoot. It also stores the Shoot's name in the seed.

use serde_json::Value;

use crate::api::extensions::CLUSTER;
use crate::api::gardener::{CLOUD_PROFILE, SEED, SHOOT};
use crate::api::meta::{Key, Metadata, Resource, text};
use crate::base::json::json;
use crate::flow::Failed;
use crate::kube::{Patch, Seed};
use crate::runtime::write;

use super::inputs::GardenInputs;
use super::work::Environment;

/// The annotation with the name of the generic kubeconfig's Secret.
pub(crate) const GENERIC_KUBECONFIG: &str = "generic-token-kubeconfig.secret.gardener.cloud/name";

/// The name of a Shoot's namespace and `Cluster` in the seed. It never changes, so an existing value in the Shoot wins.
pub(crate) fn technical_id(project: &str, shoot: &Value) -> String {
    match text(&shoot["status"]["technicalID"]) {
        "" => format!("shoot--{project}--{}", text(&shoot["metadata"]["name"])),
        known => known.to_owned(),
    }
}

/// The `Cluster` of a Shoot. A field whose object is null, because it is unknown now, is omitted: the writer
/// then keeps the live value.
pub(crate) fn fill(shoot: &Value, seed: &Value, cloud_profile: &Value) -> Value {
    let profile = general(cloud_profile);
    let mut spec = json!({});
    for (field, object, resource) in
        [("cloudProfile", &profile, &CLOUD_PROFILE), ("seed", seed, &SEED), ("shoot", shoot, &SHOOT)]
    {
        if !object.is_null() {
            spec[field] = embedded(object, resource);
        }
    }
    json!({
        "apiVersion": CLUSTER.api_version(),
        "kind": CLUSTER.kind,
        "metadata": {"name": text(&shoot["status"]["technicalID"])},
        "spec": spec,
    })
}

/// Writes the `Cluster` of a Shoot.
pub(crate) fn sync(env: &Environment, shoot: &Value, inputs: &GardenInputs) -> Result<(), Failed> {
    let wanted = fill(shoot, &inputs.seed, &inputs.profile);
    let key = Key::cluster(text(&wanted["metadata"]["name"]));
    let written = write::ensure(&env.seed, &CLUSTER, &key, &|cluster| {
        for (field, value) in wanted["spec"].as_object().into_iter().flatten() {
            cluster["spec"][field] = value.clone();
        }
    })?;
    env.served.clusters().tell(&written);
    Ok(())
}

/// Writes the name of the generic kubeconfig's Secret to the `Cluster`.
pub(super) fn name_kubeconfig(seed: &Seed, cluster: &str, secret: &str) -> Result<(), Failed> {
    let key = Key::cluster(cluster);
    let found = seed.find::<Metadata>(&CLUSTER, &key)?;
    let known = found.and_then(|found| found.metadata.annotations.get(GENERIC_KUBECONFIG).cloned());
    if known.as_deref() != Some(secret) {
        let patch = Patch::annotation(GENERIC_KUBECONFIG, secret);
        seed.patch::<Value>(&CLUSTER, &key, &patch)?;
    }
    Ok(())
}

/// Extensions get a NamespacedCloudProfile as a CloudProfile, merged with its parent.
fn general(profile: &Value) -> Value {
    match &profile["status"]["cloudProfileSpec"] {
        Value::Null => profile.clone(),
        spec => json!({"metadata": profile["metadata"], "spec": spec}),
    }
}

/// The whole object with its kind, which lists omit, and without the fields that only API servers read.
fn embedded(object: &Value, resource: &Resource) -> Value {
    let mut copy = object.clone();
    copy["apiVersion"] = json!(resource.api_version());
    copy["kind"] = json!(resource.kind);
    if let Some(metadata) = copy["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> Value {
        serde_json::from_str(include_str!("../../tests/fixtures/golden-shoot-cluster.json")).unwrap()
    }

    /// As a real server returns it in a list.
    fn listed(object: &Value) -> Value {
        let mut copy = object.clone();
        copy.as_object_mut().unwrap().retain(|key, _| key != "apiVersion" && key != "kind");
        copy["metadata"]["managedFields"] = json!([{"manager": "gardenlet"}]);
        copy
    }

    #[test]
    fn it_is_the_object_that_upstream_writes() {
        let golden = golden();
        let [shoot, seed, profile] =
            ["shoot", "seed", "cloudProfile"].map(|field| listed(&golden["spec"][field]));
        let mut expected = golden.clone();
        expected["metadata"] = json!({"name": "shoot--p--s1"});
        assert_eq!(fill(&shoot, &seed, &profile), expected);
        assert_eq!(
            golden["metadata"]["annotations"].as_object().unwrap().keys().next().unwrap(),
            GENERIC_KUBECONFIG
        );
        let half = fill(&shoot, &Value::Null, &Value::Null);
        assert_eq!(half["spec"].as_object().unwrap().keys().collect::<Vec<_>>(), ["shoot"]);
    }

    #[test]
    fn the_profile_of_a_namespace_is_merged_with_its_parent() {
        let profile = json!({"metadata": {"name": "own", "namespace": "garden-p"},
            "spec": {"parent": {"kind": "CloudProfile", "name": "lab"}}, "status": {"cloudProfileSpec": {"type": "lab"}}});
        let cluster = fill(&json!({}), &Value::Null, &profile);
        assert_eq!(
            cluster["spec"]["cloudProfile"],
            json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "CloudProfile",
                "metadata": {"name": "own", "namespace": "garden-p"}, "spec": {"type": "lab"}})
        );
    }

    #[test]
    fn the_technical_id_never_changes() {
        let mut shoot = json!({"metadata": {"name": "s1"}, "status": {"technicalID": ""}});
        assert_eq!(technical_id("p", &shoot), "shoot--p--s1");
        shoot["status"]["technicalID"] = json!("shoot-p-s1");
        assert_eq!(technical_id("p", &shoot), "shoot-p-s1");
    }
}
