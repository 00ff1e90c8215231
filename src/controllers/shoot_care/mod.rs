//! The health of Shoots (Gardener's `shoot-care`): their conditions, their constraints, pods that will never run again,
//! webhooks that could keep them from waking up.
//!
//! Woken by Shoots that are new, were scheduled or reconciled, and once per `controllers.shootCare.syncPeriod`; sooner
//! while something is wrong (`pace.rs`). A check needs no garden: it uses the last state from the watch on Shoots, the
//! `Cluster` in the seed, and its own last result. A result that cannot be written is written as soon as the garden is
//! reachable.
//!
//! The API server of a hibernated Shoot gets no requests. Shoots with workers are ignored, as by `shoot`, so there are
//! no conditions about nodes. For the same reason there is no controller `shoot-status`, which tracks in-place updates
//! of workers.

mod act;
mod agents;
mod basis;
mod constraints;
mod decide;
mod inside;
mod look;
mod nodes;
mod pace;
mod planes;
mod remedy;
mod reports;
mod schedule;
mod snapshots;
mod webhooks;

use std::sync::{Arc, Mutex, MutexGuard};

use crate::api::gardener::{ShootHead, ShootStatus};
use crate::api::meta::Key;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::config::care::ShootCare;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::Retry;
use crate::runtime::store::Change;
use crate::shoot::responsible::has_control_plane;

use super::Site;

use act::KnownShoot;
use planes::Planes;
use snapshots::Snapshots;

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let settings = &site.settings;
    let care = &settings.controllers.shoot_care;
    // An unreachable API server blocks a worker for seconds, so other controllers keep half of the workers.
    let half = u32::try_from(settings.edge.workers / 2).unwrap_or(u32::MAX).max(1);
    let lane = group.lane("shoot-care", care.workers.min(half), Retry::up_to(care.sync_period));
    let asked = RequestedChecks::default();
    let asks = asked.clone();
    group.wake(&lane, &site.heads, move |change| {
        let reason = reason(change)?;
        if reason == Reason::Asked {
            asks.all().insert(change.key.clone());
        }
        Some(change.key.clone())
    });
    let reconciler = CareReconciler {
        site: Arc::clone(site),
        planes: Planes::new(site),
        snapshots: settings.edge.etcd.snapshots.as_ref().map(|_| Snapshots::default()),
        asked,
        known: Mutex::default(),
    };
    group.run(lane, reconciler);
}

/// Why a Shoot is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    /// It is new here, so the check is not urgent.
    New,
    Asked,
    /// It is gone, so its state is dropped.
    Gone,
}

fn reason(change: &Change<ShootHead>) -> Option<Reason> {
    let Some(new) = &change.new else { return Some(Reason::Gone) };
    let Some(old) = &change.old else { return Some(Reason::New) };
    // Scheduled, or given to another seed.
    let has_moved = old.status.seed_name != new.status.seed_name && !new.status.seed_name.is_empty();
    (has_moved || was_reconciled(&old.status, &new.status)).then_some(Reason::Asked)
}

fn was_reconciled(old: &ShootStatus, new: &ShootStatus) -> bool {
    let operation = |status: &ShootStatus| {
        let last = status.last_operation.as_ref();
        last.map_or(("", ""), |last| match (last.kind.as_str(), last.state.as_str()) {
            ("Delete", _) => ("Delete", ""),
            (_, "Processing") => ("", "Processing"),
            (_, "Succeeded") => ("", "Succeeded"),
            _ => ("", ""),
        })
    };
    operation(old) == ("", "Processing") && operation(new) == ("", "Succeeded")
}

/// Shoots with a requested check. Cheap to clone.
#[derive(Clone, Debug, Default)]
struct RequestedChecks(Arc<Mutex<SortedSet<Key>>>);

impl RequestedChecks {
    fn all(&self) -> MutexGuard<'_, SortedSet<Key>> {
        // Only single calls change the set: a panic cannot leave it half changed.
        self.0.lock().ignore_poison()
    }
}

struct CareReconciler {
    site: Arc<Site>,
    planes: Planes,
    /// The state of etcd snapshots, if they are enabled.
    snapshots: Option<Snapshots>,
    asked: RequestedChecks,
    known: Mutex<SortedMap<Key, KnownShoot>>,
}

impl CareReconciler {
    fn settings(&self) -> &ShootCare {
        &self.site.settings.controllers.shoot_care
    }

    fn known(&self) -> MutexGuard<'_, SortedMap<Key, KnownShoot>> {
        // Only single calls change the map: a panic cannot leave it half changed.
        self.known.lock().ignore_poison()
    }
}

impl Reconciler for CareReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let is_asked = self.asked.all().remove(key);
        let before = self.known().remove(key);
        let Some(head) = self.site.heads.store().get(key) else { return Ok(ReconcileOutcome::Done) };
        if head.status.seed_name.is_empty() {
            return Ok(ReconcileOutcome::After(pace::UNSCHEDULED));
        }
        if !has_control_plane(&head.status.seed_name, self.site.seed_name()) {
            return Ok(ReconcileOutcome::Done);
        }
        let mut known = before.filter(|known| known.is_of(&head)).unwrap_or_else(|| {
            let is_current = head.metadata.generation == head.status.observed_generation;
            KnownShoot::new(&head, pace::first(is_current, self.settings().sync_period, cx))
        });
        if is_asked {
            known.is_asked();
        }
        let outcome = self.turn(key, &head, &mut known, cx);
        self.known().insert(key.clone(), known);
        outcome
    }
}

#[cfg(test)]
mod tests;
