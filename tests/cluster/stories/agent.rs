//! The main job: the agent as a real process, from a bootstrap token to a seed with extensions.

use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::{CONFIG_MAP, DEPLOYMENT, SECRET, SERVICE_ACCOUNT};
use gardenlet::api::gardener::{CONTROLLER_DEPLOYMENT, CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Resource};
use gardenlet::format::base64;
use gardenlet::kube::{Client, DeleteParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Result, ensure, equal};
use crate::lab::Lab;
use crate::snapshot::{COLLECTABLE, Snapshot};
use crate::stories::steps::{components_are, installed, ready, register_demo};
use crate::wait;
use crate::world::{self, World};

/// A bootstrap token becomes a certificate, the seed registers, its lease is renewed, its condition becomes True.
pub(crate) fn joins(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    let bootstrap = seed.find::<Value>(&SECRET, &Key::new("garden", "gardenlet-kubeconfig-bootstrap"))?;
    ensure(bootstrap.is_none(), || "the bootstrap Secret is still there".to_owned())?;
    let token = format!("bootstrap-token-{}", world.preparation.token_id());
    let token = garden.find::<Value>(&SECRET, &Key::new("kube-system", &token))?;
    ensure(token.is_none(), || "the bootstrap token is still there".to_owned())?;
    let status = agent.terminate()?;
    equal("the exit code", &status.code(), &Some(0))
}

/// A chart with a Deployment, RBAC, a definition and an instance of it is installed. While it is unhealthy, the Seed
/// reports it. New values roll out. Its deletion leaves no objects.
pub(crate) fn installs(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    // The applier acquires its Lease at its own time. The Lease stays, so it belongs to the earlier objects.
    wait::until("the Lease of the applier", 60, || {
        seed.find::<Value>(&LEASE, &Key::new("garden", "gardener-resource-manager"))
    })?;
    let before = Snapshot::take(&lab.seed)?;
    register_demo(lab, 0)?;
    let name = installed(&garden, &mut agent)?;
    let namespace = format!("extension-{name}");
    let greeting = || -> std::result::Result<Option<String>, gardenlet::kube::Error> {
        let map = seed.find::<Value>(&CONFIG_MAP, &Key::new(&namespace, "demo"))?;
        Ok(map.and_then(|map| map["data"]["greeting"].as_str().map(str::to_owned)))
    };
    equal("the greeting", &greeting()?, &Some("hello".to_owned()))?;
    let deployment = seed.get::<Value>(&DEPLOYMENT, &Key::new(&namespace, "demo"))?;
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][0]["name"];
    equal("the volume with the token", volume, &json!("kube-api-access-gardener"))?;
    // Stories before may have had kinds with the same plural, which kubectl keeps in its cache.
    let thing = lab.seed.kubectl(&[
        "get",
        "things.demo.example.org",
        "demo",
        "--namespace",
        &namespace,
        "--output=jsonpath={.spec.greeting}",
    ])?;
    equal("the instance", thing.as_str(), "hello")?;
    turns_sick(&garden)?;
    let values = Patch::Merge(json!({"helm": {"values": {"replicas": 0, "greeting": "bye"}}}));
    garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &values)?;
    wait::until("the new greeting", 60, || greeting().map(|found| found.filter(|text| text == "bye")))?;
    installed(&garden, &mut agent)?;
    wait::until("the Seed to be healthy again", 30, || components_are(&garden, "True"))?;
    garden.delete(&CONTROLLER_REGISTRATION, &Key::cluster("demo"), &DeleteParams::default())?;
    wait::until("the deletion of the installation", 60, || {
        garden
            .find::<Value>(&CONTROLLER_INSTALLATION, &Key::cluster(&name))
            .map(|found| found.is_none().then_some(()))
    })?;
    let mut left = Snapshot::take(&lab.seed)?.since(&before);
    // The manifests of the first values: they have no references, and the garbage collector keeps recent objects.
    left.changed.retain(|_, object| object["metadata"]["labels"][COLLECTABLE] != "true");
    equal("left in the seed", &left.keys(), &Vec::new())?;
    agent.ensure_running()
}

/// It needs a pod, and there is no node for it.
fn turns_sick(garden: &Client) -> Result<()> {
    wait::until("the Seed to be healthy", 60, || components_are(garden, "True"))?;
    let values = Patch::Merge(json!({"helm": {"values": {"replicas": 1}}}));
    garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &values)?;
    let reason = wait::until("the Seed to be unhealthy", 60, || components_are(garden, "False"))?;
    ensure(reason.starts_with("Deployment"), || format!("the Seed is unhealthy because of {reason}"))
}

const TOKEN_REVIEW: Resource =
    Resource::new("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", false);

/// Its values come from a Secret of the garden, and its workload gets a kubeconfig and a token that the garden accepts.
pub(crate) fn reaches_the_garden(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"hello": "good day"},
        "metadata": {"name": "words", "namespace": "garden", "labels": {"gardener.cloud/role": "resource-reference"}}}))?;
    register_demo(lab, 0)?;
    let reference =
        json!({"name": "w", "resourceRef": {"apiVersion": "v1", "kind": "Secret", "name": "words"}});
    let more = json!({"injectGardenKubeconfig": true, "resources": [reference],
        "helm": {"values": {"replicas": 0, "greeting": "{{ .resources.w.data.hello }}"}}});
    garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &Patch::Merge(more))?;
    let name = installed(&garden, &mut agent)?;
    let namespace = format!("extension-{name}");
    wait::until("the greeting of the Secret", 60, || {
        let map = seed.find::<Value>(&CONFIG_MAP, &Key::new(&namespace, "demo"))?;
        Ok::<_, gardenlet::kube::Error>(map.filter(|map| map["data"]["greeting"] == "good day"))
    })?;
    let volume = wait::until("the volume with the kubeconfig", 60, || {
        let deployment = seed.find::<Value>(&DEPLOYMENT, &Key::new(&namespace, "demo"))?.unwrap_or_default();
        let volume = deployment.pointer("/spec/template/spec/volumes/0/projected").cloned();
        Ok::<_, gardenlet::kube::Error>(volume)
    })?;
    let generic = volume.pointer("/sources/0/secret/name").and_then(Value::as_str).unwrap_or_default();
    seed.get::<Value>(&SECRET, &Key::new(&namespace, generic))?;
    let token = wait::until("the token", 60, || {
        let secret = seed
            .find::<Value>(&SECRET, &Key::new(&namespace, "garden-access-extension"))?
            .unwrap_or_default();
        Ok::<_, gardenlet::kube::Error>(secret["data"]["token"].as_str().map(str::to_owned))
    })?;
    let token = base64::decode(token.as_bytes()).unwrap_or_default();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": String::from_utf8_lossy(&token)}});
    let review = garden.create::<Value>(&TOKEN_REVIEW, CLUSTER_SCOPED, &review)?;
    let account = format!("system:serviceaccount:seed-{}:{namespace}", world::SEED);
    equal("the account", &review["status"]["user"]["username"], &json!(account))?;
    garden.delete(&CONTROLLER_REGISTRATION, &Key::cluster("demo"), &DeleteParams::default())?;
    wait::until("the deletion of the account", 60, || {
        let account =
            garden.find::<Value>(&SERVICE_ACCOUNT, &Key::new(format!("seed-{}", world::SEED), &namespace));
        account.map(|found| found.is_none().then_some(()))
    })?;
    agent.ensure_running()
}
