//! The agent is killed while it rotates the credentials of a Shoot: at the borders between tasks, and at other writes.
//! It starts again, and the result is the same.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gardenlet::base::stop::Stop;

use crate::sampling::{self, Sample, Tried};
use crate::story_shoot_crash::Point::{self, After, Before};
use crate::story_shoot_crash::{Kill, restart_when_due};
use crate::story_shoot_rotation::{
    NAME, PLACE, annotations, ask_for, authorities, created, golden, phases, secrets, wait_for_phases,
};
use crate::world::{Options, World};
use support::options;
use support::shoot::history;
use support::shoot::object::Workerless;

/// The task that has ended last, and the point.
const BORDERS: [(&str, Point<&str>); 9] = [
    ("start of the operation", After("garden: PATCH shoots/status s1 Processing")),
    ("Deploying control plane namespace", Before("seed: POST secrets ca-<hash>")),
    ("the etcds know both CAs", Before("seed: PATCH deployments kube-apiserver")),
    ("the servers know both keys", After("seed: PATCH deployments kube-apiserver #2")),
    ("Deploying Kubernetes API server", After("seed: PATCH deployments kube-apiserver #3")),
    ("Labeling resources", After("seed: PATCH deployments kube-apiserver #4")),
    ("all tasks of the first step", Before("garden: PATCH shoots/status s1 Succeeded")),
    ("success of the first step", After("garden: PATCH shoots/status s1 Succeeded")),
    ("success of the second step of the key", After("garden: PATCH shoots/status s1 Succeeded #2")),
];
/// A normal run tries this many of them. `GARDENLET_TESTS_LONG` tries all and more. `GARDENLET_TESTS_SEED` repeats a
/// choice.
const SAMPLE: usize = 2;
const OTHERS: usize = 20;

/// One rotation, and the problems at its end.
fn run(at: Option<&Point>) -> (Arc<Kill>, Vec<String>) {
    let world = World::start(&Options::new("shoot-turn-crash"));
    let site = world.site();
    let agent = Arc::new(created(&world, &site, Workerless::new(NAME)));
    let kill = Kill::new(&agent, at.cloned());
    kill.watch(&world.garden);
    kill.watch(&world.seed);
    let (over, before) = (Stop::new(), Mutex::default());
    let mut problems = std::thread::scope(|scope| {
        scope.spawn(|| restart_when_due(&kill, &over, (&world, &site), &before));
        let ended = catch_unwind(AssertUnwindSafe(|| rotate(&world)));
        over.stop();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    });
    problems.extend(site.complaints());
    (kill, problems)
}

fn rotate(world: &World) -> Vec<String> {
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
    check(&format!("prepared: {:?}", secrets(world)), secrets(world) == golden(true));
    check("prepared: CAs", authorities(world) == 2);
    check(&format!("prepared: {:?}", annotations(world)), annotations(world).is_empty());
    ask_for(world, "rotate-credentials-complete");
    wait_for_phases(world, &all("Completed"));
    check(&format!("completed: {:?}", secrets(world)), secrets(world) == golden(false));
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

#[test]
fn a_kill_during_a_rotation_changes_nothing() {
    let borders: Vec<Point> = BORDERS.into_iter().map(|(_, point)| point.owned()).collect();
    let mut others = Vec::new();
    if options::is_long() {
        let (kill, problems) = run(None);
        assert_eq!(problems, Vec::<String>::new());
        let writes = kill.order.lock().unwrap().clone();
        others = writes.into_iter().flat_map(|write| [Before(write.clone()), After(write)]).collect();
        others = sampling::order(Vec::new(), others, OTHERS, options::seed()).0;
        others.truncate(OTHERS);
    }
    let seed = options::seed();
    let (mut points, least) = sampling::order(Vec::new(), borders, SAMPLE, seed);
    points.truncate(least);
    points.append(&mut others);
    let least = points.len();
    let sample = Sample { points: &points, first: least, least, time: Duration::ZERO, parallel: 2 };
    let Tried { tried, happened, problems } =
        sample.run(&|point| match catch_unwind(AssertUnwindSafe(|| run(Some(point)))) {
            Ok((kill, problems)) => {
                let problems = problems.into_iter().map(|problem| format!("{point:?}: {problem}"));
                (kill.happened.load(Ordering::SeqCst), problems.collect())
            }
            Err(_) => (true, vec![format!("{point:?}: it did not end, see above")]),
        });
    let _ = writeln!(
        std::io::stderr(),
        "killed at {tried} points of a rotation (seed {seed}): {happened} happened, {} problems",
        problems.len()
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(happened * 4 >= tried * 3, "only {happened} of {tried} happened");
}
