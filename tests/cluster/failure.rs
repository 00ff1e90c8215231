//! Why a story failed: a sentence for the summary.

use std::fmt;
use std::io;

use gardenlet::base::error::chain;

/// The result of everything in this harness.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A sentence, with its causes appended.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(err: io::Error) -> Self {
        Self(err.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(err: serde_json::Error) -> Self {
        Self(format!("JSON: {err}"))
    }
}

impl From<gardenlet::kube::Error> for Failure {
    fn from(err: gardenlet::kube::Error) -> Self {
        Self(chain(&err))
    }
}

impl From<gardenlet::pki::Error> for Failure {
    fn from(err: gardenlet::pki::Error) -> Self {
        Self(err.to_string())
    }
}

impl From<gardenlet::secrets::Error> for Failure {
    fn from(err: gardenlet::secrets::Error) -> Self {
        Self(err.to_string())
    }
}

impl From<rcgen::Error> for Failure {
    fn from(err: rcgen::Error) -> Self {
        Self(format!("certificate: {err}"))
    }
}

/// Adds what the program was doing when an error occurred.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: std::error::Error + 'static> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|err| Failure(format!("{}: {}", what(), chain(&err))))
    }
}

/// Fails with a sentence unless `condition` holds.
pub(crate) fn ensure(condition: bool, text: impl FnOnce() -> String) -> Result<()> {
    if condition { Ok(()) } else { Err(Failure(text())) }
}

/// Fails unless both are equal, and shows both.
pub(crate) fn equal<T: PartialEq + fmt::Debug + ?Sized>(what: &str, found: &T, expected: &T) -> Result<()> {
    ensure(found == expected, || format!("{what}: found {found:?}, expected {expected:?}"))
}
