//! A Seed's own objects: its CA, an Extension of class `seed`, the record of its ingress domain.

use gardenlet::api::core::{SECRET, SERVICE};
use gardenlet::api::extensions::{DNS_RECORD, EXTENSION};
use gardenlet::api::gardener::{OPERATION, SEED};
use gardenlet::api::meta::{Key, Resource};
use gardenlet::base::clock::Clock;
use gardenlet::format::time::rfc3339;
use gardenlet::kube::{Client, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Result, ensure, equal};
use crate::lab::Lab;
use crate::stories::steps::{installed, ready, register_demo};
use crate::wait;
use crate::world::{self, World};

/// The Seed requests its own Extension, which the story plays; the Seed waits for its creation and for its deletion.
/// With a gateway the Seed requests a record, too.
pub(crate) fn extension(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    let ca = seed.get::<Value>(&SECRET, &Key::new("garden", "ca-seed-fc28a8dd"))?;
    equal("the label of the CA", &ca["metadata"]["labels"]["manager-identity"], &json!("gardenlet"))?;
    register_demo(lab, 0)?;
    installed(&garden, &mut agent)?;
    let asks = |extensions: Value| {
        let patch = Patch::Merge(json!({"spec": {"extensions": extensions}}));
        garden.patch::<Value>(&SEED, &Key::cluster(world::SEED), &patch)
    };
    let patch =
        |patch: Value| seed.patch::<Value>(&EXTENSION, &Key::new("garden", "demo"), &Patch::Merge(patch));
    asks(json!([{"type": "demo", "providerConfig": {"volume": 11}}]))?;
    let found =
        wait::until("the Extension", 60, || seed.find::<Value>(&EXTENSION, &Key::new("garden", "demo")))?;
    let spec = json!({"type": "demo", "class": "seed", "providerConfig": {"volume": 11}});
    equal("the spec of the Extension", &found["spec"], &spec)?;
    patch(json!({"metadata": {"finalizers": ["example.org/demo"]}}))?;
    succeeds(&seed, &EXTENSION, "demo")?;
    let settled = || -> std::result::Result<Option<()>, gardenlet::kube::Error> {
        let live = garden.get::<Value>(&SEED, &Key::cluster(world::SEED))?;
        let is_observed = live["status"]["observedGeneration"] == live["metadata"]["generation"];
        Ok((is_observed && live["status"]["lastOperation"]["state"] == "Succeeded").then_some(()))
    };
    wait::until("the Seed to be reconciled", 60, settled)?;
    has_gateway(lab)?;
    asks(Value::Null)?;
    wait::until("the deletion of the Extension", 60, || {
        let found = seed.find::<Value>(&EXTENSION, &Key::new("garden", "demo"))?;
        Ok::<_, gardenlet::kube::Error>(
            found.filter(|object| object["metadata"]["deletionTimestamp"].is_string()),
        )
    })?;
    patch(json!({"metadata": {"finalizers": null}}))?;
    let record = wait::until("the record", 60, || {
        seed.find::<Value>(&DNS_RECORD, &Key::new("garden", "seed-ingress"))
    })?;
    equal("the address of the record", &record["spec"]["values"], &json!(["192.0.2.7"]))?;
    succeeds(&seed, &DNS_RECORD, "seed-ingress")?;
    wait::until("the Seed to be reconciled", 60, settled)?;
    ensure(seed.find::<Value>(&EXTENSION, &Key::new("garden", "demo"))?.is_none(), || {
        "the Extension still exists".to_owned()
    })?;
    agent.ensure_running()
}

/// The extension completes the request.
fn succeeds(seed: &Client, resource: &Resource, name: &str) -> Result<()> {
    let key = Key::new("garden", name);
    let asked = Patch::Merge(json!({"metadata": {"annotations": {OPERATION: null}}}));
    seed.patch::<Value>(resource, &key, &asked)?;
    let operation = json!({"type": "Create", "state": "Succeeded", "progress": 100, "description": "by the story",
        "lastUpdateTime": rfc3339(Clock::system().now())});
    let status = json!({"status": {"observedGeneration": 1, "lastOperation": operation}});
    seed.patch_status::<Value>(resource, &key, &Patch::Merge(status))?;
    Ok(())
}

/// There is an ingress gateway with an address, and the garden has the credentials for the record of its domain.
fn has_gateway(lab: &Lab) -> Result<()> {
    let (namespace, name) = ("istio-ingress", "istio-ingressgateway");
    lab.seed.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}},
    ]}))?;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}});
    lab.seed.client()?.patch_status::<Value>(&SERVICE, &Key::new(namespace, name), &Patch::Merge(status))?;
    lab.garden.apply(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "dns", "namespace": "garden"},
        "stringData": {"token": "one"}}),
    )
}
