//! The storage: objects by name, one revision for all of them, and the log of changes that watches read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::stop::Stop;
use serde_json::Value;

use super::kinds::Kinds;
use crate::json::text;

/// Where an object is stored.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id {
    pub group: String,
    pub plural: String,
    pub namespace: String,
    pub name: String,
}

impl Id {
    pub fn new(group: &str, plural: &str, namespace: &str, name: &str) -> Self {
        let own = str::to_owned;
        Self { group: own(group), plural: own(plural), namespace: own(namespace), name: own(name) }
    }

    pub fn is_of(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub id: Id,
    pub before: Option<Arc<Value>>,
    /// The new state. Of a deleted object: the last state, with the revision of the deletion.
    pub after: Arc<Value>,
    pub deleted: bool,
}

/// What the lock guards.
pub struct State {
    pub objects: BTreeMap<Id, Arc<Value>>,
    pub kinds: Kinds,
    pub revision: u64,
    pub log: VecDeque<Change>,
    /// The log no longer contains changes up to this revision.
    pub compacted: u64,
    log_max: usize,
    /// Grows with [`Store::wake`], so that waiters notice stops and faults.
    wakes: u64,
}

impl State {
    pub fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(&Id::new(group, plural, namespace, name))
    }

    /// All objects of a resource, of one namespace or (`""`) of all, in the order of their names.
    pub fn of<'a>(
        &'a self,
        group: &'a str,
        plural: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Id, &'a Arc<Value>)> {
        let from = Id::new(group, plural, namespace, "");
        let objects = self.objects.range(from..).take_while(move |(id, _)| id.is_of(group, plural));
        objects.take_while(move |(id, _)| namespace.is_empty() || id.namespace == namespace)
    }

    /// Writes an object under the next revision.
    pub fn put(&mut self, id: Id, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let after = Arc::new(object);
        let before = self.objects.insert(id.clone(), after.clone());
        self.record(Change { revision: self.revision, id, before, after: after.clone(), deleted: false });
        after
    }

    /// Removes an object under the next revision.
    pub fn take(&mut self, id: &Id) -> Option<Arc<Value>> {
        let before = self.objects.remove(id)?;
        self.revision += 1;
        let mut last = (*before).clone();
        last["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let after = Arc::new(last);
        let (id, before) = (id.clone(), Some(before));
        self.record(Change { revision: self.revision, id, before, after: after.clone(), deleted: true });
        Some(after)
    }

    fn record(&mut self, change: Change) {
        self.log.push_back(change);
        while self.log.len() > self.log_max {
            self.compacted = self.log.pop_front().map_or(self.compacted, |c| c.revision);
        }
    }

    /// Forgets the log: watches and paged lists that look back get 410.
    pub fn compact(&mut self) {
        self.log.clear();
        self.compacted = self.revision;
    }

    /// Restores the state of a revision, as from a backup.
    pub fn restore(&mut self, revision: u64) {
        assert!(revision >= self.compacted, "the log does not reach back to revision {revision}");
        while self.log.back().is_some_and(|change| change.revision > revision) {
            let Some(change) = self.log.pop_back() else { break };
            match change.before {
                Some(before) => self.objects.insert(change.id, before),
                None => self.objects.remove(&change.id),
            };
        }
        self.revision = revision;
        // The log does not show this.
        self.wakes += 1;
    }

    /// Writes until this revision, as other clients would.
    pub fn go_on_to(&mut self, revision: u64) {
        let id = Id::new("", "namespaces", "", "kube-system");
        while self.revision < revision {
            let Some(touched) = self.objects.get(&id).map(|object| (**object).clone()) else { return };
            self.put(id.clone(), touched);
        }
    }

    /// The objects of a resource at a revision; none if the log does not reach back so far.
    pub fn at(&self, revision: u64, group: &str, plural: &str) -> Option<BTreeMap<Id, Arc<Value>>> {
        if revision < self.compacted {
            return None;
        }
        let mut objects: BTreeMap<Id, Arc<Value>> =
            self.of(group, plural, "").map(|(id, object)| (id.clone(), object.clone())).collect();
        for change in self.log.iter().rev().take_while(|c| c.revision > revision) {
            if change.id.is_of(group, plural) {
                match &change.before {
                    Some(before) => objects.insert(change.id.clone(), before.clone()),
                    None => objects.remove(&change.id),
                };
            }
        }
        Some(objects)
    }

    /// The changes after a revision. They are numbered without gaps.
    pub fn since(&self, revision: u64) -> impl Iterator<Item = &Change> {
        let skip = revision.saturating_sub(self.compacted) as usize;
        self.log.iter().skip(skip)
    }
}

/// Lets further writes of a quick succession happen, so that a waiter looks at them together. All threads that wait for
/// the store wake up at each write, which takes more processor time than most writes.
pub fn settle() {
    Stop::new().wait(&Clock::system(), Duration::from_millis(2));
}

/// The pause after a round of work that began at `began` (real time): as long as the work, but at least `least`. It leaves
/// processor time to others, and further writes of a quick succession happen meanwhile.
pub fn rest(stop: &Stop, began: Mono, least: Duration) {
    let clock = Clock::system();
    stop.wait(&clock, clock.mono().saturating_sub(began).max(least));
}

/// The state under its lock, with a signal for every change. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<(Mutex<State>, Condvar)>);

impl Store {
    pub fn new(kinds: Kinds, log_max: usize) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            kinds,
            revision: 1,
            log: VecDeque::new(),
            compacted: 1,
            log_max,
            wakes: 0,
        };
        Self(Arc::new((Mutex::new(state), Condvar::new())))
    }

    /// The state, for reading.
    pub fn read(&self) -> MutexGuard<'_, State> {
        // A panicking test must not hide its own message behind a poisoned lock.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a change and wakes all waiters.
    pub fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.read());
        self.0.1.notify_all();
        result
    }

    /// Makes all waiters look again.
    pub fn wake(&self) {
        self.write(|state| state.wakes += 1);
    }

    /// A mark of the present moment. It changes with each write and each call of [`Store::wake`].
    pub fn mark(&self) -> (u64, u64) {
        let state = self.read();
        (state.revision, state.wakes)
    }

    /// Waits until the mark is another one, or `real` has passed.
    pub fn wait_past(&self, mark: (u64, u64), real: Duration) {
        let same = |state: &mut State| (state.revision, state.wakes) == mark;
        drop(self.0.1.wait_timeout_while(self.read(), real, same));
    }

    /// Waits until there is something after the revision, somebody calls [`Store::wake`], or `real` has passed.
    pub fn wait_after(&self, revision: u64, real: Duration) -> u64 {
        let state = self.read();
        if state.revision > revision {
            return state.revision;
        }
        let wakes = state.wakes;
        let same = |s: &mut State| s.revision <= revision && s.wakes == wakes;
        let waited = self.0.1.wait_timeout_while(state, real, same);
        waited.unwrap_or_else(PoisonError::into_inner).0.revision
    }

    /// An object of the storage version, as the server holds it.
    pub fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.read().get(group, plural, namespace, name).map(|object| (**object).clone())
    }

    /// All objects of a resource, of one namespace or (`""`) of all.
    pub fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        self.read().of(group, plural, namespace).map(|(_, object)| (**object).clone()).collect()
    }

    /// The same objects, shared instead of copied.
    pub fn all(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        self.read().of(group, plural, namespace).map(|(_, object)| object.clone()).collect()
    }

    /// The names of all objects of a resource, of one namespace or (`""`) of all.
    pub fn names(&self, group: &str, plural: &str, namespace: &str) -> Vec<String> {
        self.read().of(group, plural, namespace).map(|(_, o)| text(o, "/metadata/name").to_owned()).collect()
    }
}
