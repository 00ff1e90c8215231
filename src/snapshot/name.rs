//! The names of snapshots, in the format of etcd-backup-restore: `Full-<first revision>-<last revision>-<seconds since
//! 1970>.gz`.
//!
//! The last snapshot before a Shoot moves to another seed has `.final` behind that.
//!
//! They are ordered by time. A new name never has an earlier time than an existing one, regardless of the clock, so the
//! order is that in which snapshots were taken, even if the revisions of an etcd started again.

use crate::base::clock::Timestamp;

/// The folder of the present layout, below the prefix.
pub(crate) const VERSION: &str = "v2";

/// The content of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Full,
    /// The changes since another one. Only etcd-backup-restore writes these; a restoration reads them.
    Delta,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    Plain,
    /// gzip.
    Gzip,
    /// A format that we cannot read.
    Other,
}

/// The parts of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotName {
    /// The whole name, without folders.
    pub(crate) text: String,
    pub(crate) kind: Kind,
    /// The revision with which its changes begin; 0 for a full one.
    pub(crate) first: u64,
    /// The revision of etcd up to which it contains all changes.
    pub revision: u64,
    /// When it was taken.
    pub(crate) time: Timestamp,
    pub(crate) packing: Packing,
    /// Whether nobody wrote to its etcd any more when it was taken.
    pub(crate) is_final: bool,
}

/// The mark of a snapshot after which its etcd was shut down.
const FINAL: &str = ".final";

impl SnapshotName {
    /// The name of a new full snapshot.
    pub(crate) fn new(revision: u64, time: Timestamp) -> Self {
        let text = format!("Full-{:08}-{revision:08}-{}.gz", 0, time.unix());
        Self { text, kind: Kind::Full, first: 0, revision, time, packing: Packing::Gzip, is_final: false }
    }

    /// The name of the last full snapshot of an etcd that moves.
    pub(crate) fn new_final(revision: u64, time: Timestamp) -> Self {
        let plain = Self::new(revision, time);
        Self { text: plain.text + FINAL, is_final: true, ..plain }
    }

    /// The name at a place where etcd goes on: without the mark.
    pub(crate) fn continued(&self) -> Self {
        let text = self.text.strip_suffix(FINAL).unwrap_or(&self.text).to_owned();
        Self { text, is_final: false, ..self.clone() }
    }

    /// What decides which of two snapshots is newer. Of two of the same second and revision, the final one is.
    pub(crate) const fn order(&self) -> (Timestamp, u64, bool) {
        (self.time, self.revision, self.is_final)
    }

    /// Parses a name; `None` if it does not belong to a snapshot.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split('-');
        let kind = match words.next()? {
            "Full" => Kind::Full,
            "Incr" => Kind::Delta,
            _ => return None,
        };
        let (first, last) = (number(words.next()?)?, number(words.next()?)?);
        let end = words.next().filter(|_| words.next().is_none())?;
        let is_final = end.ends_with(FINAL);
        let end = end.strip_suffix(FINAL).unwrap_or(end);
        let (time, packing) = match end.split_once('.') {
            None => (end, Packing::Plain),
            Some((time, "gz")) => (time, Packing::Gzip),
            Some((time, other)) if other.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                (time, Packing::Other)
            }
            Some(_) => return None,
        };
        let time = Timestamp::from_unix(i64::try_from(number(time)?).ok()?);
        let text = text.to_owned();
        (first <= last).then_some(Self { text, kind, first, revision: last, time, packing, is_final })
    }
}

/// Digits only: signs and spaces are invalid.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// A snapshot in a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Its name.
    pub name: SnapshotName,
    /// Its stored size.
    pub bytes: u64,
}

/// The snapshots among the entries of a store, the oldest first.
pub(crate) fn snapshots(entries: impl IntoIterator<Item = (String, u64)>) -> Vec<Snapshot> {
    let entries = entries.into_iter();
    let mut found: Vec<Snapshot> = entries
        .filter_map(|(name, bytes)| Some(Snapshot { name: SnapshotName::parse(&name)?, bytes }))
        .collect();
    found.sort_by(|a, b| a.name.order().cmp(&b.name.order()).then_with(|| a.name.text.cmp(&b.name.text)));
    found
}

/// The time of the next name: now, or a second after the newest snapshot if the clock is behind.
pub(crate) fn next_time(snapshots: &[Snapshot], now: Timestamp) -> Timestamp {
    let newest = snapshots.last().map(|newest| newest.name.time.unix().saturating_add(1));
    Timestamp::from_unix(newest.map_or(now.unix(), |after| after.max(now.unix())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_etcd_backup_restore() {
        let at = Timestamp::from_unix(1_600_000_000);
        let name = SnapshotName::new(1_234, at);
        assert_eq!(name.text, "Full-00000000-00001234-1600000000.gz");
        assert_eq!(SnapshotName::parse(&name.text), Some(name));
        let last = SnapshotName::new_final(1_234, at);
        assert_eq!(last.text, "Full-00000000-00001234-1600000000.gz.final");
        assert_eq!(SnapshotName::parse(&last.text).as_ref(), Some(&last));
        assert_eq!((last.continued(), last.is_final), (SnapshotName::new(1_234, at), true));
        assert_eq!(SnapshotName::new(1_234, at).continued(), SnapshotName::new(1_234, at));
        let first = |text: &str| SnapshotName::parse(text).map(|name| name.first);
        assert_eq!(first("Incr-00000010-00000012-2.gz"), Some(10));
        // Each restoration adds a billion.
        assert_eq!(SnapshotName::new(1_000_001_234, at).text, "Full-00000000-1000001234-1600000000.gz");
        let table = [
            ("Full-00000000-00000000-1", Some((Kind::Full, 0, 1, Packing::Plain))),
            ("Full-00000000-00000009-1.gz.final", Some((Kind::Full, 9, 1, Packing::Gzip))),
            ("Full-00000000-00000009-1.final", Some((Kind::Full, 9, 1, Packing::Plain))),
            ("Full-00000000-00000009-1.zlib", Some((Kind::Full, 9, 1, Packing::Other))),
            ("Incr-00000010-00000012-2.gz", Some((Kind::Delta, 12, 2, Packing::Gzip))),
            ("Incr-00000012-00000010-2.gz", None),
            ("Full-00000000-00000009-1.gz.partial", None),
            (".Full-00000000-00000009-1.gz", None),
            ("Full-00000000-00000009-1.gz/0000001", None),
            ("Full-00000000-00000009-1.gz-1", None),
            ("Full-00000000-+0000009-1.gz", None),
            ("Full-00000000-00000009--1.gz", None),
            ("Full-00000000-00000009-.gz", None),
            ("Full-00000000-00000009-99999999999999999999.gz", None),
            ("Full-00000000-00000009", None),
            ("Chunk-00000000-00000009-1.gz", None),
            ("", None),
        ];
        for (text, expected) in table {
            let found = SnapshotName::parse(text).map(|n| (n.kind, n.revision, n.time.unix(), n.packing));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn names_are_ordered_by_time_even_if_the_clock_is_behind() {
        let entries = [
            "Full-00000000-00000009-20.gz",
            "x",
            "Full-00000000-00000500-10.gz",
            "Full-00000000-00000009-20.gz.final",
            "Incr-00000009-00000009-20",
            "Incr-00000010-00000011-20",
        ];
        let all = snapshots(entries.map(|name| (name.to_owned(), 7)));
        let found: Vec<_> = all.iter().map(|it| (it.name.revision, it.name.is_final)).collect();
        assert_eq!(found, [(500, false), (9, false), (9, false), (9, true), (11, false)]);
        for (now, next) in [(5, 21), (20, 21), (30, 30)] {
            assert_eq!(next_time(&all, Timestamp::from_unix(now)).unix(), next, "{now}");
        }
        assert_eq!(next_time(&[], Timestamp::from_unix(5)).unix(), 5);
    }
}
