//! A slice of a shared text: charts are large, and most of their output is text that they contain literally.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A slice of a shared text.
#[derive(Clone)]
pub struct TextSlice {
    whole: Arc<str>,
    // Texts are limited far below this type's maximum; syntax trees hold many slices.
    start: u32,
    end: u32,
}

impl TextSlice {
    pub(crate) fn all(whole: Arc<str>) -> Self {
        let end = offset(whole.len());
        Self { whole, start: 0, end }
    }

    /// A slice for a part of the text, identified by its address; a copy for any other text.
    #[must_use]
    pub(crate) fn part(&self, piece: &str) -> Self {
        let start = piece.as_ptr().addr().checked_sub(self.whole.as_ptr().addr());
        match start.filter(|start| start + piece.len() <= self.whole.len()) {
            Some(start) => {
                Self { whole: self.whole.clone(), start: offset(start), end: offset(start + piece.len()) }
            }
            None => Self::from(piece),
        }
    }
}

fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn index(offset: u32) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Deref for TextSlice {
    type Target = str;

    fn deref(&self) -> &str {
        self.whole.get(index(self.start)..index(self.end)).unwrap_or_default()
    }
}

impl From<&str> for TextSlice {
    fn from(text: &str) -> Self {
        Self::all(text.into())
    }
}

impl From<&String> for TextSlice {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for TextSlice {
    fn from(text: String) -> Self {
        Self::all(text.into())
    }
}

impl fmt::Debug for TextSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl PartialEq for TextSlice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_share_their_text() {
        let all = TextSlice::from("one two three");
        let two = all.part(&all[4..7]);
        assert!(&*two == "two" && Arc::ptr_eq(&two.whole, &all.whole));
        let wo = two.part(&two[1..]);
        assert!(&*wo == "wo" && Arc::ptr_eq(&wo.whole, &all.whole));
        let stranger = String::from("two");
        assert!(!Arc::ptr_eq(&all.part(&stranger).whole, &all.whole));
        assert_eq!(all.part(&stranger), two);
    }
}
