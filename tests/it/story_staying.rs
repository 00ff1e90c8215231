//! A long-lived agent: slow links, new configurations, and the end, without losing the seed.

use std::time::Duration;

use gardenlet::limits;
use serde_json::{Value, json};

use crate::world::{LEASES, Options, World, own_address, wait_for};
use support::TestCluster;
use support::encoding::base64;
use support::http::faults::Action;
use support::http::record::Recorded;
use support::proxy::{Mode, Proxy};

const SEED_LEASES: &str = "/gardener-system-seed-lease/leases";

/// The renewals of the seed's Lease since a position in the garden's record.
fn renewals(world: &World, since: usize) -> Vec<Recorded> {
    let mut all = world.garden.server().shared.record.since(since);
    all.retain(|r| r.path.contains(SEED_LEASES) && r.is_write() && r.status < 300);
    all
}

fn lease(world: &World, name: &str) -> Value {
    world.seed.get(LEASES, "leases", "garden", name).unwrap()["spec"].clone()
}

#[test]
fn a_slow_link_gets_fewer_heartbeats_and_a_quick_one_the_usual_number() {
    let world = World::start(&Options::calm("slow-link"));
    let mut config = world.config();
    config["edge"]["heartbeat"] = json!({"intervalMax": "8s", "renewTimeout": "4s"});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let interval = || agent.metrics.lock().unwrap().value("gardenlet_seed_lease_interval_seconds", &[]);
    let slow = world
        .garden
        .faults()
        .on("PATCH", SEED_LEASES)
        .then(Action::DelayAnswer(Duration::from_millis(1_500)));
    wait_for("a longer interval", || interval().filter(|s| *s >= 7.0));
    let (place, begun) = (world.garden.server().shared.record.count(), world.clock.mono());
    wait_for("some renewals", || (renewals(&world, place).len() >= 4).then_some(()));
    let elapsed = world.clock.mono() - begun;
    assert!(elapsed >= Duration::from_secs(15), "{elapsed:?} for four renewals");
    assert_eq!(agent.get(2728, "/healthz").0, 200);
    assert_eq!(agent.get(2729, "/debug/pprof/").0, 404, "only if it is enabled");
    slow.cancel();
    wait_for("the usual interval", || interval().filter(|s| *s <= 4.0));
    let day = |direction| {
        let metrics = agent.metrics.lock().unwrap();
        metrics.value("gardenlet_garden_bytes_per_day", &[("direction", direction)]).unwrap()
    };
    assert!(day("sent") > 1_000.0 && day("received") > 1_000.0);
    agent.stop();
}

#[test]
fn an_offline_garden_fails_healthz_unless_it_is_tolerated() {
    let world = World::start(&Options::calm("tolerant"));
    let mut config = world.config();
    config["edge"]["liveness"] = json!({"tolerateOffline": true});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    world.garden.server().down();
    world.wait_for_log(&["WARN", "Cannot renew the seed's lease", "seed=tolerant"]);
    assert_eq!(agent.get(2728, "/healthz").0, 200);
    // It does not tolerate an unreachable seed.
    world.seed.server().set_healthy(false);
    let bad = || Some(agent.get(2728, "/healthz")).filter(|answer| answer.0 == 500);
    let (_, body) = wait_for("bad health", bad);
    assert!(body.contains("[-]periodic-health failed"), "{body}");
    assert_eq!(agent.get(2728, "/livez").0, 200);
    world.seed.server().set_healthy(true);
    wait_for("good health", || (agent.get(2728, "/healthz").0 == 200).then_some(()));
    agent.stop();
}

/// Whether a lease was released since a position in the seed's record.
fn was_released(seed: &TestCluster, since: usize) -> bool {
    let released = |r: &Recorded| r.body.as_ref().is_some_and(|b| b["spec"]["holderIdentity"] == "");
    seed.server().shared.record.since(since).iter().any(|r| r.path.contains("/leases") && released(r))
}

#[test]
fn a_new_configuration_is_used_in_the_same_process_with_the_same_leases() {
    let world = World::start(&Options::calm("reloaded"));
    let agent = world.agent();
    world.wait_until_ready();
    wait_for("readiness", || (agent.get(2728, "/readyz").0 == 200).then_some(()));
    let names = ["gardenlet-leader-election", "gardener-resource-manager"];
    wait_for("the applier", || {
        agent.get(2728, "/statusz").1.contains("managedresource-applier: running").then_some(())
    });
    let before = names.map(|name| lease(&world, name));
    let places = [&*world.garden, &world.seed].map(|cluster| cluster.server().shared.record.count());

    let mut config = world.config();
    config["seedConfig"]["metadata"]["labels"] = json!({"site": "south"});
    config["edge"]["workers"] = json!(3);
    agent.reload(&config);
    world.garden.wait_for("the new label", |garden| {
        (garden.seed("reloaded")?["metadata"]["labels"]["site"] == "south").then_some(())
    });
    world.wait_until_ready();
    wait_for("the probes", || (agent.get(2728, "/readyz").0 == 200).then_some(()));
    wait_for("both leases to be renewed", || {
        let renewed = |(name, old): (&&str, &Value)| lease(&world, name)["renewTime"] != old["renewTime"];
        names.iter().zip(&before).all(renewed).then_some(())
    });
    for (name, old) in names.iter().zip(&before) {
        for field in ["holderIdentity", "leaseTransitions", "acquireTime"] {
            assert_eq!(lease(&world, name)[field], old[field], "{name} {field}");
        }
    }
    assert!(!was_released(&world.seed, places[1]));
    wait_for("some renewals", || (renewals(&world, places[0]).len() >= 4).then_some(()));
    let beats: Vec<_> = renewals(&world, places[0]).iter().map(|r| r.at).collect();
    let gap = beats.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap();
    let gap_max = Duration::from_secs(limits::HEARTBEAT_INTERVAL_S_MAX);
    world.measured("the longest gap between two heartbeats around a reload", gap, gap_max);

    // An unusable configuration is rejected.
    let taken = own_address();
    let listener = std::net::TcpListener::bind((taken.as_str(), 2728)).unwrap();
    config["server"] = json!({"healthProbes": {"bindAddress": taken}, "metrics": {"bindAddress": taken}});
    agent.reload(&config);
    world.wait_for_log(&["ERROR", "keeping the previous one", &taken, "2728"]);
    drop(listener);
    let place = world.garden.server().shared.record.count();
    wait_for("renewals", || (renewals(&world, place).len() >= 2).then_some(()));
    assert!(agent.is_alive());
    let place = world.seed.server().shared.record.count();
    agent.stop();
    assert!(was_released(&world.seed, place));
}

#[test]
fn a_stop_in_the_middle_of_a_reload_releases_the_leases() {
    let world = World::start(&Options::calm("turning"));
    let agent = world.agent();
    let names = ["gardenlet-leader-election", "gardener-resource-manager"];
    // At once, after the parts have ended, and after they have started.
    for (round, line) in
        [None, Some("The parts of the gardenlet have ended"), Some("Became leader")].iter().enumerate()
    {
        agent.wait_until_the_seed_side_runs();
        let mut config = world.config();
        config["edge"]["workers"] = json!(round + 3);
        let before = world.log().len();
        agent.reload(&config);
        if let Some(line) = line {
            wait_for(line, || world.log()[before..].iter().any(|l| l.contains(line)).then_some(()));
        }
        agent.stop();
        for name in names {
            assert_eq!(lease(&world, name)["holderIdentity"], "", "{name} {line:?}");
        }
        agent.launch();
    }
    agent.stop();
}

#[test]
fn a_stop_waits_for_no_server_that_hangs() {
    let world = World::start(&Options { factor: 1, ..Options::new("hanging") });
    let agent = world.agent();
    world.wait_until_ready();
    for cluster in [&*world.garden, &world.seed] {
        cluster.faults().when(|_| true).then(Action::Silence(Duration::from_secs(3_600)));
    }
    // The elector and the heartbeat each wait for a request with limits that are longer than a stop may take.
    let place = world.seed.server().shared.record.count();
    let hangs = |part: &str, since| {
        let all = world.seed.server().shared.record.since(since);
        all.iter().any(|r| r.path.ends_with(part))
    };
    wait_for("a renewal that hangs", || {
        (hangs("/gardenlet-leader-election", place) && hangs("/healthz", place)).then_some(())
    });
    let (stopped, place) = (world.clock.now(), world.seed.server().shared.record.count());
    agent.stop();
    let took = world.clock.now().since(stopped);
    assert!(was_released(&world.seed, place), "there was at least an attempt");
    let more = world.seed.server().shared.record.since(place);
    assert!(more.len() <= 8, "{more:#?}");
    // Two releases without an answer; without a limit they would take ten seconds and more. Tests next to the limits
    // assert that the parts of a stop fit into two seconds.
    world.measured("a stop while both servers hang", took, Duration::from_secs(5));
}

#[test]
fn a_silent_link_is_noticed_and_the_watches_continue_without_a_list() {
    let world = World::start(&Options::calm("silent"));
    let address = World::address(&world.garden);
    let proxy = Proxy::start(address.parse().unwrap()).unwrap();
    let through = world.garden.bootstrap_kubeconfig(&world.preparation.token());
    let through = through.replace(&address, &proxy.address().to_string());
    let secret = json!({"data": {"kubeconfig": base64(through.as_bytes())}});
    world.seed.merge("", "secrets", ("garden", "gardenlet-kubeconfig-bootstrap"), &secret);
    let agent = world.agent();
    world.wait_until_ready();
    wait_for("the watches", || {
        agent.get(2728, "/statusz").1.contains("watch garden/seeds: synced").then_some(())
    });
    let is_list = |r: &Recorded| r.info.verb == "list" && r.user_agent.starts_with("gardenlet/");
    let lists = |since| world.garden.server().shared.record.since(since).into_iter().filter(is_list).count();
    let place = world.garden.server().shared.record.count();

    proxy.set(Mode::Hole);
    world.wait_for_log(&["WARN", "Cannot renew the seed's lease", "seed=silent", "timeout"]);
    proxy.set(Mode::Pass);
    let back = world.clock.now();
    world.garden.wait_for("a renewal", |_| world.beat().filter(|beat| *beat > back));
    let took = world.beat().unwrap().since(back);
    world.measured("until a heartbeat after the link is back", took, Duration::from_secs(20));

    // Cut, three times: the watches resume at their position.
    for round in 0..3 {
        proxy.cut();
        let label = format!("round-{round}");
        world.garden.merge(
            "core.gardener.cloud",
            "seeds",
            ("", "silent"),
            &json!({"metadata": {"annotations": {
            "gardener.cloud/operation": "reconcile", "round": label}}}),
        );
        world.garden.wait_for("the operation to be noticed", |garden| {
            let seed = garden.seed("silent")?;
            seed["metadata"]["annotations"].get("gardener.cloud/operation").is_none().then_some(())
        });
    }
    assert_eq!(lists(place), 0);
    agent.stop();
}
