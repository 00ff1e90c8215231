//! Printing errors: one line, the operation first, its causes behind it.

use std::error::Error;
use std::fmt::Write as _;

/// The error and its causes, joined by `: `. Nobody else walks `source()`.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut out = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a String cannot fail.
        let _ = write!(out, ": {error}");
        cause = error.source();
    }
    out
}
