//! An identity that is lost (expired, refused, of another CA) and replaced without a person at the site.

use std::time::Duration;

use gardenlet::app;
use gardenlet::base::metrics::Metrics;
use gardenlet::base::stop::Stop;
use serde_json::{Value, json};

use crate::story_operating::events;
use crate::world::{Agent, Options, World};
use support::encoding::{base64, from_base64};
use support::garden::manager::Share;
use support::json::text;

const PART: &str = "garden certificate";
const SECRET: (&str, &str) = ("garden", "gardenlet-kubeconfig");
const BOOTSTRAP: (&str, &str) = ("garden", "gardenlet-kubeconfig-bootstrap");

/// A configuration with certificates that are valid for ten minutes, for clocks that jump.
fn short_lived(world: &World) -> Value {
    let mut config = world.config();
    config["gardenClientConnection"]["kubeconfigValidity"] = json!({"validity": "10m"});
    config["leaderElection"] = json!({"leaderElect": false});
    config
}

/// The bootstrap token in the garden again, and a kubeconfig with it.
fn token(world: &World) -> String {
    world.garden.apply(&[world.preparation.bootstrap_token()]);
    world.garden.bootstrap_kubeconfig(&world.preparation.token())
}

fn supply(world: &World) {
    let data = json!({"kubeconfig": base64(token(world).as_bytes())});
    let secret = json!({"metadata": {"name": BOOTSTRAP.1, "namespace": BOOTSTRAP.0}, "data": data});
    world.seed.create("v1", "secrets", &secret);
}

fn token_is_there(world: &World) -> bool {
    let name = format!("bootstrap-token-{}", world.preparation.token_id());
    world.garden.get("", "secrets", "kube-system", &name).is_some()
}

fn secret_is_there(world: &World) -> bool {
    world.seed.get("", "secrets", BOOTSTRAP.0, BOOTSTRAP.1).is_some()
}

fn wait_for_another_certificate(world: &World, before: &str) {
    world.seed.wait_for("another certificate", |_| world.certificate_pem().filter(|pem| pem != before));
}

fn wait_for_a_beat(world: &World) {
    let now = world.clock.now();
    world.garden.wait_for("a beat", |_| world.beat().filter(|beat| *beat > now));
}

/// An agent that has joined and stopped, and starts again after its certificate has expired.
fn comes_back_late(world: &World, config: &Value) -> (Agent, String) {
    let agent = world.agent_with(config);
    world.wait_until_ready();
    let before = world.certificate_pem().unwrap();
    agent.stop();
    world.skip(Duration::from_secs(660));
    agent.launch();
    (agent, before)
}

#[test]
fn an_expired_certificate_is_replaced_once_a_credential_exists() {
    let world = World::start(&Options::calm("expired"));
    let (agent, before) = comes_back_late(&world, &short_lived(&world));
    let name = "secret garden/gardenlet-kubeconfig-bootstrap of the seed";
    let words = ["seed:expired expired at", name, "supply a bootstrap kubeconfig"];
    let problem = agent.wait_for_problem(PART, &words);
    world.wait_for_log(&["WARN", "seed:expired expired at"]);
    agent.wait_for_problem("garden", &["seed:expired expired at", "401"]);
    assert!(agent.get(2728, "/statusz").1.contains(&problem), "{problem}");
    // It continues without the garden.
    agent.wait_until_the_seed_side_runs();
    assert!(agent.is_alive());
    supply(&world);
    wait_for_another_certificate(&world, &before);
    world.wait_until_ready();
    wait_for_a_beat(&world);
    world.garden.wait_for("the token to be removed", |_| (!token_is_there(&world)).then_some(()));
    assert!(!secret_is_there(&world));
    [PART, "garden"].iter().for_each(|part| agent.wait_until_no_problem(part));
    // The garden receives an Event with the next identity.
    let event = world.garden.wait_for("an event", |garden| events(garden, "expired", "IdentityLost").pop());
    assert!(text(&event, "/note").contains("seed:expired expired at"), "{event}");
    assert_eq!(world.requests()[1]["spec"]["username"], world.requests()[0]["spec"]["username"]);
    agent.stop();
}

#[test]
fn a_certificate_that_expires_under_a_running_agent() {
    let world = World::start(&Options::calm("expiring"));
    let agent = world.agent_with(&short_lived(&world));
    world.wait_until_ready();
    let before = world.certificate_pem().unwrap();
    // The renewals are not approved.
    world.garden.set_manager_share(Share { approver: false, ..Share::default() });
    world.skip(Duration::from_secs(660));
    agent.wait_for_problem(PART, &["seed:expiring expired at", "supply a bootstrap kubeconfig"]);
    world.garden.set_manager_share(Share::default());
    supply(&world);
    world.wait_for_log(&["INFO", "Using another certificate", "seed=expiring"]);
    assert_ne!(world.certificate_pem().unwrap(), before);
    wait_for_a_beat(&world);
    assert!(agent.is_alive());
    agent.stop();
}

/// Kept credentials: no person has to act, and nothing is deleted, neither at first nor later.
#[test]
fn a_refused_certificate_and_credentials_that_were_kept() {
    let world = World::start(&Options::calm("refused"));
    let mut config = short_lived(&world);
    config["gardenClientConnection"]["kubeconfigValidity"] = json!({"validity": "24h"});
    config["edge"]["bootstrap"] = json!({"keep": true});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    assert!(token_is_there(&world) && secret_is_there(&world), "kept after the first bootstrap");
    let before = world.certificate_pem().unwrap();
    let refusal =
        world.garden.faults().when(|seen| seen.user.starts_with("gardener.cloud:system:seed:")).answer(401);
    wait_for_another_certificate(&world, &before);
    refusal.cancel();
    wait_for_a_beat(&world);
    assert!(refusal.hits() >= 3, "a single refusal may be temporary");
    agent.wait_until_no_problem(PART);
    assert!(token_is_there(&world) && secret_is_there(&world), "kept after the second one");
    agent.stop();
}

#[test]
fn a_short_refusal_changes_nothing() {
    let world = World::start(&Options::calm("forgiving"));
    let mut config = world.config();
    config["edge"]["bootstrap"] = json!({"keep": true});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let refusal = world
        .garden
        .faults()
        .when(|seen| seen.user.starts_with("gardener.cloud:system:seed:"))
        .times(2)
        .answer(401);
    world.garden.wait_for("the refusals", |_| (refusal.hits() == 2).then_some(()));
    world.pass(Duration::from_secs(30));
    assert_eq!(world.requests().len(), 1);
    assert_eq!(agent.problem(PART), None);
    agent.stop();
}

/// The file may appear later. It is never deleted, and the agent reads no Secret.
#[test]
fn credentials_in_files() {
    for by_service_manager in [false, true] {
        let world = World::start(&Options::calm(if by_service_manager { "loading" } else { "filing" }));
        let mut config = short_lived(&world);
        config["gardenClientConnection"].as_object_mut().unwrap().remove("bootstrapKubeconfig");
        let mut variables = world.pod();
        let file = if by_service_manager {
            variables.insert("CREDENTIALS_DIRECTORY".to_owned(), world.path("").display().to_string());
            "bootstrap-kubeconfig"
        } else {
            config["edge"]["bootstrap"] = json!({"kubeconfig": world.path("my.kubeconfig")});
            "my.kubeconfig"
        };
        let agent = Agent::new(&world, "host-1", &config, variables);
        agent.launch();
        agent.wait_for_problem("garden", &[file, "supply a bootstrap kubeconfig"]);
        world.file(file, "no: {kubeconfig");
        agent.wait_for_problem("garden", &[file, "read the kubeconfig"]);
        world.file(file, &world.garden.bootstrap_kubeconfig(&world.preparation.token()));
        world.wait_until_ready();
        assert!(!token_is_there(&world) && secret_is_there(&world), "only the used credentials are deleted");
        let before = world.certificate_pem().unwrap();
        agent.stop();
        world.skip(Duration::from_secs(660));
        agent.launch();
        agent.wait_for_problem(PART, &["expired at", file, "401"]);
        world.file(file, &token(&world));
        wait_for_another_certificate(&world, &before);
        world.wait_until_ready();
        assert!(world.path(file).exists());
        agent.stop();
    }
}

/// If the garden refuses one credential, the agent tries the other ones.
#[test]
fn one_valid_credential_of_two_is_enough() {
    let world = World::start(&Options::calm("trying"));
    let wrong = base64(world.garden.bootstrap_kubeconfig("abcdef.0000000000000000").as_bytes());
    world.seed.merge("", "secrets", BOOTSTRAP, &json!({"data": {"kubeconfig": wrong}}));
    let good = world.file("good", &world.garden.bootstrap_kubeconfig(&world.preparation.token()));
    let mut config = world.config();
    config["edge"]["bootstrap"] = json!({"kubeconfig": good});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    world.wait_for_log(&["Received the certificate", "file", &good.display().to_string()]);
    world.wait_for_log(&[
        "WARN",
        "with the bootstrap kubeconfig in secret garden/gardenlet-kubeconfig-bootstrap",
        "401",
    ]);
    assert!(secret_is_there(&world) && !token_is_there(&world), "only the used credentials are deleted");
    agent.stop();
}

/// The request of a second bootstrap survives a crash, and a denial ends it.
#[test]
fn a_pending_request_for_another_identity() {
    let world = World::start(&Options::calm("pending"));
    let (agent, before) = comes_back_late(&world, &short_lived(&world));
    world.garden.set_manager_share(Share { approver: false, ..Share::default() });
    supply(&world);
    let second = world.wait_for_request();
    agent.wait_for_problem(PART, &["expired at"]);
    agent.crash_and_restart();
    world.wait_for_log(&["Resuming the pending certificate request", &second]);
    world.decide(&second, "Denied", "not this one");
    world.wait_for_log(&["WARN", &second, "was denied"]);
    let third = world.wait_for_request();
    assert_ne!(third, second);
    assert_eq!(world.requests().len(), 3);
    world.decide(&third, "Approved", "by hand");
    wait_for_another_certificate(&world, &before);
    world.wait_until_ready();
    agent.stop();
}

#[test]
fn the_command_for_a_new_identity() {
    let world = World::start(&Options::calm("asking"));
    let config = world.config();
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let before = world.certificate_pem().unwrap();
    let ask = || app::rebootstrap(&agent.settings(), &environment(&world), &mut |_| {});
    let refusal = ask().unwrap_err();
    assert!(refusal.contains("secret garden/gardenlet-kubeconfig-bootstrap of the seed"), "{refusal}");
    let operation = || {
        let secret = world.seed.get("", "secrets", SECRET.0, SECRET.1).unwrap();
        secret["metadata"]["annotations"]["gardener.cloud/operation"].clone()
    };
    assert_eq!(operation(), Value::Null);
    supply(&world);
    assert_eq!(world.certificate_pem().unwrap(), before, "there was no request yet");
    let done = ask().unwrap();
    assert!(done.contains("garden/gardenlet-kubeconfig"), "{done}");
    wait_for_another_certificate(&world, &before);
    assert_eq!(operation(), Value::Null);
    wait_for_a_beat(&world);
    world.garden.wait_for("the token to be removed", |_| (!token_is_there(&world)).then_some(()));
    // The same for an agent that is stopped.
    agent.stop();
    let before = world.certificate_pem().unwrap();
    supply(&world);
    ask().unwrap();
    assert_eq!(operation(), "rebootstrap");
    agent.launch();
    wait_for_another_certificate(&world, &before);
    world.wait_until_ready();
    agent.stop();
}

fn environment(world: &World) -> app::Environment {
    app::Environment {
        clock: world.clock.clone(),
        built: crate::world::BUILT,
        dialer: std::sync::Arc::new(gardenlet::net::SystemDialer),
        stop: Stop::new(),
        metrics: Metrics::new(),
        variables: world.pod(),
        hostname: "host-1".to_owned(),
        renderer: gardenlet::chart::child::Renderer::own_program(),
        keys: std::sync::Arc::new(support::keys::FixtureKeys::default()),
        service_account_dir: world.path("serviceaccount"),
    }
}

/// How many CAs the stored kubeconfig trusts.
fn trusted(world: &World) -> usize {
    let secret = world.seed.get("", "secrets", SECRET.0, SECRET.1).unwrap();
    let kubeconfig = from_base64(text(&secret, "/data/kubeconfig")).unwrap();
    let kubeconfig = gardenlet::format::yaml::parse(&String::from_utf8(kubeconfig).unwrap()).unwrap();
    let ca = from_base64(text(&kubeconfig, "/clusters/0/cluster/certificate-authority-data")).unwrap();
    String::from_utf8(ca).unwrap().matches("BEGIN CERTIFICATE").count()
}

/// The garden publishes its new CA while its servers still show certificates of the old one, then they change.
#[test]
fn a_ca_that_is_published_before_it_is_used() {
    let world = World::start(&Options::calm("overlap"));
    let agent = world.agent_with(&{
        let mut config = world.config();
        config["leaderElection"] = json!({"leaderElect": false});
        config
    });
    world.wait_until_ready();
    let old = world.garden.authority();
    let year = Duration::from_secs(365 * 86_400);
    let now = world.clock.now();
    world.garden.rotate_ca();
    world.garden.server().set_identity(&old.server(&[], now.minus(year), now.plus(year)));
    world.skip(Duration::from_secs(320));
    world.seed.wait_for("both CAs to be trusted", |_| (trusted(&world) == 2).then_some(()));
    world.garden.server().cut();
    wait_for_a_beat(&world);
    let new = world.garden.authority();
    world.garden.server().set_identity(&new.server(&[], now.minus(year), now.plus(year)));
    world.garden.server().cut();
    wait_for_a_beat(&world);
    assert_eq!((world.requests().len(), agent.problem(PART)), (1, None));
    // The agent drops the old CA when it was not needed for a while.
    world.skip(Duration::from_secs(3_900));
    world.seed.wait_for("the new CA alone", |_| (trusted(&world) == 1).then_some(()));
    wait_for_a_beat(&world);
    agent.stop();
}

/// The servers change first. The agent cannot know the new CA until an administrator provides it in one of two ways.
#[test]
fn a_ca_that_is_used_before_it_is_published() {
    for by_bootstrap in [false, true] {
        let world = World::start(&Options::calm(if by_bootstrap { "told" } else { "edited" }));
        let agent = world.agent();
        world.wait_until_ready();
        let kubeconfig = world.certificate_pem().unwrap();
        world.garden.rotate_ca();
        world.garden.server().cut();
        agent.wait_for_problem(PART, &["a CA that is not trusted"]);
        if by_bootstrap {
            supply(&world);
            wait_for_another_certificate(&world, &kubeconfig);
        } else {
            let secret = world.seed.get("", "secrets", SECRET.0, SECRET.1).unwrap();
            let stored = String::from_utf8(from_base64(text(&secret, "/data/kubeconfig")).unwrap()).unwrap();
            let mut stored = gardenlet::format::yaml::parse(&stored).unwrap();
            stored["clusters"][0]["cluster"]["certificate-authority-data"] =
                json!(base64(world.garden.ca().as_bytes()));
            let data = json!({"data": {"kubeconfig": base64(stored.to_string().as_bytes())}});
            world.seed.merge("", "secrets", SECRET, &data);
        }
        wait_for_a_beat(&world);
        agent.wait_until_no_problem(PART);
        assert_eq!(world.requests().len(), if by_bootstrap { 2 } else { 1 });
        agent.stop();
    }
}
