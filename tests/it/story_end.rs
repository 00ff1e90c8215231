//! When the agent ends, at any point, none of its threads holds the state directory any longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gardenlet::base::clock::Clock;
use serde_json::json;

use crate::charts;
use crate::story_extension::installed;
use crate::world::{Agent, CORE, Options, World, wait_for};
use support::garden::prepare;
use support::http::faults::{Action, Seen};
use support::options::measured;

/// The number of requests after which a life ends: during the bootstrap, the first installation, or a later change.
const REQUESTS: [usize; 12] = [2, 5, 9, 14, 20, 27, 35, 45, 60, 80, 105, 140];

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Crash,
    Signal,
}

/// Whether no file of this process is the lock. It checks only once: the agent itself waits for the lock, and would
/// hide what still holds it. Trying the lock proves nothing: a process that another story starts holds it, too, until
/// its program runs.
fn is_free(world: &World) -> bool {
    let lock = std::fs::canonicalize(world.path("state-host-1").join("lock")).unwrap();
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    // A file may be closed between the listing and this read.
    !files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok()).any(|file| file == lock)
}

/// Threads of this process by name, including those of other stories.
fn threads() -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/task").unwrap() {
        let comm = entry.unwrap().path().join("comm");
        *all.entry(std::fs::read_to_string(comm).unwrap_or_default()).or_default() += 1;
    }
    all
}

/// One story of many lives. Each has work to do, and ends during it.
fn ends(seed: &'static str, end: End, more: usize) {
    let world = World::start(&Options { factor: 20, ..Options::new(seed) });
    let mut config = world.config();
    // Time passes while threads end, and no agent should lose a lease for that reason.
    config["leaderElection"] = json!({"leaseDuration": "300s", "renewDeadline": "200s", "retryPeriod": "2s"});
    let agent = Agent::new(&world, "host-1", &config, world.pod());
    world.garden.apply(&prepare::extension("echo", &charts::extension(), &json!({"greeting": "hello"})));
    let asked = Arc::new(AtomicUsize::new(0));
    for cluster in [&*world.garden, &world.seed] {
        let asked = asked.clone();
        let tell = Action::TellAfter(Arc::new(move |_: &Seen| {
            asked.fetch_add(1, Ordering::SeqCst);
        }));
        cluster.faults().when(|seen| seen.user_agent.starts_with("gardenlet/")).then(tell);
    }
    let (real, mut longest) = (Clock::system(), 0.0_f64);
    for requests in REQUESTS.map(|requests| requests + more) {
        asked.store(0, Ordering::SeqCst);
        let values = json!({"helm": {"values": {"greeting": format!("for {requests} requests")}}});
        world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
        agent.launch();
        wait_for("requests of the agent", || (asked.load(Ordering::SeqCst) >= requests).then_some(()));
        assert!(!is_free(&world), "the check can fail");
        let begun = real.mono();
        match end {
            End::Crash => agent.crash(),
            End::Signal => agent.stop(),
        }
        let took = real.mono() - begun;
        assert!(is_free(&world), "{end:?} after {requests} requests and {took:?}: {:?}", threads());
        longest = longest.max(took.as_secs_f64());
    }
    // A stop may wait for a step that cannot be interrupted, but not for a deadline of seconds.
    measured(&format!("{seed}: the longest {end:?}, in real seconds"), longest, 5.0).unwrap();
    agent.launch();
    world.wait_until_ready();
    installed(&world, "echo");
    agent.stop();
    assert!(is_free(&world));
}

#[test]
fn a_crash_leaves_nothing_behind() {
    ends("ending", End::Crash, 0);
}

#[test]
fn a_signal_leaves_nothing_behind() {
    ends("signalled", End::Signal, 1);
}
