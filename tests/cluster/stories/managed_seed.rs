//! A Shoot whose cluster becomes a seed: the agent of its seed deploys an agent into it, which joins the garden. The
//! cluster has no node, so the story plays the kubelet and starts that agent from the deployed objects.

use gardenlet::api::core::{CONFIG_MAP, DEPLOYMENT, NAMESPACE, SECRET};
use gardenlet::api::gardener::{MANAGED_SEED, SEED as SEEDS, SHOOT};
use gardenlet::api::meta::Key;
use gardenlet::format::yaml;
use gardenlet::kube::{Client, DeleteParams, Patch};
use serde_json::{Value, json};

use crate::agent::{Agent, Options};
use crate::cluster::{self, Cluster};
use crate::failure::{Doing as _, Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::stories::steps::{condition, ready, while_running};
use crate::wait;
use crate::world::{self, World};
use support::api::store::Id;
use support::garden::prepare;

const GARDEN: &str = "garden";
const NAME: &str = "s1";
const PLANE: &str = "shoot--garden--s1";
const WITHIN_S: u64 = 150;

struct Story {
    garden: Client,
    seed: Client,
    target: Cluster,
    client: Client,
}

/// The agent is deployed, joins, is killed together with the agent that deploys it, gets another configuration, and is
/// deleted with its Seed.
pub(crate) fn lives_and_goes(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    lab.seed.apply(&json!({"apiVersion": "v1", "kind": "List", "items": prepare::access().1}))?;
    let mut target = Cluster::prepare(cluster::SHOOT, &lab.environment, &lab.place)?;
    target.start_servers()?;
    target.wait_ready()?;
    let client = target.client()?;
    let story = Story { garden: lab.garden.client()?, seed: lab.seed.client()?, target, client };
    story.prepare(lab, &world)?;
    let mut options = world::agent(lab, "agent")?;
    options.config["controllers"]["managedSeed"] = json!({"syncJitterPeriod": "1s"});
    // The agent lists ManagedSeeds when it starts, and once a minute.
    story.garden.create::<Value>(&MANAGED_SEED, GARDEN, &managed())?;
    let mut agent = Agent::start(lab, options)?;
    ready(lab, &mut agent)?;
    story.wait_for(&mut agent, "the Seed to be registered", |managed| {
        condition(managed, "SeedRegistered") == "True" && condition(managed, "ShootReconciled") == "True"
    })?;
    let deployment: Value = story.client.get(&DEPLOYMENT, &Key::new(GARDEN, "gardenlet"))?;
    equal("replicas", &deployment["spec"]["replicas"], &json!(1))?;

    let mut child = story.start_child(lab)?;
    while_running("the new Seed to be ready", WITHIN_S, &mut child, || {
        let seed = story.garden.find::<Value>(&SEEDS, &Key::cluster(NAME))?.unwrap_or_default();
        let is_ready = condition(&seed, "GardenletReady") == "True"
            && seed["status"]["lastOperation"]["state"] == "Succeeded";
        if is_ready { Ok(Some(())) } else { Err(Failure::new(seed["status"].to_string())) }
    })?;
    story.client.get::<Value>(&SECRET, &Key::new(GARDEN, "gardenlet-kubeconfig"))?;

    // Both are killed; another configuration is applied as soon as the first one is back.
    agent.kill();
    child.kill();
    let more =
        json!({"spec": {"gardenlet": {"config": {"logLevel": "info"}, "deployment": {"replicaCount": 2}}}});
    story.garden.patch::<Value>(&MANAGED_SEED, &Key::new(GARDEN, NAME), &Patch::Merge(more))?;
    agent.restart()?;
    while_running("the other configuration", WITHIN_S, &mut agent, || {
        let deployment: Value = story.client.get(&DEPLOYMENT, &Key::new(GARDEN, "gardenlet"))?;
        let config = story.config(&deployment)?;
        Ok((deployment["spec"]["replicas"] == 2 && config["logLevel"] == "info").then_some(config))
    })
    .and_then(|config| {
        // It has a certificate, and needs no token.
        equal(
            "the bootstrap kubeconfig",
            &config["gardenClientConnection"]["bootstrapKubeconfig"],
            &Value::Null,
        )
    })?;
    child.restart()?;

    // Another crash, at the moment of the deletion.
    agent.kill();
    story.garden.delete(&MANAGED_SEED, &Key::new(GARDEN, NAME), &DeleteParams::default())?;
    agent.restart()?;
    while_running("the end of the Seed", WITHIN_S, &mut child, || {
        agent.ensure_running()?;
        Ok(story.garden.find::<Value>(&SEEDS, &Key::cluster(NAME))?.is_none().then_some(()))
    })?;
    child.kill();
    while_running("the end of the ManagedSeed", WITHIN_S, &mut agent, || {
        Ok(story.garden.find::<Value>(&MANAGED_SEED, &Key::new(GARDEN, NAME))?.is_none().then_some(()))
    })?;
    ensure(story.client.find::<Value>(&DEPLOYMENT, &Key::new(GARDEN, "gardenlet"))?.is_none(), || {
        "the agent still exists".to_owned()
    })?;
    while_running("the end of the namespace", WITHIN_S, &mut agent, || {
        Ok(story.client.find::<Value>(&NAMESPACE, &Key::cluster(GARDEN))?.is_none().then_some(()))
    })?;
    agent.ensure_running()
}

/// The label by which the agent of the seed finds its own objects. A gardener-apiserver sets it.
fn label() -> Value {
    json!({format!("name.seed.gardener.cloud/{}", world::SEED): "true"})
}

fn managed() -> Value {
    let mut spec = prepare::seed_spec();
    spec["networks"] =
        json!({"nodes": "10.77.0.0/16", "pods": "10.98.0.0/16", "services": cluster::SHOOT.service_range});
    spec["ingress"]["domain"] = json!("ingress.s1.example.org");
    json!({"apiVersion": MANAGED_SEED.api_version(), "kind": MANAGED_SEED.kind,
        "metadata": {"namespace": GARDEN, "name": NAME, "labels": label()},
        "spec": {"shoot": {"name": NAME}, "gardenlet": {
            "deployment": {"replicaCount": 1, "image": {"repository": "registry.example.org/gardenlet", "tag": "1"}},
            "config": {"apiVersion": "gardenlet.config.gardener.cloud/v1alpha1", "kind": "GardenletConfiguration",
                "seedConfig": {"metadata": {"name": NAME}, "spec": spec}}}}})
}

impl Story {
    /// The Shoot in the garden, and the credentials for clients of its cluster in the namespace of its control plane.
    fn prepare(&self, lab: &Lab, world: &World) -> Result<()> {
        let project = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Project", "metadata": {"name": GARDEN},
            "spec": {"namespace": GARDEN}});
        let mut items = prepare::for_shoots();
        items.push(project);
        lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
        wait::until("the namespace to be that of a Project", 30, || {
            let namespace = self.garden.get::<Value>(&NAMESPACE, &Key::cluster(GARDEN))?;
            Ok::<_, Failure>(
                (namespace["metadata"]["labels"]["project.gardener.cloud/name"] == GARDEN).then_some(()),
            )
        })?;
        let mut shoot = prepare::shoot(NAME);
        shoot["metadata"]["namespace"] = json!(GARDEN);
        shoot["metadata"]["uid"] = json!("uid-of-s1");
        shoot["metadata"]["generation"] = json!(1);
        shoot["metadata"]["labels"] = label();
        // This story is not about its operations.
        shoot["metadata"]["annotations"] = json!({"shoot.gardener.cloud/ignore": "true"});
        shoot["metadata"]["finalizers"] = json!(["gardener"]);
        shoot["spec"]["seedName"] = json!(world::SEED);
        shoot["spec"]["dns"] = json!({"domain": "s1.example.org"});
        shoot["status"] = json!({"seedName": world::SEED, "technicalID": PLANE, "observedGeneration": 1,
            "lastOperation": {"type": "Create", "state": "Succeeded", "progress": 100, "description": "by the story",
                "lastUpdateTime": "2026-01-05T00:00:00Z"}});
        let id = Id::new("core.gardener.cloud", "shoots", GARDEN, NAME);
        world.gardener.store().write(|state| drop(state.put(id, shoot)));
        self.complete()?;

        self.target.kubectl(&["create", "serviceaccount", "gardener-internal", "--namespace=kube-system"])?;
        self.target.kubectl(&[
            "create",
            "clusterrolebinding",
            "gardener-internal",
            "--clusterrole=cluster-admin",
            "--serviceaccount=kube-system:gardener-internal",
        ])?;
        let token =
            self.target.kubectl(&["create", "token", "gardener-internal", "--namespace=kube-system"])?;
        let kubeconfig = self.target.kubeconfig_text(&json!({"token": token.trim()}));
        let bundle = json!({"bundle.crt": self.target.authority.certificate()});
        let managed =
            json!({"managed-by": "secrets-manager", "manager-identity": "gardenlet", "name": "ca-bundle"});
        let secret = |name: &str, labels: &Value, data: &Value| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": PLANE, "name": name, "labels": labels},
                "stringData": data})
        };
        let service = |name: &str, spec: &Value| {
            json!({"apiVersion": "v1", "kind": "Service", "spec": spec, "metadata": {"namespace": PLANE, "name": name,
                "annotations": {"edge.gardenlet/exposure-address": "127.0.0.1"}}})
        };
        let port = cluster::SHOOT.api_port;
        lab.seed.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLANE}},
            secret("ca-bundle", &managed, &bundle),
            secret("gardener-internal", &json!({}), &json!({"kubeconfig": kubeconfig})),
            service("kube-apiserver", &json!({"ports": [{"port": 443}]})),
            service("kube-apiserver-exposure", &json!({"type": "NodePort", "ports": [{"port": 443, "nodePort": port}]})),
        ]}))?;
        self.seed.get::<Value>(&NAMESPACE, &Key::cluster(PLANE)).map(drop).map_err(Into::into)
    }

    /// Lets the garden complete the Shoot, which it does at the first write and which changes the generation. No agent
    /// reconciles the Shoot, so the story sets the observed generation.
    fn complete(&self) -> Result<()> {
        for observed in [1, 2] {
            let patch = Patch::Merge(json!({"status": {"observedGeneration": observed}}));
            self.garden.patch_status::<Value>(&SHOOT, &Key::new(GARDEN, NAME), &patch)?;
        }
        let shoot = self.garden.get::<Value>(&SHOOT, &Key::new(GARDEN, NAME))?;
        equal(
            "the observed generation",
            &shoot["status"]["observedGeneration"],
            &shoot["metadata"]["generation"],
        )
    }

    fn wait_for(&self, agent: &mut Agent, what: &str, is_it: impl Fn(&Value) -> bool) -> Result<()> {
        while_running(what, WITHIN_S, agent, || {
            let managed = self.garden.get::<Value>(&MANAGED_SEED, &Key::new(GARDEN, NAME))?;
            if is_it(&managed) { Ok(Some(())) } else { Err(Failure::new(managed["status"].to_string())) }
        })
    }

    /// The configuration that the pods of the deployed agent read.
    fn config(&self, deployment: &Value) -> Result<Value> {
        let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array();
        let volume = volumes.into_iter().flatten().find(|volume| volume["name"] == "gardenlet-config");
        let name = volume.and_then(|volume| volume["configMap"]["name"].as_str()).unwrap_or_default();
        let map: Value = self.client.get(&CONFIG_MAP, &Key::new(GARDEN, name))?;
        let text = map["data"]["config.yaml"].as_str().unwrap_or_default();
        yaml::parse(text).doing(|| format!("read config map {name}"))
    }

    /// The deployed agent as a process, with the account and the configuration of its pod.
    fn start_child(&self, lab: &Lab) -> Result<Agent> {
        let token =
            self.target.kubectl(&["create", "token", "gardenlet", "--namespace=garden", "--duration=24h"])?;
        let kubeconfig = lab.place.join("child-seed.kubeconfig");
        self.target.write_kubeconfig_with(&kubeconfig, &json!({"token": token.trim()}))?;
        let deployment: Value = self.client.get(&DEPLOYMENT, &Key::new(GARDEN, "gardenlet"))?;
        let mut config = self.config(&deployment)?;
        // These belong to the pod: its addresses and folders.
        config["server"] = json!({"healthProbes": {"bindAddress": "127.0.0.1", "port": 3728},
            "metrics": {"bindAddress": "127.0.0.1", "port": 3729}});
        config["edge"]["stateDir"] = json!(lab.place.join("child-state"));
        Agent::start(
            lab,
            Options::new("child", config)
                .environment("KUBECONFIG", kubeconfig)
                .environment("HOME", &lab.place)
                .environment("PATH", "/usr/bin:/bin"),
        )
    }
}
