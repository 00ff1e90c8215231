//! Reports of extensions about a Shoot: the conditions of their objects, each of which may belong to a condition of the
//! Shoot. Pure.

use std::time::Duration;

use serde_json::Value;

use crate::api::condition::{Condition, ConditionStatus, Finding};
use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::format::time::rfc3339;
use crate::format::view;

use super::decide::{CONDITIONS, CheckResult};

/// One condition of an extension object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ExtensionReport {
    /// The kind of the object, such as `Extension`.
    pub(super) kind: &'static str,
    pub(super) type_name: String,
    pub(super) name: String,
    /// The reported condition; its type is the Shoot's condition.
    pub(super) says: Condition,
    /// When the extension last renewed its Lease.
    pub(super) beat: Option<Timestamp>,
}

/// The reports of an extension object. The heartbeat of its extension is not known yet.
pub(super) fn of_object(kind: &'static str, object: &Value) -> Vec<ExtensionReport> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let known = conditions.filter(|condition| CONDITIONS.contains(&text(&condition["type"])));
    let report = |condition: &Value| {
        let says = view::look::<Condition>(condition).ok()?;
        let own = |value: &Value| text(value).to_owned();
        let (type_name, name) = (own(&object["spec"]["type"]), own(&object["metadata"]["name"]));
        Some(ExtensionReport { kind, type_name, name, says, beat: None })
    };
    known.filter_map(report).collect()
}

/// The first finding about a condition of the Shoot. Reports of an extension whose heartbeat is older than
/// `stale` do not count.
pub(super) fn verdict(
    reports: &[ExtensionReport],
    condition: &str,
    stale: Option<Duration>,
    now: Timestamp,
) -> Option<CheckResult> {
    reports
        .iter()
        .filter(|report| report.says.kind == condition)
        .find_map(|report| report.verdict(stale, now))
}

impl ExtensionReport {
    fn verdict(&self, stale: Option<Duration>, now: Timestamp) -> Option<CheckResult> {
        let Self { kind, name, says, .. } = self;
        if stale.is_some_and(|threshold| self.beat.is_none_or(|beat| now.since(beat) > threshold)) {
            let beat = self.beat.map_or_else(|| "never".to_owned(), rfc3339);
            let text = format!(
                "{kind} \"{name}\" reports an outdated health status: its extension last renewed its Lease: {beat}"
            );
            return Some(CheckResult::Reported(
                ConditionStatus::Unknown,
                Finding::new(format!("{kind}OutdatedHealthCheckReport"), text),
            ));
        }
        match says.status {
            ConditionStatus::True => None,
            ConditionStatus::Progressing => Some(CheckResult::Reported(
                ConditionStatus::Progressing,
                Finding {
                    reason: format!("{kind}{}", says.reason),
                    message: says.message.clone(),
                    codes: says.codes.clone(),
                },
            )),
            ConditionStatus::False | ConditionStatus::Unknown => Some(CheckResult::Failed(Finding {
                reason: format!("{kind}UnhealthyReport"),
                message: format!("{kind} \"{name}\" reports failing health check: {}", says.message),
                codes: says.codes.clone(),
            })),
        }
    }
}
