//! ManagedResource `system`: the PriorityClasses `gardener-system-*`. Pods of control planes and extensions refer to
//! them, and an API server refuses pods that refer to an unknown class. With the embedded applier, it also contains the
//! [deletion protection](super::deletion_protection), which upstream implements as webhooks of
//! gardener-resource-manager. A Go gardenlet that takes the seed back removes it again.
//!
//! Upstream's ManagedResource also has the Deployments `reserve-excess-capacity-*`, if the Seed asks for them. They
//! reserve capacity for the next control plane until an autoscaler adds a node; a site that cannot add nodes would only
//! lose that capacity.

use super::managed::Managed;
use super::{archive, deletion_protection};

/// The name of the ManagedResource.
pub const NAME: &str = "system";

/// The ManagedResource, which does not depend on the Shoots of the seed.
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
