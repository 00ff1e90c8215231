//! Registration: the Seed object is made from `seedConfig`, or brought to it.

use serde_json::{Map, Value, json};

use crate::api::patch::difference;
use crate::config::settings::SeedConfig;

/// What to send.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create this object.
    Create(Value),
    /// A JSON merge patch.
    Patch(Value),
    /// It is as configured.
    Nothing,
}

/// Labels that the garden's API server keeps on Seeds. Upstream drops them with each registration and the server puts them
/// back.
fn is_kept_by_server(label: &str) -> bool {
    matches!(label, "seed.gardener.cloud/provider" | "seed.gardener.cloud/region")
        || label.starts_with("name.seed.gardener.cloud/")
}

/// Decides from the live Seed. Annotations are added and never removed; labels and spec become the configured ones; an
/// existing `dns.defaults` survives if the configuration has none.
pub fn decide(live: Option<&Value>, config: &SeedConfig) -> Action {
    let Some(live) = live else { return Action::Create(object(config)) };
    let mut wanted = live.clone();
    merge_annotations(&mut wanted, config);
    wanted["metadata"]["labels"] = labels(Some(&live["metadata"]["labels"]), config);
    wanted["spec"] = config.spec.clone();
    let defaults = &live["spec"]["dns"]["defaults"];
    if config.spec["dns"].get("defaults").is_none() && !defaults.is_null() {
        wanted["spec"]["dns"]["defaults"] = defaults.clone();
    }
    // What the server has filled in is reset, as upstream: it fills in its defaults again, and a setting that left the
    // configuration does not linger.
    difference(live, &wanted).map_or(Action::Nothing, Action::Patch)
}

fn object(config: &SeedConfig) -> Value {
    let mut object = json!({
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "Seed",
        "metadata": {"name": config.name, "labels": labels(None, config)},
        "spec": config.spec,
    });
    merge_annotations(&mut object, config);
    object
}

fn merge_annotations(object: &mut Value, config: &SeedConfig) {
    for (key, value) in &config.annotations {
        object["metadata"]["annotations"][key] = json!(value);
    }
}

fn labels(live: Option<&Value>, config: &SeedConfig) -> Value {
    let kept = live.and_then(Value::as_object).into_iter().flatten();
    let mut labels: Map<String, Value> = kept
        .filter(|(key, _)| is_kept_by_server(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    labels.insert("gardener.cloud/role".to_owned(), json!("seed"));
    labels.extend(config.labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    Value::Object(labels)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn config() -> SeedConfig {
        SeedConfig {
            name: "edge-1".to_owned(),
            labels: BTreeMap::from([("site".to_owned(), "north".to_owned())]),
            annotations: BTreeMap::from([("a".to_owned(), "1".to_owned())]),
            spec: json!({"provider": {"type": "local"}, "networks": {"pods": "10.1.0.0/16"}, "dns": {"internal": {}}}),
        }
    }

    fn registered() -> Value {
        let Action::Create(mut live) = decide(None, &config()) else { panic!("not created") };
        live["metadata"]["labels"]["name.seed.gardener.cloud/edge-1"] = json!("true");
        live["metadata"]["labels"]["seed.gardener.cloud/provider"] = json!("local");
        live["metadata"]["resourceVersion"] = json!("5");
        live
    }

    #[test]
    fn a_new_seed_is_what_is_configured() {
        assert_eq!(
            decide(None, &config()),
            Action::Create(json!({
                "apiVersion": "core.gardener.cloud/v1beta1",
                "kind": "Seed",
                "metadata": {
                    "name": "edge-1",
                    "labels": {"gardener.cloud/role": "seed", "site": "north"},
                    "annotations": {"a": "1"},
                },
                "spec": {"provider": {"type": "local"}, "networks": {"pods": "10.1.0.0/16"}, "dns": {"internal": {}}},
            }))
        );
    }

    #[test]
    fn labels_of_the_server_need_no_write_and_its_defaults_are_reset() {
        let mut live = registered();
        assert_eq!(decide(Some(&live), &config()), Action::Nothing);
        live["spec"]["settings"] = json!({"scheduling": {"visible": false}});
        assert_eq!(decide(Some(&live), &config()), Action::Patch(json!({"spec": {"settings": null}})));
    }

    #[test]
    fn labels_are_replaced_annotations_are_kept() {
        let mut live = registered();
        live["metadata"]["labels"]["old"] = json!("x");
        live["metadata"]["annotations"]["foreign"] = json!("y");
        let patch = json!({"metadata": {"labels": {"old": null}}});
        assert_eq!(decide(Some(&live), &config()), Action::Patch(patch));
    }

    #[test]
    fn default_domains_survive_and_other_fields_do_not() {
        let mut live = registered();
        live["spec"]["dns"]["defaults"] = json!([{"domain": "d"}]);
        assert_eq!(decide(Some(&live), &config()), Action::Nothing);
        live["spec"]["backup"] = json!({"provider": "x"});
        live["spec"]["networks"]["pods"] = json!("10.2.0.0/16");
        let patch = json!({"spec": {"backup": null, "networks": {"pods": "10.1.0.0/16"}}});
        assert_eq!(decide(Some(&live), &config()), Action::Patch(patch));
    }
}
