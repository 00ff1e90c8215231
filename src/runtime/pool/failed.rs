//! The failing keys of each controller: the last error, and since when. They are for people; the queue has its own
//! count.

use crate::api::meta::Key;
use crate::base::clock::Mono;
use crate::base::cut::cut;
use crate::base::sorted::SortedMap;
use crate::limits;
use crate::runtime::controller;

#[derive(Debug)]
struct Entry {
    error: Box<str>,
    since: Mono,
    attempts: u32,
    is_final: bool,
}

#[derive(Debug, Default)]
pub(super) struct FailedKeys(SortedMap<Key, Entry>);

/// The remembered part of a failure. It is made without the lock of the pool, because the text may be long.
#[derive(Debug)]
pub(super) struct FailureNote {
    error: Box<str>,
    is_final: bool,
    is_conflict: bool,
}

impl FailureNote {
    pub(super) fn of(failure: &controller::ReconcileFailure) -> Self {
        Self {
            error: cut(failure.text(), limits::FAILED_TEXT_BYTES_MAX).into_boxed_str(),
            is_final: matches!(failure, controller::ReconcileFailure::Terminal(_)),
            is_conflict: failure.is_conflict(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedKey {
    pub(crate) controller: &'static str,
    pub(crate) key: Key,
    /// The last error, as the log shows it.
    pub(crate) error: String,
    /// When the first of the failures in a row was.
    pub(crate) since: Mono,
    /// The number of failures in a row, if the controller will retry.
    pub(crate) attempts: u32,
    /// The controller will not retry until something changes.
    pub(crate) is_final: bool,
}

impl FailedKeys {
    /// The key failed. A conflict is everyday life, and the next look knows the new version.
    pub(super) fn note(&mut self, key: &Key, note: FailureNote, attempts: u32, now: Mono) {
        let FailureNote { error, is_final, is_conflict } = note;
        if let Some(entry) = self.0.get_mut(key) {
            (entry.error, entry.attempts, entry.is_final) = (error, attempts, is_final);
        } else if !is_conflict && self.0.len() < limits::FAILED_KEYS_MAX {
            self.0.insert(key.clone(), Entry { error, since: now, attempts, is_final });
        }
    }

    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    pub(super) fn clear(&mut self) {
        self.0 = SortedMap::new();
    }

    pub(super) fn all(&self, controller: &'static str) -> impl Iterator<Item = FailedKey> {
        self.0.iter().map(move |(key, entry)| FailedKey {
            controller,
            key: key.clone(),
            error: entry.error.to_string(),
            since: entry.since,
            attempts: entry.attempts,
            is_final: entry.is_final,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::controller::ReconcileFailure as Error;

    #[test]
    fn the_first_failure_of_a_row_gives_the_time_and_the_last_one_the_text() {
        let (mut failed, key) = (FailedKeys::default(), Key::new("n", "a"));
        let s = std::time::Duration::from_secs;
        failed.note(&key, FailureNote::of(&Error::retry("first")), 1, s(5));
        failed.note(&key, FailureNote::of(&Error::terminal("second")), 0, s(9));
        let all: Vec<FailedKey> = failed.all("c").collect();
        let expected = FailedKey {
            controller: "c",
            key: key.clone(),
            error: "second".to_owned(),
            since: s(5),
            attempts: 0,
            is_final: true,
        };
        assert_eq!(all, [expected]);
        failed.forget(&key);
        assert_eq!(failed.all("c").count(), 0);
    }

    #[test]
    fn keys_and_texts_have_a_maximum() {
        let mut failed = FailedKeys::default();
        let long = "\u{e4}".repeat(limits::FAILED_TEXT_BYTES_MAX);
        for n in 0..2 * limits::FAILED_KEYS_MAX {
            let note = FailureNote::of(&Error::retry(long.as_str()));
            failed.note(&Key::cluster(format!("k{n}")), note, 1, Mono::ZERO);
        }
        let all: Vec<FailedKey> = failed.all("c").collect();
        assert_eq!(all.len(), limits::FAILED_KEYS_MAX);
        assert!(all.iter().all(|one| one.error.len() <= limits::FAILED_TEXT_BYTES_MAX + 3));
        failed.clear();
        assert_eq!(failed.all("c").count(), 0);
    }
}
