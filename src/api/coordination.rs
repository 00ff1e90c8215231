//! Leases.

use super::meta::Resource;

/// coordination.k8s.io/v1 Lease.
pub const LEASE: Resource = Resource::new("coordination.k8s.io", "v1", "Lease", "leases", true);
