//! Everything but the agent: a garden, a seed, and the stand-in for the nodes of the seed. The agent is another process, such
//! as a service of the machine, or one that a person starts.

use std::sync::Arc;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use serde_json::json;

use crate::desk::Desk;
use crate::screen::Screen;
use crate::shoot;
use support::cluster::Authorization;
use support::garden::Garden;
use support::garden::prepare::{self, Preparation};
use support::shoot::owner;
use support::{Options, TestCluster};

/// The seed of `packaging/systemd/config.yaml`.
const SEED: &str = "edge-1";

/// Starts the clusters, writes files into the folder, then an empty file `ready`, and runs until it is stopped.
///
/// - `bootstrap.kubeconfig` and `seed.kubeconfig` (with the roles of `packaging/rbac.yaml` alone) are for the agent, and
///   `gardenlet.yaml` is a configuration that names both.
/// - `garden` and `seed` are kubeconfigs of an administrator.
/// - `gardenlet` is the agent's program.
/// - `shoot.yaml` is a Shoot to be applied, and `kubeconfig-request.json` asks for a kubeconfig of it.
pub fn serve(desk: &mut Desk, stop: &Stop) {
    let screen = Screen::new();
    screen.title("A garden and a seed start");
    let clock = Clock::system();
    let garden = Garden::start(&clock);
    let preparation = Preparation::new(SEED, clock.now());
    garden.apply(&preparation.garden());
    garden.apply(&prepare::provider());
    let mut options = Options::new("seed", &clock);
    options.authorization = Authorization::Rbac;
    let seed = TestCluster::start(options);
    let bootstrap = garden.bootstrap_kubeconfig(&preparation.token());
    // The agent gets the bootstrap kubeconfig as a file.
    let mut objects = prepare::seed(&bootstrap);
    objects.retain(|object| object["kind"] != "Secret");
    objects.push(crate::cluster_admin());
    seed.apply(&objects);
    let _site = Arc::new(shoot::prepare(&garden, &seed));
    let account = seed.get("", "serviceaccounts", "garden", "gardenlet").unwrap();
    let token = seed.server().shared.tokens().issue(&account, &[], clock.now(), 86_400);
    desk.write("bootstrap.kubeconfig", &bootstrap);
    desk.write("seed.kubeconfig", &seed.bootstrap_kubeconfig(&token));
    desk.write("garden", &garden.admin_kubeconfig());
    desk.write("seed", &seed.admin_kubeconfig());
    let file = desk.path().join("bootstrap.kubeconfig");
    desk.configure(SEED, &json!({"bootstrap": {"kubeconfig": file}}));
    desk.write_yaml("shoot.yaml", &shoot::manifest());
    desk.write("kubeconfig-request.json", &format!("{}\n", owner::request()));
    explain(desk, &screen);
    desk.write("ready", "");
    while !stop.wait(&clock, Duration::from_secs(3_600)) {}
}

/// Starts a garden and a seed without anything that an operator applies, with the stand-in for the nodes of the seed.
/// Writes `garden.kubeconfig` and `seed.kubeconfig` of administrators, then an empty file `ready`, and runs until it is
/// stopped.
pub fn serve_bare(desk: &mut Desk, stop: &Stop) {
    let screen = Screen::new();
    screen.title("A garden and a seed start");
    let clock = Clock::system();
    let garden = Garden::start(&clock);
    let mut objects = Preparation::new(SEED, clock.now()).garden();
    objects.retain(|object| object["type"] != "bootstrap.kubernetes.io/token");
    garden.apply(&objects);
    let mut options = Options::new("seed", &clock);
    options.authorization = Authorization::Rbac;
    let seed = TestCluster::start(options);
    seed.apply(&[crate::cluster_admin()]);
    let _site = Arc::new(shoot::site(&seed));
    desk.write("garden.kubeconfig", &garden.admin_kubeconfig());
    desk.write("seed.kubeconfig", &seed.admin_kubeconfig());
    screen.title(
        "A new garden and a new seed run until Ctrl-C. Prepare them as README.md says, in another terminal:",
    );
    screen.plain(&format!("  cd {}", desk.path().display()));
    screen.plain("  kubectl --kubeconfig=garden.kubeconfig get namespaces");
    screen.plain("  kubectl --kubeconfig=seed.kubeconfig get namespaces");
    desk.write("ready", "");
    while !stop.wait(&clock, Duration::from_secs(3_600)) {}
}

/// What a person can do now.
fn explain(desk: &Desk, screen: &Screen) {
    let line = |text: &str| screen.plain(&format!("  {text}"));
    let (namespace, name) = (shoot::NAMESPACE, shoot::NAME);
    screen
        .title("A garden and a seed without an agent run until Ctrl-C. Start the agent in another terminal:");
    line(&format!("export PLAYGROUND={}", desk.path().display()));
    line("$PLAYGROUND/gardenlet --config=$PLAYGROUND/gardenlet.yaml");
    screen.title("Create a Shoot, and watch how it comes up (in a third terminal, with the same export):");
    line("kubectl --kubeconfig=$PLAYGROUND/garden get seeds");
    line("kubectl --kubeconfig=$PLAYGROUND/garden apply -f $PLAYGROUND/shoot.yaml");
    line("kubectl --kubeconfig=$PLAYGROUND/garden get shoots -A -w");
    line("kubectl --kubeconfig=$PLAYGROUND/seed get managedresources,deployments,statefulsets,pods -A");
    line(&format!("$PLAYGROUND/gardenlet status --address=127.0.0.1:{}", desk.probes));
    screen.title("Ask the garden for a kubeconfig of the Shoot, and use it:");
    line(&format!(
        "kubectl --kubeconfig=$PLAYGROUND/garden create --raw \
         /apis/core.gardener.cloud/v1beta1/namespaces/{namespace}/shoots/{name}/adminkubeconfig \
         -f $PLAYGROUND/kubeconfig-request.json | \
         sed 's/.*\"kubeconfig\":\"\\([^\"]*\\)\".*/\\1/' | base64 -d > $PLAYGROUND/shoot"
    ));
    line("kubectl --kubeconfig=$PLAYGROUND/shoot get namespaces");
}
