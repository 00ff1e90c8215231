//! The main job: the agent as a real process, from a bootstrap token to a seed with extensions.

use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::{CONFIG_MAP, SECRET};
use gardenlet::api::gardener::{
    CONTROLLER_DEPLOYMENT, CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, SEED as SEEDS,
};
use gardenlet::kube::{Client, DeleteParams, ListParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::chart;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::snapshot::Snapshot;
use crate::support::garden::prepare;
use crate::wait;
use crate::world::{self, SEED, World};

/// The label of what the garbage collector may remove.
const COLLECTABLE: &str = "resources.gardener.cloud/garbage-collectable-reference";

/// A bootstrap token becomes a certificate, the seed registers, its lease is renewed, its condition becomes True.
pub(crate) fn joins(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    let bootstrap = seed.find::<Value>(&SECRET, "garden", "gardenlet-kubeconfig-bootstrap")?;
    ensure(bootstrap.is_none(), || "the bootstrap Secret is still there".to_owned())?;
    let token = format!("bootstrap-token-{}", world.preparation.token_id());
    let token = garden.find::<Value>(&SECRET, "kube-system", &token)?;
    ensure(token.is_none(), || "the bootstrap token is still there".to_owned())?;
    let status = agent.terminate()?;
    equal("the exit code", &status.code(), &Some(0))
}

/// A chart with a Deployment, RBAC, a definition and an instance of it is installed; new values roll out; its deletion
/// leaves nothing behind.
pub(crate) fn installs(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    let before = Snapshot::take(&lab.seed)?;
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items":
        prepare::extension("demo", &chart::demo()?, &json!({"replicas": 0}))}))?;
    let name = installed(&garden, &mut agent)?;
    let namespace = format!("extension-{name}");
    let greeting = || -> std::result::Result<Option<String>, gardenlet::kube::Error> {
        let map = seed.find::<Value>(&CONFIG_MAP, &namespace, "demo")?;
        Ok(map.and_then(|map| map["data"]["greeting"].as_str().map(str::to_owned)))
    };
    equal("the greeting", &greeting()?, &Some("hello".to_owned()))?;
    let thing = lab.seed.kubectl(&[
        "get",
        "things",
        "demo",
        "--namespace",
        &namespace,
        "--output=jsonpath={.spec.greeting}",
    ])?;
    equal("the instance", thing.as_str(), "hello")?;
    let values = Patch::Merge(json!({"helm": {"values": {"replicas": 0, "greeting": "bye"}}}));
    garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, "", "demo", "", &values)?;
    wait::until("the new greeting", 60, || greeting().map(|found| found.filter(|text| text == "bye")))?;
    installed(&garden, &mut agent)?;
    garden.delete(&CONTROLLER_REGISTRATION, "", "demo", &DeleteParams::default())?;
    wait::until("the installation to go", 60, || {
        garden.find::<Value>(&CONTROLLER_INSTALLATION, "", &name).map(|found| found.is_none().then_some(()))
    })?;
    let mut left = Snapshot::take(&lab.seed)?.since(&before);
    // The manifests of the first values: nobody refers to them, and the garbage collector spares what is young.
    left.changed.retain(|_, object| object["metadata"]["labels"][COLLECTABLE] != "true");
    equal("left in the seed", &left.keys(), &Vec::new())?;
    agent.ensure_running()
}

/// Waits until the Seed is ready and its lease is there.
fn ready(lab: &Lab, agent: &mut Agent) -> Result<()> {
    let garden = lab.garden.client()?;
    while_running("the seed to be ready", 60, agent, || {
        let seed = garden.find::<Value>(&SEEDS, "", SEED)?;
        Ok(seed.filter(|seed| condition(seed, "GardenletReady") == "True").map(drop))
    })?;
    garden.get::<Value>(&LEASE, "gardener-system-seed-lease", SEED).map(drop)?;
    Ok(())
}

/// Waits until the one ControllerInstallation has all its conditions, and returns its name.
fn installed(garden: &Client, agent: &mut Agent) -> Result<String> {
    while_running("the installation to be healthy", 90, agent, || {
        let found = garden.list::<Value>(&CONTROLLER_INSTALLATION, "", &ListParams::default())?.items;
        let [installation] = found.as_slice() else { return Ok(None) };
        let conditions =
            ["Valid", "Installed", "Healthy", "Progressing"].map(|kind| condition(installation, kind));
        let good = conditions == ["True", "True", "True", "False"];
        let name = installation["metadata"]["name"].as_str().unwrap_or_default();
        if good {
            Ok(Some(name.to_owned()))
        } else {
            Err(Failure::new(format!("{}", installation["status"])))
        }
    })
}

/// Waits for something; not longer than the agent runs.
fn while_running<T>(
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

/// The status of a condition; empty if it is not there.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}
