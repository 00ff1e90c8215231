//! The health of Shoots (Gardener's `shoot-care`): their conditions, what keeps them from something (constraints), pods that will
//! never run again, webhooks that could keep them from waking up.
//!
//! Woken by Shoots that are new, were scheduled or reconciled, and once per `controllers.shootCare.syncPeriod`; sooner while
//! something is wrong (`pace.rs`). A look needs no garden: it uses what the watch on Shoots has told last, the `Cluster` in the
//! seed, and its own last result. What cannot be written is written as soon as the garden is back.
//!
//! The API server of a Shoot that sleeps is sent nothing. Shoots with workers are left alone, as by `shoot`; so nothing is said of
//! nodes. For the same reason there is no controller `shoot-status`, which follows updates of workers in place.

mod act;
mod basis;
mod constraints;
mod decide;
mod inside;
mod look;
mod pace;
mod planes;
mod remedy;
mod reports;
mod schedule;
mod snapshots;
mod webhooks;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::gardener::{ShootHead, ShootStatus};
use crate::api::meta::Key;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::config::settings::Settings;
use crate::kube::{Garden, Seed};
use crate::resources::Watched;
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::group::Group;
use crate::runtime::queue::Retry;
use crate::runtime::store::{Change, Store};

use super::Site;
use super::site::Remarks;

use act::Known;
use inside::Doors;
use planes::Planes;
use snapshots::Snapshots;

/// Adds the controller.
pub fn add(site: &Site, group: &mut Group) {
    let settings = &site.settings;
    let care = &settings.controllers.shoot_care;
    // An API server that does not answer holds a worker for seconds: the others keep half of them.
    let half = u32::try_from(settings.edge.workers / 2).unwrap_or(u32::MAX).max(1);
    let lane = group.lane("shoot-care", care.workers.min(half), Retry::up_to(care.sync_period));
    let asked = Asked::default();
    let asks = asked.clone();
    group.wake(&lane, &site.heads, move |change| {
        let reason = reason(change)?;
        if reason == Reason::Asked {
            asks.all().insert(change.key.clone());
        }
        Some(change.key.clone())
    });
    let has_backup = settings.seed_config.spec["backup"].is_object();
    let (registrations, installations) =
        (site.registrations.store().clone(), site.installations.store().clone());
    let mode = settings.edge.etcd.mode;
    let reconciler = CareReconciler {
        planes: Planes::new(site.seed.clone(), (mode, has_backup), registrations, installations),
        snapshots: settings.edge.etcd.snapshots.as_ref().map(|_| Snapshots::default()),
        doors: Doors { served: site.served.clone(), connector: site.shoots.clone() },
        garden: site.garden.clone(),
        seed: site.seed.clone(),
        seed_name: site.seed_name().to_owned(),
        settings: Arc::clone(settings),
        heads: site.heads.store().clone(),
        managed: site.managed.store().clone(),
        remarks: Arc::clone(&site.remarks),
        asked,
        known: Mutex::default(),
    };
    group.run(lane, reconciler);
}

/// Why a Shoot is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    /// It is new here: there is no hurry.
    New,
    /// It is another one than before.
    Asked,
    /// It is gone: what is remembered of it goes, too.
    Gone,
}

fn reason(change: &Change<ShootHead>) -> Option<Reason> {
    let Some(new) = &change.new else { return Some(Reason::Gone) };
    let Some(old) = &change.old else { return Some(Reason::New) };
    let was_scheduled = old.status.seed_name.is_empty() && !new.status.seed_name.is_empty();
    (was_scheduled || was_reconciled(&old.status, &new.status)).then_some(Reason::Asked)
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

/// Shoots that were asked for since they were looked at. Cheap to clone.
#[derive(Clone, Debug, Default)]
struct Asked(Arc<Mutex<SortedSet<Key>>>);

impl Asked {
    fn all(&self) -> MutexGuard<'_, SortedSet<Key>> {
        // Single calls change the set: no panic can leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct CareReconciler {
    garden: Garden,
    seed: Seed,
    /// The name of the Seed.
    seed_name: String,
    settings: Arc<Settings>,
    heads: Store<ShootHead>,
    managed: Store<Watched>,
    /// What keeps all ManagedResources from being applied, if something does.
    remarks: Remarks,
    planes: Planes,
    /// What became of the snapshots of etcds, if they are taken.
    snapshots: Option<Snapshots>,
    doors: Doors,
    asked: Asked,
    known: Mutex<SortedMap<Key, Known>>,
}

impl CareReconciler {
    fn known(&self) -> MutexGuard<'_, SortedMap<Key, Known>> {
        // Single calls change the map: no panic can leave it half changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconciler for CareReconciler {
    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        let is_asked = self.asked.all().remove(key);
        let before = self.known().remove(key);
        let Some(head) = self.heads.get(key) else { return Ok(Outcome::Done) };
        if head.status.seed_name.is_empty() {
            return Ok(Outcome::After(pace::UNSCHEDULED));
        }
        if head.status.seed_name != self.seed_name {
            return Ok(Outcome::Done);
        }
        let mut known = before.filter(|known| known.is_of(&head)).unwrap_or_else(|| {
            let is_current = head.metadata.generation == head.status.observed_generation;
            Known::new(&head, pace::first(is_current, self.settings.controllers.shoot_care.sync_period, cx))
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
