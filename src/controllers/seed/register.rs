//! Registration: creates the Seed object from `seedConfig`, or updates it.

use serde_json::{Map, Value};

use crate::api::patch::difference;
use crate::base::json::json;
use crate::config::settings::SeedConfig;
use crate::format::quantity;

/// The request to send.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Create(Value),
    /// A JSON merge patch.
    Patch(Value),
    /// The Seed matches the configuration.
    Nothing,
}

/// Labels that the garden's API server adds to Seeds. Upstream drops them with each registration, and the
/// server adds them again.
fn is_kept_by_server(label: &str) -> bool {
    matches!(label, "seed.gardener.cloud/provider" | "seed.gardener.cloud/region")
        || label.starts_with("name.seed.gardener.cloud/")
}

/// Decides from the live Seed. Annotations are added and never removed. Labels and spec are set to the configured ones.
/// An existing `dns.defaults` survives if the configuration has none.
pub(crate) fn decide(live: Option<&Value>, config: &SeedConfig) -> Action {
    let Some(live) = live else { return Action::Create(object(config)) };
    let mut wanted = live.clone();
    merge_annotations(&mut wanted, config);
    wanted["metadata"]["labels"] = labels(Some(&live["metadata"]["labels"]), config);
    wanted["spec"] = spec(config);
    let defaults = &live["spec"]["dns"]["defaults"];
    if wanted["spec"]["dns"].get("defaults").is_none() && !defaults.is_null() {
        wanted["spec"]["dns"]["defaults"] = defaults.clone();
    }
    for path in AMOUNTS {
        keep_amounts(&live["spec"], &mut wanted["spec"], path);
    }
    // Defaults of the server are reset, as in upstream: the server adds them again, and a setting that was removed from
    // the configuration does not remain.
    difference(live, &wanted).map_or(Action::Nothing, Action::Patch)
}

/// Quantities in the spec; `*` matches every item or entry.
const AMOUNTS: [&[&str]; 3] = [
    &["volume", "minimumSize"],
    &["settings", "excessCapacityReservation", "configs", "*", "resources", "*"],
    &["settings", "verticalPodAutoscaler", "maxAllowed", "*"],
];

/// Keeps the garden's form of quantities that equal the configured ones: `1024Mi` comes back as `1Gi`.
fn keep_amounts(live: &Value, wanted: &mut Value, path: &[&str]) {
    match (path, wanted) {
        ([], wanted) => {
            let written = wanted.as_str().map_or_else(|| wanted.to_string(), str::to_owned);
            if live.as_str().is_some_and(|live| quantity::same(live, &written)) {
                *wanted = live.clone();
            }
        }
        (["*", rest @ ..], Value::Array(items)) => {
            items.iter_mut().enumerate().for_each(|(index, item)| keep_amounts(&live[index], item, rest));
        }
        (["*", rest @ ..], Value::Object(map)) => {
            map.iter_mut().for_each(|(key, value)| keep_amounts(&live[key.as_str()], value, rest));
        }
        ([key, rest @ ..], wanted) => {
            if let Some(value) = wanted.get_mut(key) {
                keep_amounts(&live[key], value, rest);
            }
        }
    }
}

/// The configured spec. An empty list of default domains counts as not configured, because the garden
/// refuses an empty list.
fn spec(config: &SeedConfig) -> Value {
    let mut spec = config.spec.clone();
    if let Some(dns) = spec.get_mut("dns").and_then(Value::as_object_mut)
        && dns.get("defaults").and_then(Value::as_array).is_some_and(Vec::is_empty)
    {
        dns.remove("defaults");
    }
    spec
}

fn object(config: &SeedConfig) -> Value {
    let mut object = json!({
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "Seed",
        "metadata": {"name": config.name, "labels": labels(None, config)},
        "spec": spec(config),
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
    use crate::base::sorted::SortedMap;

    use super::*;

    fn config() -> SeedConfig {
        SeedConfig {
            name: "edge-1".to_owned(),
            labels: SortedMap::from([("site".to_owned(), "north".to_owned())]),
            annotations: SortedMap::from([("a".to_owned(), "1".to_owned())]),
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
    fn quantities_that_the_garden_normalizes_need_no_write() {
        let mut config = config();
        let spec = |size: Value, cpu: Value| {
            let configs = json!([{"resources": {"cpu": cpu}, "nodeSelector": {"a": "1000"}}]);
            json!({"volume": {"minimumSize": size}, "settings": {"excessCapacityReservation": {"configs": configs}}})
        };
        config.spec = spec(json!("1024Mi"), json!(2));
        let mut live = registered();
        live["spec"] = spec(json!("1Gi"), json!("2"));
        assert_eq!(decide(Some(&live), &config), Action::Nothing);
        live["spec"]["volume"]["minimumSize"] = json!("1025Mi");
        let patch = json!({"spec": {"volume": {"minimumSize": "1024Mi"}}});
        assert_eq!(decide(Some(&live), &config), Action::Patch(patch));
        live["spec"] = spec(json!("1Gi"), json!("2"));
        live["spec"]["settings"]["excessCapacityReservation"]["configs"][0]["nodeSelector"]["a"] =
            json!("1k");
        assert!(matches!(decide(Some(&live), &config), Action::Patch(_)), "a text is no quantity");
    }

    #[test]
    fn an_empty_list_of_default_domains_is_none() {
        let mut empty = config();
        empty.spec["dns"]["defaults"] = json!([]);
        assert_eq!(decide(None, &empty), decide(None, &config()));
        let mut live = registered();
        assert_eq!(decide(Some(&live), &empty), Action::Nothing);
        live["spec"]["dns"]["defaults"] = json!([{"domain": "d"}]);
        assert_eq!(decide(Some(&live), &empty), Action::Nothing);
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
