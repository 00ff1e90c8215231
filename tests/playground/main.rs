//! The playground: a garden and a seed in this process, the real agent between them, a Shoot, and everything that happens, live.
//!
//! ```text
//! cargo run --release --example playground             ends by itself; exit code 0 only if everything became ready
//! cargo run --release --example playground -- --keep   leaves all API servers up, for kubectl, until Ctrl-C
//! cargo run --example playground -- --serve FOLDER     only the API servers, for an agent elsewhere (service.rs)
//! ```
//!
//! All clusters are the API server that the tests use, over TLS on loopback. That of the Shoot is started with the Secrets and
//! arguments of the Deployment that the agent writes, by a stand-in for the seed's node; its etcd is memory, and a pod is
//! available after one second instead of thirty. Nothing outside of the process is touched but a folder for kubeconfigs, which is
//! removed at the end.

// It writes to a terminal, and like a test it may end with a panic when its own set-up fails.
#![allow(clippy::print_stderr, clippy::unwrap_used, unreachable_pub, missing_docs)]

#[path = "../it/charts.rs"]
mod charts;
#[path = "../support/mod.rs"]
mod support;

mod agent;
mod control_plane;
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
use serde_json::{Value, json};

use agent::Agent;
use news::News;
use screen::Screen;
use support::cluster::Authorization;
use support::garden::Garden;
use support::garden::prepare::{self, Preparation};
use support::shoot::Site;
use support::{Options, TestCluster};

/// The seed, and the extension that it gets.
pub const SEED: &str = "playground";
pub const EXTENSION: &str = "echo";
/// The longest that a step may take: on a busy machine RSA keys take long.
const PATIENCE: Duration = Duration::from_secs(180);

/// Both clusters, and who plays the nodes of the seed.
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

    /// Whether the Seed is reconciled and its agent is there.
    fn is_registered(&self) -> Option<()> {
        let seed = self.garden.seed(SEED)?;
        let done = seed["status"]["lastOperation"]["state"] == "Succeeded";
        let ready = self.garden.seed_condition(SEED, "GardenletReady")?;
        (done && ready["status"] == "True").then_some(())
    }

    /// Whether the seed's lease was renewed some times.
    fn is_beating(&self) -> Option<()> {
        let renewals = |r: &&support::http::record::Recorded| {
            r.method == "PATCH" && r.path.contains("/gardener-system-seed-lease/")
        };
        (self.garden.requests().iter().filter(renewals).count() >= news::BEATS as usize).then_some(())
    }

    /// Whether the extension is installed with this greeting, and all conditions are good.
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

/// The role that every cluster has, and that the applier's account is bound to.
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
        rest if keep || rest.is_empty() => {}
        _ => {
            eprintln!("usage: playground [--keep | --serve FOLDER]");
            return ExitCode::from(2);
        }
    }
    let screen = Arc::new(Screen::new());
    screen.title("A garden, a seed, the agent that joins them, and a Shoot");
    let world = World::start(&screen);
    let news = News::follow(&world, &screen);
    let agent = play(&world, &screen, &interrupted);
    if keep {
        wait_for_interrupt(&world, &screen, &interrupted);
    }
    screen.title("The agent leaves");
    let ended = agent.is_ok_and(|agent| agent.stop());
    news.end();
    let good = summary::print(&world, &screen);
    if ended && good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The story; the running agent, or why it did not go on.
fn play(world: &World, screen: &Arc<Screen>, interrupted: &Stop) -> Result<Agent, String> {
    screen.title("An extension is registered in the garden");
    let values = |greeting: &str| json!({"greeting": greeting});
    world.garden.apply(&prepare::extension(EXTENSION, &charts::extension(), &values("hello")));
    screen.title("The agent starts in its seed");
    let agent = Agent::start(world, screen);
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
        screen.title("The seed tells the garden every two seconds that it is there");
        wait("a heartbeat", &|| world.is_beating())?;
        screen.title("Somebody applies a Shoot: a cluster without workers");
        shoot::ABOUT.iter().for_each(|line| screen.aside(line));
        world.garden.apply(&[shoot::manifest()]);
        wait("the Shoot", &|| shoot::is_up(world))?;
        screen.title("Its owner asks the garden for a kubeconfig, and gets in");
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

/// Leaves everything up until Ctrl-C.
fn wait_for_interrupt(world: &World, screen: &Screen, interrupted: &Stop) {
    let files = agent::Folder::kubeconfigs(world);
    let kubectl = |file: &Path, what: &str| {
        screen.plain(&format!("  kubectl --kubeconfig {} get {what} -A", file.display()));
    };
    screen.title("All API servers stay up until Ctrl-C");
    kubectl(&files.garden, "seeds,shoots,controllerinstallations,csr,leases");
    kubectl(&files.seed, "managedresources,deployments,statefulsets,configmaps,echoes,leases");
    if let Some(file) = &files.shoot {
        kubectl(file, "namespaces,configmaps,serviceaccounts");
    }
    while !interrupted.wait(&world.clock, Duration::from_secs(3_600)) {}
}
