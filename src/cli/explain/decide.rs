//! From what was gathered to an explanation. No IO.

use std::time::Duration;

use serde_json::{Value, json};

use super::finalizers::remover;
use crate::base::clock::Timestamp;
use crate::components::webhooks;
use crate::format::duration;
use crate::format::time::parse_rfc3339;

/// Lines of one object; others are counted.
const LINES_MAX: usize = 40;
/// How many Events are printed.
pub(super) const EVENTS_MAX: usize = 5;

/// Another object, or objects, that have to do with it.
#[derive(Debug)]
pub(super) struct Related {
    /// What it is to the object: `its ManagedResource`, `needs the Seed`.
    pub(super) what: String,
    /// Its own state is printed, too.
    pub(super) object: Option<Value>,
}

/// Everything that was read.
#[derive(Debug)]
pub(super) struct Gathered {
    /// `garden` or `seed`.
    pub(super) cluster: &'static str,
    pub(super) object: Value,
    pub(super) related: Vec<Related>,
    /// Events of the core group about the object, the oldest first.
    pub(super) events: Vec<Value>,
    /// What could not be read.
    pub(super) unread: Vec<String>,
    /// Of a Shoot: what is to be said besides, and the tasks of its operation.
    pub(super) told: Vec<String>,
    pub(super) tasks: Vec<Task>,
    pub(super) now: Timestamp,
}

/// A task of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) name: String,
    /// How far it is, in a word.
    pub(super) state: &'static str,
    pub(super) notes: Vec<String>,
}

/// The answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    title: String,
    state: String,
    why: Vec<String>,
    tasks: Vec<Task>,
}

impl Explanation {
    pub(super) fn text(&self) -> String {
        let mut out = format!("{}: {}\n", self.title, self.state);
        for line in &self.why {
            out.push_str(&format!("- {line}\n"));
        }
        for task in &self.tasks {
            out.push_str(&format!("{:<9} {}\n", task.state, task.name));
            for note in &task.notes {
                out.push_str(&format!("          - {note}\n"));
            }
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        let task = |task: &Task| json!({"task": task.name, "state": task.state, "notes": task.notes});
        let mut out = json!({"object": self.title, "state": self.state, "why": self.why});
        if !self.tasks.is_empty() {
            out["tasks"] = self.tasks.iter().map(task).collect();
        }
        out
    }
}

/// What the object is waiting for.
pub(super) fn explain(gathered: &Gathered) -> Explanation {
    let Gathered { cluster, object, now, .. } = gathered;
    let mut why = reasons(object, *now);
    let state = state(object, &why);
    if !gathered.tasks.is_empty() {
        // The tasks show them.
        why.retain(|line| !line.starts_with(LAST_ERROR));
    }
    why.extend(gathered.told.iter().cloned());
    for related in &gathered.related {
        match &related.object {
            None => why.push(related.what.clone()),
            Some(other) => {
                let reasons = reasons(other, *now);
                let state = self::state(other, &reasons);
                why.push(format!("{} {}: {state}", related.what, name(other)));
                why.extend(reasons.into_iter().map(|reason| format!("  {reason}")));
            }
        }
    }
    let first = gathered.events.len().saturating_sub(EVENTS_MAX);
    why.extend(gathered.events[first..].iter().map(|e| event(e, *now)));
    why.extend(gathered.unread.iter().map(|what| format!("not read: {what}")));
    if let Some(age) = age(&object["metadata"]["creationTimestamp"], *now) {
        why.push(format!("made {age} ago"));
    }
    let more = why.len().saturating_sub(LINES_MAX);
    if more > 0 {
        why.truncate(LINES_MAX);
        why.push(format!("and {more} lines more"));
    }
    let title = format!("{} {} ({cluster})", text(&object["kind"]), name(object));
    Explanation { title, state, why, tasks: gathered.tasks.clone() }
}

/// How the line of an error begins.
const LAST_ERROR: &str = "last error: ";

/// Whether there is nothing to say about an object.
pub(super) fn is_well(object: &Value, now: Timestamp) -> bool {
    reasons(object, now).is_empty()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The name with its namespace.
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

/// The state in one line.
fn state(object: &Value, reasons: &[String]) -> String {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        let finalizers: Vec<&str> = items(&object["metadata"]["finalizers"]).map(text).collect();
        return match finalizers[..] {
            [] => "being deleted; nothing holds it".to_owned(),
            _ => format!("being deleted; held by {}", finalizers.join(", ")),
        };
    }
    match reasons {
        [] => "no problem found".to_owned(),
        [first, ..] => format!("not done: {}", first.split(": ").next().unwrap_or_default()),
    }
}

/// Conditions that say something bad when they are true; others do when they are not.
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
}

/// Whether a condition says nothing bad. A Deployment that is rolled out is `Progressing` for good.
fn is_good(kind: &str, status: &str, reason: &str) -> bool {
    match kind {
        // How things are, either way.
        "DisruptionAllowed" | "ScalingLimited" => true,
        "Progressing" if reason == "NewReplicaSetAvailable" => status == "True",
        "Progressing" if reason == "ProgressDeadlineExceeded" => false,
        _ => status == if is_bad_when_true(kind) { "False" } else { "True" },
    }
}

fn reasons(object: &Value, now: Timestamp) -> Vec<String> {
    let metadata = &object["metadata"];
    let status = &object["status"];
    let mut out = Vec::new();
    if !metadata["deletionTimestamp"].is_null() {
        out.push(format!("deletion was asked for{}", ago(&metadata["deletionTimestamp"], now)));
        let finalizer = |f: &str| format!("finalizer {f}: removed by {}", remover(f));
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
        out.push(format!(
            "its controller has not seen the last change: generation {generation}, seen {seen}"
        ));
    }
    out.extend(last_operation(&status["lastOperation"], now));
    let errors = items(&status["lastErrors"]).chain(std::iter::once(&status["lastError"]));
    out.extend(
        errors.map(|e| text(&e["description"])).filter(|d| !d.is_empty()).map(|d| format!("{LAST_ERROR}{d}")),
    );
    out.extend(items(&status["conditions"]).filter_map(|c| condition(c, metadata, now)));
    if items(&status["conditions"]).any(|c| webhooks::is_unanswered(text(&c["message"]))) {
        out.push(webhooks::remedy());
    }
    out.extend(replicas(object));
    let owner = |o: &Value| format!("owned by {} {}", text(&o["kind"]), text(&o["name"]));
    if !out.is_empty() {
        out.extend(items(&metadata["ownerReferences"]).map(owner));
    }
    out
}

fn last_operation(operation: &Value, now: Timestamp) -> Option<String> {
    let state = text(&operation["state"]);
    if matches!(state, "" | "Succeeded") {
        return None;
    }
    let (kind, progress) = (text(&operation["type"]), operation["progress"].as_i64().unwrap_or(0));
    let since = ago(&operation["lastUpdateTime"], now);
    let description = text(&operation["description"]);
    Some(format!("last operation {kind} is {state} ({progress} %, told{since}): {description}"))
}

/// A condition that is not as it should be. `Required` keeps an installation that is to go, and is well otherwise.
fn condition(condition: &Value, metadata: &Value, now: Timestamp) -> Option<String> {
    let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
    let (reason, message) = (text(&condition["reason"]), text(&condition["message"]));
    if is_good(kind, status, reason) || (kind == "Required" && metadata["deletionTimestamp"].is_null()) {
        return None;
    }
    let since =
        age(&condition["lastTransitionTime"], now).map(|age| format!(" for {age}")).unwrap_or_default();
    Some(format!("condition {kind} is {status}{since}: {reason}: {message}"))
}

/// Workloads say more by their numbers than by their conditions.
fn replicas(object: &Value) -> Option<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let (wanted, what) = match text(&object["kind"]) {
        "Deployment" | "StatefulSet" | "ReplicaSet" => {
            (spec["replicas"].as_i64().unwrap_or(1), "readyReplicas")
        }
        "DaemonSet" => (status["desiredNumberScheduled"].as_i64().unwrap_or(0), "numberReady"),
        _ => return None,
    };
    let ready = status[what].as_i64().unwrap_or(0);
    (ready < wanted).then(|| format!("{ready} of {wanted} pods are ready"))
}

/// When an event was last seen, in either API of events; times are texts that sort.
pub(super) fn when(event: &Value) -> &str {
    text(times(event))
}

fn times(event: &Value) -> &Value {
    let last = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["deprecatedLastTimestamp"],
        &event["eventTime"],
    ];
    last.into_iter().find(|time| time.is_string()).unwrap_or(&Value::Null)
}

pub(super) fn event(event: &Value, now: Timestamp) -> String {
    let counts = [&event["series"]["count"], &event["count"], &event["deprecatedCount"]];
    let count = counts.into_iter().find_map(Value::as_i64).unwrap_or(1);
    let times_seen = if count > 1 { format!(", {count} times") } else { String::new() };
    let (kind, reason) = (text(&event["type"]), text(&event["reason"]));
    let message = [&event["message"], &event["note"]].into_iter().find_map(Value::as_str).unwrap_or_default();
    format!("event{}{times_seen}: {kind} {reason}: {message}", ago(times(event), now))
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
                "no problem found",
                vec![],
            ),
            (
                json!({"status": {"conditions": [condition("Healthy", "False"), condition("Required", "True")]}}),
                "not done: condition Healthy is False for 1m0s",
                vec!["condition Healthy is False for 1m0s: R: M"],
            ),
            (
                json!({"metadata": {"deletionTimestamp": since, "finalizers": ["kubernetes", "x.org/y"]},
                    "status": {"conditions": [condition("Required", "True")]}}),
                "being deleted; held by kubernetes, x.org/y",
                vec![
                    "deletion was asked for 1h0m0s ago",
                    "finalizer kubernetes: removed by kube-controller-manager, when the namespace is empty",
                    "finalizer x.org/y: removed by the program that set it: the finalizer's name says which",
                    "condition Required is True for 1m0s: R: M",
                ],
            ),
            (
                json!({"metadata": {"deletionTimestamp": since}}),
                "being deleted; nothing holds it",
                vec!["deletion was asked for 1h0m0s ago"],
            ),
            (
                json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 2,
                    "lastOperation": {"type": "Reconcile", "state": "Error", "progress": 40, "description": "no",
                        "lastUpdateTime": since},
                    "lastErrors": [{"description": "e1"}], "lastError": {"description": "e2"}}}),
                "not done: its controller has not seen the last change",
                vec![
                    "its controller has not seen the last change: generation 3, seen 2",
                    "last operation Reconcile is Error (40 %, told 1h0m0s ago): no",
                    "last error: e1",
                    "last error: e2",
                ],
            ),
            (
                json!({"kind": "Deployment", "metadata": {"ownerReferences": [{"kind": "A", "name": "b"}]},
                    "spec": {"replicas": 2}, "status": {"readyReplicas": 1}}),
                "not done: 1 of 2 pods are ready",
                vec!["1 of 2 pods are ready", "owned by A b"],
            ),
        ];
        for (object, state, why) in table {
            let found = explain(&gathered(object, Vec::new()));
            assert_eq!(
                (found.state.as_str(), found.why),
                (state, why.iter().map(ToString::to_string).collect())
            );
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
            found.why[1],
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
            Related { what: "its ManagedResource".to_owned(), object: Some(resource) },
            Related { what: "needed by Network a/b".to_owned(), object: None },
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
        let text = "ControllerInstallation i (seed): no problem found\n\
            - its ManagedResource garden/i: not done: condition ResourcesApplied is False for 1m0s\n\
            -   condition ResourcesApplied is False for 1m0s: R: M\n- needed by Network a/b\n\
            - event 30s ago, 2 times: Warning R2: m\n";
        assert!(found.text().starts_with(text), "{}", found.text());
        assert!(
            found.text().ends_with("Warning R6: m\n- not read: events: 403\n- made 2h0m0s ago\n"),
            "{}",
            found.text()
        );
        assert_eq!(found.json()["why"].as_array().unwrap().len(), 10);
    }
}
