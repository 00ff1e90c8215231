//! Deploys an agent to the cluster of a Shoot, which turns it into a seed (Gardener's
//! `pkg/controller/gardenletdeployer`): the agent's own chart with a configuration, an image and, until the new agent
//! has a certificate, a bootstrap kubeconfig.
//!
//! [`values`] and [`token`] decide the content, [`check`] validates it, [`apply`] writes it, [`report`] reports the
//! result.

use std::path::PathBuf;

use serde_json::Value;

use crate::api::core::DEPLOYMENT;
use crate::api::meta::Key;
use crate::components::images::Images;
use crate::kube::{Error, Seed};

pub(crate) mod apply;
pub(crate) mod check;
pub(crate) mod report;
pub mod token;
pub(crate) mod values;

/// The agent's namespace, in the cluster of the Shoot as in a seed.
pub(crate) const NAMESPACE: &str = "garden";
/// The name of the release and of the Deployment.
pub(crate) const NAME: &str = "gardenlet";

/// What a new agent inherits from the agent that deploys it, besides its configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParentAgent {
    /// The file that overwrites images of control planes (`IMAGEVECTOR_OVERWRITE`).
    pub(crate) images: Option<PathBuf>,
    /// The same for images of components (`IMAGEVECTOR_OVERWRITE_COMPONENTS`).
    pub(crate) component_images: Option<PathBuf>,
    /// The namespace of the seed in which the agent runs, if it runs in a pod.
    pub(crate) namespace: Option<String>,
}

/// The image of this agent: from an overwriting image list, or from its Deployment; empty if unknown. Errors:
/// a request fails. Without permission to read the Deployment, the image is unknown.
pub(crate) fn own_image(seed: &Seed, images: &Images, parent: &ParentAgent) -> Result<String, Error> {
    if let Ok(image) = images.find(NAME, env!("CARGO_PKG_VERSION")) {
        return Ok(image);
    }
    let Some(namespace) = &parent.namespace else { return Ok(String::new()) };
    match seed.find::<Value>(&DEPLOYMENT, &Key::new(namespace, NAME)) {
        Ok(found) => Ok(found.as_ref().and_then(values::image_of).unwrap_or_default().to_owned()),
        Err(error) if error.is_denied() => Ok(String::new()),
        Err(error) => Err(error),
    }
}
