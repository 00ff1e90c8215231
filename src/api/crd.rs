//! Definitions of custom resources.

use super::meta::Resource;

/// apiextensions.k8s.io/v1 CustomResourceDefinition.
pub const CUSTOM_RESOURCE_DEFINITION: Resource = Resource::new(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    false,
);
