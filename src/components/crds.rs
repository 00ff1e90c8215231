//! The definitions of the kinds that the agent, its applier and the extension controllers exchange. Schemas, names and
//! columns are those of Gardener 1.150; the descriptions are ours.

use serde_json::Value;

use super::archive;
use crate::format::yaml;

/// The definition of ManagedResource, `resources.gardener.cloud/v1alpha1`.
pub fn managed_resource() -> Vec<Value> {
    group("resources.gardener.cloud")
}

/// The definitions of the 13 kinds of `extensions.gardener.cloud/v1alpha1`, in the order of their names.
pub fn extensions() -> Vec<Value> {
    group("extensions.gardener.cloud")
}

/// All definitions of one API group. They are unpacked and parsed anew with each call.
fn group(name: &str) -> Vec<Value> {
    let files = archive::files(&format!("crds/{name}/"));
    // Files of our own, all of which a test parses.
    #[expect(clippy::expect_used)]
    files.iter().map(|f| yaml::parse(&f.text).expect("a CRD of our own parses")).collect()
}

#[cfg(test)]
mod tests;
