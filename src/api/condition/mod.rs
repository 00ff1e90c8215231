//! Gardener's conditions: the result of a check of an object, and its change over time.
//!
//! Everything here is pure. A list of conditions has several writers, so no writer replaces the conditions of another:
//! [`status_patch`] is for kinds that support strategic merge (lists keyed by `type`), [`merge_patch`] is for kinds
//! that do not.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base::clock::Timestamp;
use crate::base::json::json;

/// Reason of a condition that has not been checked yet.
pub(crate) const INITIALIZED: &str = "ConditionInitialized";
/// Reason of a condition whose check itself failed.
pub(crate) const CHECK_ERROR: &str = "ConditionCheckError";

const INITIALIZED_MESSAGE: &str =
    "The condition has been initialized but its semantic check has not been performed yet.";

/// The result of a check. Unlike conditions of Kubernetes, Gardener's have a fourth value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub(crate) enum ConditionStatus {
    /// The condition is met.
    True,
    /// The condition is not met.
    False,
    /// Not met at the moment, but not for long enough to be a fault.
    Progressing,
    /// Unknown. Also used for a status that this program does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl ConditionStatus {
    /// The text of the API.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
            Self::Progressing => "Progressing",
        }
    }
}

impl std::fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One condition of an object (`core.gardener.cloud/v1beta1`, `Condition`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    /// Its key in the list.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// What the check found.
    pub(crate) status: ConditionStatus,
    /// When `status` last changed.
    #[serde(with = "timestamp")]
    pub(crate) last_transition_time: Timestamp,
    /// When `reason`, `message` or `codes` last changed; not when only `status` did.
    #[serde(with = "timestamp")]
    pub(crate) last_update_time: Timestamp,
    /// Why, as one word in CamelCase.
    pub(crate) reason: String,
    /// Why, for people.
    pub(crate) message: String,
    /// Gardener's error codes (`ERR_…`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) codes: Vec<String>,
}

/// The result of a check: everything of a condition except its type and times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Finding {
    /// Why, as one word in CamelCase; empty becomes `Unspecified`.
    pub(crate) reason: String,
    /// Why, for people; empty becomes `No message given.`.
    pub(crate) message: String,
    /// Gardener's error codes. The codes of the previous finding are never kept.
    pub(crate) codes: Vec<String>,
}

impl Finding {
    /// A finding without codes.
    pub(crate) fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into(), codes: Vec::new() }
    }
}

/// How long a failing check is tolerated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FailurePatience {
    /// How long a condition of this type may be `Progressing`; `None`: it fails at once.
    pub(crate) threshold: Option<Duration>,
    /// `lastUpdateTime` of the object's last operation, if that operation succeeded.
    pub(crate) succeeded_at: Option<Timestamp>,
    /// How long after that a condition without a threshold may be `Progressing`, because what it checks has just started.
    pub(crate) settles: Duration,
}

impl Condition {
    /// A condition that has not been checked yet.
    pub(crate) fn initial(kind: &str, now: Timestamp) -> Self {
        Self {
            kind: kind.to_owned(),
            status: ConditionStatus::Unknown,
            last_transition_time: now,
            last_update_time: now,
            reason: INITIALIZED.to_owned(),
            message: INITIALIZED_MESSAGE.to_owned(),
            codes: Vec::new(),
        }
    }

    /// The condition after a check: each time changes only with the fields that it belongs to.
    #[must_use]
    pub(crate) fn updated(&self, now: Timestamp, status: ConditionStatus, finding: Finding) -> Self {
        let mut next = self.clone();
        next.status = status;
        next.reason = or_default(finding.reason, "Unspecified");
        next.message = or_default(finding.message, "No message given.");
        next.codes = finding.codes;
        if next.status != self.status {
            next.last_transition_time = now;
        }
        if (&next.reason, &next.message, &next.codes) != (&self.reason, &self.message, &self.codes) {
            next.last_update_time = now;
        }
        next
    }

    /// The condition after a check that found a fault: `Progressing` until the threshold has passed
    /// since `lastTransitionTime`, then `False`.
    #[must_use]
    pub(crate) fn failed(&self, now: Timestamp, patience: FailurePatience, finding: Finding) -> Self {
        let status = self.failed_status(now, patience, &finding.reason);
        self.updated(now, status, finding)
    }

    fn failed_status(&self, now: Timestamp, patience: FailurePatience, reason: &str) -> ConditionStatus {
        let has_succeeded_within =
            |time: Duration| patience.succeeded_at.is_some_and(|at| now.since(at) <= time);
        let Some(threshold) = patience.threshold else {
            let settles = !patience.settles.is_zero() && has_succeeded_within(patience.settles);
            let was_well = matches!(self.status, ConditionStatus::True | ConditionStatus::Progressing);
            return if settles && was_well { ConditionStatus::Progressing } else { ConditionStatus::False };
        };
        let recent = has_succeeded_within(threshold);
        let patient = match self.status {
            ConditionStatus::True => true,
            ConditionStatus::Progressing => recent || now.since(self.last_transition_time) <= threshold,
            ConditionStatus::False => recent || reason != self.reason,
            ConditionStatus::Unknown => false,
        };
        if patient { ConditionStatus::Progressing } else { ConditionStatus::False }
    }

    /// The condition after a check that could not be run.
    #[must_use]
    pub(crate) fn unknown(&self, now: Timestamp, error: impl Into<String>) -> Self {
        self.updated(now, ConditionStatus::Unknown, Finding::new(CHECK_ERROR, error))
    }

    /// The condition after a reconciliation, which makes the last finding outdated: `Progressing` unless it was
    /// `False`. Only `status` and `lastUpdateTime` change, as upstream does it.
    #[must_use]
    pub(crate) fn reset_to_progressing(&self, now: Timestamp) -> Self {
        let mut next = self.clone();
        if self.status != ConditionStatus::False {
            next.status = ConditionStatus::Progressing;
            next.last_update_time = now;
        }
        next
    }
}

/// The condition of a type.
pub(crate) fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.kind == kind)
}

/// The order of conditions that are not good, in a text that has room for few: what is certain comes before what nobody
/// knows yet, and `Valid` before the conditions that depend on it.
pub(crate) fn urgency(kind: &str, status: &str) -> (u8, bool) {
    let doubt = match status {
        "Unknown" => 2,
        "Progressing" => 1,
        _ => 0,
    };
    (doubt, kind != "Valid")
}

/// The status of the condition of a type.
pub(crate) fn status_of(conditions: &[Condition], kind: &str) -> Option<ConditionStatus> {
    find(conditions, kind).map(|c| c.status)
}

/// The condition of a type, or a new one that has not been checked yet.
pub(crate) fn find_or_init(conditions: &[Condition], kind: &str, now: Timestamp) -> Condition {
    find(conditions, kind).cloned().unwrap_or_else(|| Condition::initial(kind, now))
}

/// Merges `changed` into `conditions`: replaces by type, keeps the order, appends new types.
pub(crate) fn merge(conditions: &mut Vec<Condition>, changed: Vec<Condition>) {
    for condition in changed {
        match conditions.iter_mut().find(|c| c.kind == condition.kind) {
            Some(old) => *old = condition,
            None => conditions.push(condition),
        }
    }
}

/// A strategic merge patch of the status that sets the conditions of `wanted` that differ from `old`, and removes the
/// types in `removed` that `old` has. `None` if there is nothing to write.
pub(crate) fn status_patch(old: &[Condition], wanted: &[Condition], removed: &[&str]) -> Option<Value> {
    let entries = entries(old, wanted, removed);
    if entries.is_empty() { None } else { Some(json!({"status": {"conditions": entries}})) }
}

/// The entries of such a patch for one list.
pub(crate) fn entries(old: &[Condition], wanted: &[Condition], removed: &[&str]) -> Vec<Value> {
    let mut entries = Vec::new();
    for condition in wanted {
        let before = find(old, &condition.kind);
        if before == Some(condition) {
            continue;
        }
        let mut entry = to_object(condition);
        if condition.codes.is_empty() && before.is_some_and(|b| !b.codes.is_empty()) {
            entry.insert("codes".to_owned(), Value::Null);
        }
        entries.push(Value::Object(entry));
    }
    for kind in removed.iter().filter(|kind| find(old, kind).is_some()) {
        entries.push(json!({"$patch": "delete", "type": kind}));
    }
    entries
}

/// The same as a JSON merge patch, for servers that answer 415 to a strategic one. `live` is the whole object as just
/// read. The patch carries its resource version and repeats the conditions of other writers unchanged.
pub(crate) fn merge_patch(live: &Value, wanted: &[Condition], removed: &[&str]) -> Value {
    let mut list = live["status"]["conditions"].as_array().cloned().unwrap_or_default();
    list.retain(|c| !removed.iter().any(|kind| c["type"] == *kind));
    for condition in wanted {
        let entry = Value::Object(to_object(condition));
        match list.iter_mut().find(|c| c["type"] == condition.kind.as_str()) {
            Some(old) => *old = entry,
            None => list.push(entry),
        }
    }
    json!({
        "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
        "status": {"conditions": list},
    })
}

fn to_object(condition: &Condition) -> Map<String, Value> {
    match serde_json::to_value(condition) {
        Ok(Value::Object(map)) => map,
        // A struct with plain fields always becomes an object.
        _ => Map::new(),
    }
}

fn or_default(text: String, default: &str) -> String {
    if text.is_empty() { default.to_owned() } else { text }
}

/// Times of conditions. `null` and the empty text, which Go writes for its zero time, mean the zero time here too.
pub(crate) mod timestamp {
    use serde::{Deserialize as _, Deserializer, de::Error as _};

    use crate::base::clock::Timestamp;
    use crate::format::time;

    pub(super) use crate::format::time::seconds::serialize;

    /// Reads RFC 3339, an empty text or null. Errors: the error of the deserializer, or a text that is not
    /// a point in time.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
        let text = Option::<String>::deserialize(d)?.unwrap_or_default();
        if text.is_empty() {
            return Ok(Timestamp::default());
        }
        time::parse_rfc3339(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
