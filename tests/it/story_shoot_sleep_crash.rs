//! The agent is killed while it hibernates a Shoot or wakes it up: the result is the same, with the same data.

use std::sync::Arc;

use serde_json::json;

use crate::faultpoints::{Outcome, Point, after, before};
use crate::nodes::{self, Nodes};
use crate::sampling::{Sample, is_limited};
use crate::story_shoot_crash::{others, points_of, rest, secrets, verdict, with_restarts};
use crate::story_shoot_sleep::{NAME, ask, pods, until};
use crate::world::{Options, World};
use support::shoot::history::{self, wait_until_created};
use support::shoot::object::{PROJECT_NAMESPACE, technical_id};

const DONE: &str = "Reconcile Succeeded 100";
/// A normal run tries this many borders.
const FEW: usize = 1;

/// The direction of the Shoot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Asleep,
    Awake,
}

impl Way {
    /// The borders between the tasks that make the difference: the task that has ended last.
    fn borders(self) -> Vec<Point> {
        let begin = [
            after("garden: PATCH shoots/status s1 Processing"),
            before("garden: PATCH shoots/status s1 Succeeded"),
            after("garden: PATCH shoots/status s1 Succeeded"),
        ];
        let asleep = [
            before("seed: PATCH deployments kube-controller-manager"),
            after("seed: PATCH deployments kube-controller-manager"),
            before("seed: PATCH deployments kube-apiserver"),
            after("seed: PATCH deployments kube-apiserver"),
            before("seed: PATCH statefulsets etcd-main"),
            after("seed: PATCH statefulsets etcd-main"),
            after("seed: PATCH statefulsets etcd-events"),
        ];
        let awake = [
            before("seed: PATCH statefulsets etcd-main"),
            after("seed: PATCH statefulsets etcd-main"),
            after("seed: PATCH statefulsets etcd-events"),
            before("seed: PATCH deployments kube-apiserver"),
            after("seed: PATCH deployments kube-apiserver"),
            before("seed: PATCH deployments kube-controller-manager"),
            after("seed: PATCH deployments kube-controller-manager"),
        ];
        let own = if self == Self::Asleep { asleep } else { awake };
        begin.into_iter().chain(own).collect()
    }
}

/// One direction. `undisturbed`: the expected result.
fn run((nodes, way): (Nodes, Way), at: Option<&Point>, undisturbed: Option<&Outcome>) -> Outcome {
    let world = World::start(&Options::new("shoot-sleep-crash"));
    let site = world.site();
    let shoot = nodes.shoot(&world, NAME);
    let agent = Arc::new(world.agent_of(&site, &nodes.config(&world)));
    agent.launch();
    world.wait_until_ready();
    let window = json!({"begin": "220000+0000", "end": "230000+0000"});
    world.garden.apply(&[shoot.with("/spec/maintenance/timeWindow", window).build()]);
    wait_until_created(&world.garden, (PROJECT_NAMESPACE, NAME));
    nodes::join_at(&world, &site, NAME);
    rest(&world, &site, None);
    let kept = json!({"metadata": {"name": "kept", "namespace": "default"}, "data": {"a": "b"}});
    site.server(&technical_id(NAME)).unwrap().cluster.create("v1", "configmaps", &kept);
    if way == Way::Awake {
        ask(&world, true);
        until(&world, DONE);
        rest(&world, &site, None);
    }
    let keys = secrets(&world);
    let points = points_of(&world, &agent, at);
    ask(&world, way == Way::Asleep);
    let (objects, _) = with_restarts(&points, (&world, &site), || {
        until(&world, DONE);
        rest(&world, &site, undisturbed.map(|undisturbed| undisturbed.objects.as_slice()))
    });
    let mut problems = Vec::new();
    if secrets(&world) != keys {
        problems.push("keys or certificates have changed".to_owned());
    }
    let running = pods(&world);
    if running.is_empty() != (way == Way::Asleep) {
        problems.push(format!("pods: {running:?}"));
    }
    let operations = history::operations(&world.garden, PROJECT_NAMESPACE, NAME);
    for operation in operations.iter().filter(|operation| ["Error", "Failed"].contains(&&*operation.state)) {
        problems.push(format!("{}: {}", operation.line(), operation.description));
    }
    problems.extend(site.complaints());
    Outcome { objects, points, problems }
}

fn try_points(of: (Nodes, Way), what: &'static str) {
    let undisturbed = run(of, None, None);
    assert_eq!(undisturbed.problems, Vec::<String>::new());
    let borders = of.1.borders();
    let others = if is_limited() { Vec::new() } else { others(&undisturbed, &borders) };
    let (sample, objects) = (Sample::of(what).with(FEW, borders.clone()), &undisturbed.objects);
    sample
        .with(0, others)
        .run(&|point| verdict((point, &borders), run(of, Some(point), Some(&undisturbed)), objects));
}

#[test]
fn a_kill_changes_nothing_for_a_shoot_that_is_hibernated() {
    try_points((Nodes::Nobody, Way::Asleep), "kills during a hibernation");
}

#[test]
fn a_kill_changes_nothing_for_a_shoot_that_wakes_up() {
    try_points((Nodes::Nobody, Way::Awake), "kills during a wake-up");
}

#[test]
fn a_kill_changes_nothing_for_a_shoot_with_a_pool_that_is_hibernated() {
    try_points((Nodes::Hosts, Way::Asleep), "kills during a hibernation with a pool");
}

#[test]
fn a_kill_changes_nothing_for_a_shoot_with_a_pool_that_wakes_up() {
    try_points((Nodes::Hosts, Way::Awake), "kills during a wake-up with a pool");
}
