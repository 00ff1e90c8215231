//! The agent is killed while it rotates the credentials of a Shoot: at the borders between tasks, and at other writes.
//! It starts again, and the result is the same.

use std::sync::Arc;

use crate::faultpoints::{Outcome, Point, after, before};
use crate::nodes::Nodes;
use crate::sampling::{Sample, is_limited};
use crate::story_shoot_crash::{others, points_of, verdict, with_restarts};
use crate::story_shoot_rotation::{
    NAME, PLACE, annotations, ask_for, authorities, created_with, golden, phases, secrets, wait_for_phases,
};
use crate::world::{Options, World};
use support::options::seed;
use support::random::few;
use support::shoot::history;

/// The task that has ended last, and the point.
const BORDERS: [(&str, Point); 9] = [
    ("start of the operation", after("garden: PATCH shoots/status s1 Processing")),
    ("Deploying control plane namespace", before("seed: POST secrets ca-<hash>")),
    ("the etcds know both CAs", before("seed: PATCH deployments kube-apiserver")),
    ("the servers know both keys", after("seed: PATCH deployments kube-apiserver #2")),
    ("Deploying Kubernetes API server", after("seed: PATCH deployments kube-apiserver #3")),
    ("Labeling resources", after("seed: PATCH deployments kube-apiserver #4")),
    ("all tasks of the first step", before("garden: PATCH shoots/status s1 Succeeded")),
    ("success of the first step", after("garden: PATCH shoots/status s1 Succeeded")),
    ("success of the second step of the key", after("garden: PATCH shoots/status s1 Succeeded #2")),
];
/// A normal run tries this many of them, a long run all.
const FEW: usize = 1;
/// A long run also tries this many other points.
const OTHERS: usize = 20;

/// One rotation, and the problems at its end.
fn run(nodes: Nodes, at: Option<&Point>) -> Outcome {
    let world = World::start(&Options::new("shoot-turn-crash"));
    let site = world.site();
    let shoot = nodes.shoot(&world, NAME);
    let agent = Arc::new(created_with(&world, &site, (nodes, shoot)));
    let points = points_of(&world, &agent, at);
    let (mut problems, _) = with_restarts(&points, (&world, &site), || rotate(&world, nodes));
    problems.extend(site.complaints());
    Outcome { objects: Vec::new(), points, problems }
}

fn rotate(world: &World, nodes: Nodes) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |what: &str, is_right: bool| {
        if !is_right {
            problems.push(what.to_owned());
        }
    };
    ask_for(world, "rotate-credentials-start");
    let all = |phase| [("certificateAuthorities", phase), ("serviceAccountKey", phase)];
    let [one, two] = all("Prepared");
    wait_for_phases(world, &[one, two, ("etcdEncryptionKey", "Completed")]);
    check(&format!("prepared: {:?}", secrets(world)), secrets(world) == golden(nodes, true));
    check("prepared: CAs", authorities(world) == 2);
    check(&format!("prepared: {:?}", annotations(world)), annotations(world).is_empty());
    ask_for(world, "rotate-credentials-complete");
    wait_for_phases(world, &all("Completed"));
    check(&format!("completed: {:?}", secrets(world)), secrets(world) == golden(nodes, false));
    check("completed: CAs", authorities(world) == 1);
    let steps = ["Preparing", "Prepared", "Completing", "Completed"];
    for what in ["certificateAuthorities", "serviceAccountKey", "etcdEncryptionKey"] {
        check(&format!("{what}: {:?}", phases(world, what)), phases(world, what) == steps);
    }
    for operation in history::operations(&world.garden, PLACE.0, PLACE.1) {
        let is_bad = ["Error", "Failed"].contains(&&*operation.state);
        check(&format!("{}: {}", operation.line(), operation.description), !is_bad);
    }
    problems
}

fn try_points(nodes: Nodes, what: &'static str) {
    let borders: Vec<Point> = BORDERS.into_iter().map(|(_, point)| point).collect();
    let mut sample = Sample::of(what).with(FEW, borders.clone());
    if !is_limited() {
        let undisturbed = run(nodes, None);
        assert_eq!(undisturbed.problems, Vec::<String>::new());
        let others = few(seed(), OTHERS, others(&undisturbed, &borders));
        sample = sample.with(0, others);
    }
    sample.run(&|point| verdict((point, &borders), run(nodes, Some(point)), &[]));
}

#[test]
fn a_kill_during_a_rotation_changes_nothing() {
    try_points(Nodes::Nobody, "kills during a rotation");
}

#[test]
fn a_kill_during_a_rotation_with_a_pool_changes_nothing() {
    try_points(Nodes::Hosts, "kills during a rotation with a pool");
}
