//! The problems that the watched objects report. The decision about one object is pure.

use std::time::Duration;

use crate::api::condition::{ConditionStatus, urgency};
use crate::api::gardener::{ControllerInstallation, LastOperation, Seed, ShootHead};
use crate::api::meta::{Key, ObjectMeta};
use crate::api::resources::INSTALLATION_LABEL;
use crate::base::clock::Timestamp;
use crate::base::cut::cut;
use crate::extension::changed::ExtensionHead;
use crate::format::time::parse_rfc3339;
use crate::limits;
use crate::resources::{ManagedResourceHead, ManagedResourceHeadCondition, names};
use crate::runtime::source::WatchSource;

use super::verdict::{AgentProblem, ProblemPlace};

/// An object younger than this has conditions that are bad only because it is new.
const YOUNG: Duration = Duration::from_secs(300);
/// A condition that changed less than this time ago may change back.
const PATIENCE: Duration = Duration::from_secs(60);

/// The stores of the garden side, while it runs.
#[derive(Clone, Debug)]
pub(in crate::app) struct Stores {
    pub(in crate::app) seed: Key,
    pub(in crate::app) seeds: WatchSource<Seed>,
    pub(in crate::app) installations: WatchSource<ControllerInstallation>,
    pub(in crate::app) shoots: WatchSource<ShootHead>,
    pub(in crate::app) buckets: WatchSource<ExtensionHead>,
}

impl Stores {
    /// Whether each of them has received a list.
    pub(super) fn are_synced(&self) -> bool {
        let Self { seed: _, seeds, installations, shoots, buckets } = self;
        seeds.store().is_synced()
            && installations.store().is_synced()
            && shoots.store().is_synced()
            && buckets.store().is_synced()
    }
}

pub(super) struct Check<'a> {
    pub(super) kind: &'a str,
    pub(super) status: ConditionStatus,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    pub(super) changed: Timestamp,
}

impl<'a> From<&'a crate::api::condition::Condition> for Check<'a> {
    fn from(condition: &'a crate::api::condition::Condition) -> Self {
        Self {
            kind: &condition.kind,
            status: condition.status,
            reason: &condition.reason,
            message: &condition.message,
            changed: condition.last_transition_time,
        }
    }
}

/// The state that an object reports.
pub(super) struct ObjectState<'a> {
    pub(super) kind: &'static str,
    pub(super) meta: &'a ObjectMeta,
    pub(super) operation: Option<&'a LastOperation>,
    /// The last errors of the operation, if the object has them.
    pub(super) errors: Vec<&'a str>,
    pub(super) conditions: Vec<Check<'a>>,
}

/// What a condition means.
#[derive(Debug, PartialEq, Eq)]
enum Reading {
    Fine,
    /// A problem if it persists.
    Bad,
    Final,
}

fn read(kind: &str, check: &Check<'_>) -> Reading {
    let is_bad = matches!(check.status, ConditionStatus::False | ConditionStatus::Unknown);
    match (kind, check.kind) {
        ("ControllerInstallation", "Valid") if check.status == ConditionStatus::False => Reading::Final,
        ("ControllerInstallation", "Installed") if check.reason == "InstallationFailed" => Reading::Final,
        ("ControllerInstallation", "Progressing" | "Required") => Reading::Fine,
        ("ManagedResource", names::APPLIED) if check.status == ConditionStatus::False => Reading::Final,
        ("ManagedResource", names::PROGRESSING) => Reading::Fine,
        // True means: an operator has stopped the reconciliation of all Shoots.
        ("Seed", "EmergencyStopShootReconciliations") if check.status == ConditionStatus::True => {
            Reading::Final
        }
        ("Seed", "EmergencyStopShootReconciliations") => Reading::Fine,
        _ if is_bad => Reading::Bad,
        _ => Reading::Fine,
    }
}

/// The time of an operation's last update.
pub(super) fn written(operation: &LastOperation) -> Option<Timestamp> {
    parse_rfc3339(&operation.last_update_time).ok()
}

/// The problem of an object, if it has one.
pub(super) fn judge(said: &ObjectState<'_>, now: Timestamp) -> Option<AgentProblem> {
    let problem = |error: String, since| {
        let place = ProblemPlace::Object(said.kind, said.meta.key());
        let error = cut(error, limits::FAILED_TEXT_BYTES_MAX);
        Some(AgentProblem { place, error, since, remedy: String::new() })
    };
    let state = said.operation.map_or("", |operation| operation.state.as_str());
    let has_failed = ["Error", "Failed", "Aborted"].contains(&state);
    if let Some(operation) = said.operation.filter(|_| has_failed || !said.errors.is_empty()) {
        let words = match &said.errors[..] {
            [] => operation.description.clone(),
            errors => errors.join("; "),
        };
        let error = format!("{} {}: {words}", operation.kind, state);
        return problem(error, written(operation));
    }
    let is_made_or_unmade = said.meta.deletion_timestamp.is_some()
        || said.operation.is_some_and(|operation| {
            operation.kind != "Reconcile" && ["Processing", "Pending"].contains(&state)
        });
    let is_young = said.meta.creation_timestamp.is_some_and(|made| now < made.plus(YOUNG));
    // Whoever writes a time of the future has a wrong clock: how old the condition is, nobody knows.
    let is_old = |at: Timestamp| now >= at.plus(PATIENCE) || at > now.plus(PATIENCE);
    let is_problem = |check: &&Check<'_>| match read(said.kind, check) {
        Reading::Fine => false,
        Reading::Final => true,
        Reading::Bad => !is_made_or_unmade && !is_young && is_old(check.changed),
    };
    let mut bad: Vec<&Check<'_>> = said.conditions.iter().filter(is_problem).collect();
    bad.sort_by_key(|check| urgency(check.kind, check.status.as_str()));
    let since = bad.iter().map(|check| check.changed).min()?;
    let words = |check: &&Check<'_>| format!("{} is {}: {}", check.kind, check.status, check.message);
    let error = bad.iter().map(words).collect::<Vec<_>>().join("; ");
    problem(error, (since.unix() > 0).then_some(since))
}

/// Leaves out conditions that only repeat other problems.
fn of_seed(seed: &Seed, others: &[AgentProblem], now: Timestamp) -> Option<AgentProblem> {
    let repeats = |check: &Check<'_>| {
        let kind = match check.kind {
            "ExtensionsReady" => "ControllerInstallation",
            "BackupBucketsReady" => "BackupBucket",
            "SeedSystemComponentsHealthy" => "ManagedResource",
            _ => return false,
        };
        others.iter().any(|other| matches!(other.place, ProblemPlace::Object(of, _) if of == kind))
    };
    let said = ObjectState {
        kind: "Seed",
        meta: &seed.metadata,
        operation: seed.status.last_operation.as_ref(),
        errors: Vec::new(),
        conditions: seed.status.conditions.iter().map(Check::from).filter(|check| !repeats(check)).collect(),
    };
    judge(&said, now)
}

pub(super) fn of_installation(installation: &ControllerInstallation, now: Timestamp) -> Option<AgentProblem> {
    let said = ObjectState {
        kind: "ControllerInstallation",
        meta: &installation.metadata,
        operation: None,
        errors: Vec::new(),
        conditions: installation.status.conditions.iter().map(Check::from).collect(),
    };
    judge(&said, now)
}

pub(super) fn of_shoot(shoot: &ShootHead, now: Timestamp) -> Option<AgentProblem> {
    let status = &shoot.status;
    let said = ObjectState {
        kind: "Shoot",
        meta: &shoot.metadata,
        operation: status.last_operation.as_ref(),
        errors: status.last_errors.iter().map(|error| error.description.as_str()).collect(),
        conditions: status.conditions.iter().map(Check::from).collect(),
    };
    judge(&said, now)
}

fn of_bucket(bucket: &ExtensionHead, now: Timestamp) -> Option<AgentProblem> {
    let said = ObjectState {
        kind: "BackupBucket",
        meta: &bucket.metadata,
        operation: bucket.status.last_operation.as_ref(),
        errors: Vec::new(),
        conditions: Vec::new(),
    };
    judge(&said, now)
}

/// An extension's ManagedResource is a part of its ControllerInstallation.
fn of_managed(managed: &ManagedResourceHead, now: Timestamp) -> Option<AgentProblem> {
    if managed.metadata.labels.contains_key(INSTALLATION_LABEL) {
        return None;
    }
    fn check(it: &ManagedResourceHeadCondition) -> Check<'_> {
        Check {
            kind: &it.kind,
            status: it.status,
            reason: &it.reason,
            message: &it.message,
            changed: it.changed,
        }
    }
    let said = ObjectState {
        kind: "ManagedResource",
        meta: &managed.metadata,
        operation: None,
        errors: Vec::new(),
        conditions: managed.status.conditions.iter().map(check).collect(),
    };
    judge(&said, now)
}

/// The problems of all objects. An object comes before the objects that depend on it.
pub(super) fn problems(
    stores: Option<&Stores>,
    managed: Option<&WatchSource<ManagedResourceHead>>,
    now: Timestamp,
) -> Vec<AgentProblem> {
    let mut found = Vec::new();
    if let Some(stores) = stores {
        let buckets = stores.buckets.store().values();
        found.extend(buckets.iter().filter_map(|bucket| of_bucket(bucket, now)));
        let installations = stores.installations.store().values();
        found.extend(installations.iter().filter_map(|it| of_installation(it, now)));
    }
    if let Some(managed) = managed {
        found.extend(managed.store().values().iter().filter_map(|managed| of_managed(managed, now)));
    }
    if let Some(stores) = stores {
        if let Some(seed) = stores.seeds.store().get(&stores.seed) {
            found.splice(0..0, of_seed(&seed, &found, now));
        }
        found.extend(stores.shoots.store().values().iter().filter_map(|shoot| of_shoot(shoot, now)));
    }
    found
}

/// How many percent of the Seed are done while the agent creates it. `None` before the first list.
pub(super) fn creating(stores: &Stores) -> Option<u32> {
    let seeds = stores.seeds.store();
    let seed = seeds.get(&stores.seed);
    percent(seed.as_deref(), seeds.is_synced())
}

fn percent(seed: Option<&Seed>, is_synced: bool) -> Option<u32> {
    match seed.map(|seed| seed.status.last_operation.as_ref()) {
        _ if !is_synced => None,
        None | Some(None) => Some(0),
        Some(Some(last)) if last.kind == "Create" && last.state != "Succeeded" => Some(last.progress),
        Some(Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::format::time::rfc3339;
    use crate::format::view;

    const NOW: Timestamp = Timestamp::from_unix(1_767_600_000);

    fn at(age: u64) -> String {
        rfc3339(NOW.minus(Duration::from_secs(age)))
    }

    fn condition(kind: &str, status: &str, reason: &str, age: u64) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": "why", "lastTransitionTime": at(age),
            "lastUpdateTime": at(age)})
    }

    fn operation(kind: &str, state: &str, age: u64) -> Value {
        json!({"type": kind, "state": state, "description": "what", "progress": 10, "lastUpdateTime": at(age)})
    }

    fn told(problem: Option<AgentProblem>) -> Option<(String, Option<u64>)> {
        problem.map(|p| (p.error, p.since.map(|since| NOW.since(since).as_secs())))
    }

    #[test]
    fn a_shoot_has_a_problem_when_it_failed_or_is_ill_for_a_while() {
        let shoot = |last: Value, errors: Value, age: u64, conditions: Value| {
            let meta = json!({"name": "s1", "namespace": "garden-p", "creationTimestamp": at(age)});
            let status = json!({"lastOperation": last, "lastErrors": errors, "conditions": conditions});
            let shoot: ShootHead = view::read(json!({"metadata": meta, "status": status})).unwrap();
            told(of_shoot(&shoot, NOW))
        };
        let ill = |age| json!([condition("APIServerAvailable", "False", "R", age)]);
        let (good, none) = (operation("Reconcile", "Succeeded", 9), Value::Null);
        let bad = |error: &str, age| Some((error.to_owned(), Some(age)));
        let table = [
            ("well", shoot(good.clone(), none.clone(), 900, json!([])), None),
            ("new", shoot(none.clone(), none.clone(), 9, none.clone()), None),
            ("in progress", shoot(operation("Create", "Processing", 3), none.clone(), 900, ill(800)), None),
            (
                "failed",
                shoot(operation("Create", "Error", 8), none.clone(), 9, none.clone()),
                bad("Create Error: what", 8),
            ),
            (
                "tried again",
                shoot(
                    operation("Create", "Processing", 2),
                    json!([{"description": "e1"}, {"description": "e2"}]),
                    9,
                    none.clone(),
                ),
                bad("Create Processing: e1; e2", 2),
            ),
            (
                "ill",
                shoot(good.clone(), none.clone(), 900, ill(60)),
                bad("APIServerAvailable is False: why", 60),
            ),
            ("ill for a moment", shoot(good.clone(), none.clone(), 900, ill(59)), None),
            (
                "ill, by a clock that is ahead",
                {
                    let mut ill = ill(0);
                    ill[0]["lastTransitionTime"] = json!(rfc3339(NOW.plus(Duration::from_secs(3_600))));
                    shoot(good.clone(), none.clone(), 900, ill)
                },
                bad("APIServerAvailable is False: why", 0),
            ),
            ("ill and young", shoot(good.clone(), none.clone(), 299, ill(200)), None),
            (
                "reconciled and ill",
                shoot(operation("Reconcile", "Processing", 1), none.clone(), 900, ill(100)),
                bad("APIServerAvailable is False: why", 100),
            ),
            (
                "perhaps ill soon",
                shoot(good, none, 900, json!([condition("ControlPlaneHealthy", "Progressing", "R", 100)])),
                None,
            ),
        ];
        for (name, found, expected) in table {
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn an_installation_that_failed_is_a_problem_at_once() {
        let installation = |conditions: Value| {
            let meta = json!({"name": "i", "creationTimestamp": at(1)});
            let it = json!({"metadata": meta, "status": {"conditions": conditions}});
            let it: ControllerInstallation = view::read(it).unwrap();
            told(of_installation(&it, NOW))
        };
        let table = [
            (json!([condition("Installed", "False", "InstallationPending", 1)]), None),
            (
                json!([condition("Installed", "False", "InstallationFailed", 1)]),
                Some(("Installed is False: why".to_owned(), Some(1))),
            ),
            (
                json!([condition("Valid", "False", "R", 2), condition("Required", "False", "R", 2)]),
                Some(("Valid is False: why".to_owned(), Some(2))),
            ),
            (
                json!([condition("Required", "False", "R", 900), condition("Progressing", "True", "R", 900)]),
                None,
            ),
        ];
        for (conditions, expected) in table {
            assert_eq!(installation(conditions.clone()), expected, "{conditions}");
        }
    }

    #[test]
    fn the_reason_comes_before_what_it_leaves_unknown() {
        let conditions = [("Installed", "Unknown"), ("Healthy", "False"), ("Valid", "False")];
        let conditions = conditions.map(|(kind, status)| condition(kind, status, "R", 900));
        let meta = json!({"name": "i", "creationTimestamp": at(900)});
        let it = json!({"metadata": meta, "status": {"conditions": conditions}});
        let error = of_installation(&view::read(it).unwrap(), NOW).unwrap().error;
        assert_eq!(error, "Valid is False: why; Healthy is False: why; Installed is Unknown: why");
    }

    #[test]
    fn a_seed_is_created_once() {
        let seed = |last: Value| {
            let it = json!({"metadata": {"name": "x"}, "status": {"lastOperation": last}});
            view::read::<Seed>(it).unwrap()
        };
        let create = |state| seed(operation("Create", state, 1));
        let table = [
            (None, false, None),
            (None, true, Some(0)),
            (Some(seed(Value::Null)), true, Some(0)),
            (Some(seed(Value::Null)), false, None),
            (Some(create("Processing")), true, Some(10)),
            (Some(create("Processing")), false, None),
            (Some(create("Succeeded")), true, None),
            (Some(seed(operation("Reconcile", "Processing", 1))), true, None),
        ];
        for (seed, is_synced, expected) in table {
            assert_eq!(percent(seed.as_ref(), is_synced), expected, "{seed:?} {is_synced}");
        }
    }

    #[test]
    fn an_error_has_a_maximum() {
        let last = json!({"type": "Create", "state": "Error", "description": "x".repeat(100_000)});
        let shoot = json!({"metadata": {"name": "s1"}, "status": {"lastOperation": last}});
        let error = told(of_shoot(&view::read(shoot).unwrap(), NOW)).unwrap().0;
        assert!(error.starts_with("Create Error: xxx") && error.ends_with("x\u{2026}"), "{error}");
        assert!(error.len() <= limits::FAILED_TEXT_BYTES_MAX + 3, "{}", error.len());
    }

    #[test]
    fn a_stop_of_all_reconciliations_is_a_problem_of_the_seed() {
        let seed = |status: &str| {
            let conditions = json!([condition("EmergencyStopShootReconciliations", status, "R", 5)]);
            let it = json!({"metadata": {"name": "x"}, "status": {"conditions": conditions}});
            told(of_seed(&view::read(it).unwrap(), &[], NOW))
        };
        assert_eq!(seed("False"), None);
        assert_eq!(seed("True").unwrap().1, Some(5));
    }

    #[test]
    fn the_seed_does_not_repeat_what_its_installations_say() {
        let conditions = json!([condition("ExtensionsReady", "False", "R", 900)]);
        let it = json!({"metadata": {"name": "x"}, "status": {"conditions": conditions}});
        let seed: Seed = view::read(it).unwrap();
        let other = |kind| AgentProblem {
            place: ProblemPlace::Object(kind, Key::cluster("i")),
            error: String::new(),
            since: None,
            remedy: String::new(),
        };
        assert!(of_seed(&seed, &[other("Shoot")], NOW).is_some());
        assert_eq!(of_seed(&seed, &[other("ControllerInstallation")], NOW), None);
    }

    #[test]
    fn managed_resources_of_extensions_are_left_to_their_installations() {
        let managed = |label: &str, kind: &str, age: u64| {
            let meta = json!({"name": "m", "namespace": "garden", "labels": {label: "x"},
                "creationTimestamp": at(900)});
            let status = json!({"conditions": [condition(kind, "False", "R", age)]});
            let it = view::read(json!({"metadata": meta, "spec": {}, "status": status})).unwrap();
            told(of_managed(&it, NOW)).map(|told| told.1)
        };
        assert_eq!(managed(INSTALLATION_LABEL, names::APPLIED, 900), None);
        assert_eq!(managed("other", names::APPLIED, 1), Some(Some(1)));
        assert_eq!(managed("other", names::HEALTHY, 1), None);
        assert_eq!(managed("other", names::HEALTHY, 61), Some(Some(61)));
        assert_eq!(managed("other", names::PROGRESSING, 900), None);
    }
}
