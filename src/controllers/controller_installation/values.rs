//! The tree `gardener` that the agent merges into the values of every extension chart. Its shape equals the API's JSON
//! (Gardener `pkg/gardenlet/controller/controllerinstallation`).

use serde_json::Value;

use crate::api::meta::text;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::chart::ValuesTable;

/// The input of the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct GardenerValues<'a> {
    pub(super) seed: &'a Value,
    pub(super) version: &'a str,
    /// The value of `cluster-identity` in the garden.
    pub(super) garden_identity: &'a str,
    /// Every known feature gate.
    pub(super) feature_gates: &'a SortedMap<String, bool>,
    /// Name of the Secret with the kubeconfig for the garden, if the deployment asks for it.
    pub(super) generic_kubeconfig: Option<&'a str>,
}

/// The tree, as values that override all others.
pub(super) fn mix_in(facts: GardenerValues<'_>) -> ValuesTable {
    let mut garden = json!({"clusterIdentity": facts.garden_identity});
    if let Some(name) = facts.generic_kubeconfig {
        garden["genericKubeconfigSecretName"] = json!(name);
    }
    let tree = json!({
        "version": facts.version,
        "garden": garden,
        "gardenlet": {"featureGates": facts.feature_gates},
        "seed": seed(facts.seed),
    });
    ValuesTable::from_iter([("gardener".to_owned(), tree)])
}

fn seed(seed: &Value) -> Value {
    let (metadata, spec) = (&seed["metadata"], &seed["spec"]);
    let mut out = json!({
        "name": metadata["name"],
        "clusterIdentity": seed["status"]["clusterIdentity"],
        // Absent maps and lists are null here, as Go writes nil.
        "annotations": metadata["annotations"],
        "labels": metadata["labels"],
        "provider": text(&spec["provider"]["type"]),
        "region": text(&spec["provider"]["region"]),
        "volumeProvider": volume_provider(spec),
        "volumeProviders": spec["volume"]["providers"],
        "protected": is_protected(spec),
        "visible": spec["settings"]["scheduling"]["visible"].as_bool().unwrap_or(false),
        "taints": spec["taints"],
        "networks": spec["networks"],
        "blockCIDRs": spec["networks"]["blockCIDRs"],
        "spec": spec,
    });
    if let Some(domain) = spec.pointer("/ingress/domain") {
        out["ingressDomain"] = domain.clone();
    }
    out
}

fn volume_provider(spec: &Value) -> &str {
    text(&spec["volume"]["providers"][0]["name"])
}

fn is_protected(spec: &Value) -> bool {
    let taints = spec["taints"].as_array();
    taints.into_iter().flatten().any(|taint| taint["key"] == "seed.gardener.cloud/protected")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Value {
        json!({
            "metadata": {"name": "edge-1", "labels": {"site": "north"}},
            "spec": {
                "provider": {"type": "local", "region": "north"},
                "networks": {"pods": "10.1.0.0/16", "services": "10.2.0.0/16", "blockCIDRs": ["1.1.1.1/32"]},
                "ingress": {"domain": "ingress.example.org"},
                "settings": {"scheduling": {"visible": true}},
                "taints": [{"key": "seed.gardener.cloud/protected"}],
                "volume": {"providers": [{"purpose": "etcd-main", "name": "flex"}]},
            },
            "status": {"clusterIdentity": "seed-id"},
        })
    }

    #[test]
    fn the_tree_has_every_path_of_upstream() {
        let gates =
            SortedMap::from([("AllAlpha".to_owned(), false), ("DefaultSeccompProfile".to_owned(), true)]);
        let seed = example();
        let facts = GardenerValues {
            seed: &seed,
            version: "v1.150.0",
            garden_identity: "garden-id",
            feature_gates: &gates,
            generic_kubeconfig: Some("generic-garden-kubeconfig-12345678"),
        };
        let without = mix_in(GardenerValues { generic_kubeconfig: None, ..facts });
        assert_eq!(without["gardener"]["garden"], json!({"clusterIdentity": "garden-id"}));
        assert_eq!(
            Value::Object(mix_in(facts)),
            json!({"gardener": {
                "version": "v1.150.0",
                "garden": {
                    "clusterIdentity": "garden-id",
                    "genericKubeconfigSecretName": "generic-garden-kubeconfig-12345678",
                },
                "gardenlet": {"featureGates": {"AllAlpha": false, "DefaultSeccompProfile": true}},
                "seed": {
                    "name": "edge-1",
                    "clusterIdentity": "seed-id",
                    "annotations": null,
                    "labels": {"site": "north"},
                    "provider": "local",
                    "region": "north",
                    "volumeProvider": "flex",
                    "volumeProviders": [{"purpose": "etcd-main", "name": "flex"}],
                    "ingressDomain": "ingress.example.org",
                    "protected": true,
                    "visible": true,
                    "taints": [{"key": "seed.gardener.cloud/protected"}],
                    "networks": seed["spec"]["networks"],
                    "blockCIDRs": ["1.1.1.1/32"],
                    "spec": seed["spec"],
                },
            }})
        );
    }
}
