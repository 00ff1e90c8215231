//! Deletion of a BackupBucket: its extension deletes the bucket with the garden's credentials. Everything else that was
//! created for it is deleted afterwards.

use std::time::Duration;

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::meta::{Key, text};
use crate::backup::BackupRound;
use crate::backup::decide::SecretCopy;
use crate::backup::round::finalize;
use crate::backup::status::{self, BackupReport, OperationProgress};
use crate::extension::credentials::{CredentialsReference, GardenCredentials};
use crate::runtime::controller::{ReconcileFailure, ReconcileOutcome};
use crate::runtime::write;

use super::{FINALIZER, FINALIZER_BEFORE, has};

/// How often to check whether the extension object is gone, in case a wake-up is missed.
const PERIOD: Duration = Duration::from_secs(30);

/// One step of the deletion.
pub(super) fn step(round: &mut BackupRound<'_>) -> Result<ReconcileOutcome, ReconcileFailure> {
    if !round.has_finalizer() {
        return Ok(ReconcileOutcome::Done);
    }
    let operation = status::operation(&round.object);
    delete_generated(round)?;
    let reference = CredentialsReference::read(&round.object["spec"]["credentialsRef"]);
    let credentials = match reference.map(|reference| reference.look(round.garden)) {
        Ok(found) => found?,
        // The reference is immutable now, and it has never been valid.
        Err(_) => None,
    };
    let target = round.target();
    if let Some(object) = target.find(round.seed)? {
        if let Some(credentials) = &credentials
            && !matches!(round.copy_of(credentials)?, SecretCopy::Same(_))
        {
            // They may have changed.
            round.apply_credentials(credentials)?;
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            target.delete(round.seed, round.cx.clock.now())?;
        }
        return wait(round, operation, &object);
    }
    write::delete(round.seed, &SECRET, &round.secret())?;
    let description = "Backup Bucket has been successfully deleted.".to_owned();
    round.report(&BackupReport { operation, way: OperationProgress::Succeeded, description })?;
    if let Some(credentials) = credentials {
        release(round, &credentials)?;
    }
    round.finalize(false)?;
    log::info!(bucket = round.key().name.as_str(); "The BackupBucket is deleted");
    Ok(ReconcileOutcome::Done)
}

/// The extension object still exists.
fn wait(
    round: &mut BackupRound<'_>,
    operation: &'static str,
    object: &Value,
) -> Result<ReconcileOutcome, ReconcileFailure> {
    let error = &object["status"]["lastError"];
    if error.is_null() {
        let description = format!("{} of BackupBucket state initialized.", status::noun(operation));
        round.report(&BackupReport { operation, way: OperationProgress::Processing, description })?;
        return Ok(ReconcileOutcome::After(PERIOD));
    }
    let failed = crate::backup::garden::said(error);
    let description = format!("{} Operation will be retried.", failed.text);
    round.tell(operation, failed.clone(), description)?;
    Err(failed.into())
}

/// Deletes the garden's Secret with credentials that the extension generated.
fn delete_generated(round: &BackupRound<'_>) -> Result<(), ReconcileFailure> {
    let reference = &round.object["status"]["generatedSecretRef"];
    let secret = Key::new(text(&reference["namespace"]), text(&reference["name"]));
    if secret.name.is_empty() {
        return Ok(());
    }
    if let Some(live) = round.garden.find::<Value>(&SECRET, &secret)? {
        finalize(round.garden, &SECRET, &live, FINALIZER, false)?;
        write::delete(round.garden, &SECRET, &secret)?;
    }
    Ok(())
}

fn release(round: &BackupRound<'_>, credentials: &GardenCredentials) -> Result<(), ReconcileFailure> {
    let (garden, resource) = (round.garden, credentials.resource());
    let key = Key::of(&credentials.object);
    for finalizer in [FINALIZER_BEFORE, FINALIZER] {
        let live = garden.find::<Value>(resource, &key)?;
        if let Some(live) = live.filter(|live| has(live, finalizer)) {
            finalize(garden, resource, &live, finalizer, false)?;
        }
    }
    Ok(())
}
