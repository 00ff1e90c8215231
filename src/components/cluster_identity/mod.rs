//! ManagedResource `cluster-identity`: the ConfigMap that tells what the seed cluster is called.

use serde_json::json;

use super::archive;
use super::managed::Managed;
use crate::format::yaml::{self, Dialect};

/// The name of the ManagedResource, and of the ConfigMap.
pub const NAME: &str = "cluster-identity";
/// The namespace of the ConfigMap.
pub const NAMESPACE: &str = "kube-system";
/// The key of the ConfigMap that tells which kind of cluster has this identity.
pub const ORIGIN_KEY: &str = "origin";
/// The value of [`ORIGIN_KEY`] in a seed.
pub const ORIGIN: &str = "seed";

/// For a seed of this identity.
pub fn fill(identity: &str) -> Managed {
    let mut map = archive::object("cluster_identity/config-map.yaml");
    map["data"][NAME] = json!(identity);
    Managed::component(NAME, &yaml::emit(&map, Dialect::V4))
}
