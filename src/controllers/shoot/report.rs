//! Reports of an operation: patches of a Shoot. Pure.
//!
//! Patches of the status are strategic merge patches, because its conditions have several writers. Patches of the
//! metadata are merge patches.

use std::time::Duration;

use serde_json::Value;

use crate::api::condition::{Condition, ConditionStatus};
use crate::api::gardener::OPERATION;
use crate::api::meta::text;
use crate::api::patch::difference;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::flow::{FlowProgress, TaskError};
use crate::format::time::{parse_rfc3339, rfc3339};
use crate::format::view;
use crate::operation::Operation;
use crate::operation::cluster::technical_id;
use crate::operation::requests::{TASKS, asked};

use super::decide::generation;
use super::rotation::{self, Paused};
use super::status::INITIALIZE;

/// Codes of errors that a retry cannot fix before somebody has changed something.
const FINAL_CODES: [&str; 7] = [
    "ERR_INFRA_UNAUTHENTICATED",
    "ERR_INFRA_UNAUTHORIZED",
    "ERR_INFRA_DEPENDENCIES",
    "ERR_INFRA_QUOTA_EXCEEDED",
    "ERR_INFRA_RATE_LIMITS_EXCEEDED",
    "ERR_CONFIGURATION_PROBLEM",
    "ERR_PROBLEMATIC_WEBHOOK",
];

/// The conditions that a success resets, so that they are checked again.
const CONDITIONS: [&str; 5] = [
    "APIServerAvailable",
    "ControlPlaneHealthy",
    "EveryNodeReady",
    "ObservabilityComponentsHealthy",
    "SystemComponentsHealthy",
];
const CONSTRAINTS: [&str; 2] = ["HibernationPossible", "MaintenancePreconditionsSatisfied"];

/// The input at the start of an operation, besides the Shoot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationStart<'a> {
    /// The name of the Shoot's Project.
    pub(crate) project: &'a str,
    /// The agent's own `status.gardener`.
    pub(crate) agent: &'a Value,
    /// Field `controllers.shoot.retryDuration` of the configuration.
    pub(crate) retry_duration: Duration,
    pub(crate) now: Timestamp,
}

/// The input when an operation has succeeded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationSuccess<'a> {
    /// The live Shoot, including conditions that others have written meanwhile.
    pub(crate) shoot: &'a Value,
    /// Whether the reconciled Shoot, as in the `Cluster`, was to be hibernated.
    pub(crate) is_hibernated: bool,
}

/// An operation from its start to its end.
#[derive(Clone, Debug)]
pub(crate) struct OperationReport {
    operation: Operation,
    generation: i64,
    seed: Value,
    /// The patch at the start, without the last operation.
    begin: Value,
    /// The state of the credential rotations during the operation: `status.credentials.rotation`.
    rotation: Value,
    retry_until: Timestamp,
    told: ReportedProgress,
}

/// The status of a running operation.
#[derive(Clone, Debug)]
pub(crate) struct ReportedProgress {
    errors: Vec<Value>,
    percent: u32,
    description: String,
}

impl OperationReport {
    /// For an operation that starts.
    pub(crate) fn new(shoot: &Value, operation: Operation, start: &OperationStart<'_>) -> Self {
        let status = &shoot["status"];
        let (wanted, observed) =
            (generation(&shoot["metadata"]["generation"]), generation(&status["observedGeneration"]));
        let seed = shoot["spec"]["seedName"].clone();
        let deletes = operation.is_deletion();
        let mut begin = json!({
            "technicalID": technical_id(start.project, shoot),
            "gardener": start.agent,
            "observedGeneration": wanted,
        });
        if !deletes && operation != Operation::Migrate {
            begin["seedName"] = seed.clone();
        }
        let known = parse_rfc3339(text(&status["retryCycleStartTime"])).ok();
        let is_new = wanted != observed
            || status["gardener"]["version"] != start.agent["version"]
            || deletes && status["lastOperation"]["type"] != "Delete";
        let since = known.filter(|_| !is_new).unwrap_or(start.now);
        begin["retryCycleStartTime"] = json!(rfc3339(since));
        let mut errors = status["lastErrors"].as_array().cloned().unwrap_or_default();
        if drop_errors(&mut errors, |task| task == INITIALIZE) {
            begin["lastErrors"] = list(&errors);
        }
        let before = &status["credentials"]["rotation"];
        let rotation = match operation {
            Operation::Create | Operation::Reconcile | Operation::Restore => {
                rotation::begun(shoot, start.now)
            }
            _ => before.clone(),
        };
        if let Some(changed) = rotation_patch(before, &rotation) {
            begin["credentials"]["rotation"] = changed;
        }
        Self {
            operation,
            generation: wanted,
            seed,
            begin,
            rotation,
            retry_until: since.plus(start.retry_duration),
            told: ReportedProgress { errors, percent: 0, description: String::new() },
        }
    }

    /// The kind of operation.
    pub(crate) const fn operation(&self) -> Operation {
        self.operation
    }

    /// The generation of the Shoot that it reconciles.
    pub(crate) const fn generation(&self) -> i64 {
        self.generation
    }

    /// The status patch at the start.
    pub(crate) fn begin(&self, now: Timestamp) -> Value {
        let description = match self.operation {
            Operation::Create | Operation::Reconcile => "Reconciliation of Shoot cluster initialized.",
            Operation::Restore => "Restoration of Shoot cluster initialized.",
            Operation::Migrate => "Preparation of Shoot cluster for migration initialized.",
            Operation::Delete | Operation::ForceDelete => "Deletion of Shoot cluster in progress.",
        };
        let mut status = self.begin.clone();
        status["lastOperation"] = json!({
            "type": self.operation.as_str(),
            "state": "Processing",
            "progress": 0,
            "description": description,
            "lastUpdateTime": rfc3339(now),
        });
        json!({ "status": status })
    }

    /// The metadata patch after [`OperationReport::begin`], from the Shoot that it returned: it removes the values of
    /// the operation annotation that have been accepted. The patch is refused if the Shoot has changed since;
    /// the operation then starts again.
    pub(crate) fn operation_annotations(&self, live: &Value) -> Option<Value> {
        match self.operation {
            Operation::Create | Operation::Reconcile | Operation::Restore => {
                rotation::rest(live).map(|rest| annotate(live, OPERATION, &rest))
            }
            _ => None,
        }
    }

    /// The status patch during the operation, if there is something new. Call [`OperationReport::has_told`] once it is
    /// written. `done` are the finished tasks. An error of an earlier operation stays until its task is done.
    pub(crate) fn going_on(
        &self,
        progress: &FlowProgress,
        done: &[String],
        now: Timestamp,
    ) -> Option<(Value, ReportedProgress)> {
        let told = &self.told;
        let percent = progress.percent.max(told.percent);
        let is_told = percent == told.percent && progress.description == told.description;
        let mut errors = told.errors.clone();
        let is_better = drop_errors(&mut errors, |task| done.iter().any(|name| name == task));
        if is_told && !is_better {
            return None;
        }
        let mut status = json!({"lastOperation": {
            "progress": percent,
            "description": progress.description,
            "lastUpdateTime": rfc3339(now),
        }});
        if is_better {
            status["lastErrors"] = list(&errors);
        }
        let reported = ReportedProgress { errors, percent, description: progress.description.clone() };
        Some((json!({ "status": status }), reported))
    }

    /// Records that a patch of [`OperationReport::going_on`] was written.
    pub(crate) fn has_told(&mut self, told: ReportedProgress) {
        self.told = told;
    }

    /// The status patch after all tasks have finished.
    pub(crate) fn succeeded(&self, now: Timestamp, reconciled: &OperationSuccess<'_>) -> Value {
        let what = match self.operation {
            Operation::Create | Operation::Reconcile => "reconciled",
            Operation::Restore => "restored",
            Operation::Migrate => "prepared for migration",
            Operation::Delete | Operation::ForceDelete => "deleted",
        };
        let mut status = json!({
            "lastOperation": {
                "type": self.operation.as_str(),
                "state": "Succeeded",
                "progress": 100,
                "description": format!("Shoot cluster has been successfully {what}."),
                "lastUpdateTime": rfc3339(now),
            },
            "lastErrors": null,
            "retryCycleStartTime": null,
            "hibernated": reconciled.is_hibernated,
        });
        if !self.operation.is_deletion() {
            status["seedName"] = self.seed.clone();
        }
        if matches!(self.operation, Operation::Create | Operation::Reconcile | Operation::Restore) {
            let before = &reconciled.shoot["status"];
            for (field, kinds) in [("conditions", &CONDITIONS[..]), ("constraints", &CONSTRAINTS)] {
                let reset = reset(&before[field], kinds, now);
                if !reset.is_empty() {
                    status[field] = json!(reset);
                }
            }
            let paused = Paused::of(reconciled.shoot, self.operation, reconciled.is_hibernated);
            let done = rotation::done(&self.rotation, paused, now);
            if let Some(changed) = rotation_patch(&self.rotation, &done) {
                status["credentials"]["rotation"] = changed;
            }
        }
        json!({ "status": status })
    }

    /// Whether it is not retried until somebody changes something.
    pub(crate) fn is_final(&self, errors: &[TaskError], now: Timestamp) -> bool {
        let is_final = |code: &String| FINAL_CODES.contains(&code.as_str());
        now > self.retry_until || errors.iter().any(|error| error.failed.codes.iter().any(is_final))
    }

    /// The status patch after tasks have failed. The name [`INITIALIZE`] names the steps before all tasks.
    pub(crate) fn failed(&self, errors: &[TaskError], now: Timestamp) -> Value {
        let texts: Vec<String> = errors.iter().map(describe).collect();
        let mut description = if texts.is_empty() {
            "The operation was ended before it was done.".to_owned()
        } else {
            capital(&texts.join("; "))
        };
        let is_final = self.is_final(errors, now);
        if !is_final {
            description.push_str(" Operation will be retried.");
        }
        let mut status = json!({"lastOperation": {
            "type": self.operation.as_str(),
            "state": if is_final { "Failed" } else { "Error" },
            "description": description,
            "lastUpdateTime": rfc3339(now),
        }});
        if is_final {
            status["retryCycleStartTime"] = Value::Null;
        }
        if !errors.is_empty() {
            let errors = errors.iter().zip(&texts).map(|(error, text)| last_error(error, text, now));
            status["lastErrors"] = errors.collect();
        }
        json!({ "status": status })
    }

    /// The metadata patch that removes finished tasks from their annotation. If the Shoot has changed since, they stay,
    /// because the garden may have requested them again.
    pub(crate) fn task_annotations(&self, live: &Value, done: &[&str]) -> Option<Value> {
        let left: Vec<&str> = asked(live).filter(|task| !done.contains(task)).collect();
        let is_same = generation(&live["metadata"]["generation"]) == self.generation;
        (is_same && left.len() < asked(live).count()).then(|| annotate(live, TASKS, &left.join(",")))
    }
}

/// The status patch with the identity of a Shoot, written once all inputs of its operation are known. Without an
/// identity, nothing was created in the seed.
pub(crate) fn identified(shoot: &Value) -> Option<Value> {
    let uid = &shoot["metadata"]["uid"];
    text(&shoot["status"]["uid"]).is_empty().then(|| json!({"status": {"uid": uid}}))
}

fn or_empty(value: &Value) -> Value {
    if value.is_null() { json!({}) } else { value.clone() }
}

fn rotation_patch(before: &Value, after: &Value) -> Option<Value> {
    difference(&or_empty(before), &or_empty(after))
}

/// Removes the errors of some tasks and returns whether there were any.
fn drop_errors(errors: &mut Vec<Value>, is_over: impl Fn(&str) -> bool) -> bool {
    let before = errors.len();
    errors.retain(|error| !is_over(text(&error["taskID"])));
    errors.len() < before
}

fn list(errors: &[Value]) -> Value {
    if errors.is_empty() { Value::Null } else { json!(errors) }
}

fn annotate(live: &Value, name: &str, value: &str) -> Value {
    let value = if value.is_empty() { Value::Null } else { json!(value) };
    json!({"metadata": {
        "resourceVersion": live["metadata"]["resourceVersion"],
        "annotations": {name: value},
    }})
}

/// In the words of upstream's flows.
fn describe(error: &TaskError) -> String {
    match error.task.as_str() {
        INITIALIZE => error.failed.text.clone(),
        _ => error.to_string(),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn last_error(error: &TaskError, text: &str, now: Timestamp) -> Value {
    let mut said = json!({"description": text, "lastUpdateTime": rfc3339(now)});
    if !error.task.is_empty() {
        said["taskID"] = json!(error.task);
    }
    if !error.failed.codes.is_empty() {
        said["codes"] = json!(error.failed.codes);
    }
    said
}

fn reset(conditions: &Value, kinds: &[&str], now: Timestamp) -> Vec<Condition> {
    let known: Vec<Condition> = view::look(conditions).unwrap_or_default();
    let concerned = |c: &&Condition| kinds.contains(&c.kind.as_str()) && c.status != ConditionStatus::False;
    known.iter().filter(concerned).map(|c| c.reset_to_progressing(now)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Failed;
    use crate::operation::status::encrypted;

    const HOUR: Duration = Duration::from_secs(3_600);
    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

    fn agent() -> Value {
        json!({"id": "ab", "name": "host", "version": "v1.150.0"})
    }

    fn start(agent: &Value) -> OperationStart<'_> {
        OperationStart { project: "p", agent, retry_duration: 12 * HOUR, now: NOW }
    }

    fn shoot(status: &Value) -> Value {
        json!({"metadata": {"name": "s", "generation": 3, "uid": "u", "resourceVersion": "7", "annotations": {}},
            "spec": {"seedName": "edge", "kubernetes": {"version": "1.34.3"}}, "status": status})
    }

    fn report(status: &Value, operation: Operation) -> OperationReport {
        OperationReport::new(&shoot(status), operation, &start(&agent()))
    }

    fn progress(percent: u32, description: &str) -> FlowProgress {
        FlowProgress { percent, description: description.to_owned() }
    }

    fn error(task: &str, text: &str, codes: &[&str]) -> TaskError {
        let codes = codes.iter().map(|code| (*code).to_owned()).collect();
        TaskError { task: task.to_owned(), failed: Failed { codes, ..Failed::new(text) } }
    }

    #[test]
    fn the_first_patch_of_a_new_shoot() {
        let patch = report(&json!({"technicalID": "", "uid": ""}), Operation::Create).begin(NOW);
        let last = json!({"type": "Create", "state": "Processing", "progress": 0, "lastUpdateTime": "2026-01-01T00:00:00Z",
            "description": "Reconciliation of Shoot cluster initialized."});
        assert_eq!(
            patch,
            json!({"status": {"technicalID": "shoot--p--s", "seedName": "edge", "gardener": agent(), "observedGeneration": 3,
                "retryCycleStartTime": "2026-01-01T00:00:00Z", "lastOperation": last}})
        );
        let deleted = report(&json!({"seedName": "edge"}), Operation::Delete).begin(NOW);
        assert_eq!(deleted["status"].get("seedName"), None);
        assert_eq!(deleted["status"]["lastOperation"]["type"], "Delete");
    }

    #[test]
    fn when_the_retry_period_restarts() {
        let earlier = "2025-12-31T20:00:00Z";
        let known = |generation: i64, version: &str, kind: &str| {
            json!({"observedGeneration": generation, "gardener": {"version": version}, "retryCycleStartTime": earlier,
                "lastOperation": {"type": kind}})
        };
        let now = "2026-01-01T00:00:00Z";
        let table = [
            (known(3, "v1.150.0", "Reconcile"), Operation::Reconcile, earlier),
            (known(2, "v1.150.0", "Reconcile"), Operation::Reconcile, now),
            (known(3, "v1.149.0", "Reconcile"), Operation::Reconcile, now),
            (known(3, "v1.150.0", "Reconcile"), Operation::Delete, now),
            (known(3, "v1.150.0", "Delete"), Operation::Delete, earlier),
            (known(3, "v1.150.0", "Delete"), Operation::ForceDelete, earlier),
            (json!({}), Operation::Create, now),
        ];
        for (status, operation, expected) in table {
            let patch = report(&status, operation).begin(NOW);
            assert_eq!(patch["status"]["retryCycleStartTime"], expected, "{status}");
        }
    }

    #[test]
    fn errors_stay_until_their_task_is_done() {
        let old = |task: &str| json!({"description": "d", "taskID": task, "lastUpdateTime": "2025-01-01T00:00:00Z"});
        let status = json!({"lastErrors": [old(INITIALIZE), old("A"), old("B")]});
        let mut report = report(&status, Operation::Reconcile);
        assert_eq!(report.begin(NOW)["status"]["lastErrors"], json!([old("A"), old("B")]));
        let done = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let tell = |report: &mut OperationReport, percent, description: &str, names: &[&str]| {
            let (patch, reported) = report.going_on(&progress(percent, description), &done(names), NOW)?;
            report.has_told(reported);
            Some(patch)
        };
        let first = tell(&mut report, 0, "Starting", &[]).unwrap();
        assert_eq!(first["status"].get("lastErrors"), None);
        // A refused report is created again.
        let refused = report.going_on(&progress(10, "B"), &done(&["A", "C"]), NOW).unwrap().0;
        let second = tell(&mut report, 10, "B", &["A", "C"]).unwrap();
        assert_eq!(refused, second);
        assert_eq!(second["status"]["lastErrors"], json!([old("B")]));
        assert_eq!(tell(&mut report, 10, "B", &["A", "C"]), None);
        let third = tell(&mut report, 10, "B", &["B"]).unwrap();
        assert_eq!(third["status"]["lastErrors"], Value::Null);
        // Tasks that fail again replace the old errors.
        let failed = report.failed(&[error("D", "x", &[])], NOW);
        assert_eq!(failed["status"]["lastErrors"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn progress_never_falls() {
        let mut report = report(&json!({}), Operation::Reconcile);
        let mut told = Vec::new();
        for (percent, text) in [(10, "a"), (30, "b"), (20, "c"), (20, "c"), (40, "c")] {
            if let Some((patch, reported)) = report.going_on(&progress(percent, text), &[], NOW) {
                report.has_told(reported);
                let last = &patch["status"]["lastOperation"];
                assert_eq!((last.get("type"), last.get("state")), (None, None));
                told.push((last["progress"].as_u64().unwrap(), text));
            }
        }
        assert_eq!(told, [(10, "a"), (30, "b"), (30, "c"), (40, "c")]);
    }

    #[test]
    fn failures_are_retried_for_a_while() {
        let report = report(&json!({}), Operation::Create);
        let table = [
            (vec![error("A", "x", &[])], NOW, "Error"),
            (vec![error("A", "x", &["ERR_INFRA_RESOURCES_DEPLETED"])], NOW.plus(12 * HOUR), "Error"),
            (vec![error("A", "x", &[])], NOW.plus(12 * HOUR + HOUR / 60), "Failed"),
            (vec![error("A", "x", &[]), error("B", "y", &["ERR_CONFIGURATION_PROBLEM"])], NOW, "Failed"),
            (vec![], NOW, "Error"),
        ];
        for (errors, now, state) in table {
            let status = &report.failed(&errors, now)["status"];
            assert_eq!(status["lastOperation"]["state"], state, "{errors:?}");
            assert_eq!(status["lastOperation"].get("progress"), None);
            assert_eq!(status.get("retryCycleStartTime").is_some(), state == "Failed");
        }
        let status =
            &report.failed(&[error("A b", "x", &["ERR_X"]), error(INITIALIZE, "no DNS", &[])], NOW)["status"];
        assert_eq!(
            status["lastOperation"]["description"],
            "Task \"A b\" failed: x; no DNS Operation will be retried."
        );
        assert_eq!(
            status["lastErrors"],
            json!([
                {"description": "task \"A b\" failed: x", "taskID": "A b", "codes": ["ERR_X"],
                    "lastUpdateTime": "2026-01-01T00:00:00Z"},
                {"description": "no DNS", "taskID": "initializeOperation", "lastUpdateTime": "2026-01-01T00:00:00Z"},
            ])
        );
        // Upstream names no task for the steps after them.
        let status = &report.failed(&[error("", "failed to clean", &[])], NOW)["status"];
        let last = json!([{"description": "failed to clean", "lastUpdateTime": "2026-01-01T00:00:00Z"}]);
        assert_eq!(status["lastErrors"], last);
        assert_eq!(status["lastOperation"]["description"], "Failed to clean Operation will be retried.");
    }

    #[test]
    fn accepted_annotations_are_removed() {
        let report = report(&json!({}), Operation::Reconcile);
        let with = |name: &str, value: &str| {
            let mut shoot = shoot(&json!({}));
            shoot["metadata"]["annotations"][name] = json!(value);
            shoot
        };
        let patch = |name: &str, value: Value| {
            Some(json!({"metadata": {"resourceVersion": "7", "annotations": {name: value}}}))
        };
        let asked = with(OPERATION, "rotate-ca-start;maintain");
        assert_eq!(report.operation_annotations(&asked), patch(OPERATION, json!("maintain")));
        let asked = with(OPERATION, "rotate-ca-start");
        assert_eq!(report.operation_annotations(&asked), patch(OPERATION, Value::Null));
        assert_eq!(report.operation_annotations(&with(OPERATION, "maintain")), None);
        let done = ["deployDNSRecordInternal", "deployDNSRecordExternal"];
        let asked = with(
            TASKS,
            "deployInfrastructure,deployDNSRecordInternal,deployDNSRecordExternal,deployDNSRecordIngress",
        );
        let left = patch(TASKS, json!("deployInfrastructure,deployDNSRecordIngress"));
        assert_eq!(report.task_annotations(&asked, &done), left);
        assert_eq!(
            report.task_annotations(&with(TASKS, "deployDNSRecordInternal"), &done),
            patch(TASKS, Value::Null)
        );
        assert_eq!(report.task_annotations(&with(TASKS, "deployInfrastructure"), &done), None);
        let mut changed = asked;
        changed["metadata"]["generation"] = json!(4);
        assert_eq!(report.task_annotations(&changed, &done), None);
    }

    #[test]
    fn reports_that_are_written_once() {
        let mut shoot = shoot(&json!({"technicalID": "shoot--p--s", "uid": ""}));
        assert_eq!(identified(&shoot), Some(json!({"status": {"uid": "u"}})));
        shoot["status"]["uid"] = json!("u");
        assert_eq!(identified(&shoot), None);
    }

    /// The status of the golden Shoot: merge patches from one sample to the next.
    fn golden() -> Vec<Value> {
        let text = include_str!("../../../tests/fixtures/golden-shoot-status.json");
        let patches: Vec<Value> = serde_json::from_str(text).unwrap();
        let mut shoot = json!({"metadata": {"name": "s1", "uid": "2c1a24c1-6b4e-4ce6-ae6d-43bbc2085e59"},
            "spec": {"seedName": "lab1", "kubernetes": {"version": "1.34.3"}}});
        let step = |patch: &Value| {
            merge(&mut shoot, patch);
            shoot.clone()
        };
        patches.iter().map(step).collect()
    }

    /// A strategic merge patch; lists of conditions are merged by type.
    fn merge(object: &mut Value, patch: &Value) {
        let (Value::Object(fields), false) = (patch, patch.is_null()) else {
            *object = patch.clone();
            return;
        };
        if !object.is_object() {
            *object = json!({});
        }
        for (name, value) in fields {
            let list = object[name].as_array().cloned().unwrap_or_default();
            match value {
                Value::Null => drop(object.as_object_mut().unwrap().remove(name)),
                Value::Array(changed) if name == "conditions" || name == "constraints" => {
                    let merged = list.into_iter().map(|old| {
                        changed.iter().find(|new| new["type"] == old["type"]).cloned().unwrap_or(old)
                    });
                    let merged: Vec<Value> = merged.collect();
                    object[name] = if merged.len() < changed.len() { value.clone() } else { json!(merged) };
                }
                _ => merge(&mut object[name], value),
            }
        }
    }

    fn at(value: &Value) -> Timestamp {
        parse_rfc3339(text(value)).unwrap()
    }

    /// Replays each operation of the golden Shoot, from its first sample to its last: with the same start, reports and
    /// end, the status is the same. Conditions belong to the care controller, identities and addresses to tasks.
    #[test]
    fn the_status_is_what_upstream_writes() {
        let samples = golden();
        let last = |shoot: &Value| shoot["status"]["lastOperation"].clone();
        let mut operations = 0;
        let mut index = 1;
        while index < samples.len() {
            let (before, first) = (&samples[index - 1], &samples[index]);
            index += 1;
            if last(first)["progress"] != 0 || last(first)["state"] != "Processing" {
                continue;
            }
            operations += 1;
            let is_restarted = last(before)["state"] == "Processing";
            let mut shoot = before.clone();
            for field in ["metadata", "spec"] {
                shoot[field] = first[field].clone();
            }
            if is_restarted {
                // The samples lack the end of the previous operation.
                for field in ["lastErrors", "credentials"] {
                    shoot["status"][field] = before["status"][field].clone();
                }
                if first["status"]["lastErrors"].is_null() {
                    let credentials = rotation::done(
                        &before["status"]["credentials"]["rotation"],
                        Paused::default(),
                        at(&last(first)["lastUpdateTime"]),
                    );
                    shoot["status"]["credentials"]["rotation"] = credentials;
                    shoot["status"]["lastOperation"] = json!({"type": "Reconcile", "state": "Succeeded"});
                    shoot["status"]["retryCycleStartTime"] = Value::Null;
                } else {
                    shoot["status"]["lastErrors"] = first["status"]["lastErrors"].clone();
                }
            }
            let agent = first["status"]["gardener"].clone();
            let now = match is_restarted {
                true => at(&last(first)["lastUpdateTime"]),
                false => at(&first["status"]["retryCycleStartTime"]),
            };
            let start = OperationStart { project: "p", agent: &agent, retry_duration: 12 * HOUR, now };
            let operation = crate::controllers::shoot::decide::operation(&shoot);
            let mut report = OperationReport::new(&shoot, operation, &start);
            merge(&mut shoot, &report.begin(now));
            if let Some(patch) = identified(&shoot) {
                merge(&mut shoot, &patch);
            }
            let mut sample = first;
            loop {
                let told = last(sample);
                let progress = progress(
                    u32::try_from(told["progress"].as_u64().unwrap()).unwrap(),
                    text(&told["description"]),
                );
                // An error that has disappeared: its task is done.
                let stands = |task: &Value| {
                    let errors = sample["status"]["lastErrors"].as_array();
                    errors.is_some_and(|errors| errors.iter().any(|error| error["taskID"] == *task))
                };
                let errors = shoot["status"]["lastErrors"].as_array().cloned().unwrap_or_default();
                let done: Vec<String> = errors
                    .iter()
                    .map(|e| &e["taskID"])
                    .filter(|t| !stands(t))
                    .map(|t| text(t).to_owned())
                    .collect();
                for field in ["conditions", "constraints", "clusterIdentity", "advertisedAddresses"] {
                    if !sample["status"][field].is_null() {
                        shoot["status"][field] = sample["status"][field].clone();
                    }
                }
                if told["state"] == "Succeeded" {
                    let conditions = samples[index - 2]["status"].clone();
                    for field in ["conditions", "constraints"] {
                        shoot["status"][field] = conditions[field].clone();
                    }
                    let facts = OperationSuccess { shoot: &shoot.clone(), is_hibernated: false };
                    merge(&mut shoot, &report.succeeded(at(&told["lastUpdateTime"]), &facts));
                } else if let Some((patch, reported)) =
                    report.going_on(&progress, &done, at(&told["lastUpdateTime"]))
                {
                    report.has_told(reported);
                    merge(&mut shoot, &patch);
                }
                if sample["status"]["conditions"][0]["status"] != "Progressing" {
                    // They were checked again before the sample was taken.
                    for field in ["conditions", "constraints"] {
                        shoot["status"][field] = sample["status"][field].clone();
                    }
                }
                let encryption = &sample["status"]["credentials"]["encryptionAtRest"]["provider"]["type"];
                if let Some(patch) = encryption.as_str().and_then(|provider| encrypted(&shoot, provider, &[]))
                {
                    merge(&mut shoot, &patch);
                }
                let mut status = shoot["status"].clone();
                status.as_object_mut().unwrap().retain(|_, value| !value.is_null());
                assert_eq!(status, sample["status"], "{index}");
                let next = samples.get(index);
                let goes_on = |next: &&Value| {
                    told["state"] == "Processing"
                        && last(next)["progress"].as_u64() >= told["progress"].as_u64()
                };
                match next.filter(goes_on) {
                    Some(next) => sample = next,
                    None => break,
                }
                index += 1;
            }
        }
        assert_eq!(operations, 6);
    }
}
