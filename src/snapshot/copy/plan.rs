//! Which snapshots are copied, and when nothing may be. Pure.

use std::time::Duration;

use crate::base::sorted::SortedMap;
use crate::format::human;
use crate::format::time::rfc3339;
use crate::snapshot::chain::{self, ChainBreak};
use crate::snapshot::name::{Kind, Packing, Snapshot};

/// The options of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopyOrder {
    /// How long to wait for a final snapshot, and for a store that does not answer.
    pub(crate) patience: Duration,
    /// Whether to copy what there is, even if changes are lost. A final snapshot is not waited for: its seed may be gone.
    pub(crate) accepts_loss: bool,
}

/// What the two stores hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listings<'a> {
    /// Both are sorted, the oldest first.
    pub(super) source: &'a [Snapshot],
    pub(super) target: &'a [Snapshot],
    /// Names in the source whose content was read and is damaged, with the reasons.
    pub(super) broken: &'a SortedMap<String, String>,
}

/// A full snapshot, and the deltas that follow it without a gap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SnapshotSet {
    pub(super) full: Snapshot,
    /// The oldest first.
    pub(super) deltas: Vec<Snapshot>,
    /// What is lost with it, if anything.
    pub(super) lost: Option<String>,
}

impl SnapshotSet {
    /// Its members, the oldest first.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &Snapshot> {
        std::iter::once(&self.full).chain(&self.deltas)
    }

    /// The member with its latest changes.
    pub(super) fn newest(&self) -> &Snapshot {
        self.deltas.last().unwrap_or(&self.full)
    }
}

/// Why nothing is copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// The reason.
    pub(crate) why: String,
    /// Whether [`CopyOrder::accepts_loss`] would help.
    pub(crate) is_loss: bool,
}

/// The next step of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CopyStep {
    /// A final snapshot may still come. The text says what is missing.
    Wait(String),
    Refuse(Refusal),
    /// The members that the target lacks.
    Copy(SnapshotSet),
    /// The source has nothing that can be restored, and this was accepted. The text says what is lost.
    Nothing(String),
}

/// Decides about the next step.
pub(super) fn plan(found: &Listings<'_>, order: CopyOrder, waited: Duration) -> CopyStep {
    let last = missing_final(found);
    if let Some(why) = &last
        && waited < order.patience
        && !order.accepts_loss
    {
        return CopyStep::Wait(why.clone());
    }
    let mut lacks: Vec<String> = last.into_iter().collect();
    let set = usable(found, &mut lacks);
    if !lacks.is_empty() && !order.accepts_loss {
        return CopyStep::Refuse(Refusal { why: lacks.join("; "), is_loss: true });
    }
    let Some(full) = set else { return CopyStep::Nothing(lacks.join("; ")) };
    let lost = (!lacks.is_empty()).then(|| {
        let name = &full.newest().name;
        let (reached, at) = (name.revision, rfc3339(name.time));
        format!("{}; changes after revision {reached} of {at} are lost, if there were any", lacks.join("; "))
    });
    let set = SnapshotSet { lost, ..full };
    match newer(found.target, &set) {
        Some(why) => CopyStep::Refuse(Refusal { why, is_loss: false }),
        None => CopyStep::Copy(set),
    }
}

fn is_full(snapshot: &&Snapshot) -> bool {
    snapshot.name.kind == Kind::Full
}

/// Why the source may not be complete yet, or never will be. A final snapshot that one of a later revision follows proves nothing: etcd
/// went on after it, and it may come from an earlier move. etcd-druid takes another one of the same revision before it stops etcd.
fn missing_final(found: &Listings<'_>) -> Option<String> {
    let newest = found.source.iter().rfind(is_full);
    let has_later = |newest: &Snapshot| {
        found.source.iter().any(|delta| delta.name.kind == Kind::Delta && follows(delta, newest))
    };
    match newest {
        None if found.source.is_empty() => Some("there is no snapshot".to_owned()),
        None => Some(format!(
            "there is no full snapshot, only {}",
            human::counted(found.source.len(), "delta snapshot")
        )),
        Some(newest) if found.source.iter().any(|other| is_final_up_to(other, newest.name.revision)) => None,
        Some(newest) => {
            let deltas = if has_later(newest) { ", and deltas follow it" } else { "" };
            Some(format!("the newest full snapshot {} is not final{deltas}", newest.name.text))
        }
    }
}

fn is_final_up_to(snapshot: &Snapshot, revision: u64) -> bool {
    snapshot.name.is_final && snapshot.name.revision == revision
}

/// Whether a delta contains changes that a full snapshot does not.
fn follows(delta: &Snapshot, full: &Snapshot) -> bool {
    delta.name.revision > full.name.revision && delta.name.time >= full.name.time
}

/// Why a snapshot cannot be restored.
fn defect(found: &Listings<'_>, snapshot: &Snapshot) -> Option<String> {
    let name = &snapshot.name.text;
    match found.broken.get(name.as_str()) {
        Some(why) => Some(format!("snapshot {name} is broken: {why}")),
        None if snapshot.name.packing == Packing::Other => {
            Some(format!("snapshot {name} is packed in a way that only etcd-backup-restore knows"))
        }
        None => None,
    }
}

/// The newest full snapshot that can be restored, with its deltas. Adds what is not in it.
fn usable(found: &Listings<'_>, lacks: &mut Vec<String>) -> Option<SnapshotSet> {
    let (mut full, mut newer) = (None, Vec::new());
    for candidate in found.source.iter().rev().filter(is_full) {
        match defect(found, candidate) {
            None => {
                full = Some(candidate);
                break;
            }
            why => {
                lacks.extend(why);
                newer.push(candidate);
            }
        }
    }
    let full = full?;
    let all: Vec<&Snapshot> = found.source.iter().collect();
    let foreign = chain::follow(&all, full, &newer).foreign;
    let (whole, broken): (Vec<&Snapshot>, Vec<&Snapshot>) =
        all.into_iter().partition(|snapshot| defect(found, snapshot).is_none());
    let mut chain = chain::follow(&whole, full, &newer);
    // A restoration would learn from its events whether the first delta continues the full snapshot. Nobody could accept a loss then.
    if let Some(next) = chain.apply.first().copied().filter(|next| next.name.first > full.name.revision + 1) {
        chain.end = Some(ChainBreak::Gap { reached: full.name.revision, next });
        chain.apply.clear();
    }
    let set =
        SnapshotSet { full: full.clone(), deltas: chain.apply.into_iter().cloned().collect(), lost: None };
    // Another delta may have the changes of a broken one.
    let reached = set.newest().name.revision;
    let is_needed =
        |delta: &&Snapshot| !is_full(delta) && delta.name.revision > reached && !foreign.contains(delta);
    lacks.extend(broken.into_iter().filter(is_needed).filter_map(|delta| defect(found, delta)));
    lacks.extend(chain.end.map(|end| end.to_string()));
    Some(set)
}

/// Why etcd would restore something else in the target: a snapshot there is newer than the set. If the target has the whole set, etcd has
/// gone on there after an earlier copy.
fn newer(target: &[Snapshot], set: &SnapshotSet) -> Option<String> {
    let has = |member: &Snapshot| {
        let name = member.name.continued();
        target.iter().any(|other| other.name == name && other.bytes == member.bytes)
    };
    let end = &set.newest().name;
    let is_newer = |other: &&Snapshot| (other.name.time, other.name.revision) > (end.time, end.revision);
    let other = target.iter().rfind(is_newer).filter(|_| !set.all().all(has))?;
    Some(format!(
        "the target has a newer snapshot {}, which etcd would restore instead of {}: move it away if nobody needs it",
        other.name.text, end.text
    ))
}
