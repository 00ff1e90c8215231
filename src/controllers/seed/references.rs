//! `spec.resources` of a Seed: Secrets and ConfigMaps of the garden that extensions of the seed read there as
//! `garden/ref-<name>`.

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, SECRET};
use crate::api::meta::text;
use crate::api::resources::GARDEN_NAMESPACE;
use crate::components::managed::{self, Managed};
use crate::flow::Failed;
use crate::kube::{Garden, Seed};

/// The name of the ManagedResource that holds the copies.
pub(super) fn managed_resource_name(seed: &str) -> String {
    format!("referenced-resources-{seed}")
}

/// Reads what the Seed refers to, and writes the copies. A reference that cannot be resolved changes nothing.
pub(super) fn deploy(garden: &Garden, seed: &Seed, live: &Value) -> Result<(), Failed> {
    let references = live["spec"]["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut copies = Vec::new();
    for reference in references {
        let target = &reference["resourceRef"];
        let (kind, name) = (text(&target["kind"]), text(&target["name"]));
        let resource = match kind {
            "Secret" => &SECRET,
            "ConfigMap" => &CONFIG_MAP,
            _ => {
                return Err(Failed::new(format!(
                    "spec.resources of the Seed refers to {kind} {name}: this version copies Secrets and ConfigMaps only"
                )));
            }
        };
        let source = garden.find::<Value>(resource, GARDEN_NAMESPACE, name)?.ok_or_else(|| {
            Failed::new(format!(
                "spec.resources of the Seed refers to {kind} {GARDEN_NAMESPACE}/{name}, which the garden does not have"
            ))
        })?;
        copies.push(managed::copy(kind, &source, GARDEN_NAMESPACE));
    }
    let name = managed_resource_name(text(&live["metadata"]["name"]));
    managed::deploy(seed, &Managed::copies(&name, &copies))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn copies_are_as_in_the_golden_file() {
        let metadata =
            |name: &str| json!({"name": name, "namespace": "garden", "labels": {"x": "y"}, "uid": "u"});
        let secret = json!({"metadata": metadata("login"), "type": "Opaque", "data": {"k": "dg=="}});
        let map = json!({"metadata": metadata("settings"), "immutable": true, "data": {"k": "v"}});
        let copy = |kind, source| managed::copy(kind, source, GARDEN_NAMESPACE);
        let copies = [copy("Secret", &secret), copy("ConfigMap", &map)];
        let golden = include_str!("../../../tests/fixtures/components/referenced-resources.yaml");
        assert_eq!(Managed::copies(&managed_resource_name("edge"), &copies).golden(), golden);
    }

    #[test]
    fn a_copy_has_content_and_nothing_else() {
        let source = json!({
            "metadata": {"name": "a", "namespace": "garden", "labels": {"x": "y"}, "uid": "u"},
            "type": "Opaque", "immutable": true, "data": {"k": "dg=="},
        });
        assert_eq!(
            managed::copy("Secret", &source, GARDEN_NAMESPACE),
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true, "data": {"k": "dg=="},
                "metadata": {
                    "name": "ref-a", "namespace": "garden",
                    "annotations": {"resources.gardener.cloud/delete-on-invalid-update": "true"},
                },
            })
        );
    }
}
