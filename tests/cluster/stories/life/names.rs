//! The objects of a control plane, compared with those that the Go gardenlet wrote for a Shoot of the same kind.

use std::collections::BTreeSet;

use super::Name;
use crate::failure::{Result, ensure};
use crate::lab::Lab;
use crate::snapshot::versions;

/// Kind and name of each object in the namespace of a Shoot of the Go gardenlet, read from the API server, without
/// hashes at the end.
const GOLDEN: &str = include_str!("../../../fixtures/control-plane/names.txt");
const DIFFERENCES: &str = include_str!("../../../../docs/differences.md");
/// Objects that Kubernetes derives from workloads and Services.
const DERIVED: [&str; 8] = [
    "ControllerRevision",
    "Endpoints",
    "EndpointSlice",
    "Event",
    "Lease",
    "PersistentVolumeClaim",
    "Pod",
    "ReplicaSet",
];

/// `docs/differences.md` lists each object that only one of them has, and no other object.
pub(super) fn are_golden(lab: &Lab, name: Name) -> Result<()> {
    let golden: BTreeSet<String> = GOLDEN.lines().map(str::to_owned).collect();
    let within = format!(" {}/", name.plane());
    let ours: BTreeSet<String> = versions(&lab.seed.client()?)?
        .into_keys()
        .filter_map(|key| {
            let (kind, name) = key.split_once(&within)?;
            let kind = kind.rsplit('/').next().filter(|kind| !DERIVED.contains(kind))?;
            Some(format!("{kind} {}", without_hash(name)))
        })
        .collect();
    let differ: BTreeSet<&str> = ours.symmetric_difference(&golden).map(String::as_str).collect();
    let listed = listed(DIFFERENCES);
    let [unlisted, outdated] =
        [differ.difference(&listed), listed.difference(&differ)].map(|all| all.copied().collect::<Vec<_>>());
    ensure(unlisted.is_empty() && outdated.is_empty(), || {
        format!("docs/differences.md: missing are {unlisted:#?}, and outdated are {outdated:#?}")
    })
}

/// The name without the digest of its content.
fn without_hash(name: &str) -> &str {
    let is_digest =
        |end: &str| end.len() == 8 && end.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    name.rsplit_once('-').filter(|(_, end)| is_digest(end)).map_or(name, |(name, _)| name)
}

/// Kinds and names in backquotes in the first column of the tables below the headline about objects.
fn listed(text: &str) -> BTreeSet<&str> {
    let section = text.split("\n## ").find(|section| section.starts_with("Objects of a namespace\n"));
    let rows = section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells
        .flat_map(|cell| cell.split('`').filter(|text| text.contains(' ') && !text.starts_with(',')))
        .collect()
}
