//! Changes of applied workloads: the applier notices them at once, with few requests.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{MANAGED_RESOURCES, Options, World, condition};
use support::http::record::Recorded;
use support::pace;

const PLACE: (&str, &str) = ("default", "web");
/// The time after which a change has an effect.
const SOON: Duration = Duration::from_secs(5);
/// How long to wait for it, on the clock of `pace`. Without watches, the effect would come with the next list, a minute
/// after the last one: in this time only one of three would.
const SOON_PATIENCE: Duration = Duration::from_secs(5);

/// A ManagedResource with a Deployment and a ConfigMap.
fn manage(world: &World) {
    let labels = json!({"app": "web"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "default"}});
    let metadata = json!({"name": "web", "namespace": "garden"});
    world.seed.create(
        "v1",
        "secrets",
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
        "stringData": {"deployment.json": deployment.to_string(), "map.json": map.to_string()}}),
    );
    world.seed.create(
        "resources.gardener.cloud/v1alpha1",
        "managedresources",
        &json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource", "metadata": metadata,
            "spec": {"class": "seed", "secretRefs": [{"name": "web"}]}}),
    );
}

fn deployment(world: &World) -> Option<Value> {
    world.seed.get("apps", "deployments", PLACE.0, PLACE.1)
}

fn healthy(world: &World) -> Option<(String, String, String)> {
    condition(&world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", "web")?, "ResourcesHealthy")
}

/// Waits for a value, and prints how long it took.
fn within<T>(world: &World, what: &str, begin: Duration, is: impl Fn() -> Option<T>) -> T {
    let found = world.seed.wait_on(&pace::clock(), SOON_PATIENCE, |_| is());
    let found = found.unwrap_or_else(|| panic!("waited in vain for {what}"));
    world.measured(what, world.clock.mono() - begin, SOON);
    found
}

fn wait_until_healthy(world: &World) {
    world.seed.wait_for("a healthy ManagedResource", |_| healthy(world).filter(|c| c.0 == "True"));
}

/// Requests of the applier for the objects.
fn asked(world: &World, mark: usize) -> Vec<String> {
    let mut all = world.seed.requests_since(mark);
    all.retain(|r| r.user.ends_with(":gardener-resource-manager") && r.info.resource != "leases");
    all.iter().map(Recorded::line).collect()
}

#[test]
fn workloads_are_corrected_and_reported_at_once() {
    let world = World::start(&Options::calm("workload"));
    let agent = world.agent();
    world.wait_until_ready();
    manage(&world);
    wait_until_healthy(&world);

    // A client edits it.
    world.pass(Duration::from_secs(10));
    let begin = world.clock.mono();
    world.seed.merge("apps", "deployments", PLACE, &json!({"spec": {"replicas": 5}}));
    within(&world, "the former replicas", begin, || {
        deployment(&world).filter(|d| d["spec"]["replicas"] == 1)
    });

    // A client deletes it.
    world.pass(Duration::from_secs(20));
    let uid = deployment(&world).unwrap()["metadata"]["uid"].clone();
    let begin = world.clock.mono();
    world.seed.delete("apps", "deployments", PLACE.0, PLACE.1);
    within(&world, "another one", begin, || deployment(&world).filter(|d| d["metadata"]["uid"] != uid));
    wait_until_healthy(&world);

    // Its pods no longer answer.
    world.pass(Duration::from_secs(20));
    wait_until_healthy(&world);
    let available = |status: &str| {
        let conditions = json!([{"type": "Available", "status": status, "reason": "R", "message": "M"}]);
        world.seed.merge_status("apps", "deployments", PLACE, &json!({"status": {"conditions": conditions}}));
    };
    let begin = world.clock.mono();
    available("False");
    let found =
        within(&world, "an unhealthy ManagedResource", begin, || healthy(&world).filter(|c| c.0 == "False"));
    assert_eq!(found.1, "DeploymentUnhealthy");
    world.pass(Duration::from_secs(10));
    let begin = world.clock.mono();
    available("True");
    within(&world, "a healthy one again", begin, || healthy(&world).filter(|c| c.0 == "True"));
    agent.stop();
}

/// Lets time pass until the applier lists its kinds instead of reading its objects, which takes two minutes, or longer on a
/// busy machine.
fn until_kinds_are_listed(world: &World) {
    for _ in 0..10 {
        let mark = world.seed.request_count();
        world.pass(Duration::from_secs(70));
        let lines = asked(world, mark);
        if !lines.is_empty() && lines.iter().all(|line| line.contains("labelSelector=")) {
            return;
        }
    }
    panic!("the applier still reads its objects");
}

#[test]
fn neither_idle_workloads_nor_a_busy_rollout_cause_many_requests() {
    let world = World::start(&Options::calm("rollout"));
    let agent = world.agent();
    world.wait_until_ready();
    manage(&world);
    wait_until_healthy(&world);
    until_kinds_are_listed(&world);
    let (mark, begin) = (world.seed.request_count(), world.clock.mono());
    world.pass(Duration::from_secs(120));
    // Four kinds once a minute, and once more if a list is early.
    let lines = asked(&world, mark);
    let minutes = world.minutes_since(begin);
    assert!(lines.len() <= 4 * (minutes + 1), "in {minutes} minutes: {lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("deployments/web")), "{lines:#?}");

    let mark = world.seed.request_count();
    let begin = world.clock.mono();
    for n in 0..40 {
        world.seed.merge_status(
            "apps",
            "deployments",
            PLACE,
            &json!({"status": {"unavailableReplicas": n % 3}}),
        );
        world.pass(Duration::from_millis(500));
    }
    world.pass(Duration::from_secs(6));
    let (lines, looks) = world.seed.wait_for("two looks", |_| {
        let lines = asked(&world, mark);
        let looks = lines.iter().filter(|line| line.contains("deployments/web")).count();
        (looks >= 2).then_some((lines, looks))
    });
    let seconds = usize::try_from((world.clock.mono() - begin).as_secs()).unwrap();
    assert!(looks <= 2 + seconds / 4, "{looks} in {seconds} s: {lines:#?}");
    assert!(lines.len() <= 8 + 4 * looks, "{lines:#?}");
    agent.stop();
}
