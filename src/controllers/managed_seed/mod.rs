//! ManagedSeeds: Shoots that become seeds because an agent is deployed to them (Gardener's `managedseed`), and Shoots
//! with the older annotation, which act as ManagedSeeds that only this agent knows.
//!
//! There is no watch: ManagedSeeds are listed once a minute, and every five minutes while this seed has none. A correct
//! ManagedSeed is not written.

mod act;
mod annotated;
mod delete;
mod subject;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::{MANAGED_SEED, SHOOT};
use crate::api::meta::{ALL_NAMESPACES, Key, text};
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::base::sorted::SortedMap;
use crate::config::settings::ManagedSeedController;
use crate::deployer::report::{self, ConditionReport};
use crate::extension::problem;
use crate::flow::Failed;
use crate::format::view;
use crate::kube::{Error, ListParams, Patch};
use crate::limits;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::events::{Event, InvolvedObject};
use crate::runtime::group::ControllerGroup;
use crate::runtime::pool::Lane;
use crate::runtime::queue::Retry;
use crate::runtime::write;

use super::Site;
use delete::DeletionProgress;
use subject::{ManagedSeedHead, Subject, is_reconciled};

/// Whether the Shoot is ready.
const SHOOT_RECONCILED: &str = "ShootReconciled";
/// Whether its agent is deployed.
const SEED_REGISTERED: &str = "SeedRegistered";
const FINALIZER: &str = "gardener";
const CONTROLLER: &str = "managedseed-controller";
/// How often ManagedSeeds are listed.
const PERIOD: Duration = Duration::from_secs(60);
/// How often, if there is none, or the garden does not serve the kind or denies the list.
const ABSENT_PERIOD: Duration = Duration::from_secs(300);
/// People fix failures; the next try follows within five minutes.
const RETRY: Retry = Retry { first: Duration::from_secs(5), max: Duration::from_secs(300) };

/// The state that the controllers of this folder share.
struct ManagedSeedContext {
    site: Arc<Site>,
    known: KnownManagedSeeds,
}

/// The ManagedSeeds that were listed last. Cheap to clone.
#[derive(Clone, Default)]
struct KnownManagedSeeds(Arc<Mutex<SortedMap<Key, Entry>>>);

struct Entry {
    head: ManagedSeedHead,
    /// When it is due, even without a change.
    due: Mono,
}

impl KnownManagedSeeds {
    fn lock(&self) -> MutexGuard<'_, SortedMap<Key, Entry>> {
        // Only single calls change the map: a panic cannot leave it half changed.
        self.0.lock().ignore_poison()
    }

    fn has(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// Whether a ManagedSeed turns this Shoot into a seed.
    fn has_shoot(&self, shoot: &Key) -> bool {
        let known = self.lock();
        known.iter().any(|(key, entry)| key.namespace == shoot.namespace && entry.head.shoot() == shoot.name)
    }

    /// Returns the changes of a new list. `jitter` is a random time within the period over
    /// which reconciliations are spread.
    fn replace(
        &self,
        listed: Vec<ManagedSeedHead>,
        settings: &ManagedSeedController,
        now: Mono,
        jitter: &dyn Fn() -> Duration,
    ) -> Vec<Key> {
        let mut known = self.lock();
        let before = std::mem::take(&mut *known);
        let mut woken = Vec::new();
        for head in listed {
            let key = head.metadata.key();
            let old = before.get(&key);
            let is_same = old.is_some_and(|old| old.head.asks() == head.asks());
            let due = match old {
                Some(old) if is_same => old.due,
                _ => now.saturating_add(if waits(&head, settings) { jitter() } else { Duration::ZERO }),
            };
            if !is_same {
                woken.push(key.clone());
            }
            known.insert(key, Entry { head, due });
        }
        woken
    }

    /// The time until it is due.
    fn left(&self, key: &Key, now: Mono) -> Duration {
        self.lock().get(key).map_or(Duration::ZERO, |entry| entry.due.saturating_sub(now))
    }

    /// Records when it is due next, unless it has changed since that generation.
    fn set_due(&self, key: &Key, generation: i64, due: Mono) {
        let mut known = self.lock();
        if let Some(entry) = known.get_mut(key).filter(|entry| entry.head.metadata.generation <= generation) {
            entry.due = due;
        }
    }
}

/// Whether a ManagedSeed that was just discovered can wait: after a start, or if changes are spread.
fn waits(head: &ManagedSeedHead, settings: &ManagedSeedController) -> bool {
    let is_new = head.metadata.generation <= 1 && !head.is_observed();
    !head.is_deleting() && !is_new && (head.is_observed() || settings.jitter_updates)
}

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let settings = site.settings.controllers.managed_seed;
    let base = Arc::new(ManagedSeedContext { site: Arc::clone(site), known: KnownManagedSeeds::default() });
    let lane = group.lane("managed-seed", settings.workers, RETRY);
    let lister = group.lane("managed-seed-list", 1, Retry::up_to(ABSENT_PERIOD));
    lister.add(Key::new("", "managedseeds"));
    // A deleted Seed lets its ManagedSeed continue.
    let known = base.known.clone();
    group.wake(&lane, &site.seeds, move |change| {
        let of = |key: &Key| known.lock().keys().find(|known| known.name == key.name).cloned();
        if change.new.is_none() { of(&change.key) } else { None }
    });
    group.run(lane.clone(), SeedReconciler(Arc::clone(&base)));
    group.run(lister, Lister { base: Arc::clone(&base), wake: lane });
    annotated::add(group, base);
}

/// Lists ManagedSeeds periodically.
struct Lister {
    base: Arc<ManagedSeedContext>,
    wake: Lane,
}

impl Reconciler for Lister {
    fn reconcile(&self, _: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let base = &self.base;
        let label_selector = format!("name.seed.gardener.cloud/{}=true", base.site.seed_name());
        let params = ListParams { label_selector, ..ListParams::default() };
        let mut listed = Vec::new();
        let found = base.site.garden.list_all::<ManagedSeedHead>(
            &MANAGED_SEED,
            ALL_NAMESPACES,
            &params,
            &mut |head| {
                if listed.len() < limits::STORE_OBJECTS_MAX {
                    listed.push(head);
                }
            },
        );
        match found {
            Ok(_) => {}
            Err(error) if error.is_not_found() || error.is_denied() => {
                return Ok(ReconcileOutcome::After(ABSENT_PERIOD));
            }
            Err(error) => return Err(error.into()),
        }
        let period = if listed.is_empty() { ABSENT_PERIOD } else { PERIOD };
        let settings = base.controller();
        let jitter = || settings.sync_jitter_period.mul_f64(random::unit());
        let woken = base.known.replace(listed, settings, cx.clock.mono(), &jitter);
        woken.into_iter().for_each(|key| self.wake.add(key));
        Ok(ReconcileOutcome::After(period))
    }
}

struct SeedReconciler(Arc<ManagedSeedContext>);

impl Reconciler for SeedReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let base = &self.0;
        let left = base.known.left(key, cx.clock.mono());
        if !left.is_zero() {
            return Ok(ReconcileOutcome::After(left));
        }
        let is_known = || base.known.has(key);
        let found = base.site.garden.find_own::<Value>(&MANAGED_SEED, key, &is_known)?;
        let Some(object) = found else { return Ok(ReconcileOutcome::Done) };
        let head = view::look::<ManagedSeedHead>(&object)?;
        let shoot = base.shoot(&Key::new(key.namespace.as_str(), head.shoot()))?;
        let is_lost = shoot.is_none();
        let mut round = ManagedSeedReconciliation {
            base,
            subject: Subject { resource: MANAGED_SEED, object, shoot: shoot.unwrap_or_default() },
            cx,
        };
        if head.is_deleting() {
            if !head.metadata.finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
                return Ok(ReconcileOutcome::Done);
            }
            return match round.delete()? {
                Some(again) => Ok(again),
                None => {
                    base.finalize(&head, false)?;
                    base.known.forget(key);
                    Ok(ReconcileOutcome::Done)
                }
            };
        }
        base.finalize(&head, true)?;
        if is_lost {
            return Err(round.fail(
                "ReconcileError",
                problem(format!(
                    "could not get shoot {}/{}: the garden does not have it, or it is on another seed",
                    key.namespace,
                    head.shoot()
                )),
            ));
        }
        let again = round.reconcile()?;
        if let ReconcileOutcome::After(period) = again {
            base.known.set_due(key, head.metadata.generation, cx.clock.mono().saturating_add(period));
        }
        Ok(again)
    }
}

impl ManagedSeedContext {
    fn controller(&self) -> &ManagedSeedController {
        &self.site.settings.controllers.managed_seed
    }

    /// The configuration of this agent, if it is merged into the new one.
    fn parent_config(&self, subject: &Subject) -> Option<&Value> {
        subject.merges().then_some(&self.site.settings.document)
    }

    /// The garden does not show Shoots of other seeds, nor whether they exist.
    fn shoot(&self, key: &Key) -> Result<Option<Value>, Error> {
        let is_known = || self.site.heads.store().may_have(key);
        self.site.garden.find_own(&SHOOT, key, &is_known)
    }

    fn finalize(&self, head: &ManagedSeedHead, present: bool) -> Result<(), Error> {
        let metadata = &head.metadata;
        write::finalizer(&self.site.garden, &MANAGED_SEED, &metadata.key(), metadata, FINALIZER, present)
    }
}

/// One reconciliation of a subject.
struct ManagedSeedReconciliation<'a> {
    base: &'a ManagedSeedContext,
    subject: Subject,
    cx: &'a ReconcileContext,
}

impl ManagedSeedReconciliation<'_> {
    fn reconcile(&mut self) -> Result<ReconcileOutcome, ReconcileFailure> {
        let (settings, subject) = (self.base.controller(), &self.subject);
        if let Err(failed) = subject.config() {
            self.complain("ReconcileError", &failed)?;
            return Ok(ReconcileOutcome::Done);
        }
        let shoot = format!("{}/{}", subject.key().namespace, text(&subject.shoot["metadata"]["name"]));
        if !is_reconciled(&subject.shoot) {
            let message = format!("Waiting for shoot {shoot:?} to be reconciled");
            self.tell(&[ConditionReport::new(SHOOT_RECONCILED, false, "Reconciling", message)])?;
            return Ok(ReconcileOutcome::After(settings.wait_sync_period));
        }
        let is_there = ConditionReport::new(
            SHOOT_RECONCILED,
            true,
            "Reconciled",
            format!("Shoot {shoot:?} has been reconciled"),
        );
        if let Err(failed) = act::deploy(self.base, &self.subject, self.cx) {
            if failed.postponed.is_none() {
                self.tell(&[is_there])?;
            }
            return Err(self.fail("ReconcileError", failed));
        }
        let name = self.subject.name();
        let message = format!("Seed {name} has been registered");
        self.tell(&[is_there, ConditionReport::new(SEED_REGISTERED, true, "Reconciled", message)])?;
        Ok(ReconcileOutcome::After(settings.sync_period))
    }

    /// One step of its deletion; `None` when it is done.
    fn delete(&mut self) -> Result<Option<ReconcileOutcome>, ReconcileFailure> {
        let settings = self.base.controller();
        let (message, again) = match delete::step(self.base, &self.subject, self.cx) {
            Err(failed) => return Err(self.fail("DeleteError", failed)),
            // The end of the Seed wakes us.
            Ok(DeletionProgress::Seed(message)) => (message, settings.sync_period.min(PERIOD)),
            Ok(DeletionProgress::Agent(message)) => (message, settings.wait_sync_period),
            Ok(DeletionProgress::Done) => {
                let message = format!("Seed {} has been unregistered", self.subject.name());
                self.tell(&[ConditionReport::new(SEED_REGISTERED, false, "Deleted", message)])?;
                return Ok(None);
            }
        };
        self.tell(&[ConditionReport::new(SEED_REGISTERED, false, "Deleting", message)])?;
        Ok(Some(ReconcileOutcome::After(again)))
    }

    /// Writes conditions if something changed. A stand-in for a Shoot has no conditions.
    fn tell(&mut self, reports: &[ConditionReport]) -> Result<(), ReconcileFailure> {
        let (key, subject) = (self.subject.key(), &mut self.subject);
        if subject.resource.kind != MANAGED_SEED.kind {
            return Ok(());
        }
        let Some(patch) = report::patch(&subject.object, reports, self.cx.clock.now()) else { return Ok(()) };
        match self.base.site.garden.patch_status::<Value>(&MANAGED_SEED, &key, &Patch::Strategic(patch)) {
            Ok(object) => subject.object = object,
            // A deleted object needs no conditions.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Reports a failure as condition and event.
    fn complain(&mut self, reason: &'static str, failed: &Failed) -> Result<(), ReconcileFailure> {
        let action = if reason == "DeleteError" { "Delete" } else { "Reconcile" };
        let news = Event { controller: CONTROLLER, warning: true, reason, action, note: &failed.text };
        self.announce(news);
        self.tell(&[ConditionReport::failed(SEED_REGISTERED, reason, failed)])
    }

    fn announce(&self, news: Event<'_>) {
        let Key { namespace, name } = self.subject.key();
        let uid = text(&self.subject.object["metadata"]["uid"]);
        let about =
            InvolvedObject { resource: &self.subject.resource, namespace: &namespace, name: &name, uid };
        self.cx.events.tell(&self.base.site.garden, &self.cx.clock, about, news);
    }

    /// Reports a failure that is retried.
    fn fail(&mut self, reason: &'static str, failed: Failed) -> ReconcileFailure {
        if failed.postponed.is_none()
            && let Err(error) = self.complain(reason, &failed)
        {
            return error;
        }
        failed.into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn head(name: &str, generation: i64, observed: i64, is_deleting: bool) -> ManagedSeedHead {
        let deleted = if is_deleting { json!("2026-01-01T00:00:00Z") } else { Value::Null };
        serde_json::from_value(
            json!({"metadata": {"namespace": "garden", "name": name, "uid": "u", "generation": generation,
            "deletionTimestamp": deleted}, "spec": {"shoot": {"name": format!("s-{name}")}},
            "status": {"observedGeneration": observed}}),
        )
        .unwrap()
    }

    #[test]
    fn when_managed_seeds_are_due() {
        let settings = |jitter_updates| ManagedSeedController {
            workers: 1,
            sync_period: Duration::from_secs(3_600),
            wait_sync_period: Duration::from_secs(15),
            sync_jitter_period: Duration::from_secs(300),
            jitter_updates,
        };
        // Generation, observed generation, whether it is being deleted; whether it waits, without and with spread
        // changes.
        let table = [
            (1, 0, false, false, false),
            (1, 1, false, true, true),
            (2, 2, false, true, true),
            (2, 1, false, false, true),
            (2, 2, true, false, false),
        ];
        for (generation, observed, is_deleting, plain, spread) in table {
            let head = head("a", generation, observed, is_deleting);
            let found = (waits(&head, &settings(false)), waits(&head, &settings(true)));
            assert_eq!(found, (plain, spread), "{generation} {observed} {is_deleting}");
        }
        let (known, jitter) = (KnownManagedSeeds::default(), || Duration::from_secs(100));
        let at = Duration::from_secs;
        let key = |name: &str| Key::new("garden", name);
        let list = |heads: Vec<ManagedSeedHead>, now| known.replace(heads, &settings(false), now, &jitter);
        let woken = list(vec![head("a", 1, 0, false), head("b", 1, 1, false)], at(10));
        assert_eq!(woken, [key("a"), key("b")]);
        assert_eq!((known.left(&key("a"), at(10)), known.left(&key("b"), at(10))), (at(0), at(100)));
        assert!(known.has_shoot(&key("s-a")) && !known.has_shoot(&key("a")));
        known.set_due(&key("a"), 1, at(5_000));
        assert_eq!(list(vec![head("a", 1, 1, false), head("b", 1, 1, false)], at(70)), []);
        assert_eq!(known.left(&key("a"), at(70)), at(4_930));
        // One is changed, and the other one is deleted.
        assert_eq!(list(vec![head("a", 2, 1, false)], at(80)), [key("a")]);
        // A reconciliation of an older generation says nothing about the present one.
        known.set_due(&key("a"), 1, at(9_000));
        assert_eq!((known.left(&key("a"), at(80)), known.has_shoot(&key("s-b"))), (at(0), false));
    }
}
