//! The NetworkPolicies of the seed (Gardener's `networkpolicy`, and gardener-resource-manager's controller of that
//! name): the central policies of each namespace, and the policies that Services request. It needs no garden.
//!
//! The key is a namespace: all its policies are decided together, so that `deny-all` is created last. Woken by
//! namespaces, Services, pods and policies. The key without a name checks the address of the seed's API server.
//!
//! The agent writes the policies of Services while its applier holds the lease. Until their writer is known, no
//! namespace is closed.

mod act;
mod central;
mod decide;
mod observe;
mod policy;
mod server;
mod services;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use crate::api::extensions::CLUSTER;
use crate::api::meta::{Key, ObjectMeta, text};
use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::base::sorted::SortedMap;
use crate::components::hosting;
use crate::config::settings::Settings;
use crate::kube::Seed;
use crate::runtime::alike::{TextChange, TextStore};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::pool::Lane;
use crate::runtime::queue::Retry;
use crate::shoot::ServedShoots;

use central::{CentralPolicies, CentralPolicyInput, Networks, ShootNetworks};
use decide::{DesiredPolicies, PolicyWrite};
use server::KnownApiServer;

pub(crate) use decide::ServicePolicyWriter;
pub(crate) use observe::NetworkPolicyWatches;
pub(crate) use server::{ApiServerCheck, name};

/// How often the address of the API server is checked.
const SERVER_PERIOD: Duration = Duration::from_secs(60);
/// How soon to check again while a watch has not synced yet.
const AGAIN_SOON: Duration = Duration::from_secs(1);
/// The longest retry delay: a pod may wait for a policy.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The key for the check of the API server.
fn server_key() -> Key {
    Key::default()
}

/// The state of the controller.
#[derive(Debug)]
pub(crate) struct NetworkPolicies {
    seed: Seed,
    policy_watches: NetworkPolicyWatches,
    server: ApiServerCheck,
    networks: Networks,
    additional: Vec<Value>,
    lane: Lane,
    /// By namespace, from `Cluster` objects.
    shoots: Arc<Mutex<SortedMap<String, ShootNetworks>>>,
}

/// Adds the controller. The caller owns the watches.
pub(crate) fn add(
    settings: &Settings,
    seed: &Seed,
    policy_watches: &NetworkPolicyWatches,
    server: ApiServerCheck,
    served: &ServedShoots,
    group: &mut ControllerGroup,
) {
    let of = &settings.controllers.network_policy;
    let lane = group.lane("network-policy", of.workers, Retry::up_to(RETRY_MAX));
    let shoots = Arc::default();
    wake(policy_watches, &lane, group);
    wake_by_clusters(served, &lane, &shoots, group);
    lane.add(server_key());
    let reconciler = NetworkPolicies {
        seed: seed.clone(),
        policy_watches: policy_watches.clone(),
        server,
        networks: Networks::read(&settings.seed_config.spec["networks"]),
        additional: of.additional_namespace_selectors.clone(),
        lane: lane.clone(),
        shoots,
    };
    group.run(lane, reconciler);
}

fn wake(policy_watches: &NetworkPolicyWatches, lane: &Lane, group: &mut ControllerGroup) {
    let known = policy_watches.clone();
    group.wake(lane, policy_watches.namespaces(), move |change| {
        let look = |metadata: &ObjectMeta| {
            (metadata.uid.clone(), metadata.labels.clone(), metadata.deletion_timestamp.is_some())
        };
        let both = [&change.old, &change.new].map(|namespace| namespace.as_ref().map(|of| &of.metadata));
        let mut keys = Vec::new();
        if both[0].map(look) != both[1].map(look) {
            keys.push(change.key.clone());
            // Policies elsewhere may have to allow pods of this namespace, or to stop allowing them.
            let others = both.into_iter().flatten().flat_map(|namespace| known.open_to(namespace));
            keys.extend(others.map(|(name, _)| Key::cluster(&*name)));
        }
        keys
    });
    let (known, waking) = (policy_watches.clone(), lane.clone());
    group.keep(policy_watches.services.listen(move |altered| {
        waking.add(Key::cluster(&*altered.namespace));
        let looks = [&altered.old, &altered.new].into_iter().flatten();
        let open = looks.flat_map(|look| known.open_from(look));
        open.for_each(|name| waking.add(Key::cluster(name)));
    }));
    let (known, waking) = (policy_watches.clone(), lane.clone());
    group.keep(policy_watches.pods.listen(move |altered| {
        if !is_news(&known.pods, altered) {
            return;
        }
        waking.add(Key::cluster(&*altered.namespace));
        let namespace = known.namespace(&altered.namespace);
        let open = namespace.iter().flat_map(|namespace| known.open_to(&namespace.metadata));
        open.for_each(|(name, _)| waking.add(Key::cluster(&*name)));
    }));
    let waking = lane.clone();
    group.keep(policy_watches.policies.listen(move |altered| {
        if [&altered.old, &altered.new].into_iter().flatten().any(|look| !look.is_empty()) {
            waking.add(Key::cluster(&*altered.namespace));
        }
    }));
    let known = policy_watches.clone();
    group.wake_on(lane, &policy_watches.writer_changed, move || all(&known));
}

/// Whether the set of pod labels in the namespace has changed. A pod that looks like another one makes no difference.
fn is_news(pods: &TextStore, altered: &TextChange) -> bool {
    let there = pods.within(&altered.namespace);
    let count = |look: &Option<Arc<str>>| {
        let look = look.as_ref().filter(|look| !look.is_empty());
        look.map(|look| there.iter().filter(|other| *other == look).count())
    };
    count(&altered.old) == Some(0) || count(&altered.new) == Some(1)
}

/// The writer of a Shoot's `Cluster` passes it on, so that it need not be read again.
fn wake_by_clusters(
    served: &ServedShoots,
    lane: &Lane,
    shoots: &Arc<Mutex<SortedMap<String, ShootNetworks>>>,
    group: &mut ControllerGroup,
) {
    let (waking, shoots) = (lane.clone(), Arc::clone(shoots));
    group.keep(served.clusters().add(move |cluster: &Value| {
        let (name, networks) = (text(&cluster["metadata"]["name"]), ShootNetworks::read(cluster));
        let mut shoots = shoots.lock().ignore_poison();
        let before = shoots.insert(name.to_owned(), networks.clone());
        // Its namespace is created later and wakes the controller itself.
        if before.is_some_and(|before| before != networks) {
            waking.add(Key::cluster(name));
        }
    }));
}

/// The keys of all namespaces.
fn all(policy_watches: &NetworkPolicyWatches) -> Vec<Key> {
    policy_watches.namespaces().store().all().into_iter().map(|(key, _)| key).collect()
}

impl Reconciler for NetworkPolicies {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        if *key == server_key() {
            if self.server.look(cx.clock.mono())? {
                all(&self.policy_watches).into_iter().for_each(|key| self.lane.add(key));
            }
            return Ok(ReconcileOutcome::After(SERVER_PERIOD.mul_f64(0.9 + 0.2 * random::unit())));
        }
        // Read it once: it may change in between, while Services may not be known yet.
        let writer = self.policy_watches.writer();
        if !self.policy_watches.is_synced(writer) {
            return Ok(ReconcileOutcome::After(AGAIN_SOON));
        }
        let Some(namespace) = self.policy_watches.namespace(&key.name) else {
            self.shoots().remove(&key.name);
            return Ok(ReconcileOutcome::Done);
        };
        // The check of the API server wakes all namespaces.
        let Some(known) = self.server.known() else { return Ok(ReconcileOutcome::Done) };
        if namespace.metadata.deletion_timestamp.is_some() {
            return Ok(ReconcileOutcome::Done);
        }
        self.apply(&namespace.metadata, &known, writer)
    }
}

impl NetworkPolicies {
    fn shoots(&self) -> MutexGuard<'_, SortedMap<String, ShootNetworks>> {
        self.shoots.lock().ignore_poison()
    }

    fn apply(
        &self,
        namespace: &ObjectMeta,
        known: &KnownApiServer,
        writer: ServicePolicyWriter,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        let (mut wanted, missing) = self.central(namespace, known)?;
        wanted.writer = writer;
        if writer == ServicePolicyWriter::Ours {
            self.policy_watches.ask(namespace, &mut wanted)?;
        }
        if self.policy_watches.writer() != writer || !self.policy_watches.is_synced(writer) {
            // The data may have been dropped meanwhile.
            return Ok(ReconcileOutcome::After(AGAIN_SOON));
        }
        let name = namespace.name.as_str();
        let plan = decide::plan(name, wanted, &self.policy_watches.policies.within(name));
        for step in &plan.steps {
            if is_of_service(step) && self.policy_watches.writer() != ServicePolicyWriter::Ours {
                // The holder of the lease writes them.
                return Ok(ReconcileOutcome::Done);
            }
            act::step(&self.seed, name, step)?;
        }
        if plan.stays_open {
            log::debug!(namespace = name; "The namespace stays open: some allowed traffic is not known yet");
        }
        missing.map_or(Ok(ReconcileOutcome::Done), Err)
    }

    /// The central policies, and what is missing for the others.
    fn central(
        &self,
        namespace: &ObjectMeta,
        known: &KnownApiServer,
    ) -> Result<(DesiredPolicies, Option<ReconcileFailure>), ReconcileFailure> {
        let host = self.policy_watches.namespace("kube-system");
        let is_hosted = host.is_some_and(|namespace| hosting::has_role_shoot(&namespace.metadata));
        if known.is_garden || is_hosted {
            return Ok((DesiredPolicies::default(), None));
        }
        let shoot = if central::is_of_shoot(&namespace.name) { self.shoot(&namespace.name)? } else { None };
        let given = CentralPolicyInput {
            networks: &self.networks,
            additional: &self.additional,
            api_server: known.rules.as_ref().map(|rules| rules.as_slice()),
            shoot: shoot.as_ref(),
        };
        let CentralPolicies { policies, unknown } = central::policies(namespace, &given);
        let is_missing = shoot.is_none() && unknown.iter().any(|name| name.ends_with("private-networks"));
        let missing = is_missing.then(|| {
            ReconcileFailure::retry(format!(
                "the seed has no Cluster {0}, which names the networks of the Shoot: until it has, namespace {0} is not closed",
                namespace.name
            ))
        });
        Ok((DesiredPolicies { policies, unknown, has_central: true, ..DesiredPolicies::default() }, missing))
    }

    /// The networks of a Shoot.
    fn shoot(&self, name: &str) -> Result<Option<ShootNetworks>, ReconcileFailure> {
        if let Some(known) = self.shoots().get(name) {
            return Ok(Some(known.clone()));
        }
        let cluster = self.seed.find::<Value>(&CLUSTER, &Key::cluster(name))?;
        let networks = cluster.as_ref().map(ShootNetworks::read);
        if let Some(networks) = &networks {
            self.shoots().insert(name.to_owned(), networks.clone());
        }
        Ok(networks)
    }
}

fn is_of_service(step: &PolicyWrite) -> bool {
    match step {
        PolicyWrite::Create(policy) | PolicyWrite::Change(policy) => policy.service.is_some(),
        PolicyWrite::Delete(name) => !policy::CENTRAL.contains(&name.as_str()),
    }
}
