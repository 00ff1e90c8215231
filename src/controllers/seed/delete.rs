//! The Seed is to go: it stays until nothing needs it any more, and says what does.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::gardener::{BACKUP_BUCKET, CONTROLLER_INSTALLATION, SEED, SHOOT};
use crate::api::meta::{Key, Resource};
use crate::api::resources::MANAGED_RESOURCE;
use crate::kube::Patch;
use crate::kube::request::ListParams;
use crate::runtime::controller::{Context, Failure};

use super::decide::Observed;
use super::{Error, FINALIZER, SeedReconciler, kube_error};

/// How far a round came.
pub(super) enum Step {
    /// All is done for now. Come back after this time.
    Wait(Duration),
    /// Something is not done yet. Come back after this time.
    Again(Duration),
    /// The Seed is gone.
    Gone,
}

/// One round of a deletion.
pub(super) fn step(
    this: &SeedReconciler,
    key: &Key,
    observed: &Observed,
    cx: &Context,
) -> Result<Step, Failure> {
    let finalizers =
        observed.live.pointer("/metadata/finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    if !finalizers.iter().any(|f| f == FINALIZER) {
        return Ok(Step::Gone);
    }
    let seed = &key.name;
    let own_shoots = format!("name.seed.gardener.cloud/{seed}=true");
    let shoots = first(this, &SHOOT, &own_shoots, "", |o| o["spec"]["seedName"] == seed.as_str())?;
    if let Some(shoot) = shoots {
        return Err(Error::InUse(format!("Shoot {shoot} still runs on the Seed")).into());
    }
    if let Some(bucket) = first(this, &BACKUP_BUCKET, "", "", |o| o["spec"]["seedName"] == seed.as_str())? {
        return Err(Error::InUse(format!("BackupBucket {bucket} still belongs to the Seed")).into());
    }
    let own = format!("spec.seedRef.name={seed}");
    if let Some(installation) = first(this, &CONTROLLER_INSTALLATION, "", &own, |_| true)? {
        return Err(
            Error::InUse(format!("ControllerInstallation {installation} still exists for the Seed")).into()
        );
    }
    if let Some(resource) = managed_resource(this)? {
        return Err(
            Error::InUse(format!("ManagedResource {resource} still exists in the seed cluster")).into()
        );
    }
    cx.may_write()?;
    let rest: Vec<Value> = finalizers.into_iter().filter(|f| f != FINALIZER).collect();
    let live = this.garden.find::<Value>(&SEED, "", seed)?;
    let Some(live) = live else { return Ok(Step::Gone) };
    let patch =
        json!({"metadata": {"finalizers": rest, "resourceVersion": live["metadata"]["resourceVersion"]}});
    match this.garden.patch::<Value>(&SEED, "", seed, "", &Patch::Merge(patch)) {
        Err(e) if !e.is_not_found() => Err(e.into()),
        _ => {
            log::info!(seed = seed.as_str(); "The Seed is gone");
            Ok(Step::Gone)
        }
    }
}

/// The name of one object that matches.
fn first(
    this: &SeedReconciler,
    resource: &Resource,
    labels: &str,
    fields: &str,
    matches: impl Fn(&Value) -> bool,
) -> Result<Option<String>, Error> {
    let params = ListParams {
        label_selector: labels.to_owned(),
        field_selector: fields.to_owned(),
        ..ListParams::default()
    };
    let mut found = None;
    this.garden
        .list_all::<Value>(resource, "", &params, &mut |object| {
            if found.is_none() && matches(&object) {
                found = Some(name_of(&object));
            }
        })
        .map_err(kube_error("look for what still needs the Seed"))?;
    Ok(found)
}

fn managed_resource(this: &SeedReconciler) -> Result<Option<String>, Error> {
    let mut found = None;
    let listed = this.seed.list_all::<Value>(&MANAGED_RESOURCE, "", &ListParams::default(), &mut |object| {
        if found.is_none() && object["spec"]["class"] == "seed" {
            found = Some(name_of(&object));
        }
    });
    match listed {
        Err(e) if !e.is_not_found() => Err(kube_error("list ManagedResources in the seed")(e)),
        _ => Ok(found),
    }
}

fn name_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    Key::new(text("namespace"), text("name")).to_string()
}
