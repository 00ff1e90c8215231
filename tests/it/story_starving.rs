//! A server that accepts connections and never answers blocks some workers for a while, but never all of them: work for
//! another server continues.

use std::time::Duration;

use serde_json::json;

use crate::charts;
use crate::story_extension::installed;
use crate::world::{Agent, CORE, MANAGED_RESOURCES, Options, World, wait_for};
use support::TestCluster;
use support::encoding::base64;
use support::pace;
use support::proxy::{Mode, Proxy};

const MAP: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: greeting
  namespace: {{ .Release.Namespace }}
data:
  greeting: {{ .Values.greeting }}
";
/// More than the number of workers.
const EXTENSIONS: usize = 6;
/// By the clock of the story.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// How long to wait for it, on the clock of `pace`: shorter than a request that nobody answers.
const DELAY_PATIENCE: Duration = Duration::from_secs(10);

fn extensions() -> impl Iterator<Item = String> {
    (0..EXTENSIONS).map(|n| format!("crowd-{n}"))
}

/// An agent that connects to a server through a proxy.
fn start(world: &World, cluster: &TestCluster) -> (Agent, Proxy) {
    let address = World::address(cluster);
    let proxy = Proxy::start(address.parse().unwrap()).unwrap();
    for name in extensions() {
        world.extend(
            &name,
            &charts::archive("crowd", &[("templates/map.yaml", MAP)]),
            &json!({"greeting": "hello"}),
        );
    }
    let mut config = world.config();
    config["leaderElection"] = json!({"leaderElect": false});
    let mut agent = Agent::new(world, "host-1", &config, world.pod());
    agent.routes.insert(address, proxy.address());
    agent.launch();
    world.wait_until_ready();
    for name in extensions() {
        installed(world, &name);
    }
    (agent, proxy)
}

/// The time until the applier applies a new ManagedResource of the seed.
fn time_to_apply(world: &World, name: &str) -> Duration {
    let begun = world.clock.mono();
    let manifest =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "garden"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "garden"},
        "data": {"map.yaml": base64(manifest.to_string().as_bytes())}});
    world.seed.create("v1", "secrets", &secret);
    let managed = json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
        "metadata": {"name": name, "namespace": "garden"},
        "spec": {"class": "seed", "secretRefs": [{"name": name}]}});
    world.seed.create("resources.gardener.cloud/v1alpha1", "managedresources", &managed);
    wait_soon(&world.seed, name, |seed| seed.get("", "configmaps", "garden", name));
    world.clock.mono().saturating_sub(begun)
}

fn wait_soon<T>(cluster: &TestCluster, what: &str, condition: impl Fn(&TestCluster) -> Option<T>) {
    let found = cluster.wait_on(&pace::clock(), DELAY_PATIENCE, condition);
    assert!(found.is_some(), "waited in vain for {what}");
}

fn postponed(agent: &Agent, controller: &str) -> f64 {
    let labels = [("controller", controller), ("result", "postponed")];
    let metrics = agent.metrics.lock().unwrap().clone();
    metrics.value("controller_runtime_reconcile_total", &labels).unwrap_or_default()
}

#[test]
fn a_garden_that_never_answers_does_not_stop_the_applier() {
    let world = World::start(&Options::calm("starved"));
    let (agent, proxy) = start(&world, &world.garden);
    proxy.set(Mode::Hole);
    // Each of them is rolled out again, which needs requests to the garden.
    for managed in world.seed.store().list(MANAGED_RESOURCES, "managedresources", "garden") {
        let name = managed["metadata"]["name"].as_str().unwrap();
        world.seed.delete(MANAGED_RESOURCES, "managedresources", "garden", name);
    }
    let slowest = (0..8).map(|round| time_to_apply(&world, &format!("mine-{round}"))).max().unwrap();
    world.measured("the slowest of eight rounds beside a silent garden", slowest, DELAY_MAX);
    wait_for("retried keys", || (postponed(&agent, "controllerinstallation") > 0.0).then_some(()));
    // The same with connections that are never established.
    agent.cable().lose(Some(&World::address(&world.garden)));
    proxy.cut();
    let slowest = (8..12).map(|round| time_to_apply(&world, &format!("mine-{round}"))).max().unwrap();
    world.measured("the slowest of four rounds beside a garden out of reach", slowest, DELAY_MAX);
    assert_eq!(agent.get(2728, "/livez").0, 200);

    agent.cable().lose(None);
    proxy.set(Mode::Pass);
    for name in extensions() {
        installed(&world, &name);
    }
    agent.stop();
}

#[test]
fn a_seed_that_never_answers_does_not_stop_what_only_the_garden_needs() {
    let world = World::start(&Options::calm("muted"));
    let (agent, proxy) = start(&world, &world.seed);
    proxy.set(Mode::Hole);
    // Each of them is installed again, which needs requests to the seed.
    for name in extensions() {
        let values = json!({"helm": {"values": {"greeting": "anyone there?"}}});
        world.garden.merge(CORE, "controllerdeployments", ("", &name), &values);
    }
    wait_for("retried keys", || (postponed(&agent, "controllerinstallation") > 0.0).then_some(()));
    for round in 0..4 {
        let name = format!("late-{round}");
        let begun = world.clock.mono();
        world.extend(&name, &charts::extension(), &json!({}));
        wait_soon(&world.garden, &name, |_| world.installation_condition(&name, "Required"));
        world.measured(&name, world.clock.mono().saturating_sub(begun), DELAY_MAX);
    }
    assert_eq!(agent.get(2728, "/livez").0, 200);

    proxy.set(Mode::Pass);
    for name in extensions() {
        let installation = world.garden.installations(&name).pop().unwrap();
        let namespace = format!("extension-{}", installation["metadata"]["name"].as_str().unwrap());
        world.seed.wait_for("the new value", |seed| {
            let map = seed.get("", "configmaps", &namespace, "greeting")?;
            (map["data"]["greeting"] == "anyone there?").then_some(())
        });
    }
    agent.stop();
}
