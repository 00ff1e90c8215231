//! The embedded applier instead of a gardener-resource-manager.

use gardenlet::api::core::{CONFIG_MAP, DEPLOYMENT, SERVICE_ACCOUNT};
use gardenlet::api::gardener::CONTROLLER_DEPLOYMENT;
use gardenlet::api::meta::Key;
use gardenlet::kube::{Client, DeleteParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::Result;
use crate::lab::Lab;
use crate::stories::steps::{installed, ready, register_demo, while_running};
use crate::world::{self, World};

const NAME: &str = "gardener-resource-manager";

/// The configuration selects the embedded applier: a Deployment of the other one is scaled to 0. Then the account of
/// both is deleted and created again: the applier continues within seconds, with a token of the new account.
pub(crate) fn takes_the_place(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    seed.create::<Value>(&DEPLOYMENT, "garden", &deployment())?;
    let mut options = world::agent(lab, "agent")?;
    options.config["edge"]["resourceManager"] = json!("Embedded");
    let mut agent = Agent::start(lab, options)?;
    while_running("the scale-down of the other one", 60, &mut agent, || {
        let found = seed.get::<Value>(&DEPLOYMENT, &Key::new("garden", NAME))?;
        Ok((found["spec"]["replicas"] == 0).then_some(()))
    })?;
    ready(lab, &mut agent)?;
    register_demo(lab, 0)?;
    let name = installed(&garden, &mut agent)?;
    seed.delete(&SERVICE_ACCOUNT, &Key::new("garden", NAME), &DeleteParams::default())?;
    lab.seed.kubectl(&["create", "serviceaccount", NAME, "--namespace=garden"])?;
    let values = Patch::Merge(json!({"helm": {"values": {"replicas": 0, "greeting": "again"}}}));
    garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &values)?;
    // The API server accepts the old token for ten more seconds.
    while_running("the new greeting", 60, &mut agent, || greets(&seed, &name, "again"))?;
    installed(&garden, &mut agent)?;
    agent.ensure_running()
}

pub(crate) fn deployment() -> Value {
    let labels = json!({"app": NAME});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME, "namespace": "garden"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "manager", "image": "registry.example.org/manager:1"}]}}}})
}

fn greets(seed: &Client, installation: &str, greeting: &str) -> Result<Option<()>> {
    let map = seed.find::<Value>(&CONFIG_MAP, &Key::new(format!("extension-{installation}"), "demo"))?;
    Ok(map.is_some_and(|map| map["data"]["greeting"] == greeting).then_some(()))
}
