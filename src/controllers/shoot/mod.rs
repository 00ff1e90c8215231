//! Shoots: when one is reconciled, the tasks, and the reports (Gardener's `shoot`).
//!
//! Woken by a new generation of the Shoot, by its deletion, and once per `controllers.shoot.syncPeriod`.

mod act;
mod begin;
pub(crate) mod decide;
mod finish;
pub(crate) mod left;
mod release;
pub(crate) mod report;
mod rotation;
pub(crate) mod status;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::{SEED, SHOOT, ShootHead};
use crate::api::meta::Key;
use crate::base::json::json;
use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::operation::Environment;
use crate::operation::found::departure;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::Retry;
use crate::runtime::store::Change;
use crate::shoot::has_foreign_workers;

use super::Site;

use decide::{ShootDecision, ShootDecisionInput};

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let settings = &site.settings;
    let lane = group.lane("shoot", settings.controllers.shoot.workers, RETRY);
    let listed = ListedShoots::default();
    let new = listed.clone();
    group.wake(&lane, &site.heads, move |change| {
        new.hear(change);
        wants_reconcile(change).then(|| change.key.clone())
    });
    let agent = &site.agent;
    let reconciler = ShootReconciler {
        site: Arc::clone(site),
        env: Arc::new(environment(site)),
        agent: json!({"id": agent.id, "name": agent.name, "version": agent.version}),
        listed,
        running: Mutex::default(),
    };
    group.run(lane, reconciler);
}

fn environment(site: &Site) -> Environment {
    Environment {
        garden: site.garden.clone(),
        seed: site.seed.clone(),
        settings: Arc::clone(&site.settings),
        installations: site.installations.store().clone(),
        registrations: site.registrations.store().clone(),
        managed: site.managed.store().clone(),
        keys: Arc::clone(&site.keys),
        images: site.images.clone(),
        parent: site.parent.clone(),
        connector: site.shoots.clone(),
        served: site.served.clone(),
    }
}

struct ShootReconciler {
    site: Arc<Site>,
    env: Arc<Environment>,
    /// Our identity: `status.gardener`.
    agent: Value,
    listed: ListedShoots,
    /// The operations that wait for their next turns.
    running: Mutex<SortedMap<Key, act::RunningShootFlow>>,
}

/// The delay after a write conflict.
const CONFLICT_RETRY: Duration = Duration::from_millis(50);
/// The shortest time between two progress reports of a flow.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);
/// Upstream's first delay is 5 ms. Here, a failure was already retried for half a minute.
const RETRY: Retry = Retry { first: Duration::from_secs(1), max: Duration::from_secs(60) };

impl Reconciler for ShootReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        if let Some(running) = self.unfinished(key) {
            return self.turn(key, running, cx);
        }
        let is_known = || self.site.heads.store().may_have(key);
        let found = self.env.garden.find_own::<Value>(&SHOOT, key, &is_known)?;
        let Some(shoot) = found else { return Ok(ReconcileOutcome::Done) };
        let seed = self.env.garden.get::<Value>(&SEED, &self.site.seed_key())?;
        let now = cx.clock.now();
        let departure = departure::look(&self.env.garden, &self.env.seed, &shoot, &seed)?;
        let (is_listed, obstacle) = (self.listed.has(key), departure.obstacle());
        let input = ShootDecisionInput { is_listed, obstacle, ..self.input(&shoot, &seed, cx) };
        let decision = decide::decide(&input);
        if !matches!(decision, ShootDecision::Blocked { .. }) {
            self.listed.remove(key);
        }
        match decision {
            ShootDecision::Nothing => Ok(ReconcileOutcome::Done),
            ShootDecision::Now(operation) if release::is_due(operation, &shoot) => {
                self.release(key, &shoot, cx)
            }
            ShootDecision::Now(operation) => self.begin(key, &shoot, seed, operation, cx),
            ShootDecision::Later { after, is_synced, why } => {
                let name = key.to_string();
                log::debug!(shoot = name.as_str(), why = why.as_str(); "The Shoot is not reconciled now");
                self.say(key, status::pending(&shoot))?;
                if is_synced {
                    begin::sync_only(&self.env, &shoot, &seed)?;
                }
                Ok(after.map_or(ReconcileOutcome::Done, ReconcileOutcome::After))
            }
            ShootDecision::Blocked { why, after } => {
                let is_error = has_foreign_workers(&shoot, input.host_types);
                self.say(key, status::blocked(&shoot, &why, is_error, now))?;
                Ok(ReconcileOutcome::After(after))
            }
        }
    }
}

impl ShootReconciler {
    fn input<'a>(
        &'a self,
        shoot: &'a Value,
        seed: &'a Value,
        cx: &ReconcileContext,
    ) -> ShootDecisionInput<'a> {
        let settings = &self.env.settings.controllers.shoot;
        ShootDecisionInput {
            shoot,
            seed,
            agent: &self.agent,
            settings,
            now: cx.clock.now(),
            is_listed: false,
            share: random::unit(),
            host_types: &self.env.settings.edge.host_types,
            obstacle: None,
        }
    }

    fn say(&self, key: &Key, patch: Option<Value>) -> Result<(), ReconcileFailure> {
        patch.map_or(Ok(()), |patch| Ok(self.patch_status(key, patch).map(drop)?))
    }

    /// When to check a Shoot again after an operation.
    fn again(&self, shoot: &Value, seed: &Value, cx: &ReconcileContext) -> ReconcileOutcome {
        self.input(shoot, seed, cx).again_after().map_or(ReconcileOutcome::Done, ReconcileOutcome::After)
    }
}

/// Shoots that were listed or created, and await their first decision. Cheap to clone.
#[derive(Clone, Debug, Default)]
struct ListedShoots(Arc<Mutex<SortedSet<Key>>>);

impl ListedShoots {
    fn all(&self) -> MutexGuard<'_, SortedSet<Key>> {
        self.0.lock().ignore_poison()
    }

    fn hear(&self, change: &Change<ShootHead>) {
        match (&change.old, &change.new) {
            (None, Some(_)) => drop(self.all().insert(change.key.clone())),
            (_, None) => self.remove(&change.key),
            _ => {}
        }
    }

    fn has(&self, key: &Key) -> bool {
        self.all().contains(key)
    }

    fn remove(&self, key: &Key) {
        self.all().remove(key);
    }
}

/// Whether a change of the Shoot requires a reconciliation: a new generation, a deletion, or a change of the
/// annotations that ignore it or force its deletion.
fn wants_reconcile(change: &Change<ShootHead>) -> bool {
    let Some(new) = &change.new else { return false };
    let asks_for = |head: &ShootHead| {
        let metadata = &head.metadata;
        let ignored = metadata.annotations.get(decide::IGNORE).cloned();
        let is_forced = decide::is_forced(&metadata.annotations);
        (metadata.generation, metadata.deletion_timestamp.is_some(), ignored, is_forced)
    };
    change.old.as_ref().is_none_or(|old| asks_for(old) != asks_for(new))
}
