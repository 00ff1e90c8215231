//! Helpers for the workloads of control planes: ConfigMaps named by their content, the annotations that protect them
//! from garbage collection, arguments.

use serde_json::Value;

use super::managed::{sha256_hex, unique_secret};
use crate::api::meta::text;
use crate::api::resources::REFERENCE_PREFIX;
use crate::base::json::json;
use crate::base::sorted::SortedMap;

/// The cipher suites that Gardener's components serve with, as an argument.
pub(crate) const CIPHER_SUITES: &str = "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,\
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,\
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,\
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305";

/// An immutable ConfigMap whose name ends with the digest of its content. It is deleted when no object refers to it.
pub(crate) fn unique_config_map(namespace: &str, name: &str, data: &SortedMap<String, String>) -> Value {
    let (_, mut object) = unique_secret(namespace, name, data);
    object["kind"] = json!("ConfigMap");
    if !data.is_empty() {
        object["data"] = json!(data);
    }
    object
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// Adds annotations to a workload and its pods that name the Secrets and ConfigMaps of its volumes. They protect these
/// objects from garbage collection while the workload uses them.
pub(crate) fn annotate_references(workload: &mut Value) {
    let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    for volume in &volumes {
        let own = [("secret", &volume["secret"]["secretName"]), ("configmap", &volume["configMap"]["name"])];
        let sources = volume["projected"]["sources"].as_array().into_iter().flatten();
        let projected = sources.flat_map(|source| {
            [("secret", &source["secret"]["name"]), ("configmap", &source["configMap"]["name"])]
        });
        for (kind, name) in own.into_iter().chain(projected) {
            let Some(name) = name.as_str() else { continue };
            let key = format!("{REFERENCE_PREFIX}{kind}-{}", &sha256_hex(name.as_bytes())[..8]);
            workload["metadata"]["annotations"][&key] = json!(name);
            workload["spec"]["template"]["metadata"]["annotations"][&key] = json!(name);
        }
    }
}

/// Sets the names of the Secrets and ConfigMaps of a workload's volumes, by volume name. Errors: the volume
/// without a name in the map.
pub(crate) fn name_volumes(workload: &mut Value, names: &SortedMap<&str, String>) -> Result<(), String> {
    let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array_mut();
    for volume in volumes.into_iter().flatten() {
        let place = match (volume.get("secret"), volume.get("configMap")) {
            (Some(_), _) => "/secret/secretName",
            (_, Some(_)) => "/configMap/name",
            _ => continue,
        };
        let known = names.get(text(&volume["name"]));
        let known =
            known.ok_or_else(|| format!("no Secret or ConfigMap is set for volume {}", volume["name"]))?;
        if let Some(place) = volume.pointer_mut(place) {
            *place = json!(known);
        }
    }
    Ok(())
}

/// Adds an entry to a list of a manifest, before the entry with this name.
pub(crate) fn insert_before(list: &mut Value, next: &str, entry: Value) {
    let Value::Array(list) = list else { return };
    let at = list.iter().position(|known| known["name"] == next).unwrap_or(list.len());
    list.insert(at, entry);
}

/// Adds an entry to a list of a manifest.
pub(crate) fn push(list: &mut Value, entry: Value) {
    match list {
        Value::Array(list) => list.push(entry),
        other => *other = Value::Array(vec![entry]),
    }
}

/// Formats `--feature-gates` and similar flags: `a=true,b=false`.
pub(crate) fn switches(flag: &str, map: &Value) -> Option<String> {
    let entries = map.as_object().filter(|map| !map.is_empty())?;
    let all: Vec<String> = entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some(format!("--{flag}={}", all.join(",")))
}
