//! The playground: a garden, a seed and the agent in one process. It creates a Shoot and prints everything that happens.
//!
//! ```text
//! cargo run --release --example playground                          ends with 0 if everything became ready
//! cargo run --release --example playground -- --keep                leaves everything running for kubectl until Ctrl-C
//! cargo run --release --example playground -- --serve FOLDER        runs everything but the agent (service.rs)
//! cargo run --release --example playground -- --serve-bare FOLDER   the same before an operator has done anything
//! ```
//!
//! Each cluster is the API server that the tests use, over TLS on loopback. A stand-in for the seed's node starts the API server
//! of the Shoot with the Secrets and arguments of the Deployment that the agent writes. Its etcd is memory, and a pod is
//! available after one second instead of thirty. The playground changes nothing on the machine except a temporary folder with
//! kubeconfigs, which it removes at the end.

// It writes to a terminal. Like a test it may panic if its own preparation fails.
#![allow(clippy::print_stderr, clippy::unwrap_used, unreachable_pub, missing_docs)]

#[path = "../it/charts.rs"]
mod charts;

mod agent;
mod control_plane;
mod desk;
mod news;
mod screen;
mod service;
mod shoot;
mod summary;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::signal;
use gardenlet::base::stop::Stop;
use gardenlet::config::Settings;
use serde_json::{Value, json};

use agent::Agent;
use desk::Desk;
use news::News;
use screen::Screen;
use support::cluster::Authorization;
use support::garden::Garden;
use support::garden::prepare::{self, Preparation};
use support::shoot::Site;
use support::{Options, TestCluster};

/// The name of the seed.
pub const SEED: &str = "playground";
/// The extension that the garden installs in it.
pub const EXTENSION: &str = "echo";
/// The longest time for one step. RSA keys take long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Both clusters, and the stand-in for the nodes of the seed.
pub struct World {
    pub clock: Clock,
    pub site: Arc<Site>,
    pub garden: Garden,
    pub seed: TestCluster,
}

impl World {
    fn start(screen: &Screen) -> Self {
        let clock = Clock::system();
        let garden = Garden::start(&clock);
        let preparation = Preparation::new(SEED, clock.now());
        garden.apply(&preparation.garden());
        garden.apply(&prepare::provider());
        screen.say(
            "garden",
            &format!("is up at {}: gardener.cloud groups, SeedAuthorizer, a bootstrap token", garden.url()),
        );
        let mut options = Options::new("seed", &clock);
        options.authorization = Authorization::Rbac;
        let seed = TestCluster::start(options);
        seed.apply(&[cluster_admin()]);
        seed.apply(&prepare::seed(&garden.bootstrap_kubeconfig(&preparation.token())));
        screen.say(
            "seed",
            &format!("is up at {}: packaging/rbac.yaml and the bootstrap kubeconfig", seed.url()),
        );
        let site = Arc::new(shoot::prepare(&garden, &seed));
        Self { clock, site, garden, seed }
    }

    /// Whether the Seed is reconciled and its agent reports that it is ready.
    fn is_registered(&self) -> Option<()> {
        let seed = self.garden.seed(SEED)?;
        let done = seed["status"]["lastOperation"]["state"] == "Succeeded";
        let ready = self.garden.seed_condition(SEED, "GardenletReady")?;
        (done && ready["status"] == "True").then_some(())
    }

    /// Whether the agent has renewed the seed's Lease often enough.
    fn is_beating(&self) -> Option<()> {
        let renewals = |r: &&support::http::record::Recorded| {
            r.method == "PATCH" && r.path.contains("/gardener-system-seed-lease/")
        };
        (self.garden.requests().iter().filter(renewals).count() >= news::BEATS as usize).then_some(())
    }

    /// Whether the extension is installed with this greeting and all its conditions are good.
    fn is_installed(&self, greeting: &str) -> Option<()> {
        let installation = self.garden.installations(EXTENSION).pop()?;
        let good = summary::INSTALLATION.iter().all(|(kind, status)| {
            support::json::list(&installation, "/status/conditions")
                .iter()
                .any(|c| c["type"] == *kind && c["status"] == *status)
        });
        let namespace = format!("extension-{}", support::json::text(&installation, "/metadata/name"));
        let echo = self.seed.get("example.org", "echoes", &namespace, "first")?;
        let ready = self.garden.seed_condition(SEED, "ExtensionsReady")?;
        (good && echo["spec"]["text"] == greeting && ready["status"] == "True").then_some(())
    }
}

/// The role that every cluster has. The account of the applier is bound to it.
fn cluster_admin() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cluster-admin"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]}]})
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let interrupted = Stop::new();
    let _watch = signal::stop_on_signal(&interrupted, || std::process::abort());
    let keep = arguments == ["--keep"];
    match arguments.as_slice() {
        [option, folder] if option == "--serve" => {
            service::serve(Path::new(folder), &interrupted);
            return ExitCode::SUCCESS;
        }
        [option, folder] if option == "--serve-bare" => {
            service::serve_bare(Path::new(folder), &interrupted);
            return ExitCode::SUCCESS;
        }
        rest if keep || rest.is_empty() => {}
        _ => {
            eprintln!(
                "usage: playground [--keep | --serve FOLDER | --serve-bare FOLDER]\n\n\
                (nothing)             runs the story and ends\n\
                --keep                runs the story and leaves everything running until Ctrl-C\n\
                --serve FOLDER        runs everything but the agent, and writes what an agent needs into FOLDER\n\
                --serve-bare FOLDER   runs a new garden and a new seed, as README.md expects them, and writes only\n\
                                      kubeconfigs of administrators into FOLDER"
            );
            return ExitCode::from(2);
        }
    }
    let screen = Arc::new(Screen::new());
    screen.title("A garden and a seed start");
    let world = World::start(&screen);
    let news = News::follow(&world, &screen);
    let desk = desk(&world);
    let agent = play(&world, &screen, &interrupted, Agent::prepare(&desk, keep));
    if keep {
        // The first look at the Shoot's health came too early.
        world.garden.wait_within(PATIENCE, "a healthy Shoot", |_| {
            if interrupted.is_stopped() { Some(()) } else { shoot::is_healthy(&world) }
        });
        wait_for_interrupt(&world, &screen, &desk, &interrupted);
    }
    screen.title("The agent stops");
    let ended = agent.is_ok_and(|agent| agent.stop());
    news.end();
    let good = summary::print(&world, &screen);
    if ended && good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Writes the files for the agent, and for a person.
fn desk(world: &World) -> Desk {
    let mut desk = Desk::new();
    let account = world.seed.get("", "serviceaccounts", "garden", "gardenlet").unwrap();
    let token = world.seed.server().shared.tokens().issue(&account, &[], world.clock.now(), 86_400);
    desk.write("seed.kubeconfig", &world.seed.bootstrap_kubeconfig(&token));
    desk.write("garden", &world.garden.admin_kubeconfig());
    desk.write("seed", &world.seed.admin_kubeconfig());
    desk.configure(SEED, &json!({}));
    desk
}

/// Runs the story. Returns the running agent, or the reason why the story stopped.
fn play(
    world: &World,
    screen: &Arc<Screen>,
    interrupted: &Stop,
    settings: Settings,
) -> Result<Agent, String> {
    screen.title("An extension is registered in the garden");
    let values = |greeting: &str| json!({"greeting": greeting});
    world.garden.apply(&prepare::extension(EXTENSION, &charts::extension(), &values("hello")));
    screen.title("The agent starts in its seed");
    let agent = Agent::start(world, screen, settings);
    let wait = |what: &str, condition: &dyn Fn() -> Option<()>| {
        let found = world.garden.wait_within(PATIENCE, what, |_| {
            if interrupted.is_stopped() { Some(Err("interrupted".to_owned())) } else { condition().map(Ok) }
        });
        found.unwrap_or_else(|| Err(format!("{what} took more than {} s", PATIENCE.as_secs())))
    };
    let story = || {
        wait("the registration", &|| world.is_registered())?;
        wait("the installation", &|| world.is_installed("hello"))?;
        screen.title("Somebody changes a value of the chart");
        let values = json!({"helm": {"values": values("good morning")}});
        world.garden.merge("core.gardener.cloud", "controllerdeployments", ("", EXTENSION), &values);
        wait("the new value", &|| world.is_installed("good morning"))?;
        screen.title("The agent renews the seed's Lease every two seconds");
        wait("a heartbeat", &|| world.is_beating())?;
        screen.title("A user creates a Shoot: a cluster without workers");
        shoot::ABOUT.iter().for_each(|line| screen.aside(line));
        world.garden.apply(&[shoot::manifest()]);
        wait("the Shoot", &|| shoot::is_up(world))?;
        screen.title("Its owner asks the garden for a kubeconfig, and uses it");
        shoot::visit(world, screen)
    };
    match story() {
        Ok(()) => Ok(agent),
        Err(why) => {
            screen.problem(&why);
            agent.stop();
            Err(why)
        }
    }
}

/// Leaves everything running until Ctrl-C, and prints what a person can try.
fn wait_for_interrupt(world: &World, screen: &Screen, desk: &Desk, interrupted: &Stop) {
    let owner = shoot::kubeconfig(world);
    if let Ok(kubeconfig) = &owner {
        desk.write("shoot", kubeconfig);
    }
    let line = |text: &str| screen.plain(&format!("  {text}"));
    screen.title("Everything keeps running until Ctrl-C. Paste these commands into another terminal:");
    line(&format!("export PLAYGROUND={}", desk.path().display()));
    line("kubectl --kubeconfig=$PLAYGROUND/garden get seeds,shoots,controllerinstallations -A -o wide");
    line("kubectl --kubeconfig=$PLAYGROUND/garden get events,csr,leases -A");
    line(
        "kubectl --kubeconfig=$PLAYGROUND/seed get managedresources,deployments,statefulsets,configmaps,echoes -A",
    );
    if owner.is_ok() {
        line("kubectl --kubeconfig=$PLAYGROUND/shoot get namespaces,configmaps,serviceaccounts -A");
    }
    line(&format!("curl http://127.0.0.1:{}/statusz", desk.probes));
    let program = match desk::program() {
        Some(program) => program.display().to_string(),
        None => "cargo run --quiet --release --".to_owned(),
    };
    line(&format!("{program} doctor --config=$PLAYGROUND/gardenlet.yaml"));
    line(&format!(
        "{program} explain shoot {}/{} --config=$PLAYGROUND/gardenlet.yaml",
        shoot::NAMESPACE,
        shoot::NAME
    ));
    line(&format!("{program} status --address=127.0.0.1:{}", desk.probes));
    while !interrupted.wait(&world.clock, Duration::from_secs(3_600)) {}
}
