//! Backups of etcds: what the controllers of BackupBuckets and BackupEntries share. The garden defines what to keep,
//! and an extension in the seed keeps it with credentials that are copied from the garden.

pub(crate) mod decide;
pub mod garden;
pub(crate) mod round;
pub(crate) mod status;

pub(crate) use round::{BackupKind, BackupRound, KnownExtensions};

/// The finalizer of BackupBuckets and BackupEntries.
pub(crate) const FINALIZER: &str = "gardener";
