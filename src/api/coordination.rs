//! Leases.

use serde::Deserialize;

use super::meta::{ObjectMeta, Resource, or_default};

/// coordination.k8s.io/v1 Lease.
pub const LEASE: Resource = Resource::new("coordination.k8s.io", "v1", "Lease", "leases", true);

/// A Lease as the program reads it. Times stay text: they are compared for change, never judged.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Who holds it.
    pub spec: LeaseSpec,
}

/// See [`Lease`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// Empty when released.
    #[serde(deserialize_with = "or_default")]
    pub holder_identity: String,
    /// How long others wait for a change.
    #[serde(deserialize_with = "or_default")]
    pub lease_duration_seconds: i64,
    /// When the holder took it.
    pub acquire_time: Option<String>,
    /// When the holder renewed it.
    pub renew_time: Option<String>,
    /// How often it changed hands.
    #[serde(deserialize_with = "or_default")]
    pub lease_transitions: i64,
}
