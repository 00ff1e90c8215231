//! Snapshots of an etcd: taken over its JSON gateway, stored in a directory or an S3 bucket, restored with etcd's own
//! tool. Names and layout are those of etcd-backup-restore, so that each program can restore the snapshots of the
//! other. The agent takes only full snapshots.

mod chain;
mod check;
pub(crate) mod copy;
mod delta;
pub(crate) mod directory;
mod error;
pub(crate) mod gateway;
pub(crate) mod last;
#[cfg(test)]
mod memory;
pub mod name;
mod proof;
pub(crate) mod restore;
pub(crate) mod retention;
pub mod s3;
mod seal;
mod store;
pub(crate) mod take;

pub(crate) use error::Error;
pub use store::SnapshotStore;
