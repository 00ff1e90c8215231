//! A Shoot whose nodes are hosts moves from one seed to another and back: its keys, its objects for nodes, its Nodes, and rotations of
//! its CAs, which another agent completes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::move_stage::{NAME, PLACE, Side, Stage};
use crate::nodes::{self, HOST, Nodes};
use crate::story_shoot_move::{Identity, created_of, has_left, is_at, moved};
use crate::story_shoot_pool::{AGENTS, FOLLOWED};
use crate::world::{CORE, wait_for};
use support::controllers::workloads::HOLD;
use support::garden::prepare;
use support::json::{entry, list, text};
use support::shoot::object::technical_id;
use support::shoot::owner::{get_in, wait_until_admitted};

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

/// Two seeds with hosts, and a Shoot with one of them on the first seed. Also who the host is.
fn started(a: &'static str, b: &'static str) -> (Stage, Identity, Value) {
    let stage = Stage::start_with(a, b, |config| {
        config["edge"]["hosts"] = json!({"types": [prepare::HOSTS]});
    });
    let before = created_of(&stage, Nodes::Hosts.shoot(&stage.a.world, NAME));
    nodes::join_at(&stage.a.world, &stage.a.site, NAME);
    let uid = stage.a.stored("", "nodes", ("", HOST)).unwrap()["metadata"]["uid"].clone();
    nodes_are_at(&stage, &stage.a, &uid);
    (stage, before, uid)
}

#[test]
fn a_shoot_with_a_pool_moves_and_comes_back() {
    let (stage, before, uid) = started("move-hosts", "move-hosts-back");
    let (a, b) = (&stage.a, &stage.b);
    for name in KEYS {
        let is_kept = |(secret, _): &(String, Value)| secret.starts_with(name);
        assert!(before.secrets().iter().any(is_kept), "{name} does not move");
    }
    for (from, to) in [(a, b), (b, a)] {
        moved(&stage, from, to);
        is_at(&stage, to, &before);
        nodes_are_at(&stage, to, &uid);
        has_left(&stage, from);
    }
    stage.end();
}

fn ask_for(stage: &Stage, operation: &str) {
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": operation}}});
    stage.garden().merge(CORE, "shoots", PLACE, &operation);
}

fn phase(shoot: &Value) -> &str {
    text(shoot, "/status/credentials/rotation/certificateAuthorities/phase")
}

/// Waits until the rotation of CAs has reached this phase, and no operation is running.
fn wait_for_phase(stage: &Stage, wanted: &str) {
    stage.wait_for(wanted, |shoot| {
        phase(shoot) == wanted
            && shoot["status"]["lastOperation"]["state"] == "Succeeded"
            && shoot["status"]["observedGeneration"] == shoot["metadata"]["generation"]
    });
}

/// How many Secrets each of these CAs has on a seed.
fn authorities(side: &Side) -> [usize; 3] {
    let all = side.seed().store().list("", "secrets", &technical_id(NAME));
    ["ca", "ca-kubelet", "ca-vpn"].map(|name| {
        let is_it = |secret: &&Value| entry(secret, "/metadata/labels", "name") == Some(name);
        all.iter().filter(is_it).count()
    })
}

#[test]
fn a_rotation_of_cas_is_completed_at_another_seed() {
    let (stage, before, uid) = started("move-rotated", "move-completed");
    let (a, b) = (&stage.a, &stage.b);
    let first = stage.owner();
    ask_for(&stage, "rotate-ca-start");
    wait_for_phase(&stage, "Prepared");
    assert_eq!(authorities(a), [2; 3]);
    let before = before.renewed(&stage, a);
    moved(&stage, a, b);
    is_at(&stage, b, &before);
    assert_eq!((phase(&stage.shoot()), authorities(b)), ("Prepared", [2; 3]));
    // The credentials from before the rotation are still good.
    wait_until_admitted(stage.garden(), &first);
    nodes_are_at(&stage, b, &uid);
    has_left(&stage, a);

    ask_for(&stage, "rotate-ca-complete");
    wait_for_phase(&stage, "Completed");
    assert_eq!(authorities(b), [1; 3]);
    assert!(get_in(&first).is_err(), "what the old CA has signed is still good");
    wait_until_admitted(stage.garden(), &stage.owner());
    nodes_are_at(&stage, b, &uid);
    stage.end();
}

/// A restoration cannot ask the agents of the tunnel, which have no server meanwhile.
#[test]
fn a_completion_that_waits_for_agents_of_the_tunnel_moves_and_goes_on_waiting() {
    let (stage, _, uid) = started("move-waiting", "move-followed");
    let (a, b) = (&stage.a, &stage.b);
    let plane = technical_id(NAME);
    let agents = |side: &Side, hold: Value| {
        let held = json!({"metadata": {"annotations": {HOLD: hold}}});
        side.site.server(&plane).unwrap().cluster.merge("apps", "daemonsets", AGENTS, &held);
    };
    // Its agent is not replaced.
    agents(a, json!("yes"));
    ask_for(&stage, "rotate-ca-start");
    wait_for_phase(&stage, "Prepared");
    let waits = |shoot: &Value| text(shoot, "/status/lastOperation/description").contains(FOLLOWED);
    ask_for(&stage, "rotate-ca-complete");
    stage.wait_for(FOLLOWED, waits);

    stage.bind(b);
    let restored = stage.wait_for("the other seed", |shoot| {
        let last = &shoot["status"]["lastOperation"];
        shoot["status"]["seedName"] == b.name()
            && (last["type"] == "Reconcile" || last["type"] == "Restore" && last["state"] == "Succeeded")
    });
    assert_eq!((phase(&restored), authorities(b)), ("Completing", [2; 3]));
    stage.wait_for(FOLLOWED, waits);
    let server = || {
        b.seed().get("apps", "deployments", &plane, "kube-apiserver").unwrap()["metadata"]["generation"]
            .clone()
    };
    let before = server();
    b.world.skip(Duration::from_secs(60));
    assert_eq!((server(), authorities(b)), (before, [2; 3]), "the API server has lost the old CA");
    nodes::join(&b.world, NAME, &b.site.server(&plane).unwrap());
    agents(b, Value::Null);
    wait_for_phase(&stage, "Completed");
    assert_eq!(authorities(b), [1; 3]);
    nodes_are_at(&stage, b, &uid);
    has_left(&stage, a);
    stage.end();
}
