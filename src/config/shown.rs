//! How a message repeats what a document contains. A misplaced text may be secret, so only enough is shown to identify a
//! slip of the pen.

use crate::base::cut::cut;

/// The most bytes of a text that are shown.
const BYTES_MAX: usize = 40;

/// The start of a text in quotes, with control characters escaped.
pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", cut(text.to_owned(), BYTES_MAX))
}

/// The same without quotes: for amounts, and for keys in a path.
pub(super) fn shown(text: &str) -> String {
    cut(text.to_owned(), BYTES_MAX).escape_debug().to_string()
}
