//! The Seed's `spec.resources`: Secrets and ConfigMaps of the garden that the seed's extensions read as
//! `garden/ref-<name>`.

use crate::api::resources::GARDEN_NAMESPACE;
use crate::components::managed::{self, Managed};
use crate::components::references::{self, Referrer};
use crate::flow::{Failed, TaskStep};

use super::super::work::{Row, SeedTaskFacts, Work};
use super::component::{Leaving, ManagedResource, SeedComponent};

pub(super) static COMPONENT: SeedComponent = SeedComponent {
    managed_resource: Some(ManagedResource {
        name: managed_resource_name,
        leaves: Leaving::WithoutExtensions,
    }),
    rows: &[Row::new("Deploying referenced resources", |work, _| deploy(work), ())
        .after(&["Deploying system resources"])
        .when(SeedTaskFacts::is_complete)],
};

/// The name of the ManagedResource with the copies.
fn managed_resource_name(seed: &str) -> String {
    format!("referenced-resources-{seed}")
}

/// Reads the referenced objects and writes the copies. An unresolvable reference leaves all copies unchanged.
fn deploy(work: &Work) -> Result<TaskStep, Failed> {
    let (references, from, to) = (&work.live["spec"]["resources"], GARDEN_NAMESPACE, GARDEN_NAMESPACE);
    let copies = references::copies(&work.site.garden, &Referrer { kind: "Seed", references, from, to })?;
    managed::deploy(&work.site.seed, &Managed::copies(&managed_resource_name(work.name()), &copies))?;
    Ok(TaskStep::Done)
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
        let golden = include_str!("../../../../tests/fixtures/components/referenced-resources.yaml");
        assert_eq!(Managed::copies(&managed_resource_name("edge"), &copies).golden(), golden);
    }
}
