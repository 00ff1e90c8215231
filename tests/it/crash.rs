//! The whole story, once for each fault at each point. The agent crashes right after a write took effect and restarts.
//! Or the answer to a write is lost, or it says that the write may have taken effect. Or a list shows an old state. Or
//! events come late, or they are lost and the watch forgets its version. In all cases the world ends up as if nothing
//! had happened. Reads of single objects are never stale, because API servers guarantee that.
//!
//! A crash cuts all connections and loses everything but the state directory; the agent releases and finishes nothing.
//! Renewals of leases are not counted: their number is arbitrary.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use serde_json::{Value, json};

use crate::charts;
use crate::left::{Words, differences};
use crate::sampling::{self, Sample, Tried};
use crate::story_extension::{installed, nothing_is_left};
use crate::world::{Agent, CORE, LEASES, Options, World, is_write_of_agent};
use support::TestCluster;
use support::encoding::from_rfc3339;
use support::garden::prepare;
use support::http::faults::{Action, Seen, failure};
use support::json::text;
use support::options::{self, variable};

/// A normal run tries one crash in this many.
const STEP: usize = 3;
/// A normal run tries at least this many of all other accidents, and more while there is time. `GARDENLET_TESTS_LONG`
/// tries all of them. `GARDENLET_TESTS_SEED` repeats a choice.
const SAMPLE: usize = 8;
const SAMPLE_TIME: Duration = Duration::from_secs(15);
/// On musl a normal run tries one point in this many.
const MUSL_STEP: usize = 12;
/// Stories that run at the same time.
const PARALLEL: usize = 2;
/// How many changes a stale list is behind, and how long a watch sends no events.
const STALE_BY: u64 = 8;
const BLIND: Duration = Duration::from_secs(10);

/// The kind of fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Accident {
    /// After a write.
    Crash,
    LostAnswer,
    /// The answer to a write is 504: the client cannot know whether the write took effect. It did.
    TimedOut,
    StaleList,
    LateEvents,
    LostEvents,
}

/// Where an accident happens: an index, from 0, among the writes, the lists or the events.
type Point = (usize, Accident);

/// The accident of a story, and its point.
struct Accidents {
    at: Option<Point>,
    /// The request or event that was hit, once the accident has happened.
    hit: Mutex<Option<String>>,
    writes: AtomicUsize,
    lists: AtomicUsize,
    events: AtomicUsize,
    due: AtomicBool,
}

impl Accidents {
    fn watch(world: &World, agent: &Arc<Agent>, at: Option<Point>) -> Arc<Self> {
        let accidents = Arc::new(Self {
            at,
            hit: Mutex::default(),
            writes: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            events: AtomicUsize::new(0),
            due: AtomicBool::new(false),
        });
        for cluster in [&*world.garden, &world.seed] {
            let told = || (accidents.clone(), cluster.name.clone());
            let faults = cluster.faults();
            let ((all, name), agent) = (told(), agent.clone());
            let tell = Action::TellAfter(Arc::new(move |seen: &Seen| all.write(&agent, &name, seen)));
            faults.when(is_counted_write).then(tell);
            // The same writes again, by the number that the next one will have.
            let (all, name) = told();
            let timed_out = move |seen: &Seen| {
                is_counted_write(seen) && all.is_next(&all.writes, Accident::TimedOut, &name, seen)
            };
            faults.when(timed_out).then(Action::RefuseAfter(failure(504, None)));
            let (all, name) = told();
            let stale =
                move |seen: &Seen| is_list(seen) && all.counts(&all.lists, Accident::StaleList, &name, seen);
            faults.when(stale).then(Action::StaleBy(STALE_BY));
            let (all, name) = told();
            let begins = move |seen: &Seen| all.counts(&all.events, Accident::LostEvents, &name, seen);
            faults.when(is_watch).then(Action::Blind(Arc::new(begins), BLIND));
            // The same events again.
            let (all, name) = told();
            let late = move |seen: &Seen| all.is_next(&all.events, Accident::LateEvents, &name, seen);
            faults.when(is_watch).then(Action::Late(Arc::new(late), BLIND));
        }
        accidents
    }

    fn write(&self, agent: &Agent, cluster: &str, seen: &Seen) {
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        match self.at {
            Some((at, Accident::Crash)) if at == number => {
                agent.cable().cut();
                self.due.store(true, Ordering::SeqCst);
            }
            Some((at, Accident::LostAnswer)) if at == number => agent.cable().break_off(),
            _ => return,
        }
        self.note(cluster, seen);
    }

    /// Counts, and returns whether this is the chosen point.
    fn counts(&self, counter: &AtomicUsize, accident: Accident, cluster: &str, seen: &Seen) -> bool {
        let number = counter.fetch_add(1, Ordering::SeqCst);
        let is_it = self.at == Some((number, accident));
        if is_it {
            self.note(cluster, seen);
        }
        is_it
    }

    /// Whether this is the chosen point, with a count from elsewhere. True only once.
    fn is_next(&self, counter: &AtomicUsize, accident: Accident, cluster: &str, seen: &Seen) -> bool {
        let is_it =
            self.at.is_some_and(|(at, kind)| kind == accident && counter.load(Ordering::SeqCst) >= at);
        if !is_it || self.happened().is_some() {
            return false;
        }
        self.note(cluster, seen);
        true
    }

    fn note(&self, cluster: &str, seen: &Seen) {
        let line = format!("{cluster}: {} {}", seen.method, seen.path);
        *self.hit.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
    }

    fn happened(&self) -> Option<String> {
        self.hit.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many points there were for an accident.
    fn points(&self, accident: Accident) -> usize {
        let counter = match accident {
            Accident::Crash | Accident::LostAnswer | Accident::TimedOut => &self.writes,
            Accident::StaleList => &self.lists,
            Accident::LateEvents | Accident::LostEvents => &self.events,
        };
        counter.load(Ordering::SeqCst)
    }
}

/// If the story does not end, prints what was hit and the last state.
struct TellIfPanicking<'a>(Arc<Accidents>, &'a World, Arc<Agent>);

impl Drop for TellIfPanicking<'_> {
    fn drop(&mut self) {
        let Self(accidents, world, agent) = self;
        if std::thread::panicking() {
            eprintln!("---- accident {:?} hit {:?}", accidents.at, accidents.happened());
            for installation in world.garden.installations("echo") {
                eprintln!("---- {} {}", installation["metadata"], installation["status"]);
            }
            let parts = agent.status.lock().unwrap_or_else(PoisonError::into_inner).parts();
            eprintln!("---- {parts:?}");
        }
    }
}

fn is_counted_write(seen: &Seen) -> bool {
    is_write_of_agent(seen) && !(seen.info.resource == "leases" && seen.method != "POST")
}

fn is_list(seen: &Seen) -> bool {
    seen.info.verb == "list" && seen.user_agent.starts_with("gardenlet/")
}

fn is_watch(seen: &Seen) -> bool {
    seen.is_watch() && seen.user_agent.starts_with("gardenlet/")
}

/// What a run of the story leaves behind.
struct Outcome {
    objects: Vec<(String, Value)>,
    accidents: Arc<Accidents>,
}

/// One run of the story.
fn run(at: Option<Point>) -> Outcome {
    let world = World::start(&Options { factor: 20, ..Options::new("crashing") });
    let mut config = world.config();
    // Long enough that a busy machine does not lose the Lease, and that the test notices an agent which waited for its
    // expiry.
    config["leaderElection"] = json!({"leaseDuration": "300s", "renewDeadline": "200s", "retryPeriod": "2s"});
    let agent = Arc::new(Agent::new(&world, "host-1", &config, world.pod()));
    let accidents = Accidents::watch(&world, &agent, at);
    let _told = TellIfPanicking(accidents.clone(), &world, agent.clone());
    let mut extension = prepare::extension("echo", &charts::extension(), &json!({"greeting": "hello"}));
    extension[0]["injectGardenKubeconfig"] = json!(true);
    world.garden.apply(&extension);
    agent.launch();
    let over = Stop::new();
    let restarting = restart_when_due(&agent, &accidents, &over);
    world.wait_until_ready();
    let name = installed(&world, "echo");
    let values = json!({"helm": {"values": {"greeting": "good morning"}}});
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
    world.seed.wait_for("the new value", |seed| {
        let echo = seed.get("example.org", "echoes", &format!("extension-{name}"), "first")?;
        (echo["spec"]["text"] == "good morning").then_some(())
    });
    assert_eq!(installed(&world, "echo"), name);
    world.seed.wait_for("the token", |seed| {
        let secret = seed.get("", "secrets", &format!("extension-{name}"), "garden-access-extension")?;
        secret["data"].get("token").map(drop)
    });
    world.garden.delete(CORE, "controllerregistrations", "", "echo");
    world.garden.delete(CORE, "controllerdeployments", "", "echo");
    world.garden.wait_for("the end of the installation", |_| {
        world.garden.installations("echo").is_empty().then_some(())
    });
    nothing_is_left(&world, &name);
    settled(&world);
    over.stop();
    restarting.join().unwrap();
    leases_came_back_at_once(&world);
    let objects = [&*world.garden, &world.seed].into_iter().flat_map(left_in).collect();
    Outcome { objects, accidents }
}

/// Restarts the agent after a crash, until the story is over.
fn restart_when_due(
    agent: &Arc<Agent>,
    accidents: &Arc<Accidents>,
    over: &Stop,
) -> std::thread::JoinHandle<()> {
    let (agent, accidents, over) = (agent.clone(), accidents.clone(), over.clone());
    thread::spawn("restart", 256 << 10, move || {
        let real = Clock::system();
        loop {
            let is_over = over.wait(&real, Duration::from_millis(2));
            if accidents.due.load(Ordering::SeqCst) {
                agent.crash_and_restart();
                accidents.due.store(false, Ordering::SeqCst);
            }
            if is_over {
                return;
            }
        }
    })
    .unwrap()
}

/// Waits until the agent is idle, also after a crash at the very end.
fn settled(world: &World) {
    let since = world.clock.now();
    world.wait_until_ready();
    world.wait_for_condition("ExtensionsReady", "True");
    world.wait_for_condition("SeedSystemComponentsHealthy", "True");
    world.garden.wait_for("a heartbeat", |_| world.beat().filter(|beat| *beat > since));
    for name in ["gardenlet-leader-election", "gardener-resource-manager"] {
        world.seed.wait_for(&format!("lease {name}"), |seed| {
            let lease = seed.get(LEASES, "leases", "garden", name)?;
            from_rfc3339(text(&lease, "/spec/renewTime")).filter(|renewed| *renewed > since)
        });
    }
}

/// The restarted agent found its own leases and continued: it did not wait for them to expire, and did not take a lease
/// of another holder.
fn leases_came_back_at_once(world: &World) {
    for name in ["gardenlet-leader-election", "gardener-resource-manager"] {
        let lease = world.seed.get(LEASES, "leases", "garden", name).unwrap();
        assert_eq!(lease["spec"]["leaseTransitions"], 0, "{lease}");
    }
}

/// Every object of a cluster, without the parts that differ in each run.
fn left_in(cluster: &TestCluster) -> Vec<(String, Value)> {
    let words = Words::new(&[
        (r"seed-csr-[A-Za-z0-9_-]{43}", "seed-csr-<hash>"),
        (r"echo-[a-z0-9]{5}(-[0-9a-f]{8})?\b", "echo-<random>"),
        (r"provider-local-[a-z0-9]{5}(-[0-9a-f]{8})?\b", "provider-local-<random>"),
        // They contain the name of the cluster, which is new in each run.
        (r"cluster-identity-[0-9a-f]{8}\b", "cluster-identity-<hash>"),
        (r"/secret-[0-9a-f]{8}\b", "/secret-<hash>"),
        (r"ca-seed-bundle-[0-9a-f]{8}\b", "ca-seed-bundle-<hash>"),
        (r#""(checksum-of-config|issued-at-time|valid-until-time)":"\d+""#, r#""$1":"<number>""#),
    ]);
    words.left_in(cluster, |_| true)
}

/// All points for some kinds of accidents.
fn points(undisturbed: &Accidents, accidents: &[Accident]) -> Vec<Point> {
    let of = |accident: &Accident| {
        let accident = *accident;
        (0..undisturbed.points(accident)).map(move |at| (at, accident))
    };
    accidents.iter().flat_map(of).collect()
}

/// The accidents to try, those that must be tried first, and their number. `GARDENLET_TESTS_CRASH_AT` chooses one, as
/// in `151:StaleList`, or all of a kind, as in `StaleList`.
fn plan(undisturbed: &Accidents, seed: u64) -> (Vec<Point>, usize) {
    use Accident::{Crash, LateEvents, LostAnswer, LostEvents, StaleList, TimedOut};
    if let Some(one) = variable("GARDENLET_TESTS_CRASH_AT") {
        let mut all = points(undisturbed, &[Crash, LostAnswer, TimedOut, StaleList, LateEvents, LostEvents]);
        all.retain(|(at, accident)| one == format!("{at}:{accident:?}") || one == format!("{accident:?}"));
        let count = all.len();
        return (all, count);
    }
    let mut all = points(undisturbed, &[Crash]);
    let mut others = points(undisturbed, &[LostAnswer, TimedOut, StaleList, LateEvents, LostEvents]);
    if cfg!(target_env = "musl") && !options::is_long() {
        // With this machine's libc, the same code has already run with all of them.
        all = all.into_iter().step_by(MUSL_STEP).collect();
        others = others.into_iter().step_by(MUSL_STEP).collect();
    } else {
        all = sampling::some(all, STEP, seed);
    }
    sampling::order(all, others, SAMPLE, seed)
}

/// Whether an accident happened, and what it changed. How often the agent writes conditions and reads objects depends
/// on time: a run may be too short for its accident.
fn judge(point: Point, undisturbed: &Outcome) -> (bool, Vec<String>) {
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| run(Some(point)))) else {
        return (false, vec![format!("{point:?}: the story did not end, see above")]);
    };
    let Some(hit) = outcome.accidents.happened() else {
        let left_out = point.0 < outcome.accidents.points(point.1);
        return (false, left_out.then(|| format!("{point:?} was left out")).into_iter().collect());
    };
    let found = differences(&undisturbed.objects, &outcome.objects);
    let problem = (!found.is_empty()).then(|| format!("{point:?}, {hit}:\n  {}", found.join("\n  ")));
    (true, problem.into_iter().collect())
}

#[test]
fn an_accident_at_any_point_changes_nothing() {
    let undisturbed = run(None);
    let seed = options::seed();
    let (points, least) = plan(&undisturbed.accidents, seed);
    let crashes = points.iter().filter(|point| point.1 == Accident::Crash).count();
    let sample = Sample { points: &points, first: crashes, least, time: SAMPLE_TIME, parallel: PARALLEL };
    let Tried { tried, happened, problems } = sample.run(&|point| judge(*point, &undisturbed));
    // Not captured by the test harness, which shows only the output of failures.
    let _ = writeln!(
        std::io::stderr(),
        "{crashes} crashes, {} of {} other accidents (seed {seed}): {happened} happened, {} made a difference",
        tried.saturating_sub(crashes),
        points.len() - crashes,
        problems.len()
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // Some runs are too short for their accidents. So may be one that was chosen alone.
    assert!(happened * 4 >= tried * 3 || tried < least.max(2), "only {happened} of {tried} happened");
}
