//! What a restoration has lost of the data of a Shoot, until its owner was told. It is an annotation of the namespace: the agent may end
//! before the end of the restoration, and who has copied the backups is deleted.

use serde_json::Value;

use crate::api::core::NAMESPACE;
use crate::api::meta::{Key, annotation};
use crate::kube::{Error, Patch, Seed};

use super::work::Work;

/// The annotation with the text of Event `DataLost`.
const LOST: &str = "edge.gardenlet/data-lost";

/// Remembers what is lost.
pub(super) fn remember(work: &Work, what: &str) -> Result<(), Error> {
    let shoot = work.view.name.as_str();
    log::warn!(shoot, lost = what; "A Shoot is restored without a part of its data, which its owner has accepted");
    let patch = Patch::annotation(LOST, what);
    work.env.seed.patch_blindly(&NAMESPACE, &Key::cluster(work.plane()), &patch)
}

/// What is lost, and nobody was told.
pub(crate) fn find(seed: &Seed, namespace: &str) -> Result<Option<String>, Error> {
    let found = seed.find::<Value>(&NAMESPACE, &Key::cluster(namespace))?.unwrap_or_default();
    Ok(Some(annotation(&found, LOST).to_owned()).filter(|what| !what.is_empty()))
}

/// The owner was told.
pub(crate) fn forget(seed: &Seed, namespace: &str) -> Result<(), Error> {
    seed.patch_blindly(&NAMESPACE, &Key::cluster(namespace), &Patch::annotation(LOST, Value::Null))
}
