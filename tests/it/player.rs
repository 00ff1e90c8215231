//! An extension that a story plays: it works on all objects of some kinds, as Gardener's library for extensions does.

use std::cell::RefCell;
use std::collections::BTreeMap;

use gardenlet::api::gardener::OPERATION;
use serde_json::{Value, json};

use crate::support::TestCluster;
use crate::support::encoding::rfc3339;
use crate::support::json::text;

pub const GROUP: &str = "extensions.gardener.cloud";
const FINALIZER: &str = "extensions.gardener.cloud/player";

/// What the extension does with the objects of a kind. Nothing is kept beside the objects themselves.
#[derive(Clone, Debug, Default)]
pub struct Manners {
    /// It fails with this: state and `lastError`.
    pub error: Option<(&'static str, Value)>,
    /// Other fields of the status of an object that has succeeded.
    pub status: Value,
    /// It does nothing.
    pub is_silent: bool,
}

/// See the module.
#[derive(Default)]
pub struct Player {
    manners: RefCell<BTreeMap<&'static str, Manners>>,
    /// What it was asked for: kind, name, operation.
    asked: RefCell<Vec<(&'static str, String, &'static str)>>,
}

impl Player {
    /// Plays the extension of these kinds, by their plurals.
    pub fn of(kinds: &[&'static str]) -> Self {
        let player = Self::default();
        kinds.iter().for_each(|kind| player.behave(kind, Manners::default()));
        player
    }

    /// From now on it does something else with a kind.
    pub fn behave(&self, kind: &'static str, manners: Manners) {
        self.manners.borrow_mut().insert(kind, manners);
    }

    /// What it was asked for since the last time somebody wanted to know.
    pub fn asked(&self) -> Vec<(&'static str, String, &'static str)> {
        self.asked.take()
    }

    /// Waits, and works meanwhile.
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

    /// Does once what it is asked for.
    pub fn work(&self, seed: &TestCluster) {
        let all = self.manners.borrow().clone();
        for (kind, manners) in all.into_iter().filter(|(_, manners)| !manners.is_silent) {
            for object in seed.store().all(GROUP, kind, "") {
                self.work_on(seed, kind, &manners, &object);
            }
        }
    }

    fn work_on(&self, seed: &TestCluster, kind: &'static str, manners: &Manners, object: &Value) {
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
        self.asked.borrow_mut().push((kind, key.1.to_owned(), operation));
        // `reconcile` goes first, the others when it is done; one that leaves is not held any more.
        if operation == "reconcile" {
            let begun = json!({"metadata": {"annotations": {OPERATION: null}, "finalizers": [FINALIZER]}});
            seed.merge(GROUP, kind, key, &begun);
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
        seed.merge_status(GROUP, kind, key, &json!({"status": status}));
        if manners.error.is_some() {
            return;
        }
        match operation {
            "delete" => drop(seed.merge(GROUP, kind, key, &json!({"metadata": {"finalizers": null}}))),
            "migrate" => {
                let done = json!({"metadata": {"annotations": {OPERATION: null}, "finalizers": null}});
                seed.merge(GROUP, kind, key, &done);
            }
            "restore" => {
                let done = json!({"metadata": {"annotations": {OPERATION: null}, "finalizers": [FINALIZER]}});
                seed.merge(GROUP, kind, key, &done);
            }
            _ => {}
        }
    }
}
