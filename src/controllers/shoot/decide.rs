//! Decides what to do with a Shoot, and when. Pure.

use std::time::Duration;

use serde_json::Value;

use crate::api::condition::{self, Condition, ConditionStatus, urgency};
use crate::api::gardener::OPERATION;
use crate::api::meta::{annotation, is_true, text};
use crate::base::clock::Timestamp;
use crate::base::sorted::SortedMap;
use crate::config::settings::ShootController;
use crate::format::duration::parse_nanos;
use crate::format::time::parse_rfc3339;
use crate::format::view;
use crate::operation::Operation;
use crate::shoot::window::DailyWindow;
use crate::shoot::{ShootSeeds, has_foreign_workers};

use super::rotation::is_completion_paused;

/// The finalizer that protects a Shoot from the first operation until nothing of it is left.
pub(crate) const FINALIZER: &str = "gardener";
/// When to check a blocked operation again.
pub(crate) const BLOCKED_AGAIN: Duration = Duration::from_secs(15);
/// When to check again whether a Shoot may leave this seed. The garden looks at the other seed this often.
const CONFIRMED_AGAIN: Duration = Duration::from_secs(5);
/// Why a Shoot with workers of another kind is not touched.
pub(crate) const HAS_WORKERS: &str = "This gardenlet does not serve Shoots with workers of this type of infrastructure, and leaves everything as it \
    is. If the nodes are hosts of the site, add the type to edge.hosts.types. Otherwise let a gardenlet of Gardener serve the Shoot.";

const CONFIRM_FORCE: &str = "confirmation.gardener.cloud/force-deletion";
/// The constraint with which gardener-controller-manager says whether the other seed is ready.
const READY_FOR_MIGRATION: &str = "ReadyForMigration";
const EMERGENCY_STOP: &str = "shoot.gardener.cloud/emergency-stop-reconciliations";
pub(super) const IGNORE: &str = "shoot.gardener.cloud/ignore";
const SYNC_PERIOD: &str = "shoot.gardener.cloud/sync-period";
/// No window is longer: an operation that is older than this happened in another window.
const WINDOW_MAX: Duration = Duration::from_secs(6 * 3_600);
/// Shoots are not reconciled while the Seed lacks one of these conditions.
const SEED_CONDITIONS: [&str; 2] = ["GardenletReady", "SeedSystemComponentsHealthy"];

/// The decision about a Shoot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ShootDecision {
    /// Nothing, until it changes.
    Nothing,
    /// Run this operation now.
    Now(Operation),
    /// Nothing now. A Shoot without a last operation gets a pending one ([`super::status::pending`]).
    Later {
        /// When to decide again; `None` means when the Shoot changes.
        after: Option<Duration>,
        /// Whether its `Cluster` is kept in sync.
        is_synced: bool,
        why: WaitReason,
    },
    /// Something else must change first. The last operation reports it ([`super::status::blocked`]).
    Blocked {
        /// A text for people.
        why: String,
        /// When to decide again.
        after: Duration,
    },
}

/// Why a Shoot is not reconciled now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitReason {
    /// The Seed's annotation stops all Shoots.
    Stopped,
    /// Its last operation failed permanently.
    Failed,
    /// Its annotation says that it is ignored.
    Ignored,
    /// Its next maintenance time window has not started.
    UpToDate,
    /// The agent has just started, and does not start with all Shoots at once.
    Listed,
}

impl WaitReason {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "the Seed's annotation stops all reconciliations",
            Self::Failed => "its last operation failed permanently",
            Self::Ignored => "its annotation says that it is ignored",
            Self::UpToDate => "it is up to date and waits for its next maintenance time window",
            Self::Listed => {
                "it is up to date, and the agent spreads the Shoots of a seed over time after its start"
            }
        }
    }

    /// What an operator can do to have it reconciled.
    pub(crate) const fn remedy(self) -> &'static str {
        match self {
            Self::Stopped => {
                "remove annotation shoot.gardener.cloud/emergency-stop-reconciliations from the Seed"
            }
            Self::Failed => {
                "fix the problems in its last errors, and annotate it with gardener.cloud/operation=retry"
            }
            Self::Ignored => "remove annotation shoot.gardener.cloud/ignore from it",
            Self::UpToDate | Self::Listed => {
                "annotate it with gardener.cloud/operation=reconcile to have it reconciled at once"
            }
        }
    }
}

/// The input of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShootDecisionInput<'a> {
    pub(crate) shoot: &'a Value,
    /// The Seed that this agent serves.
    pub(crate) seed: &'a Value,
    /// The agent's own `status.gardener`: `id`, `name` and `version`.
    pub(crate) agent: &'a Value,
    /// Field `controllers.shoot` of the configuration.
    pub(crate) settings: &'a ShootController,
    pub(crate) now: Timestamp,
    /// The agent has just listed the Shoot, and this is its first decision about it.
    pub(crate) is_listed: bool,
    /// A random number from 0 to 1: the position within a window.
    pub(crate) share: f64,
    /// The types of infrastructure whose nodes are hosts of the site (`edge.hosts.types`).
    pub(crate) host_types: &'a [String],
    /// Why a Shoot that is bound to another seed cannot leave this one, because of its data.
    pub(crate) obstacle: Option<&'a str>,
}

/// Whether it is being deleted.
pub(crate) fn is_deleting(shoot: &Value) -> bool {
    !text(&shoot["metadata"]["deletionTimestamp"]).is_empty()
}

/// Whether a deletion of it is forced.
pub(super) fn is_forced(annotations: &SortedMap<String, String>) -> bool {
    annotations.get(CONFIRM_FORCE).is_some_and(|value| is_true(value))
}

/// The required operation, whether or not it is due.
pub(crate) fn operation(shoot: &Value) -> Operation {
    let last = &shoot["status"]["lastOperation"];
    let (kind, state) = (text(&last["type"]), text(&last["state"]));
    let asked = |what: &str| annotation(shoot, OPERATION).split(';').any(|value| value == what);
    if is_deleting(shoot) {
        let is_forced = is_true(annotation(shoot, CONFIRM_FORCE));
        return if is_forced { Operation::ForceDelete } else { Operation::Delete };
    }
    if ShootSeeds::of(shoot).is_leaving() {
        return Operation::Migrate;
    }
    match (kind, state) {
        // Also if it was bound to this seed again before it had left: then its data is still here, or in the bucket.
        ("Migrate", _) => Operation::Restore,
        _ if asked("restore") => Operation::Restore,
        _ if last.is_null() => Operation::Create,
        (_, "Succeeded") => Operation::Reconcile,
        // Without a type, only its start was postponed.
        ("Create" | "", _) => Operation::Create,
        ("Restore", _) => Operation::Restore,
        _ => Operation::Reconcile,
    }
}

/// Decides what to do with the Shoot now.
pub(crate) fn decide(input: &ShootDecisionInput<'_>) -> ShootDecision {
    let shoot = input.shoot;
    let seed = ShootSeeds::of(shoot).operates();
    let is_ours = !seed.is_empty() && input.seed["metadata"]["name"] == seed;
    if !is_ours || is_deleting(shoot) && !has_finalizer(shoot) {
        return ShootDecision::Nothing;
    }
    if has_foreign_workers(shoot, input.host_types) {
        return ShootDecision::Blocked { why: HAS_WORKERS.to_owned(), after: BLOCKED_AGAIN };
    }
    let operation = operation(shoot);
    if let Some(why) = input.not_now(operation) {
        // Extensions still handle a Shoot that is not reconciled, and must see its owner's changes.
        let is_synced = !is_moving(operation) && input.is_left_alone().is_some();
        return ShootDecision::Later { after: input.again_after(), is_synced, why };
    }
    if let Some(why) = seed_problem(input.seed, input.agent) {
        let why = format!("Shoot cannot be reconciled on seed: {why}");
        return ShootDecision::Blocked { why, after: BLOCKED_AGAIN };
    }
    if let Some(why) = input.obstacle.filter(|_| operation == Operation::Migrate) {
        return ShootDecision::Blocked { why: why.to_owned(), after: BLOCKED_AGAIN };
    }
    if let Some(why) = migration_problem(shoot).filter(|_| operation == Operation::Migrate) {
        return ShootDecision::Blocked { why, after: CONFIRMED_AGAIN };
    }
    match input.listed_after() {
        after if input.is_listed && !after.is_zero() => {
            ShootDecision::Later { after: Some(after), is_synced: false, why: WaitReason::Listed }
        }
        _ => ShootDecision::Now(operation),
    }
}

fn has_finalizer(shoot: &Value) -> bool {
    shoot["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| one == FINALIZER))
}

impl ShootDecisionInput<'_> {
    /// How long to wait before the first decision about a listed Shoot, so that the Shoots of a seed do not all start
    /// at once when the agent starts within their windows.
    fn listed_after(&self) -> Duration {
        let is_free = self.is_left_alone().is_some()
            || operation(self.shoot) != Operation::Reconcile
            || !self.is_up_to_date()
            || !self.is_confined();
        let window = self.window();
        match is_free {
            true => Duration::ZERO,
            false if self.is_done(window) => window.until_next(self.now, self.share),
            false => window.until_open(self.now, self.share),
        }
    }

    /// When to decide again after an operation succeeded or was skipped.
    pub(crate) fn again_after(&self) -> Option<Duration> {
        match self.is_left_alone() {
            Some(_) => None,
            None if self.has_arrived_halfway() => Some(Duration::ZERO),
            None if self.is_confined() => Some(self.window().until_next(self.now, self.share)),
            None => Some(self.sync_period()),
        }
    }

    /// Why the operation does not start now.
    fn not_now(&self, operation: Operation) -> Option<WaitReason> {
        if annotation(self.seed, EMERGENCY_STOP) == "true" {
            return Some(WaitReason::Stopped);
        }
        if let Some(why) = self.is_left_alone() {
            return Some(why);
        }
        let window = self.window();
        let is_free = operation != Operation::Reconcile
            || !self.is_up_to_date()
            || !self.is_confined()
            || window.contains(self.now) && !self.is_done(window);
        (!is_free).then_some(WaitReason::UpToDate)
    }

    /// Why it is not reconciled until somebody changes it.
    fn is_left_alone(&self) -> Option<WaitReason> {
        let status = &self.shoot["status"];
        if status["lastOperation"]["state"] == "Failed"
            && self.is_observed()
            && status["gardener"]["version"] == self.agent["version"]
        {
            return Some(WaitReason::Failed);
        }
        (self.obeys_annotations() && is_true(annotation(self.shoot, IGNORE))).then_some(WaitReason::Ignored)
    }

    /// Whether the Shoot's owner may choose how often it is reconciled.
    fn obeys_annotations(&self) -> bool {
        self.settings.respect_sync_period_overwrite || self.shoot["metadata"]["namespace"] == "garden"
    }

    fn is_observed(&self) -> bool {
        generation(&self.shoot["metadata"]["generation"])
            == generation(&self.shoot["status"]["observedGeneration"])
    }

    fn is_up_to_date(&self) -> bool {
        let is_done = self.shoot["status"]["lastOperation"]["state"] == "Succeeded";
        self.is_observed() && is_done && !self.has_arrived_halfway()
    }

    /// A restored Shoot is awake, also if it is to be hibernated. If it has nodes, the old CAs are still trusted, also if their
    /// rotation is being completed.
    fn has_arrived_halfway(&self) -> bool {
        let status = &self.shoot["status"];
        let is_asleep = status["hibernated"] == true;
        let wants_sleep = self.shoot["spec"]["hibernation"]["enabled"] == true;
        let has_more_to_do = wants_sleep && !is_asleep || is_completion_paused(self.shoot);
        status["lastOperation"]["type"] == "Restore" && has_more_to_do
    }

    fn is_confined(&self) -> bool {
        self.settings.reconcile_in_maintenance_only
            || self.shoot["spec"]["maintenance"]["confineSpecUpdateRollout"] == true
    }

    fn window(&self) -> DailyWindow {
        DailyWindow::of(self.shoot)
    }

    /// Whether it was reconciled in this window.
    fn is_done(&self, window: DailyWindow) -> bool {
        let last = text(&self.shoot["status"]["lastOperation"]["lastUpdateTime"]);
        parse_rfc3339(last).is_ok_and(|last| window.contains(last) && self.now.since(last) <= WINDOW_MAX)
    }

    fn sync_period(&self) -> Duration {
        let usual = self.settings.sync_period;
        let asked = parse_nanos(annotation(self.shoot, SYNC_PERIOD)).ok();
        let asked = asked.and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos);
        asked.filter(|asked| self.obeys_annotations() && *asked >= usual).unwrap_or(usual)
    }
}

/// Whether the Shoot moves between seeds: extensions must not see a Shoot that has not arrived, or has left.
const fn is_moving(operation: Operation) -> bool {
    matches!(operation, Operation::Migrate | Operation::Restore)
}

/// Why the Shoot may not leave this seed: the garden has to confirm that the other seed is ready. A garden that no longer says it
/// has confirmed it before the migration began. Texts of upstream.
fn migration_problem(shoot: &Value) -> Option<String> {
    let (constraints, last) = (shoot["status"]["constraints"].as_array(), &shoot["status"]["lastOperation"]);
    let name = text(&shoot["metadata"]["name"]);
    match constraints.into_iter().flatten().find(|each| each["type"] == READY_FOR_MIGRATION) {
        // One that has succeeded is the migration of the seed before.
        None if last["type"] == "Migrate" && last["state"] != "Succeeded" => None,
        None => Some(format!(
            "waiting for confirmation that destination Seed is available to host the control plane of Shoot {name}"
        )),
        Some(found) if found["status"] == "True" => None,
        Some(found) => Some(format!(
            "destination Seed is not available to host the control plane of Shoot {name}: {}",
            text(&found["message"])
        )),
    }
}

/// A number that Go omits if it is 0.
pub(super) fn generation(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// Why Shoots cannot be reconciled on this Seed. Not checked for a Shoot that is being deleted.
fn seed_problem(seed: &Value, agent: &Value) -> Option<String> {
    if !text(&seed["metadata"]["deletionTimestamp"]).is_empty() {
        return None;
    }
    let status = &seed["status"];
    if ["id", "name", "version"].iter().any(|field| status["gardener"][field] != agent[field]) {
        return Some("this gardenlet has not reconciled the Seed yet".to_owned());
    }
    if generation(&status["observedGeneration"]) < generation(&seed["metadata"]["generation"]) {
        return Some("the Seed has changed and has not been reconciled yet".to_owned());
    }
    let conditions: Vec<Condition> = view::look(&status["conditions"]).unwrap_or_default();
    let find = |kind: &str| condition::find(&conditions, kind);
    let bad = SEED_CONDITIONS
        .into_iter()
        .filter(|kind| find(kind).is_none_or(|it| it.status != ConditionStatus::True));
    let order = |kind: &str| urgency(kind, find(kind).map_or("Unknown", |it| it.status.as_str()));
    let worst = bad.min_by_key(|kind| order(kind))?;
    Some(match find(worst) {
        None => format!("the Seed has no condition {worst} yet"),
        Some(found) => format!("the Seed's condition {worst} is {}: {}", found.status, found.message),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::random;

    const DAY: Duration = Duration::from_secs(86_400);
    const HOUR: Duration = Duration::from_secs(3_600);

    /// 2026-01-01T22:30:00Z.
    const NOW: Timestamp = Timestamp::from_unix(1_767_306_600);

    fn settings() -> ShootController {
        ShootController {
            workers: 20,
            dns_entry_ttl_seconds: 120,
            sync_period: HOUR,
            respect_sync_period_overwrite: false,
            reconcile_in_maintenance_only: false,
            retry_duration: 12 * HOUR,
            progress_report_period: None,
        }
    }

    fn agent() -> Value {
        json!({"id": "ab", "name": "host", "version": "v1.150.0"})
    }

    fn seed() -> Value {
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        json!({
            "metadata": {"name": "edge", "generation": 2},
            "status": {"gardener": agent(), "observedGeneration": 2,
                "conditions": [condition("GardenletReady"), condition("SeedSystemComponentsHealthy")]},
        })
    }

    /// A Shoot that is up to date. Its window is open now, and was open at its last operation, yesterday.
    fn shoot() -> Value {
        json!({
            "metadata": {"name": "s", "namespace": "garden-p", "generation": 3, "finalizers": ["gardener"], "annotations": {}},
            "spec": {"seedName": "edge", "provider": {"type": "x"},
                "maintenance": {"timeWindow": {"begin": "220000+0000", "end": "231500+0000"}}},
            "status": {"seedName": "edge", "observedGeneration": 3, "gardener": agent(), "lastOperation":
                {"type": "Reconcile", "state": "Succeeded", "lastUpdateTime": "2025-12-31T22:10:00Z"}},
        })
    }

    /// `/a/b` to a value, in a Shoot or a Seed.
    fn set(object: &mut Value, path: &str, value: Value) {
        let mut place = object;
        for name in path.split('/').skip(1) {
            place = &mut place[name.replace("~1", "/")];
        }
        *place = value;
    }

    const CONFINED: &str = "/spec/maintenance/confineSpecUpdateRollout";
    const STATE: &str = "/status/lastOperation/state";
    const TYPE: &str = "/status/lastOperation/type";
    const UPDATED: &str = "/status/lastOperation/lastUpdateTime";
    const LAST: &str = "/status/lastOperation";
    const DELETED: &str = "/metadata/deletionTimestamp";
    const IGNORED: &str = "/metadata/annotations/shoot.gardener.cloud~1ignore";
    const PERIOD: &str = "/metadata/annotations/shoot.gardener.cloud~1sync-period";
    const ASKED: &str = "/metadata/annotations/gardener.cloud~1operation";

    fn with(changes: &[(&str, Value)]) -> Value {
        let mut shoot = shoot();
        for (path, value) in changes {
            set(&mut shoot, path, value.clone());
        }
        shoot
    }

    fn input<'a>(
        shoot: &'a Value,
        seed: &'a Value,
        agent: &'a Value,
        settings: &'a ShootController,
    ) -> ShootDecisionInput<'a> {
        ShootDecisionInput {
            shoot,
            seed,
            agent,
            settings,
            now: NOW,
            is_listed: false,
            share: 0.5,
            host_types: &[],
            obstacle: None,
        }
    }

    fn decided(shoot: &Value, seed: &Value, settings: &ShootController) -> ShootDecision {
        decide(&input(shoot, seed, &agent(), settings))
    }

    #[test]
    fn which_operation_is_required() {
        use Operation::{Create, Delete, ForceDelete, Migrate, Reconcile, Restore};
        let last = |kind: &str, state: &str| vec![(TYPE, json!(kind)), (STATE, json!(state))];
        let force = "/metadata/annotations/confirmation.gardener.cloud~1force-deletion";
        let deleted = (DELETED, json!("2026-01-01T00:00:00Z"));
        let table = [
            (vec![("/spec/seedName", json!("other"))], Migrate),
            (vec![("/status/seedName", Value::Null), (LAST, Value::Null)], Create),
            (last("Migrate", "Succeeded"), Restore),
            (last("Migrate", "Aborted"), Restore),
            (vec![(ASKED, json!("migrate"))], Reconcile),
            (vec![(ASKED, json!("restore"))], Restore),
            (vec![(ASKED, json!("rotate-ca-start;restore"))], Restore),
            (vec![(ASKED, json!("rotate-ca-start"))], Reconcile),
            (vec![deleted.clone()], Delete),
            (vec![deleted.clone(), (LAST, Value::Null)], Delete),
            (vec![deleted.clone(), (ASKED, json!("restore"))], Delete),
            (vec![deleted.clone(), (force, json!("true"))], ForceDelete),
            (vec![deleted, (force, json!("no"))], Delete),
            (vec![(LAST, Value::Null)], Create),
            (vec![(LAST, json!({"state": "Pending"}))], Create),
            (last("Create", "Processing"), Create),
            (last("Create", "Failed"), Create),
            (last("Create", "Succeeded"), Reconcile),
            (last("Migrate", "Error"), Restore),
            ([last("Migrate", "Error"), vec![("/spec/seedName", json!("other"))]].concat(), Migrate),
            (last("Restore", "Processing"), Restore),
            (last("Restore", "Succeeded"), Reconcile),
            (last("Reconcile", "Error"), Reconcile),
            (last("Delete", "Error"), Reconcile),
        ];
        for (changes, expected) in table {
            assert_eq!(operation(&with(&changes)), expected, "{changes:?}");
        }
    }

    #[test]
    fn who_is_responsible() {
        let table = [
            (json!("edge"), Value::Null, true),
            (json!("edge"), json!("edge"), true),
            (json!("other"), json!("edge"), true),
            (json!("edge"), json!("other"), false),
            (json!("other"), Value::Null, false),
            (Value::Null, json!("edge"), false),
            (Value::Null, Value::Null, false),
        ];
        for (wanted, present, expected) in table {
            let shoot = with(&[("/spec/seedName", wanted), ("/status/seedName", present)]);
            assert_eq!(decided(&shoot, &seed(), &settings()) != ShootDecision::Nothing, expected, "{shoot}");
        }
        assert_eq!(
            decided(&with(&[("/spec/seedName", Value::Null)]), &Value::Null, &settings()),
            ShootDecision::Nothing
        );
        let gone =
            with(&[(DELETED, json!("2026-01-01T00:00:00Z")), ("/metadata/finalizers", json!(["other"]))]);
        assert_eq!(decided(&gone, &seed(), &settings()), ShootDecision::Nothing);
    }

    /// Each row: the difference from a Shoot that is up to date, whether it starts now, and when it is decided again
    /// otherwise or after it succeeded.
    #[test]
    fn when_it_is_reconciled() {
        // Half an hour into tomorrow's window, which starts half an hour earlier than now.
        let next = DAY;
        let confined = (CONFINED, json!(true));
        let failed = (STATE, json!("Failed"));
        let table = [
            (vec![], true, Some(HOUR)),
            (vec![confined.clone()], true, Some(next)),
            (vec![confined.clone(), (UPDATED, json!("2026-01-01T22:05:00Z"))], false, Some(next)),
            (vec![confined.clone(), (UPDATED, json!("2026-01-01T21:05:00Z"))], true, Some(next)),
            (
                vec![confined.clone(), ("/spec/maintenance/timeWindow", Value::Null)],
                true,
                Some(Duration::from_millis(48_599_500)),
            ),
            (vec![confined.clone(), ("/metadata/generation", json!(4))], true, Some(next)),
            (vec![confined.clone(), (STATE, json!("Processing"))], true, Some(next)),
            (vec![confined.clone(), (STATE, json!("Error"))], true, Some(next)),
            (vec![confined.clone(), (STATE, json!("Pending"))], true, Some(next)),
            (vec![confined.clone(), (LAST, Value::Null)], true, Some(next)),
            (vec![failed.clone()], false, None),
            (vec![failed.clone(), ("/metadata/generation", json!(4))], true, Some(HOUR)),
            (vec![failed.clone(), ("/status/gardener/version", json!("v1.149.0"))], true, Some(HOUR)),
            (vec![(IGNORED, json!("true"))], true, Some(HOUR)),
            (vec![(IGNORED, json!("true")), ("/metadata/namespace", json!("garden"))], false, None),
            (vec![(IGNORED, json!("no")), ("/metadata/namespace", json!("garden"))], true, Some(HOUR)),
            (
                vec![(IGNORED, json!("1")), ("/metadata/namespace", json!("garden")), (LAST, Value::Null)],
                false,
                None,
            ),
            (vec![(PERIOD, json!("2h"))], true, Some(HOUR)),
            (vec![(PERIOD, json!("2h")), ("/metadata/namespace", json!("garden"))], true, Some(2 * HOUR)),
            (vec![(PERIOD, json!("30m")), ("/metadata/namespace", json!("garden"))], true, Some(HOUR)),
            (vec![(PERIOD, json!("soon")), ("/metadata/namespace", json!("garden"))], true, Some(HOUR)),
            (vec![(PERIOD, json!("-2h")), ("/metadata/namespace", json!("garden"))], true, Some(HOUR)),
        ];
        for (changes, expected, again) in table {
            let (shoot, seed, agent, settings) = (with(&changes), seed(), agent(), settings());
            let input = input(&shoot, &seed, &agent, &settings);
            match decide(&input) {
                ShootDecision::Now(_) => assert!(expected, "{changes:?}"),
                ShootDecision::Later { after, is_synced, .. } => {
                    assert!(!expected, "{changes:?}");
                    assert_eq!((after, is_synced), (again, again.is_none()), "{changes:?}");
                }
                other => panic!("{changes:?}: {other:?}"),
            }
            assert_eq!(input.again_after(), again, "{changes:?}");
        }
    }

    /// Two hours after the window of a confined Shoot started.
    #[test]
    fn a_closed_window_keeps_only_what_is_up_to_date() {
        use Operation::{Create, Delete, Migrate, Reconcile, Restore};
        let state = |state: &str| vec![(STATE, json!(state))];
        let of = |kind: &str, state: &str| vec![(TYPE, json!(kind)), (STATE, json!(state))];
        let table = [
            (vec![], None),
            (of("Create", "Succeeded"), None),
            (of("Restore", "Succeeded"), None),
            (state("Failed"), None),
            (vec![("/metadata/generation", json!(4))], Some(Reconcile)),
            (state("Processing"), Some(Reconcile)),
            (state("Error"), Some(Reconcile)),
            (state("Pending"), Some(Reconcile)),
            (state("Aborted"), Some(Reconcile)),
            (of("Create", "Error"), Some(Create)),
            (vec![(LAST, Value::Null)], Some(Create)),
            (vec![(ASKED, json!("restore"))], Some(Restore)),
            (of("Migrate", "Succeeded"), Some(Restore)),
            (of("Migrate", "Aborted"), Some(Restore)),
            (of("Migrate", "Error"), Some(Restore)),
            (vec![("/spec/seedName", json!("other")), confirmed("True")], Some(Migrate)),
            (
                [of("Restore", "Succeeded"), vec![("/spec/hibernation/enabled", json!(true))]].concat(),
                Some(Reconcile),
            ),
            (vec![(DELETED, json!("2026-01-01T00:00:00Z"))], Some(Delete)),
        ];
        let (seed, agent) = (seed(), agent());
        let by_settings = ShootController { reconcile_in_maintenance_only: true, ..settings() };
        for (changes, expected) in table {
            let by_shoot = [&changes[..], &[(CONFINED, json!(true))]].concat();
            for (changes, settings) in [(&changes, &by_settings), (&by_shoot, &settings())] {
                let shoot = with(changes);
                let input =
                    ShootDecisionInput { now: NOW.plus(2 * HOUR), ..input(&shoot, &seed, &agent, settings) };
                let begun = match decide(&input) {
                    ShootDecision::Now(operation) => Some(operation),
                    ShootDecision::Later { .. } => None,
                    other => panic!("{changes:?}: {other:?}"),
                };
                assert_eq!(begun, expected, "{changes:?}");
            }
        }
    }

    #[test]
    fn effects_of_the_settings() {
        let overwrite = ShootController { respect_sync_period_overwrite: true, ..settings() };
        let maintenance = ShootController { reconcile_in_maintenance_only: true, ..settings() };
        let (seed, agent) = (seed(), agent());
        let ignored = with(&[(IGNORED, json!("true"))]);
        assert!(matches!(
            decided(&ignored, &seed, &overwrite),
            ShootDecision::Later { after: None, is_synced: true, .. }
        ));
        let longer = with(&[(PERIOD, json!("90m"))]);
        assert_eq!(input(&longer, &seed, &agent, &overwrite).again_after(), Some(HOUR * 3 / 2));
        let out =
            ShootDecisionInput { now: NOW.plus(2 * HOUR), ..input(&longer, &seed, &agent, &maintenance) };
        assert!(matches!(decide(&out), ShootDecision::Later { after: Some(_), is_synced: false, .. }));
        assert_eq!(decided(&longer, &seed, &maintenance), ShootDecision::Now(Operation::Reconcile));
        let rare = ShootController { sync_period: 24 * HOUR, ..overwrite };
        assert_eq!(input(&longer, &seed, &agent, &rare).again_after(), Some(24 * HOUR));
    }

    #[test]
    fn a_start_spreads_over_the_windows() {
        let confined = (CONFINED, json!(true));
        let table = [
            (vec![], NOW, Duration::ZERO),
            // Fifteen minutes are left.
            (vec![confined.clone()], NOW, HOUR / 4),
            (vec![confined.clone()], NOW.minus(HOUR), HOUR / 2 + HOUR / 2),
            (vec![confined.clone(), (UPDATED, json!("2026-01-01T22:05:00Z"))], NOW, DAY),
            (vec![confined.clone(), (STATE, json!("Error"))], NOW, Duration::ZERO),
            (vec![confined.clone(), (STATE, json!("Failed"))], NOW, Duration::ZERO),
            (vec![confined, (LAST, Value::Null)], NOW.minus(HOUR), Duration::ZERO),
        ];
        for (changes, now, expected) in table {
            let (shoot, seed, agent, settings) = (with(&changes), seed(), agent(), settings());
            let input = ShootDecisionInput { now, ..input(&shoot, &seed, &agent, &settings) };
            assert_eq!(input.listed_after(), expected, "{changes:?}");
            let (usual, listed) = (decide(&input), decide(&ShootDecisionInput { is_listed: true, ..input }));
            match usual {
                ShootDecision::Now(_) if !expected.is_zero() => assert!(
                    matches!(listed, ShootDecision::Later { after: Some(after), is_synced: false, .. } if after == expected),
                    "{changes:?}: {listed:?}"
                ),
                _ => assert_eq!(listed, usual, "{changes:?}"),
            }
        }
    }

    #[test]
    fn extensions_see_a_shoot_that_is_left_alone() {
        let failed = |kind: &str| vec![(STATE, json!("Failed")), (TYPE, json!(kind))];
        let table = [
            (failed("Create"), true),
            (failed("Reconcile"), true),
            // Nothing of it is changed.
            (failed("Migrate"), false),
            (failed("Restore"), false),
            (vec![(STATE, json!("Failed")), (DELETED, json!("2026-01-01T00:00:00Z"))], true),
            (vec![(IGNORED, json!("true")), ("/metadata/namespace", json!("garden"))], true),
        ];
        for (changes, expected) in table {
            match decided(&with(&changes), &seed(), &settings()) {
                ShootDecision::Later { after: None, is_synced, .. } => {
                    assert_eq!(is_synced, expected, "{changes:?}");
                }
                other => panic!("{changes:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn seed_problems_that_stop_all_shoots() {
        let says = |path: &str, value: Value| {
            let mut seed = seed();
            set(&mut seed, path, value);
            decided(&with(&[(LAST, Value::Null)]), &seed, &settings())
        };
        let stop = "/metadata/annotations/shoot.gardener.cloud~1emergency-stop-reconciliations";
        assert!(matches!(
            says(stop, json!("true")),
            ShootDecision::Later { after: Some(HOUR), is_synced: false, .. }
        ));
        assert_eq!(says(stop, json!("false")), ShootDecision::Now(Operation::Create));
        let ready = |status: &str| {
            json!([{"type": "GardenletReady", "status": "True"},
            {"type": "SeedSystemComponentsHealthy", "status": status, "message": "m"}])
        };
        let table = [
            ("/status/gardener/id", json!("cd")),
            ("/status/gardener/name", json!("other")),
            ("/status/gardener/version", json!("v1.149.0")),
            ("/status/gardener", Value::Null),
            ("/status/observedGeneration", json!(1)),
            ("/status/conditions", json!([{"type": "GardenletReady", "status": "True"}])),
            ("/status/conditions", ready("False")),
            ("/status/conditions", ready("Progressing")),
            ("/status/conditions", ready("Unknown")),
            ("/status", Value::Null),
        ];
        for (path, value) in table {
            match says(path, value.clone()) {
                ShootDecision::Blocked { why, after } => {
                    assert!(why.starts_with("Shoot cannot be reconciled on seed: "), "{why}");
                    assert_eq!(after, BLOCKED_AGAIN);
                }
                other => panic!("{path} {value}: {other:?}"),
            }
        }
        let mut leaving = seed();
        set(&mut leaving, DELETED, json!("2026-01-01T00:00:00Z"));
        set(&mut leaving, "/status", Value::Null);
        assert_eq!(decided(&shoot(), &leaving, &settings()), ShootDecision::Now(Operation::Reconcile));
    }

    #[test]
    fn unsupported_shoots_are_left_alone() {
        let workers = ("/spec/provider/workers", json!([{"name": "a"}]));
        let deleted = (DELETED, json!("2026-01-01T00:00:00Z"));
        for changes in [
            vec![],
            vec![deleted.clone()],
            vec![("/spec/seedName", json!("other"))],
            vec![(LAST, Value::Null)],
        ] {
            let shoot = with(&[&changes[..], std::slice::from_ref(&workers)].concat());
            let expected = ShootDecision::Blocked { why: HAS_WORKERS.to_owned(), after: BLOCKED_AGAIN };
            assert_eq!(decided(&shoot, &seed(), &settings()), expected);
        }
        let hosts = with(&[workers, ("/spec/provider/type", json!("hosts"))]);
        let (seed_, agent, settings_) = (seed(), agent(), settings());
        for (host_types, is_served) in [(vec!["hosts".to_owned()], true), (vec!["others".to_owned()], false)]
        {
            let input =
                ShootDecisionInput { host_types: &host_types, ..input(&hosts, &seed_, &agent, &settings_) };
            assert_eq!(decide(&input) == ShootDecision::Now(Operation::Reconcile), is_served);
        }
        assert_eq!(
            decided(&with(&[("/spec/provider/workers", json!([]))]), &seed(), &settings()),
            ShootDecision::Now(Operation::Reconcile)
        );
        assert_eq!(decided(&with(&[deleted]), &seed(), &settings()), ShootDecision::Now(Operation::Delete));
    }

    #[test]
    fn a_rotation_that_waits_for_nodes_goes_on_after_the_shoot_has_arrived() {
        let (seed, agent, settings, types) = (seed(), agent(), settings(), vec!["hosts".to_owned()]);
        let (pools, none) = (json!([{"name": "a"}]), json!([]));
        for (operation, workers, phase, goes_on) in [
            ("Restore", &pools, "Completing", true),
            ("Restore", &pools, "Prepared", false),
            ("Restore", &none, "Completing", false),
            ("Reconcile", &pools, "Completing", false),
        ] {
            let shoot = with(&[
                (TYPE, json!(operation)),
                ("/spec/provider", json!({"type": "hosts", "workers": workers})),
                ("/status/credentials/rotation/certificateAuthorities/phase", json!(phase)),
            ]);
            let input = ShootDecisionInput { host_types: &types, ..input(&shoot, &seed, &agent, &settings) };
            assert_eq!(input.again_after() == Some(Duration::ZERO), goes_on, "{operation} {phase}");
            assert_eq!(!input.is_up_to_date(), goes_on, "{operation} {phase}");
        }
    }

    /// The garden's judgement about the other seed.
    fn confirmed(status: &str) -> (&'static str, Value) {
        let constraint = json!({"type": READY_FOR_MIGRATION, "status": status, "message": "versions differ"});
        ("/status/constraints", json!([{"type": "HibernationPossible", "status": "True"}, constraint]))
    }

    #[test]
    fn a_shoot_leaves_when_the_garden_has_confirmed_the_other_seed() {
        let leaves = ("/spec/seedName", json!("other"));
        let begun = (LAST, json!({"type": "Migrate", "state": "Error"}));
        let came = (LAST, json!({"type": "Migrate", "state": "Succeeded"}));
        let blocked = |why: &str| ShootDecision::Blocked { why: why.to_owned(), after: CONFIRMED_AGAIN };
        let missing = "waiting for confirmation that destination Seed is available to host the control plane of Shoot s";
        let refused =
            "destination Seed is not available to host the control plane of Shoot s: versions differ";
        let table = [
            (vec![leaves.clone()], blocked(missing)),
            (vec![leaves.clone(), confirmed("False")], blocked(refused)),
            (vec![leaves.clone(), confirmed("True")], ShootDecision::Now(Operation::Migrate)),
            // A second try of a migration that was confirmed.
            (vec![leaves.clone(), begun.clone()], ShootDecision::Now(Operation::Migrate)),
            // The migration of the seed before.
            (vec![leaves.clone(), came], blocked(missing)),
            (vec![leaves.clone(), begun.clone(), confirmed("False")], blocked(refused)),
            // Bound to this seed again.
            (vec![begun], ShootDecision::Now(Operation::Restore)),
        ];
        for (changes, expected) in table {
            assert_eq!(decided(&with(&changes), &seed(), &settings()), expected, "{changes:?}");
        }
    }

    #[test]
    fn a_shoot_stays_where_its_data_would_be_lost() {
        let shoot = |seed: &str| {
            let last = json!({"type": "Restore", "state": "Error"});
            with(&[("/spec/seedName", json!(seed)), confirmed("True"), (LAST, last)])
        };
        let (seed, agent, settings) = (seed(), agent(), settings());
        let table = [
            ("other", Some("why"), ShootDecision::Blocked { why: "why".to_owned(), after: BLOCKED_AGAIN }),
            ("other", None, ShootDecision::Now(Operation::Migrate)),
            // Bound to this seed again.
            ("edge", Some("why"), ShootDecision::Now(Operation::Restore)),
        ];
        for (wanted, obstacle, expected) in table {
            let shoot = shoot(wanted);
            let input = ShootDecisionInput { obstacle, ..input(&shoot, &seed, &agent, &settings) };
            assert_eq!(decide(&input), expected, "{wanted} {obstacle:?}");
        }
    }

    /// Invariants for every Shoot.
    #[test]
    fn any_shoot_is_decided_on_within_its_limits() {
        let pick = |values: &[Value]| values[usize::from(random::bytes::<1>()[0]) % values.len()].clone();
        let flag = || random::bytes::<1>()[0] < 128;
        for _ in 0..20_000 {
            let (mut shoot, mut seed, agent) = (shoot(), seed(), agent());
            let changes = [
                (CONFINED, vec![json!(true), Value::Null, json!("x")]),
                (
                    STATE,
                    ["Succeeded", "Failed", "Error", "Processing", "Pending", "Aborted", ""]
                        .map(|s| json!(s))
                        .to_vec(),
                ),
                (TYPE, ["Create", "Reconcile", "Migrate", "Restore", "Delete"].map(|s| json!(s)).to_vec()),
                (
                    UPDATED,
                    vec![
                        json!("2026-01-01T22:05:00Z"),
                        json!("2027-01-01T00:00:00Z"),
                        json!("x"),
                        Value::Null,
                    ],
                ),
                (DELETED, vec![Value::Null, Value::Null, json!("2026-01-01T00:00:00Z")]),
                (IGNORED, vec![Value::Null, json!("true")]),
                (PERIOD, vec![Value::Null, json!("2h"), json!("x"), json!("99999999h")]),
                ("/metadata/generation", vec![json!(3), json!(4), Value::Null]),
                ("/metadata/namespace", vec![json!("garden"), json!("garden-p")]),
                ("/spec/seedName", vec![json!("edge"), json!("other"), Value::Null]),
                ("/status/seedName", vec![json!("edge"), json!("other"), Value::Null]),
                ("/spec/provider/workers", vec![Value::Null, json!([]), json!([{}])]),
                (
                    "/spec/maintenance/timeWindow/end",
                    vec![json!("001500+0000"), json!("231500-1200"), Value::Null],
                ),
            ];
            for (path, values) in changes {
                set(&mut shoot, path, pick(&values));
            }
            if flag() {
                set(&mut seed, "/status/observedGeneration", json!(1));
            }
            let settings = ShootController {
                respect_sync_period_overwrite: flag(),
                reconcile_in_maintenance_only: flag(),
                ..settings()
            };
            let (share, is_listed) = (random::unit(), flag());
            let input = ShootDecisionInput { share, is_listed, ..input(&shoot, &seed, &agent, &settings) };
            assert!(input.listed_after() < 2 * DAY);
            let ours = ShootSeeds::of(&shoot).operates() == "edge";
            match decide(&input) {
                ShootDecision::Nothing => assert!(!ours, "{shoot}"),
                ShootDecision::Now(operation) => {
                    assert!(ours && !has_foreign_workers(&shoot, &[]));
                    assert_eq!(is_deleting(&shoot), operation.as_str() == "Delete");
                    assert!(input.is_left_alone().is_none());
                    // A Shoot that is not up to date never waits.
                    assert!(!is_listed || input.listed_after().is_zero());
                }
                ShootDecision::Later { after, is_synced, .. } => {
                    assert!(ours && !has_foreign_workers(&shoot, &[]));
                    assert_eq!(is_synced, after.is_none() && !is_moving(operation(&shoot)));
                    // No two decisions about a confined Shoot within one window.
                    assert!(
                        after.is_none_or(|after| DailyWindow::of(&shoot).contains(NOW.plus(after))),
                        "{shoot}"
                    );
                }
                ShootDecision::Blocked { after, .. } => {
                    assert!(ours && (after == BLOCKED_AGAIN || after == CONFIRMED_AGAIN));
                }
            }
        }
    }
}
