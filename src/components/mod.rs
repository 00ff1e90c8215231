//! Everything that the agent itself installs in the seed. The manifests are files in the folders beside this one;
//! `build.rs` packs them into the binary.

pub(crate) mod apply;
pub(crate) mod archive;
pub(crate) mod availability;
pub mod cluster_identity;
pub(crate) mod content;
pub mod crds;
pub mod deletion_protection;
pub mod exposure;
pub(crate) mod hosting;
pub mod images;
pub mod install;
pub(crate) mod leftovers;
pub mod managed;
pub(crate) mod references;
pub mod rollout;
pub(crate) mod scale;
pub mod system;
pub mod webhooks;
