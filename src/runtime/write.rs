//! Helpers to write objects that others write too.

use serde_json::Value;

use crate::api::condition::{self, Condition};
use crate::api::meta::{Key, ObjectMeta, Resource};
use crate::api::patch::difference;
use crate::base::json::json;
use crate::kube::{Client, Error, Patch};

/// Creates the object, or patches it to the result of `mutate` (a JSON merge patch of the difference, nothing
/// if there is none). `mutate` gets the live object, or one with kind, name and namespace only. Returns the
/// resulting object. Errors: a request fails.
pub fn ensure(
    client: &Client,
    resource: &Resource,
    key: &Key,
    mutate: &dyn Fn(&mut Value),
) -> Result<Value, Error> {
    let live = client.find::<Value>(resource, key)?;
    let Some(live) = live else {
        let mut object = bare(resource, key);
        mutate(&mut object);
        return client.create(resource, &key.namespace, &object);
    };
    let mut wanted = live.clone();
    mutate(&mut wanted);
    match difference(&live, &wanted) {
        None => Ok(live),
        Some(patch) => client.patch(resource, key, &Patch::Merge(patch)),
    }
}

fn bare(resource: &Resource, key: &Key) -> Value {
    let mut metadata = json!({"name": key.name});
    if resource.namespaced {
        metadata["namespace"] = json!(key.namespace);
    }
    json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata})
}

/// Deletes the object; returns true if it was already gone. Errors: a request fails, but
/// not with "not found".
pub fn delete(client: &Client, resource: &Resource, key: &Key) -> Result<bool, Error> {
    match client.delete(resource, key, &crate::kube::DeleteParams::default()) {
        Ok(()) => Ok(false),
        Err(e) if e.is_not_found() => Ok(true),
        Err(e) => Err(e),
    }
}

/// Adds or removes a finalizer with a JSON merge patch and resourceVersion, because other writers have theirs in the
/// same list. Nothing is written if it is already there, or already gone. `read` is the metadata
/// of the object as read.
///
/// # Errors
/// A request fails. Removing it from a deleted object is no error.
pub(crate) fn finalizer(
    client: &Client,
    resource: &Resource,
    key: &Key,
    read: &ObjectMeta,
    name: &str,
    present: bool,
) -> Result<(), Error> {
    if read.finalizers.iter().any(|f| f == name) == present {
        return Ok(());
    }
    let mut wanted: Vec<&str> = read.finalizers.iter().map(String::as_str).filter(|f| *f != name).collect();
    if present {
        wanted.push(name);
    }
    let patch = json!({"metadata": {"finalizers": wanted, "resourceVersion": read.resource_version}});
    match client.patch::<Value>(resource, key, &Patch::Merge(patch)) {
        Err(e) if !present && e.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// Writes the conditions of `wanted` that differ from `old` to the status, and keeps those of other writers. If the
/// server does not support a strategic merge, the list is read and merged with its resourceVersion.
pub(crate) fn conditions(
    client: &Client,
    resource: &Resource,
    key: &Key,
    old: &[Condition],
    wanted: &[Condition],
) -> Result<(), Error> {
    conditions_without(client, resource, key, old, wanted, &[])
}

/// The same, and also removes conditions of these types.
pub(crate) fn conditions_without(
    client: &Client,
    resource: &Resource,
    key: &Key,
    old: &[Condition],
    wanted: &[Condition],
    removed: &[&str],
) -> Result<(), Error> {
    let Some(patch) = condition::status_patch(old, wanted, removed) else { return Ok(()) };
    let strategic = client.patch_status::<Value>(resource, key, &Patch::Strategic(patch));
    match strategic {
        Err(e) if e.status_code() == Some(415) => {
            let live = client.get::<Value>(resource, key)?;
            let patch = condition::merge_patch(&live, wanted, removed);
            client.patch_status::<Value>(resource, key, &Patch::Merge(patch)).map(drop)
        }
        other => other.map(drop),
    }
}
