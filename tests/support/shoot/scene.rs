//! The objects in the namespaces of Shoots at one time, and a client that changes them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use gardenlet::api::core::{
    DEPLOYMENT, EVENT, NAMESPACE, PERSISTENT_VOLUME_CLAIM, POD, REPLICA_SET, SERVICE, STATEFUL_SET,
};
use gardenlet::api::meta::{ALL_NAMESPACES, Key, Resource};
use gardenlet::kube::{Client, DeleteParams, Error, ListParams, Patch};
use gardenlet::operation::components::etcd::druid::ETCD;
use gardenlet::operation::components::etcd::druid::copy::COPY_TASK;
use serde_json::{Value, json};

use super::jobs::JOB;
use crate::api::selector;
use crate::api::store::Store;
use crate::encoding::{rfc3339, rfc3339_micro};
use crate::json::{list, map, text};

pub const ENDPOINT_SLICE: Resource =
    Resource::new("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true);

/// All objects, of all Shoots.
pub struct Scene {
    pub namespaces: Vec<Value>,
    pub deployments: Vec<Value>,
    pub stateful_sets: Vec<Value>,
    pub replica_sets: Vec<Value>,
    pub pods: Vec<Value>,
    pub claims: Vec<Value>,
    pub services: Vec<Value>,
    pub slices: Vec<Value>,
    pub jobs: Vec<Value>,
    /// Etcds and EtcdCopyBackupsTasks, in a seed of this process.
    pub etcds: Vec<Value>,
    pub copies: Vec<Value>,
}

impl Scene {
    /// Reads through a client, or directly if there is a `store`. Namespaces of Shoots begin with `prefix`.
    pub fn read(client: &Client, store: Option<&Store>, prefix: &str) -> Result<Self, Error> {
        let all = |resource: &Resource, field: &str| {
            if let Some(store) = store {
                let stored = store.all(&resource.group, &resource.plural, "");
                let ours = stored.iter().filter(|object| text(object, field).starts_with(prefix));
                return Ok(ours.map(|object| (**object).clone()).collect());
            }
            let mut items = client.list::<Value>(resource, ALL_NAMESPACES, &ListParams::default())?.items;
            items.retain(|item| text(item, field).starts_with(prefix));
            Ok::<_, Error>(items)
        };
        let within = |resource: &Resource| all(resource, "/metadata/namespace");
        let of_druid = |resource: &Resource| store.map_or_else(|| Ok(Vec::new()), |_| within(resource));
        Ok(Self {
            namespaces: all(&NAMESPACE, "/metadata/name")?,
            deployments: within(&DEPLOYMENT)?,
            stateful_sets: within(&STATEFUL_SET)?,
            replica_sets: within(&REPLICA_SET)?,
            pods: within(&POD)?,
            claims: within(&PERSISTENT_VOLUME_CLAIM)?,
            services: within(&SERVICE)?,
            slices: within(&ENDPOINT_SLICE)?,
            jobs: within(&JOB)?,
            etcds: of_druid(&ETCD)?,
            copies: of_druid(&COPY_TASK)?,
        })
    }

    /// The pods that a Service sends its connections to, ready or not.
    pub fn behind<'a>(&'a self, service: &'a Value) -> impl Iterator<Item = &'a Value> {
        let wanted = &service["spec"]["selector"];
        let has_selector = wanted.as_object().is_some_and(|labels| !labels.is_empty());
        let pods = self.pods.iter().filter(move |pod| has_selector && is_beside(pod, service));
        pods.filter(move |pod| {
            is_alive(pod) && selector::matches_spec(&json!({"matchLabels": wanted}), labels(pod))
        })
    }

    /// An object of a list by its place.
    pub fn find<'a>(all: &'a [Value], namespace: &str, name: &str) -> Option<&'a Value> {
        all.iter().find(|o| text(o, "/metadata/namespace") == namespace && text(o, "/metadata/name") == name)
    }
}

pub fn labels(object: &Value) -> &Value {
    &object["metadata"]["labels"]
}

/// Whether two objects are in the same namespace.
pub fn is_beside(object: &Value, other: &Value) -> bool {
    object["metadata"]["namespace"] == other["metadata"]["namespace"]
}

pub fn is_alive(object: &Value) -> bool {
    text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Whether `owner` controls the object.
pub fn is_of(object: &Value, owner: &Value) -> bool {
    list(object, "/metadata/ownerReferences").iter().any(|o| o["uid"] == owner["metadata"]["uid"])
}

pub fn place(object: &Value) -> (&str, &str) {
    (text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// A condition of an object.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|condition| condition["type"] == kind)
}

pub fn is_ready(pod: &Value) -> bool {
    is_alive(pod) && condition(pod, "Ready").is_some_and(|condition| condition["status"] == "True")
}

/// The reference to an owner.
pub fn owned_by(owner: &Value, api_version: &str, kind: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true}])
}

/// Writes. Failures are kept, except conflicts: the next look sees the other change.
pub struct Hands {
    pub client: Client,
    complaints: Mutex<Vec<String>>,
    /// Events that were written.
    told: Mutex<BTreeSet<String>>,
}

impl Hands {
    pub fn new(client: Client) -> Self {
        Self { client, complaints: Mutex::default(), told: Mutex::default() }
    }

    pub fn now(&self) -> String {
        rfc3339(self.client.clock().now())
    }

    /// What went wrong.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a problem, once.
    pub fn complain(&self, text: String) {
        let mut all = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if all.last() != Some(&text) {
            all.push(text);
        }
    }

    fn done<T>(&self, what: &str, result: Result<T, Error>) {
        match result {
            Err(Error::Api(failure)) if [404, 409].contains(&failure.code) => {}
            // A namespace in deletion accepts no new objects.
            Err(Error::Api(failure)) if failure.code == 403 && failure.message.contains("terminated") => {}
            Err(error) => self.complain(format!("{what}: {error}")),
            Ok(_) => {}
        }
    }

    pub fn create(&self, resource: &Resource, namespace: &str, object: &Value) {
        let what = format!("create {} {namespace}/{}", resource.kind, text(object, "/metadata/name"));
        self.done(&what, self.client.create::<Value>(resource, namespace, object));
    }

    /// Merges into an object.
    pub fn merge(&self, resource: &Resource, object: &Value, patch: Value) {
        let key = Key::of(object);
        let what = format!("patch {} {key}", resource.kind);
        self.done(&what, self.client.patch_blindly(resource, &key, &Patch::Merge(patch)));
    }

    /// Merges a status if it differs in more than times of updates.
    pub fn set_status(&self, resource: &Resource, object: &Value, status: Value) {
        let mut next = object["status"].clone();
        crate::api::patch::merge(&mut next, &status);
        let mut before = object["status"].clone();
        for value in [&mut next, &mut before] {
            map(value, "");
            for condition in value["conditions"].as_array_mut().into_iter().flatten() {
                map(condition, "").remove("lastUpdateTime");
            }
        }
        if next != before {
            let (key, patch) = (Key::of(object), Patch::Merge(json!({"status": status})));
            let what = format!("patch the status of {} {key}", resource.kind);
            self.done(&what, self.client.patch_status_blindly(resource, &key, &patch));
        }
    }

    pub fn delete(&self, resource: &Resource, object: &Value) {
        let key = Key::of(object);
        let what = format!("delete {} {key}", resource.kind);
        self.done(&what, self.client.delete(resource, &key, &DeleteParams::default()));
    }

    /// Removes a pod that nobody ends.
    pub fn bury(&self, pod: &Value) {
        let key = Key::of(pod);
        let path = POD.object_path(&key);
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}).to_string();
        let gone = self.client.raw(
            gardenlet::kube::Method::Delete,
            &path,
            Some(body.as_bytes()),
            "application/json",
        );
        self.done(&format!("end pod {key}"), gone);
    }

    /// Warns of a pod or claim, once for each reason.
    pub fn warn(&self, kind: &str, object: &Value, (reason, note): (&str, &str)) {
        let (namespace, name) = place(object);
        let uid = text(object, "/metadata/uid");
        let id: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        let event_name = format!("{name}.{id}.{}", reason.to_lowercase());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.insert(format!("{namespace}/{event_name}")) {
            return;
        }
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": event_name, "namespace": namespace},
            "eventTime": rfc3339_micro(self.client.clock().now()), "type": "Warning", "reason": reason, "note": note,
            "action": "Stand-in", "reportingController": "kubelet", "reportingInstance": "stand-in",
            "regarding": {"apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name, "uid": uid}});
        self.create(&EVENT, namespace, &event);
    }
}
