//! Both clusters for an agent that is not in this process, such as a service of the machine.

use std::path::Path;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;

use crate::support::cluster::Authorization;
use crate::support::garden::Garden;
use crate::support::garden::prepare::{self, Preparation};
use crate::support::{Options, TestCluster};

/// The seed of `packaging/systemd/config.yaml`.
const SEED: &str = "edge-1";

/// Starts them, writes `seed.kubeconfig` (with the role of `packaging/rbac.yaml` alone) and `bootstrap.kubeconfig` into the
/// folder, then `ready`, and serves until it is stopped.
pub fn serve(folder: &Path, stop: &Stop) {
    let clock = Clock::system();
    let garden = Garden::start(&clock);
    let preparation = Preparation::new(SEED, clock.now());
    garden.apply(&preparation.garden());
    garden.apply(&prepare::provider());
    let mut options = Options::new("seed", &clock);
    options.authorization = Authorization::Rbac;
    let seed = TestCluster::start(options);
    let bootstrap = garden.bootstrap_kubeconfig(&preparation.token());
    // The service brings the bootstrap kubeconfig as a credential.
    let mut objects = prepare::seed(&bootstrap);
    objects.retain(|object| object["kind"] != "Secret");
    objects.push(crate::cluster_admin());
    seed.apply(&objects);
    let account = seed.get("", "serviceaccounts", "garden", "gardenlet").unwrap();
    let token = seed.server().shared.tokens().issue(&account, &[], clock.now(), 86_400);
    let write = |name: &str, content: &str| std::fs::write(folder.join(name), content).unwrap();
    write("bootstrap.kubeconfig", &bootstrap);
    write("seed.kubeconfig", &seed.bootstrap_kubeconfig(&token));
    write("ready", "");
    while !stop.wait(&clock, Duration::from_secs(3_600)) {}
}
