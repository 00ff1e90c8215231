//! The names of snapshots, in the format of etcd-backup-restore: `Full-<first revision>-<last revision>-<seconds since
//! 1970>.gz`.
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
    /// The changes since another one. Only etcd-backup-restore writes and reads these.
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
    /// The revision of etcd up to which it contains all changes.
    pub revision: u64,
    /// When it was taken.
    pub(crate) time: Timestamp,
    pub(crate) packing: Packing,
}

/// The mark of a snapshot after which its etcd was shut down.
const FINAL: &str = ".final";

impl SnapshotName {
    /// The name of a new full snapshot.
    pub(crate) fn new(revision: u64, time: Timestamp) -> Self {
        let text = format!("Full-{:08}-{revision:08}-{}.gz", 0, time.unix());
        Self { text, kind: Kind::Full, revision, time, packing: Packing::Gzip }
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
        (first <= last).then(|| Self { text: text.to_owned(), kind, revision: last, time, packing })
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
    found.sort_by(|a, b| {
        let key = |snapshot: &Snapshot| (snapshot.name.time, snapshot.name.revision);
        key(a).cmp(&key(b)).then_with(|| a.name.text.cmp(&b.name.text))
    });
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
            "Incr-00000010-00000011-20",
        ];
        let all = snapshots(entries.map(|name| (name.to_owned(), 7)));
        let revisions: Vec<u64> = all.iter().map(|snapshot| snapshot.name.revision).collect();
        assert_eq!(revisions, [500, 9, 11]);
        for (now, next) in [(5, 21), (20, 21), (30, 30)] {
            assert_eq!(next_time(&all, Timestamp::from_unix(now)).unix(), next, "{now}");
        }
        assert_eq!(next_time(&[], Timestamp::from_unix(5)).unix(), 5);
    }
}
