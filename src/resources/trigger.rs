//! Which changes wake which controller, and what to do about a ManagedResource.

use serde::Deserialize;
use serde_json::Value;

use super::names::{self, reason};
use super::target::Class;
use crate::api::condition::{ConditionStatus, timestamp};
use crate::api::gardener::OPERATION;
use crate::api::meta::{Key, ObjectMeta, is_true};
use crate::api::resources::{CARE_LABEL, INSTALLATION_LABEL, SecretReference};
use crate::base::clock::Timestamp;
use crate::format::view;
use crate::limits;
use crate::runtime::informer;

/// The part of a ManagedResource that an informer keeps.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(from = "Whole")]
pub struct ManagedResourceHead {
    pub(crate) metadata: ObjectMeta,
    /// The relevant part of its spec.
    pub(crate) spec: ManagedResourceHeadSpec,
    /// The relevant part of its status.
    pub(crate) status: ManagedResourceHeadStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Whole {
    metadata: ObjectMeta,
    spec: ManagedResourceHeadSpec,
    status: ManagedResourceHeadStatus,
}

impl From<Whole> for ManagedResourceHead {
    fn from(whole: Whole) -> Self {
        let Whole { mut metadata, mut spec, mut status } = whole;
        metadata.annotations.retain(|name, _| [OPERATION, names::IGNORE].contains(&name.as_str()));
        metadata.labels.retain(|name, _| [INSTALLATION_LABEL, CARE_LABEL].contains(&name.as_str()));
        // One more than the limit is enough to know that there are too many.
        spec.secret_refs.truncate(limits::MANAGED_RESOURCE_SECRETS_MAX + 1);
        if !REPORTED.contains(&metadata.namespace.as_str()) {
            for condition in status.conditions.iter_mut().filter(|condition| !condition.is_fault()) {
                (condition.reason, condition.message) = (String::new(), String::new());
            }
        }
        Self { metadata, spec, status }
    }
}

/// Namespaces whose ManagedResources are reported to the garden with reason and message: those of the seed itself. In
/// the many namespaces of shoots, reason and message are kept only for faults.
pub(crate) const REPORTED: [&str; 2] = ["garden", "istio-system"];

/// The part of the spec of a ManagedResource that an informer keeps.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ManagedResourceHeadSpec {
    /// The class of the responsible applier.
    pub(crate) class: String,
    pub(crate) secret_refs: Vec<SecretReference>,
}

/// The part of the status of a ManagedResource that an informer keeps.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ManagedResourceHeadStatus {
    pub(crate) conditions: Vec<ManagedResourceHeadCondition>,
    /// The generation that was applied last.
    pub(crate) observed_generation: i64,
}

/// The part of a condition that an informer keeps.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ManagedResourceHeadCondition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: ConditionStatus,
    /// The reason as one word; kept only where it is reported.
    pub(crate) reason: String,
    /// The message for people; kept only where it is reported.
    pub(crate) message: String,
    /// When `status` last changed.
    #[serde(rename = "lastTransitionTime", deserialize_with = "timestamp::deserialize")]
    pub(crate) changed: Timestamp,
}

impl ManagedResourceHeadCondition {
    /// Whether it is a fault to report. It is no fault that the objects of a ManagedResource are not yet
    /// healthy or rolled out.
    pub(crate) fn is_fault(&self) -> bool {
        let fault =
            if self.kind == names::PROGRESSING { ConditionStatus::True } else { ConditionStatus::False };
        [fault, ConditionStatus::Unknown].contains(&self.status)
    }
}

impl ManagedResourceHead {
    /// Why it could not be applied, according to its condition. Before the first success, no
    /// other condition shows this.
    pub(crate) fn apply_problem(&self) -> Option<&str> {
        let kept = [reason::APPLY_FAILED, reason::DELETION_FAILED, reason::DELETION_PENDING];
        let is_problem = |condition: &&ManagedResourceHeadCondition| match condition.status {
            ConditionStatus::False => true,
            // The next try keeps the last problem.
            ConditionStatus::Progressing => kept.contains(&condition.reason.as_str()),
            ConditionStatus::True | ConditionStatus::Unknown => false,
        };
        let applied = self.status.conditions.iter().find(|condition| condition.kind == names::APPLIED);
        applied.filter(is_problem).map(|condition| condition.message.as_str()).filter(|why| !why.is_empty())
    }

    /// Whether its present generation is applied, healthy or not.
    pub(crate) fn is_applied(&self) -> bool {
        self.status.observed_generation == self.metadata.generation
            && status(self, names::APPLIED) == Some(ConditionStatus::True)
    }

    /// Why it is not healthy in this generation or a later one.
    pub(crate) fn unhealthy(&self, generation: i64) -> Option<String> {
        if self.metadata.generation < generation
            || self.status.observed_generation != self.metadata.generation
        {
            let why = self.apply_problem().map(|why| format!(": {why}")).unwrap_or_default();
            return Some(format!("is not applied yet{why}"));
        }
        [names::APPLIED, names::HEALTHY].into_iter().find_map(|kind| {
            match self.status.conditions.iter().find(|condition| condition.kind == kind) {
                Some(condition) if condition.status == ConditionStatus::True => None,
                Some(condition) => {
                    Some(format!("has condition {kind} {}: {}", condition.status, condition.message))
                }
                None => Some(format!("has no condition {kind} yet")),
            }
        })
    }
}

impl informer::PartialObject for ManagedResourceHead {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    /// The fields that identify its applier, so that it gets a condition; the class precedes all lists.
    fn of_head(head: &Value) -> Option<Self> {
        let metadata = view::look::<ObjectMeta>(&head["metadata"]).ok()?;
        let class = head["spec"]["class"].as_str().unwrap_or_default().to_owned();
        let spec = ManagedResourceHeadSpec { class, ..ManagedResourceHeadSpec::default() };
        Some(Whole { metadata, spec, ..Whole::default() }.into())
    }
}

/// What to do about a ManagedResource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Duty {
    /// It belongs to another applier, or nothing is to be done now.
    Nothing,
    /// Delete its objects and remove our finalizer: it is being deleted, or another applier takes over.
    Delete,
    /// Ignore it, and report that.
    Ignore,
    Apply,
}

/// The operation that asks to wait.
const WAIT: &str = "wait-for-state";

/// Decides for the applier of a class, from metadata and `spec.class`.
pub(super) fn duty(us: Class, metadata: &ObjectMeta, class: &str) -> Duty {
    let responsible = us.is(class);
    let ours = is_ours(us, metadata);
    if metadata.deletion_timestamp.is_some() || !responsible {
        return if ours { Duty::Delete } else { Duty::Nothing };
    }
    if is_held_by_other(us, metadata) || operation(metadata) == WAIT {
        return Duty::Nothing;
    }
    if is_ignored(metadata) { Duty::Ignore } else { Duty::Apply }
}

/// Whether its objects are checked once it is applied. A requested operation does not stop the checks.
pub(super) fn is_checked(us: Class, metadata: &ObjectMeta, class: &str) -> bool {
    metadata.deletion_timestamp.is_none() && us.is(class) && !is_ignored(metadata)
}

/// Whether it has our finalizer.
pub(super) fn is_ours(us: Class, metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().any(|f| f == us.finalizer())
}

/// Whether an applier of another class has not released it yet.
fn is_held_by_other(us: Class, metadata: &ObjectMeta) -> bool {
    let first = metadata.finalizers.iter().find(|f| f.starts_with(names::FINALIZER_PREFIX));
    first.is_some_and(|f| f != us.finalizer())
}

pub(super) fn operation(metadata: &ObjectMeta) -> &str {
    metadata.annotations.get(OPERATION).map_or("", String::as_str)
}

pub(super) fn is_ignored(metadata: &ObjectMeta) -> bool {
    metadata.annotations.get(names::IGNORE).is_some_and(|text| is_true(text))
}

fn status(watched: &ManagedResourceHead, kind: &str) -> Option<ConditionStatus> {
    watched.status.conditions.iter().find(|c| c.kind == kind).map(|c| c.status)
}

fn concerns(us: Class, watched: &ManagedResourceHead) -> bool {
    us.is(&watched.spec.class) || is_ours(us, &watched.metadata)
}

/// Whether the change of a ManagedResource requires applying it. `None` means that it does not exist.
pub(super) fn wants_apply(
    us: Class,
    old: Option<&ManagedResourceHead>,
    new: Option<&ManagedResourceHead>,
) -> bool {
    let Some(new) = new else { return old.is_some_and(|old| concerns(us, old)) };
    if !concerns(us, new) {
        return false;
    }
    let Some(old) = old else { return true };
    let (before, after) = (&old.metadata, &new.metadata);
    let deleting = after.deletion_timestamp.is_some();
    let toggled = is_ignored(before) != is_ignored(after);
    if is_ignored(after) && !deleting && !toggled {
        return false;
    }
    let unhealthy = status(new, names::HEALTHY) == Some(ConditionStatus::False)
        && matches!(status(old, names::HEALTHY), None | Some(ConditionStatus::True));
    toggled
        || before.generation != after.generation
        || before.deletion_timestamp != after.deletion_timestamp
        || matches!(operation(after), "reconcile" | "restore" | "migrate")
        || unhealthy
        || (operation(before) == WAIT && operation(after) != WAIT)
        || (is_held_by_other(us, before) && !is_held_by_other(us, after))
}

/// Whether the change of a ManagedResource requires a health check of its objects.
pub(super) fn wants_check(
    us: Class,
    old: Option<&ManagedResourceHead>,
    new: Option<&ManagedResourceHead>,
) -> bool {
    let Some(new) = new.filter(|new| us.is(&new.spec.class)) else { return false };
    let Some(old) = old else { return true };
    old.spec.class != new.spec.class
        || status(old, names::APPLIED) != status(new, names::APPLIED)
        || (is_ignored(&old.metadata) && !is_ignored(&new.metadata))
}

/// Whether the manifests of a ManagedResource are in this Secret.
pub(super) fn reads_secret(watched: &ManagedResourceHead, secret: &Key) -> bool {
    watched.metadata.namespace == secret.namespace
        && watched.spec.secret_refs.iter().any(|r| r.name == secret.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn watched(change: Value) -> ManagedResourceHead {
        let mut object = json!({"metadata": {"name": "x", "namespace": "garden", "generation": 1},
            "spec": {"class": "seed", "secretRefs": [{"name": "s"}]}});
        merge(&mut object, change);
        view::read(object).unwrap()
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                from.into_iter().for_each(|(k, v)| merge(into.entry(k).or_insert(Value::Null), v));
            }
            (into, from) => *into = from,
        }
    }

    #[test]
    fn texts_are_kept_only_where_they_are_reported() {
        let all = [
            ("garden", "False", "text"),
            ("garden", "True", "text"),
            ("istio-system", "True", "text"),
            ("shoot--a--b", "True", ""),
            ("shoot--a--b", "Progressing", ""),
            // A fault to report.
            ("shoot--a--b", "False", "text"),
            ("shoot--a--b", "Unknown", "text"),
        ];
        for (namespace, status, kept) in all {
            let condition =
                json!({"type": "ResourcesApplied", "status": status, "reason": "text", "message": "text"});
            let watched = watched(json!({"metadata": {"namespace": namespace},
                "status": {"conditions": [condition], "observedGeneration": 3}}));
            let condition = &watched.status.conditions[0];
            let texts = (condition.reason.as_str(), condition.message.as_str());
            assert_eq!(texts, (kept, kept), "{namespace} {status}");
            assert_eq!((condition.status.as_str(), watched.status.observed_generation), (status, 3));
        }
        let progressing = |status: &str| ManagedResourceHeadCondition {
            kind: names::PROGRESSING.to_owned(),
            status: view::read(json!(status)).unwrap(),
            ..ManagedResourceHeadCondition::default()
        };
        assert!(progressing("True").is_fault() && !progressing("False").is_fault());
    }

    #[test]
    fn problems_of_an_applier() {
        let table = [
            ("False", "ApplyFailed", Some("why")),
            ("False", "DecodingFailed", Some("why")),
            ("Progressing", "ApplyFailed", Some("why")),
            ("Progressing", "ApplyProgressing", None),
            ("True", "ApplySucceeded", None),
            ("Unknown", "X", None),
        ];
        for (status, reason, expected) in table {
            let condition =
                json!({"type": "ResourcesApplied", "status": status, "reason": reason, "message": "why"});
            let watched = watched(json!({"status": {"conditions": [condition]}}));
            assert_eq!(watched.apply_problem(), expected, "{status} {reason}");
        }
        assert_eq!(watched(json!({})).apply_problem(), None);
    }

    #[test]
    fn a_managed_resource_that_is_too_large_still_has_an_owner() {
        let head =
            json!({"metadata": {"name": "x", "generation": 3}, "spec": {"class": "seed", "secretRefs": [1]}});
        let watched = <ManagedResourceHead as informer::PartialObject>::of_head(&head).unwrap();
        assert!(wants_apply(Class::Seed, None, Some(&watched)) && watched.metadata.generation == 3);
        let foreign = json!({"metadata": {"name": "x"}, "spec": {"secretRefs": null}});
        let watched = <ManagedResourceHead as informer::PartialObject>::of_head(&foreign).unwrap();
        assert!(!wants_apply(Class::Seed, None, Some(&watched)));
        assert_eq!(<ManagedResourceHead as informer::PartialObject>::of_head(&Value::Null), None);
    }

    const OURS: &str = "resources.gardener.cloud/gardener-resource-manager-seed";
    const DEFAULT: &str = "resources.gardener.cloud/gardener-resource-manager";
    const OTHER: &str = "resources.gardener.cloud/gardener-resource-manager-other";

    #[test]
    fn duties() {
        let deleting = "2026-01-01T00:00:00Z";
        let ignore = json!({"resources.gardener.cloud/ignore": "true"});
        let table = [
            ("new", json!({}), Duty::Apply),
            ("known", json!({"metadata": {"finalizers": ["x", OURS]}}), Duty::Apply),
            ("of a shoot", json!({"spec": {"class": null}}), Duty::Nothing),
            ("of another class", json!({"spec": {"class": "other"}}), Duty::Nothing),
            (
                "class changed away",
                json!({"spec": {"class": "other"}, "metadata": {"finalizers": [OURS]}}),
                Duty::Delete,
            ),
            ("class changed to us", json!({"metadata": {"finalizers": [OTHER]}}), Duty::Nothing),
            ("from the default class", json!({"metadata": {"finalizers": [DEFAULT]}}), Duty::Nothing),
            ("ours first", json!({"metadata": {"finalizers": [OURS, OTHER]}}), Duty::Apply),
            ("ours second", json!({"metadata": {"finalizers": [OTHER, OURS]}}), Duty::Nothing),
            (
                "deleting",
                json!({"metadata": {"finalizers": [OURS], "deletionTimestamp": deleting}}),
                Duty::Delete,
            ),
            (
                "deleting, done",
                json!({"metadata": {"finalizers": ["x"], "deletionTimestamp": deleting}}),
                Duty::Nothing,
            ),
            ("ignored", json!({"metadata": {"annotations": ignore}}), Duty::Ignore),
            (
                "ignored and deleting",
                json!({"metadata": {"annotations": ignore, "finalizers": [OURS], "deletionTimestamp": deleting}}),
                Duty::Delete,
            ),
            (
                "waiting",
                json!({"metadata": {"annotations": {"gardener.cloud/operation": "wait-for-state"}}}),
                Duty::Nothing,
            ),
        ];
        for (name, change, expected) in table {
            let watched = watched(change);
            assert_eq!(duty(Class::Seed, &watched.metadata, &watched.spec.class), expected, "{name}");
        }
    }

    #[test]
    fn what_is_checked() {
        let annotated = |name: &str, value: &str| json!({"metadata": {"annotations": {name: value}}});
        let table = [
            ("applied", json!({}), true),
            ("waiting", annotated("gardener.cloud/operation", "wait-for-state"), true),
            ("handed over", json!({"metadata": {"finalizers": [OTHER]}}), true),
            ("ignored", annotated("resources.gardener.cloud/ignore", "true"), false),
            ("of another class", json!({"spec": {"class": "other"}}), false),
            ("deleting", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false),
        ];
        for (name, change, expected) in table {
            let watched = watched(change);
            assert_eq!(is_checked(Class::Seed, &watched.metadata, &watched.spec.class), expected, "{name}");
        }
    }

    fn condition(kind: &str, status: &str) -> Value {
        json!({"status": {"conditions": [{"type": kind, "status": status}]}})
    }

    #[test]
    fn reasons_to_apply() {
        let ignore = json!({"metadata": {"annotations": {"resources.gardener.cloud/ignore": "true"}}});
        let mut ignored_and_new = ignore.clone();
        ignored_and_new["metadata"]["generation"] = json!(2);
        let operation =
            |value: &str| json!({"metadata": {"annotations": {"gardener.cloud/operation": value}}});
        let healthy = |status: &str| condition("ResourcesHealthy", status);
        let table = [
            ("nothing", json!({}), json!({}), false),
            ("generation", json!({}), json!({"metadata": {"generation": 2}}), true),
            ("labels", json!({}), json!({"metadata": {"labels": {"a": "b"}}}), false),
            ("deletion", json!({}), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), true),
            ("reconcile", json!({}), operation("reconcile"), true),
            ("wait", json!({}), operation("wait-for-state"), false),
            ("no longer wait", operation("wait-for-state"), json!({}), true),
            ("unhealthy", healthy("True"), healthy("False"), true),
            ("unhealthy at once", json!({}), healthy("False"), true),
            ("still unhealthy", healthy("False"), healthy("False"), false),
            ("unknown to unhealthy", healthy("Unknown"), healthy("False"), false),
            ("healthy", healthy("False"), healthy("True"), false),
            ("ignored from now on", json!({}), ignore.clone(), true),
            ("ignored before", ignore.clone(), ignored_and_new, false),
            ("no longer ignored", ignore.clone(), json!({}), true),
            ("handed over", json!({"metadata": {"finalizers": [OTHER]}}), json!({}), true),
            ("not ours", json!({}), json!({"spec": {"class": "x"}, "metadata": {"generation": 2}}), false),
            (
                "ours no longer",
                json!({}),
                json!({"spec": {"class": "x"}, "metadata": {"generation": 2, "finalizers": [OURS]}}),
                true,
            ),
        ];
        for (name, old, new, expected) in table {
            assert_eq!(
                wants_apply(Class::Seed, Some(&watched(old)), Some(&watched(new))),
                expected,
                "{name}"
            );
        }
        assert!(wants_apply(Class::Seed, None, Some(&watched(json!({})))));
        assert!(wants_apply(Class::Seed, None, Some(&watched(ignore))));
        assert!(wants_apply(Class::Seed, Some(&watched(json!({}))), None));
        assert!(!wants_apply(Class::Seed, None, Some(&watched(json!({"spec": {"class": ""}})))));
    }

    #[test]
    fn reasons_to_check() {
        let ignore = json!({"metadata": {"annotations": {"resources.gardener.cloud/ignore": "true"}}});
        let applied = |status: &str| condition("ResourcesApplied", status);
        let table = [
            ("nothing", applied("True"), applied("True"), false),
            ("applied", applied("Progressing"), applied("True"), true),
            ("no longer ignored", ignore.clone(), json!({}), true),
            ("ignored", json!({}), ignore, false),
            ("class", json!({"spec": {"class": "x"}}), json!({}), true),
            ("not ours", applied("False"), json!({"spec": {"class": "x"}}), false),
        ];
        for (name, old, new, expected) in table {
            assert_eq!(
                wants_check(Class::Seed, Some(&watched(old)), Some(&watched(new))),
                expected,
                "{name}"
            );
        }
        assert!(wants_check(Class::Seed, None, Some(&watched(json!({})))));
        assert!(!wants_check(Class::Seed, Some(&watched(json!({}))), None));
    }

    #[test]
    fn secrets_belong_to_managed_resources_of_their_namespace() {
        let ours = watched(json!({}));
        assert!(reads_secret(&ours, &Key::new("garden", "s")));
        assert!(!reads_secret(&ours, &Key::new("other", "s")));
        assert!(!reads_secret(&ours, &Key::new("garden", "t")));
    }
}
