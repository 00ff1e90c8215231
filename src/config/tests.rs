use std::time::Duration;

use serde_json::{Value, json};

use super::*;

/// The least that a configuration needs.
fn minimal() -> Value {
    let credentials = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "dns"});
    json!({
        "seedConfig": {
            "metadata": {"name": "edge-1"},
            "spec": {
                "provider": {"type": "local", "region": "north", "zones": ["a", "b"]},
                "networks": {"nodes": "10.50.0.0/16", "pods": "10.51.0.0/16", "services": "10.52.0.0/16"},
                "dns": {
                    "internal": {"type": "local", "domain": "int.example.org", "credentialsRef": credentials},
                    "provider": {"type": "local", "credentialsRef": credentials}
                },
                "ingress": {"domain": "ingress.edge-1.example.org", "controller": {"kind": "nginx"}}
            }
        }
    })
}

/// The place that a path such as `a.b[0].c` leads to, made if it is not there.
fn place<'a>(document: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(document, |value, step| {
        let (key, index) = step.split_once('[').map_or((step, None), |(key, index)| (key, Some(index)));
        let value = &mut value[key];
        let Some(index) = index.map(|index| index.trim_end_matches(']').parse::<usize>().unwrap()) else {
            return value;
        };
        if value.is_null() {
            *value = json!([]);
        }
        let list = value.as_array_mut().unwrap();
        while list.len() <= index {
            list.push(json!({}));
        }
        &mut list[index]
    })
}

fn with(changes: &[(&str, Value)]) -> String {
    let mut document = minimal();
    for (path, value) in changes {
        *place(&mut document, path) = value.clone();
    }
    document.to_string()
}

fn settings(changes: &[(&str, Value)]) -> Settings {
    let loaded =
        load(&with(changes), "c.yaml").unwrap_or_else(|problems| panic!("{changes:?}: {problems:#?}"));
    assert_eq!(loaded.warnings, [], "{changes:?}");
    loaded.settings
}

#[test]
fn the_least_configuration_is_complete() {
    let settings = settings(&[]);
    assert_eq!(settings.seed_config.name, "edge-1");
    assert_eq!(settings.controllers.seed.lease_resync, Duration::from_secs(2));
}
