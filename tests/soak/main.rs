//! An agent with one fault after the other, which must not grow: open files, threads and memory stay at their values
//! after each fault has happened once.
//!
//! `cargo test --test soak [-- --seed=N --seconds=N]`. The real program (`GARDENLET_BINARY` names another one) runs as
//! a separate process against simulated servers in this one. Faults that are rare in practice happen here many times a
//! minute; with `tests/run --long` it takes half an hour.

// A test program that prints to standard output and ends at the first error.
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]
#![allow(dead_code, unreachable_pub)]

#[path = "../bench/agent.rs"]
mod agent;
#[path = "../bench/scene.rs"]
mod scene;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use serde_json::json;

use agent::{Agent, wait_for};
use scene::Scene;
use support::TestCluster;
use support::http::faults::{Action, Seen, failure};
use support::options;
use support::random::Random;

const SECONDS: u64 = 30;
const SECONDS_LONG: u64 = 1_800;
const EXTENSIONS: usize = 3;
/// Rounds that do not count: memory and connections that are used for the first time.
const WARM_UP: usize = 6;
/// The minimum number of rounds for a result.
const ROUNDS_MIN: usize = 6;
/// The allowed growth until the end: connections come and go, and the kernel counts memory in pages.
const FILES_MORE_MAX: u64 = 6;
const THREADS_MORE_MAX: u64 = 1;
const PSS_PERCENT_MAX: u64 = 106;

/// The state after one round.
#[derive(Clone, Copy, Debug)]
struct Sample {
    files: u64,
    threads: u64,
    pss: u64,
}

fn main() -> ExitCode {
    let seed = option("--seed=").unwrap_or_else(options::seed);
    let seconds = option("--seconds=").unwrap_or(if options::is_long() { SECONDS_LONG } else { SECONDS });
    println!("seed {seed}; repeat with: cargo test --test soak -- --seed={seed}");
    let folder = std::env::temp_dir().join(format!("gardenlet-soak-{}", std::process::id()));
    let run = || soak(&folder, &mut Random::new(seed), Duration::from_secs(seconds));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    let _ = std::fs::remove_dir_all(&folder);
    let problems = result.map(|samples| judge(&samples)).unwrap_or_else(|_| vec!["see above".to_owned()]);
    problems.iter().for_each(|problem| println!("{problem}"));
    println!(
        "{} passed, {} failed, 0 skipped",
        u8::from(problems.is_empty()),
        u8::from(!problems.is_empty())
    );
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn option(name: &str) -> Option<u64> {
    std::env::args().find_map(|argument| argument.strip_prefix(name).and_then(|text| text.parse().ok()))
}

/// Round after round until the time is over, and at least the needed number.
fn soak(folder: &Path, random: &mut Random, time: Duration) -> Vec<Sample> {
    let clock = Clock::system();
    let scene = Scene::crowded(folder, EXTENSIONS);
    let program =
        std::env::var("GARDENLET_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_gardenlet").to_owned());
    let mut agent = Agent::start(Path::new(&program), &scene.config(), &scene.log(), &clock);
    wait_for(&mut agent, "the Seed to be ready", || scene.is_ready().then_some(()));
    scene.extend();
    wait_for(&mut agent, "the extensions", || scene.is_settled().then_some(()));
    let begun = clock.mono();
    let mut samples = Vec::new();
    while clock.mono() - begun < time || samples.len() < WARM_UP + ROUNDS_MIN {
        // Every fault once, then at random.
        let number = if samples.len() < FAULTS.len() { samples.len() } else { random.below(FAULTS.len()) };
        let (name, fault) = FAULTS[number];
        for (_, cluster) in scene.clusters() {
            fault(cluster);
        }
        pause(Duration::from_millis(100 + random.below(300) as u64));
        for (_, cluster) in scene.clusters() {
            cluster.faults().clear();
        }
        change(&scene, &mut agent, name, 1 + samples.len() % 3);
        samples.push(sample(&agent));
    }
    println!(
        "{} rounds of {} faults; the first and the last: {:?}, {:?}",
        samples.len(),
        FAULTS.len(),
        samples[WARM_UP],
        samples[samples.len() - 1]
    );
    samples
}

type Fault = (&'static str, fn(&TestCluster));

const FAULTS: &[Fault] = &[
    ("cut connections", |cluster| cluster.server().cut()),
    ("a server that goes down", |cluster| {
        cluster.server().down();
        pause(Duration::from_millis(50));
        cluster.server().up().unwrap();
    }),
    ("forgotten versions", |cluster| {
        cluster.compact();
        cluster.server().cut();
    }),
    ("watches that end at once", |cluster| {
        order(cluster, Seen::is_watch, Action::EndAfterEvents(0));
        cluster.server().cut();
    }),
    ("half an answer", |cluster| order(cluster, |_| true, Action::Half)),
    ("an answer that never comes", |cluster| order(cluster, |_| true, Action::DropAfter)),
    ("a proxy's page", |cluster| order(cluster, |_| true, Action::Html(502))),
    ("503", |cluster| order(cluster, |_| true, Action::Refuse(failure(503, None)))),
    ("401", |cluster| {
        order(cluster, |seen| !seen.info.resource.is_empty(), Action::Refuse(failure(401, None)));
    }),
    ("gone", |cluster| {
        order(cluster, Seen::is_watch, Action::WatchError(failure(410, None)));
        cluster.server().cut();
    }),
];

fn order(cluster: &TestCluster, when: fn(&Seen) -> bool, action: Action) {
    cluster.faults().when(move |seen| seen.user_agent.starts_with("gardenlet/") && when(seen)).then(action);
}

/// Sets another value of an extension and waits for it in the seed: the fault is over.
fn change(scene: &Scene, agent: &mut Agent, after: &str, replicas: usize) {
    let name = "extension-0";
    let values = json!({"helm": {"values": {"replicas": replicas, "name": name}}});
    scene.garden.merge("core.gardener.cloud", "controllerdeployments", ("", name), &values);
    wait_for(agent, &format!("a change after {after}"), || {
        let installation = scene.garden.installations(name).pop()?;
        let namespace = format!("extension-{}", installation["metadata"]["name"].as_str()?);
        let deployment = scene.seed.get("apps", "deployments", &namespace, name)?;
        (deployment["spec"]["replicas"] == replicas && scene.is_settled()).then_some(())
    });
}

fn sample(agent: &Agent) -> Sample {
    let threads: usize = agent.threads().values().sum();
    Sample { files: agent.files() as u64, threads: threads as u64, pss: agent.memory().pss }
}

/// The values that have grown from the first third to the last.
fn judge(samples: &[Sample]) -> Vec<String> {
    let judged = &samples[WARM_UP..];
    let third = (judged.len() / 3).max(1);
    let (first, last) = (&judged[..third], &judged[judged.len() - third..]);
    let middle = |samples: &[Sample], of: fn(&Sample) -> u64| {
        let mut all: Vec<u64> = samples.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let grown = |what: &str, of: fn(&Sample) -> u64, most: fn(u64) -> u64| {
        let (before, after) = (middle(first, of), middle(last, of));
        println!("{what}: {before}, later {after}");
        (after > most(before))
            .then(|| format!("{what} grew from {before} to {after}, at most {}", most(before)))
    };
    let all = [
        grown("open files", |s| s.files, |before| before + FILES_MORE_MAX),
        grown("threads", |s| s.threads, |before| before + THREADS_MORE_MAX),
        grown("bytes of memory (PSS)", |s| s.pss, |before| before * PSS_PERCENT_MAX / 100),
    ];
    all.into_iter().flatten().collect()
}

/// Real time for other processes; nothing depends on its precision.
pub(crate) fn pause(real: Duration) {
    Stop::new().wait(&Clock::system(), real);
}
