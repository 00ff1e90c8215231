//! A site without its garden, for weeks: the seed is maintained, nothing grows, and the return of the garden causes no
//! burst of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use gardenlet::base::sorted::SortedMap;
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::world::{Agent, MANAGED_RESOURCES, Options, World, condition, renewed};
use support::http::faults::Action;
use support::http::record::Recorded;
use support::options::measured;

const DAY: Duration = Duration::from_secs(86_400);
/// The number of log lines in a day without a garden.
const LINES_PER_DAY_MAX: f64 = 30.0;
/// The maximum number of lines about the same attempt of the same work: it begins anew after a success.
const ATTEMPT_LINES_MAX: usize = 4;
/// The maximum number of requests to the garden in the first minute of its return: thirty are heartbeats.
const REQUESTS_MAX: usize = 90;

/// A configuration whose leases are longer than the jumps of the clock.
fn config(world: &World) -> Value {
    let mut config = world.config();
    config["leaderElection"] =
        json!({"leaderElect": true, "leaseDuration": "60h", "renewDeadline": "50h", "retryPeriod": "2s"});
    config
}

/// Lets time pass in jumps; the agent and its applier renew their leases of the seed after each. The applier does so
/// with its token.
pub fn pass(world: &World, total: Duration, jump: Duration) {
    let until = world.clock.mono() + total;
    while world.clock.mono() < until {
        world.time.advance(jump);
        let now = world.clock.now().minus(jump);
        for lease in ["gardenlet-leader-election", "gardener-resource-manager"] {
            world.seed.wait_for(&format!("the next renewal of Lease {lease}"), |seed| {
                renewed(seed, lease).filter(|renewed| *renewed > now)
            });
        }
    }
}

/// The value of a field in a log line.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split_once(&format!(" {name}="))?.1.split(' ').next()
}

/// Of the attempts at the same work, fewer and fewer are logged; everything else about the garden is logged once. How many
/// attempts there are in a day depends on the machine. On a busy one, a token of the seed may end before its renewal.
fn is_told_rarely(world: &World, lines: &[String]) {
    let mut attempts = BTreeMap::<_, usize>::new();
    let mut others = BTreeMap::<_, usize>::new();
    for line in lines {
        if let Some(attempt) = field(line, "attempt") {
            let number: u32 = attempt.parse().unwrap();
            assert!(number.is_power_of_two() || number.is_multiple_of(256), "{line}");
            *attempts.entry((field(line, "controller"), field(line, "key"), number)).or_default() += 1;
        } else if line.contains(&World::address(&world.garden)) {
            *others.entry(line.split_once(' ').unwrap().1).or_default() += 1;
        }
    }
    assert!(!attempts.is_empty(), "{lines:#?}");
    assert!(attempts.values().all(|count| *count <= ATTEMPT_LINES_MAX), "{attempts:#?}");
    assert!(others.values().all(|count| *count == 1), "{others:#?}");
    measured("log lines in a day without a garden", lines.len() as f64, LINES_PER_DAY_MAX).unwrap();
}

/// A deleted object is created again, within a day.
fn heals(world: &World, installation: &str) {
    let namespace = format!("extension-{installation}");
    world.seed.delete("", "configmaps", &namespace, "echo");
    for _ in 0..6 {
        pass(world, Duration::from_secs(1_200), Duration::from_secs(1_200));
    }
    world.seed.wait_for("the ConfigMap again", |seed| seed.get("", "configmaps", &namespace, "echo"));
    world.seed.wait_for("a healthy ManagedResource", |seed| {
        let managed = seed.get(MANAGED_RESOURCES, "managedresources", "garden", installation)?;
        let good = |kind: &str| condition(&managed, kind).is_some_and(|c| c.0 == "True");
        (good("ResourcesApplied") && good("ResourcesHealthy")).then_some(())
    });
}

/// The threads of the agent make progress once they have noticed the jump of the clock.
fn lives(agent: &Agent) {
    agent.lives();
    crate::world::wait_for("/readyz", || (agent.get(2728, "/readyz").0 == 200).then_some(()));
}

/// The garden comes back: the agent renews the Lease, then does the rest, without a burst of requests.
fn comes_back(world: &World, agent: &Agent) {
    let place = world.garden.server().shared.record.count();
    let back = world.clock.now();
    world.garden.server().up().unwrap();
    world.garden.wait_for("a renewal", |_| world.beat().filter(|beat| *beat > back));
    let took = world.beat().unwrap().since(back);
    world.measured("until a heartbeat after the garden is back", took, Duration::from_secs(20));
    let minute = || world.clock.now().since(back) > Duration::from_secs(60);
    crate::world::wait_for("a minute to pass", || minute().then_some(()));
    let mut asked = world.garden.server().shared.record.since(place);
    asked.retain(|r| r.user_agent.starts_with("gardenlet/") && r.at.since(back) <= Duration::from_secs(60));
    let lines: Vec<String> = asked.iter().map(|r| format!("{:?} {}", r.at.since(back), r.line())).collect();
    // The heartbeat does not notice the return of the garden by itself. Until its next turn no other part writes, and
    // missed work is done later.
    let renewal = asked.iter().position(|r| r.path.contains("/gardener-system-seed-lease/leases")).unwrap();
    let is_early = |r: &Recorded| r.is_write() || ["list", "watch"].contains(&r.info.verb.as_str());
    assert!(!asked[..renewal].iter().any(is_early), "{lines:#?}");
    assert!(lines.len() <= REQUESTS_MAX, "{} requests: {lines:#?}", lines.len());
    world.wait_for_condition("GardenletReady", "True");
    // The watches continue, too.
    let values = json!({"helm": {"values": {"greeting": "back"}}});
    world.garden.merge("core.gardener.cloud", "controllerdeployments", ("", "echo"), &values);
    let name = installed(world, "echo");
    world.seed.wait_for("the new value", |seed| {
        let map = seed.get("", "configmaps", &format!("extension-{name}"), "echo")?;
        (map["data"]["greeting"] == "back").then_some(())
    });
    assert!(agent.is_alive());
    agent.stop();
}

#[test]
fn three_weeks_without_a_garden() {
    let world = World::start(&Options::calm("lonely"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent_with(&config(&world));
    world.wait_until_ready();
    let name = installed(&world, "echo");
    world.garden.server().down();
    world.wait_for_log(&["WARN", "Cannot renew the seed's lease", "seed=lonely"]);
    pass(&world, DAY / 8, Duration::from_secs(600));
    // A day in steps that are shorter than any interval, so that all repeated log lines show.
    // The applier's token is renewed twenty minutes before it ends: four steps, so that a busy machine is in time, too.
    let place = world.log().len();
    pass(&world, DAY, Duration::from_secs(300));
    is_told_rarely(&world, &world.own_log(place));
    for _ in 0..3 {
        heals(&world, &name);
        pass(&world, DAY * 7, Duration::from_secs(12 * 3_600));
    }
    lives(&agent);
    assert_eq!(agent.get(2728, "/healthz").0, 500);
    let metrics = agent.get(2729, "/metrics").1;
    let deepest = metrics
        .lines()
        .filter(|line| line.starts_with("workqueue_depth"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .fold(0.0, f64::max);
    assert!(deepest <= 10.0, "{metrics}");
    comes_back(&world, &agent);
}

/// The same with restarts in between; the garden is away when the agent starts.
fn restarts(world: &World, config: &Value, variables: SortedMap<String, String>) {
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = Agent::new(world, "host-1", config, variables);
    agent.launch();
    world.wait_until_ready();
    let name = installed(world, "echo");
    world.garden.server().down();
    for week in 0..3 {
        if week == 1 {
            agent.stop();
            agent.launch();
        } else {
            agent.crash_and_restart();
        }
        pass(world, DAY * 7, Duration::from_secs(12 * 3_600));
        heals(world, &name);
        lives(&agent);
    }
    comes_back(world, &agent);
}

#[test]
fn restarts_without_a_garden_and_with_a_state_directory() {
    let world = World::start(&Options::calm("rebooted"));
    restarts(&world, &config(&world), world.pod());
}

#[test]
fn restarts_without_a_garden_and_without_a_state_directory() {
    let world = World::start(&Options::calm("amnesia"));
    let mut config = config(&world);
    config["edge"]["stateDir"] = Value::Null;
    let mut variables = world.pod();
    variables.insert("POD_UID".to_owned(), "7d9f6c1e-0001-4000-8000-000000000001".to_owned());
    restarts(&world, &config, variables);
}

/// A certificate that expires while no server can sign another one is reported as a problem, once.
#[test]
fn a_certificate_that_expires_without_a_garden() {
    let world = World::start(&Options::calm("expiring"));
    let mut config = config(&world);
    config["gardenClientConnection"]["kubeconfigValidity"] = json!({"validity": "240h"});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let expiry = world.certificate().unwrap().not_after;
    world.garden.server().down();
    world.wait_for_log(&["WARN", "Cannot renew the seed's lease", "seed=expiring"]);
    let place = world.log().len();
    pass(&world, DAY * 21, Duration::from_secs(12 * 3_600));
    assert!(world.clock.now() > expiry);
    agent.wait_for_problem("garden certificate", &[&World::address(&world.garden)]);
    let mut told = world.own_log(place);
    told.retain(|line| line.contains("garden certificate"));
    assert!((1..=5).contains(&told.len()), "{told:#?}");
    lives(&agent);
    agent.stop();
}

/// The machine is suspended between the applier's renewal of its lease and the next wait for a token.
#[test]
fn a_suspended_machine_in_the_middle_of_an_operation() {
    let world = World::start(&Options::calm("dozing"));
    let agent = world.agent_with(&config(&world));
    world.wait_until_ready();
    agent.wait_until_the_seed_side_runs();
    let order = world.seed.faults().on("POST", "/serviceaccounts/gardener-resource-manager/token").times(1);
    let order = order.then(Action::Delay(Duration::from_secs(6 * 3_600)));
    world.time.advance(Duration::from_secs(3_600));
    world.seed.wait_for("a request for a token", |_| (order.hits() == 1).then_some(()));
    world.time.advance(Duration::from_secs(12 * 3_600));
    lives(&agent);
    agent.stop();
}
