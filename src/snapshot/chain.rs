//! Which delta snapshots belong to a full one, and in which order they are applied: the rule of restorations and of copies.
//!
//! etcd-backup-restore orders all snapshots by revision, and we order full ones by time, because the revisions of an etcd that began
//! again are low. Deltas count by revision: each begins where the one before it ends, and names say so exactly. Times decide only
//! whether a delta is of another history, because the clocks of machines without a battery go back.
//!
//! Names are a first check. The revisions and versions in the events are the second one ([`super::restore`]).

use std::fmt;

use super::name::{Kind, Snapshot};

/// What follows a full snapshot.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct DeltaChain<'a> {
    /// The deltas to apply, in this order.
    pub(super) apply: Vec<&'a Snapshot>,
    /// Deltas of another history: they have a later revision, but were taken before the full snapshot, and do not continue it.
    pub(super) foreign: Vec<&'a Snapshot>,
    /// Deltas that continue a newer full snapshot, which is broken. Nothing leads to them.
    pub(super) lost: Vec<&'a Snapshot>,
    /// Why the deltas are not one history: those to apply end before it.
    pub(super) end: Option<ChainBreak<'a>>,
}

/// Why the deltas are not one history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ChainBreak<'a> {
    /// Changes are missing before this delta.
    Gap { reached: u64, next: &'a Snapshot },
    /// Two deltas contain the same revisions.
    Overlap { one: &'a Snapshot, other: &'a Snapshot },
}

impl fmt::Display for ChainBreak<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { reached, next } => write!(
                f,
                "revisions {} to {} are in no snapshot, and {} follows",
                reached + 1,
                next.name.first.saturating_sub(1),
                next.name.text
            ),
            Self::Overlap { one, other } => {
                write!(f, "{} and {} contain the same revisions", one.name.text, other.name.text)
            }
        }
    }
}

impl<'a> ChainBreak<'a> {
    /// The delta that cannot be applied.
    pub(super) fn at(&self) -> &'a Snapshot {
        match self {
            Self::Gap { next, .. } => next,
            Self::Overlap { other, .. } => other,
        }
    }
}

/// The deltas among the snapshots of a store that follow this full one. `broken` are newer full ones, which are damaged.
pub(super) fn follow<'a>(all: &[&'a Snapshot], full: &Snapshot, broken: &[&Snapshot]) -> DeltaChain<'a> {
    let is_later =
        |delta: &&Snapshot| delta.name.kind == Kind::Delta && delta.name.revision > full.name.revision;
    let mut later: Vec<&Snapshot> = all.iter().copied().filter(is_later).collect();
    // As etcd-backup-restore orders them.
    later.sort_by_key(|delta| (delta.name.revision, delta.name.time, delta.name.first));
    let (early, on_time): (Vec<&Snapshot>, Vec<&Snapshot>) =
        later.iter().copied().partition(|delta| delta.name.time < full.name.time);
    let mut chain = DeltaChain::default();
    if is_foreign(all, full, &early, &on_time) {
        (chain.foreign, later) = (early, on_time);
    }
    let mut reached = full.name.revision;
    for (place, &delta) in later.iter().enumerate() {
        let first = delta.name.first;
        if first > reached + 1
            && broken.iter().any(|full| full.name.revision + 1 == first && full.name.revision > reached)
        {
            chain.lost = later.split_off(place);
            break;
        }
        // A full snapshot may contain more than its name says, so its events decide whether the first delta continues it.
        if let Some(one) = chain.apply.last() {
            chain.end = match first {
                _ if first > reached + 1 => Some(ChainBreak::Gap { reached, next: delta }),
                _ if first <= reached => Some(ChainBreak::Overlap { one, other: delta }),
                _ => None,
            };
        }
        if chain.end.is_some() {
            break;
        }
        reached = delta.name.revision;
        chain.apply.push(delta);
    }
    chain
}

/// Whether deltas that were taken before the full snapshot are of another history: either revisions began again between an older
/// full snapshot and this one, or none of them continues it. Otherwise the clock went back.
fn is_foreign(all: &[&Snapshot], full: &Snapshot, early: &[&Snapshot], on_time: &[&Snapshot]) -> bool {
    let began_again = all.iter().any(|other| {
        other.name.kind == Kind::Full
            && other.name.time < full.name.time
            && other.name.revision > full.name.revision
    });
    let ends =
        |last: u64| full.name.revision == last || on_time.iter().any(|delta| delta.name.revision == last);
    let continues = |delta: &&Snapshot| ends(delta.name.first.saturating_sub(1));
    began_again || !early.iter().any(continues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::name::snapshots;

    /// A snapshot: `F100@5` is a full one of revision 100 and time 5, `101-120@6` a delta.
    fn name(text: &str) -> String {
        let (revisions, time) = text.split_once('@').unwrap();
        let begin = revisions.strip_prefix('F').map(|last| format!("Full-00000000-{last:0>8}"));
        let begin = begin.unwrap_or_else(|| {
            let (first, last) = revisions.split_once('-').unwrap();
            format!("Incr-{first:0>8}-{last:0>8}")
        });
        format!("{begin}-{time}.gz")
    }

    fn short(all: &[&Snapshot]) -> String {
        let short = |snapshot: &&Snapshot| {
            let name = &snapshot.name;
            format!("{}-{}@{}", name.first, name.revision, name.time.unix())
        };
        all.iter().map(short).collect::<Vec<_>>().join(" ")
    }

    /// The names of a store, the restored full snapshot, the broken ones, and the expected chain.
    struct Row<'a>(&'a str, &'a str, &'a str, Result<[&'a str; 3], &'a str>);

    #[test]
    fn the_deltas_of_a_history_are_in_one_row() {
        let gap = "revisions 111 to 120 are in no snapshot, and Incr-00000121-00000130-8.gz follows";
        let table = [
            Row("F100@5", "F100@5", "", Ok(["", "", ""])),
            Row("F100@5 101-110@6 111-120@7", "F100@5", "", Ok(["101-110@6 111-120@7", "", ""])),
            // What a full snapshot contains is not applied again.
            Row("F50@3 51-80@4 81-100@5 F100@5", "F100@5", "", Ok(["", "", ""])),
            Row("F50@3 51-80@4 F100@5 101-110@6", "F100@5", "", Ok(["101-110@6", "", ""])),
            // The first one may overlap it.
            Row("F100@5 91-110@6 111-120@7", "F100@5", "", Ok(["91-110@6 111-120@7", "", ""])),
            // It may contain more than its name says.
            Row("F100@5 106-110@6", "F100@5", "", Ok(["106-110@6", "", ""])),
            // Two of one second.
            Row("F100@5 111-120@5 101-110@5", "F100@5", "", Ok(["101-110@5 111-120@5", "", ""])),
            Row("F100@5 101-110@6 121-130@8", "F100@5", "", Err(gap)),
            Row(
                "F100@5 101-110@6 105-130@8",
                "F100@5",
                "",
                Err("Incr-00000101-00000110-6.gz and Incr-00000105-00000130-8.gz contain the same revisions"),
            ),
            Row(
                "F100@5 101-110@6 101-110@8",
                "F100@5",
                "",
                Err("Incr-00000101-00000110-6.gz and Incr-00000101-00000110-8.gz contain the same revisions"),
            ),
            // The clock went back after the full snapshot, or between two deltas.
            Row("F100@5 101-110@2 111-120@3", "F100@5", "", Ok(["101-110@2 111-120@3", "", ""])),
            Row("F100@5 101-110@6 111-120@3", "F100@5", "", Ok(["101-110@6 111-120@3", "", ""])),
            Row("F100@5 101-110@2 121-130@8", "F100@5", "", Err(gap)),
            // etcd began again: an older full snapshot, or a delta that continues nothing, says so.
            Row("F900@1 901-950@2 F100@5 101-110@6", "F100@5", "", Ok(["101-110@6", "901-950@2", ""])),
            Row("F900@1 101-950@2 F100@5 101-110@6", "F100@5", "", Ok(["101-110@6", "101-950@2", ""])),
            Row("901-950@2 F100@5 101-110@6", "F100@5", "", Ok(["101-110@6", "901-950@2", ""])),
            Row("81-120@2 F100@5", "F100@5", "", Ok(["", "81-120@2", ""])),
            // Later ones are not of another history, whatever there is.
            Row("F900@1 F100@5 101-110@6 121-130@8", "F100@5", "", Err(gap)),
            // A broken full snapshot: its own deltas have nothing to begin with.
            Row(
                "F100@5 101-110@6 F150@7 151-160@8 161-170@9",
                "F100@5",
                "F150@7",
                Ok(["101-110@6", "", "151-160@8 161-170@9"]),
            ),
            Row("F100@5 F150@7 151-160@8", "F100@5", "F150@7", Ok(["", "", "151-160@8"])),
            // All changes are in deltas, too.
            Row("F100@5 101-150@6 F150@7 151-160@8", "F100@5", "F150@7", Ok(["101-150@6 151-160@8", "", ""])),
            // This gap has another cause.
            Row("F100@5 101-110@6 F115@7 121-130@8", "F100@5", "F115@7", Err(gap)),
        ];
        for Row(store, full, broken, expected) in table {
            let parse = |text: &str| snapshots(text.split_whitespace().map(|text| (name(text), 1)));
            let (all, full, broken) = (parse(store), parse(full), parse(broken));
            let broken: Vec<&Snapshot> = broken.iter().collect();
            let all: Vec<&Snapshot> = all.iter().collect();
            let chain = follow(&all, &full[0], &broken);
            let parts = [chain.apply, chain.foreign, chain.lost].map(|part| short(&part));
            let found = chain.end.map_or(Ok(parts), |end| Err(end.to_string()));
            let expected = expected.map(|parts| parts.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(found, expected, "{store}");
        }
    }

    #[test]
    fn the_remedy_names_the_delta_that_cannot_be_applied() {
        let parse = |text: &str| snapshots(text.split_whitespace().map(|text| (name(text), 1)));
        for (store, expected) in [
            ("F1@1 2-3@2 5-6@3", "Incr-00000005-00000006-3.gz"),
            ("F1@1 2-3@2 3-4@3", "Incr-00000003-00000004-3.gz"),
        ] {
            let all = parse(store);
            let all: Vec<&Snapshot> = all.iter().collect();
            let chain = follow(&all, all[0], &[]);
            assert_eq!(chain.end.unwrap().at().name.text, expected);
            assert_eq!(short(&chain.apply), "2-3@2", "what is before it is one history");
        }
    }
}
