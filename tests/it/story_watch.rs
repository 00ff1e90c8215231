//! Events that watches deliver, or fail to deliver: the agent reaches the right state in all cases.

use serde_json::json;

use crate::charts;
use crate::story_extension::installed;
use crate::world::{CORE, Options, World, leader_renewed};
use support::cluster::TestCluster;

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

/// A backup is hours old when it is restored: many writes have happened since, more than happen again before the agent
/// is back.
fn others_write(cluster: &TestCluster) {
    for n in 0..500 {
        let mark = json!({"metadata": {"annotations": {"example.org/mark": n.to_string()}}});
        cluster.merge("", "namespaces", ("", "kube-system"), &mark);
    }
}

/// The garden's storage is restored from a backup. Its versions start again at an older one, and a watch from the
/// newest version that the agent knows would stay silent until the garden reaches that version a second time.
#[test]
fn a_garden_restored_from_a_backup_is_followed() {
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
    // There are no writes: the old state is current again.
    wait_for_greeting(&world, &name, "hello");
    world.wait_for_log(&["WARN", "restored to an older state"]);
    greet(&world, "again");
    wait_for_greeting(&world, &name, "again");
    installed(&world, "echo");
    agent.stop();
}

/// The same, but before the agent checks, the garden has a newer version than ever. No version shows the restoration,
/// only the agent's own Lease.
#[test]
fn a_garden_restored_from_a_backup_that_has_caught_up_is_followed() {
    let world = World::start(&Options::calm("caught-up"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    let name = installed(&world, "echo");
    world.wait_until_ready();
    let backup = world.garden.store().read().revision;
    greet(&world, "one");
    wait_for_greeting(&world, &name, "one");
    // A backup is older than the last heartbeat; the one before was answered.
    for _ in 0..2 {
        let begun = world.clock.now();
        world.garden.wait_for("a beat", |_| world.beat().filter(|beat| *beat > begun));
    }
    world.garden.restore_and_go_on(backup);
    wait_for_greeting(&world, &name, "hello");
    world.wait_for_log(&["WARN", "The seed's lease is older than our last write", "seed=caught-up"]);
    greet(&world, "again");
    wait_for_greeting(&world, &name, "again");
    agent.stop();
}

/// The same in the seed, where the leader's lease shows it.
#[test]
fn a_seed_restored_from_a_backup_that_has_caught_up_is_repaired() {
    let world = World::start(&Options::calm("caught-on"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    let name = installed(&world, "echo");
    world.wait_until_ready();
    let backup = world.seed.store().read().revision;
    greet(&world, "one");
    wait_for_greeting(&world, &name, "one");
    // A backup is older than the last renewal; the one before was answered.
    for _ in 0..2 {
        let before = leader_renewed(&world.seed).unwrap();
        world.seed.wait_for("a renewal", |seed| (leader_renewed(seed).unwrap() != before).then_some(()));
    }
    world.seed.restore_and_go_on(backup);
    world.wait_for_log(&["WARN", "The lease is older than our last write"]);
    wait_for_greeting(&world, &name, "one");
    greet(&world, "two");
    wait_for_greeting(&world, &name, "two");
    agent.stop();
}

/// The same in the seed: the agent repeats its writes since the backup.
#[test]
fn a_seed_restored_from_a_backup_is_repaired() {
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
