//! What watches may tell, or fail to tell, and the agent still arrives.

use serde_json::json;

use crate::charts;
use crate::story_extension::installed;
use crate::support::cluster::TestCluster;
use crate::world::{CORE, Options, World, leader_renewed};

fn greet(world: &World, greeting: &str) {
    let values = json!({"helm": {"values": {"greeting": greeting}}});
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
}

fn wait_for_greeting(world: &World, name: &str, greeting: &str) {
    world.seed.wait_for(&format!("the greeting {greeting:?}"), |seed| {
        let map = seed.get("", "configmaps", &format!("extension-{name}"), "echo")?;
        (map["data"]["greeting"] == greeting).then_some(())
    });
}

/// A backup is hours old when it is needed: others have written since, and more than they will have written again before
/// the agent is back.
fn others_write(cluster: &TestCluster) {
    for n in 0..500 {
        let mark = json!({"metadata": {"annotations": {"example.org/mark": n.to_string()}}});
        cluster.merge("", "namespaces", ("", "kube-system"), &mark);
    }
}

/// The garden's storage comes back from a backup: its versions begin again at an older one, and a watch from the newest
/// version that the agent knows would stay silent until the garden has come that far a second time.
#[test]
fn a_garden_that_goes_back_in_time_is_followed() {
    let world = World::start(&Options::calm("restored"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    let name = installed(&world, "echo");
    world.wait_until_ready();
    let backup = world.garden.store().read().revision;
    others_write(&world.garden);
    for greeting in ["one", "two", "three"] {
        greet(&world, greeting);
        wait_for_greeting(&world, &name, greeting);
    }
    world.garden.restore(backup);
    // Nobody writes: what was true then is true again.
    wait_for_greeting(&world, &name, "hello");
    world.wait_for_log(&["WARN", "restored to an older state"]);
    greet(&world, "again");
    wait_for_greeting(&world, &name, "again");
    installed(&world, "echo");
    agent.stop();
}

/// The same, and before the agent looks the garden has come further than ever: no version tells, but the agent's own Lease.
#[test]
fn a_garden_that_went_back_and_has_caught_up_is_followed() {
    let world = World::start(&Options::calm("caught-up"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    let name = installed(&world, "echo");
    world.wait_until_ready();
    let backup = world.garden.store().read().revision;
    greet(&world, "one");
    wait_for_greeting(&world, &name, "one");
    // A backup is older than the last beat; the last but one was answered.
    for _ in 0..2 {
        let begun = world.clock.now();
        world.garden.wait_for("a beat", |_| world.beat().filter(|beat| *beat > begun));
    }
    world.garden.restore_and_go_on(backup);
    wait_for_greeting(&world, &name, "hello");
    world.wait_for_log(&["WARN", "The seed's lease is older than it was written", "seed=caught-up"]);
    greet(&world, "again");
    wait_for_greeting(&world, &name, "again");
    agent.stop();
}

/// The same in the seed, where the lease of the leader tells.
#[test]
fn a_seed_that_went_back_and_has_caught_up_is_repaired() {
    let world = World::start(&Options::calm("caught-on"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    let name = installed(&world, "echo");
    world.wait_until_ready();
    let backup = world.seed.store().read().revision;
    greet(&world, "one");
    wait_for_greeting(&world, &name, "one");
    // A backup is older than the last renewal; the last but one was answered.
    for _ in 0..2 {
        let before = leader_renewed(&world.seed).unwrap();
        world.seed.wait_for("a renewal", |seed| (leader_renewed(seed).unwrap() != before).then_some(()));
    }
    world.seed.restore_and_go_on(backup);
    world.wait_for_log(&["WARN", "The lease is older than it was written"]);
    wait_for_greeting(&world, &name, "one");
    greet(&world, "two");
    wait_for_greeting(&world, &name, "two");
    agent.stop();
}

/// The same in the seed: what the agent has written since the backup is written again.
#[test]
fn a_seed_that_goes_back_in_time_is_repaired() {
    let world = World::start(&Options::calm("recovered"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    let name = installed(&world, "echo");
    world.wait_until_ready();
    let backup = world.seed.store().read().revision;
    others_write(&world.seed);
    for greeting in ["one", "two"] {
        greet(&world, greeting);
        wait_for_greeting(&world, &name, greeting);
    }
    world.seed.restore(backup);
    wait_for_greeting(&world, &name, "two");
    greet(&world, "three");
    wait_for_greeting(&world, &name, "three");
    installed(&world, "echo");
    agent.stop();
}
