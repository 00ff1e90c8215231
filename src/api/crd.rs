//! Definitions of custom resources.

use super::meta::Resource;

/// The kind `CustomResourceDefinition` of `apiextensions.k8s.io/v1`.
pub const CUSTOM_RESOURCE_DEFINITION: Resource = Resource::new(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    false,
);
