//! Snapshots of an etcd: taken over its JSON gateway, kept in a directory or in a bucket of S3, restored with its own tool. Names
//! and layout are those of etcd-backup-restore, so that its full snapshots can be read, and ours by it.

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
pub use store::{Store, Upload};
