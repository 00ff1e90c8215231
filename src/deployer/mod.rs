//! Puts an agent into the cluster of a Shoot, which becomes a seed by it (Gardener's `pkg/controller/gardenletdeployer`): the
//! agent's own chart with a configuration, an image and, until the new agent has a certificate, a bootstrap kubeconfig.
//!
//! [`values`] and [`token`] decide what that is, [`check`] looks whether it fits, [`apply`] writes it, [`report`] tells how it went.

use std::path::PathBuf;

use crate::extension::CONFIGURATION_PROBLEM;
use crate::flow::Failed;

pub mod apply;
pub mod check;
pub mod report;
pub mod token;
pub mod values;

/// Where the agent is, in the cluster of the Shoot as in a seed.
pub const NAMESPACE: &str = "garden";
/// The name of the release and of the Deployment.
pub const NAME: &str = "gardenlet";

/// What a new agent takes over from the one that deploys it, besides its configuration.
#[derive(Clone, Debug, Default)]
pub struct Parent {
    /// The file that overwrites images of control planes (`IMAGEVECTOR_OVERWRITE`).
    pub images: Option<PathBuf>,
    /// The same for images of components (`IMAGEVECTOR_OVERWRITE_COMPONENTS`).
    pub component_images: Option<PathBuf>,
    /// The namespace of the seed in which the agent runs, if it runs in a pod.
    pub namespace: Option<String>,
}

/// Only a change of the configuration mends it.
pub fn problem(text: impl Into<String>) -> Failed {
    Failed { codes: vec![CONFIGURATION_PROBLEM.to_owned()], ..Failed::new(text) }
}
