//! The playground: a garden, a seed and the agent in one process. It creates a Shoot and prints everything that happens.
//!
//! ```text
//! cargo run --release --example playground                          ends with 0 if everything became ready
//! cargo run --release --example playground -- --keep                leaves everything running for kubectl until Ctrl-C
//! cargo run --release --example playground -- --serve FOLDER        runs everything but the agent (service.rs)
//! cargo run --release --example playground -- --serve-bare FOLDER   the same before an operator has done anything
//! ```
//!
//! Under the name `gardenlet`, it is the agent with its commands; it links itself under this name into its folder.
//!
//! Each cluster is the API server that the tests use, over TLS on loopback. A stand-in for the seed's node starts the API server
//! of the Shoot with the Secrets and arguments of the Deployment that the agent writes. Its etcd is memory, and a pod is
//! available after one second instead of thirty. The playground changes nothing on the machine except a temporary folder with
//! kubeconfigs, which it removes at the end.

// It writes to a terminal. Like a test it may panic if its own preparation fails.
#![allow(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used, unreachable_pub, missing_docs)]

#[path = "../it/charts.rs"]
mod charts;

/// The agent's own program, so that its commands need no other build.
#[path = "../../src/main.rs"]
mod program;

mod agent;
mod arguments;
mod control_plane;
mod desk;
mod news;
mod screen;
mod service;
mod shoot;
mod summary;

use std::ffi::OsString;
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
use arguments::Wish;
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
    let words: Vec<OsString> = std::env::args_os().collect();
    let keep = match arguments::wish(&words) {
        Wish::Program => return program::main(),
        Wish::Help => {
            print!("{}", arguments::USAGE);
            return ExitCode::SUCCESS;
        }
        Wish::Wrong(why) => {
            eprint!("playground: {why}\n\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
        Wish::Serve(folder) => return serve(service::serve, &folder),
        Wish::ServeBare(folder) => return serve(service::serve_bare, &folder),
        Wish::Story { keep } => keep,
    };
    let (interrupted, _watch) = until_interrupted();
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
    }
    let took = screen.elapsed();
    if keep {
        wait_for_interrupt(&world, &screen, &desk, &interrupted);
    }
    screen.title("The agent stops");
    let ended = agent.is_ok_and(|agent| agent.stop());
    news.end();
    let good = summary::print(&world, &screen, took);
    if ended && good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Ctrl-C, as long as the second value lives.
fn until_interrupted() -> (Stop, signal::SignalWatch) {
    let interrupted = Stop::new();
    let watch = signal::stop_on_signal(&interrupted, || std::process::abort());
    (interrupted, watch.unwrap())
}

/// Runs clusters in a folder until Ctrl-C.
fn serve(run: fn(&mut Desk, &Stop), folder: &Path) -> ExitCode {
    let (interrupted, _watch) = until_interrupted();
    let desk = Desk::at(folder).and_then(|desk| desk.link_program().map(|()| desk));
    match desk {
        Ok(mut desk) => run(&mut desk, &interrupted),
        Err(error) => {
            eprintln!("playground: cannot use the folder {}: {error}; give another one", folder.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Writes the files for the agent, and for a person.
fn desk(world: &World) -> Desk {
    let mut desk = Desk::new();
    desk.link_program().unwrap();
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
    line("$PLAYGROUND/gardenlet doctor --config=$PLAYGROUND/gardenlet.yaml");
    line(&format!(
        "$PLAYGROUND/gardenlet explain shoot {}/{} --config=$PLAYGROUND/gardenlet.yaml",
        shoot::NAMESPACE,
        shoot::NAME
    ));
    line(&format!("$PLAYGROUND/gardenlet status --address=127.0.0.1:{}", desk.probes));
    while !interrupted.wait(&world.clock, Duration::from_secs(3_600)) {}
}
