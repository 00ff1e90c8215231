//! ShootStates: the part of a Shoot that cannot be recreated and is stored in the garden, its keys and the states of
//! its extensions (Gardener's `shoot-state`).
//!
//! Upstream writes them once per `controllers.shootState.syncPeriod`. Here they are also written after changes: woken
//! by Secrets to keep, by states of extensions, and by a finished creation. Their content is not kept in memory: a hash
//! shows whether the garden has it. While a Shoot moves to another seed, its migration writes the ShootState, and this
//! controller does not. A write that is under way when the migration begins loses against what the migration has written: it
//! has the resourceVersion of the ShootState as it was while the Shoot did not move.

pub(crate) mod decide;
mod watch;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use serde_json::Value;

use crate::api::extensions::{DNS_RECORD, EXTENSION};
use crate::api::gardener::{MANAGED_SEED, SHOOT, SHOOT_STATE, ShootHead};
use crate::api::meta::{ALL_NAMESPACES, Key, text};
use crate::base::clock::{Mono, Timestamp};
use crate::base::json::json;
use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::base::sorted::SortedMap;
use crate::extension::TIMESTAMP;
use crate::extension::changed::has_ended;
use crate::format::time::{parse_rfc3339, rfc3339};
use crate::kube::{Error, ErrorVerdict, ListItem, ListParams, Patch};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::events::{Event, InvolvedObject};
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::Options;
use crate::runtime::marks::Marks;
use crate::runtime::pool::Lane;
use crate::runtime::queue::Retry;
use crate::runtime::store::Change;

use crate::shoot::state::{
    self, CollectedState, CollectionScope, ControlPlanePlace, SELECTOR, ShootState, collect, machines_of,
};

use super::Site;

use decide::{CheckTurn, KeptState, ShootStateDecision, ShootStateMemory};
use watch::States;

/// A ShootState must follow a change within a minute, also after failures.
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// Adds the controller, unless it is disabled.
pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let settings = site.settings.controllers.shoot_state;
    if settings.workers == 0 {
        return;
    }
    let lane = group.lane("shoot-state", settings.workers, Retry::up_to(AGAIN_MAX));
    let planes = Planes::default();
    let known = planes.clone();
    group.wake(&lane, &site.heads, move |change| known.hear(change));
    watch_seed(site, group, &lane, &planes);
    let reconciler =
        ShootStateReconciler { site: Arc::clone(site), is_managed: OnceLock::new(), memos: Mutex::default() };
    group.run(lane, reconciler);
}

fn watch_seed(site: &Site, group: &mut ControllerGroup, lane: &Lane, planes: &Planes) {
    let secrets = Marks::default();
    let known = planes.clone();
    group.wake_seen(lane, &secrets, move |secret| known.of(&secret.key.namespace).into_iter().collect());
    let (known, woken) = (planes.clone(), lane.clone());
    group.keep(secrets.listen_gone(move |key| match key {
        Some(key) => known.of(&key.namespace).into_iter().for_each(|key| woken.add(key)),
        None => known.all().into_iter().for_each(|key| woken.add(key)),
    }));
    let persisted = Options {
        label_selector: SELECTOR.to_owned(),
        metadata_only: true,
        ..Options::all("seed/persisted-secrets", crate::api::core::SECRET)
    };
    group.watch(&site.seed, persisted, &secrets);
    let known = planes.clone();
    group.wake(lane, &site.entry_objects, move |change| {
        // The namespace of the control plane, and the Shoot's uid in Gardener.
        let (plane, _) = change.key.name.rsplit_once("--")?;
        has_ended(change).then(|| known.of(plane)).flatten()
    });
    for (name, resource) in [("seed/extensions", EXTENSION), ("seed/dnsrecords", DNS_RECORD)] {
        let states = States::default();
        let (known, woken) = (planes.clone(), lane.clone());
        group.keep(states.listen(move |key| {
            known.of(&key.namespace).into_iter().for_each(|key| woken.add(key));
        }));
        group.watch(&site.seed, Options::all(name, resource), &states);
    }
}

/// The Shoot of each control plane namespace in the seed. Cheap to clone.
#[derive(Clone, Debug, Default)]
struct Planes(Arc<Mutex<SortedMap<String, Key>>>);

impl Planes {
    fn lock(&self) -> MutexGuard<'_, SortedMap<String, Key>> {
        // Only single calls change the map: a panic cannot leave it half changed.
        self.0.lock().ignore_poison()
    }

    fn of(&self, namespace: &str) -> Option<Key> {
        self.lock().get(namespace).cloned()
    }

    fn all(&self) -> Vec<Key> {
        self.lock().values().cloned().collect()
    }

    /// Records the Shoot's namespace. Returns its key if the Shoot is new or gone, or its ShootState may be
    /// written from now on.
    fn hear(&self, change: &Change<ShootHead>) -> Option<Key> {
        let plane = |head: &Option<Arc<ShootHead>>| {
            head.as_ref().map(|head| head.status.technical_id.clone()).filter(|id| !id.is_empty())
        };
        let (old, new) = (plane(&change.old), plane(&change.new));
        if old != new {
            let mut planes = self.lock();
            old.map(|old| planes.remove(&old));
            new.map(|new| planes.insert(new, change.key.clone()));
        }
        let is_ready = |head: &Option<Arc<ShootHead>>| {
            head.as_ref().map(|head| {
                let last = head.status.last_operation.as_ref();
                last.is_some_and(|last| decide::is_ready(&last.kind, &last.state))
            })
        };
        (is_ready(&change.old) != is_ready(&change.new)).then(|| change.key.clone())
    }
}

struct ShootStateReconciler {
    site: Arc<Site>,
    /// The seed is the cluster of a Shoot (a ManagedSeed).
    is_managed: OnceLock<bool>,
    memos: Mutex<SortedMap<Key, ShootStateMemory>>,
}

impl Reconciler for ShootStateReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let begun = cx.clock.mono();
        if let CheckTurn::Wait(until) = self.lock().entry(key.clone()).or_default().turn(begun) {
            return Ok(ReconcileOutcome::At(until));
        }
        if self.is_managed()? {
            return Ok(self.leave(key));
        }
        let shoot = match self.due(key, begun)? {
            ControlFlow::Continue(shoot) => shoot,
            ControlFlow::Break(outcome) => return Ok(outcome),
        };
        let memo = self.lock().get(key).cloned().unwrap_or_default();
        let present = self.present(key, memo.known.clone())?;
        let place = ControlPlanePlace::of(&shoot);
        let content = collect(&self.site.seed, &place, CollectionScope::Possible, present.machines.as_ref())?;
        let now = cx.clock.now();
        let is_current = |state: &KeptState| {
            state.digest == content.digest && !decide::is_due(state.at, self.period(), now)
        };
        let written = match present.state {
            Some(state) if is_current(&state) => Written { state, is_new: false },
            state => {
                // A migration that has begun since then may have written what was read just now.
                if present.is_fresh
                    && let ControlFlow::Break(outcome) = self.due(key, begun)?
                {
                    return Ok(outcome);
                }
                let version = state.as_ref().map(|state| state.version.as_str());
                self.apply(key, &content, version, now)?
            }
        };
        let lacks = content.lacks();
        let is_owed = memo.is_news(lacks, written.is_new) && !self.tell(key, &shoot, &content.left_out, cx);
        let next = decide::next(written.state.at, self.period(), now, random::unit());
        // Only the event tells people that a ShootState is incomplete, so the next check writes a lost one again.
        let (next, told) = if is_owed { (next.min(decide::UNREADY), None) } else { (next, lacks) };
        let at = begun.saturating_add(next);
        let memo = ShootStateMemory::looked(begun, at, written.state, told);
        self.lock().insert(key.clone(), memo);
        Ok(ReconcileOutcome::At(at))
    }
}

/// What the garden has before a check.
#[derive(Default)]
struct PresentState {
    state: Option<KeptState>,
    /// The entry with the state of machines.
    machines: Option<Value>,
    /// It was read just now.
    is_fresh: bool,
}

impl PresentState {
    fn of(found: &ShootState) -> Self {
        let machines = machines_of(found.spec()).cloned();
        // A state without a time is written again.
        let at = parse_rfc3339(found.annotation(TIMESTAMP)).unwrap_or(Timestamp::from_unix(0));
        let (digest, version) = (state::digest(found.spec()), found.version().to_owned());
        let state = KeptState { digest, at, version, has_machines: machines.is_some() };
        Self { state: Some(state), machines, is_fresh: true }
    }
}

/// What the garden has after a check.
struct Written {
    state: KeptState,
    /// It was written just now.
    is_new: bool,
}

impl ShootStateReconciler {
    /// Field `syncPeriod` of the configuration.
    fn period(&self) -> Duration {
        self.site.settings.controllers.shoot_state.sync_period
    }

    fn lock(&self) -> MutexGuard<'_, SortedMap<Key, ShootStateMemory>> {
        // Only single calls change the map: a panic cannot leave it half changed.
        self.memos.lock().ignore_poison()
    }

    fn leave(&self, key: &Key) -> ReconcileOutcome {
        self.lock().remove(key);
        ReconcileOutcome::Done
    }

    /// The Shoot whose ShootState must have the present state, or what to do instead.
    fn due(&self, key: &Key, begun: Mono) -> Result<ControlFlow<ReconcileOutcome, Value>, ReconcileFailure> {
        let is_known = || self.site.heads.store().may_have(key);
        let found = self.site.garden.find_own::<Value>(&SHOOT, key, &is_known)?;
        let Some(shoot) = found else { return Ok(ControlFlow::Break(self.leave(key))) };
        Ok(match decide::decide(&shoot, self.site.seed_name()) {
            ShootStateDecision::Due => ControlFlow::Continue(shoot),
            ShootStateDecision::Nothing => ControlFlow::Break(self.leave(key)),
            ShootStateDecision::Later(after) => {
                self.lock().entry(key.clone()).or_default().rest(begun.saturating_add(after));
                ControlFlow::Break(ReconcileOutcome::After(after))
            }
        })
    }

    /// Whether the seed's own Shoot has a ShootState, which the seed of its control plane writes.
    fn is_managed(&self) -> Result<bool, ReconcileFailure> {
        if let Some(known) = self.is_managed.get() {
            return Ok(*known);
        }
        let label_selector = format!("name.seed.gardener.cloud/{}=true", self.site.seed_name());
        let labelled = ListParams { label_selector, metadata_only: true, ..ListParams::default() };
        let mut is_managed = false;
        let mut see = |item: ListItem<Value>| match item {
            ListItem::Object(found) => is_managed |= found["metadata"]["name"] == self.site.seed_name(),
            ListItem::Undecodable(found) => is_managed |= found.key.name == self.site.seed_name(),
            ListItem::Restart => {}
        };
        match self.site.garden.list_each(&MANAGED_SEED, ALL_NAMESPACES, &labelled, &mut see) {
            Ok(_) => Ok(*self.is_managed.get_or_init(|| is_managed)),
            // A garden without ManagedSeeds.
            Err(e) if e.is_not_found() => Ok(*self.is_managed.get_or_init(|| false)),
            // The permission may be granted later.
            Err(e) if matches!(e.verdict(), ErrorVerdict::Denied) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// What the garden has: known, or read. The state of machines is not kept in memory.
    fn present(&self, key: &Key, known: Option<KeptState>) -> Result<PresentState, Error> {
        match known {
            Some(known) if !known.has_machines => {
                Ok(PresentState { state: Some(known), ..PresentState::default() })
            }
            _ => {
                let found = state::find(&self.site.garden, key)?;
                let nothing = PresentState { is_fresh: true, ..PresentState::default() };
                Ok(found.as_ref().map_or(nothing, PresentState::of))
            }
        }
    }

    /// Writes what the garden lacks. After a failure, the ShootState is read again: another writer may have changed it.
    fn apply(
        &self,
        key: &Key,
        content: &CollectedState,
        version: Option<&str>,
        now: Timestamp,
    ) -> Result<Written, Error> {
        let written = self.write(key, content, version, now).inspect_err(|_| {
            self.lock().entry(key.clone()).or_default().known = None;
        })?;
        log::info!(shoot = key.to_string().as_str(); "Wrote the ShootState");
        let has_machines = machines_of(&content.spec).is_some();
        let version = text(&written["metadata"]["resourceVersion"]).to_owned();
        let state = KeptState { digest: content.digest, at: now, version, has_machines };
        Ok(Written { state, is_new: true })
    }

    /// Errors: a request fails, or the garden has another version of the ShootState than this one.
    fn write(
        &self,
        key: &Key,
        content: &CollectedState,
        version: Option<&str>,
        now: Timestamp,
    ) -> Result<Value, Error> {
        let mut metadata = json!({"annotations": {TIMESTAMP: rfc3339(now)}});
        if let Some(version) = version {
            metadata["resourceVersion"] = json!(version);
            let mut spec = json!({"gardener": null, "extensions": null, "resources": null});
            for (list, entries) in content.spec.as_object().into_iter().flatten() {
                spec[list] = entries.clone();
            }
            let patch = Patch::Merge(json!({"metadata": metadata, "spec": spec}));
            return self.site.garden.patch(&SHOOT_STATE, key, &patch);
        }
        metadata["name"] = json!(key.name);
        metadata["namespace"] = json!(key.namespace);
        let object = json!({"apiVersion": SHOOT_STATE.api_version(), "kind": SHOOT_STATE.kind,
            "metadata": metadata, "spec": content.spec});
        self.site.garden.create(&SHOOT_STATE, &key.namespace, &object)
    }

    /// Returns whether the garden has the event.
    fn tell(&self, key: &Key, shoot: &Value, left_out: &[String], cx: &ReconcileContext) -> bool {
        let note = format!("The ShootState lacks {}", left_out.join("; "));
        let name = key.to_string();
        log::warn!(shoot = name.as_str(), why = note.as_str(); "A ShootState is incomplete");
        let uid = text(&shoot["metadata"]["uid"]);
        let about = InvolvedObject { resource: &SHOOT, namespace: &key.namespace, name: &key.name, uid };
        let news = Event {
            controller: "shoot-state-controller",
            warning: true,
            reason: "ShootStateIncomplete",
            action: "Reconcile",
            note: &note,
        };
        cx.events.tell(&self.site.garden, &cx.clock, about, news)
    }
}
