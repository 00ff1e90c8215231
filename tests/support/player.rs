//! Plays an extension: it works on all objects of some kinds, as Gardener's library for extensions does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::api::extensions::SERVED;
use gardenlet::api::gardener::OPERATION;
use gardenlet::api::meta::{Key, Resource};
use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use gardenlet::kube::{Client, ListParams, Patch};
use serde_json::{Value, json};

use super::TestCluster;
use super::encoding::rfc3339;
use super::json::text;

pub const GROUP: &str = "extensions.gardener.cloud";
const FINALIZER: &str = "extensions.gardener.cloud/player";
/// How often a player on a thread of its own looks.
const LOOK: Duration = Duration::from_millis(100);
const STACK_BYTES: usize = 512 << 10;

type DeedFn = dyn Fn(&Value, &str) -> bool + Send + Sync;

/// What an extension does outside of its object, before it reports success: it gets the object and the operation. If it returns
/// false, it tries again later.
#[derive(Clone)]
pub struct Deed(Arc<DeedFn>);

impl Deed {
    pub fn new(deed: impl Fn(&Value, &str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(deed))
    }
}

impl std::fmt::Debug for Deed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Deed")
    }
}

/// What the extension does with the objects of a kind. It keeps no state but the objects. A migrated object keeps its state, and
/// one that shall wait for its state is left alone.
#[derive(Clone, Debug, Default)]
pub struct Manners {
    /// It fails with this state and `lastError`.
    pub error: Option<(&'static str, Value)>,
    /// Other fields of the status of an object that has succeeded.
    pub status: Value,
    /// It does nothing.
    pub is_silent: bool,
    /// What it does outside of its object.
    pub deed: Option<Deed>,
}

/// The seed in which it works. It repeats a failed write in the next round.
pub trait Place {
    fn clock(&self) -> &Clock;
    fn all(&self, plural: &str) -> Vec<Value>;
    fn merge(&self, plural: &str, key: (&str, &str), patch: &Value) -> bool;
    fn merge_status(&self, plural: &str, key: (&str, &str), patch: &Value) -> bool;
}

impl Place for TestCluster {
    fn clock(&self) -> &Clock {
        self.clock()
    }

    fn all(&self, plural: &str) -> Vec<Value> {
        self.store().all(GROUP, plural, "").iter().map(|object| Value::clone(object)).collect()
    }

    fn merge(&self, plural: &str, key: (&str, &str), patch: &Value) -> bool {
        self.merge(GROUP, plural, key, patch);
        true
    }

    fn merge_status(&self, plural: &str, key: (&str, &str), patch: &Value) -> bool {
        self.merge_status(GROUP, plural, key, patch);
        true
    }
}

impl Place for Client {
    fn clock(&self) -> &Clock {
        self.clock()
    }

    fn all(&self, plural: &str) -> Vec<Value> {
        // The definitions come with the agent.
        let found = self.list::<Value>(resource(plural), "", &ListParams::default());
        found.map(|list| list.items).unwrap_or_default()
    }

    fn merge(&self, plural: &str, key: (&str, &str), patch: &Value) -> bool {
        let patch = Patch::Merge(patch.clone());
        self.patch_blindly(resource(plural), &Key::new(key.0, key.1), &patch).is_ok()
    }

    fn merge_status(&self, plural: &str, key: (&str, &str), patch: &Value) -> bool {
        let patch = Patch::Merge(patch.clone());
        self.patch_status_blindly(resource(plural), &Key::new(key.0, key.1), &patch).is_ok()
    }
}

fn resource(plural: &str) -> &'static Resource {
    SERVED.iter().find(|resource| resource.plural == plural).unwrap()
}

/// The operations that were requested: kind, name, operation.
pub type Request = (&'static str, String, &'static str);

/// See the module. Cheap to clone.
#[derive(Clone, Default)]
pub struct Player {
    manners: Arc<Mutex<BTreeMap<&'static str, Manners>>>,
    asked: Arc<Mutex<Vec<Request>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Player {
    /// Plays the extension of these kinds, by their plurals.
    pub fn of(kinds: &[&'static str]) -> Self {
        let player = Self::default();
        kinds.iter().for_each(|kind| player.behave(kind, Manners::default()));
        player
    }

    /// Changes what it does with a kind from now on.
    pub fn behave(&self, kind: &'static str, manners: Manners) {
        locked(&self.manners).insert(kind, manners);
    }

    /// The operations that were requested since the last call.
    pub fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut *locked(&self.asked))
    }

    /// Works while it waits.
    pub fn wait_for<T>(
        &self,
        seed: &TestCluster,
        waited: &TestCluster,
        what: &str,
        condition: impl Fn(&TestCluster) -> Option<T>,
    ) -> T {
        waited.wait_for(what, |cluster| {
            self.work(seed);
            condition(cluster)
        })
    }

    /// Works on a thread of its own until the result is dropped.
    pub fn start(&self, seed: Client) -> Playing {
        let (player, stop) = (self.clone(), Stop::new());
        let stopped = stop.clone();
        let thread = thread::spawn("player", STACK_BYTES, move || {
            while !stopped.is_stopped() {
                player.work(&seed);
                stopped.wait(Place::clock(&seed), LOOK);
            }
        });
        Playing { stop, thread: Some(thread.unwrap()) }
    }

    /// Does one round of work.
    pub fn work(&self, seed: &impl Place) {
        let kinds: Vec<_> = locked(&self.manners).keys().copied().collect();
        for kind in kinds {
            // Read the objects first: a request after a change of behaviour gets the new behaviour.
            let objects = seed.all(kind);
            let manners = locked(&self.manners)[kind].clone();
            for object in objects.iter().filter(|_| !manners.is_silent) {
                self.work_on(seed, kind, &manners, object);
            }
        }
    }

    fn work_on(&self, seed: &impl Place, kind: &'static str, manners: &Manners, object: &Value) {
        let key = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let is_ours = object["metadata"]["finalizers"].to_string().contains(FINALIZER);
        let annotations = &object["metadata"]["annotations"];
        let (operation, kind_of_operation) = match annotations[OPERATION].as_str() {
            _ if !object["metadata"]["deletionTimestamp"].is_null() => {
                if !is_ours {
                    return;
                }
                ("delete", "Delete")
            }
            Some("reconcile") if object["status"]["lastOperation"].is_null() => ("reconcile", "Create"),
            Some("reconcile") => ("reconcile", "Reconcile"),
            Some("migrate") => ("migrate", "Migrate"),
            Some("restore") => ("restore", "Restore"),
            _ => return,
        };
        if operation == "delete" && manners.error.is_some() && object["status"]["lastError"].is_object() {
            return;
        }
        let deed = manners.deed.as_ref().filter(|_| manners.error.is_none());
        if deed.is_some_and(|deed| !(deed.0)(object, operation)) {
            return;
        }
        locked(&self.asked).push((kind, key.1.to_owned(), operation));
        // `reconcile` removes its annotation and adds the finalizer first. Other operations change both at their end.
        if operation == "reconcile" {
            let begun = json!({"metadata": {"annotations": {OPERATION: null}, "finalizers": [FINALIZER]}});
            if !seed.merge(kind, key, &begun) {
                return;
            }
        }
        let (state, error) = match &manners.error {
            None => ("Succeeded", Value::Null),
            Some((state, error)) => (*state, error.clone()),
        };
        let last = json!({"type": kind_of_operation, "state": state, "progress": 100, "description": "by the test",
            "lastUpdateTime": rfc3339(seed.clock().now())});
        let mut status = json!({"lastOperation": last, "lastError": error,
            "observedGeneration": object["metadata"]["generation"]});
        for (name, value) in manners.status.as_object().into_iter().flatten() {
            status[name] = value.clone();
        }
        if !seed.merge_status(kind, key, &json!({"status": status})) || manners.error.is_some() {
            return;
        }
        let finalizers = if operation == "restore" { json!([FINALIZER]) } else { Value::Null };
        match operation {
            "delete" => drop(seed.merge(kind, key, &json!({"metadata": {"finalizers": null}}))),
            "migrate" | "restore" => {
                let done = json!({"metadata": {"annotations": {OPERATION: null}, "finalizers": finalizers}});
                seed.merge(kind, key, &done);
            }
            _ => {}
        }
    }
}

/// A player at work. It ends when dropped.
#[derive(Debug)]
pub struct Playing {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Playing {
    fn drop(&mut self) {
        self.stop.stop();
        // A panic in it has been printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed with one object, for which an operation is requested while it is listed.
    struct Asked {
        clock: Clock,
        player: Player,
        written: Mutex<Vec<Value>>,
    }

    impl Place for Asked {
        fn clock(&self) -> &Clock {
            &self.clock
        }

        fn all(&self, plural: &str) -> Vec<Value> {
            let status = json!({"state": "new"});
            self.player.behave("backupentries", Manners { status, ..Manners::default() });
            assert_eq!(plural, "backupentries");
            vec![json!({"metadata": {"name": "one", "annotations": {OPERATION: "reconcile"}}})]
        }

        fn merge(&self, _plural: &str, _key: (&str, &str), _patch: &Value) -> bool {
            true
        }

        fn merge_status(&self, _plural: &str, _key: (&str, &str), patch: &Value) -> bool {
            locked(&self.written).push(patch["status"]["state"].clone());
            true
        }
    }

    #[test]
    fn a_request_gets_the_manners_that_were_there_before_it() {
        let player = Player::of(&["backupentries"]);
        let seed = Asked { clock: Clock::system(), player: player.clone(), written: Mutex::default() };
        player.work(&seed);
        assert_eq!(*locked(&seed.written), [json!("new")]);
    }
}
