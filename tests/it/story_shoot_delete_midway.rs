//! A Shoot is deleted while the agent creates it, at each border between two tasks; and the agent is killed while it
//! deletes a Shoot. None of its objects remain.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sampling::{self, Sample, Tried};
use crate::story_shoot_crash::{BORDERS, Point, concerns, name_of, words};
use crate::story_shoot_delete::Scene;
use crate::world::CORE;
use support::TestCluster;
use support::http::faults::{Action, Seen};
use support::options;
use support::shoot::history::wait_until_created;
use support::shoot::object::PROJECT_NAMESPACE;

/// A normal run tries at least this many borders, and more while there is time. `GARDENLET_TESTS_LONG` tries all of
/// them. `GARDENLET_TESTS_SEED` repeats a choice.
const SAMPLE: usize = 3;
const SAMPLE_TIME: Duration = Duration::from_secs(20);
/// Creations that run at the same time.
const PARALLEL: usize = 2;
/// In the agent's time: long enough for the owner to delete the Shoot before the agent continues.
const HELD: Duration = Duration::from_secs(20);

/// Where the agent is killed while it deletes a Shoot.
static KILLS: [Point<&str>; 15] = [
    Point::After("garden: PATCH shoots/status s1 Processing"),
    Point::Before("shoot: DELETE validatingwebhookconfigurations dead"),
    Point::After("shoot: DELETE customresourcedefinitions things.example.org"),
    Point::Before("shoot: PATCH services held"),
    Point::After("seed: DELETE managedresources shoot-core-system"),
    Point::Before("seed: DELETE deployments kube-apiserver"),
    Point::After("seed: DELETE deployments kube-apiserver"),
    Point::After("seed: DELETE services kube-apiserver-exposure"),
    Point::After("seed: DELETE statefulsets etcd-main"),
    Point::Before("seed: DELETE namespaces shoot--p--s1"),
    Point::After("seed: DELETE namespaces shoot--p--s1"),
    Point::After("garden: DELETE shootstates s1"),
    Point::After("seed: DELETE clusters shoot--p--s1"),
    Point::After("garden: PATCH shoots/status s1 Succeeded"),
    Point::Before("garden: PATCH shoots s1"),
];

/// Holds the first request at the border, and reports that it was reached. Later requests are not affected.
fn hold(cluster: &TestCluster, at: &'static Point<&str>, is_reached: &Arc<AtomicBool>) {
    let action = match at {
        Point::Before(_) => Action::Delay(HELD),
        Point::After(_) => Action::DelayAnswer(HELD),
    };
    at_first(cluster, at, is_reached, action);
}

/// Acts on the first request at the point.
fn at_first(cluster: &TestCluster, at: &'static Point<&str>, is_reached: &Arc<AtomicBool>, action: Action) {
    let (server, words, is_reached) = (cluster.name.clone(), words(), is_reached.clone());
    let (Point::Before(wanted) | Point::After(wanted)) = at;
    let is_it = move |seen: &Seen| {
        concerns(seen, &server)
            && words.clean(&name_of(&server, seen)) == *wanted
            && !is_reached.swap(true, Ordering::SeqCst)
    };
    cluster.faults().when(is_it).then(action);
}

/// One creation that ends at a border.
fn run(at: &'static Point<&'static str>) -> bool {
    let scene = Scene::new("shoot-unborn");
    let is_reached = Arc::new(AtomicBool::new(false));
    hold(&scene.world.garden, at, &is_reached);
    hold(&scene.world.seed, at, &is_reached);
    scene.create();
    scene.world.garden.wait_for("the border", |_| {
        // A creation may succeed without some of the borders.
        let is_over = scene.operations().iter().any(|operation| operation.line() == "Create Succeeded 100");
        (is_over || is_reached.load(Ordering::SeqCst)).then_some(())
    });
    scene.delete();
    scene.wait_until_gone();
    is_reached.load(Ordering::SeqCst)
}

fn judge((task, at): &'static (&'static str, Point<&'static str>)) -> (bool, Vec<String>) {
    match catch_unwind(AssertUnwindSafe(|| run(at))) {
        Ok(true) => (true, Vec::new()),
        Ok(false) => (false, vec![format!("after {task}: there was no request {at:?}")]),
        Err(_) => (true, vec![format!("after {task}: objects of the Shoot remain, see above")]),
    }
}

#[test]
fn a_deletion_at_any_border_of_a_creation_leaves_nothing() {
    let seed = options::seed();
    let (points, least) = sampling::order(Vec::new(), BORDERS.iter().collect(), SAMPLE, seed);
    let sample = Sample { points: &points, first: 0, least, time: SAMPLE_TIME, parallel: PARALLEL };
    let Tried { tried, problems, .. } = sample.run(&|point| judge(point));
    // Not captured by the test harness, which shows only the output of failures.
    let _ = writeln!(
        std::io::stderr(),
        "deleted at {tried} of {} borders of a creation (seed {seed}): {} left objects",
        points.len(),
        problems.len()
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// One deletion in which the agent is killed.
fn run_with_a_kill(at: &'static Point<&'static str>) -> bool {
    let scene = Scene::new("shoot-dying");
    scene.create();
    wait_until_created(&scene.world.garden, (PROJECT_NAMESPACE, "s1"));
    let shoot = scene.fill();
    // A Shoot that is deleted before it has a ShootState deletes none.
    scene
        .world
        .garden
        .wait_for("the ShootState", |garden| garden.get(CORE, "shootstates", PROJECT_NAMESPACE, "s1"));
    let is_reached = Arc::new(AtomicBool::new(false));
    for cluster in [&scene.world.garden, &scene.world.seed, &shoot.cluster] {
        let action = match at {
            Point::Before(_) => Action::Drop,
            Point::After(_) => Action::DropAfter,
        };
        at_first(cluster, at, &is_reached, action);
    }
    scene.delete();
    scene
        .world
        .garden
        .wait_for("the point", |_| (scene.is_gone() || is_reached.load(Ordering::SeqCst)).then_some(()));
    scene.agent.crash();
    scene.agent.launch();
    scene.wait_until_gone();
    is_reached.load(Ordering::SeqCst)
}

#[test]
fn a_kill_in_a_deletion_changes_nothing() {
    let seed = options::seed();
    let (points, least) = sampling::order(Vec::new(), KILLS.iter().collect(), SAMPLE, seed);
    let sample = Sample { points: &points, first: 0, least, time: SAMPLE_TIME, parallel: PARALLEL };
    let judge =
        |at: &&'static Point<&'static str>| match catch_unwind(AssertUnwindSafe(|| run_with_a_kill(at))) {
            Ok(true) => (true, Vec::new()),
            Ok(false) => (false, vec![format!("there was no request {at:?}")]),
            Err(_) => (true, vec![format!("{at:?}: objects of the Shoot remain, see above")]),
        };
    let Tried { tried, problems, .. } = sample.run(&judge);
    let _ = writeln!(
        std::io::stderr(),
        "killed at {tried} of {} points of a deletion (seed {seed}): {} made a difference",
        points.len(),
        problems.len()
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
