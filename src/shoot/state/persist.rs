//! Writes the ShootState of a Shoot that leaves its seed, and makes sure that the garden has everything.

use serde_json::Value;

use super::collect::{CollectionScope, ControlPlanePlace, collect};
use super::compare::{merge, missing, replaced};
use super::content::machines_of;
use super::stored::{ShootState, find};
use crate::api::gardener::SHOOT_STATE;
use crate::api::meta::Key;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::extension::TIMESTAMP;
use crate::flow::Failed;
use crate::format::time::rfc3339;
use crate::kube::{Garden, Patch, Seed};
use crate::limits;

/// Writes everything that the seed has of a Shoot into its ShootState, and keeps what the ShootState has already: a try
/// before this one may have deleted it from the seed. Then it reads the ShootState again ([`verify`]).
///
/// Nothing of the control plane may be deleted before this has succeeded.
///
/// # Errors
/// A request fails; or the ShootState would be incomplete, or would lose a key, or is not what was written. Nothing is written
/// if it would be incomplete or would lose a key.
pub fn persist(garden: &Garden, seed: &Seed, shoot: &Value, now: Timestamp) -> Result<(), Failed> {
    let key = Key::of(shoot);
    let live = find(garden, &key)?;
    let stored = live.as_ref().map_or(&Value::Null, ShootState::spec);
    let place = ControlPlanePlace::of(shoot);
    let content = collect(seed, &place, CollectionScope::All, machines_of(stored))?;
    unchanged(&key, &place.namespace, &replaced(stored, &content.spec))?;
    let complete = complete(&key, &content.left_out).map(|()| merge(stored, &content.spec));
    let spec = complete.and_then(|spec| fitting(&key, spec))?;
    write(garden, &key, live.as_ref(), &spec, now)?;
    log::info!(shoot = key.to_string().as_str(); "Wrote the ShootState for another seed");
    verify(garden, seed, shoot)
}

/// Compares the ShootState in the garden with what the seed has now: the Secrets and their data, and the states of
/// extensions. Entries that the seed does not have are no difference.
///
/// # Errors
/// A request fails; or the ShootState lacks something: the error names it.
pub fn verify(garden: &Garden, seed: &Seed, shoot: &Value) -> Result<(), Failed> {
    let key = Key::of(shoot);
    let content = collect(seed, &ControlPlanePlace::of(shoot), CollectionScope::All, None)?;
    complete(&key, &content.left_out)?;
    let Some(stored) = find(garden, &key)? else {
        let why = format!("the garden has no ShootState {key}, although it was written: see who deletes it");
        return Err(Failed::new(why));
    };
    let missing = missing(&content.spec, stored.spec());
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failed::new(format!(
        "ShootState {key} in the garden lacks what namespace {} of the seed has: {}; nothing of the control plane is \
         deleted before the ShootState has it, and it is written again",
        ControlPlanePlace::of(shoot).namespace,
        some_of(&missing)
    )))
}

/// Errors: something cannot be kept.
fn complete(key: &Key, left_out: &[String]) -> Result<(), Failed> {
    if left_out.is_empty() {
        return Ok(());
    }
    Err(Failed::new(format!(
        "ShootState {key} would be incomplete, and the Shoot would lose this on another seed: {}; make room by removing \
         what is not needed, restore objects that are missing, or let the extension keep its state in another way",
        some_of(left_out)
    )))
}

/// Errors: the Shoot would get other keys than those with which it has worked.
fn unchanged(key: &Key, namespace: &str, replaced: &[String]) -> Result<(), Failed> {
    if replaced.is_empty() {
        return Ok(());
    }
    Err(Failed::new(format!(
        "Secrets of namespace {namespace} of the seed have other data than ShootState {key}, which never lets go of a key: {}; if the \
         data of the Shoot were written with those of the ShootState, delete these Secrets and bind the Shoot to this seed again, so \
         that they are restored; otherwise remove their entries from the ShootState",
        some_of(replaced)
    )))
}

/// Errors: the garden would refuse it.
fn fitting(key: &Key, spec: Value) -> Result<Value, Failed> {
    let (bytes, max) = (spec.to_string().len(), limits::SHOOT_STATE_BYTES_MAX);
    if bytes <= max {
        return Ok(spec);
    }
    Err(Failed::new(format!(
        "ShootState {key} would have {bytes} bytes with the entries that it has already, and may have {max}: remove entries \
         of objects that do not exist any more, which no other seed needs"
    )))
}

/// The first of many texts.
fn some_of(texts: &[String]) -> String {
    let named: Vec<&str> = texts.iter().take(limits::CLEANUP_NAMES_MAX).map(String::as_str).collect();
    match texts.len() - named.len() {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

/// Another writer in between is an error, because its entries would be lost.
fn write(
    garden: &Garden,
    key: &Key,
    live: Option<&ShootState>,
    spec: &Value,
    now: Timestamp,
) -> Result<(), Failed> {
    let mut metadata = json!({"annotations": {TIMESTAMP: rfc3339(now)}});
    if let Some(live) = live {
        metadata["resourceVersion"] = live.0["metadata"]["resourceVersion"].clone();
        let patch = Patch::Merge(json!({"metadata": metadata, "spec": spec}));
        return Ok(garden.patch_blindly(&SHOOT_STATE, key, &patch)?);
    }
    metadata["name"] = json!(key.name);
    metadata["namespace"] = json!(key.namespace);
    let object = json!({"apiVersion": SHOOT_STATE.api_version(), "kind": SHOOT_STATE.kind, "metadata": metadata,
        "spec": spec});
    Ok(garden.create::<Value>(&SHOOT_STATE, &key.namespace, &object).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_state_is_an_error_with_a_remedy() {
        let key = Key::new("garden-p", "s1");
        complete(&key, &[]).unwrap();
        let left_out: Vec<String> = (0..12).map(|n| format!("Pod {n}")).collect();
        let text = complete(&key, &left_out).unwrap_err().text;
        let parts = ["garden-p/s1", "Pod 0; Pod 1", "; and 2 more", "make room"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(!text.contains("Pod 10"), "{text}");
    }

    #[test]
    fn other_keys_are_an_error_that_names_them() {
        let (key, names) = (Key::new("garden-p", "s1"), ["ca", "ca-client"].map(str::to_owned));
        unchanged(&key, "shoot--p--s1", &[]).unwrap();
        let text = unchanged(&key, "shoot--p--s1", &names).unwrap_err().text;
        let parts =
            ["namespace shoot--p--s1", "ShootState garden-p/s1", ": ca; ca-client; ", "bind the Shoot"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn a_state_that_the_garden_would_refuse_is_not_written() {
        let key = Key::new("garden-p", "s1");
        let of = |bytes: usize| fitting(&key, json!("x".repeat(bytes)));
        let max = limits::SHOOT_STATE_BYTES_MAX;
        assert!(of(max - 2).is_ok());
        let text = of(max - 1).unwrap_err().text;
        assert!(text.contains("1310721 bytes") && text.contains("remove entries"), "{text}");
    }
}
