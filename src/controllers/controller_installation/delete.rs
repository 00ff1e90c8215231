//! Deletion of an installation: its ManagedResource, its namespace, its account in the garden, then the finalizer. Each
//! round continues with the remaining objects and reports them in `Installed`.

use std::time::Duration;

use crate::api::condition::ConditionStatus;
use crate::api::core::{NAMESPACE, SECRET, SERVICE_ACCOUNT};
use crate::api::gardener::{CONTROLLER_INSTALLATION, ControllerInstallation, seed_namespace};
use crate::api::meta::Key;
use crate::api::resources::{GARDEN_NAMESPACE, MANAGED_RESOURCE};
use crate::base::error::chain;
use crate::components::managed;
use crate::runtime::controller::ReconcileFailure;
use crate::runtime::write;

use super::status::InstallationConditions;
use super::{FINALIZER, InstallationReconciler, objects};

/// The result of a round.
pub(super) enum InstallationProgress {
    Installed,
    /// Continue after this time.
    Wait(Duration),
    /// Everything is gone, so the finalizer can be removed.
    Finish,
}

const AGAIN: Duration = Duration::from_secs(5);

/// One round of the deletion.
pub(super) fn step(
    this: &InstallationReconciler,
    installation: &ControllerInstallation,
    verdict: &mut InstallationConditions,
) -> Result<InstallationProgress, ReconcileFailure> {
    this.seed_object(verdict)?;
    let name = &installation.metadata.name;
    let gone = managed_resource(this, name).inspect_err(|failure| {
        let message =
            format!("Deletion of ManagedResource \"{name}\" and its secrets failed: {}", failure.text());
        verdict.installed(ConditionStatus::False, "DeletionFailed", &message);
    })?;
    if !gone {
        let message = format!("Deletion of ManagedResource \"{name}\" is still pending.");
        verdict.installed(ConditionStatus::False, "DeletionPending", &message);
        return Ok(InstallationProgress::Wait(AGAIN));
    }
    let namespace = Key::cluster(objects::namespace_name(name));
    let gone = match write::delete(&this.site.seed, &NAMESPACE, &namespace) {
        // The namespace is terminating.
        Err(e) if e.is_conflict() => false,
        other => other.inspect_err(|e| {
            let message = format!("Deletion of Namespace \"{}\" failed: {}", namespace.name, chain(e));
            verdict.installed(ConditionStatus::False, "DeletionFailed", &message);
        })?,
    };
    if !gone {
        let message = format!("Deletion of Namespace \"{}\" is still pending.", namespace.name);
        verdict.installed(ConditionStatus::False, "DeletionPending", &message);
        return Ok(InstallationProgress::Wait(AGAIN));
    }
    let account = Key::new(seed_namespace(this.site.seed_name()), namespace.name);
    write::delete(&this.site.garden, &SERVICE_ACCOUNT, &account).inspect_err(|e| {
        let message =
            format!("Deletion of ServiceAccount \"{account}\" in garden cluster failed: {}", chain(e));
        verdict.installed(ConditionStatus::False, "DeletionFailed", &message);
    })?;
    verdict.installed(ConditionStatus::False, "DeletionSuccessful", "Deletion of old resources succeeded.");
    Ok(InstallationProgress::Finish)
}

/// Deletes the referenced Secrets first, because the applier works from what it recorded. Returns true once
/// the ManagedResource is gone.
fn managed_resource(this: &InstallationReconciler, name: &str) -> Result<bool, ReconcileFailure> {
    let key = Key::new(GARDEN_NAMESPACE, name);
    let live = this.site.seed.find::<serde_json::Value>(&MANAGED_RESOURCE, &key)?;
    let mut secrets = live.as_ref().map(managed::referenced_secrets).unwrap_or_default();
    secrets.push(key.clone());
    for secret in secrets {
        write::delete(&this.site.seed, &SECRET, &secret)?;
    }
    Ok(write::delete(&this.site.seed, &MANAGED_RESOURCE, &key)?)
}

/// Removes the finalizer, after the last condition was written.
pub(super) fn finish(
    this: &InstallationReconciler,
    installation: &ControllerInstallation,
) -> Result<(), ReconcileFailure> {
    let name = &installation.metadata.name;
    let key = installation.metadata.key();
    // The conditions were just written, so the version that was read is stale.
    let Some(live) =
        this.site.garden.find::<ControllerInstallation>(&CONTROLLER_INSTALLATION, &Key::cluster(name))?
    else {
        return Ok(());
    };
    write::finalizer(&this.site.garden, &CONTROLLER_INSTALLATION, &key, &live.metadata, FINALIZER, false)?;
    log::info!(installation = name.as_str(); "The extension was removed from the seed");
    Ok(())
}
