//! The whole story, once for each fault at each point. The agent is killed right after a write took effect and restarts.
//! Or the answer to a write is lost, or it says that the write may have taken effect. Or a list shows an old state. Or
//! events come late, or they are lost and the watch forgets its version. In all cases the world ends up as if nothing
//! had happened. Reads of single objects are never stale, because API servers guarantee that.

use std::sync::{Arc, OnceLock, PoisonError};

use serde_json::{Value, json};

use crate::charts;
use crate::faultpoints::{Fault, FaultPoints, Outcome, Point, Share, change_nothing};
use crate::left::Words;
use crate::story_extension::{installed, nothing_is_left};
use crate::world::{Agent, CORE, LEASES, Options, World};
use support::TestCluster;
use support::encoding::from_rfc3339;
use support::garden::prepare;
use support::http::faults::Seen;
use support::json::text;

/// Every run has at least this many writes, lists and events.
const WRITES: usize = 176;
const LISTS: usize = 68;
const EVENTS: usize = 126;

/// If the story does not end, prints what was hit and the last state.
struct TellIfPanicking<'a>(Arc<FaultPoints>, &'a World, Arc<Agent>);

impl Drop for TellIfPanicking<'_> {
    fn drop(&mut self) {
        let Self(points, world, agent) = self;
        if std::thread::panicking() {
            eprintln!("---- the fault hit {:?}", points.hit());
            for installation in world.garden.installations("echo") {
                eprintln!("---- {} {}", installation["metadata"], installation["status"]);
            }
            let parts = agent.status.lock().unwrap_or_else(PoisonError::into_inner).parts();
            eprintln!("---- {parts:?}");
        }
    }
}

/// Renewals of leases are not counted: their number is arbitrary.
fn is_counted(seen: &Seen) -> bool {
    !(seen.info.resource == "leases" && seen.method != "POST")
}

/// One run of the story.
fn run(at: Option<&Point>) -> Outcome {
    let world = World::start(&Options { factor: 20, ..Options::new("crashing") });
    let mut config = world.config();
    // Long enough that a busy machine does not lose the Lease, and that the test notices an agent which waited for its
    // expiry.
    config["leaderElection"] = json!({"leaseDuration": "300s", "renewDeadline": "200s", "retryPeriod": "2s"});
    let agent = Arc::new(Agent::new(&world, "host-1", &config, world.pod()));
    let points = FaultPoints::of(&world, &agent, at, is_counted);
    let _told = TellIfPanicking(points.clone(), &world, agent.clone());
    let mut extension = prepare::extension("echo", &charts::extension(), &json!({"greeting": "hello"}));
    extension[0]["injectGardenKubeconfig"] = json!(true);
    world.garden.apply(&extension);
    agent.launch();
    points.restarting(|_| {}, || live(&world));
    leases_came_back_at_once(&world);
    let objects = [&*world.garden, &world.seed].into_iter().flat_map(left_in).collect();
    Outcome { objects, points, problems: Vec::new() }
}

/// An extension is installed, changed and removed.
fn live(world: &World) {
    world.wait_until_ready();
    let name = installed(world, "echo");
    let values = json!({"helm": {"values": {"greeting": "good morning"}}});
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
    world.seed.wait_for("the new value", |seed| {
        let echo = seed.get("example.org", "echoes", &format!("extension-{name}"), "first")?;
        (echo["spec"]["text"] == "good morning").then_some(())
    });
    assert_eq!(installed(world, "echo"), name);
    world.seed.wait_for("the token", |seed| {
        let secret = seed.get("", "secrets", &format!("extension-{name}"), "garden-access-extension")?;
        secret["data"].get("token").map(drop)
    });
    world.garden.delete(CORE, "controllerregistrations", "", "echo");
    world.garden.delete(CORE, "controllerdeployments", "", "echo");
    world.garden.wait_for("the end of the installation", |_| {
        world.garden.installations("echo").is_empty().then_some(())
    });
    nothing_is_left(world, &name);
    settled(world);
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

/// Three tests compare with the same run.
fn undisturbed() -> &'static Outcome {
    static UNDISTURBED: OnceLock<Outcome> = OnceLock::new();
    UNDISTURBED.get_or_init(|| run(None))
}

#[test]
fn a_kill_after_any_write_changes_nothing() {
    let shares: &[Share] = &[(Fault::KillAfter, 31, WRITES)];
    change_nothing("kills during an installation", shares, undisturbed(), &run);
}

#[test]
fn a_bad_answer_to_any_write_changes_nothing() {
    let shares: &[Share] = &[(Fault::LostAnswer, 1, WRITES), (Fault::TimedOut, 1, WRITES)];
    change_nothing("bad answers during an installation", shares, undisturbed(), &run);
}

#[test]
fn an_old_view_at_any_read_changes_nothing() {
    let shares: &[Share] =
        &[(Fault::StaleList, 1, LISTS), (Fault::LateEvents, 1, EVENTS), (Fault::LostEvents, 1, EVENTS)];
    change_nothing("old views during an installation", shares, undisturbed(), &run);
}
