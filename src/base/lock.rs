//! Locks whose data stays usable after a panic: straight-line code runs under them, which leaves nothing half changed.

use std::sync::{LockResult, PoisonError};

/// For the result of a lock, or of waiting for one.
pub(crate) trait IgnorePoison {
    /// What gives access to the data.
    type Guard;

    /// The access, even if a thread has panicked while it held the lock.
    fn ignore_poison(self) -> Self::Guard;
}

impl<G> IgnorePoison for LockResult<G> {
    type Guard = G;

    fn ignore_poison(self) -> G {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}
