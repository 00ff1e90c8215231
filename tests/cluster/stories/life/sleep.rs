//! A hibernated Shoot: none of its pods run, and it wakes up with its data and its address.

use gardenlet::api::core::{POD, SERVICE};
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::kube::{Client, ListParams, Patch};
use serde_json::{Value, json};

use super::owner::Owner;
use super::{Name, PROJECT, extensions, succeeded};
use crate::agent::Agent;
use crate::failure::{Result, equal};
use crate::lab::Lab;
use crate::wait;

/// The longest time until a Shoot answers after its wake-up, and how long the act waits for it.
const AWAKE_IN_S: f64 = 120.0;
const AWAKE_WITHIN_S: u64 = 240;

/// A hibernated Shoot has no pods, and the same Services. Its extensions get a request.
pub(super) fn falls_asleep(lab: &Lab, garden: &Client, agent: &mut Agent, name: Name) -> Result<()> {
    let (before, asked) = (services(lab, name)?, extensions::asked(lab, name)?);
    let began = wait::now();
    let shoot = changed(lab, garden, agent, (name, &hibernation(true)))?;
    println!("       {:6.1} s  asleep", wait::seconds_since(began));
    extensions::asked_since(lab, name, asked)?;
    equal("status.hibernated", &shoot["status"]["hibernated"], &json!(true))?;
    let pods = lab.seed.client()?.list::<Value>(&POD, &name.plane(), &ListParams::default())?.items;
    let pods: Vec<&Value> = pods.iter().map(|pod| &pod["metadata"]["name"]).collect();
    equal("pods of a hibernated Shoot", &pods, &Vec::new())?;
    equal("its Services", &services(lab, name)?, &before)
}

/// After its owner has woken it up, it answers at the same address and port, accepts the same clients, and has the
/// stored data. Its extensions get a request.
pub(super) fn wakes_up(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (name, owner): (Name, &Owner<'_>),
) -> Result<()> {
    let (before, asked) = (services(lab, name)?, extensions::asked(lab, name)?);
    let began = wait::now();
    garden.patch::<Value>(&SHOOT, &Key::new(PROJECT, name.0), &Patch::Merge(hibernation(false)))?;
    wait::until("the Shoot to be awake", AWAKE_WITHIN_S, || owner.finds_everything().map(Some))?;
    wait::measured("seconds until a Shoot is awake", wait::seconds_since(began), AWAKE_IN_S)?;
    let shoot = succeeded(lab, garden, agent, (name, "Reconcile"))?;
    println!("       {:6.1} s  awake: Reconcile Succeeded", wait::seconds_since(began));
    extensions::asked_since(lab, name, asked)?;
    equal("status.hibernated", &shoot["status"]["hibernated"], &json!(false))?;
    equal("its Services", &services(lab, name)?, &before)
}

fn hibernation(enabled: bool) -> Value {
    json!({"spec": {"hibernation": {"enabled": enabled}}})
}

/// Names, addresses and ports of the Services of a control plane.
fn services(lab: &Lab, name: Name) -> Result<Vec<Value>> {
    let all = lab.seed.client()?.list::<Value>(&SERVICE, &name.plane(), &ListParams::default())?.items;
    let spec =
        |service: &Value| json!([service["metadata"]["name"], service["metadata"]["uid"], service["spec"]]);
    Ok(all.iter().map(spec).collect())
}

/// Patches a Shoot, and waits for the effect.
pub(super) fn changed(
    lab: &Lab,
    garden: &Client,
    agent: &mut Agent,
    (name, patch): (Name, &Value),
) -> Result<Value> {
    garden.patch::<Value>(&SHOOT, &Key::new(PROJECT, name.0), &Patch::Merge(patch.clone()))?;
    succeeded(lab, garden, agent, (name, "Reconcile"))
}
