//! VerticalPodAutoscalers of the seed: pods become smaller only in maintenance time windows, or never.

use std::time::Duration;

use serde_json::{Value, json};

use crate::role::put_garden_into;
use crate::world::{AGENT, Options, World};

const GROUP: &str = "autoscaling.k8s.io";
const KIND: &str = "verticalpodautoscalers";
const RESTRICTION: &str = "eviction-requirements.autoscaling.gardener.cloud/downscale-restriction";
const WINDOW: &str = "shoot.gardener.cloud/maintenance-window";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn autoscaler(name: &str, annotations: &Value) -> Value {
    json!({"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"namespace": "garden", "name": name, "annotations": annotations,
            "labels": {"autoscaling.gardener.cloud/eviction-requirements": "managed-by-controller"}},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "updatePolicy": {"updateMode": "Auto"}}})
}

fn grows_only() -> Value {
    json!([{"resources": ["memory", "cpu"], "changeRequirement": "TargetHigherThanRequests"}])
}

fn requirements(world: &World, name: &str) -> Value {
    let vpa = world.seed.get(GROUP, KIND, "garden", name).unwrap();
    vpa["spec"]["updatePolicy"]["evictionRequirements"].clone()
}

fn wait_for(world: &World, name: &str, expected: &Value) {
    world.seed.wait_for(&format!("{name} to have {expected}"), |_| {
        world.time.advance(Duration::from_secs(1));
        (requirements(world, name) == *expected).then_some(())
    });
}

fn asked(world: &World, mark: usize) -> usize {
    world.seed.requests_since(mark).iter().filter(|r| r.user == AGENT && r.info.resource == KIND).count()
}

#[test]
fn pods_become_smaller_in_windows_or_never() {
    // Five past eight in the morning.
    let world = World::start(&Options::new("sized"));
    let mut config = world.config();
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let only = |window: &str| json!({RESTRICTION: "in-maintenance-window-only", WINDOW: window});
    let mut others = autoscaler("others", &json!({RESTRICTION: "never"}));
    others["metadata"]["labels"] = json!({});
    world.seed.apply(&[
        autoscaler("never", &json!({RESTRICTION: "never"})),
        autoscaler("by-night", &only("220000+0000,230000+0000")),
        autoscaler("unclear", &json!({RESTRICTION: "sometimes"})),
        autoscaler("unplanned", &only("at night")),
        others,
    ]);
    wait_for(&world, "never", &grows_only());
    wait_for(&world, "by-night", &grows_only());
    let kept = world.seed.get(GROUP, KIND, "garden", "never").unwrap();
    assert_eq!(kept["spec"]["updatePolicy"]["updateMode"], "Auto");
    for (name, words) in [("unclear", "set it to"), ("unplanned", "set it to <begin>,<end>")] {
        world.wait_for_log(&["cannot decide when to evict pods", &format!("garden/{name}"), words]);
    }

    // The agent reverts changes of an object, and ignores its status.
    let free = json!({"spec": {"updatePolicy": {"evictionRequirements": null}}});
    world.seed.merge(GROUP, KIND, ("garden", "never"), &free);
    wait_for(&world, "never", &grows_only());
    let (mark, begun) = (world.seed.request_count(), world.clock.mono());
    let mut seen = 0;
    for n in 0..4 {
        let status = json!({"status": {"recommendation": {"containerRecommendations": [
            {"containerName": "c", "target": {"cpu": format!("{n}m")}}]}}});
        world.seed.merge_status(GROUP, KIND, ("garden", "never"), &status);
        // One check a minute.
        world.skip(75 * SECOND);
        crate::world::wait_for("a look", || (asked(&world, mark) > seen).then_some(()));
        seen = asked(&world, mark);
    }
    let minutes = world.minutes_since(begun);
    assert!(seen <= minutes + 4, "{seen} requests in {minutes} minutes");

    // The window starts and ends.
    let until = |hour: i64, minute: i64| {
        let now = world.clock.now().unix().rem_euclid(86_400);
        Duration::from_secs((hour * 3_600 + minute * 60 - now).rem_euclid(86_400).unsigned_abs())
    };
    world.time.advance(until(22, 0));
    wait_for(&world, "by-night", &Value::Null);
    assert_eq!(requirements(&world, "never"), grows_only());
    world.time.advance(until(23, 0));
    wait_for(&world, "by-night", &grows_only());
    // Another window, which is open.
    let now = world.clock.now().unix().rem_euclid(86_400);
    let open = format!("{:02}0000+0000,{:02}0000+0000", now / 3_600, (now / 3_600 + 2) % 24);
    world.seed.merge(
        GROUP,
        KIND,
        ("garden", "by-night"),
        &json!({"metadata": {"annotations": {WINDOW: open}}}),
    );
    wait_for(&world, "by-night", &Value::Null);
    assert_eq!(requirements(&world, "others"), Value::Null);
    for name in ["unclear", "unplanned"] {
        assert_eq!(requirements(&world, name), Value::Null);
    }

    // It is killed in its window and starts again after it.
    agent.crash();
    world.time.advance(5 * 60 * MINUTE);
    agent.launch();
    wait_for(&world, "by-night", &grows_only());
    agent.stop();
}

#[test]
fn a_missing_kind_is_no_problem() {
    let world = World::start(&Options::new("unsized"));
    let mut config = world.config();
    config["edge"]["components"] = json!({"disabled": ["vpa-crds"]});
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let mark = world.seed.request_count();
    world.skip(5 * MINUTE);
    assert!(asked(&world, mark) <= 2, "{} requests in five minutes", asked(&world, mark));
    let complaints = |line: &String| line.contains("vpa-eviction-requirements") && line.contains("failed");
    assert_eq!(world.own_log(0).into_iter().find(complaints), None);
    agent.stop();
}

#[test]
fn in_the_cluster_of_the_garden_its_operator_restricts_pods() {
    let world = World::start(&Options::new("operated"));
    put_garden_into(&world.seed);
    let mut config = world.config();
    config["edge"]["resourceManager"] = json!("External");
    let agent = world.agent_with(&config);
    world.garden.wait_for("the Seed", |garden| garden.seed("operated"));
    world.skip(2 * MINUTE);
    assert_eq!(asked(&world, 0), 0);
    agent.stop();
}
