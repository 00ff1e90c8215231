//! The Seed's conditions about its components, and the deletion of pods that are not needed any longer.

use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::world::{CORE, MANAGED_RESOURCES, Options, World, wait_for};
use support::controllers::workloads::HOLD;
use support::encoding::{base64, from_rfc3339, rfc3339};
use support::json::text;

const COMPONENTS: &str = "SeedSystemComponentsHealthy";
/// A pod may be leaving for this long.
const TERMINATING_MAX: Duration = Duration::from_secs(300);
const STOP: &str = "EmergencyStopShootReconciliations";

/// A ManagedResource whose manifest is not YAML.
fn install_sick(world: &World, name: &str) {
    let metadata = json!({"name": name, "namespace": "garden"});
    let data = json!({"k": base64(b"a: [")});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    world.seed.create("v1", "secrets", &secret);
    let object = json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource", "metadata": metadata,
        "spec": {"class": "seed", "secretRefs": [{"name": name}]}});
    world.seed.create("resources.gardener.cloud/v1alpha1", "managedresources", &object);
}

/// Sets its manifest.
fn cure(world: &World, name: &str) {
    let good =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "garden"}});
    let patch = json!({"data": {"k": base64(good.to_string().as_bytes())}});
    world.seed.merge("", "secrets", ("garden", name), &patch);
}

/// Waits for status and reason of the condition; returns since when it has this status.
fn wait_for_reason(world: &World, status: &str, reason: &str) -> Timestamp {
    wait_for(reason, || {
        let condition = world.garden.seed_condition(world.name, COMPONENTS)?;
        let is_it = condition["status"] == status && condition["reason"] == reason;
        is_it.then(|| from_rfc3339(text(&condition, "/lastTransitionTime")).unwrap())
    })
}

fn wait_until_well(world: &World) -> Timestamp {
    wait_for_reason(world, "True", "SystemComponentsRunning")
}

/// Since when the ManagedResource of an installation has its health status.
fn healthy_since(world: &World, installation: &str, status: &str) -> Timestamp {
    let managed = world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", installation).unwrap();
    let conditions = managed["status"]["conditions"].as_array().unwrap();
    let healthy = conditions.iter().find(|c| c["type"] == "ResourcesHealthy").unwrap();
    assert_eq!(healthy["status"], status, "{healthy}");
    from_rfc3339(text(healthy, "/lastTransitionTime")).unwrap()
}

/// The condition follows the health of an extension both ways, with its reason.
#[test]
fn the_seed_follows_the_health_of_an_extension_both_ways() {
    let world = World::start(&Options::new("caring"));
    let agent = world.agent();
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    world.wait_until_ready();
    let installation = installed(&world, "echo");
    wait_until_well(&world);
    let namespace = format!("extension-{installation}");
    let report = |available: &str| {
        let mut deployment = world.seed.get("apps", "deployments", &namespace, "echo").unwrap();
        let conditions = deployment["status"]["conditions"].as_array_mut().unwrap();
        conditions.iter_mut().find(|c| c["type"] == "Available").unwrap()["status"] = json!(available);
        let status = json!({"status": {"conditions": conditions}});
        world.seed.merge_status("apps", "deployments", (&namespace, "echo"), &status);
    };
    report("False");
    let sick = wait_for_reason(&world, "False", "DeploymentUnhealthy");
    let delay = sick.since(healthy_since(&world, &installation, "False"));
    world.measured("until the Seed reports a sick extension", delay, Duration::from_secs(30));
    let message = world.seed_condition(COMPONENTS).unwrap().2;
    assert!(message.starts_with(&format!("Deployment \"{namespace}/echo\" is unhealthy")), "{message}");
    report("True");
    let well = wait_until_well(&world);
    let delay = well.since(healthy_since(&world, &installation, "True"));
    world.measured("until the Seed reports a well extension", delay, Duration::from_secs(30));
    agent.stop();
}

#[test]
fn a_threshold_delays_the_condition() {
    let world = World::start(&Options::new("patient"));
    let mut config = world.config();
    config["controllers"]["seedCare"]["conditionThresholds"] =
        json!([{"type": COMPONENTS, "duration": "1m"}]);
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let well = wait_until_well(&world);
    install_sick(&world, "sick");
    let worried = wait_for_reason(&world, "Progressing", "DecodingFailed");
    let sick = wait_for_reason(&world, "False", "DecodingFailed");
    assert!(well <= worried, "{well:?} {worried:?}");
    let patience = sick.since(worried);
    assert!(patience >= Duration::from_secs(60), "{patience:?}");
    world.measured("until a fault outlasts its threshold", patience, Duration::from_secs(120));
    cure(&world, "sick");
    wait_until_well(&world);
    agent.stop();
}

#[test]
fn the_emergency_stop_is_a_condition_while_it_is_requested() {
    let world = World::start(&Options::new("stopping"));
    let agent = world.agent();
    world.wait_until_ready();
    wait_until_well(&world);
    let ask = |value: Value| {
        let annotations = json!({"shoot.gardener.cloud/emergency-stop-reconciliations": value});
        world.garden.merge(
            CORE,
            "seeds",
            ("", "stopping"),
            &json!({"metadata": {"annotations": annotations}}),
        );
    };
    ask(json!("true"));
    world.wait_for_condition(STOP, "True");
    ask(Value::Null);
    wait_for("the end of the stop", || world.seed_condition(STOP).is_none().then_some(()));
    agent.stop();
}

/// Another gardenlet worked while this agent was away. It left conditions about a fault that is over and an emergency
/// stop that has ended. Its conditions about other things stay.
#[test]
fn leftover_conditions_are_updated_or_removed() {
    let world = World::start(&Options::new("inherited"));
    let agent = world.agent();
    world.wait_until_ready();
    wait_until_well(&world);
    agent.stop();
    let at = rfc3339(world.clock.now());
    let mut conditions = world.garden.seed("inherited").unwrap()["status"]["conditions"].clone();
    let list = conditions.as_array_mut().unwrap();
    list.retain(|c| c["type"] != COMPONENTS);
    for (kind, status) in [(COMPONENTS, "False"), (STOP, "True"), ("Other", "Unknown")] {
        list.push(json!({"type": kind, "status": status, "reason": "Left", "message": "behind",
            "lastTransitionTime": at, "lastUpdateTime": at}));
    }
    let status = json!({"status": {"conditions": conditions}});
    world.garden.merge_status(CORE, "seeds", ("", "inherited"), &status);
    agent.launch();
    wait_until_well(&world);
    wait_for("the end of the stop", || world.seed_condition(STOP).is_none().then_some(()));
    let other = world.seed_condition("Other").unwrap();
    assert_eq!(other, ("Unknown".to_owned(), "Left".to_owned(), "behind".to_owned()));
    agent.stop();
}

#[test]
fn pods_that_will_never_run_again_are_deleted() {
    let world = World::start(&Options::new("tidying"));
    let pod = |namespace: &str, name: &str, status: Value| {
        let metadata = json!({"name": name, "namespace": namespace, "annotations": {HOLD: "yes"}});
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        world.seed.apply(&[pod]);
        world.seed.merge_status("", "pods", (namespace, name), &json!({"status": status}));
    };
    // No kubelet ends them, as if their node had disappeared. In this test a finalizer has the same effect.
    let going = |name: &str| {
        pod("garden", name, json!({"phase": "Running"}));
        let finalizers = json!({"metadata": {"finalizers": ["test.gardener.cloud/node"]}});
        world.seed.merge("", "pods", ("garden", name), &finalizers);
        world.seed.delete("", "pods", "garden", name);
    };
    let evicted = json!({"phase": "Failed", "reason": "Evicted"});
    pod("garden", "evicted", evicted.clone());
    pod("kube-system", "evicted", evicted);
    pod("garden", "failed", json!({"phase": "Failed", "reason": "Error"}));
    pod("garden", "running", json!({"phase": "Running"}));
    going("gone");
    world.time.advance(Duration::from_secs(3600));
    let left = world.clock.now();
    going("leaving");
    let agent = world.agent();
    world.wait_until_ready();
    let is_gone = || world.seed.get("", "pods", "garden", "evicted").is_none();
    wait_for("the end of the pod", || is_gone().then_some(()));
    let deletions = || {
        let requests = world.seed.requests();
        let of_pods = requests.iter().filter(|r| r.method == "DELETE" && r.info.resource == "pods");
        of_pods.map(|r| (r.path.clone(), r.at)).collect::<Vec<_>>()
    };
    wait_for("both deletions", || (deletions().len() >= 2).then_some(()));
    world.pass(Duration::from_secs(90));
    let path = |name: &str| format!("/api/v1/namespaces/garden/pods/{name}");
    let is_late = |pod: &str, at: Timestamp| pod == path("leaving") && at.since(left) > TERMINATING_MAX;
    // On a slow machine so much time passes that this pod has been leaving for too long, too.
    let mut deleted: Vec<String> =
        deletions().into_iter().filter(|(pod, at)| !is_late(pod, *at)).map(|(pod, _)| pod).collect();
    // The deletion of a pod that stays is repeated every five minutes.
    deleted.dedup();
    assert_eq!(deleted, [path("evicted"), path("gone")]);
    for (namespace, name) in [("garden", "failed"), ("kube-system", "evicted"), ("garden", "running")] {
        assert!(world.seed.get("", "pods", namespace, name).is_some(), "{namespace}/{name}");
    }
    agent.stop();
}

/// On a seed without changes, its care lists pods once a minute, and once more in five minutes.
#[test]
fn an_idle_round_asks_for_little_and_writes_nothing() {
    let world = World::start(&Options::calm("resting"));
    let agent = world.agent();
    world.wait_until_ready();
    wait_until_well(&world);
    let wait_for_rest = || {
        world.garden.wait_for("all conditions of the Seed", |garden| {
            let seed = garden.seed(world.name)?;
            let conditions = seed["status"]["conditions"].as_array()?;
            // The first of them depends on the Lease, at any time.
            let has_first = conditions.iter().any(|c| c["type"] == "GardenletReady");
            (has_first && conditions.iter().all(|c| c["status"] == "True")).then_some(())
        });
    };
    // A reconciliation of the Seed makes conditions Progressing, and then they become True again. The first ones are
    // over by then.
    wait_for_rest();
    world.pass(Duration::from_secs(120));
    wait_for_rest();
    let mark = (world.seed.request_count(), world.garden.request_count());
    let begun = world.clock.mono();
    world.pass(Duration::from_secs(600));
    // On a slow machine simulated time passes during a round, so that there are fewer rounds.
    let lists = wait_for("some rounds", || {
        let requests = world.seed.requests_since(mark.0);
        let lists = requests.iter().filter(|r| r.info.resource == "pods" && r.info.verb == "list").count();
        (lists >= 6).then_some(lists)
    });
    let minutes = world.minutes_since(begun);
    assert!(lists <= minutes + minutes / 5 + 2, "{lists} lists in {minutes} minutes");
    let garden = world.garden.requests_since(mark.1);
    let about_the_seed = |path: &str| path.ends_with("/seeds/resting/status");
    let written = garden.iter().filter(|r| r.is_write() && about_the_seed(&r.path));
    let written: Vec<String> = written.map(|r| format!("{} {:?}", r.line(), r.body)).collect();
    assert_eq!(written, Vec::<String>::new());
    agent.stop();
}
