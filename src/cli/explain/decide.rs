//! Turns the gathered objects into an explanation. No IO.

use std::time::Duration;

use serde_json::Value;

use super::super::colour::{ColouredText, Tone};
use super::finalizers::remover;
use super::verdict::{ExplanationLine, ObjectVerdict, Weight};
use crate::api::condition::urgency;
use crate::api::extensions::SERVED;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::components::webhooks;
use crate::format::time::parse_rfc3339;
use crate::format::{duration, human};
use crate::runtime::events;

/// The most lines about one object; the explanation counts the others.
const LINES_MAX: usize = 40;
/// The number of Events in the explanation.
pub(super) const EVENTS_MAX: usize = 5;

/// Other objects that are related to this one.
#[derive(Debug)]
pub(super) struct Related {
    /// The relation: `its ManagedResource`, `needs the Seed`.
    pub(super) what: String,
    /// The explanation contains the state of this object, too.
    pub(super) object: Option<Value>,
    /// The object is not ready because of this one.
    pub(super) is_lack: bool,
}

impl Related {
    /// Another object whose state belongs to the explanation.
    pub(super) const fn object(what: String, object: Value) -> Self {
        Self { what, object: Some(object), is_lack: false }
    }

    pub(super) const fn note(what: String) -> Self {
        Self { what, object: None, is_lack: false }
    }

    pub(super) const fn lack(what: String) -> Self {
        Self { what, object: None, is_lack: true }
    }
}

/// The prefix of the note that the Events could not be read. Such a note does not affect the state.
pub(super) const EVENTS: &str = "events: ";

/// Everything that the command has read.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Either `garden` or `seed`.
    pub(super) cluster: &'static str,
    pub(super) object: Value,
    pub(super) related: Vec<Related>,
    /// The Events of the core group about the object, the oldest first.
    pub(super) events: Vec<Value>,
    /// What could not be read.
    pub(super) unread: Vec<String>,
    /// Further lines about a Shoot, and the tasks of its operation.
    pub(super) told: Vec<String>,
    pub(super) tasks: Vec<ExplainedTask>,
    pub(super) now: Timestamp,
}

/// A task of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExplainedTask {
    pub(super) name: String,
    /// The state in one word.
    pub(super) state: &'static str,
    pub(super) notes: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    title: String,
    verdict: ObjectVerdict,
    state: String,
    why: Vec<ExplanationLine>,
    tasks: Vec<ExplainedTask>,
}

impl Explanation {
    pub(super) fn text(&self, colour: bool) -> ColouredText {
        let mut out = ColouredText::new(colour);
        out.toned(Tone::Strong, &self.title);
        out.plain(": ");
        out.toned(self.verdict.tone(), &self.state);
        out.plain("\n");
        for ExplanationLine { weight, text } in &self.why {
            out.plain("- ");
            match weight {
                Weight::Note => out.plain(text),
                Weight::Bad | Weight::Error => out.toned(Tone::Bad, text),
                Weight::Unknown | Weight::Progress | Weight::Operation => out.toned(Tone::Odd, text),
            }
            out.plain("\n");
        }
        for task in &self.tasks {
            let state = format!("{:<9}", task.state);
            match task.state {
                "done" => out.toned(Tone::Good, &state),
                "failed" => out.toned(Tone::Bad, &state),
                "running" => out.toned(Tone::Odd, &state),
                _ => out.toned(Tone::Faint, &state),
            }
            out.plain(&format!(" {}\n", task.name));
            for note in &task.notes {
                out.plain(&format!("          - {note}\n"));
            }
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        let task =
            |task: &ExplainedTask| json!({"task": task.name, "state": task.state, "notes": task.notes});
        let why: Value = self.why.iter().map(|line| line.text.as_str()).collect();
        let mut out =
            json!({"object": self.title, "verdict": self.verdict.name(), "state": self.state, "why": why});
        if !self.tasks.is_empty() {
            out["tasks"] = self.tasks.iter().map(task).collect();
        }
        out
    }
}

/// Explains whether the object is ready and, if not, why.
pub(super) fn explain(gathered: &Gathered) -> Explanation {
    let Gathered { cluster, object, now, .. } = gathered;
    let mut why = reasons(object, *now);
    let own = verdict(object, &why);
    if !gathered.tasks.is_empty() {
        // The list of tasks contains them.
        why.retain(|line| line.weight != Weight::Error);
    }
    why.extend(gathered.told.iter().map(ExplanationLine::note));
    let mut others = Vec::new();
    for related in &gathered.related {
        match &related.object {
            None => {
                let weight = if related.is_lack { Weight::Bad } else { Weight::Note };
                why.push(ExplanationLine::new(weight, related.what.as_str()));
                if related.is_lack {
                    let lack = ExplanationLine::note(related.what.as_str());
                    others.push((lack.head().to_owned(), ObjectVerdict::NotReady(String::new())));
                }
            }
            Some(other) => {
                let reasons = reasons(other, *now);
                let verdict = verdict(other, &reasons);
                let what = format!("{} {}", related.what, name(other));
                why.push(ExplanationLine::note(format!("{what}: {}", verdict.text())));
                why.extend(
                    reasons
                        .into_iter()
                        .map(|line| ExplanationLine::new(line.weight, format!("  {}", line.text))),
                );
                let words = format!("{what} is {}", verdict.name());
                others.push((words, verdict));
            }
        }
    }
    let (verdict, state) =
        with_others(own, &others, gathered.unread.iter().any(|what| !what.starts_with(EVENTS)));
    let first = gathered.events.len().saturating_sub(EVENTS_MAX);
    why.extend(gathered.events[first..].iter().map(|e| ExplanationLine::note(events::describe(e, *now))));
    why.extend(gathered.unread.iter().map(|what| ExplanationLine::note(format!("not read: {what}"))));
    if let Some(age) = age(&object["metadata"]["creationTimestamp"], *now) {
        why.push(ExplanationLine::note(format!("created {age} ago")));
    }
    let more = why.len().saturating_sub(LINES_MAX);
    if more > 0 {
        why.truncate(LINES_MAX);
        why.push(ExplanationLine::note(format!("and {more} more")));
    }
    let title = format!("{} {} ({cluster})", text(&object["kind"]), name(object));
    Explanation { title, verdict, state, why, tasks: gathered.tasks.clone() }
}

/// Adds the verdicts of related objects: an object is not ready if one that it needs is not.
fn with_others(
    own: ObjectVerdict,
    others: &[(String, ObjectVerdict)],
    has_unread: bool,
) -> (ObjectVerdict, String) {
    if !matches!(own, ObjectVerdict::Ready | ObjectVerdict::Present) {
        let state = own.text();
        return (own, state);
    }
    let find = |is: fn(&ObjectVerdict) -> bool| others.iter().find(|(_, verdict)| is(verdict));
    let is_doubtful =
        |verdict: &ObjectVerdict| matches!(verdict, ObjectVerdict::Unknown(_) | ObjectVerdict::Deleted(_));
    let bad = find(|verdict| matches!(verdict, ObjectVerdict::NotReady(_))).or_else(|| find(is_doubtful));
    if let Some((what, _)) = bad {
        let verdict = ObjectVerdict::NotReady(what.clone());
        let state = verdict.text();
        return (verdict, state);
    }
    let mut state = own.text();
    if let Some((what, _)) = find(|verdict| matches!(verdict, ObjectVerdict::InProgress(_))) {
        state.push_str(&format!(", but {what}"));
    } else if has_unread {
        state.push_str(", as far as it could be read");
    }
    (own, state)
}

/// Whether an object needs no explanation.
pub(super) fn is_well(object: &Value, now: Timestamp) -> bool {
    reasons(object, now).is_empty()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The name, with the namespace if there is one.
pub(super) fn name(object: &Value) -> String {
    let metadata = &object["metadata"];
    match text(&metadata["namespace"]) {
        "" => text(&metadata["name"]).to_owned(),
        namespace => format!("{namespace}/{}", text(&metadata["name"])),
    }
}

pub(super) fn age(time: &Value, now: Timestamp) -> Option<String> {
    let at = parse_rfc3339(time.as_str()?).ok()?;
    Some(duration::format(Duration::from_secs(now.since(at).as_secs())))
}

fn ago(time: &Value, now: Timestamp) -> String {
    age(time, now).map(|age| format!(" {age} ago")).unwrap_or_default()
}

/// Kinds that are not ready before their controller has reported a state; extensions are not in this list.
const REPORTING: [&str; 8] = [
    "Seed",
    "Shoot",
    "ControllerInstallation",
    "ManagedResource",
    "BackupBucket",
    "BackupEntry",
    "Bastion",
    "ManagedSeed",
];

/// The verdict of an object without its related objects.
fn verdict(object: &Value, reasons: &[ExplanationLine]) -> ObjectVerdict {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        let finalizers: Vec<&str> = items(&object["metadata"]["finalizers"]).map(text).collect();
        return ObjectVerdict::Deleted(finalizers.join(", "));
    }
    let first = |weights: &[Weight]| {
        let found = reasons.iter().find(|line| weights.contains(&line.weight));
        found.map(|line| line.head().to_owned())
    };
    if let (Some(operation), None) = (first(&[Weight::Operation]), first(&[Weight::Error])) {
        return ObjectVerdict::InProgress(operation);
    }
    if let Some(bad) = first(&[Weight::Bad, Weight::Error]) {
        return ObjectVerdict::NotReady(bad);
    }
    if let Some(progress) = first(&[Weight::Progress]) {
        return ObjectVerdict::InProgress(progress);
    }
    if let Some(unknown) = first(&[Weight::Unknown]) {
        return ObjectVerdict::Unknown(unknown);
    }
    let (kind, status) = (text(&object["kind"]), &object["status"]);
    let has_reported = items(&status["conditions"]).next().is_some()
        || !status["lastOperation"].is_null()
        || status["phase"].is_string()
        || wanted_pods(object).is_some();
    if has_reported {
        ObjectVerdict::Ready
    } else if REPORTING.contains(&kind) || SERVED.iter().any(|served| *served.kind == *kind) {
        ObjectVerdict::NotReady("its controller has not reported anything yet".to_owned())
    } else {
        ObjectVerdict::Present
    }
}

/// Conditions that are bad if they are true; others are bad if they are false.
fn is_bad_when_true(kind: &str) -> bool {
    matches!(
        kind,
        "Progressing"
            | "ResourcesProgressing"
            | "Required"
            | "Failed"
            | "FailureTarget"
            | "Suspended"
            | "Terminating"
    ) || ["Pressure", "Failure", "Unavailable", "Remaining", "Error", "Schema"]
        .iter()
        .any(|end| kind.ends_with(end))
        || (kind.starts_with("Namespace") && kind.contains("Deletion"))
        || kind.starts_with("EmergencyStop")
}

/// Whether a condition is good. A completely rolled out Deployment stays `Progressing`.
fn is_good(kind: &str, status: &str, reason: &str) -> bool {
    match kind {
        // These only describe; both values are good.
        "DisruptionAllowed" | "ScalingLimited" => true,
        // The pod of a completed Job.
        "Ready" | "ContainersReady" if reason == "PodCompleted" => true,
        "Progressing" if reason == "NewReplicaSetAvailable" => status == "True",
        "Progressing" if reason == "ProgressDeadlineExceeded" => false,
        _ => status == if is_bad_when_true(kind) { "False" } else { "True" },
    }
}

fn reasons(object: &Value, now: Timestamp) -> Vec<ExplanationLine> {
    let metadata = &object["metadata"];
    let status = &object["status"];
    let mut out = Vec::new();
    if !metadata["deletionTimestamp"].is_null() {
        out.push(ExplanationLine::note(format!(
            "deletion was requested{}",
            ago(&metadata["deletionTimestamp"], now)
        )));
        let finalizer = |f: &str| ExplanationLine::note(format!("finalizer {f}: removed by {}", remover(f)));
        out.extend(
            items(&metadata["finalizers"])
                .chain(items(&object["spec"]["finalizers"]))
                .map(text)
                .map(finalizer),
        );
    }
    let seen = status["observedGeneration"].as_i64();
    if let (Some(generation), Some(seen)) = (metadata["generation"].as_i64(), seen)
        && seen < generation
    {
        let text =
            format!("its controller has not seen the last change: generation {generation}, seen {seen}");
        out.push(ExplanationLine::new(Weight::Progress, text));
    }
    out.extend(last_operation(&status["lastOperation"], now));
    let errors = items(&status["lastErrors"]).chain(std::iter::once(&status["lastError"]));
    let errors = errors.map(|e| text(&e["description"])).filter(|d| !d.is_empty());
    out.extend(errors.map(|d| ExplanationLine::new(Weight::Error, format!("last error: {d}"))));
    let mut conditions: Vec<&Value> = items(&status["conditions"]).collect();
    conditions.sort_by_key(|c| urgency(text(&c["type"]), text(&c["status"])));
    out.extend(conditions.into_iter().filter_map(|c| condition(c, metadata, now)));
    if items(&status["conditions"]).any(|c| webhooks::is_unanswered(text(&c["message"]))) {
        out.push(ExplanationLine::note(webhooks::remedy()));
    }
    out.extend(replicas(object));
    if let phase @ ("Pending" | "Failed" | "Lost" | "Unknown") = text(&status["phase"]) {
        out.push(ExplanationLine::new(Weight::Bad, format!("its phase is {phase}")));
    }
    let owner =
        |o: &Value| ExplanationLine::note(format!("owned by {} {}", text(&o["kind"]), text(&o["name"])));
    if !out.is_empty() {
        out.extend(items(&metadata["ownerReferences"]).map(owner));
    }
    out
}

fn last_operation(operation: &Value, now: Timestamp) -> Option<ExplanationLine> {
    let state = text(&operation["state"]);
    let weight = match state {
        "" | "Succeeded" => return None,
        "Processing" | "Pending" => Weight::Operation,
        _ => Weight::Bad,
    };
    let (kind, progress) = (text(&operation["type"]), operation["progress"].as_i64().unwrap_or(0));
    let since = ago(&operation["lastUpdateTime"], now);
    let description = text(&operation["description"]);
    let text = format!("last operation {kind} is {state} ({progress} %, reported{since}): {description}");
    Some(ExplanationLine::new(weight, text))
}

/// A condition with a bad value. `Required` only delays the deletion of an installation.
fn condition(condition: &Value, metadata: &Value, now: Timestamp) -> Option<ExplanationLine> {
    let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
    let (reason, message) = (text(&condition["reason"]), text(&condition["message"]));
    if is_good(kind, status, reason) || (kind == "Required" && metadata["deletionTimestamp"].is_null()) {
        return None;
    }
    let weight = match (kind, status) {
        (_, "Unknown") => Weight::Unknown,
        (_, "Progressing") | ("Progressing" | "ResourcesProgressing", "True") => Weight::Progress,
        _ => Weight::Bad,
    };
    let since =
        age(&condition["lastTransitionTime"], now).map(|age| format!(" for {age}")).unwrap_or_default();
    Some(ExplanationLine::new(weight, format!("condition {kind} is {status}{since}: {reason}: {message}")))
}

/// How many pods a workload needs, and the field with the number of ready pods.
fn wanted_pods(object: &Value) -> Option<(i64, &'static str)> {
    match text(&object["kind"]) {
        "Deployment" | "StatefulSet" | "ReplicaSet" => {
            Some((object["spec"]["replicas"].as_i64().unwrap_or(1), "readyReplicas"))
        }
        "DaemonSet" => {
            Some((object["status"]["desiredNumberScheduled"].as_i64().unwrap_or(0), "numberReady"))
        }
        _ => None,
    }
}

/// The numbers of a workload contain more than its conditions.
fn replicas(object: &Value) -> Option<ExplanationLine> {
    let (wanted, what) = wanted_pods(object)?;
    let ready = object["status"][what].as_i64().unwrap_or(0);
    (ready < wanted)
        .then(|| ExplanationLine::new(Weight::Bad, format!("{} ready", human::of_pods(ready, wanted))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-05T10:00:00Z";

    fn gathered(object: Value, related: Vec<Related>) -> Gathered {
        let now = parse_rfc3339(NOW).unwrap();
        Gathered {
            cluster: "seed",
            object,
            related,
            events: Vec::new(),
            unread: Vec::new(),
            told: Vec::new(),
            tasks: Vec::new(),
            now,
        }
    }

    fn condition(kind: &str, status: &str) -> Value {
        json!({"type": kind, "status": status, "reason": "R", "message": "M", "lastTransitionTime": "2026-01-05T09:59:00Z"})
    }

    #[test]
    fn objects_say_what_they_wait_for() {
        let since = "2026-01-05T09:00:00Z";
        let table = [
            (
                json!({"status": {"conditions": [condition("Healthy", "True"), condition("Progressing", "False")]}}),
                "ready",
                vec![],
            ),
            (
                json!({"status": {"conditions": [condition("Healthy", "False"), condition("Required", "True")]}}),
                "not ready: condition Healthy is False for 1m0s",
                vec!["condition Healthy is False for 1m0s: R: M"],
            ),
            (
                json!({"status": {"conditions": [condition("Installed", "Unknown"), condition("Healthy", "False"),
                    condition("Valid", "False")]}}),
                "not ready: condition Valid is False for 1m0s",
                vec![
                    "condition Valid is False for 1m0s: R: M",
                    "condition Healthy is False for 1m0s: R: M",
                    "condition Installed is Unknown for 1m0s: R: M",
                ],
            ),
            (
                json!({"metadata": {"deletionTimestamp": since, "finalizers": ["kubernetes", "x.org/y"]},
                    "status": {"conditions": [condition("Required", "True")]}}),
                "being deleted; held by kubernetes, x.org/y",
                vec![
                    "deletion was requested 1h0m0s ago",
                    "finalizer kubernetes: removed by kube-controller-manager, when the namespace is empty",
                    "finalizer x.org/y: removed by the program that set it: see the finalizer's name",
                    "condition Required is True for 1m0s: R: M",
                ],
            ),
            (
                json!({"metadata": {"deletionTimestamp": since}}),
                "being deleted; nothing holds it",
                vec!["deletion was requested 1h0m0s ago"],
            ),
            (
                json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 2,
                    "lastOperation": {"type": "Reconcile", "state": "Error", "progress": 40, "description": "no",
                        "lastUpdateTime": since},
                    "lastErrors": [{"description": "e1"}], "lastError": {"description": "e2"}}}),
                "not ready: last operation Reconcile is Error (40 %, reported 1h0m0s ago)",
                vec![
                    "its controller has not seen the last change: generation 3, seen 2",
                    "last operation Reconcile is Error (40 %, reported 1h0m0s ago): no",
                    "last error: e1",
                    "last error: e2",
                ],
            ),
            (
                json!({"kind": "Deployment", "metadata": {"ownerReferences": [{"kind": "A", "name": "b"}]},
                    "spec": {"replicas": 2}, "status": {"readyReplicas": 1}}),
                "not ready: 1 of 2 pods are ready",
                vec!["1 of 2 pods are ready", "owned by A b"],
            ),
        ];
        for (object, state, why) in table {
            let found = explain(&gathered(object, Vec::new()));
            let lines: Vec<&str> = found.why.iter().map(|line| line.text.as_str()).collect();
            assert_eq!((found.state.as_str(), lines), (state, why));
        }
    }

    #[test]
    fn webhooks_that_do_not_answer_are_named() {
        let mut refused = condition("ResourcesApplied", "False");
        refused["message"] = json!(
            "failed calling webhook \"x.resources.gardener.cloud\": failed to call webhook: no endpoints"
        );
        let found = explain(&gathered(json!({"status": {"conditions": [refused]}}), Vec::new()));
        assert_eq!(
            found.why[1].text,
            "a webhook of gardener-resource-manager does not answer; unless it comes back, run: kubectl delete \
             mutatingwebhookconfiguration,validatingwebhookconfiguration gardener-resource-manager"
        );
    }

    #[test]
    fn conditions_are_good_or_bad() {
        let table = [
            ("Ready", "True", "", true),
            ("Ready", "Unknown", "", false),
            ("Progressing", "False", "", true),
            ("Progressing", "True", "", false),
            ("Progressing", "True", "ReplicaSetUpdated", false),
            ("Progressing", "True", "NewReplicaSetAvailable", true),
            ("Progressing", "Unknown", "DeploymentPaused", false),
            ("Progressing", "False", "ProgressDeadlineExceeded", false),
            ("ReplicaFailure", "True", "", false),
            ("DisruptionAllowed", "False", "InsufficientPods", true),
            ("ScalingLimited", "True", "TooFewReplicas", true),
            ("NonStructuralSchema", "False", "", true),
            ("LoadBalancerPortsError", "True", "", false),
            ("EmergencyStopShootReconciliations", "True", "EmergencyStopSet", false),
            ("EmergencyStopShootReconciliations", "False", "", true),
            ("Suspended", "False", "JobResumed", true),
        ];
        for (kind, status, reason, expected) in table {
            assert_eq!(is_good(kind, status, reason), expected, "{kind} {status} {reason}");
        }
    }

    #[test]
    fn what_is_related_and_what_happened_come_behind() {
        let object = json!({"kind": "ControllerInstallation", "metadata": {"name": "i", "creationTimestamp": "2026-01-05T08:00:00Z"}});
        let resource = json!({"metadata": {"namespace": "garden", "name": "i"},
            "status": {"conditions": [condition("ResourcesApplied", "False")]}});
        let related = vec![
            Related::object("its ManagedResource".to_owned(), resource),
            Related::note("needed by Network a/b".to_owned()),
        ];
        let mut gathered = gathered(object, related);
        gathered.unread.push("events: 403".to_owned());
        for n in 0..7 {
            gathered
                .events
                .push(json!({"type": "Warning", "reason": format!("R{n}"), "message": "m", "count": n,
                "lastTimestamp": "2026-01-05T09:59:30Z"}));
        }
        let found = explain(&gathered);
        let text = "ControllerInstallation i (seed): not ready: its controller has not reported anything yet\n\
            - its ManagedResource garden/i: not ready: condition ResourcesApplied is False for 1m0s\n\
            -   condition ResourcesApplied is False for 1m0s: R: M\n- needed by Network a/b\n\
            - event 30s ago, 2 times: Warning R2: m\n";
        let said = found.text(false);
        let end = "Warning R6: m\n- not read: events: 403\n- created 2h0m0s ago\n";
        assert!(said.as_str().starts_with(text) && said.as_str().ends_with(end), "{}", said.as_str());
        assert_eq!(found.json()["why"].as_array().unwrap().len(), 10);
    }

    /// The first line always agrees with the lines below it.
    #[test]
    fn verdicts_agree_with_the_details() {
        let with =
            |kind: &str, status: Value| json!({"kind": kind, "metadata": {"name": "x"}, "status": status});
        let conditions = |all: &[(&str, &str)]| -> Value {
            json!({"conditions": all.iter().map(|(kind, status)| condition(kind, status)).collect::<Vec<_>>()})
        };
        let operation = |state: &str| json!({"type": "Create", "state": state, "progress": 40});
        let well = || with("ManagedResource", conditions(&[("Healthy", "True")]));
        let ill = || with("ManagedResource", conditions(&[("Healthy", "False")]));
        let going = || with("Shoot", json!({"lastOperation": operation("Processing")}));
        let deleted = || {
            let mut object = well();
            object["metadata"]["deletionTimestamp"] = json!("2026-01-05T09:00:00Z");
            object
        };
        let other = |object: Value| vec![Related::object("its R".to_owned(), object)];
        let with_errors =
            json!({"lastOperation": operation("Processing"), "lastErrors": [{"description": "e"}]});
        let table = [
            (well(), vec![], "ready"),
            (well(), other(well()), "ready"),
            (well(), other(ill()), "not ready: its R x is not ready"),
            (well(), other(deleted()), "not ready: its R x is being deleted"),
            (well(), other(going()), "ready, but its R x is in progress"),
            (well(), vec![Related::note("in use by a".to_owned())], "ready"),
            (
                well(),
                vec![Related::lack("its S a is missing: create it".to_owned())],
                "not ready: its S a is missing",
            ),
            (ill(), other(well()), "not ready: condition Healthy is False for 1m0s"),
            (deleted(), other(ill()), "being deleted; nothing holds it"),
            (going(), vec![], "in progress: last operation Create is Processing (40 %, reported)"),
            (with("Shoot", with_errors), vec![], "not ready: last error"),
            (
                with(
                    "Shoot",
                    json!({"lastOperation": operation("Processing"), "conditions": [condition("A", "False")]}),
                ),
                vec![],
                "in progress: last operation Create is Processing (40 %, reported)",
            ),
            (
                with("Shoot", json!({"lastOperation": operation("Failed")})),
                vec![],
                "not ready: last operation Create is Failed (40 %, reported)",
            ),
            (
                with("Seed", conditions(&[("A", "True"), ("B", "Progressing")])),
                vec![],
                "in progress: condition B is Progressing for 1m0s",
            ),
            (
                with("Seed", conditions(&[("A", "Unknown"), ("B", "Progressing")])),
                vec![],
                "in progress: condition B is Progressing for 1m0s",
            ),
            (
                with("Seed", conditions(&[("A", "Unknown"), ("B", "False")])),
                vec![],
                "not ready: condition B is False for 1m0s",
            ),
            (
                with("Seed", conditions(&[("A", "Unknown")])),
                vec![],
                "unknown: condition A is Unknown for 1m0s",
            ),
            (with("Seed", json!({})), vec![], "not ready: its controller has not reported anything yet"),
            (with("Network", json!({})), vec![], "not ready: its controller has not reported anything yet"),
            (with("ConfigMap", Value::Null), vec![], "present; it reports no state"),
            (with("Namespace", json!({"phase": "Active"})), vec![], "ready"),
            (
                with("PersistentVolumeClaim", json!({"phase": "Pending"})),
                vec![],
                "not ready: its phase is Pending",
            ),
            (with("DaemonSet", json!({"desiredNumberScheduled": 2, "numberReady": 2})), vec![], "ready"),
        ];
        for (object, related, expected) in table {
            let found = explain(&gathered(object.clone(), related));
            assert_eq!(found.state, expected, "{object}");
            let says_bad = found.why.iter().any(|line| matches!(line.weight, Weight::Bad | Weight::Error));
            assert!(!says_bad || !expected.starts_with("ready"), "{expected}: {found:?}");
            assert_eq!(found.json()["verdict"], found.verdict.name());
        }
        let mut partial = gathered(well(), Vec::new());
        partial.unread.push("events: 403".to_owned());
        assert_eq!(explain(&partial).state, "ready");
        partial.unread.push("3 of its objects: 403".to_owned());
        assert_eq!(explain(&partial).state, "ready, as far as it could be read");
        let coloured = explain(&gathered(ill(), Vec::new())).text(true);
        assert!(coloured.as_str().contains("\u{1b}[31mcondition Healthy is False"), "{}", coloured.as_str());
    }
}
