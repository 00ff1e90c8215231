//! ManagedResource `system`: the PriorityClasses `gardener-system-*`. Pods of control planes and extensions name them, and
//! an API server refuses pods that name an unknown class. Where the agent applies itself, it also has the [deletion
//! protection](super::deletion_protection), which upstream's gardener-resource-manager has in its webhooks: a Go gardenlet that comes
//! back takes it out again.
//!
//! Upstream's ManagedResource also has the Deployments `reserve-excess-capacity-*`, if the Seed asks for them. They hold
//! room for the next control plane until an autoscaler adds a node; a site that cannot add nodes only loses that room.

use super::managed::Managed;
use super::{archive, deletion_protection};

/// The name of the ManagedResource.
pub const NAME: &str = "system";

/// What the seed needs whichever Shoots it has.
pub fn fill(is_protected: bool) -> Managed {
    let mut manifests = archive::text("system/priority-classes.yaml");
    if is_protected {
        manifests.push_str("---\n");
        manifests.push_str(&deletion_protection::manifests());
    }
    Managed::component(NAME, &manifests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_as_in_the_golden_file() {
        let golden = include_str!("../../../tests/fixtures/components/system.yaml");
        assert_eq!(fill(false).golden(), golden);
        let protected = fill(true).golden();
        let (classes, policies) = protected.split_once("---\napiVersion: admissionregistration").unwrap();
        let objects = |text: &str| text.split_once("# data.yaml.br\n").unwrap().1.to_owned();
        assert_eq!(objects(classes), objects(golden));
        assert!(deletion_protection::manifests().ends_with(policies));
    }
}
