//! The agent is killed after each of its writes for Bastions, while one is created, changed and deleted. It starts
//! again, and the result is the same.

use serde_json::{Value, json};

use crate::faultpoints::{Fault, FaultPoints, Outcome, Point, change_nothing};
use crate::left::Words;
use crate::story_bastions::{Lab, reached_at, works};
use support::TestCluster;
use support::api::store::Id;
use support::http::faults::Seen;

fn concerns(seen: &Seen) -> bool {
    seen.info.resource == "bastions"
}

/// The whole story, with a kill after one write or without a kill.
fn run(at: Option<&Point>) -> Outcome {
    let mut points = None;
    let lab = Lab::start("killed-bastions", |world, agent| {
        points = Some(FaultPoints::of(world, agent, at, concerns));
    });
    let points = points.unwrap();
    let wait = |what: &str, condition: &dyn Fn() -> Option<()>| {
        lab.wait_for(what, || {
            points.restart_if_due();
            condition()
        });
    };
    let is_at = |ip: &str| {
        let bastion = lab.bastion("b1").filter(works)?;
        (bastion["status"]["ingress"]["ip"] == ip).then_some(())
    };
    lab.player.behave("bastions", reached_at("192.0.2.10"));
    lab.make("b1", |_| {});
    wait("the Bastion", &|| is_at("192.0.2.10"));
    lab.player.behave("bastions", reached_at("192.0.2.11"));
    lab.change("b1", &json!({"spec": {"ingress": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]}}));
    wait("the other address", &|| is_at("192.0.2.11"));
    let objects = left(&lab);
    let annotations = json!({"confirmation.gardener.cloud/force-deletion": "true"});
    lab.change("b1", &json!({"metadata": {"annotations": annotations}}));
    lab.world.garden.delete(
        crate::story_bastions::OPERATIONS,
        "bastions",
        crate::story_bastions::PROJECT,
        "b1",
    );
    wait("the end", &|| lab.bastion("b1").is_none().then_some(()));
    assert_eq!(lab.object("b1"), None);
    points.restart_if_due();
    lab.end();
    Outcome { objects, points, problems: Vec::new() }
}

fn left(lab: &Lab) -> Vec<(String, Value)> {
    let words = Words::new(&[]);
    let of = |cluster: &TestCluster| words.left_in(cluster, |id: &Id| id.plural == "bastions");
    let mut all = [of(&lab.world.garden), of(&lab.world.seed)].concat();
    for (_, object) in &mut all {
        // A repeated request is executed again.
        object["status"]["lastOperation"]["type"] = Value::Null;
    }
    all
}

#[test]
fn a_kill_changes_nothing_for_bastions() {
    change_nothing("kills after writes for Bastions", &[(Fault::KillAfter, 5, 8)], &run(None), &run);
}
