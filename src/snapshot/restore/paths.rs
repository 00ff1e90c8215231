//! Where an etcd has its programs, its configuration and its data.

use std::path::PathBuf;

/// The paths of an etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EtcdPaths {
    pub(crate) etcd: PathBuf,
    /// The tool that restores snapshots.
    pub(crate) etcdutl: PathBuf,
    pub(crate) config: PathBuf,
    pub(crate) data: PathBuf,
}
