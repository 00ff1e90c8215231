//! Decides what to do for a BackupBucket or a BackupEntry from its objects in the seed. Pure.
//!
//! Source: the reconcilers in `pkg/gardenlet/controller/{backupbucket,backupentry}`. One difference: a success that an
//! extension reported before the present request does not count.

use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::OPERATION;
use crate::api::meta::{annotation, text};
use crate::base::clock::Timestamp;
use crate::extension::credentials::is_same_spec;
use crate::extension::{TIMESTAMP, last_error};
use crate::flow::Failed;
use crate::format::time::{parse_rfc3339, rfc3339};

/// The state of the seed's Secret with the credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SecretCopy {
    /// It does not exist.
    Missing,
    /// The garden has different credentials.
    Other,
    /// It has the garden's credentials, written at this time if it records one.
    Same(Option<Timestamp>),
}

impl SecretCopy {
    /// Reads the state from the Secret, if it exists, and whether its content is right. A Secret without a readable
    /// time of its last write is written again.
    pub(crate) fn read(secret: Option<&Value>, is_right: impl FnOnce(&Value) -> bool) -> Self {
        match secret {
            None => Self::Missing,
            Some(secret) if !is_right(secret) => Self::Other,
            Some(secret) => Self::Same(parse_rfc3339(annotation(secret, TIMESTAMP)).ok()),
        }
    }
}

/// The input of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackupFacts<'a> {
    /// The credentials in the seed.
    pub(crate) copy: SecretCopy,
    /// The extension object, if there is one.
    pub(crate) object: Option<&'a Value>,
    pub(crate) spec: &'a Value,
    /// How long a success stays valid.
    pub(crate) refresh: Option<Duration>,
    pub(crate) now: Timestamp,
}

/// The progress of the extension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It is still working.
    Pending,
    /// It has not started for too long.
    Unheard,
    Failed(Failed),
    /// It has done what the object describes.
    Succeeded,
}

/// The actions to take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BackupPlan {
    /// Whether to write the credentials.
    pub(crate) writes_copy: bool,
    /// Whether to write the object and to trigger the extension.
    pub(crate) asks: bool,
    /// The state to report.
    pub(crate) state: State,
    /// When to check again, whether or not the object changes.
    pub(crate) again: Option<Duration>,
}

/// Decides; see the module.
pub(crate) fn plan(facts: &BackupFacts<'_>) -> BackupPlan {
    let writes_copy = !matches!(facts.copy, SecretCopy::Same(Some(_)));
    let (asks, state, again) = judge(facts);
    BackupPlan { writes_copy, asks, state, again }
}

/// How long an extension may take to start.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);
/// How often to trigger an extension whose last answer is stale or which has failed. It may answer at once each time.
const ASK_AGAIN: Duration = Duration::from_secs(60);

fn judge(facts: &BackupFacts<'_>) -> (bool, State, Option<Duration>) {
    let asked = (true, State::Pending, Some(BEGINS_WITHIN));
    let Some(object) = facts.object else { return asked };
    let (status, operation) = (&object["status"], annotation(object, OPERATION));
    if operation == "wait-for-state" {
        // The extension waits for state from us, and the step that should follow was lost.
        return asked;
    }
    let is_other = !matches!(facts.copy, SecretCopy::Same(_)) || !is_same_spec(&object["spec"], facts.spec);
    let asked_at = parse_rfc3339(annotation(object, TIMESTAMP)).ok();
    let age = asked_at.map_or(Duration::MAX, |at| facts.now.since(at));
    // After this time, the extension is triggered again or counts as not started.
    let left = |time: Duration| Some(time.saturating_sub(age)).filter(|left| !left.is_zero());
    let unbegun = |asks: bool| match left(BEGINS_WITHIN) {
        Some(left) => (false, State::Pending, Some(left)),
        None => (asks, State::Unheard, None),
    };
    let Some(last) = status["lastOperation"].as_object() else {
        return if is_other { asked } else { unbegun(operation.is_empty()) };
    };
    let again = left(ASK_AGAIN);
    let field = |name: &str| last.get(name).and_then(Value::as_str).unwrap_or_default();
    let updated = parse_rfc3339(field("lastUpdateTime")).unwrap_or_default();
    let written = match facts.copy {
        SecretCopy::Same(Some(at)) => Timestamp::from_unix(at.unix()),
        _ => facts.now,
    };
    if is_other || updated < written {
        // An extension that was triggered after the credentials were written need not be triggered again.
        if is_other || asked_at.is_none_or(|asked| asked < written) {
            return asked;
        }
        return match (operation, again) {
            ("reconcile", _) => unbegun(false),
            (_, None) if is_ended(field("state")) => {
                (true, State::Failed(older(field("lastUpdateTime"), written)), Some(ASK_AGAIN))
            }
            _ => (false, State::Pending, again.or(Some(ASK_AGAIN))),
        };
    }
    let has_begun = match operation {
        "reconcile" => false,
        "restore" => field("type") == "Restore",
        _ => true,
    };
    if !has_begun {
        return unbegun(false);
    }
    match field("state") {
        "Failed" => (again.is_none(), State::Failed(why(object, "Failed")), again.or(Some(ASK_AGAIN))),
        "Error" => (false, State::Failed(why(object, "Error")), None),
        state if !status["lastError"].is_null() => (false, State::Failed(why(object, state)), None),
        "Succeeded" => {
            let is_old = facts.refresh.is_some_and(|period| facts.now.since(updated) > period);
            (is_old, State::Succeeded, None)
        }
        _ => (false, State::Pending, None),
    }
}

fn is_ended(state: &str) -> bool {
    ["Succeeded", "Error", "Failed"].contains(&state)
}

/// The extension's answer is older than the request.
fn older(updated: &str, written: Timestamp) -> Failed {
    let written = rfc3339(written);
    Failed::new(format!(
        "the last operation of the extension is of {updated}, and its credentials were written at {written}: it has not seen them, or \
         its clock is late: look at the log of the extension, and at its clock"
    ))
}

/// The error that an extension reports, or a text with its state.
pub(crate) fn why(object: &Value, state: &str) -> Failed {
    last_error(object).unwrap_or_else(|| Failed::new(format!("extension state is not Succeeded but {state}")))
}

/// Why a BackupBucket of the garden cannot be used now. Errors: the reason, with the codes of the bucket.
pub(crate) fn check_bucket(bucket: &Value) -> Result<(), Failed> {
    let status = &bucket["status"];
    if status["lastError"].is_object() {
        let failed = last_error(bucket).unwrap_or_default();
        let description = text(&status["lastError"]["description"]);
        let text = format!("error during reconciliation of associated BackupBucket: {description}");
        return Err(Failed { text, ..failed });
    }
    let generation = |value: &Value| value.as_i64().unwrap_or_default();
    let (observed, wanted) =
        (generation(&status["observedGeneration"]), generation(&bucket["metadata"]["generation"]));
    if observed != wanted {
        return Err(Failed::new(format!("observed generation outdated ({observed}/{wanted})")));
    }
    match status["lastOperation"]["state"].as_str() {
        None => Err(Failed::new("associated BackupBucket did not record a last operation yet")),
        Some("Succeeded") => Ok(()),
        Some(state) => {
            Err(Failed::new(format!("associated BackupBucket state is not Succeeded but {state}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WRITTEN: &str = "2026-01-01T10:00:00Z";
    const BEFORE: &str = "2026-01-01T09:00:00Z";
    const AFTER: &str = "2026-01-01T10:00:05Z";

    fn at(text: &str) -> Timestamp {
        parse_rfc3339(text).unwrap()
    }

    fn object(operation: &str, last: Option<(&str, &str, &str)>) -> Value {
        let mut object = json!({"metadata": {"annotations": {}}, "spec": {"type": "lab"}, "status": {}});
        if !operation.is_empty() {
            object["metadata"]["annotations"] = json!({OPERATION: operation, TIMESTAMP: BEFORE});
        }
        if let Some((kind, state, updated)) = last {
            object["status"]["lastOperation"] =
                json!({"type": kind, "state": state, "lastUpdateTime": updated});
        }
        object
    }

    fn planned(copy: SecretCopy, object: Option<&Value>) -> (bool, bool, String) {
        let spec = json!({"type": "lab"});
        let now = at("2026-01-01T20:00:00Z");
        let facts =
            BackupFacts { copy, object, spec: &spec, refresh: Some(Duration::from_secs(12 * 3_600)), now };
        let BackupPlan { writes_copy, asks, state, .. } = plan(&facts);
        let state = match state {
            State::Pending => "pending".to_owned(),
            State::Unheard => "unheard".to_owned(),
            State::Succeeded => "done".to_owned(),
            State::Failed(failed) => failed.text,
        };
        (writes_copy, asks, state)
    }

    #[test]
    fn actions_and_reported_states() {
        let same = SecretCopy::Same(Some(at(WRITTEN)));
        let done = || Some(object("", Some(("Reconcile", "Succeeded", AFTER))));
        let mut wrong = done();
        wrong.as_mut().unwrap()["status"]["lastError"] = json!({"description": "no quota"});
        let mut other = done();
        other.as_mut().unwrap()["spec"]["type"] = json!("old");
        let failed = "extension state is not Succeeded but Failed";
        let with = |operation, last| Some(object(operation, last));
        let table = [
            ("nothing is there", SecretCopy::Missing, None, (true, true, "pending")),
            ("only the credentials are", same, None, (false, true, "pending")),
            ("all is well", same, done(), (false, false, "done")),
            ("other credentials", SecretCopy::Other, done(), (true, true, "pending")),
            ("the credentials were deleted", SecretCopy::Missing, done(), (true, true, "pending")),
            (
                "it does not say when they were written",
                SecretCopy::Same(None),
                done(),
                (true, true, "pending"),
            ),
            ("another spec", same, other, (false, true, "pending")),
            (
                "an older success",
                same,
                with("", Some(("Reconcile", "Succeeded", BEFORE))),
                (false, true, "pending"),
            ),
            (
                "asked before that",
                same,
                with("reconcile", Some(("Reconcile", "Succeeded", BEFORE))),
                (false, true, "pending"),
            ),
            ("the extension has not started", same, with("reconcile", None), (false, false, "unheard")),
            ("the extension was not triggered", same, with("", None), (false, true, "unheard")),
            (
                "not picked up",
                same,
                with("reconcile", Some(("Reconcile", "Succeeded", AFTER))),
                (false, false, "unheard"),
            ),
            (
                "it goes on",
                same,
                with("", Some(("Reconcile", "Processing", AFTER))),
                (false, false, "pending"),
            ),
            (
                "an error",
                same,
                with("", Some(("Reconcile", "Error", AFTER))),
                (false, false, "extension state is not Succeeded but Error"),
            ),
            ("it failed", same, with("", Some(("Reconcile", "Failed", AFTER))), (false, true, failed)),
            ("an error with words", same, wrong, (false, false, "error during reconciliation: no quota")),
            ("waits for what was lost", same, with("wait-for-state", None), (false, true, "pending")),
            (
                "to be restored",
                same,
                with("restore", Some(("Create", "Succeeded", AFTER))),
                (false, false, "unheard"),
            ),
            (
                "is being restored",
                same,
                with("restore", Some(("Restore", "Processing", AFTER))),
                (false, false, "pending"),
            ),
            (
                "failed to restore",
                same,
                with("restore", Some(("Restore", "Failed", AFTER))),
                (false, true, failed),
            ),
        ];
        for (name, copy, object, (writes_copy, asks, state)) in table {
            assert_eq!(planned(copy, object.as_ref()), (writes_copy, asks, state.to_owned()), "{name}");
        }
    }

    /// An extension may answer at once; each answer must not trigger it again.
    #[test]
    fn a_recently_triggered_extension_is_not_triggered_again() {
        let spec = json!({"type": "lab"});
        let look = |operation: &str, state: &str, updated: &str, age_s: u64| {
            let last = (!state.is_empty()).then_some(("Reconcile", state, updated));
            let mut object = object(operation, last);
            object["metadata"]["annotations"][TIMESTAMP] = json!("2026-01-01T10:00:02Z");
            let now = at("2026-01-01T10:00:02Z").plus(Duration::from_secs(age_s));
            let copy = SecretCopy::Same(Some(at(WRITTEN)));
            let BackupPlan { asks, state, again, .. } =
                plan(&BackupFacts { copy, object: Some(&object), spec: &spec, refresh: None, now });
            let words = match state {
                State::Failed(failed) => failed.text,
                state => format!("{state:?}"),
            };
            (asks, words, again.map(|again| again.as_secs()))
        };
        let older = "the last operation of the extension is of 2026-01-01T09:00:00Z, and its credentials were written at \
            2026-01-01T10:00:00Z: it has not seen them";
        let table = [
            ("", "Failed", AFTER, 20, false, "extension state is not Succeeded but Failed", Some(40)),
            ("", "Failed", AFTER, 60, true, "extension state is not Succeeded but Failed", Some(60)),
            ("", "Error", AFTER, 600, false, "extension state is not Succeeded but Error", None),
            ("", "Succeeded", BEFORE, 20, false, "Pending", Some(40)),
            ("", "Succeeded", BEFORE, 60, true, older, Some(60)),
            ("", "Processing", BEFORE, 60, false, "Pending", Some(60)),
            ("", "Succeeded", AFTER, 60, false, "Succeeded", None),
            ("", "", "", 20, false, "Pending", Some(10)),
            ("", "", "", 30, true, "Unheard", None),
            ("reconcile", "", "", 20, false, "Pending", Some(10)),
            ("reconcile", "", "", 30, false, "Unheard", None),
            ("reconcile", "Succeeded", BEFORE, 20, false, "Pending", Some(10)),
            ("reconcile", "Succeeded", BEFORE, 30, false, "Unheard", None),
            ("reconcile", "Succeeded", AFTER, 20, false, "Pending", Some(10)),
            ("reconcile", "Succeeded", AFTER, 30, false, "Unheard", None),
        ];
        for (operation, state, updated, age_s, asks, words, again) in table {
            let found = look(operation, state, updated, age_s);
            assert!(found.1.starts_with(words), "{operation} {state} {age_s}: {}", found.1);
            assert_eq!((found.0, found.2), (asks, again), "{operation} {state} {updated} {age_s}");
        }
    }

    #[test]
    fn a_request_counts_from_its_second_on() {
        let same = SecretCopy::Same(Some(at("2026-01-01T10:00:00.9Z")));
        let mut live = object("reconcile", Some(("Reconcile", "Succeeded", BEFORE)));
        live["metadata"]["annotations"][TIMESTAMP] = json!("2026-01-01T10:00:00.95Z");
        assert_eq!(planned(same, Some(&live)), (false, false, "unheard".to_owned()));
        let live = object("", Some(("Reconcile", "Succeeded", WRITTEN)));
        assert_eq!(planned(same, Some(&live)), (false, false, "done".to_owned()));
    }

    #[test]
    fn a_success_is_valid_for_half_a_day() {
        let same = SecretCopy::Same(Some(at("2025-12-01T10:00:00Z")));
        let table = [("2026-01-01T08:00:00Z", false), ("2026-01-01T07:59:59Z", true)];
        for (updated, asks) in table {
            let live = object("", Some(("Reconcile", "Succeeded", updated)));
            assert_eq!(planned(same, Some(&live)), (false, asks, "done".to_owned()), "{updated}");
        }
    }

    #[test]
    fn why_entries_cannot_use_a_bucket() {
        let bucket = |status: Value| json!({"metadata": {"generation": 2}, "status": status});
        let operation = |state: &str| json!({"observedGeneration": 2, "lastOperation": {"state": state}});
        let mut wrong = operation("Succeeded");
        wrong["lastError"] = json!({"description": "denied", "codes": ["ERR_INFRA_UNAUTHORIZED"]});
        let table = [
            (operation("Succeeded"), ""),
            (operation("Processing"), "associated BackupBucket state is not Succeeded but Processing"),
            (json!({"observedGeneration": 2}), "associated BackupBucket did not record a last operation yet"),
            (json!({"observedGeneration": 1}), "observed generation outdated (1/2)"),
            (wrong.clone(), "error during reconciliation of associated BackupBucket: denied"),
        ];
        for (status, expected) in table {
            let found = check_bucket(&bucket(status)).err().map(|failed| failed.text).unwrap_or_default();
            assert_eq!(found, expected);
        }
        assert_eq!(check_bucket(&bucket(wrong)).unwrap_err().codes, ["ERR_INFRA_UNAUTHORIZED"]);
    }
}
