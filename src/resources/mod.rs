//! The embedded applier of ManagedResources, which does the work of gardener-resource-manager in a seed.
//!
//! A ManagedResource names Secrets with manifests. The applier keeps a cluster in the described state and reports three
//! conditions. Each class has its `target`: the seed for class `seed`, with the client type `Applier`, and clusters of
//! shoots, which are added and removed at runtime. It works only while the agent holds the lease that
//! gardener-resource-manager itself uses: its client checks the lease. The records in `status.resources` are exact, so
//! that the real program can take over at any time.
//!
//! The data flow: `reconcile` reads the live ManagedResource and its Secrets, `unpack` splits them into documents,
//! `decode` plans what to do with them, `order` sorts them, `memory` checks whether there is room, `removal` decides
//! about objects that left the set, `merge` combines a desired and a live object into the one to write, `unchanged`
//! skips writes without effect. `workload` notices changes of applied workloads at once, `inventory` notices changes of
//! other kinds periodically, `survey` lists those of a Shoot; `health` and `progress` check applied objects, `calm` remembers
//! those that are well, `garbage` collects Secrets and ConfigMaps that nothing refers to any more. Only `reconcile`, `apply`,
//! `remove`, `check`, `inventory`, `survey` and `garbage` send requests to a server; the rest is pure.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::kube;
use crate::runtime::controller::{ReconcileContext, ReconcileOutcome};
use crate::runtime::group::ControllerGroup;
use crate::runtime::marks::Marks;
use crate::runtime::pool::Lane;
use crate::runtime::queue::{RETRY_DEFAULT, Retry};
use crate::runtime::source::WatchSource;
use crate::runtime::store::Store;

mod apply;
mod calm;
mod check;
mod decode;
mod error;
mod fault;
mod garbage;
mod head;
mod health;
mod inventory;
mod memory;
mod merge;
pub(crate) mod names;
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
mod survey;
mod target;
mod trigger;
mod unchanged;
mod unpack;
mod weight;
mod workload;

pub(crate) use check::ChecksReconciler;
pub(crate) use fault::{ManagedResourceFault, RolloutPatience};
pub(crate) use garbage::GarbageCollector;
pub(crate) use health::check_object;
pub(crate) use inventory::InventoryReconciler;
pub(crate) use reconcile::ResourcesReconciler;
pub(crate) use secrets::watch_secrets;
pub(crate) use target::Class;
pub use target::TargetCluster;
pub(crate) use trigger::{ManagedResourceHead, ManagedResourceHeadCondition, REPORTED};
pub(crate) use workload::watch_workloads;

use trigger::{wants_apply, wants_check};

/// How many ManagedResources are applied and how many are checked at once, as in gardener-resource-manager.
const APPLY_WORKERS: u32 = 20;
const CHECK_WORKERS: u32 = 5;

/// Adds the applier's controllers.
pub(crate) fn add(
    resources: &ManagedResourceApplier,
    managed: &WatchSource<ManagedResourceHead>,
    secrets: &Marks,
    group: &mut ControllerGroup,
) {
    let lane = group.lane("managedresource", APPLY_WORKERS, RETRY_DEFAULT);
    wake(resources, &lane, managed, group, wants_apply);
    let (known, shared) = (managed.store().clone(), Arc::clone(&resources.0));
    group.wake_seen(&lane, secrets, move |secret| secrets::readers(&known, &shared.targets, secret));
    let apply = lane.clone();
    group.run(lane, resources.applying());

    let lane =
        group.lane("managedresource-health", CHECK_WORKERS, Retry::up_to(resources.0.settings.check_period));
    wake(resources, &lane, managed, group, wants_check);
    let check = lane.clone();
    workload::wake(resources, &apply, &check, group);
    group.run(lane, resources.checks());

    resources.0.targets.seed.inventory.clear();
    resources.0.calm.clear();
    let retry = Retry::up_to(resources.0.settings.check_period);
    let lane = group.lane("managedresource-inventory", 1, retry);
    let collect = group.lane("garbage-collector", 1, RETRY_DEFAULT);
    collect.add(garbage::key(""));
    let managed = managed.store().clone();
    let lanes = Lanes { managed, apply, check, list: lane.clone(), collect: collect.clone() };
    *resources.0.lanes.lock().ignore_poison() = Some(lanes);
    group.run(lane, InventoryReconciler(Arc::clone(&resources.0)));
    group.run(collect, resources.garbage_collector());
}

/// Wakes the queue when a change of a ManagedResource matters for the applier of its class.
fn wake(
    resources: &ManagedResourceApplier,
    lane: &Lane,
    managed: &WatchSource<ManagedResourceHead>,
    group: &mut ControllerGroup,
    is_reason: fn(Class, Option<&ManagedResourceHead>, Option<&ManagedResourceHead>) -> bool,
) {
    let shared = Arc::clone(&resources.0);
    group.wake(lane, managed, move |change| {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        let known = new.or(old)?;
        let target = shared.targets.of(&known.metadata, &known.spec.class)?;
        is_reason(target.class, old, new).then(|| change.key.clone())
    });
}

/// How often periodic work runs (a tenth more or less), and whether garbage is collected.
#[derive(Clone, Debug)]
pub struct ApplierSettings {
    /// How often a ManagedResource is applied.
    pub(crate) sync_period: Duration,
    /// How often its objects are checked.
    pub(crate) check_period: Duration,
    /// How often garbage is collected.
    pub(crate) collect_period: Duration,
    /// Whether garbage is collected at all. If so, Secrets and ConfigMaps with the label are left to the collector.
    pub(crate) collector_runs: bool,
}

impl Default for ApplierSettings {
    /// The defaults of gardener-resource-manager in a seed.
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(3_600),
            check_period: Duration::from_secs(60),
            collect_period: Duration::from_secs(12 * 3_600),
            collector_runs: true,
        }
    }
}

/// A period, between 90 % and 110 % of it, so that keys that start together spread out.
fn jittered(period: Duration) -> ReconcileOutcome {
    ReconcileOutcome::After(period.mul_f64(0.9 + 0.2 * random::unit()))
}

/// When to retry a ManagedResource for which there was no memory.
fn later() -> ReconcileOutcome {
    jittered(Duration::from_secs(1))
}

/// The state that the reconcilers share.
#[derive(Debug)]
struct ApplierContext {
    client: kube::Applier,
    targets: target::TargetClusters,
    memory: memory::MemoryBudget,
    settings: ApplierSettings,
    workloads: workload::Workloads,
    calm: calm::CalmResources,
    /// Set once they run.
    lanes: Mutex<Option<Lanes>>,
}

/// The known ManagedResources, and the queues: those to apply and to check, kinds to list, and clusters to collect garbage in.
#[derive(Clone, Debug)]
struct Lanes {
    managed: Store<ManagedResourceHead>,
    apply: Lane,
    check: Lane,
    list: Lane,
    collect: Lane,
}

impl ApplierContext {
    fn lanes(&self) -> Option<Lanes> {
        self.lanes.lock().ignore_poison().clone()
    }

    fn session<'a>(&'a self, target: &'a TargetCluster, cx: &'a ReconcileContext) -> session::Session<'a> {
        session::Session { own: &self.client, target, cx }
    }
}

/// The applier: three reconcilers around one client.
#[derive(Clone, Debug)]
pub struct ManagedResourceApplier(Arc<ApplierContext>);

impl ManagedResourceApplier {
    /// An applier that has not started.
    pub fn new(client: kube::Applier, settings: ApplierSettings) -> Self {
        let targets = target::TargetClusters::new(TargetCluster::seed(&client));
        Self(Arc::new(ApplierContext {
            client,
            targets,
            memory: memory::MemoryBudget::default(),
            settings,
            workloads: workload::Workloads::default(),
            calm: calm::CalmResources::default(),
            lanes: Mutex::default(),
        }))
    }

    /// Sets the target for ManagedResources without a class in a namespace. Without a target they are not touched, and
    /// applied objects stay. The client must check the lease before it writes.
    pub fn set_target(
        &self,
        namespace: &str,
        target: Option<TargetCluster>,
        managed: &WatchSource<ManagedResourceHead>,
    ) {
        let is_served = target.is_some();
        self.0.targets.set(namespace, target);
        self.0.calm.forget_all_in(namespace);
        let Some(Lanes { apply, check, collect, .. }) = self.0.lanes() else { return };
        if is_served {
            collect.add_after(garbage::key(namespace), garbage::first(random::unit()));
        }
        for (key, _) in managed.store().all() {
            if key.namespace == namespace {
                apply.add(key.clone());
                check.add(key);
            }
        }
    }

    /// Applies ManagedResources.
    pub fn applying(&self) -> ResourcesReconciler {
        ResourcesReconciler(Arc::clone(&self.0))
    }

    /// Checks the objects of ManagedResources.
    pub fn checks(&self) -> ChecksReconciler {
        ChecksReconciler(Arc::clone(&self.0))
    }

    /// Collects garbage.
    pub fn garbage_collector(&self) -> GarbageCollector {
        GarbageCollector(Arc::clone(&self.0))
    }
}
