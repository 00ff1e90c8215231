//! The Seed's rounds on real servers: bad input, and a flow that another gardenlet began.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, DEPLOYMENT, SECRET};
use gardenlet::api::crd::CUSTOM_RESOURCE_DEFINITION;
use gardenlet::api::gardener::SEED as SEEDS;
use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Resource};
use gardenlet::api::resources::{GARBAGE_COLLECTABLE, MANAGED_RESOURCE};
use gardenlet::components::managed::{self, Managed};
use gardenlet::components::{cluster_identity, crds, install, system, webhooks};
use gardenlet::kube::{Client, DeleteParams, ListParams, Seed};
use gardenlet::secrets::{Options as Wanted, SecretConfig};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::secrets::Secrets;
use crate::stories::steps::{ready, while_running};
use crate::stories::{applier, resources};
use crate::wait;
use crate::world::{self, SEED, World};

const CLASSES: Resource = Resource::new("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false);
const CLASS: &str = "gardener-system-500";
const AUTOSCALERS: &str = "verticalpodautoscalers.autoscaling.k8s.io";
/// A component of upstream that this agent does not have.
const COMPONENT: &str = "dependency-watchdog-weeder";
const GRM: &str = "gardener-resource-manager";

/// A foreign definition that lacks a version that charts need, then a PriorityClass with another value: the Seed
/// reports both with the remedy. The agent changes neither, and continues when they are corrected.
pub(crate) fn trouble(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    let before: Value = seed.create(&CUSTOM_RESOURCE_DEFINITION, CLUSTER_SCOPED, &autoscaler())?;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": CLASS}, "value": 5});
    seed.create::<Value>(&CLASSES, CLUSTER_SCOPED, &class)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;

    let words = [AUTOSCALERS, "belongs to another program and does not serve v1: update it, or delete it"];
    says(&garden, &mut agent, &words)?;
    let found: Value = seed.get(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(AUTOSCALERS))?;
    equal("the foreign definition", &found["spec"], &before["spec"])?;
    equal("its labels", &found["metadata"]["labels"], &before["metadata"]["labels"])?;
    seed.delete(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(AUTOSCALERS), &DeleteParams::default())?;

    let words =
        ["ManagedResource garden/system", CLASS, "may not be changed in an update", "delete this object"];
    says(&garden, &mut agent, &words)?;
    equal("the foreign value", &seed.get::<Value>(&CLASSES, &Key::cluster(CLASS))?["value"], &json!(5))?;
    let mut audits = [lab.garden.audit(), lab.seed.audit()];
    wait::pause(Duration::from_secs(30));
    for audit in &mut audits {
        let is_lease = |uri: &str| uri.contains("/leases");
        let all: Vec<String> =
            audit.requests()?.into_iter().map(|r| r.uri).filter(|uri| !is_lease(uri)).collect();
        ensure(all.len() <= 240, || format!("{} requests in half a minute: {all:#?}", all.len()))?;
    }
    seed.delete(&CLASSES, &Key::cluster(CLASS), &DeleteParams::default())?;
    while_running("the right value", 90, &mut agent, || {
        let class = seed.find::<Value>(&CLASSES, &Key::cluster(CLASS))?;
        Ok(class.filter(|class| class["value"] == 999_998_500).map(drop))
    })?;
    ready(lab, &mut agent)?;
    let ours: Value = seed.get(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(AUTOSCALERS))?;
    ensure(install::established(&ours).is_ok(), || format!("{}", ours["status"]))?;
    agent.ensure_running()
}

/// Waits until the Seed's last operation failed for a reason.
fn says(garden: &Client, agent: &mut Agent, words: &[&str]) -> Result<()> {
    while_running(&format!("an error with {words:?}"), 120, agent, || {
        let Some(seed) = garden.find::<Value>(&SEEDS, &Key::cluster(SEED))? else { return Ok(None) };
        let operation = &seed["status"]["lastOperation"];
        let why = operation["description"].as_str().unwrap_or_default();
        if operation["state"] == "Error" && words.iter().all(|word| why.contains(word)) {
            return Ok(Some(()));
        }
        Err(Failure::new(operation.to_string()))
    })
}

/// A definition of VerticalPodAutoscaler that shares only its name with ours.
fn autoscaler() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "description": "of somebody else"}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": AUTOSCALERS, "labels": {"owner": "somebody"},
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"}},
        "spec": {"group": "autoscaling.k8s.io", "scope": "Namespaced",
            "names": {"kind": "VerticalPodAutoscaler", "plural": "verticalpodautoscalers"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": schema}]}})
}

/// The Go gardenlet was stopped in the middle of its Seed flow: the embedded applier and the flow continue, the Secrets
/// of the secrets manager are unchanged, and unknown objects are kept.
pub(crate) fn halfway(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let seed = lab.seed.client()?;
    wait::until("the definitions", 30, || {
        match install::ensure(&Seed(lab.seed.client()?), crds::managed_resource()) {
            Ok(install::Step::Done) => Ok(Some(())),
            Ok(install::Step::Again(waiting)) => Err(Failure::new(waiting[0].to_string())),
            Err(error) => Err(Failure::from(error)),
        }
    })?;
    authorities(lab)?;
    components(lab)?;
    let (secrets_before, mut specs_before) = (secrets(&seed)?, specs(&seed)?);
    // The embedded applier has no webhooks that protect from deletions.
    specs_before.remove(system::NAME);
    let is_there = secrets_before.contains_key("ca-seed-fc28a8dd");
    ensure(is_there, || format!("{:?}", secrets_before.keys()))?;
    let mut options = world::agent(lab, "agent")?;
    options.config["edge"]["resourceManager"] = json!("Embedded");
    let mut agent = Agent::start(lab, options)?;
    ready(lab, &mut agent)?;
    while_running("the components of another gardenlet", 60, &mut agent, || {
        let map = seed.find::<Value>(&CONFIG_MAP, &Key::new("garden", COMPONENT))?;
        Ok(map.map(drop))
    })?;
    equal(
        "replicas",
        &seed.get::<Value>(&DEPLOYMENT, &Key::new("garden", GRM))?["spec"]["replicas"],
        &json!(0),
    )?;
    equal("webhooks that refuse writes", &webhooks::blocking(&seed)?, &None)?;
    let identity: Value =
        seed.get(&CONFIG_MAP, &Key::new(cluster_identity::NAMESPACE, cluster_identity::NAME))?;
    equal("the origin", &identity["data"]["origin"], &json!("seed"))?;
    let secrets_after = secrets(&seed)?;
    nothing_is_lost(&secrets_before, &secrets_after)?;
    nothing_is_lost(&specs_before, &specs(&seed)?)?;
    let of_cas = |all: &BTreeMap<String, Value>| -> BTreeSet<String> {
        all.keys().filter(|name| name.starts_with("ca-seed")).cloned().collect()
    };
    equal("the CAs", &of_cas(&secrets_after), &of_cas(&secrets_before))?;
    agent.ensure_running()
}

/// The CA of the seed, which the Go gardenlet's Seed flow creates first. The names are those of upstream's library.
fn authorities(lab: &Lab) -> Result<()> {
    let day = Duration::from_secs(86_400);
    let ca = SecretConfig::Ca {
        name: "ca-seed".to_owned(),
        common_name: "kubernetes".to_owned(),
        validity: Some(30 * day),
    };
    let keep = Wanted { keep_old: true, ignore_old_after: Some(day), ..Wanted::default() };
    Secrets::new(lab.seed.client()?, "garden")?.one(&ca, &keep)
}

/// The progress of the Go gardenlet: gardener-resource-manager and its webhooks, the classes, a component that this
/// agent does not have. Nothing is applied yet.
fn components(lab: &Lab) -> Result<()> {
    let seed = lab.seed.client()?;
    seed.create::<Value>(&DEPLOYMENT, "garden", &applier::deployment())?;
    let map = format!(
        "apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n  name: {COMPONENT}\n  namespace: garden\n"
    );
    let seed = Seed(seed);
    managed::deploy(&seed, &system::fill(None))?;
    managed::deploy(&seed, &Managed::component(COMPONENT, &map))?;
    resources::leave_webhooks(&seed, &json!({}))
}

/// The immutable parts of each Secret of the secrets manager and of the ManagedResources, by its name.
fn secrets(seed: &Client) -> Result<BTreeMap<String, Value>> {
    let mut all = seed.list::<Value>(&SECRET, "garden", &ListParams::default())?.items;
    let label = |secret: &Value, name: &str| secret["metadata"]["labels"][name].is_string();
    all.retain(|secret| label(secret, "manager-identity") || label(secret, GARBAGE_COLLECTABLE));
    Ok(by_name(&all, |secret| json!([secret["metadata"]["uid"], secret["data"], secret["type"]])))
}

/// The specs of the ManagedResources, by their names.
fn specs(seed: &Client) -> Result<BTreeMap<String, Value>> {
    let all = seed.list::<Value>(&MANAGED_RESOURCE, "garden", &ListParams::default())?.items;
    Ok(by_name(&all, |managed| json!([managed["metadata"]["uid"], managed["spec"]])))
}

fn by_name(all: &[Value], of: impl Fn(&Value) -> Value) -> BTreeMap<String, Value> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    all.iter().map(|object| (name(object), of(object))).collect()
}

/// All earlier objects exist unchanged.
fn nothing_is_lost(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Result<()> {
    before.iter().try_for_each(|(name, what)| equal(name, &after.get(name), &Some(what)))
}
