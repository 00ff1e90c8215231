//! Checks whether extensions have changed Bastions. A watch on their objects would cost a thread and a connection for a
//! kind that most seeds never have. Instead, all of them are listed at once: every few seconds while one is pending,
//! once a minute while there are any, and not at all otherwise.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::Deserialize;

use crate::api::extensions::BASTION;
use crate::api::meta::{ALL_NAMESPACES, Key, ObjectMeta};
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::kube::{ListParams, Seed};
use crate::limits;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::pool::Lane;
use crate::runtime::store::Store;

use super::status::BastionHead;

/// How often objects are listed while one is pending.
const WAITING_PERIOD: Duration = Duration::from_secs(5);
/// How often objects are listed otherwise.
const PERIOD: Duration = Duration::from_secs(60);
/// After this time, a pending object is polled less often.
const HASTE: Duration = Duration::from_secs(600);

/// The versions of the objects that were read: by the key of the Bastion, the key of its object and the version; empty
/// if there was none. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenVersions(Arc<Mutex<SortedMap<Key, (Key, String)>>>);

impl SeenVersions {
    fn lock(&self) -> MutexGuard<'_, SortedMap<Key, (Key, String)>> {
        // Only single calls change the map: a panic cannot leave it half changed.
        self.0.lock().ignore_poison()
    }

    /// Records that the object was read.
    pub(super) fn note(&self, bastion: &Key, object: Key, version: &str) {
        self.lock().insert(bastion.clone(), (object, version.to_owned()));
    }

    /// The Bastion needs no further checks.
    pub(super) fn forget(&self, bastion: &Key) {
        self.lock().remove(bastion);
    }

    /// Bastions whose objects have changed since they were read.
    fn changed(&self, listed: &SortedMap<Key, String>) -> Vec<Key> {
        let seen = self.lock();
        let is_other = |object: &Key, version: &String| match listed.get(object) {
            Some(now) => now != version,
            None => !version.is_empty(),
        };
        let others = seen.iter().filter(|(_, (object, version))| is_other(object, version));
        others.map(|(bastion, _)| bastion.clone()).collect()
    }
}

/// The fields that are read from an object.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ListedBastion {
    metadata: ObjectMeta,
}

#[derive(Default)]
struct PollMemory {
    /// When objects were last listed.
    last: Option<Mono>,
    /// Since when a Bastion is pending, with its generation.
    since: SortedMap<Key, (i64, Mono)>,
}

/// See the module. The controller has one key.
pub(super) struct BastionPoller {
    pub(super) seed: Seed,
    pub(super) bastions: Store<BastionHead>,
    pub(super) seen: SeenVersions,
    /// The queue of the Bastions.
    pub(super) wake: Lane,
    memory: Mutex<PollMemory>,
}

impl BastionPoller {
    pub(super) fn new(seed: Seed, bastions: Store<BastionHead>, seen: SeenVersions, wake: Lane) -> Self {
        Self { seed, bastions, seen, wake, memory: Mutex::default() }
    }

    pub(super) fn key() -> Key {
        Key::new("", "bastions")
    }

    /// How long to wait before the next check; `None`: there are no Bastions.
    fn period(&self, now: Mono) -> Option<Duration> {
        let all = self.bastions.all();
        if all.is_empty() {
            return None;
        }
        let mut memory = self.memory.lock().ignore_poison();
        let waiting: Vec<_> = all.iter().filter(|(_, head)| head.waits()).collect();
        let before = std::mem::take(&mut memory.since);
        for (key, head) in waiting {
            let generation = head.metadata.generation;
            let known = before.get(key).filter(|(known, _)| *known == generation);
            memory.since.insert(key.clone(), known.copied().unwrap_or((generation, now)));
        }
        let is_hasty = memory.since.values().any(|(_, since)| now.saturating_sub(*since) < HASTE);
        Some(if is_hasty { WAITING_PERIOD } else { PERIOD })
    }
}

impl Reconciler for BastionPoller {
    fn reconcile(&self, _: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let now = cx.clock.mono();
        let Some(period) = self.period(now) else { return Ok(ReconcileOutcome::Done) };
        let last = self.memory.lock().ignore_poison().last;
        let left = last.map_or(Duration::ZERO, |last| period.saturating_sub(now.saturating_sub(last)));
        if !left.is_zero() {
            return Ok(ReconcileOutcome::After(left));
        }
        let mut listed = SortedMap::new();
        let found = self.seed.list_all::<ListedBastion>(
            &BASTION,
            ALL_NAMESPACES,
            &ListParams::default(),
            &mut |object| {
                let metadata = object.metadata;
                if listed.len() < limits::STORE_OBJECTS_MAX {
                    listed.insert(metadata.key(), metadata.resource_version);
                }
            },
        );
        match found {
            // Without the definition, there are no objects.
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        self.memory.lock().ignore_poison().last = Some(now);
        self.seen.changed(&listed).into_iter().for_each(|key| self.wake.add(key));
        Ok(ReconcileOutcome::After(period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_objects_have_changed() {
        let key = |name: &str| Key::new("garden-p", name);
        let object = |name: &str| Key::new("shoot--p--s", name);
        let seen = SeenVersions::default();
        for (name, version) in [("same", "1"), ("other", "1"), ("gone", "1"), ("none", ""), ("new", "")] {
            seen.note(&key(name), object(name), version);
        }
        seen.note(&key("left"), object("left"), "1");
        seen.forget(&key("left"));
        let listed = [("same", "1"), ("other", "2"), ("new", "1"), ("stranger", "1")];
        let listed = listed.map(|(name, version)| (object(name), version.to_owned())).into();
        assert_eq!(seen.changed(&listed), [key("gone"), key("new"), key("other")]);
    }
}
