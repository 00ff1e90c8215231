//! The seed side: everything that needs only the seed and continues without a garden. It installs definitions first,
//! then starts the watch on ManagedResources, which wakes the care controller for installations (regardless of who
//! applies them), then the embedded [`applier`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::resources::MANAGED_RESOURCE;
use crate::base::backoff::{Backoff, delay_after};
use crate::base::stop::Stop;
use crate::components::{crds, hosting, install};
use crate::config::settings::ResourceManager;
use crate::controllers::network_policy::{self, ApiServerCheck, ServicePolicyWriter};
use crate::controllers::{is_garden, token_requestor, watch_namespaces};
use crate::kube;
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::Options;

use super::controllers::group;
use super::status::complain;
use super::{AgentContext, applier};

/// Name of the thread in progress reports.
pub(super) const PART: &str = "seed";
/// The longest pause between two checks for the end of the term; a stop wakes it sooner.
const LONG: Duration = Duration::from_secs(3_600);
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Why the definitions are not installed.
#[derive(Debug)]
enum Error {
    Host(kube::Error),
    SelfHosted,
    Definitions(kube::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host(_) => "check whether the seed cluster is also a garden or a shoot",
            Self::SelfHosted => hosting::SELF_HOSTED,
            Self::Definitions(_) => "install the custom resource definitions in the seed",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Host(source) | Self::Definitions(source) => Some(source),
            Self::SelfHosted => None,
        }
    }
}

impl Error {
    /// The request was not sent because of a local limit, so there is nothing to report.
    fn is_postponed(&self) -> bool {
        match self {
            Self::Host(source) | Self::Definitions(source) => source.postponed().is_some(),
            Self::SelfHosted => false,
        }
    }
}

/// It runs until `stop` is set.
pub(super) fn run(shared: &Arc<AgentContext>, stop: &Stop) {
    let mut group = group(shared, stop);
    let options = Options::all("seed/managedresources", MANAGED_RESOURCE);
    // Start the watch first: the agent is not ready without it.
    let managed = shared.managed.store().clone();
    shared.status.informer(options.name, move || managed.view());
    let applies = shared.settings.edge.resource_manager != ResourceManager::External;
    token_requestor::watch(&shared.clients.seed, &shared.tokens.secrets, applies, &mut group);
    if install_definitions(shared, stop) {
        group.watch(&shared.clients.seed, options, &shared.managed);
        control_traffic(shared, &mut group);
        match shared.settings.edge.resource_manager {
            ResourceManager::Auto | ResourceManager::Embedded => applier::run(shared, stop),
            ResourceManager::External => {
                shared.policy_watches.set_service_policy_writer(ServicePolicyWriter::Others);
                shared.status.stage(applier::PART, "left to gardener-resource-manager");
            }
        }
    }
    shared.status.progress.end(PART);
    while !stop.is_stopped() {
        stop.wait(&shared.env.clock, LONG);
    }
    group.join();
}

/// Starts to write NetworkPolicies.
fn control_traffic(shared: &AgentContext, group: &mut ControllerGroup) {
    let (clients, env, policy_watches) = (&shared.clients, &shared.env, &shared.policy_watches);
    let port = env.variable("KUBERNETES_SERVICE_PORT");
    let name =
        network_policy::name(&clients.seed_connection.server, env.variable("KUBERNETES_SERVICE_HOST"), port);
    let server = ApiServerCheck::new(clients.seed_of_workers.clone(), Arc::clone(&env.dialer), name);
    watch_namespaces(&clients.seed, policy_watches.namespaces(), group);
    policy_watches.watch_policies(&clients.seed, group);
    network_policy::add(
        &shared.settings,
        &clients.seed_of_workers,
        policy_watches,
        server,
        &shared.served,
        group,
    );
}

fn install_definitions(shared: &AgentContext, stop: &Stop) -> bool {
    shared.status.stage(PART, "installing custom resource definitions");
    let (mut backoff, mut looks) = (Backoff::new(RETRY.0, RETRY.1), 0);
    while !stop.is_stopped() {
        shared.status.progress.beat(PART, Duration::from_secs(600));
        let wait = match ensure_definitions(&shared.clients.seed) {
            Ok(install::Step::Done) => {
                shared.status.stage(PART, "running");
                return true;
            }
            Ok(install::Step::Again(waiting)) => {
                let first = waiting.first().map(ToString::to_string).unwrap_or_default();
                shared.status.problem(PART, &first);
                // Each check reads all definitions.
                let wait = delay_after(install::AGAIN, install::AGAIN_MAX, looks);
                looks = looks.saturating_add(1);
                wait
            }
            Err(error) if error.is_postponed() => RETRY.0,
            Err(error) => {
                complain(&shared.status, PART, &error);
                backoff.next_delay()
            }
        };
        stop.wait(&shared.env.clock, wait);
    }
    false
}

/// Nothing is written to a cluster that another gardenlet manages.
fn ensure_definitions(seed: &kube::Seed) -> Result<install::Step, Error> {
    if hosting::is_self_hosted_shoot(seed).map_err(Error::Host)? {
        return Err(Error::SelfHosted);
    }
    let is_garden = is_garden(seed).map_err(Error::Host)?;
    install::ensure(seed, crds::own(is_garden)).map_err(Error::Definitions)
}
