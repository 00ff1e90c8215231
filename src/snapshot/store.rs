//! Where snapshots are kept.

use std::fmt;
use std::io::{Read, Write};

use super::error::Error;
use super::name::Snapshot;
use crate::base::clock::Timestamp;

/// See the module.
pub trait Store: fmt::Debug {
    /// Where it is, for messages.
    fn place(&self) -> String;

    /// All snapshots, the oldest first. A store that is not there is an error, and not an empty one.
    ///
    /// # Errors
    /// If it cannot be asked.
    fn list(&self) -> Result<Vec<Snapshot>, Error>;

    /// The content of a snapshot. An error of the reader is one of the store, and holds an [`Error`] or what the system says.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&self, snapshot: &Snapshot) -> Result<Box<dyn Read + '_>, Error>;

    /// Begins a snapshot. It is not there before [`Upload::finish`], and never if that is not called.
    ///
    /// # Errors
    /// If it cannot be begun.
    fn create(&self, name: &str) -> Result<Box<dyn Upload + '_>, Error>;

    /// Removes a snapshot. One that is not there is no error.
    ///
    /// # Errors
    /// If it may still be there.
    fn remove(&self, name: &str) -> Result<(), Error>;

    /// Removes what uploads of the day before and earlier left behind.
    ///
    /// # Errors
    /// If it cannot be looked for.
    fn sweep(&self, now: Timestamp) -> Result<(), Error>;
}

/// A snapshot that is being written.
pub trait Upload: Write {
    /// Makes it be there, whole and for good. Returns its size.
    ///
    /// # Errors
    /// If it may not be there.
    fn finish(self: Box<Self>) -> Result<u64, Error>;
}

/// How old a leftover must be: no run takes so long.
pub(super) const LEFTOVER_S: i64 = 24 * 60 * 60;
