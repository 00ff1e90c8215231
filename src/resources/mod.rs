//! The embedded applier of ManagedResources: what gardener-resource-manager does with them in a seed.
//!
//! A ManagedResource names Secrets with manifests; the applier keeps the cluster as they say, and reports in three
//! conditions. It works only for class `seed`, with the client type `Applier`, and only while the lease that
//! gardener-resource-manager itself uses is held: its client asks. What is recorded in `status.resources` is exact, so that
//! the real program can take over at any time.
//!
//! The way of the data: `reconcile` reads the ManagedResource and its Secrets live, `unpack` cuts them into documents,
//! `decode` plans what becomes of them, `order` sorts them, `memory` says whether there is room, `removal` says what happens to objects that left the set, `merge` makes of a desired and a live
//! object the one to write, `unchanged` saves writes that would change nothing. `health` and `progress` look at applied
//! objects, `garbage` at Secrets and ConfigMaps that nothing refers to any more. Only `reconcile`, `apply`, `remove`,
//! `check` and `garbage` talk to a server; the rest is pure.

use std::sync::Arc;
use std::time::Duration;

use crate::api::meta::Key;
use crate::base::random;
use crate::kube::{self, Discovery};
use crate::runtime::controller::{Context, Outcome};
use crate::runtime::group::Group;
use crate::runtime::queue::{RETRY_DEFAULT, Retry};
use crate::runtime::source::Source;

mod apply;
mod check;
mod decode;
mod error;
mod garbage;
mod health;
mod memory;
mod merge;
pub mod names;
mod object;
mod order;
mod progress;
mod projected_token;
mod reconcile;
mod reference;
mod removal;
mod remove;
mod secrets;
mod session;
mod status;
mod trigger;
mod unchanged;
mod unpack;

pub use check::ChecksReconciler;
pub use error::Error;
pub use garbage::GarbageCollector;
pub use reconcile::ResourcesReconciler;
pub use secrets::{SecretVersion, watch_secrets};
pub use trigger::{REPORTED, Watched, WatchedCondition, WatchedSpec, WatchedStatus};

use trigger::{wants_apply, wants_check};

/// How many ManagedResources are applied at once, and how many are checked, as gardener-resource-manager does.
const APPLY_WORKERS: u32 = 20;
const CHECK_WORKERS: u32 = 5;

/// Adds the applier's controllers.
pub fn add(
    resources: &Resources,
    managed: &Source<Watched>,
    secrets: &Source<SecretVersion>,
    group: &mut Group,
) {
    let lane = group.lane("managedresource", APPLY_WORKERS, RETRY_DEFAULT);
    group.wake(&lane, managed, |change| {
        wants_apply(change.old.as_deref(), change.new.as_deref()).then(|| change.key.clone())
    });
    let known = managed.store().clone();
    group.wake(&lane, secrets, move |change| secrets::readers(&known, change));
    group.run(lane, resources.applying());

    let lane =
        group.lane("managedresource-health", CHECK_WORKERS, Retry::up_to(resources.0.settings.check_period));
    group.wake(&lane, managed, |change| {
        wants_check(change.old.as_deref(), change.new.as_deref()).then(|| change.key.clone())
    });
    group.run(lane, resources.checks());

    let lane = group.lane("garbage-collector", 1, RETRY_DEFAULT);
    lane.add(Key::new("", "all"));
    group.run(lane, resources.garbage_collector());
}

/// How often things are done without a reason (a tenth more or less), and by whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often a ManagedResource is applied.
    pub sync_period: Duration,
    /// How often its objects are looked at.
    pub check_period: Duration,
    /// How often garbage is collected.
    pub collect_period: Duration,
    /// Whether garbage is collected at all: then Secrets and ConfigMaps that say so are left to it.
    pub collector_runs: bool,
}

impl Default for Settings {
    /// As gardener-resource-manager runs in a seed.
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(3_600),
            check_period: Duration::from_secs(60),
            collect_period: Duration::from_secs(12 * 3_600),
            collector_runs: true,
        }
    }
}

/// A period, between 90 % and 110 % of it: what begins together shall not come back together.
fn jittered(period: Duration) -> Outcome {
    Outcome::After(period.mul_f64(0.9 + 0.2 * random::unit()))
}

/// When to come again to a ManagedResource for which there was no room.
fn later() -> Outcome {
    jittered(Duration::from_secs(1))
}

/// What the reconcilers share.
#[derive(Debug)]
struct Shared {
    client: kube::Applier,
    discovery: Discovery,
    settled: unchanged::Settled,
    memory: memory::Memory,
    settings: Settings,
}

impl Shared {
    fn session<'a>(&'a self, cx: &'a Context) -> session::Session<'a> {
        session::Session { client: &self.client, discovery: &self.discovery, cx }
    }
}

/// The applier: three reconcilers around one client.
#[derive(Clone, Debug)]
pub struct Resources(Arc<Shared>);

impl Resources {
    /// An applier that has not done anything yet.
    pub fn new(client: kube::Applier, settings: Settings) -> Self {
        let discovery = Discovery::new(client.0.clone());
        Self(Arc::new(Shared {
            client,
            discovery,
            settled: unchanged::Settled::default(),
            memory: memory::Memory::default(),
            settings,
        }))
    }

    /// Applies ManagedResources.
    pub fn applying(&self) -> ResourcesReconciler {
        ResourcesReconciler(Arc::clone(&self.0))
    }

    /// Checks their objects.
    pub fn checks(&self) -> ChecksReconciler {
        ChecksReconciler(Arc::clone(&self.0))
    }

    /// Collects garbage: one key, once.
    pub fn garbage_collector(&self) -> GarbageCollector {
        GarbageCollector(Arc::clone(&self.0))
    }
}
