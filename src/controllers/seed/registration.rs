//! What this process knows about its Seed object: its uid, and whether somebody has deleted it. It outlives the terms
//! of a leader, so that a change of leadership does not undo a deletion.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::base::lock::IgnorePoison;

#[derive(Debug, Default)]
struct KnownSeed {
    /// Empty before the first registration.
    uid: String,
    deleted: bool,
}

/// The registration. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeedRegistration(Arc<Mutex<KnownSeed>>);

/// Why there is no Seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeedAbsence {
    /// This process has not registered it yet.
    Never,
    /// It is gone without a deletion request: the garden has lost it.
    Lost,
    Deleted,
}

impl SeedRegistration {
    /// Sets the Seed that is served from now on.
    pub(crate) fn serves(&self, uid: &str, is_deleting: bool) {
        let mut known = self.lock();
        if known.uid != uid {
            *known = KnownSeed { uid: uid.to_owned(), deleted: false };
        }
        known.deleted |= is_deleting;
    }

    /// Records that the Seed with this uid is being deleted.
    pub(crate) fn is_deleted(&self, uid: &str) {
        let mut known = self.lock();
        known.deleted |= known.uid == uid;
    }

    /// Whether this is the served Seed, and not another one with its name.
    pub(crate) fn is_of(&self, uid: &str) -> bool {
        self.lock().uid == uid
    }

    /// The uid of the served Seed; empty before the first registration.
    pub(crate) fn uid(&self) -> String {
        self.lock().uid.clone()
    }

    /// Why there is no Seed.
    pub(crate) fn absence(&self) -> SeedAbsence {
        let known = self.lock();
        match (known.uid.is_empty(), known.deleted) {
            (true, _) => SeedAbsence::Never,
            (false, false) => SeedAbsence::Lost,
            (false, true) => SeedAbsence::Deleted,
        }
    }

    fn lock(&self) -> MutexGuard<'_, KnownSeed> {
        // Plain values: a panic does not leave them half changed.
        self.0.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_somebody_deleted_differs_from_one_that_is_lost() {
        let seed = SeedRegistration::default();
        seed.is_deleted("a");
        assert_eq!(seed.absence(), SeedAbsence::Never);
        seed.serves("a", false);
        assert_eq!(seed.absence(), SeedAbsence::Lost);
        seed.is_deleted("of somebody else");
        assert_eq!(seed.absence(), SeedAbsence::Lost);
        seed.is_deleted("a");
        assert_eq!(seed.absence(), SeedAbsence::Deleted);
        seed.serves("a", false);
        assert_eq!(seed.absence(), SeedAbsence::Deleted, "a deletion is not undone");
        seed.serves("b", false);
        assert!(seed.is_of("b") && !seed.is_of("a"));
        assert_eq!(seed.absence(), SeedAbsence::Lost);
        seed.serves("c", true);
        assert_eq!(seed.absence(), SeedAbsence::Deleted);
    }
}
