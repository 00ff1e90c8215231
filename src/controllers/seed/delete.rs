//! Deletion of the Seed: it waits until nothing needs the Seed any more, and reports what does.

use std::time::Duration;

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::extensions::EXTENSION;
use crate::api::gardener::{BACKUP_BUCKET, CONTROLLER_INSTALLATION, SEED, SHOOT};
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata, Resource, text};
use crate::api::resources::{GARDEN_NAMESPACE, MANAGED_RESOURCE};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::components::managed::{self, Removal};
use crate::controllers::site::is_garden;
use crate::extension::{ExtensionClass, ExtensionObject};
use crate::kube::request::ListParams;
use crate::kube::{Client, Error as KubeError, Patch};
use crate::runtime::controller::ReconcileFailure;
use crate::runtime::write;

use super::components::{self, Leaving};
use super::decide::Observed;
use super::error::kube_error;
use super::{FINALIZER, SeedReconciler, clean, ingress};

/// The result of a reconciliation.
pub(super) enum SeedReconciliationResult {
    /// Everything is done for now. Continue after this time.
    Wait(Duration),
    /// Something is not done yet. Continue after this time.
    Again(Duration),
    /// Something still needs the Seed: what it is, and when to check again.
    Blocked(String, Duration),
    /// The Seed is gone.
    Gone,
}

/// How often to check for Shoots and other objects that block the deletion.
const SHOOTS_PERIOD: Duration = Duration::from_secs(60);
pub(super) const PERIOD: Duration = Duration::from_secs(5);
/// The applier removes objects quickly.
pub(super) const REMOVAL_PERIOD: Duration = Duration::from_secs(1);
/// The number of objects that a message names; others are counted.
const NAMED_MAX: usize = 3;

/// One step of a deletion.
pub(super) fn step(
    this: &SeedReconciler,
    key: &Key,
    observed: &Observed,
    now: Timestamp,
) -> Result<SeedReconciliationResult, ReconcileFailure> {
    if !has_finalizer(&observed.live) {
        return Ok(SeedReconciliationResult::Gone);
    }
    let seed = &key.name;
    let own = |object: &Value| object["spec"]["seedName"] == seed.as_str();
    let labelled = ListParams {
        label_selector: format!("name.seed.gardener.cloud/{seed}=true"),
        ..ListParams::default()
    };
    if let Some(found) = list(&this.site.garden, &SHOOT, &labelled, own)? {
        return Ok(found.block("Shoot", "delete it, or move it to another seed", SHOOTS_PERIOD));
    }
    if !observed.live["spec"]["backup"].is_null() {
        delete_own_bucket(this, &observed.live)?;
    }
    if let Some(found) = list(&this.site.garden, &BACKUP_BUCKET, &ListParams::default(), own)? {
        return Ok(found.block("BackupBucket", bucket_remedy(&found.first), PERIOD));
    }
    if let Some(step) = remove_extension_objects(this, seed, &observed.live, now)? {
        return Ok(step);
    }
    // A garden in the same cluster has the same components, which gardener-operator manages.
    let is_garden = is_garden(&this.site.seed)?;
    if !is_garden && let Some(step) = clean::components(this, seed)? {
        return Ok(step);
    }
    let of_seed = ListParams { field_selector: format!("spec.seedRef.name={seed}"), ..ListParams::default() };
    if let Some(found) = list(&this.site.garden, &CONTROLLER_INSTALLATION, &of_seed, |_| true)? {
        let remedy =
            "the garden deletes it when no object in the seed needs its extension: see its conditions";
        return Ok(found.block("ControllerInstallation", remedy, PERIOD));
    }
    if has_begun_to_remove(this, seed)? {
        return Ok(SeedReconciliationResult::Again(REMOVAL_PERIOD));
    }
    if !is_garden {
        let of_seed = |object: &Value| object["spec"]["class"] == "seed";
        if let Some(found) = list(&this.site.seed, &MANAGED_RESOURCE, &ListParams::default(), of_seed)? {
            let remedy = "its creator in the seed cluster must delete it: see its conditions";
            return Ok(found.block("ManagedResource", remedy, PERIOD));
        }
        if let Some(step) = clean::definitions(this, now)? {
            return Ok(step);
        }
    }
    clean::forget(&this.origins);
    let key = Key::cluster(seed);
    let live = this.site.garden.find::<Value>(&SEED, &key)?;
    let Some(live) = live else { return Ok(SeedReconciliationResult::Gone) };
    let finalizers = live.pointer("/metadata/finalizers").and_then(Value::as_array).cloned();
    let rest: Vec<Value> = finalizers.into_iter().flatten().filter(|f| f != FINALIZER).collect();
    let patch =
        json!({"metadata": {"finalizers": rest, "resourceVersion": live["metadata"]["resourceVersion"]}});
    match this.site.garden.patch::<Value>(&SEED, &key, &Patch::Merge(patch)) {
        Err(e) if !e.is_not_found() => Err(e.into()),
        _ => {
            log::info!(seed = seed.as_str(); "The Seed is gone");
            Ok(SeedReconciliationResult::Gone)
        }
    }
}

/// Deletes objects that extensions must clean up while the extensions are installed: the garden removes them
/// when no object needs them. The cluster identity is deleted at the same time, as in upstream. Returns
/// `None` once everything is gone.
fn remove_extension_objects(
    this: &SeedReconciler,
    seed: &str,
    live: &Value,
    now: Timestamp,
) -> Result<Option<SeedReconciliationResult>, ReconcileFailure> {
    let mut has_begun = remove(this, seed, Leaving::WithExtensions)?.contains(&Removal::Begun);
    let (record, mut left) = (ingress::target(), Vec::new());
    if let Some(object) = record.find(&this.site.seed)? {
        if !is_deleting(&object) {
            // The credentials may have changed. If they are gone, use those that created the record.
            if let Err(failed) = ingress::copy_credentials(&this.site.garden, &this.site.seed, live) {
                log::warn!(seed, err = failed.text.as_str(); "Deleting the record of the ingress domain with old credentials");
            }
            record.delete(&this.site.seed, now)?;
            has_begun = true;
        }
        let mut found = None;
        add(&mut found, object);
        left.extend(found.map(|found| (found, "DNSRecord")));
    } else if this.site.seed.find::<Metadata>(&SECRET, &ingress::secret())?.is_some() {
        write::delete(&this.site.seed, &SECRET, &ingress::secret())?;
    }
    let is_ours = |object: &Value| {
        object["metadata"]["namespace"] == GARDEN_NAMESPACE
            && object["spec"]["class"] == ExtensionClass::Seed.as_str()
    };
    if let Some(found) = list(&this.site.seed, &EXTENSION, &ListParams::default(), is_ours)? {
        if found.has_others_than_deleting {
            for target in ExtensionObject::of_class(
                &this.site.seed,
                &EXTENSION,
                GARDEN_NAMESPACE,
                ExtensionClass::Seed.as_str(),
            )? {
                target.delete(&this.site.seed, now)?;
            }
            has_begun = true;
        }
        left.push((found, "Extension"));
    }
    let remedy = "its extension has to clean up: see status.lastError of the object in the seed cluster";
    Ok(match left.first() {
        _ if has_begun => Some(SeedReconciliationResult::Again(REMOVAL_PERIOD)),
        Some((found, kind)) => Some(found.block(kind, remedy, PERIOD)),
        None => None,
    })
}

/// Deletes the Seed's own ManagedResources, turn by turn. Returns true if something was deleted now, because the
/// applier has not seen it yet.
fn has_begun_to_remove(this: &SeedReconciler, seed: &str) -> Result<bool, ReconcileFailure> {
    let mut removals = Vec::new();
    for turn in [Leaving::WithExtensions, Leaving::WithoutExtensions] {
        removals.extend(remove(this, seed, turn)?);
    }
    if removals.iter().all(|removal| *removal == Removal::Gone) {
        removals.extend(remove(this, seed, Leaving::Last)?);
    }
    Ok(removals.contains(&Removal::Begun))
}

/// Deletes the ManagedResources of one turn.
fn remove(this: &SeedReconciler, seed: &str, turn: Leaving) -> Result<Vec<Removal>, ReconcileFailure> {
    let keys = components::leaving(seed, turn);
    Ok(keys.iter().map(|key| managed::remove(&this.site.seed, key)).collect::<Result<_, _>>()?)
}

fn has_finalizer(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().any(|f| f == FINALIZER)
}

/// The bucket with the Seed's uid as its name is its own and is deleted with it, as in upstream. Other owners must
/// delete other objects that refer to the Seed.
fn delete_own_bucket(this: &SeedReconciler, seed: &Value) -> Result<(), ReconcileFailure> {
    let bucket = Key::cluster(text(&seed["metadata"]["uid"]));
    let found = this.site.garden.find::<Value>(&BACKUP_BUCKET, &bucket);
    let found = found.map_err(kube_error("read the Seed's BackupBucket"))?;
    if found.is_some_and(|bucket| !is_deleting(&bucket)) {
        write::delete(&this.site.garden, &BACKUP_BUCKET, &bucket)
            .map_err(kube_error("delete the Seed's BackupBucket"))?;
        log::info!(bucket = bucket.name.as_str(); "Deleted the BackupBucket of the Seed");
    }
    Ok(())
}

pub(super) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The Seed's own bucket is deleted by its extension.
fn bucket_remedy(bucket: &Value) -> &'static str {
    match (is_deleting(bucket), has_finalizer(bucket)) {
        (false, _) => "delete it once its backups are not needed any more",
        (true, true) => "its extension has to delete the bucket: see its status.lastError",
        (true, false) => "the controllers that set its finalizers must remove them",
    }
}

/// Objects that still need the Seed.
#[derive(Debug)]
pub(super) struct SeedUsers {
    first: Value,
    names: Vec<String>,
    count: usize,
    /// Some of them are not being deleted yet.
    has_others_than_deleting: bool,
}

impl SeedUsers {
    pub(super) fn block(&self, kind: &str, remedy: &str, period: Duration) -> SeedReconciliationResult {
        let more = self.count - self.names.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let names = self.names.join(", ");
        SeedReconciliationResult::Blocked(
            format!("The Seed is still needed by {kind} {names}{more}: {remedy}."),
            period,
        )
    }
}

/// The matching objects; `None` if there are none, or the kind does not exist.
pub(super) fn list(
    client: &Client,
    resource: &Resource,
    params: &ListParams,
    mut matches: impl FnMut(&Value) -> bool,
) -> Result<Option<SeedUsers>, super::Error> {
    let mut found: Option<SeedUsers> = None;
    let listed = client.list_all::<Value>(resource, ALL_NAMESPACES, params, &mut |object| {
        if matches(&object) {
            add(&mut found, object);
        }
    });
    match listed {
        Err(e) if !e.is_not_found() => Err(unlisted(e)),
        _ => Ok(found),
    }
}

fn unlisted(error: KubeError) -> super::Error {
    kube_error("list objects that still need the Seed")(error)
}

fn add(found: &mut Option<SeedUsers>, object: Value) {
    let name = described(&object);
    let is_deleting = is_deleting(&object);
    let found = found.get_or_insert_with(|| SeedUsers {
        first: object,
        names: Vec::new(),
        count: 0,
        has_others_than_deleting: false,
    });
    found.count += 1;
    found.has_others_than_deleting |= !is_deleting;
    if found.names.len() < NAMED_MAX {
        found.names.push(name);
    }
}

/// The name, and the finalizers of an object that is being deleted.
fn described(object: &Value) -> String {
    let name = Key::of(object).to_string();
    if !is_deleting(object) {
        return name;
    }
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    let finalizers: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
    let since = text(&object["metadata"]["deletionTimestamp"]);
    format!("{name} (deleting since {since}, finalizers: {})", finalizers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(name: &str, finalizers: &Value, deleted: Option<&str>) -> Value {
        json!({"metadata": {"name": name, "finalizers": finalizers, "deletionTimestamp": deleted}})
    }

    #[test]
    fn blocking_objects_are_named_with_their_remedy() {
        let since = Some("2026-01-05T08:00:00Z");
        let table = [
            (bucket("a", &json!([]), None), "BackupBucket a: delete it once its backups"),
            (
                bucket("a", &json!(["gardener"]), since),
                "BackupBucket a (deleting since 2026-01-05T08:00:00Z, finalizers: gardener): its extension has to",
            ),
            (
                bucket("a", &json!(["x", "y"]), since),
                "finalizers: x, y): the controllers that set its finalizers",
            ),
        ];
        for (object, words) in table {
            let mut found = None;
            add(&mut found, object);
            let found = found.unwrap();
            let SeedReconciliationResult::Blocked(text, after) =
                found.block("BackupBucket", bucket_remedy(&found.first), Duration::from_secs(5))
            else {
                panic!("not blocked")
            };
            assert!(text.contains(words), "{text}");
            assert_eq!(after, Duration::from_secs(5));
        }
    }

    #[test]
    fn many_objects_are_counted() {
        let mut found = None;
        for n in 0..5 {
            add(&mut found, json!({"metadata": {"namespace": "garden-a", "name": format!("s{n}")}}));
        }
        let SeedReconciliationResult::Blocked(text, _) = found.unwrap().block("Shoot", "delete it", PERIOD)
        else {
            panic!("free")
        };
        let expected =
            "The Seed is still needed by Shoot garden-a/s0, garden-a/s1, garden-a/s2 and 2 more: delete it.";
        assert_eq!(text, expected);
    }
}
