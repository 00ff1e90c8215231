//! A machine whose clock is wrong, or jumps.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Mono, TimeSource, Timestamp};
use serde_json::Value;

use crate::world::{Agent, BUILT, LEASES, Options, World};
use support::encoding::from_rfc3339;
use support::json::text;

const HOUR: i64 = 3_600;

/// A machine with its own clock, some seconds different from the world's.
#[derive(Debug)]
struct Machine {
    world: Clock,
    off_s: AtomicI64,
}

impl Machine {
    fn new(world: &World, off_s: i64) -> Arc<Self> {
        Arc::new(Self { world: world.clock.clone(), off_s: AtomicI64::new(off_s) })
    }

    fn set(&self, off_s: i64) {
        self.off_s.store(off_s, Ordering::SeqCst);
    }
}

impl TimeSource for Machine {
    fn now(&self) -> Timestamp {
        self.world.now().offset(self.off_s.load(Ordering::SeqCst) * 1_000_000_000)
    }

    fn mono(&self) -> Mono {
        self.world.mono()
    }

    fn real(&self, d: Duration) -> Duration {
        self.world.real(d)
    }
}

fn agent(world: &World, machine: &Arc<Machine>) -> Agent {
    let agent = Agent::new(world, "host-1", &world.config(), world.pod());
    agent.with_clock(Clock::new(Arc::<Machine>::clone(machine)))
}

/// The part of the Seed's condition that follows the usual message.
fn remark(world: &World) -> Option<String> {
    let (status, _, message) = world.seed_condition("GardenletReady")?;
    let rest = message.strip_prefix("Gardenlet is posting ready status.")?;
    (status == "True").then(|| rest.trim().to_owned())
}

fn wait_for_remark(world: &World, expected: &str) {
    world.garden.wait_for(expected, |_| remark(world).filter(|remark| remark == expected));
}

/// A heartbeat from now on, stamped with the garden's time.
fn beats(world: &World) {
    let begun = world.clock.now();
    let beat = world.garden.wait_for("a beat", |_| world.beat().filter(|beat| *beat > begun));
    assert!(beat < world.clock.now().plus(Duration::from_secs(2)), "{beat:?}");
}

#[test]
fn a_machine_that_boots_in_1970() {
    let world = World::start(&Options::calm("battery"));
    let machine = Machine::new(&world, 60 - world.clock.now().unix());
    let agent = agent(&world, &machine);
    // The garden is away, so there is no source of time.
    let away = world.garden.faults().on("", "/").then(support::http::faults::Action::Drop);
    agent.launch();
    agent.wait_for_problem("clock", &["the clock is before 2025-10-09", "shows 1970-01-01", "set it"]);
    world.wait_for_log(&["WARN", "clock is wrong", "1970-01-01"]);
    agent.wait_until_the_seed_side_runs();
    away.cancel();
    world.wait_until_ready();
    agent.wait_for_problem("clock", &["days behind the garden's"]);
    beats(&world);
    wait_for_remark(&world, "The clock of its machine is 20458 days behind the garden's.");
    let skew = agent.metrics.lock().unwrap().value("gardenlet_clock_skew_seconds", &[]).unwrap();
    assert!((-1_767_600_000.0..=-1_767_500_000.0).contains(&skew), "{skew}");
    // An administrator sets the clock: no restart is needed.
    machine.set(0);
    agent.wait_until_no_problem("clock");
    wait_for_remark(&world, "");
    beats(&world);
    assert!(agent.is_alive());
    agent.stop();
}

/// The agent stores only times that the garden has confirmed.
#[test]
fn a_floor_outlives_the_machine() {
    let world = World::start(&Options::calm("floor"));
    let machine = Machine::new(&world, 0);
    let agent = agent(&world, &machine);
    agent.launch();
    world.wait_until_ready();
    // Wrong by years, but not confirmed by the garden.
    machine.set(30 * 365 * 24 * HOUR);
    agent.wait_for_problem("clock", &["ahead of the garden's"]);
    beats(&world);
    // The certificate has not expired, and the garden has just answered.
    crate::world::wait_for("a page with nothing but the clock", || {
        let page: Value = serde_json::from_str(&agent.get(2728, "/statusz?format=json").1).unwrap();
        let problems = page["problems"].as_array()?;
        (problems.len() == 1 && problems[0]["part"] == "clock").then_some(())
    });
    agent.crash();
    machine.set(60 - world.clock.now().unix());
    let away = world.garden.faults().on("", "/").then(support::http::faults::Action::Drop);
    agent.launch();
    // Neither the build time of the program nor a time in thirty years.
    assert!(BUILT < world.clock.now());
    agent.wait_for_problem("clock", &["the clock is before 2026-01-05", "shows 1970-01-01"]);
    away.cancel();
    machine.set(0);
    agent.wait_until_no_problem("clock");
    beats(&world);
    agent.stop();
}

/// The garden accepts no lease from the future: also the first one has the garden's time.
#[test]
fn the_first_beat_after_a_start_waits_for_the_gardens_time() {
    let world = World::start(&Options::calm("tomorrow"));
    let machine = Machine::new(&world, 0);
    let agent = agent(&world, &machine);
    agent.launch();
    world.wait_until_ready();
    agent.stop();
    machine.set(10 * HOUR);
    let (begun, place) = (world.clock.now(), world.garden.server().shared.record.count());
    agent.launch();
    let stamps = world.garden.wait_for("some beats", |garden| {
        let mut all = garden.server().shared.record.since(place);
        all.retain(|r| r.is_write() && r.path.contains("/gardener-system-seed-lease/leases"));
        (all.len() >= 3).then(|| all.into_iter().filter_map(|r| Some((r.at, r.body?))).collect::<Vec<_>>())
    });
    for (at, body) in stamps {
        let stamp = from_rfc3339(text(&body, "/spec/renewTime")).unwrap();
        assert!(stamp > begun && stamp < at.plus(Duration::from_secs(2)), "{body} at {at:?}");
    }
    agent.stop();
}

#[test]
fn a_clock_that_jumps_loses_no_beat_and_renews_nothing() {
    let world = World::start(&Options::calm("jumping"));
    let machine = Machine::new(&world, 0);
    let agent = agent(&world, &machine);
    agent.launch();
    world.wait_until_ready();
    beats(&world);
    let mark = world.garden.request_count();
    // A certificate is valid for a year: a longer jump would renew it.
    let jumps =
        [(10 * HOUR, "10 h ahead of"), (-20 * HOUR, "20 h behind"), (10_000 * HOUR, "417 days ahead of")];
    for (off_s, words) in jumps {
        machine.set(off_s);
        beats(&world);
        world.garden.server().cut();
        beats(&world);
        agent.wait_for_problem("clock", &[words]);
        world.garden.wait_for("the remark", |_| remark(&world).filter(|remark| remark.contains(words)));
    }
    machine.set(0);
    agent.wait_until_no_problem("clock");
    beats(&world);
    assert_eq!(world.requests().len(), 1, "the rotation kept its schedule");
    let stamps = world.garden.requests_since(mark);
    assert!(stamps.iter().any(|r| r.is_write() && r.path.contains("/gardener-system-seed-lease/leases")));
    let lease = world.garden.get(LEASES, "leases", "gardener-system-seed-lease", "jumping").unwrap();
    let renewed = from_rfc3339(text(&lease, "/spec/renewTime")).unwrap();
    assert!(renewed < world.clock.now().plus(Duration::from_secs(2)));
    agent.stop();
}
