//! The definitions of the kinds that the agent, its applier and the extension controllers exchange. Schemas, names and
//! columns are those of Gardener 1.150; the descriptions are ours.

use serde_json::Value;

use super::archive;
use crate::format::yaml;

/// All of them, [`managed_resource`] first.
pub fn all() -> impl Iterator<Item = Value> {
    managed_resource().chain(extensions())
}

/// Kinds of `extensions.gardener.cloud` that a garden needs too.
const OF_GARDENS: [&str; 4] = ["BackupBucket", "BackupEntry", "DNSRecord", "Extension"];

/// The definitions that the agent installs itself. If the garden runs in the seed's cluster, its operator installs
/// ManagedResource and the kinds that a garden needs, as in upstream.
pub(crate) fn own(is_garden: bool) -> impl Iterator<Item = Value> {
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

/// Definitions of other projects whose kinds the charts of extensions and control planes use: VerticalPodAutoscaler,
/// the machine kinds, Etcd. They declare the fields that an API server must know and leave the others unchecked,
/// because the owning project may install its own definition.
pub fn foreign(facts: Foreign) -> impl Iterator<Item = Value> {
    let wanted = [
        (facts.vpa && !facts.is_garden, "autoscaling.k8s.io"),
        (facts.machines, "machine.sapcloud.io"),
        (facts.etcd && !facts.is_garden, "druid.gardener.cloud"),
    ];
    wanted.into_iter().filter(|(is_wanted, _)| *is_wanted).flat_map(|(_, name)| group(name))
}

/// The definitions of other projects that a seed needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The garden runs in the seed's cluster, and its operator installs some of them.
    pub is_garden: bool,
    /// VerticalPodAutoscaler.
    pub vpa: bool,
    /// Machines and their sets.
    pub machines: bool,
    /// Etcd.
    pub etcd: bool,
}

/// All definitions of one API group. They are unpacked at each call and parsed one by one, because as values they take
/// ten times the memory of their text.
fn group(name: &str) -> impl Iterator<Item = Value> {
    let files = archive::files(&format!("crds/{name}/"));
    // Our own files, and a test parses all of them.
    #[expect(clippy::expect_used)]
    files.into_iter().map(|f| yaml::parse(&f.text).expect("a CRD of our own parses"))
}

#[cfg(test)]
mod tests;
