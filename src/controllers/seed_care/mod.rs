//! The health of the seed's components (Gardener's `seed-care`): the Seed's condition `SeedSystemComponentsHealthy`,
//! from the conditions of all ManagedResources of the seed; the condition of an emergency stop; stale pods.
//!
//! Woken by the Seed and by the ManagedResources, and once per `controllers.seedCare.syncPeriod`. The conditions are
//! computed from the informers' caches: without changes, a reconciliation sends nothing to the garden, and one list of
//! pods per period to the seed.

mod decide;
mod pods;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::api::condition::{FailurePatience, Finding};
use crate::api::gardener::{SEED, Seed};
use crate::api::meta::Key;
use crate::base::clock::{Mono, Timestamp};
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::config::care::SeedCare;
use crate::format::time::parse_rfc3339;
use crate::kube::{self};
use crate::resources::{ManagedResourceFault, ManagedResourceHead};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::Retry;
use crate::runtime::write;

use super::Site;
use decide::{COMPONENTS_HEALTHY, EMERGENCY_STOP};

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let settings = &site.settings.controllers.seed_care;
    let lane = group.lane("seed-care", 1, Retry::up_to(settings.sync_period));
    let own = site.own_seed();
    group.wake(&lane, &site.seeds, move |change| {
        let seed = own(change)?;
        wants_care(change.old.as_deref(), seed).then(|| change.key.clone())
    });
    let key = site.seed_key();
    group.wake(&lane, &site.managed, move |change| {
        has_news(change.old.as_deref(), change.new.as_deref()).then(|| key.clone())
    });
    let reconciler = CareReconciler { site: Arc::clone(site), looks: Mutex::default() };
    group.run(lane, reconciler);
}

/// Whether a change of the Seed requires a check: it is new, was just reconciled, or its emergency stop
/// has started or ended.
fn wants_care(old: Option<&Seed>, new: &Seed) -> bool {
    let Some(old) = old else { return true };
    let operation = |seed: &Seed| seed.status.last_operation.clone().unwrap_or_default();
    let (before, after) = (operation(old), operation(new));
    let was_reconciled = before.state == "Processing" && after.state == "Succeeded" && after.kind != "Delete";
    was_reconciled || decide::is_stopped(&old.metadata) != decide::is_stopped(&new.metadata)
}

/// Whether a ManagedResource of the seed has become healthy, or has another fault than before. A transient
/// fault does not count, because it would flip the condition with every change of an extension. If it lasts,
/// the next check sees it.
fn has_news(old: Option<&ManagedResourceHead>, new: Option<&ManagedResourceHead>) -> bool {
    let of = |managed: Option<&ManagedResourceHead>| {
        managed.filter(|m| decide::concerns(m)).and_then(decide::fault)
    };
    let (before, after) = (of(old), of(new));
    before != after && !after.is_some_and(|fault| fault.is_passing())
}

/// The shortest time between two checks for pods that have ended.
const OVER_PERIOD: Duration = Duration::from_secs(60);
/// How often pods that are being deleted are checked.
const GOING_PERIOD: Duration = Duration::from_secs(300);
/// How soon to check again while the ManagedResources are not known.
const AGAIN_SOON: Duration = Duration::from_secs(1);

struct CareReconciler {
    site: Arc<Site>,
    looks: Mutex<PodCheckTimes>,
}

/// When pods were last checked.
#[derive(Debug, Default)]
struct PodCheckTimes {
    over: Option<Mono>,
    going: Option<Mono>,
}

/// Whether a check is due. If so, records it.
fn is_due(last: &mut Option<Mono>, now: Mono, period: Duration) -> bool {
    let is_due = last.is_none_or(|last| now.saturating_sub(last) >= period);
    if is_due {
        *last = Some(now);
    }
    is_due
}

impl Reconciler for CareReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let Some(seed) = self.site.seeds.store().get(key) else { return Ok(ReconcileOutcome::Done) };
        if !self.site.managed.store().is_synced() {
            return Ok(ReconcileOutcome::After(AGAIN_SOON));
        }
        let written = self.report(key, &seed, cx.clock.now());
        // Also while the garden is unreachable.
        self.delete_stale_pods(cx.clock.mono(), cx.clock.now());
        written?;
        Ok(ReconcileOutcome::After(self.settings().sync_period))
    }
}

impl CareReconciler {
    fn settings(&self) -> &SeedCare {
        &self.site.settings.controllers.seed_care
    }

    fn report(&self, key: &Key, seed: &Seed, now: Timestamp) -> Result<(), kube::Error> {
        let old = &seed.status.conditions;
        let mut wanted = vec![decide::components(old, self.fault(), self.patience(seed), now)];
        let mut removed = vec![EMERGENCY_STOP];
        if let Some(stop) = decide::emergency_stop(&seed.metadata, old, now) {
            wanted.push(stop);
            removed.clear();
        }
        write::conditions_without(&self.site.garden, &SEED, key, old, &wanted, &removed)
    }

    /// The first fault, ordered by name.
    fn fault(&self) -> Option<Finding> {
        let all = self.site.managed.store().all();
        let mut concerned = all.iter().filter(|(_, managed)| decide::concerns(managed));
        concerned.find_map(|(_, managed)| decide::fault(managed)).map(ManagedResourceFault::into_finding)
    }

    fn patience(&self, seed: &Seed) -> FailurePatience {
        let operation = seed.status.last_operation.as_ref().filter(|last| last.state == "Succeeded");
        let succeeded_at = operation.and_then(|last| parse_rfc3339(&last.last_update_time).ok());
        FailurePatience {
            threshold: self.settings().thresholds.get(COMPONENTS_HEALTHY).copied(),
            succeeded_at,
            ..FailurePatience::default()
        }
    }

    /// A remaining pod is harmless, so failures wait for the next reconciliation.
    fn delete_stale_pods(&self, at: Mono, now: Timestamp) {
        let (over, going) = {
            let mut looks = self.looks.lock().ignore_poison();
            let over = self.settings().sync_period.max(OVER_PERIOD);
            (is_due(&mut looks.over, at, over), is_due(&mut looks.going, at, GOING_PERIOD))
        };
        let mut result = Ok(());
        if over {
            result = pods::delete_over(&self.site.seed, now);
        }
        if going {
            result = result.and(pods::delete_going(&self.site.seed, now));
        }
        if let Err(error) = result {
            let err = chain(&error);
            log::warn!(err = err.as_str(); "Cannot delete stale pods");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seed(kind: &str, state: &str, stop: &str) -> Seed {
        let annotations = json!({"shoot.gardener.cloud/emergency-stop-reconciliations": stop});
        serde_json::from_value(json!({"metadata": {"name": "edge-1", "annotations": annotations},
            "status": {"lastOperation": {"type": kind, "state": state}}}))
        .unwrap()
    }

    #[test]
    fn which_changes_of_the_seed_wake() {
        let idle = || seed("Reconcile", "Succeeded", "");
        let table = [
            (None, idle(), true),
            (Some(idle()), idle(), false),
            (Some(seed("Reconcile", "Processing", "")), idle(), true),
            (Some(seed("Reconcile", "Error", "")), idle(), false),
            (Some(idle()), seed("Reconcile", "Processing", ""), false),
            (Some(seed("Delete", "Processing", "")), seed("Delete", "Succeeded", ""), false),
            (Some(idle()), seed("Reconcile", "Succeeded", "true"), true),
            (Some(seed("Reconcile", "Succeeded", "true")), idle(), true),
        ];
        for (old, new, expected) in table {
            assert_eq!(wants_care(old.as_ref(), &new), expected, "{old:?} {new:?}");
        }
    }

    fn managed(namespace: &str, observed: i64, healthy: &str) -> ManagedResourceHead {
        let condition =
            |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "m"});
        let conditions: Value = json!([
            condition("ResourcesApplied", "True"),
            condition("ResourcesHealthy", healthy),
            condition("ResourcesProgressing", "False")
        ]);
        serde_json::from_value(json!({"metadata": {"name": "x", "namespace": namespace, "generation": 2},
            "spec": {"class": "seed"}, "status": {"conditions": conditions, "observedGeneration": observed}}))
        .unwrap()
    }

    #[test]
    fn which_changes_of_a_managed_resource_wake() {
        let (well, sick, new) = (
            || managed("garden", 2, "True"),
            || managed("garden", 2, "False"),
            || managed("garden", 1, "True"),
        );
        let table = [
            (None, Some(well()), false),
            (None, Some(new()), false),
            (None, Some(sick()), true),
            (Some(well()), Some(new()), false),
            (Some(new()), Some(well()), true),
            (Some(well()), Some(managed("garden", 2, "Unknown")), false),
            (Some(well()), Some(sick()), true),
            (Some(sick()), Some(sick()), false),
            (Some(sick()), Some(well()), true),
            (Some(sick()), None, true),
            (Some(well()), None, false),
            (Some(managed("shoot--a--b", 2, "True")), Some(managed("shoot--a--b", 2, "False")), false),
        ];
        for (old, new, expected) in table {
            assert_eq!(has_news(old.as_ref(), new.as_ref()), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn a_check_is_due_once_per_period() {
        let (mut last, at) = (None, Mono::from_secs);
        let period = Duration::from_secs(30);
        let looks: Vec<bool> =
            [100, 101, 129, 130, 131, 160].map(|now| is_due(&mut last, at(now), period)).into();
        assert_eq!(looks, [true, false, false, true, false, true]);
    }
}
