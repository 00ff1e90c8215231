//! Keeps a controller's flow between two turns.

use std::fmt;

/// Lends a value to a turn. It is returned at the end of the turn, even if a task panics: in the next turn, the flow
/// finds out which task it was.
pub(crate) struct LentValue<T, F: FnMut(T)> {
    value: Option<T>,
    keep: F,
}

impl<T, F: FnMut(T)> fmt::Debug for LentValue<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentValue").field("is_kept", &self.value.is_some()).finish_non_exhaustive()
    }
}

impl<T, F: FnMut(T)> LentValue<T, F> {
    /// Without a value. `keep` stores a value again, and must not panic.
    pub(crate) const fn new(keep: F) -> Self {
        Self { value: None, keep }
    }

    /// The value, for this turn.
    pub(crate) fn lend(&mut self, value: T) -> &mut T {
        self.value.insert(value)
    }

    /// There is no next turn: the value is not returned.
    pub(crate) fn forget(&mut self) {
        self.value = None;
    }
}

impl<T, F: FnMut(T)> Drop for LentValue<T, F> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            (self.keep)(value);
        }
    }
}
