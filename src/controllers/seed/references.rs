//! The Seed's `spec.resources`: Secrets and ConfigMaps of the garden that the seed's extensions read as
//! `garden/ref-<name>`.

use serde_json::Value;

use crate::api::meta::text;
use crate::api::resources::GARDEN_NAMESPACE;
use crate::components::managed::{self, Managed};
use crate::components::references::{self, Referrer};
use crate::flow::Failed;
use crate::kube::{Garden, Seed};

/// The name of the ManagedResource with the copies.
pub(super) fn managed_resource_name(seed: &str) -> String {
    format!("referenced-resources-{seed}")
}

/// Reads the referenced objects and writes the copies. An unresolvable reference leaves all copies unchanged.
pub(super) fn deploy(garden: &Garden, seed: &Seed, live: &Value) -> Result<(), Failed> {
    let (references, from, to) = (&live["spec"]["resources"], GARDEN_NAMESPACE, GARDEN_NAMESPACE);
    let copies = references::copies(garden, &Referrer { kind: "Seed", references, from, to })?;
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
        let copy = |kind, source| references::copy(kind, source, GARDEN_NAMESPACE);
        let copies = [copy("Secret", &secret), copy("ConfigMap", &map)];
        let golden = include_str!("../../../tests/fixtures/components/referenced-resources.yaml");
        assert_eq!(Managed::copies(&managed_resource_name("edge"), &copies).golden(), golden);
    }
}
