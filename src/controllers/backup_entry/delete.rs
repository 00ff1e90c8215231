//! Deletion of a BackupEntry: it waits for the grace period, then its extension deletes the backups.

use std::time::Duration;

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::meta::{Metadata, annotation, is_true};
use crate::backup::BackupRound;
use crate::backup::decide::SecretCopy;
use crate::backup::garden::{FORCE_DELETION, PURPOSE, said};
use crate::backup::status::{self, BackupReport, OperationProgress};
use crate::base::clock::Timestamp;
use crate::config::backup::BackupEntryController;
use crate::format::time::rfc3339;
use crate::format::view;
use crate::runtime::controller::{ReconcileFailure, ReconcileOutcome};
use crate::runtime::write;

use super::{started, succeeded, usable};

/// How often to check whether the extension object is gone, in case a wake-up is missed.
const PERIOD: Duration = Duration::from_secs(30);
/// How often to check whether the grace period is over: a clock may be set.
const PENDING_PERIOD: Duration = Duration::from_secs(3_600);
const HOUR_S: u64 = 3_600;
/// One step of the deletion.
pub(super) fn step(
    round: &mut BackupRound<'_>,
    settings: &BackupEntryController,
    patience: Duration,
) -> Result<ReconcileOutcome, ReconcileFailure> {
    if !round.has_finalizer() {
        return Ok(ReconcileOutcome::Done);
    }
    let operation = status::operation(&round.object);
    let now = round.cx.clock.now();
    let metadata = view::look::<Metadata>(&round.object)?.metadata;
    let due = metadata.deletion_timestamp.unwrap_or_default().plus(grace(&round.object, settings));
    if !is_forced(&round.object) && now <= due {
        let description = format!("Deletion of backup entry is scheduled for {}", words(due));
        round.report(&BackupReport { operation, way: OperationProgress::Pending, description })?;
        // At least one second later, because the due time must have passed.
        let wait = due.since(now) + Duration::from_secs(1);
        return Ok(ReconcileOutcome::After(wait.min(PENDING_PERIOD)));
    }
    let target = round.target();
    let Some(object) = target.find(round.seed)? else { return finish(round, operation) };
    let Some((_, credentials)) = usable(round, operation)? else {
        return Ok(ReconcileOutcome::After(patience));
    };
    if !matches!(round.copy_of(&credentials)?, SecretCopy::Same(_)) {
        // They may have changed.
        round.apply_credentials(&credentials)?;
    }
    if object["metadata"]["deletionTimestamp"].is_null() {
        target.delete(round.seed, now)?;
    }
    let error = &object["status"]["lastError"];
    if error.is_null() {
        round.report(&started(operation))?;
        return Ok(ReconcileOutcome::After(PERIOD));
    }
    let failed = said(error);
    round.tell(operation, failed.clone(), failed.text.clone())?;
    Err(failed.into())
}

/// The backups are gone.
fn finish(
    round: &mut BackupRound<'_>,
    operation: &'static str,
) -> Result<ReconcileOutcome, ReconcileFailure> {
    write::delete(round.seed, &SECRET, &round.secret())?;
    round.report(&succeeded(operation))?;
    round.finalize(false)?;
    log::info!(entry = round.key().to_string().as_str(); "The BackupEntry is deleted");
    Ok(ReconcileOutcome::Done)
}

fn is_forced(object: &Value) -> bool {
    is_true(annotation(object, FORCE_DELETION))
}

/// How long the backups are kept after the deletion of the entry.
fn grace(object: &Value, settings: &BackupEntryController) -> Duration {
    let purpose = annotation(object, PURPOSE);
    let listed = &settings.grace_purposes;
    let counts = listed.is_empty() || purpose.is_empty() || listed.iter().any(|known| known == purpose);
    if counts { Duration::from_secs(settings.grace_hours * HOUR_S) } else { Duration::ZERO }
}

/// Formats a time like Go.
fn words(at: Timestamp) -> String {
    rfc3339(at).replace('T', " ").replace('Z', " +0000 UTC")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn how_long_backups_are_kept() {
        let hours = |purposes: &[&str], purpose: &str| {
            let purposes = purposes.iter().map(|purpose| (*purpose).to_owned()).collect();
            let settings = BackupEntryController { workers: 1, grace_hours: 48, grace_purposes: purposes };
            let object = json!({"metadata": {"annotations": {PURPOSE: purpose}}});
            grace(&object, &settings).as_secs() / HOUR_S
        };
        let table: [(&[&str], &str, u64); 5] = [
            (&[], "testing", 48),
            (&[], "", 48),
            (&["production"], "", 48),
            (&["infrastructure", "production"], "production", 48),
            (&["infrastructure", "production"], "testing", 0),
        ];
        for (purposes, purpose, expected) in table {
            assert_eq!(hours(purposes, purpose), expected, "{purposes:?} {purpose}");
        }
    }

    #[test]
    fn a_time_is_printed_like_go() {
        assert_eq!(words(Timestamp::from_unix(1_767_600_000)), "2026-01-05 08:00:00 +0000 UTC");
    }
}
