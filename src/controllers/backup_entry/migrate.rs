//! Migration of a BackupEntry to another seed: its extension releases it here, and its status then names no seed.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::core::SECRET;
use crate::api::gardener::OPERATION;
use crate::api::meta::{annotation, text};
use crate::backup::BackupRound;
use crate::backup::decide::why;
use crate::backup::garden::said;
use crate::extension::is_migrated;
use crate::runtime::controller::{ReconcileFailure, ReconcileOutcome};
use crate::runtime::write;

use super::{started, succeeded};

/// How often to look at the extension object, in case a wake-up is missed, or the extension has removed our request with the
/// annotation of the one before it.
const PERIOD: Duration = Duration::from_secs(30);
pub(super) const OPERATION_TYPE: &str = "Migrate";

/// The next step for the extension object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// It never had a status, so it is unknown whether the extension would react.
    Unknown,
    /// Ask the extension to release it.
    Ask,
    /// The extension is working.
    Wait,
    /// The extension failed to release it.
    Failed,
    /// The extension has released it, so it can be deleted.
    Delete,
    /// It is being deleted.
    Going,
    Stuck,
}

fn next(object: &Value) -> Next {
    let (status, last) = (&object["status"], &object["status"]["lastOperation"]);
    let has_error = !status["lastError"].is_null();
    match (text(&last["type"]), text(&last["state"])) {
        ("", _) => Next::Unknown,
        ("Delete", _) if has_error => Next::Stuck,
        ("Delete", _) => Next::Going,
        ("Migrate", state) if has_error || ["Error", "Failed"].contains(&state) => Next::Failed,
        ("Migrate", _) if is_migrated(object) => Next::Delete,
        ("Migrate", _) => Next::Wait,
        _ if annotation(object, OPERATION) == "migrate" => Next::Wait,
        _ => Next::Ask,
    }
}

/// One step of the migration.
pub(super) fn step(round: &mut BackupRound<'_>) -> Result<ReconcileOutcome, ReconcileFailure> {
    if !round.has_finalizer() {
        return Ok(ReconcileOutcome::Done);
    }
    let target = round.target();
    let Some(object) = target.find(round.seed)? else { return finish(round) };
    let (next, now) = (next(&object), round.cx.clock.now());
    let state = text(&object["status"]["lastOperation"]["state"]);
    match next {
        Next::Unknown => {
            return Err(ReconcileFailure::retry(format!(
                "the extension has not reported a status for BackupEntry {} yet, so it is unknown whether it can release it: look \
                 whether the extension of its type is installed and works",
                target.key.name
            )));
        }
        Next::Failed => {
            let failed = why(&object, state);
            round.tell(OPERATION_TYPE, failed.clone(), failed.text.clone())?;
            return if state == "Failed" { Err(failed.into()) } else { Ok(ReconcileOutcome::Done) };
        }
        Next::Stuck => {
            let failed = said(&object["status"]["lastError"]);
            round.tell("Delete", failed.clone(), failed.text.clone())?;
            return Err(failed.into());
        }
        Next::Ask | Next::Wait | Next::Delete | Next::Going => round.report(&started(OPERATION_TYPE))?,
    }
    match next {
        Next::Ask => target.migrate(round.seed, now)?,
        Next::Delete => target.delete(round.seed, now)?,
        _ => {}
    }
    Ok(ReconcileOutcome::After(PERIOD))
}

/// Nothing is left of it here. Without a seed in its status, the next seed may take it.
fn finish(round: &mut BackupRound<'_>) -> Result<ReconcileOutcome, ReconcileFailure> {
    write::delete(round.seed, &SECRET, &round.secret())?;
    let more = Map::from_iter([("seedName".to_owned(), Value::Null)]);
    round.report_with(&succeeded(OPERATION_TYPE), more)?;
    log::info!(entry = round.key().to_string().as_str(); "The BackupEntry has moved to another seed");
    Ok(ReconcileOutcome::Done)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steps_follow_in_order() {
        let table = [
            ("", "", false, "", Next::Unknown),
            ("Reconcile", "Succeeded", false, "", Next::Ask),
            ("Create", "Error", true, "", Next::Ask),
            ("Reconcile", "Succeeded", false, "migrate", Next::Wait),
            ("Migrate", "Processing", false, "migrate", Next::Wait),
            ("Migrate", "Error", false, "migrate", Next::Failed),
            ("Migrate", "Failed", false, "", Next::Failed),
            ("Migrate", "Processing", true, "", Next::Failed),
            ("Migrate", "Succeeded", false, "", Next::Delete),
            ("Delete", "Processing", false, "", Next::Going),
            ("Delete", "Error", true, "", Next::Stuck),
        ];
        for (kind, state, has_error, asked, expected) in table {
            let last = if kind.is_empty() { Value::Null } else { json!({"type": kind, "state": state}) };
            let error = if has_error { json!({"description": "x"}) } else { Value::Null };
            let object = json!({"metadata": {"annotations": {OPERATION: asked}},
                "status": {"lastOperation": last, "lastError": error}});
            assert_eq!(next(&object), expected, "{kind} {state} {has_error} {asked}");
        }
    }
}
