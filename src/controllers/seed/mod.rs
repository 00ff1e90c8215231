//! The Seed: registers it from the configuration, maintains its status, and prepares its seed cluster (Gardener's
//! `seed`).
//!
//! Woken by a new generation of the Seed and once per `controllers.seed.syncPeriod`. A reconciliation writes only
//! changes: an idle seed costs the garden one read per period. Upstream writes `Processing` and `Succeeded` in each
//! period; readers check state, generation and the agent's identity, which stay correct.

mod act;
mod authorities;
mod clean;
mod components;
pub(super) mod decide;
mod delete;
mod error;
mod extensions;
mod flow;
mod garden_secrets;
mod ingress;
mod observe;
mod operations;
pub(crate) mod register;
pub(super) mod registration;
mod status;
mod work;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::{self, SEED};
use crate::api::meta::Key;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::Retry;

use super::Site;

use decide::Phase;
pub(crate) use decide::{Agent, without_namespace};
pub(crate) use error::{Error, GET_NAMESPACE};
pub(crate) use registration::{SeedAbsence, SeedRegistration};

/// The finalizer of objects that Gardener manages.
pub(crate) const FINALIZER: &str = "gardener";

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let lane = group.lane("seed", 1, RETRY);
    let own = site.own_seed();
    group.wake(&lane, &site.seeds, move |change| {
        wants_reconcile(change.old.as_deref(), own(change)?).then(|| change.key.clone())
    });
    let key = site.seed_key();
    group.wake_on(&lane, &site.certificate_changed, move || [key.clone()]);
    let memory = Arc::new(work::SeedMemory::default());
    let (key, forget) = (site.seed_key(), Arc::clone(&memory));
    let own = components::managed_resources(&key.name);
    group.wake(&lane, &site.managed, move |change| {
        let is_lost = change.new.is_none() && own.contains(&change.key);
        is_lost.then(|| {
            forget.forget();
            key.clone()
        })
    });
    let reconciler = SeedReconciler {
        site: Arc::clone(site),
        origins: clean::Origins::default(),
        memory,
        running: Mutex::default(),
    };
    group.run(lane, reconciler);
}

struct SeedReconciler {
    site: Arc<Site>,
    origins: clean::Origins,
    memory: Arc<work::SeedMemory>,
    /// The reconciliation that waits for its next turn.
    running: Mutex<Option<act::RunningSeedFlow>>,
}

/// The delay after a write conflict.
const CONFLICT_RETRY: Duration = Duration::from_millis(50);

/// Upstream's first delay is 5 ms. A reconciliation reads about sixty objects, and a problem that a person
/// must fix takes longer.
const RETRY: Retry = Retry { first: Duration::from_secs(1), max: Duration::from_secs(60) };

impl Reconciler for SeedReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        if let Some(running) = self.unfinished(key) {
            return self.turn(key, running, cx);
        }
        let Some(live) = self.site.garden.find::<Value>(&SEED, key)? else {
            return Ok(ReconcileOutcome::Done);
        };
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        if !self.site.registration.is_of(uid) {
            // The Seed was recreated, so it must be registered first.
            return Ok(ReconcileOutcome::Done);
        }
        let mut observed = self.observe(live)?;
        if observed.deleting() {
            self.site.registration.is_deleted(observed.live["metadata"]["uid"].as_str().unwrap_or_default());
        }
        let phase = decide::phase(&observed);
        if matches!(phase, Phase::Begin) {
            let object = decide::begun(&observed, cx.clock.now());
            match self.site.garden.replace_status::<Value>(&SEED, key, &object) {
                // The garden and our own heartbeat may write conditions at the same time: read again.
                Err(e) if e.is_conflict() => return Ok(ReconcileOutcome::GoOn(CONFLICT_RETRY)),
                other => observed.live = other?,
            }
        }
        if observed.deleting() {
            let result = delete::step(self, key, &observed, cx.clock.now());
            return self.finish(key, &observed, phase, result, cx);
        }
        match self.prepare(key, &observed, phase, cx.clock.mono()) {
            Ok(None) => self.turn(key, self.round(&observed, phase, cx), cx),
            Ok(Some(after)) => Ok(ReconcileOutcome::GoOn(after)),
            Err(failure) => self.finish(key, &observed, phase, Err(failure), cx),
        }
    }
}

/// Whether a change of the Seed requires a reconciliation: a new generation, a deletion, an operation.
fn wants_reconcile(old: Option<&gardener::Seed>, new: &gardener::Seed) -> bool {
    let operation = |seed: &gardener::Seed| seed.metadata.annotations.get(gardener::OPERATION).cloned();
    old.is_none_or(|old| {
        old.metadata.generation != new.metadata.generation
            || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
            || operation(new).is_some() && operation(old) != operation(new)
    })
}
