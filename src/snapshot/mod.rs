//! Snapshots of an etcd: taken over its JSON gateway, stored in a directory or an S3 bucket, restored with etcd's own
//! tool. Names and layout are those of etcd-backup-restore, so that each program can read the full snapshots of the
//! other.

mod check;
pub mod directory;
mod error;
pub mod gateway;
pub mod name;
pub mod restore;
pub mod retention;
pub mod s3;
mod seal;
mod store;
pub mod take;

pub use error::Error;
pub use store::{SnapshotStore, Upload};
