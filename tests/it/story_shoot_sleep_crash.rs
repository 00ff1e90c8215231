//! The agent is killed while it hibernates a Shoot or wakes it up: the result is the same, with the same data.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gardenlet::base::stop::Stop;
use serde_json::{Value, json};

use crate::sampling::{self, Sample, Tried};
use crate::story_shoot_crash::Point::{After, Before};
use crate::story_shoot_crash::{Kill, Point, locked, rest, restart_when_due, secrets};
use crate::story_shoot_sleep::{NAME, ask, pods, until};
use crate::world::{Options, World};
use support::options;
use support::shoot::history::{self, wait_until_created};
use support::shoot::object::{PROJECT_NAMESPACE, Workerless, technical_id};

const DONE: &str = "Reconcile Succeeded 100";
/// The same as for a creation.
const SAMPLE: usize = 2;
const SAMPLE_TIME: Duration = Duration::from_secs(10);
const PARALLEL: usize = 2;
/// A normal run tries one border in this many.
const STEP: usize = 5;

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
            After("garden: PATCH shoots/status s1 Processing"),
            Before("garden: PATCH shoots/status s1 Succeeded"),
            After("garden: PATCH shoots/status s1 Succeeded"),
        ];
        let asleep = [
            Before("seed: PATCH deployments kube-controller-manager"),
            After("seed: PATCH deployments kube-controller-manager"),
            Before("seed: PATCH deployments kube-apiserver"),
            After("seed: PATCH deployments kube-apiserver"),
            Before("seed: PATCH statefulsets etcd-main"),
            After("seed: PATCH statefulsets etcd-main"),
            After("seed: PATCH statefulsets etcd-events"),
        ];
        let awake = [
            Before("seed: PATCH statefulsets etcd-main"),
            After("seed: PATCH statefulsets etcd-main"),
            After("seed: PATCH statefulsets etcd-events"),
            Before("seed: PATCH deployments kube-apiserver"),
            After("seed: PATCH deployments kube-apiserver"),
            Before("seed: PATCH deployments kube-controller-manager"),
            After("seed: PATCH deployments kube-controller-manager"),
        ];
        let own = if self == Self::Asleep { asleep } else { awake };
        begin.into_iter().chain(own).map(Point::owned).collect()
    }
}

struct Outcome {
    objects: Vec<(String, Value)>,
    kill: Arc<Kill>,
    problems: Vec<String>,
}

/// One direction. `undisturbed`: the expected result.
fn run(way: Way, at: Option<&Point>, undisturbed: Option<&Outcome>) -> Outcome {
    let world = World::start(&Options::new("shoot-sleep-crash"));
    let site = world.site();
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    // Long enough that a busy machine does not lose it.
    config["leaderElection"] = json!({"leaseDuration": "300s", "renewDeadline": "200s", "retryPeriod": "2s"});
    let agent = Arc::new(world.agent_of(&site, &config));
    agent.launch();
    world.wait_until_ready();
    let window = json!({"begin": "220000+0000", "end": "230000+0000"});
    world.garden.apply(&[Workerless::new(NAME).with("/spec/maintenance/timeWindow", window).build()]);
    wait_until_created(&world.garden, (PROJECT_NAMESPACE, NAME));
    rest(&world, &site, None);
    let kept = json!({"metadata": {"name": "kept", "namespace": "default"}, "data": {"a": "b"}});
    site.server(&technical_id(NAME)).unwrap().cluster.create("v1", "configmaps", &kept);
    if way == Way::Awake {
        ask(&world, true);
        until(&world, DONE);
        rest(&world, &site, None);
    }
    let keys = secrets(&world);
    let kill = Kill::new(&agent, at.cloned());
    kill.watch(&world.garden);
    kill.watch(&world.seed);
    ask(&world, way == Way::Asleep);
    let (over, before) = (Stop::new(), Mutex::<BTreeMap<String, Value>>::default());
    let objects = std::thread::scope(|scope| {
        scope.spawn(|| restart_when_due(&kill, &over, (&world, &site), &before));
        let ended = catch_unwind(AssertUnwindSafe(|| {
            until(&world, DONE);
            rest(&world, &site, undisturbed.map(|undisturbed| undisturbed.objects.as_slice()))
        }));
        over.stop();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
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
    Outcome { objects, kill, problems }
}

fn judge(way: Way, point: &Point, undisturbed: &Outcome) -> (bool, Vec<String>) {
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| run(way, Some(point), Some(undisturbed)))) else {
        return (true, vec![format!("{point:?}: it did not end as without a kill, see above")]);
    };
    let happened = outcome.kill.happened.load(Ordering::SeqCst);
    let mut found = Vec::new();
    if !outcome.problems.is_empty() {
        found.push(format!("{point:?}:\n  {}", outcome.problems.join("\n  ")));
    }
    if !happened && way.borders().contains(point) {
        found.push(format!("there was no request {point:?}"));
    }
    (happened, found)
}

fn try_points(way: Way) {
    let undisturbed = run(way, None, None);
    assert_eq!(undisturbed.problems, Vec::<String>::new());
    let seed = options::seed();
    let all = way.borders();
    let writes = locked(&undisturbed.kill.order).clone();
    let mut others: Vec<Point> = writes.into_iter().flat_map(|w| [Before(w.clone()), After(w)]).collect();
    let is_progress = |point: &Point| format!("{point:?}").contains("shoots/status s1 lastOperation");
    others.retain(|point| !all.contains(point) && !is_progress(point));
    if !options::is_long() {
        others.clear();
    }
    let all = sampling::some(all, STEP, seed);
    let first = all.len();
    let (points, least) = sampling::order(all, others, SAMPLE, seed);
    let sample = Sample { points: &points, first, least, time: SAMPLE_TIME, parallel: PARALLEL };
    let Tried { tried, happened, problems } = sample.run(&|point| judge(way, point, &undisturbed));
    let _ = writeln!(
        std::io::stderr(),
        "killed at {tried} of {} points on the way to {way:?} (seed {seed}): {happened} happened, {} made a difference",
        points.len(),
        problems.len()
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_kill_changes_nothing_for_a_shoot_that_is_hibernated() {
    try_points(Way::Asleep);
}

#[test]
fn a_kill_changes_nothing_for_a_shoot_that_wakes_up() {
    try_points(Way::Awake);
}
