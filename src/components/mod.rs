//! What the agent itself installs in the seed. The manifests stand as files in the folders beside this one; `build.rs`
//! packs them into the binary.

pub mod archive;
pub mod cluster_identity;
pub mod crds;
pub mod hosting;
pub mod install;
pub mod managed;
pub mod system;
pub mod webhooks;
