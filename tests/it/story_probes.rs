//! The agent's reports about itself: probes, metrics, a status page.

use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use support::http::faults::{Action, Ordered, Seen};

use crate::world::{Options, World, wait_for};
use support::encoding::from_rfc3339;
use support::json::text as text_of;
use support::options::measured;

#[test]
fn probes_report_the_health_of_the_agent() {
    let world = World::start(&Options::calm("probed"));
    let agent = world.agent();
    world.wait_until_ready();
    let ok = (200, "ok".to_owned());
    wait_for("readiness", || (agent.get(2728, "/readyz") == ok).then_some(()));
    for path in [
        "/healthz",
        "/livez",
        "/healthz/ping",
        "/healthz/runtime-informer-sync",
        "/healthz/periodic-health",
        "/readyz/runtime-informer-sync",
    ] {
        assert_eq!(agent.get(2728, path), ok, "{path}");
    }
    let (status, all) = agent.get(2728, "/healthz?verbose");
    assert_eq!(status, 200);
    let lines: Vec<&str> = all.lines().take(3).collect();
    assert_eq!(lines, ["[+]ping ok", "[+]runtime-informer-sync ok", "[+]periodic-health ok"]);
    assert_eq!(agent.get(2728, "/healthz/nonsense").0, 404);

    // The lease cannot be renewed: unhealthy at once, but neither unready nor dead.
    let fault = world.garden.faults().on("PATCH", "/gardener-system-seed-lease/leases").answer(500);
    let (_, body) = wait_for("bad health", || Some(agent.get(2728, "/healthz")).filter(|a| a.0 == 500));
    assert!(body.contains("[+]ping ok\n"), "{body}");
    assert!(body.contains("[-]periodic-health failed: reason withheld\n"), "{body}");
    assert_eq!((agent.get(2728, "/readyz").0, agent.get(2728, "/livez").0), (200, 200));
    fault.cancel();
    wait_for("good health", || (agent.get(2728, "/healthz") == ok).then_some(()));

    let (status, page) = agent.get(2728, "/statusz");
    assert_eq!(status, 200);
    for line in
        ["leading: true", "garden: running", "watch garden/seeds: synced", "managedresource-applier: running"]
    {
        assert!(page.contains(line), "{page}");
    }
    agent.stop();
}

/// A series of the metrics, by its name with labels.
/// The value of a line of metrics.
pub fn series(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn metrics_have_upstreams_names_and_their_values_change() {
    let world = World::start(&Options::calm("measured"));
    let mut config = world.config();
    config["debugging"] = json!({"enableProfiling": true});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let (status, profile) = agent.get(2729, "/debug/pprof/");
    assert!(status == 200 && profile.contains("\nPss:") && profile.contains(" heartbeat\n"), "{profile}");
    let (status, first) = agent.get(2729, "/metrics");
    assert_eq!(status, 200);
    let types = [
        ("controller_runtime_reconcile_total", "counter"),
        ("controller_runtime_reconcile_errors_total", "counter"),
        ("controller_runtime_reconcile_time_seconds", "histogram"),
        ("controller_runtime_active_workers", "gauge"),
        ("workqueue_depth", "gauge"),
        ("workqueue_adds_total", "counter"),
        ("workqueue_retries_total", "counter"),
        ("rest_client_requests_total", "counter"),
        ("leader_election_master_status", "gauge"),
        ("process_start_time_seconds", "gauge"),
        ("process_cpu_seconds_total", "counter"),
        ("process_resident_memory_bytes", "gauge"),
        ("process_open_fds", "gauge"),
        ("process_threads", "gauge"),
        ("gardenlet_build_info", "gauge"),
        ("gardenlet_api_bytes_total", "counter"),
        ("gardenlet_seed_lease_renewals_total", "counter"),
    ];
    for (name, kind) in types {
        assert!(first.contains(&format!("# TYPE {name} {kind}\n")), "{name}: {first}");
    }
    let growing = [
        "rest_client_requests_total{code=\"200\",method=\"PATCH\",host=\"garden\"}",
        "rest_client_requests_total{code=\"200\",method=\"PUT\",host=\"seed\"}",
        "gardenlet_api_bytes_total{peer=\"garden\",direction=\"received\"}",
        "gardenlet_api_bytes_total{peer=\"seed\",direction=\"sent\"}",
        "gardenlet_api_last_response_timestamp_seconds{peer=\"garden\"}",
        "gardenlet_seed_lease_renewals_total{result=\"success\"}",
        "controller_runtime_reconcile_total{controller=\"seed-lease\",result=\"requeue_after\"}",
        "controller_runtime_reconcile_time_seconds_count{controller=\"seed-lease\"}",
        "controller_runtime_reconcile_time_seconds_bucket{controller=\"seed-lease\",le=\"+Inf\"}",
        "workqueue_adds_total{name=\"seed-lease\"}",
    ];
    world.pass(Duration::from_secs(60));
    let last = agent.get(2729, "/metrics").1;
    for name in growing {
        let (before, after) = (series(&first, name).unwrap_or(0.0), series(&last, name));
        assert!(after.is_some_and(|after| after > before), "{name}: {before}, {last}");
    }
    let value = |name: &str| series(&last, name).unwrap_or_else(|| panic!("no {name}: {last}"));
    assert_eq!(value("leader_election_master_status{name=\"gardenlet-leader-election\"}"), 1.0);
    assert_eq!(value("gardenlet_api_reachable{peer=\"garden\"}"), 1.0);
    measured("the age of the seed's lease, in seconds", value("gardenlet_seed_lease_age_seconds"), 40.0)
        .unwrap();
    let expires = world.certificate().unwrap().not_after.seconds();
    assert_eq!(value("gardenlet_garden_certificate_expiration_timestamp_seconds"), expires);
    assert!(value("gardenlet_clock_skew_seconds").abs() < 60.0, "{last}");
    assert!(value("process_threads") > 1.0 && value("process_resident_memory_bytes") > 1e6, "{last}");
    // Labels are names from the code, without names of objects or addresses.
    for line in last.lines() {
        let name = line.rsplit_once(' ').map_or(line, |(name, _)| name);
        let unbounded = ["measured", "127.", "https:", "/api"].iter().any(|word| name.contains(word));
        assert!(!unbounded, "{line}");
    }
    agent.stop();
}

#[test]
fn the_status_page_has_three_forms() {
    let world = World::start(&Options::calm("paged"));
    let agent = world.agent();
    world.wait_until_ready();
    let (status, text) = agent.get(2728, "/statusz?format=json");
    let page: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &page["seed"], &page["leading"]), (200, &json!("paged"), &json!(true)));
    assert_eq!(page["parts"]["garden"], json!({"stage": "running", "problem": null}));
    let watch = &page["watches"]["garden/seeds"];
    assert!(watch["synced"] == true && watch["objects"] == 1 && watch["secondsAgo"].is_u64(), "{page}");
    assert!(page["queues"]["seed"]["retries"].is_u64() && page["workers"]["total"] == 4, "{page}");
    assert!(page["gardenReachable"]["reachable"] == true && page["seedLeaseRenewed"]["secondsAgo"].is_u64());
    assert!(page["gardenTraffic"]["sent"].as_u64() > Some(0) && page["chartCache"]["files"] == 0, "{page}");
    let not_after = from_rfc3339(text_of(&page, "/certificateExpires/at"));
    assert_eq!(not_after, Some(world.certificate().unwrap().not_after));
    let (status, page) = agent.get(2728, "/statusz?format=html");
    assert!(status == 200 && page.starts_with("<!doctype html>"), "{page}");
    assert!(page.contains("<h1>gardenlet paged</h1>") && !page.contains("<script"), "{page}");
    // The garden goes away: the page shows the time.
    world.garden.server().down();
    wait_for("the loss of the garden, and its time", || {
        let page: Value = serde_json::from_str(&agent.get(2728, "/statusz?format=json").1).unwrap();
        let garden = &page["gardenReachable"];
        (garden["reachable"] == false && garden["secondsAgo"].as_u64() > Some(0)).then_some(())
    });
    world.garden.server().up().unwrap();
    agent.stop();
}

#[test]
fn once_ready_the_agent_stays_ready() {
    let world = World::start(&Options::calm("steady"));
    let other = json!({"metadata": {"name": "gardener-resource-manager", "namespace": "garden"},
        "spec": {"holderIdentity": "other_x", "leaseDurationSeconds": 36_000}});
    world.seed.create("coordination.k8s.io/v1", "leases", &other);
    let first =
        world.seed.faults().on("GET", "/apis/resources.gardener.cloud/v1alpha1/managedresources").answer(500);
    // The watch of the applier, which has no selector.
    let all_secrets = |seen: &Seen| seen.path == "/api/v1/secrets" && !seen.query.contains("labelSelector");
    let late = world.seed.faults().when(all_secrets).answer(500);
    let agent = world.agent();
    // The Seed is not reconciled before an applier has applied the objects it needs.
    world.wait_for_condition("GardenletReady", "True");
    assert_eq!(agent.get(2728, "/readyz").0, 500);
    first.cancel();
    wait_for("readiness", || (agent.get(2728, "/readyz").0 == 200).then_some(()));
    // The applier's own watch starts with its lease.
    let free = json!({"spec": {"holderIdentity": ""}});
    world.seed.merge("coordination.k8s.io", "leases", ("garden", "gardener-resource-manager"), &free);
    wait_for("the applier's watch", || (late.hits() > 1).then_some(()));
    let page = agent.get(2728, "/statusz").1;
    assert!(page.contains("watch seed/secrets: not synced"), "{page}");
    assert_eq!(agent.get(2728, "/readyz").0, 200);
    late.cancel();
    wait_for("its list", || {
        agent.get(2728, "/statusz").1.contains("watch seed/secrets: synced").then_some(())
    });
    assert_eq!(agent.get(2728, "/readyz").0, 200);
    world.wait_until_ready();
    agent.stop();
}

#[test]
fn an_unhealthy_seed_is_not_reported_as_healthy() {
    let world = World::start(&Options::new("unwell"));
    let mut config = world.config();
    // Time will jump, and no part should lose a lease for that reason.
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    world.seed.server().set_healthy(false);
    world.wait_for_log(&["WARN", "Cannot renew the seed's lease", "seed=unwell", "/healthz answered 500"]);
    world.skip(Duration::from_secs(60));
    world.wait_for_condition("GardenletReady", "Unknown");
    assert_eq!(world.seed_condition("GardenletReady").unwrap().1, "StatusUnknown");
    assert_eq!(agent.get(2728, "/healthz").0, 500);
    world.seed.server().set_healthy(true);
    world.wait_for_condition("GardenletReady", "True");
    assert_eq!(world.seed_condition("GardenletReady").unwrap().1, "GardenletReady");
    agent.stop();
}

/// No heartbeat was ever due, so none can be missed: the attempts before the first one count.
#[test]
fn health_fails_where_nothing_was_reachable_from_the_start() {
    let world = World::start(&Options::calm("severed"));
    let ok = (200, "ok".to_owned());
    world.garden.server().down();
    world.seed.server().down();
    let agent = world.agent();
    world.wait_for_log(&["Listening", "what=metrics", &agent.probes]);
    assert_eq!(agent.get(2728, "/healthz/periodic-health"), ok);
    world.skip(Duration::from_secs(30));
    let body = "[+]ping ok\n[+]runtime-informer-sync ok\n[-]periodic-health failed: reason withheld\n\
        healthz check failed\n";
    wait_for("bad health", || (agent.get(2728, "/healthz") == (500, body.to_owned())).then_some(()));
    assert_eq!(agent.get(2728, "/livez"), ok);

    // The seed comes back: the agent leads there, and cannot get its first certificate.
    world.seed.server().up().unwrap();
    wait_for("a leader", || agent.get(2728, "/statusz").1.contains("leading: true").then_some(()));
    agent.wait_for_problem("garden", &["identity"]);
    world.skip(Duration::from_secs(30));
    // On a busy machine the skipped time can end the term, and the next one counts anew.
    wait_for("bad health", || (agent.get(2728, "/healthz").0 == 500).then_some(()));
    assert_eq!(agent.get(2728, "/livez"), ok);

    world.garden.server().up().unwrap();
    world.wait_until_ready();
    wait_for("good health", || (agent.get(2728, "/healthz") == ok).then_some(()));
    agent.stop();
}

/// Both clusters take connections and do not answer, as behind a broken link.
#[test]
fn health_fails_without_a_break_while_both_clusters_hang() {
    let world = World::start(&Options::calm("hanging"));
    let agent = world.agent();
    world.wait_until_ready();
    let get = |path| agent.get(2728, path);
    wait_for("good health", || (get("/healthz").0 == 200).then_some(()));
    let page = || -> Value { serde_json::from_str(&get("/statusz?format=json").1).unwrap() };
    let held = |page: &Value| page["leases"]["garden/gardenlet-leader-election"]["held"] == true;
    let leads = || loop {
        let before = page();
        let metrics = agent.get(2729, "/metrics").1;
        let master = series(&metrics, "leader_election_master_status{name=\"gardenlet-leader-election\"}");
        // Page and metric are two requests: the Lease must not have changed between them.
        if held(&page()) == held(&before) {
            break (before["leading"] == true, held(&before), master);
        }
    };
    assert_eq!(leads(), (true, true, Some(1.0)));
    // The agent gives up after a while, as it does when its own deadline passes.
    let silence = || Action::Silence(Duration::from_secs(3));
    let hung = [&world.garden, &world.seed].map(|cluster| cluster.faults().when(|_| true).then(silence()));
    let mut seen: Vec<(Option<Timestamp>, u16)> = Vec::new();
    for _ in 0..150 {
        world.skip(Duration::from_secs(1));
        let (beat, waited) = (world.beat(), world.clock.now().since(world.beat().unwrap()));
        let status = get("/healthz").0;
        assert!(status == 500 || waited < Duration::from_secs(21), "after {waited:?}: {seen:?}");
        let has_failed = seen.iter().any(|(then, status)| *status == 500 && *then == beat);
        assert!(status == 500 || !has_failed, "well without a renewal: {seen:?}");
        seen.push((beat, status));
        let (leading, held, master) = leads();
        assert!(held || !leading, "it leads without a Lease");
        assert_eq!(master.is_some_and(|master| master > 0.0), held);
    }
    assert_eq!(leads(), (false, false, Some(0.0)));
    hung.iter().for_each(Ordered::cancel);
    let renewed = world.beat();
    wait_for("good health", || {
        let is_well = get("/healthz").0 == 200;
        assert!(!is_well || world.beat() != renewed, "it was not renewed");
        is_well.then_some(())
    });
    wait_for("the lead", || (leads() == (true, true, Some(1.0))).then_some(()));
    agent.stop();
}

#[test]
fn fields_of_others_in_the_seed_stay() {
    let world = World::start(&Options::new("shared"));
    let agent = world.agent();
    world.wait_until_ready();
    let foreign = json!({"status": {"conditions": [{"type": "Foreign", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"}]}});
    let kind = world.garden.api().kind("core.gardener.cloud", "seeds").unwrap();
    let target = support::api::Target::new(kind, "", "shared").subresource("status");
    let patch = support::api::write::Patch::Strategic(foreign);
    world.garden.api().patch(&target, &patch, &support::api::User::system()).unwrap();
    let label = json!({"metadata": {"annotations": {"mine": "yes"}}, "spec": {"settings": {"scheduling": {"visible": false}}}});
    world.garden.merge("core.gardener.cloud", "seeds", ("", "shared"), &label);
    world.wait_until_ready();
    assert_eq!(world.seed_condition("Foreign").unwrap().0, "True");
    // A restart registers again: annotations of others stay.
    agent.stop();
    agent.launch();
    world.garden.wait_for("the configured settings", |_| {
        let seed = world.garden.seed("shared")?;
        (seed["spec"]["settings"]["scheduling"]["visible"] == true).then_some(())
    });
    world.wait_until_ready();
    let seed = world.garden.seed("shared").unwrap();
    assert_eq!(seed["metadata"]["annotations"], json!({"owner": "me", "mine": "yes"}));
    assert_eq!(world.seed_condition("Foreign").unwrap().0, "True");
    agent.stop();
}
