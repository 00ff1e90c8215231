//! Roles and bindings.

use super::meta::Resource;

/// The kind `Role` of `rbac.authorization.k8s.io/v1`.
pub const ROLE: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "Role", "roles", true);

/// The kind `RoleBinding` of `rbac.authorization.k8s.io/v1`.
pub const ROLE_BINDING: Resource =
    Resource::new("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true);

/// The kind `ClusterRole` of `rbac.authorization.k8s.io/v1`.
pub const CLUSTER_ROLE: Resource =
    Resource::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false);

/// The kind `ClusterRoleBinding` of `rbac.authorization.k8s.io/v1`.
pub const CLUSTER_ROLE_BINDING: Resource =
    Resource::new("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", false);
