//! `spec.resources` of a Seed or a Shoot: Secrets and ConfigMaps of the garden that extensions read in the seed as
//! `ref-<name>`.

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, SECRET};
use crate::api::meta::{Key, text};
use crate::base::json::json;
use crate::flow::Failed;
use crate::kube::Garden;

/// An object of the garden that refers to others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Referrer<'a> {
    pub(crate) kind: &'static str,
    /// Its `spec.resources`.
    pub(crate) references: &'a Value,
    /// The garden namespace of the referenced objects.
    pub(crate) from: &'a str,
    /// The seed namespace of the copies.
    pub(crate) to: &'a str,
}

/// Reads the referenced objects and copies them. Errors: a reference to another kind than Secret or
/// ConfigMap, or to a missing object; or a request to the garden fails.
pub(crate) fn copies(garden: &Garden, referrer: &Referrer<'_>) -> Result<Vec<Value>, Failed> {
    let Referrer { kind: owner, references, from, to } = *referrer;
    let mut copies = Vec::new();
    for reference in references.as_array().into_iter().flatten() {
        let target = &reference["resourceRef"];
        let (kind, name) = (text(&target["kind"]), text(&target["name"]));
        let resource = match kind {
            "Secret" => &SECRET,
            "ConfigMap" => &CONFIG_MAP,
            _ => {
                return Err(Failed::new(format!(
                    "spec.resources of the {owner} refers to {kind} {name}: this version copies Secrets and ConfigMaps only"
                )));
            }
        };
        let source = garden.find::<Value>(resource, &Key::new(from, name))?.ok_or_else(|| {
            Failed::new(format!(
                "spec.resources of the {owner} refers to {kind} {from}/{name}, which the garden does not have"
            ))
        })?;
        copies.push(copy(kind, &source, to));
    }
    Ok(copies)
}

/// The copy of a garden object for the seed: content and name, no labels. It is replaced where an update is refused.
pub(crate) fn copy(kind: &str, source: &Value, namespace: &str) -> Value {
    let mut copy = json!({"apiVersion": "v1", "kind": kind, "metadata": {
        "name": format!("ref-{}", text(&source["metadata"]["name"])),
        "namespace": namespace,
        "annotations": {"resources.gardener.cloud/delete-on-invalid-update": "true"},
    }});
    for field in ["type", "immutable", "data", "binaryData"] {
        if let Some(value) = source.get(field) {
            copy[field] = value.clone();
        }
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_content_and_nothing_else() {
        let metadata = json!({"name": "a", "namespace": "garden-p", "labels": {"x": "y"}, "uid": "u"});
        let table = [
            ("Secret", json!({"type": "Opaque", "data": {"k": "dg=="}})),
            ("Secret", json!({"type": "Opaque", "immutable": true, "data": {"k": "dg=="}})),
            ("ConfigMap", json!({"data": {"k": "v"}, "binaryData": {"b": "dg=="}})),
        ];
        for (kind, content) in table {
            let (mut source, mut expected) = (content.clone(), content);
            source["metadata"] = metadata.clone();
            expected["apiVersion"] = json!("v1");
            expected["kind"] = json!(kind);
            expected["metadata"] = json!({
                "name": "ref-a", "namespace": "shoot--p--s",
                "annotations": {"resources.gardener.cloud/delete-on-invalid-update": "true"},
            });
            assert_eq!(copy(kind, &source, "shoot--p--s"), expected);
        }
    }
}
