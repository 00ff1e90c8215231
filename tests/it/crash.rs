//! The whole story, once for each write of the agent: right after the write took effect the agent crashes and comes back,
//! or only the answer is lost; the world ends up as if nothing had happened.
//!
//! A crash cuts all connections and forgets everything but the state directory; nothing is released or finished. Renewals
//! of leases are left out: there are as many as one likes.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::random;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use regex_lite::Regex;
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::{installed, nothing_is_left};
use crate::support::TestCluster;
use crate::support::encoding::from_rfc3339;
use crate::support::garden::prepare;
use crate::support::http::faults::{Action, Seen};
use crate::support::json::text;
use crate::world::{Agent, CORE, LEASES, Options, World, is_write_of_agent};

/// Lost answers that a normal run tries; `GARDENLET_TESTS_LONG` tries all. All crashes are tried always.
const SAMPLE: usize = 16;
/// Stories at the same time.
const PARALLEL: usize = 2;

/// What happens after a write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Accident {
    Crash,
    LostAnswer,
}

/// What happens in a story, and where.
struct Accidents {
    /// The write, counted from 0, after which it happens.
    at: Option<(usize, Accident)>,
    happened: AtomicBool,
    writes: AtomicUsize,
    due: AtomicBool,
    line: Mutex<Vec<String>>,
}

impl Accidents {
    fn watch(world: &World, agent: &Arc<Agent>, at: Option<(usize, Accident)>) -> Arc<Self> {
        let accidents = Arc::new(Self {
            at,
            happened: AtomicBool::new(false),
            writes: AtomicUsize::new(0),
            due: AtomicBool::new(false),
            line: Mutex::default(),
        });
        for cluster in [&*world.garden, &world.seed] {
            let (told, agent, name) = (accidents.clone(), agent.clone(), cluster.name.clone());
            let tell = Action::TellAfter(Arc::new(move |seen: &Seen| told.write(&agent, &name, seen)));
            cluster.faults().when(|seen| is_write_of_agent(seen) && !is_renewal(seen)).then(tell);
        }
        accidents
    }

    fn write(&self, agent: &Agent, cluster: &str, seen: &Seen) {
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        let line = format!("{cluster}: {} {}", seen.method, seen.path);
        self.line.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        match self.at {
            Some((at, Accident::Crash)) if at == number => {
                agent.cable().cut();
                self.due.store(true, Ordering::SeqCst);
            }
            Some((at, Accident::LostAnswer)) if at == number => agent.cable().break_off(),
            _ => return,
        }
        self.happened.store(true, Ordering::SeqCst);
    }

    fn lines(&self) -> Vec<String> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn is_renewal(seen: &Seen) -> bool {
    seen.info.resource == "leases" && seen.method != "POST"
}

/// What a run of the story leaves behind.
struct Outcome {
    objects: Vec<(String, Value)>,
    /// The writes in their order.
    writes: Vec<String>,
    /// Whether the accident happened: some runs have fewer writes than others.
    happened: bool,
}

/// One run of the story.
fn run(at: Option<(usize, Accident)>) -> Outcome {
    let world = World::start(&Options { factor: 20, ..Options::new("crashing") });
    let mut config = world.config();
    // Long enough that a busy machine does not lose it, and that an agent which had to wait for it would be noticed.
    config["leaderElection"] = json!({"leaseDuration": "300s", "renewDeadline": "200s", "retryPeriod": "2s"});
    let agent = Arc::new(Agent::new(&world, "host-1", &config, world.pod()));
    let accidents = Accidents::watch(&world, &agent, at);
    world.garden.apply(&prepare::extension("echo", &charts::extension(), &json!({"greeting": "hello"})));
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
    Outcome { objects, writes: accidents.lines(), happened: accidents.happened.load(Ordering::SeqCst) }
}

/// Brings the agent back after a crash, until the story is over.
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

/// Waits until the agent is at home, also after a crash at the very end.
fn settled(world: &World) {
    let since = world.clock.now();
    world.wait_until_ready();
    world.wait_for_condition("ExtensionsReady", "True");
    world.garden.wait_for("a heartbeat", |_| world.beat().filter(|beat| *beat > since));
    for name in ["gardenlet-leader-election", "gardener-resource-manager"] {
        world.seed.wait_for(&format!("lease {name}"), |seed| {
            let lease = seed.get(LEASES, "leases", "garden", name)?;
            from_rfc3339(text(&lease, "/spec/renewTime")).filter(|renewed| *renewed > since)
        });
    }
}

/// The restarted agent found its own leases and went on: it did not have to wait for them to expire, and took them from
/// nobody.
fn leases_came_back_at_once(world: &World) {
    for name in ["gardenlet-leader-election", "gardener-resource-manager"] {
        let lease = world.seed.get(LEASES, "leases", "garden", name).unwrap();
        assert_eq!(lease["spec"]["leaseTransitions"], 0, "{lease}");
    }
}

/// Every object of a cluster without what differs in each run. Sorted; two objects that differ in a random name only are
/// two lines.
fn left_in(cluster: &TestCluster) -> Vec<(String, Value)> {
    let uuid = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
    let rules: Vec<(Regex, &str)> = [
        (uuid, "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (r"seed-csr-[A-Za-z0-9_-]{43}", "seed-csr-<hash>"),
        (r"echo-[a-z0-9]{5}(-[0-9a-f]{8})?\b", "echo-<random>"),
        (r"[0-9a-f]{64}", "<id>"),
        (r"127\.0\.0\.1:\d+", "<address>"),
    ]
    .into_iter()
    .map(|(rule, word)| (Regex::new(rule).unwrap(), word))
    .collect();
    let clean =
        |text: &str| rules.iter().fold(text.to_owned(), |t, (r, w)| r.replace_all(&t, *w).into_owned());
    let state = cluster.store().read();
    let mut all: Vec<(String, Value)> = state
        .objects
        .iter()
        .map(|(id, object)| {
            let mut object = Value::clone(object);
            let metadata = object["metadata"].as_object_mut().unwrap();
            for field in ["resourceVersion", "managedFields"] {
                metadata.remove(field);
            }
            // Keys and certificates are new in each run, and Secrets of charts hold the random name.
            for part in ["/data", "/spec/request", "/status/certificate", "/spec/conversion"] {
                if let Some(data) = object.pointer_mut(part) {
                    *data = hidden(data);
                }
            }
            // Several write into this list.
            if let Some(Value::Array(conditions)) = object.pointer_mut("/status/conditions") {
                conditions.sort_by_key(|c| text(c, "/type").to_owned());
            }
            let cleaned = clean(&object.to_string());
            let key = format!("{} {}/{} {}/{}", cluster.name, id.group, id.plural, id.namespace, id.name);
            (clean(&key), serde_json::from_str(&cleaned).unwrap())
        })
        .collect();
    drop(state);
    all.sort_by(|a, b| (&a.0, a.1.to_string()).cmp(&(&b.0, b.1.to_string())));
    all
}

fn hidden(data: &Value) -> Value {
    match data {
        Value::Object(fields) => {
            fields.keys().map(|key| (key.clone(), json!("<new>"))).collect::<serde_json::Map<_, _>>().into()
        }
        _ => json!("<new>"),
    }
}

/// What is different, in a few lines.
fn differences(one: &[(String, Value)], two: &[(String, Value)]) -> Vec<String> {
    let count = |all: &[(String, Value)]| {
        let mut counts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (key, object) in all {
            counts.entry(key.clone()).or_default().push(object.clone());
        }
        counts
    };
    let (one, two) = (count(one), count(two));
    let mut out = Vec::new();
    for key in one.keys().chain(two.keys()) {
        let (a, b) = (one.get(key), two.get(key));
        if a == b {
            continue;
        }
        let number = |objects: Option<&Vec<Value>>| objects.map_or(0, Vec::len);
        if number(a) != number(b) {
            out.push(format!("{key}: {} undisturbed, {} after the accident", number(a), number(b)));
            continue;
        }
        for (a, b) in a.into_iter().flatten().zip(b.into_iter().flatten()) {
            first_difference(key, a, b, &mut out);
        }
    }
    out.sort();
    out.dedup();
    out
}

fn first_difference(path: &str, one: &Value, two: &Value, out: &mut Vec<String>) {
    match (one, two) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()) {
                let missing = Value::Null;
                let (a, b) = (a.get(key).unwrap_or(&missing), b.get(key).unwrap_or(&missing));
                first_difference(&format!("{path}.{key}"), a, b, out);
            }
        }
        _ if one != two => out.push(format!("{path}: {one} undisturbed, {two} after the accident")),
        _ => {}
    }
}

/// The accidents to try; a number chooses the sample, and the output names it.
fn accidents(writes: usize) -> (Vec<(usize, Accident)>, String) {
    #[allow(clippy::disallowed_methods)] // test options come from the environment
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    if let Some(point) = variable("GARDENLET_TESTS_CRASH_AT").and_then(|text| text.parse().ok()) {
        return (vec![(point, Accident::Crash), (point, Accident::LostAnswer)], "one point".to_owned());
    }
    let crashes = (0..writes).map(|at| (at, Accident::Crash));
    let lost = (0..writes).map(|at| (at, Accident::LostAnswer));
    if variable("GARDENLET_TESTS_LONG").is_some() {
        return (crashes.chain(lost).collect(), format!("{writes} crashes and {writes} lost answers"));
    }
    let sample = SAMPLE.min(writes);
    let offset = usize::from(random::bytes::<1>()[0]);
    let sampled = (0..sample).map(|n| ((n * writes / sample + offset) % writes, Accident::LostAnswer));
    let which = format!("{writes} crashes, {sample} of {writes} lost answers (offset {offset})");
    (crashes.chain(sampled).collect(), which)
}

/// What an accident changed, if it did.
fn judge(accident: (usize, Accident), undisturbed: &Outcome, outcome: &Outcome) -> Option<String> {
    // How often conditions are written on the way depends on the time that passes: a run may be shorter.
    if !outcome.happened && accident.0 < outcome.writes.len() {
        return Some(format!("{accident:?} was left out"));
    }
    let found = differences(&undisturbed.objects, &outcome.objects);
    let line = outcome.writes.get(accident.0).cloned().unwrap_or_default();
    (!found.is_empty()).then(|| format!("{accident:?}, {line}:\n  {}", found.join("\n  ")))
}

#[test]
fn an_accident_after_any_write_changes_nothing() {
    let undisturbed = run(None);
    let (accidents, which) = accidents(undisturbed.writes.len());
    let (next, happened) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let problems = Mutex::new(Vec::<String>::new());
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(accident) = accidents.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let found = match catch_unwind(AssertUnwindSafe(|| run(Some(*accident)))) {
                        Ok(outcome) => {
                            happened.fetch_add(usize::from(outcome.happened), Ordering::SeqCst);
                            judge(*accident, &undisturbed, &outcome)
                        }
                        Err(_) => Some(format!("{accident:?}: the story did not end, see above")),
                    };
                    problems.lock().unwrap().extend(found);
                }
            });
        }
    });
    let (happened, problems) = (happened.into_inner(), problems.into_inner().unwrap());
    // Past the test harness, which shows only what fails.
    let _ = writeln!(std::io::stderr(), "{which}: {happened} happened, {} made a difference", problems.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(happened >= 60 || accidents.len() < 60, "only {happened} of {} happened", accidents.len());
}
