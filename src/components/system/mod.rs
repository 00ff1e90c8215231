//! ManagedResource `system`: the PriorityClasses `gardener-system-*`. Pods of control planes and extensions refer to
//! them, and an API server refuses pods that refer to an unknown class. With the embedded applier, it also contains the
//! [deletion protection](super::deletion_protection), which upstream implements as webhooks of
//! gardener-resource-manager. A Go gardenlet that takes the seed back removes it again.
//!
//! Upstream's ManagedResource also has the Deployments `reserve-excess-capacity-*`, if the Seed asks for them. They
//! reserve capacity for the next control plane until an autoscaler adds a node; a site that cannot add nodes would only
//! lose that capacity.

use super::archive;
use super::managed::Managed;

/// The name of the ManagedResource.
pub const NAME: &str = "system";

/// The ManagedResource, which does not depend on the Shoots of the seed. `protection` are the objects that protect others from
/// deletion, unless webhooks do that.
pub fn fill(protection: Option<&str>) -> Managed {
    let mut manifests = archive::text("system/priority-classes.yaml");
    if let Some(protection) = protection {
        manifests.push_str("---\n");
        manifests.push_str(protection);
    }
    Managed::component(NAME, &manifests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::deletion_protection;

    #[test]
    fn is_as_in_the_golden_file() {
        let golden = include_str!("../../../tests/fixtures/components/system.yaml");
        assert_eq!(fill(None).golden(), golden);
        let protection = deletion_protection::manifests();
        let protected = fill(Some(&protection)).golden();
        let (classes, policies) = protected.split_once("---\napiVersion: admissionregistration").unwrap();
        let objects = |text: &str| text.split_once("# data.yaml.br\n").unwrap().1.to_owned();
        assert_eq!(objects(classes), objects(golden));
        assert!(protection.ends_with(policies));
    }
}
