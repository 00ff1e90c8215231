//! What the agent mixes into the values of every extension chart: the tree `gardener`. Shapes equal the API's JSON
//! (Gardener `pkg/gardenlet/controller/controllerinstallation`).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What the tree is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// The whole Seed.
    pub(super) seed: &'a Value,
    /// Gardener's version.
    pub(super) version: &'a str,
    /// `cluster-identity` of the garden.
    pub(super) garden_identity: &'a str,
    /// Every known gate.
    pub(super) feature_gates: &'a BTreeMap<String, bool>,
}

/// The tree.
pub(super) fn mix_in(facts: Facts<'_>) -> Value {
    json!({"gardener": {
        "version": facts.version,
        "garden": {"clusterIdentity": facts.garden_identity},
        "gardenlet": {"featureGates": facts.feature_gates},
        "seed": seed(facts.seed),
    }})
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

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn volume_provider(spec: &Value) -> &str {
    text(&spec["volume"]["providers"][0]["name"])
}

fn is_protected(spec: &Value) -> bool {
    let taints = spec["taints"].as_array();
    taints.into_iter().flatten().any(|taint| taint["key"] == "seed.gardener.cloud/protected")
}

/// `over` wins, nested maps merge.
pub(super) fn merged(under: Value, over: Value) -> Value {
    match (under, over) {
        (Value::Object(mut under), Value::Object(over)) => {
            for (key, value) in over {
                let below = under.remove(&key).unwrap_or(Value::Null);
                under.insert(key, merged(below, value));
            }
            Value::Object(under)
        }
        (_, over) => over,
    }
}

/// The chart's values: what the deployment says, with the tree mixed in.
///
/// # Errors
/// If the deployment's values are not a map.
pub(super) fn chart_values(deployment: &Value, facts: Facts<'_>) -> Result<Value, String> {
    let own = match deployment {
        Value::Null => Value::Object(Map::new()),
        Value::Object(_) => deployment.clone(),
        // Not what it is: values may hold secrets.
        _ => return Err("helm.values must be a map".to_owned()),
    };
    Ok(merged(own, mix_in(facts)))
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
            BTreeMap::from([("AllAlpha".to_owned(), false), ("DefaultSeccompProfile".to_owned(), true)]);
        let seed = example();
        let facts =
            Facts { seed: &seed, version: "v1.150.0", garden_identity: "garden-id", feature_gates: &gates };
        assert_eq!(
            mix_in(facts),
            json!({"gardener": {
                "version": "v1.150.0",
                "garden": {"clusterIdentity": "garden-id"},
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

    #[test]
    fn the_mix_in_wins_and_maps_merge() {
        let under = json!({"a": {"x": 1, "y": 2}, "b": [1], "gardener": {"version": "mine", "own": true}});
        let over = json!({"a": {"y": 3}, "b": [2], "gardener": {"version": "v1"}});
        let expected = json!({"a": {"x": 1, "y": 3}, "b": [2], "gardener": {"version": "v1", "own": true}});
        assert_eq!(merged(under, over), expected);
    }

    #[test]
    fn values_must_be_a_map() {
        let (gates, seed) = (BTreeMap::new(), example());
        let facts = Facts { seed: &seed, version: "v", garden_identity: "g", feature_gates: &gates };
        assert!(chart_values(&Value::Null, facts).is_ok());
        assert_eq!(chart_values(&json!([1]), facts).unwrap_err(), "helm.values must be a map");
    }
}
