//! A piece of a shared text: charts are large, and most of what they print stands in them as it is.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A piece of a shared text.
#[derive(Clone)]
pub struct Slice {
    whole: Arc<str>,
    range: Range<usize>,
}

impl Slice {
    /// All of a text.
    pub fn all(whole: Arc<str>) -> Self {
        let range = 0..whole.len();
        Self { whole, range }
    }

    /// A piece of the text that lies in it, found by where it lies; a copy of one that does not.
    #[must_use]
    pub fn part(&self, piece: &str) -> Self {
        let start = piece.as_ptr().addr().checked_sub(self.whole.as_ptr().addr());
        let range = start.map(|start| start..start + piece.len());
        match range.filter(|range| self.whole.get(range.clone()) == Some(piece)) {
            Some(range) => Self { whole: self.whole.clone(), range },
            None => Self::from(piece),
        }
    }
}

impl Deref for Slice {
    type Target = str;

    fn deref(&self) -> &str {
        self.whole.get(self.range.clone()).unwrap_or_default()
    }
}

impl From<&str> for Slice {
    fn from(text: &str) -> Self {
        Self::all(text.into())
    }
}

impl From<&String> for Slice {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Slice {
    fn from(text: String) -> Self {
        Self::all(text.into())
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_share_their_text() {
        let all = Slice::from("one two three");
        let two = all.part(&all[4..7]);
        assert!(&*two == "two" && Arc::ptr_eq(&two.whole, &all.whole));
        let wo = two.part(&two[1..]);
        assert!(&*wo == "wo" && Arc::ptr_eq(&wo.whole, &all.whole));
        let stranger = String::from("two");
        assert!(!Arc::ptr_eq(&all.part(&stranger).whole, &all.whole));
        assert_eq!(all.part(&stranger), two);
    }
}
