//! Roles and bindings.

use super::meta::Resource;

/// rbac.authorization.k8s.io/v1 Role.
pub const ROLE: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "Role", "roles", true);

/// rbac.authorization.k8s.io/v1 RoleBinding.
pub const ROLE_BINDING: Resource =
    Resource::new("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true);

/// rbac.authorization.k8s.io/v1 ClusterRole.
pub const CLUSTER_ROLE: Resource =
    Resource::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false);

/// rbac.authorization.k8s.io/v1 ClusterRoleBinding.
pub const CLUSTER_ROLE_BINDING: Resource =
    Resource::new("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", false);
