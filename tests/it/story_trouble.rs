//! Problems during the agent's work: each has a message with its place and cause. The agent retries and never exits,
//! and the story continues once the problem is resolved.

use std::time::Duration;

use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::story_probes::series;
use crate::world::{Agent, CORE, MANAGED_RESOURCES, Options, World, condition, state_file};
use support::encoding::{base64, from_rfc3339};
use support::garden::manager::Share;
use support::http::faults::Seen;
use support::json::text;

const BOOTSTRAP: (&str, &str) = ("garden", "gardenlet-kubeconfig-bootstrap");

fn set_bootstrap_token(world: &World, token: &str) {
    let kubeconfig = base64(world.garden.bootstrap_kubeconfig(token).as_bytes());
    world.seed.merge("", "secrets", BOOTSTRAP, &json!({"data": {"kubeconfig": kubeconfig}}));
}

/// The number of the agent's requests of a kind to a server since a position in its record.
fn asked(cluster: &support::TestCluster, since: usize, part: &str) -> usize {
    cluster.server().shared.record.since(since).iter().filter(|r| r.path.contains(part)).count()
}

/// The problem shows in the part's status and in the log, and the agent retries again and again.
fn tries_again(world: &World, agent: &Agent, part: &str, words: &[&str]) {
    let problem = agent.wait_for_problem(part, words);
    world.wait_for_log(&["WARN", part, words[words.len() - 1]]);
    assert!(agent.is_alive(), "{problem}");
}

#[test]
fn a_wrong_token() {
    let world = World::start(&Options::new("wrong-token"));
    set_bootstrap_token(&world, "abcdef.0000000000000000");
    let agent = world.agent();
    let address = World::address(&world.garden);
    tries_again(&world, &agent, "garden", &["get an identity", "post certificate request", "401", &address]);
    let before = world.garden.server().shared.record.count();
    world.garden.wait_for("more attempts", |garden| {
        (asked(garden, before, "/certificatesigningrequests") >= 2).then_some(())
    });
    assert!(world.seed.get("", "secrets", BOOTSTRAP.0, BOOTSTRAP.1).is_some(), "nothing is lost");
    set_bootstrap_token(&world, &world.preparation.token());
    world.wait_until_ready();
    agent.wait_until_no_problem("garden");
    agent.stop();
}

#[test]
fn a_bootstrap_secret_that_is_missing_or_empty() {
    let world = World::start(&Options::new("no-bootstrap"));
    let secret = world.seed.get("", "secrets", BOOTSTRAP.0, BOOTSTRAP.1).unwrap();
    world.seed.delete("", "secrets", BOOTSTRAP.0, BOOTSTRAP.1);
    let agent = world.agent();
    let name = "garden/gardenlet-kubeconfig-bootstrap";
    agent.wait_for_problem("garden", &["get an identity", name, "supply a bootstrap kubeconfig"]);
    let bare =
        |data: Value| json!({"metadata": {"name": BOOTSTRAP.1, "namespace": BOOTSTRAP.0}, "data": data});
    world.seed.create("v1", "secrets", &bare(json!({"kubeconfig": base64(b"no: {kubeconfig")})));
    agent.wait_for_problem("garden", &["get an identity", name]);
    world.seed.delete("", "secrets", BOOTSTRAP.0, BOOTSTRAP.1);
    world.seed.create("v1", "secrets", &bare(secret["data"].clone()));
    world.wait_until_ready();
    agent.stop();
}

/// As if its disk were mounted late: the directory has no lock, and none can be made.
#[test]
fn a_state_directory_that_can_be_written_later() {
    let world = World::start(&Options::new("late-disk"));
    let state = world.path("state-host-1");
    std::fs::create_dir(&state).unwrap();
    std::os::unix::fs::symlink("missing/lock", state.join("lock")).unwrap();
    let agent = world.agent();
    agent.wait_for_problem("state directory", &["/lock: ", "loses new state when it stops"]);
    world.wait_until_ready();
    assert!(state_file(&world, "instance-id").is_none(), "it was written without a lock");
    std::fs::remove_file(state.join("lock")).unwrap();
    world.skip(Duration::from_secs(75));
    agent.wait_until_no_problem("state directory");
    assert!(state_file(&world, "instance-id").is_some());
    assert!(gardenlet::base::state::is_locked(&state));
    agent.stop();
}

/// No warnings: a bootstrap without problems logs only information.
#[test]
fn no_trouble_at_all() {
    // Time passes in steps. Between them it is slow, so that no renewal of a lease is late on a busy machine.
    let world = World::start(&Options { factor: 2, ..Options::calm("untroubled") });
    let agent = world.agent();
    world.wait_until_ready();
    world.pass(Duration::from_secs(60));
    let holder = text(&world.garden.seed("untroubled").unwrap(), "/status/gardener/id").to_owned();
    let addresses =
        [World::address(&world.garden), World::address(&world.seed), holder, "untroubled".to_owned()];
    let bad: Vec<String> = world
        .log()
        .into_iter()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        .filter(|line| addresses.iter().any(|address| line.contains(address)))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    agent.stop();
}

#[test]
fn a_request_that_is_not_approved() {
    let world = World::start(&Options::new("unapproved"));
    world.garden.set_manager_share(Share { approver: false, ..Share::default() });
    let mut config = world.config();
    // Time will jump, and no part should lose a lease for that reason.
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = world.agent_with(&config);
    let first = world.wait_for_request();
    crate::world::wait_for("the stage to name the request", || {
        let parts = agent.status.lock().unwrap().parts();
        let stage = &parts.get("garden")?.stage;
        (stage.contains("approval") && stage.contains(&first)).then_some(())
    });
    let posted = world.requests()[0]["metadata"]["creationTimestamp"].clone();
    let posted = from_rfc3339(posted.as_str().unwrap()).unwrap();
    world.skip(Duration::from_secs(15 * 60 + 10));
    world.garden.wait_for("another request", |_| (world.requests().len() == 2).then_some(()));
    world.wait_for_log(&["WARN", &first]);
    let second = world.requests()[1].clone();
    let patience = from_rfc3339(text(&second, "/metadata/creationTimestamp")).unwrap().since(posted);
    assert!(patience >= Duration::from_secs(900), "{patience:?}");
    world.decide(text(&second, "/metadata/name"), "Approved", "at last");
    world.wait_until_ready();
    agent.stop();
}

#[test]
fn a_request_that_is_denied() {
    let world = World::start(&Options::new("denied"));
    world.garden.set_manager_share(Share { approver: false, ..Share::default() });
    let agent = world.agent();
    let first = world.wait_for_request();
    world.decide(&first, "Denied", "we do not know this seed");
    tries_again(&world, &agent, "garden", &["get an identity", &first, "denied", "we do not know this seed"]);
    let second = world.wait_for_request();
    assert_ne!(first, second);
    world.decide(&second, "Approved", "now we do");
    world.wait_until_ready();
    agent.wait_until_no_problem("garden");
    agent.stop();
}

#[test]
fn a_garden_that_is_down_at_the_start() {
    let world = World::start(&Options::new("no-garden"));
    world.garden.server().down();
    let agent = world.agent();
    let address = World::address(&world.garden);
    tries_again(&world, &agent, "garden", &["get an identity", &address, "Connection refused"]);
    // The seed's side does not wait for it.
    world
        .seed
        .wait_for("the definitions", |seed| seed.api().kind("resources.gardener.cloud", "managedresources"));
    world.skip(Duration::from_secs(600));
    agent.lives();
    world.garden.server().up().unwrap();
    world.wait_until_ready();
    assert_eq!(world.requests().len(), 1, "the key was kept");
    agent.wait_until_no_problem("garden");
    agent.stop();
}

#[test]
fn a_seed_that_is_down_at_the_start() {
    let world = World::start(&Options::new("no-seed"));
    world.seed.server().down();
    let agent = world.agent();
    let address = World::address(&world.seed);
    world.wait_for_log(&["WARN", "Cannot reach the leader lease", &address, "Connection refused"]);
    world.skip(Duration::from_secs(600));
    agent.lives();
    world.seed.server().up().unwrap();
    world.wait_until_ready();
    agent.stop();
}

#[test]
fn a_seed_namespace_that_is_missing() {
    let world = World::start(&Options::calm("homeless"));
    world.garden.set_manager_share(Share { namespaces: false, ..Share::default() });
    let agent = world.agent();
    agent.wait_for_problem("garden", &["failed to get seed namespace in garden cluster"]);
    world.wait_for_log(&["Waiting for the garden", "failed to get seed namespace in garden cluster"]);
    // The lease is renewed meanwhile: the seed is not silent.
    world.garden.wait_for("a heartbeat", |_| world.beat());
    let gap = world.pass(Duration::from_secs(60));
    world.measured("the longest gap between two heartbeats", gap, Duration::from_secs(20));
    // The Seed says it once, in upstream's words.
    let last = |world: &World| world.garden.seed("homeless").unwrap()["status"]["lastOperation"].clone();
    let said = last(&world);
    let words = "failed to get seed namespace in garden cluster: Namespace \"seed-homeless\" not found Operation will be retried.";
    assert_eq!((&said["type"], &said["state"]), (&json!("Reconcile"), &json!("Error")), "{said}");
    assert_eq!(text(&said, "/description"), words);
    world.pass(Duration::from_secs(30));
    assert_eq!(last(&world), said);
    world.garden.set_manager_share(Share::default());
    world.wait_until_ready();
    agent.wait_until_no_problem("garden");
    world.garden.wait_for("its end", |_| (last(&world)["state"] == "Succeeded").then_some(()));
    agent.stop();
}

#[test]
fn a_garden_that_forbids_for_a_while_after_the_registration() {
    let world = World::start(&Options::new("forbidden"));
    let forbidden = |path| world.garden.faults().on("GET", path).times(6).answer(403);
    let namespace = forbidden("/namespaces/seed-forbidden");
    let lists =
        [forbidden("/seeds"), forbidden("/controllerinstallations"), forbidden("/controllerregistrations")];
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    agent.wait_for_problem("garden", &["403"]);
    world.wait_until_ready();
    installed(&world, "echo");
    for order in lists.iter().chain([&namespace]) {
        assert_eq!(order.hits(), 6);
    }
    agent.stop();
}

#[test]
fn a_garden_that_is_newer_or_hides_its_version() {
    let world = World::start(&Options::new("skewed"));
    let place = ("gardener-system-public", "gardener-info");
    let info = |version: &str| json!({"data": {"gardenerAPIServer": format!("version: {version}\n")}});
    world.garden.merge("", "configmaps", place, &info("v1.149.0"));
    let agent = world.agent();
    tries_again(&world, &agent, "garden", &["v1.149.0", "must not be newer"]);
    world.garden.merge("", "configmaps", place, &info("''"));
    agent.wait_for_problem("garden", &["gardener-info", "cannot be read"]);
    world.garden.merge("", "configmaps", place, &info("v1.151.0-dev"));
    world.wait_until_ready();
    agent.stop();
}

/// A chart that cannot be installed: its conditions, the retries, and the recovery with a better chart.
fn bad_chart(name: &'static str, chart: &[u8], words: &[&str]) {
    let world = World::start(&Options::new(name));
    world.extend("good", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    world.wait_until_ready();
    // Not earlier: before, an attempt fails because the Seed has no identity yet, and later failures are reported less
    // and less often.
    world.extend("bad", chart, &json!({"greeting": "hello"}));
    let (_, _, message) = world.garden.wait_for("Valid=False", |_| {
        let valid = world.installation_condition("bad", "Valid")?;
        (valid.0 == "False" && valid.1 == "ChartCannotBeRendered").then_some(valid)
    });
    assert!(message.starts_with("chart rendering process failed: "), "{message}");
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
    let key = text(&world.garden.installations("bad")[0], "/metadata/name").to_owned();
    // The first attempts may fail for another reason, and later ones are logged less and less often.
    crate::world::wait_for("more attempts", || {
        let is_of_chart = |line: &&String| [&key, words[0]].iter().all(|part| line.contains(*part));
        world.log().iter().filter(is_of_chart).any(|line| attempt_of(line) >= Some(4)).then_some(())
    });
    // The other extension is not affected.
    installed(&world, "good");
    world.wait_for_condition("ExtensionsReady", "False");
    assert!(world.seed_condition("ExtensionsReady").unwrap().2.contains(&key));
    assert!(agent.is_alive());
    let better = charts::archive("bad", &[("templates/map.yaml", MAP)]);
    let patch = json!({"helm": {"rawChart": base64(&better)}});
    world.garden.merge(CORE, "controllerdeployments", ("", "bad"), &patch);
    installed(&world, "bad");
    world.wait_for_condition("ExtensionsReady", "True");
    agent.stop();
}

/// The number of the attempt that a line of the log is about.
fn attempt_of(line: &str) -> Option<u32> {
    line.split_once(" attempt=")?.1.split(' ').next()?.parse().ok()
}

const MAP: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: better
  namespace: {{ .Release.Namespace }}
";

#[test]
fn a_chart_that_is_not_an_archive() {
    bad_chart("no-chart", b"this is no archive", &["gzip"]);
}

#[test]
fn a_chart_that_does_not_render() {
    let template = "{{ fail \"the moon is in the wrong house\" }}\n";
    let chart = charts::archive("bad", &[("templates/map.yaml", template)]);
    bad_chart("no-rendering", &chart, &["the moon is in the wrong house", "templates/map.yaml"]);
}

#[test]
fn a_chart_whose_objects_are_refused() {
    let world = World::start(&Options::new("refused"));
    let map = MAP.replace("name: better", "name: Not_A_Name");
    world.extend("bad", &charts::archive("bad", &[("templates/map.yaml", &map)]), &json!({}));
    let agent = world.agent();
    let (_, _, message) = world.seed.wait_for("ResourcesApplied=False", |seed| {
        let mut all = seed.store().list(MANAGED_RESOURCES, "managedresources", "garden");
        all.retain(|managed| managed["metadata"]["labels"]["controllerregistration-name"] == "bad");
        condition(&all.pop()?, "ResourcesApplied").filter(|c| c.0 == "False" && c.1 == "ApplyFailed")
    });
    assert!(message.contains("Not_A_Name") && message.contains("422"), "{message}");
    world.garden.wait_for("Installed=False", |_| {
        let (status, reason, message) = world.installation_condition("bad", "Installed")?;
        // Upstream's words, followed by the cause.
        let says_why = message.contains("outdated (0/1): ") && message.contains("Not_A_Name");
        (status == "False" && reason == "InstallationPending" && says_why).then_some(())
    });
    assert_eq!(world.installation_condition("bad", "Valid").unwrap().0, "True");
    let better = charts::archive("bad", &[("templates/map.yaml", MAP)]);
    let patch = json!({"helm": {"rawChart": base64(&better)}});
    world.garden.merge(CORE, "controllerdeployments", ("", "bad"), &patch);
    installed(&world, "bad");
    agent.stop();
}

#[test]
fn a_garden_that_goes_away_for_a_while() {
    let world = World::start(&Options::new("cut-off"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    world.wait_until_ready();
    let name = installed(&world, "echo");
    // Only the first of several failures in a row is logged: there must not be one already. The garden goes away right
    // after a heartbeat was answered, because a request under way ends with another error.
    let address = World::address(&world.garden);
    crate::world::wait_for("a good heartbeat", || (agent.get(2728, "/healthz").0 == 200).then_some(()));
    let renewals =
        || series(&agent.get(2729, "/metrics").1, "gardenlet_seed_lease_renewals_total{result=\"success\"}");
    let before = renewals();
    crate::world::wait_for("the next heartbeat", || (renewals() > before).then_some(()));
    world.garden.server().down();
    world.wait_for_log(&["WARN", "Cannot renew the seed's lease", &address, "Connection refused"]);
    crate::world::wait_for("the probe to fail", || (agent.get(2728, "/healthz").0 == 500).then_some(()));
    // The seed maintains itself: a deleted object is created again.
    let namespace = format!("extension-{name}");
    world.seed.delete("", "configmaps", &namespace, "echo");
    let managed = ("garden", name.as_str());
    let again = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    world.seed.merge("resources.gardener.cloud", "managedresources", managed, &again);
    world.seed.wait_for("the ConfigMap again", |seed| seed.get("", "configmaps", &namespace, "echo"));
    world.skip(Duration::from_secs(300));
    agent.lives();
    world.garden.server().up().unwrap();
    world.garden.wait_for("heartbeats again", |_| {
        world.beat().filter(|beat| world.clock.now().since(*beat) < Duration::from_secs(10))
    });
    world.wait_for_condition("GardenletReady", "True");
    // The watches continue, too.
    let values = json!({"helm": {"values": {"greeting": "back"}}});
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
    world.seed.wait_for("the new value", |seed| {
        let map = seed.get("", "configmaps", &namespace, "echo")?;
        (map["data"]["greeting"] == "back").then_some(())
    });
    let installation = world.garden.installations("echo").pop().unwrap();
    assert_eq!(condition(&installation, "Valid").unwrap().0, "True");
    agent.stop();
}

/// gardener-apiserver is away, the rest of the garden works: the lease is renewed on time, also when the agent starts
/// then.
#[test]
fn a_garden_without_its_own_api() {
    let world = World::start(&Options::calm("halved"));
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let agent = world.agent();
    world.wait_until_ready();
    installed(&world, "echo");
    let is_gardeners = |seen: &Seen| seen.info.group.ends_with("gardener.cloud");
    let away = world.garden.faults().when(is_gardeners).answer(503);
    world.garden.server().cut();
    let gap = world.pass(Duration::from_secs(30));
    world.measured("the longest gap between two heartbeats", gap, Duration::from_secs(20));
    assert_eq!(agent.get(2728, "/healthz").0, 200);
    agent.crash_and_restart();
    let since = world.clock.now();
    world.garden.wait_for("a heartbeat", |_| world.beat().filter(|beat| *beat > since));
    world.pass(Duration::from_secs(30));
    assert_eq!(agent.get(2728, "/healthz").0, 200);
    assert!(agent.is_alive() && away.hits() > 0);
    away.cancel();
    let values = json!({"helm": {"values": {"greeting": "again"}}});
    world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
    world.skip(Duration::from_secs(60));
    world.seed.wait_for("the new value", |seed| {
        let name = world.garden.installations("echo").pop()?["metadata"]["name"].as_str()?.to_owned();
        let echo = seed.get("example.org", "echoes", &format!("extension-{name}"), "first")?;
        (echo["spec"]["text"] == "again").then_some(())
    });
    agent.stop();
}
