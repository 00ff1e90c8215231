//! The last steps of a Seed's deletion: it deletes components that another gardenlet has left, then the definitions,
//! except those whose objects belong to others.

use std::sync::Mutex;
use std::time::Duration;

use crate::api::core::{DEPLOYMENT, NAMESPACE};
use crate::api::crd::CUSTOM_RESOURCE_DEFINITION;
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata, Resource, text};
use crate::api::resources::MANAGED_RESOURCE;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::components::leftovers::{self, COMPONENTS, Definition, ISTIO, OBJECTS};
use crate::components::webhooks;
use crate::extension::{CONFIRMATION, TIMESTAMP};
use crate::format::time::rfc3339_nanos;
use crate::kube::request::ListParams;
use crate::kube::value::read_parts;
use crate::kube::{DeleteParams, Patch};
use crate::runtime::controller::ReconcileFailure;
use crate::runtime::write;

use super::delete::{self, REMOVAL_PERIOD, SeedReconciliationResult};
use super::error::kube_error;
use super::{SeedReconciler, components};

/// How often to check whether people have deleted their objects: each check lists all definitions.
const OBJECTS_PERIOD: Duration = Duration::from_secs(10);
/// The number of objects that a message names.
const NAMED_MAX: u32 = 3;
/// The definition that is needed to install all others.
const LAST: &str = "managedresources.resources.gardener.cloud";
/// The fields that are read from a definition and from a Deployment: the schemas are long.
const PARTS: [&[&str]; 2] = [&["metadata", "managedFields"], &["status", "storedVersions"]];

/// The origin of definitions, by uid: the version in which their objects are listed, if a gardenlet created them.
pub(super) type Origins = Mutex<SortedMap<String, Option<String>>>;

/// Forgets the origins: the Seed and its definitions are gone.
pub(super) fn forget(origins: &Origins) {
    origins.lock().ignore_poison().clear();
}

/// Deletes the components that another gardenlet has left. Returns `None` once they are gone.
pub(super) fn components(
    this: &SeedReconciler,
    seed: &str,
) -> Result<Option<SeedReconciliationResult>, ReconcileFailure> {
    let own = components::managed_resources(seed);
    let (mut names, mut waiting) = (Vec::new(), Vec::new());
    let params = ListParams { label_selector: COMPONENTS.to_owned(), ..ListParams::default() };
    let found = delete::list(&this.site.seed, &MANAGED_RESOURCE, &params, |object| {
        let key = Key::of(object);
        let is_one = object["spec"]["class"] == "seed" && leftovers::is_place(&key) && !own.contains(&key);
        if is_one {
            names.push(key.name.clone());
            waiting.extend((!delete::is_deleting(object)).then_some(key));
        }
        is_one
    })?;
    waiting.retain(|key| leftovers::may_go(&key.name, &names));
    for key in &waiting {
        write::delete(&this.site.seed, &MANAGED_RESOURCE, key)?;
    }
    let remedy = "its objects are being deleted: see its conditions in the seed cluster";
    Ok(match found {
        _ if !waiting.is_empty() => Some(SeedReconciliationResult::Again(REMOVAL_PERIOD)),
        Some(found) => Some(found.block("ManagedResource", remedy, delete::PERIOD)),
        None if is_istio_there(this)? => Some(SeedReconciliationResult::Again(REMOVAL_PERIOD)),
        None => None,
    })
}

/// Istio's namespace is deleted after the ManagedResources in it.
fn is_istio_there(this: &SeedReconciler) -> Result<bool, ReconcileFailure> {
    let (name, label) = ISTIO;
    let key = Key::cluster(name);
    let Some(found) = this.site.seed.find::<Metadata>(&NAMESPACE, &key)? else { return Ok(false) };
    let is_gardeners = label
        .split_once('=')
        .is_some_and(|(key, value)| found.metadata.labels.get(key).is_some_and(|found| found == value));
    if is_gardeners && found.metadata.deletion_timestamp.is_none() {
        write::delete(&this.site.seed, &NAMESPACE, &key)?;
    }
    Ok(is_gardeners)
}

/// Deletes everything else that exists because of the Seed. Returns `None` once it is gone.
pub(super) fn definitions(
    this: &SeedReconciler,
    now: Timestamp,
) -> Result<Option<SeedReconciliationResult>, ReconcileFailure> {
    let mut all: Vec<Metadata> = Vec::new();
    let params = ListParams { metadata_only: true, ..ListParams::default() };
    let mut add = |definition| all.push(definition);
    let listed = this.site.seed.list_all(&CUSTOM_RESOURCE_DEFINITION, ALL_NAMESPACES, &params, &mut add);
    listed.map_err(kube_error("list the custom resource definitions of the seed"))?;
    remove_objects(this, &all)?;
    let (last, others): (Vec<_>, Vec<_>) =
        all.iter().partition(|definition| definition.metadata.name == LAST);
    let step = remove_definitions(this, &others, now)?;
    if step.is_some() { Ok(step) } else { remove_definitions(this, &last, now) }
}

/// Deletes objects outside of ManagedResources: those of custom kinds, and a gardener-resource-manager that
/// a gardenlet has deployed.
fn remove_objects(this: &SeedReconciler, definitions: &[Metadata]) -> Result<(), ReconcileFailure> {
    let is_served = |resource: &Resource| {
        let name = format!("{}.{}", resource.plural, resource.group);
        definitions.iter().any(|definition| definition.metadata.name == name)
    };
    let manager = Key::new(webhooks::NAMESPACE, webhooks::NAME);
    let read = &mut |body: &[u8]| read_parts(body, &PARTS);
    let found = this.site.seed.find_with(&DEPLOYMENT, &manager, read)?;
    let has_manager =
        found.is_some_and(|found| leftovers::is_made_by_gardenlet(&found["metadata"]["managedFields"]));
    for (resource, namespace, names) in OBJECTS.iter().filter(|(resource, ..)| {
        let is_builtin = matches!(&*resource.group, "" | "policy");
        if is_builtin { has_manager } else { is_served(resource) }
    }) {
        for name in *names {
            write::delete(&this.site.seed, resource, &Key::new(*namespace, *name))?;
        }
    }
    if has_manager {
        webhooks::remove(&this.site.seed)?;
        write::delete(&this.site.seed, &DEPLOYMENT, &manager)?;
        log::info!("Deleted the gardener-resource-manager that another gardenlet had deployed");
    }
    Ok(())
}

fn remove_definitions(
    this: &SeedReconciler,
    all: &[&Metadata],
    now: Timestamp,
) -> Result<Option<SeedReconciliationResult>, ReconcileFailure> {
    let (mut is_pending, mut blocked) = (false, None);
    for found in all {
        let name = found.metadata.name.as_str();
        let Some(definition) = leftovers::definition(name) else { continue };
        let Some(version) = origin(this, found, definition)? else { continue };
        is_pending = true;
        if definition.has_owners
            && let Some((objects, has_more)) = objects(this, definition, version)?
        {
            blocked.get_or_insert(blocked_by(name, &objects, has_more));
        } else if found.metadata.deletion_timestamp.is_none() && this.site.managed.store().is_synced() {
            // At its start, the agent installs definitions at the same time. They are synced once that is done.
            confirm_and_delete(this, found, now)?;
        }
    }
    Ok(match blocked {
        Some(why) => Some(SeedReconciliationResult::Blocked(why, OBJECTS_PERIOD)),
        None => is_pending.then_some(SeedReconciliationResult::Again(REMOVAL_PERIOD)),
    })
}

/// The version in which objects of a definition are listed. `None`: another program created it.
fn origin(
    this: &SeedReconciler,
    found: &Metadata,
    definition: Definition<'_>,
) -> Result<Option<String>, ReconcileFailure> {
    let known = |origins: &Origins| origins.lock().ignore_poison().get(&found.metadata.uid).cloned();
    if let Some(origin) = known(&this.origins) {
        return Ok(origin);
    }
    let name = found.metadata.name.as_str();
    let read = &mut |body: &[u8]| read_parts(body, &PARTS);
    let read = this.site.seed.find_with(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(name), read);
    let Some(parts) = read.map_err(kube_error("read a custom resource definition of the seed"))? else {
        return Ok(None);
    };
    let is_ours =
        definition.is_gardeners || leftovers::is_made_by_gardenlet(&parts["metadata"]["managedFields"]);
    let versions = parts["status"]["storedVersions"].as_array();
    let version = versions.and_then(|all| all.last()).map_or("v1alpha1", text).to_owned();
    let origin = is_ours.then_some(version);
    if origin.is_none() {
        log::info!(definition = name; "Keeping the definition: a gardenlet did not create it, or others have changed it");
    }
    let mut origins = this.origins.lock().ignore_poison();
    origins.insert(found.metadata.uid.clone(), origin.clone());
    Ok(origin)
}

/// The first objects of a kind, and whether there are more.
fn objects(
    this: &SeedReconciler,
    definition: Definition<'_>,
    version: String,
) -> Result<Option<(Vec<Metadata>, bool)>, ReconcileFailure> {
    let resource = Resource {
        group: definition.group.to_owned().into(),
        version: version.into(),
        kind: definition.plural.to_owned().into(),
        plural: definition.plural.to_owned().into(),
        namespaced: true,
    };
    let params = ListParams { metadata_only: true, limit: NAMED_MAX, ..ListParams::default() };
    let listed = this.site.seed.list::<Metadata>(&resource, ALL_NAMESPACES, &params);
    let list = match listed {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other.map_err(kube_error("list objects of the Seed's definitions"))?,
    };
    let has_more = !list.metadata.continue_token.is_empty();
    Ok((!list.items.is_empty()).then_some((list.items, has_more)))
}

fn blocked_by(name: &str, objects: &[Metadata], has_more: bool) -> String {
    let described = |object: &Metadata| {
        let metadata = &object.metadata;
        let deleting = if metadata.deletion_timestamp.is_some() { "deleting, " } else { "" };
        let finalizers = match metadata.finalizers.as_slice() {
            [] => "no finalizers".to_owned(),
            all => format!("finalizers: {}", all.join(", ")),
        };
        format!("{} ({deleting}{finalizers})", metadata.key())
    };
    let all: Vec<String> = objects.iter().map(described).collect();
    let more = if has_more { " and others" } else { "" };
    format!(
        "The custom resource definition {name} of the seed cluster is deleted with the Seed, but there are still objects of it: {}{more}. \
         Delete them; remove a finalizer yourself if its controller is gone.",
        all.join(", ")
    )
}

fn confirm_and_delete(
    this: &SeedReconciler,
    found: &Metadata,
    now: Timestamp,
) -> Result<(), ReconcileFailure> {
    let key = found.metadata.key();
    let failed = || kube_error("delete a custom resource definition of the seed");
    if found.metadata.labels.get(PROTECTED).is_some_and(|value| value == "true") {
        let annotations = json!({CONFIRMATION: "true", TIMESTAMP: rfc3339_nanos(now)});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        match this.site.seed.patch_blindly(&CUSTOM_RESOURCE_DEFINITION, &key, &patch) {
            Err(error) if !error.is_not_found() => return Err(failed()(error).into()),
            _ => {}
        }
    }
    match this.site.seed.delete(&CUSTOM_RESOURCE_DEFINITION, &key, &DeleteParams::default()) {
        Err(error) if !error.is_not_found() => Err(failed()(error).into()),
        _ => Ok(()),
    }
}

const PROTECTED: &str = "gardener.cloud/deletion-protected";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_objects_are_named_with_their_finalizers() {
        let object = |name: &str, finalizers: &[&str], deleted: bool| {
            let mut object = Metadata::default();
            object.metadata.name = name.to_owned();
            object.metadata.namespace = "x".to_owned();
            object.metadata.finalizers = finalizers.iter().map(|&f| f.to_owned()).collect();
            object.metadata.deletion_timestamp = deleted.then_some(Timestamp::from_unix(1));
            object
        };
        let table = [
            (vec![object("a", &[], false)], false, "x/a (no finalizers). Delete"),
            (
                vec![object("a", &["f", "g"], true), object("b", &[], false)],
                true,
                "x/a (deleting, finalizers: f, g), x/b (no finalizers) and others. Delete",
            ),
        ];
        for (objects, has_more, words) in table {
            let told = blocked_by("machines.machine.sapcloud.io", &objects, has_more);
            assert!(
                told.starts_with("The custom resource definition machines.machine.sapcloud.io of"),
                "{told}"
            );
            assert!(told.contains(words), "{told}");
        }
    }
}
