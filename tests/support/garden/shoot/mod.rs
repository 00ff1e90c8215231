//! Shoots as gardener-apiserver handles them: defaults, admission, generations, labels, the binding to a Seed. Of what only
//! Shoots with workers have: the defaults, and the checks that stories need.

pub mod admission;
pub mod checks;
pub mod defaults;
pub mod generation;
pub mod kubeconfig;
pub mod moving;
#[cfg(test)]
mod tests;

use serde_json::Value;

use self::admission::Surroundings;
use super::rules::{CONFIRMATION, label_seeds, unconfirmed};
use crate::api::failure::Failure;
use crate::api::rules::{Rules, Write};
use crate::api::store::State;
use crate::json::{entry, list, map, text};

const TASKS: &str = "shoot.gardener.cloud/tasks";
const DNS_TASKS: [&str; 3] = ["deployDNSRecordInternal", "deployDNSRecordExternal", "deployDNSRecordIngress"];
const CREATED_BY: &str = "gardener.cloud/created-by";
const CONFIRMED_BY: &str = "deletion.gardener.cloud/confirmed-by";

/// Whether it has no workers.
pub fn is_workerless(shoot: &Value) -> bool {
    list(shoot, "/spec/provider/workers").is_empty()
}

fn is_hibernated(shoot: &Value) -> bool {
    shoot.pointer("/spec/hibernation/enabled") == Some(&Value::Bool(true))
}

fn is_annotated(shoot: &Value, key: &str) -> bool {
    entry(shoot, "/metadata/annotations", key) == Some("true")
}

/// Adds the tasks for the next reconciliation of the agent.
fn add_tasks(shoot: &mut Value, tasks: &[&str]) {
    let present = entry(shoot, "/metadata/annotations", TASKS).unwrap_or_default().to_owned();
    let mut all: Vec<&str> = present.split(',').filter(|t| !t.is_empty()).collect();
    all.extend(tasks.iter().filter(|t| !present.split(',').any(|p| p == **t)));
    let all = all.join(",");
    map(shoot, "/metadata/annotations").insert(TASKS.to_owned(), all.into());
}

/// Labels for the seeds in spec and status, and for the extensions that the Shoot uses.
fn label(shoot: &mut Value) {
    let (spec, status) =
        (text(shoot, "/spec/seedName").to_owned(), text(shoot, "/status/seedName").to_owned());
    label_seeds(shoot, &[&spec, &status]);
    let mut wanted =
        vec![format!("provider.extensions.gardener.cloud/{}", text(shoot, "/spec/provider/type"))];
    let extensions = list(shoot, "/spec/extensions").iter();
    wanted.extend(extensions.map(|e| format!("extensions.extensions.gardener.cloud/{}", text(e, "/type"))));
    let workers = list(shoot, "/spec/provider/workers").iter();
    let images = workers.map(|w| text(w, "/machine/image/name")).filter(|image| !image.is_empty());
    wanted.extend(images.map(|image| format!("operatingsystemconfig.extensions.gardener.cloud/{image}")));
    let network = text(shoot, "/spec/networking/type");
    if !network.is_empty() {
        wanted.push(format!("networking.extensions.gardener.cloud/{network}"));
    }
    let labels = map(shoot, "/metadata/labels");
    let kept = |key: &String| {
        let of_extension = ["provider", "extensions", "networking", "operatingsystemconfig"]
            .iter()
            .any(|kind| key.starts_with(&format!("{kind}.extensions.gardener.cloud/")));
        !of_extension || wanted.contains(key)
    };
    labels.retain(|key, _| kept(key));
    for key in wanted {
        labels.insert(key, "true".into());
    }
}

/// Shoots.
pub struct Shoot;

impl Rules for Shoot {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        defaults::complete(object);
        let around = Surroundings::find(object, write)?;
        around.complete(object, write)?;
        map(object, "/metadata/annotations").insert(CREATED_BY.to_owned(), write.user.into());
        add_tasks(object, &["deployInfrastructure"]);
        add_tasks(object, &DNS_TASKS);
        checks::whole(object, write)?;
        around.check(object, write)?;
        label(object);
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        defaults::complete(new);
        match write.subresource {
            "status" => checks::status(old, new, write)?,
            "binding" => bind(old, new, write)?,
            _ => update(old, new, write)?,
        }
        label(new);
        Ok(())
    }

    fn bumps_generation(&self, old: &Value, new: &Value) -> bool {
        generation::spec_counts(old, new)
    }

    fn operation_bumps(&self, old: &Value, asked: &Value, write: &Write<'_>) -> bool {
        match write.subresource {
            "status" => generation::status_counts(old, asked),
            "binding" => old["spec"]["seedName"] != asked["spec"]["seedName"],
            _ => generation::asked(asked).counts || generation::is_forced_anew(old, asked),
        }
    }

    fn holds_back(&self, object: &Value, _state: &State) -> Option<String> {
        moving::keeps(object).or_else(|| unconfirmed(object))
    }
}

fn bind(old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
    checks::binding(old, new, write)?;
    let around = Surroundings::find(new, write)?;
    around.complete(new, write)?;
    around.check(new, write)
}

fn update(old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
    checks::released(old, new, write)?;
    checks::operations(old, new, write)?;
    generation::take_operations(new);
    if is_annotated(new, CONFIRMATION) && !is_annotated(old, CONFIRMATION) {
        map(new, "/metadata/annotations").insert(CONFIRMED_BY.to_owned(), write.user.into());
    }
    checks::change(old, new, write)?;
    // What its profile or project does not allow any more must not keep a Shoot from losing its finalizers.
    if old["spec"] == new["spec"] {
        return Ok(());
    }
    moving::frozen(old, new, write)?;
    let woken = is_hibernated(old) && !is_hibernated(new);
    if woken || old["spec"]["dns"] != new["spec"]["dns"] {
        add_tasks(new, &DNS_TASKS);
    }
    let around = Surroundings::find(new, write)?;
    around.complete(new, write)?;
    checks::whole(new, write)?;
    around.check(new, write)
}
