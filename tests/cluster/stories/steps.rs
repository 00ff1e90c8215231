//! Steps of several stories: wait until the seed is ready, wait until an extension is installed.

use gardenlet::api::coordination::LEASE;
use gardenlet::api::gardener::{CONTROLLER_INSTALLATION, SEED as SEEDS};
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use gardenlet::kube::{Client, ListParams};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::chart;
use crate::failure::{Failure, Result};
use crate::lab::Lab;
use crate::wait;
use crate::world::SEED;
use support::garden::prepare::{self, PROVIDER};

/// Registers the extension `demo` for every seed. Without a node its Deployment has no replicas.
pub(crate) fn register_demo(lab: &Lab, replicas: u8) -> Result<()> {
    let objects = prepare::extension("demo", &chart::demo()?, &json!({"replicas": replicas}));
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))
}

/// Waits until the Seed is ready and reconciled and its lease exists.
pub(crate) fn ready(lab: &Lab, agent: &mut Agent) -> Result<()> {
    let garden = lab.garden.client()?;
    while_running("the seed to be ready", 60, agent, || is_ready(&garden))
}

/// A value once the Seed is ready and reconciled (the condition alone may come before), and its lease exists.
pub(crate) fn is_ready(garden: &Client) -> Result<Option<()>> {
    is_seed_ready(garden, SEED)
}

/// The same for any Seed.
pub(crate) fn is_seed_ready(garden: &Client, name: &str) -> Result<Option<()>> {
    let seed = garden.find::<Value>(&SEEDS, &Key::cluster(name))?;
    let is_ready = |seed: Value| {
        condition(&seed, "GardenletReady") == "True"
            && seed["status"]["lastOperation"]["state"] == "Succeeded"
    };
    if !seed.is_some_and(is_ready) {
        return Ok(None);
    }
    garden.get::<Value>(&LEASE, &Key::new("gardener-system-seed-lease", name))?;
    Ok(Some(()))
}

/// Waits until all conditions of the one ControllerInstallation are good, and returns its name.
pub(crate) fn installed(garden: &Client, agent: &mut Agent) -> Result<String> {
    while_running("the installation to be healthy", 90, agent, || is_installed(garden))
}

/// The name of the one ControllerInstallation besides that of the provider, once all its conditions are good.
pub(crate) fn is_installed(garden: &Client) -> Result<Option<String>> {
    let found = installations(garden)?;
    let [installation] = found.as_slice() else { return Ok(None) };
    if !is_well(installation) {
        return Err(Failure::new(installation["status"].to_string()));
    }
    Ok(installation["metadata"]["name"].as_str().map(str::to_owned))
}

/// Whether all conditions of a ControllerInstallation are good.
pub(crate) fn is_well(installation: &Value) -> bool {
    let conditions =
        ["Valid", "Installed", "Healthy", "Progressing"].map(|kind| condition(installation, kind));
    conditions == ["True", "True", "True", "False"]
}

/// The ControllerInstallations that a story is about: all except that of the provider.
pub(crate) fn installations(garden: &Client) -> Result<Vec<Value>> {
    let mut found =
        garden.list::<Value>(&CONTROLLER_INSTALLATION, ALL_NAMESPACES, &ListParams::default())?.items;
    found.retain(|installation| installation["spec"]["registrationRef"]["name"] != PROVIDER);
    Ok(found)
}

/// The reason of the condition about the seed's components, once it has this status.
pub(crate) fn components_are(garden: &Client, status: &str) -> Result<Option<String>> {
    let seed = garden.get::<Value>(&SEEDS, &Key::cluster(SEED))?;
    let mut conditions = seed["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|c| c["type"] == "SeedSystemComponentsHealthy" && c["status"] == status);
    Ok(found.and_then(|found| found["reason"].as_str().map(str::to_owned)))
}

/// Waits for a value; not longer than the agent runs.
pub(crate) fn while_running<T>(
    what: &str,
    seconds: u64,
    agent: &mut Agent,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    wait::until(what, seconds, || match agent.ensure_running() {
        Err(ended) => Ok(Some(Err(ended))),
        Ok(()) => look().map(|found| found.map(Ok)),
    })?
}

/// The status of a condition; empty if it is missing.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}
