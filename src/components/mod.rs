//! Everything that the agent itself installs in the seed. The manifests are files in the folders beside this one;
//! `build.rs` packs them into the binary.

pub mod archive;
pub mod availability;
pub mod bring;
pub mod cluster_identity;
pub mod content;
pub mod crds;
pub mod deletion_protection;
pub mod exposure;
pub mod hosting;
pub mod images;
pub mod install;
pub mod leftovers;
pub mod managed;
pub mod references;
pub mod rollout;
pub mod scale;
pub mod system;
pub mod webhooks;
