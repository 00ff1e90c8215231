//! ManagedResource `system`: the PriorityClasses `gardener-system-*`. Pods of control planes and extensions name them, and
//! an API server refuses pods that name an unknown class.
//!
//! Upstream's ManagedResource also has the Deployments `reserve-excess-capacity-*`, if the Seed asks for them. They hold
//! room for the next control plane until an autoscaler adds a node; a site that cannot add nodes only loses that room.

use super::archive;
use super::managed::Managed;

/// The name of the ManagedResource.
pub const NAME: &str = "system";

/// What the seed needs whichever Shoots it has.
pub fn fill() -> Managed {
    Managed::component(NAME, &archive::text("system/priority-classes.yaml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_as_in_the_golden_file() {
        assert_eq!(fill().golden(), include_str!("../../../tests/fixtures/components/system.yaml"));
    }
}
