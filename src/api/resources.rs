//! ManagedResources: sets of objects that the applier keeps in a seed.

use super::meta::Resource;

/// resources.gardener.cloud/v1alpha1 ManagedResource.
pub const MANAGED_RESOURCE: Resource =
    Resource::new("resources.gardener.cloud", "v1alpha1", "ManagedResource", "managedresources", true);
