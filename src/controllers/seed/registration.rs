//! What this process knows of the Seed object that it serves: which one it is, and whether somebody wanted it gone. It
//! outlives the terms of a leader, so that nobody's deletion is undone by a change of leadership.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Known {
    /// Empty before the first registration.
    uid: String,
    deleted: bool,
}

/// See the module. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Registration(Arc<Mutex<Known>>);

/// What it means that there is no Seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// This process has not registered it yet.
    Never,
    /// It is gone, and nobody asked for that: the garden has lost it.
    Lost,
    /// Somebody deleted it.
    Deleted,
}

impl Registration {
    /// This is the Seed from now on.
    pub fn serves(&self, uid: &str, is_deleting: bool) {
        let mut known = self.lock();
        if known.uid != uid {
            *known = Known { uid: uid.to_owned(), deleted: false };
        }
        known.deleted |= is_deleting;
    }

    /// Somebody deletes the Seed of this uid.
    pub fn is_deleted(&self, uid: &str) {
        let mut known = self.lock();
        known.deleted |= known.uid == uid;
    }

    /// Whether this is the Seed that is served, and not another one of the same name.
    pub fn is_of(&self, uid: &str) -> bool {
        self.lock().uid == uid
    }

    /// Which Seed it is; empty before the first registration.
    pub fn uid(&self) -> String {
        self.lock().uid.clone()
    }

    /// There is no Seed: why.
    pub fn absence(&self) -> Absence {
        let known = self.lock();
        match (known.uid.is_empty(), known.deleted) {
            (true, _) => Absence::Never,
            (false, false) => Absence::Lost,
            (false, true) => Absence::Deleted,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Plain values: no panic leaves them half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_somebody_deleted_differs_from_one_that_is_lost() {
        let seed = Registration::default();
        seed.is_deleted("a");
        assert_eq!(seed.absence(), Absence::Never);
        seed.serves("a", false);
        assert_eq!(seed.absence(), Absence::Lost);
        seed.is_deleted("of somebody else");
        assert_eq!(seed.absence(), Absence::Lost);
        seed.is_deleted("a");
        assert_eq!(seed.absence(), Absence::Deleted);
        seed.serves("a", false);
        assert_eq!(seed.absence(), Absence::Deleted, "a deletion is not taken back");
        seed.serves("b", false);
        assert!(seed.is_of("b") && !seed.is_of("a"));
        assert_eq!(seed.absence(), Absence::Lost);
        seed.serves("c", true);
        assert_eq!(seed.absence(), Absence::Deleted);
    }
}
