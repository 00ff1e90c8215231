//! The seed side: what needs the seed only and goes on without a garden. Definitions first, then the watch on
//! ManagedResources, which wakes the care for installations whoever applies them, then the embedded [`applier`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::resources::MANAGED_RESOURCE;
use crate::base::backoff::Backoff;
use crate::base::stop::Stop;
use crate::components::{crds, install};
use crate::config::settings::ResourceManager;
use crate::controllers::controller_installation as installation;
use crate::kube;
use crate::resources::{Watched, wants_apply, wants_check};
use crate::runtime::informer::{Handler, Options};

use super::controllers::inform;
use super::status::complain;
use super::{Shared, applier, join};

/// What the thread is called where it promises progress.
pub(super) const PART: &str = "seed";
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Why the definitions are not there.
#[derive(Debug)]
struct Definitions(kube::Error);

impl fmt::Display for Definitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("install the custom resource definitions in the seed")
    }
}

impl std::error::Error for Definitions {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Runs until `stop`.
pub(super) fn run(shared: &Arc<Shared>, stop: &Stop) {
    let mut informer = None;
    let options = Options::all("seed/managedresources", MANAGED_RESOURCE);
    // From the beginning: nobody is ready without it.
    let managed = shared.managed.clone();
    shared.status.informer(options.name, move || managed.view());
    if install_definitions(shared, stop) {
        let handler = on_resource(shared);
        informer = inform(shared, stop, &shared.clients.seed, options, &shared.managed, handler);
        match shared.settings.edge.resource_manager {
            ResourceManager::Auto | ResourceManager::Embedded => applier::run(shared, stop),
            ResourceManager::External => {
                shared.status.stage(applier::PART, "left to gardener-resource-manager");
            }
        }
    }
    shared.status.progress.end(PART);
    if let Some(informer) = informer {
        join("informer", informer);
    }
}

fn install_definitions(shared: &Shared, stop: &Stop) -> bool {
    shared.status.stage(PART, "installing custom resource definitions");
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    while !stop.is_stopped() {
        shared.status.progress.beat(PART, Duration::from_secs(600));
        let wait = match shared.fence.check(super::clients::write_deadline(&shared.settings.leader_election))
        {
            Err(_) => RETRY.0,
            Ok(()) => match install::ensure(&shared.clients.seed, crds::all()) {
                Ok(install::Step::Done) => {
                    shared.status.stage(PART, "running");
                    return true;
                }
                Ok(install::Step::Again(waiting)) => {
                    let first = waiting.first().map(ToString::to_string).unwrap_or_default();
                    shared.status.problem(PART, &first);
                    install::AGAIN
                }
                Err(source) => {
                    complain(&shared.status, PART, &Definitions(source));
                    backoff.next_delay()
                }
            },
        };
        stop.wait(&shared.env.clock, wait);
    }
    false
}

/// The applier's lanes keep the keys until it works.
fn on_resource(shared: &Arc<Shared>) -> Handler<Watched> {
    let shared = Arc::clone(shared);
    let embedded = shared.settings.edge.resource_manager.is_here();
    Box::new(move |change| {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if embedded && wants_apply(old, new) {
            shared.lanes.apply.add(change.key.clone());
        }
        if embedded && wants_check(old, new) {
            shared.lanes.checks.add(change.key.clone());
        }
        if let Some(installation) = installation::wants_care(old, new) {
            shared.lanes.care.add(installation);
        }
        if let Some(installation) = installation::wants_rollout(old, new) {
            shared.lanes.installation.add(installation);
        }
    })
}
