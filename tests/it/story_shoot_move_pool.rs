//! A Shoot whose nodes are hosts moves from one seed to another and back: its keys, its objects for nodes, and its Nodes.

use serde_json::{Value, json};

use crate::move_stage::{NAME, Side, Stage};
use crate::nodes::{self, HOST, Nodes};
use crate::story_shoot_move::{created_of, has_left, is_at, moved};
use crate::world::wait_for;
use support::garden::prepare;
use support::json::list;
use support::shoot::object::technical_id;

/// What only a Shoot with nodes has in the seed.
const OBJECTS: [(&str, &str); 3] = [("infrastructures", NAME), ("controlplanes", NAME), ("networks", NAME)];
/// Keys that its nodes know.
const KEYS: [&str; 3] = ["ca-kubelet", "ca-vpn", "ssh-keypair"];

/// Its objects, and who the host was.
fn nodes_are_at(stage: &Stage, side: &Side, uid: &Value) {
    for (plural, name) in OBJECTS {
        let object = stage.object(side, plural, name).unwrap();
        assert_eq!(object["status"]["lastOperation"]["state"], "Succeeded", "{plural}");
    }
    let node = side.stored("", "nodes", ("", HOST)).unwrap();
    assert_eq!(node["metadata"]["uid"], *uid);
    // The stand-in for its kubelet begins again.
    nodes::join(&side.world, NAME, &side.site.server(&technical_id(NAME)).unwrap());
    wait_for("all conditions of the Shoot", || {
        let shoot = stage.shoot();
        let conditions = list(&shoot, "/status/conditions");
        let has = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
        (has("EveryNodeReady") && conditions.iter().all(|condition| condition["status"] == "True"))
            .then_some(())
    });
}

#[test]
fn a_shoot_with_a_pool_moves_and_comes_back() {
    let stage = Stage::start_with("move-hosts", "move-hosts-back", |config| {
        config["edge"]["hosts"] = json!({"types": [prepare::HOSTS]});
    });
    let before = created_of(&stage, Nodes::Hosts.shoot(&stage.a.world, NAME));
    let (a, b) = (&stage.a, &stage.b);
    for name in KEYS {
        let is_kept = |(secret, _): &(String, Value)| secret.starts_with(name);
        assert!(before.secrets().iter().any(is_kept), "{name} does not move");
    }
    nodes::join_at(&a.world, &a.site, NAME);
    let uid = a.stored("", "nodes", ("", HOST)).unwrap()["metadata"]["uid"].clone();
    nodes_are_at(&stage, a, &uid);
    for (from, to) in [(a, b), (b, a)] {
        moved(&stage, from, to);
        is_at(&stage, to, &before);
        nodes_are_at(&stage, to, &uid);
        has_left(&stage, from);
    }
    stage.end();
}
