//! Backups of etcds: what the controllers of BackupBuckets and BackupEntries share. The garden defines what to keep,
//! and an extension in the seed keeps it with credentials that are copied from the garden.

pub mod decide;
pub mod garden;
pub mod round;
pub mod status;

pub use round::{BackupKind, BackupRound, KnownExtensions};

/// The finalizer of BackupBuckets and BackupEntries.
pub const FINALIZER: &str = "gardener";
