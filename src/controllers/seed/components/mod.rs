//! The components of a seed: the flow of the Seed runs their tasks, its deletion deletes their ManagedResources in turns, and
//! the condition of the Seed's components is about these and all others in namespace `garden`.

mod cluster_identity;
mod component;
mod definitions;
mod deploy;
mod referenced;
mod system;

use crate::api::meta::Key;
use crate::api::resources::GARDEN_NAMESPACE;

use component::SeedComponent;

use super::work::Row;

pub(super) use component::Leaving;

/// All components, in upstream's order.
static COMPONENTS: [&SeedComponent; 4] =
    [&definitions::COMPONENT, &system::COMPONENT, &referenced::COMPONENT, &cluster_identity::COMPONENT];

/// The tasks of all components.
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    COMPONENTS.iter().flat_map(|component| component.rows)
}

/// The ManagedResources of a Seed that leave in this turn of its deletion.
pub(super) fn leaving(seed: &str, turn: Leaving) -> Vec<Key> {
    let managed = COMPONENTS.iter().filter_map(|component| component.managed_resource);
    let leaving = managed.filter(|managed| managed.leaves == turn);
    leaving.map(|managed| Key::new(GARDEN_NAMESPACE, (managed.name)(seed))).collect()
}

/// The ManagedResources that the Seed's own reconciliation writes.
pub(super) fn managed_resources(seed: &str) -> Vec<Key> {
    use Leaving::{Last, WithExtensions, WithoutExtensions};
    [WithExtensions, WithoutExtensions, Last].into_iter().flat_map(|turn| leaving(seed, turn)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_goes_first_and_the_system_resources_go_last() {
        let names = |turn| leaving("edge", turn).into_iter().map(|key| key.name).collect::<Vec<_>>();
        assert_eq!(names(Leaving::WithExtensions), ["cluster-identity"]);
        assert_eq!(names(Leaving::WithoutExtensions), ["referenced-resources-edge"]);
        assert_eq!(names(Leaving::Last), ["system"]);
        assert_eq!(managed_resources("edge").len(), 3);
    }
}
