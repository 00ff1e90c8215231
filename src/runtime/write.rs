//! How controllers write objects that others write too.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::condition::{self, Condition};
use crate::api::meta::{Key, Resource};
use crate::api::patch::difference;
use crate::kube::{Client, Error, Patch};

/// Creates the object or patches it to what `mutate` makes of it (JSON merge patch of the difference, nothing if there is
/// none). `mutate` gets the live object, or one with kind, name and namespace only. Returns the object as it is now.
///
/// # Errors
/// The client's.
pub fn ensure(
    client: &Client,
    resource: &Resource,
    key: &Key,
    mutate: impl Fn(&mut Value),
) -> Result<Value, Error> {
    let live = client.find::<Value>(resource, &key.namespace, &key.name)?;
    let Some(live) = live else {
        let mut object = bare(resource, key);
        mutate(&mut object);
        return client.create(resource, &key.namespace, &object);
    };
    let mut wanted = live.clone();
    mutate(&mut wanted);
    match difference(&live, &wanted) {
        None => Ok(live),
        Some(patch) => client.patch(resource, &key.namespace, &key.name, "", &Patch::Merge(patch)),
    }
}

fn bare(resource: &Resource, key: &Key) -> Value {
    let mut metadata = json!({"name": key.name});
    if resource.namespaced {
        metadata["namespace"] = json!(key.namespace);
    }
    json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata})
}

/// Deletes the object; true if it was already gone.
///
/// # Errors
/// The client's, but not found.
pub fn delete(client: &Client, resource: &Resource, key: &Key) -> Result<bool, Error> {
    match client.delete(resource, &key.namespace, &key.name, &crate::kube::DeleteParams::default()) {
        Ok(()) => Ok(false),
        Err(e) if e.is_not_found() => Ok(true),
        Err(e) => Err(e),
    }
}

/// Adds a finalizer, or removes it: a JSON merge patch with resourceVersion, because others keep theirs in the same list.
/// Nothing is written if it is there, or is gone. `finalizers` and `version` are those of the object as read.
///
/// # Errors
/// The client's; removing from an object that is gone is none.
pub fn finalizer(
    client: &Client,
    resource: &Resource,
    key: &Key,
    (finalizers, version): (&[String], &str),
    name: &str,
    present: bool,
) -> Result<(), Error> {
    if finalizers.iter().any(|f| f == name) == present {
        return Ok(());
    }
    let mut wanted: Vec<&str> = finalizers.iter().map(String::as_str).filter(|f| *f != name).collect();
    if present {
        wanted.push(name);
    }
    let patch = json!({"metadata": {"finalizers": wanted, "resourceVersion": version}});
    match client.patch::<Value>(resource, &key.namespace, &key.name, "", &Patch::Merge(patch)) {
        Err(e) if !present && e.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// Writes those of `wanted` that differ from `old` into the status, and nothing of other writers. Where the server knows
/// no strategic merge, the list is read and merged with its resourceVersion.
///
/// # Errors
/// The client's.
pub fn conditions(
    client: &Client,
    resource: &Resource,
    key: &Key,
    old: &[Condition],
    wanted: &[Condition],
) -> Result<(), Error> {
    conditions_without(client, resource, key, old, wanted, &[])
}

/// The same, and removes conditions of these types.
///
/// # Errors
/// The client's.
pub fn conditions_without(
    client: &Client,
    resource: &Resource,
    key: &Key,
    old: &[Condition],
    wanted: &[Condition],
    removed: &[&str],
) -> Result<(), Error> {
    let Some(patch) = condition::status_patch(old, wanted, removed) else { return Ok(()) };
    let strategic = status_patch::<Value>(client, resource, key, &Patch::Strategic(patch));
    match strategic {
        Err(e) if e.status_code() == Some(415) => {
            let live = client.get::<Value>(resource, &key.namespace, &key.name)?;
            let patch = condition::merge_patch(&live, wanted, removed);
            status_patch::<Value>(client, resource, key, &Patch::Merge(patch)).map(drop)
        }
        other => other.map(drop),
    }
}

/// Patches the status subresource.
///
/// # Errors
/// The client's.
pub fn status_patch<T: DeserializeOwned>(
    client: &Client,
    resource: &Resource,
    key: &Key,
    patch: &Patch,
) -> Result<T, Error> {
    client.patch(resource, &key.namespace, &key.name, "status", patch)
}
