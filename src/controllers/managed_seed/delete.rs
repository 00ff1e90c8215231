//! Deletion of a seed: first the Seed with everything on it, then its agent, then the objects that were created for it.

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, NAMESPACE as NAMESPACES, SECRET};
use crate::api::gardener::SEED;
use crate::api::meta::Key;
use crate::deployer::{NAME, NAMESPACE, apply};
use crate::extension::credentials::CredentialsReference;
use crate::flow::Failed;
use crate::runtime::controller::ReconcileContext;
use crate::runtime::write;

use super::ManagedSeedContext;
use super::act::{is_owned, objects, target};
use super::subject::Subject;

/// The progress of the deletion.
pub(super) enum DeletionProgress {
    /// The Seed still exists; its agent has work to do.
    Seed(String),
    /// Objects of the agent still exist.
    Agent(String),
    Done,
}

/// One step of the deletion.
pub(super) fn step(
    base: &ManagedSeedContext,
    subject: &Subject,
    cx: &ReconcileContext,
) -> Result<DeletionProgress, Failed> {
    let name = subject.name();
    let key = Key::cluster(name);
    if let Some(seed) = base.site.garden.find::<Value>(&SEED, &key)? {
        if seed["metadata"]["deletionTimestamp"].is_null() {
            write::delete(&base.site.garden, &SEED, &key)?;
        }
        return Ok(DeletionProgress::Seed(format!("Waiting for seed {name:?} to be deleted")));
    }
    if subject.plane().is_empty() {
        // The Shoot is gone, together with its cluster.
        return Ok(DeletionProgress::Done);
    }
    let client = target(base, subject)?;
    let waits = |what: &str| Ok(DeletionProgress::Agent(format!("Waiting for {what} to be deleted")));
    if let Some(deployment) = client.find::<Value>(&DEPLOYMENT, &Key::new(NAMESPACE, NAME))? {
        if deployment["metadata"]["deletionTimestamp"].is_null() {
            let objects = objects(base, subject, &client, cx)?;
            apply::remove(&client, objects)?;
        }
        return waits("gardenlet in the target cluster");
    }
    if let Some(secret) = backup_secret(base, subject)? {
        write::delete(&base.site.garden, &SECRET, &secret)?;
        return waits("seed secrets");
    }
    let key = Key::cluster(NAMESPACE);
    if let Some(namespace) = client.find::<Value>(&NAMESPACES, &key)? {
        if namespace["metadata"]["deletionTimestamp"].is_null() {
            write::delete(&client, &NAMESPACES, &key)?;
        }
        return waits("the garden namespace in the target cluster");
    }
    Ok(DeletionProgress::Done)
}

/// Backup credentials that an older gardenlet has copied.
fn backup_secret(base: &ManagedSeedContext, subject: &Subject) -> Result<Option<Key>, Failed> {
    let Ok(config) = subject.config() else { return Ok(None) };
    let reference = &config["seedConfig"]["spec"]["backup"]["credentialsRef"];
    if reference["kind"] != "Secret" || reference["apiVersion"] != "v1" {
        return Ok(None);
    }
    let reference = CredentialsReference::secret(reference);
    let found = match reference.look(&base.site.garden) {
        // The garden shows only what belongs to this seed, and this agent has created no other.
        Err(error) if error.is_unrelated() => None,
        other => other?,
    };
    Ok(found.filter(|found| is_owned(&found.object, subject)).map(|_| reference.key))
}
