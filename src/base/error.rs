//! Prints errors on one line: the operation first, then its causes.

use std::error::Error;
use std::fmt::Write as _;

/// The error and its causes, joined by `: `. No other code walks `source()`.
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
