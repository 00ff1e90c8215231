//! The definitions of the kinds that the agent, its applier and the extension controllers exchange. Schemas, names and
//! columns are those of Gardener 1.150; the descriptions are ours.

use serde_json::Value;

use super::archive;
use crate::format::yaml;

/// All of them, [`managed_resource`] first.
pub fn all() -> impl Iterator<Item = Value> {
    managed_resource().chain(extensions())
}

/// The definition of ManagedResource, `resources.gardener.cloud/v1alpha1`.
pub fn managed_resource() -> impl Iterator<Item = Value> {
    group("resources.gardener.cloud")
}

/// The definitions of the 13 kinds of `extensions.gardener.cloud/v1alpha1`, in the order of their names.
pub fn extensions() -> impl Iterator<Item = Value> {
    group("extensions.gardener.cloud")
}

/// All definitions of one API group. They are unpacked anew with each call, and each is parsed when its turn comes: as
/// values they take ten times the memory of their text.
fn group(name: &str) -> impl Iterator<Item = Value> {
    let files = archive::files(&format!("crds/{name}/"));
    // Files of our own, all of which a test parses.
    #[expect(clippy::expect_used)]
    files.into_iter().map(|f| yaml::parse(&f.text).expect("a CRD of our own parses"))
}

#[cfg(test)]
mod tests;
