//! The storage of snapshots.

use std::fmt;
use std::io::{Read, Write};

use super::error::Error;
use super::name::Snapshot;
use crate::base::clock::Timestamp;

/// A store.
pub trait SnapshotStore: fmt::Debug {
    /// Its location, for messages.
    fn place(&self) -> String;

    /// All snapshots, the oldest first. A missing store is an error, not an empty list. Errors:
    /// it cannot be reached.
    fn list(&self) -> Result<Vec<Snapshot>, Error>;

    /// The content of a snapshot. An error of the reader is an error of the store, and contains an [`Error`]
    /// or a system error. Errors: it cannot be opened.
    fn open(&self, snapshot: &Snapshot) -> Result<Box<dyn Read + '_>, Error>;

    /// Starts a snapshot. It exists only after [`Upload::finish`], and never if that is not called. Errors:
    /// it cannot be started.
    fn create(&self, name: &str) -> Result<Box<dyn Upload + '_>, Error>;

    /// Removes a snapshot. A missing one is no error. Errors: it may still exist.
    fn remove(&self, name: &str) -> Result<(), Error>;

    /// Removes leftovers of uploads that are at least a day old. Errors: they cannot be listed.
    fn sweep(&self, now: Timestamp) -> Result<(), Error>;
}

/// A snapshot that is being written.
pub trait Upload: Write {
    /// Completes it durably. Returns its size. Errors: it may not exist.
    fn finish(self: Box<Self>) -> Result<u64, Error>;
}

/// The minimum age of a leftover: no run takes so long.
pub(super) const LEFTOVER_S: i64 = 24 * 60 * 60;
