//! Shoots on the real API servers, as far as only the garden is involved.

use gardenlet::api::core::{CONFIG_MAP, NAMESPACE};
use gardenlet::api::gardener::{INTERNAL_SECRET, SEED as SEEDS, SHOOT};
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use gardenlet::kube::{Client, DeleteParams, ListParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Result, ensure, equal};
use crate::lab::Lab;
use crate::stories::steps::while_running;
use crate::wait;
use crate::world::{self, SEED, World};
use support::garden::prepare;

const NAMESPACE_OF_PROJECT: &str = "garden-p";
const NAME: &str = "s1";

/// A waiting Shoot is bound at most a minute after the agent has registered its Seed.
pub(crate) fn bound(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let garden = lab.garden.client()?;
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": prepare::for_shoots()}))?;
    wait::until("the namespace of the project", 30, || {
        garden.find::<Value>(&NAMESPACE, &Key::cluster(NAMESPACE_OF_PROJECT))
    })?;
    lab.garden.apply(&prepare::shoot(NAME))?;
    wait::until("the scheduler to find no Seed", 30, || {
        let shoot = garden.get::<Value>(&SHOOT, &Key::new(NAMESPACE_OF_PROJECT, NAME))?;
        let said = shoot["status"]["lastOperation"]["description"].as_str().unwrap_or_default();
        Ok::<_, gardenlet::kube::Error>(said.starts_with("Failed to schedule Shoot: ").then_some(()))
    })?;
    let mut options = world::agent(lab, "agent")?;
    options.config["seedConfig"]["spec"]["networks"]["shootDefaults"] = json!({"services": "100.64.0.0/13"});
    let mut agent = Agent::start(lab, options)?;
    while_running("the Seed to be registered", 60, &mut agent, || {
        Ok(garden.find::<Value>(&SEEDS, &Key::cluster(SEED))?)
    })?;
    let bound = while_running("the Shoot to be bound", 60, &mut agent, || {
        let shoot = garden.get::<Value>(&SHOOT, &Key::new(NAMESPACE_OF_PROJECT, NAME))?;
        Ok(Some(shoot).filter(|shoot| shoot["spec"]["seedName"] == SEED))
    })?;
    equal("the generation", &bound["metadata"]["generation"], &json!(2))?;
    equal("the services", &bound["spec"]["networking"]["services"], &json!("100.64.0.0/13"))?;
    let selector = ListParams {
        label_selector: format!("name.seed.gardener.cloud/{SEED}=true"),
        ..ListParams::default()
    };
    equal(
        "the Shoots of the Seed",
        &garden.list::<Value>(&SHOOT, ALL_NAMESPACES, &selector)?.items.len(),
        &1,
    )?;
    collected(&garden, &bound)?;
    agent.ensure_running()
}

/// The garden's own garbage collector deletes the objects that a Shoot owns, in whichever server they are stored.
fn collected(garden: &Client, shoot: &Value) -> Result<()> {
    let metadata = |name: &str| {
        json!({"name": name, "namespace": NAMESPACE_OF_PROJECT, "ownerReferences": [{
            "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "name": NAME, "controller": true,
            "blockOwnerDeletion": true, "uid": shoot["metadata"]["uid"]}]})
    };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("s1.ca-cluster")});
    garden.create::<Value>(&CONFIG_MAP, NAMESPACE_OF_PROJECT, &map)?;
    let secret = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "InternalSecret",
        "metadata": metadata("s1.ca-client"), "stringData": {"ca.crt": "x"}});
    garden.create::<Value>(&INTERNAL_SECRET, NAMESPACE_OF_PROJECT, &secret)?;
    let key = Key::new(NAMESPACE_OF_PROJECT, NAME);
    let unconfirmed = garden.delete(&SHOOT, &key, &DeleteParams::default());
    ensure(unconfirmed.is_err_and(|e| e.status_code() == Some(403)), || {
        "an unconfirmed deletion was not refused".to_owned()
    })?;
    let confirmation = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    garden.patch::<Value>(&SHOOT, &key, &Patch::Merge(confirmation))?;
    garden.delete(&SHOOT, &key, &DeleteParams::default())?;
    // The collector searches for new kinds every half minute.
    wait::until("the end of the Shoot and of what it owns", 120, || {
        let left = [
            garden.find::<Value>(&SHOOT, &key)?,
            garden.find::<Value>(&CONFIG_MAP, &Key::new(NAMESPACE_OF_PROJECT, "s1.ca-cluster"))?,
            garden.find::<Value>(&INTERNAL_SECRET, &Key::new(NAMESPACE_OF_PROJECT, "s1.ca-client"))?,
        ];
        Ok::<_, gardenlet::kube::Error>(left.iter().all(Option::is_none).then_some(()))
    })
}
