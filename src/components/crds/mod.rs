//! The definitions of the kinds that the agent, its applier and the extension controllers exchange. Schemas, names and
//! columns are those of Gardener 1.150; the descriptions are ours.

use serde_json::Value;

use super::archive;
use crate::format::yaml;

/// All of them, [`managed_resource`] first.
pub fn all() -> impl Iterator<Item = Value> {
    managed_resource().chain(extensions())
}

/// Kinds of `extensions.gardener.cloud` that a garden needs, too.
const OF_GARDENS: [&str; 4] = ["BackupBucket", "BackupEntry", "DNSRecord", "Extension"];

/// All of them that are the agent's to install. Where the garden runs in the seed's cluster, its operator installs
/// ManagedResource and what a garden needs itself, as upstream has it.
pub fn own(is_garden: bool) -> impl Iterator<Item = Value> {
    all().filter(move |definition| !(is_garden && is_operators(definition)))
}

fn is_operators(definition: &Value) -> bool {
    let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default();
    definition["spec"]["group"] == "resources.gardener.cloud" || OF_GARDENS.contains(&kind)
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
