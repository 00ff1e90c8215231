//! What a controller keeps of a flow between two turns.

use std::fmt;

/// Lends it to a turn. It goes back at the end of the turn, also if a task panics: in the next turn, the flow finds which one.
pub struct Held<T, F: FnMut(T)> {
    value: Option<T>,
    keep: F,
}

impl<T, F: FnMut(T)> fmt::Debug for Held<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("is_kept", &self.value.is_some()).finish_non_exhaustive()
    }
}

impl<T, F: FnMut(T)> Held<T, F> {
    /// Holds nothing yet. `keep` puts a value back, and must not panic.
    pub const fn new(keep: F) -> Self {
        Self { value: None, keep }
    }

    /// The value, for this turn.
    pub fn lend(&mut self, value: T) -> &mut T {
        self.value.insert(value)
    }

    /// There will be no next turn: the value does not go back.
    pub fn forget(&mut self) {
        self.value = None;
    }
}

impl<T, F: FnMut(T)> Drop for Held<T, F> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            (self.keep)(value);
        }
    }
}
