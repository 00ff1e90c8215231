//! The NetworkPolicies of the seed (Gardener's `networkpolicy`, and that of gardener-resource-manager): the central ones of each
//! namespace, and those that Services ask for. It needs no garden.
//!
//! The key is a namespace: all policies there are decided together, so that `deny-all` comes last. Woken by namespaces, Services,
//! pods and policies; the key without a name looks where the API server of the seed is.
//!
//! Policies that Services ask for are the agent's while its applier has the lease. Until it is known whose they are, no namespace
//! is closed.

mod act;
mod central;
mod decide;
mod observe;
mod policy;
mod server;
mod services;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::api::extensions::CLUSTER;
use crate::api::meta::{Key, ObjectMeta, text};
use crate::base::random;
use crate::base::sorted::SortedMap;
use crate::components::hosting;
use crate::config::settings::Settings;
use crate::kube::Seed;
use crate::runtime::alike::{Alike, Altered};
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::group::Group;
use crate::runtime::pool::Lane;
use crate::runtime::queue::Retry;
use crate::shoot::Served;

use central::{Central, Given, Networks, ShootNetworks};
use decide::{Step, Wanted};
use server::Known;

pub use decide::Whose;
pub use observe::Sight;
pub use server::{Server, name};

/// How often it is looked where the API server is.
const SERVER_PERIOD: Duration = Duration::from_secs(30);
/// How soon to look again while a watch has told nothing yet.
const AGAIN_SOON: Duration = Duration::from_secs(1);
/// What fails is tried again within a minute: a pod may wait for it.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The key of the look at the API server.
fn server_key() -> Key {
    Key::default()
}

/// See the module.
#[derive(Debug)]
pub struct NetworkPolicies {
    seed: Seed,
    sight: Sight,
    server: Server,
    networks: Networks,
    additional: Vec<Value>,
    lane: Lane,
    /// By namespace, as `Cluster` objects say.
    shoots: Arc<Mutex<SortedMap<String, ShootNetworks>>>,
}

/// Adds the controller. The watches are the caller's.
pub fn add(
    settings: &Settings,
    seed: &Seed,
    sight: &Sight,
    server: Server,
    served: &Served,
    group: &mut Group,
) {
    let of = &settings.controllers.network_policy;
    let lane = group.lane("network-policy", of.workers, Retry::up_to(RETRY_MAX));
    let shoots = Arc::default();
    wake(sight, &lane, group);
    wake_by_clusters(served, &lane, &shoots, group);
    lane.add(server_key());
    let reconciler = NetworkPolicies {
        seed: seed.clone(),
        sight: sight.clone(),
        server,
        networks: Networks::read(&settings.seed_config.spec["networks"]),
        additional: of.additional_namespace_selectors.clone(),
        lane: lane.clone(),
        shoots,
    };
    group.run(lane, reconciler);
}

fn wake(sight: &Sight, lane: &Lane, group: &mut Group) {
    let known = sight.clone();
    group.wake(lane, sight.namespaces(), move |change| {
        let look = |metadata: &ObjectMeta| {
            (metadata.uid.clone(), metadata.labels.clone(), metadata.deletion_timestamp.is_some())
        };
        let both = [&change.old, &change.new].map(|namespace| namespace.as_ref().map(|of| &of.metadata));
        let mut keys = Vec::new();
        if both[0].map(look) != both[1].map(look) {
            keys.push(change.key.clone());
            // Pods there may be let in elsewhere, or not any more.
            let others = both.into_iter().flatten().flat_map(|namespace| known.open_to(namespace));
            keys.extend(others.map(|(name, _)| Key::new("", &*name)));
        }
        keys
    });
    let (known, waking) = (sight.clone(), lane.clone());
    group.keep(sight.services.listen(move |altered| {
        waking.add(Key::new("", &*altered.namespace));
        let looks = [&altered.old, &altered.new].into_iter().flatten();
        let open = looks.flat_map(|look| known.open_from(look));
        open.for_each(|name| waking.add(Key::new("", name)));
    }));
    let (known, waking) = (sight.clone(), lane.clone());
    group.keep(sight.pods.listen(move |altered| {
        if !is_news(&known.pods, altered) {
            return;
        }
        waking.add(Key::new("", &*altered.namespace));
        let namespace = known.namespace(&altered.namespace);
        let open = namespace.iter().flat_map(|namespace| known.open_to(&namespace.metadata));
        open.for_each(|(name, _)| waking.add(Key::new("", &*name)));
    }));
    let waking = lane.clone();
    group.keep(sight.policies.listen(move |altered| {
        if [&altered.old, &altered.new].into_iter().flatten().any(|look| !look.is_empty()) {
            waking.add(Key::new("", &*altered.namespace));
        }
    }));
    let known = sight.clone();
    group.wake_on(lane, &sight.whose_changed, move || all(&known));
}

/// Whether the pods of the namespace have other labels than before: one of several that look alike makes no difference.
fn is_news(pods: &Alike, altered: &Altered) -> bool {
    let there = pods.within(&altered.namespace);
    let count = |look: &Option<Arc<str>>| {
        let look = look.as_ref().filter(|look| !look.is_empty());
        look.map(|look| there.iter().filter(|other| *other == look).count())
    };
    count(&altered.old) == Some(0) || count(&altered.new) == Some(1)
}

/// Whoever writes the `Cluster` of a Shoot hands it over, so that nobody has to read it.
fn wake_by_clusters(
    served: &Served,
    lane: &Lane,
    shoots: &Arc<Mutex<SortedMap<String, ShootNetworks>>>,
    group: &mut Group,
) {
    let (waking, shoots) = (lane.clone(), Arc::clone(shoots));
    group.keep(served.clusters().add(move |cluster: &Value| {
        let (name, networks) = (text(&cluster["metadata"]["name"]), ShootNetworks::read(cluster));
        let mut shoots = shoots.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shoots.insert(name.to_owned(), networks.clone());
        // Its namespace comes later, and is news by itself.
        if before.is_some_and(|before| before != networks) {
            waking.add(Key::new("", name));
        }
    }));
}

/// The keys of all namespaces.
fn all(sight: &Sight) -> Vec<Key> {
    sight.namespaces().store().all().into_iter().map(|(key, _)| key).collect()
}

impl Reconciler for NetworkPolicies {
    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        if *key == server_key() {
            if self.server.look(cx.clock.mono())? {
                all(&self.sight).into_iter().for_each(|key| self.lane.add(key));
            }
            return Ok(Outcome::After(SERVER_PERIOD.mul_f64(0.9 + 0.2 * random::unit())));
        }
        // Once: that it is the agent's turn may be said in between, and then Services may not be known yet.
        let whose = self.sight.whose();
        if !self.sight.is_synced(whose) {
            return Ok(Outcome::After(AGAIN_SOON));
        }
        let Some(namespace) = self.sight.namespace(&key.name) else {
            self.shoots().remove(&key.name);
            return Ok(Outcome::Done);
        };
        // The look at the API server wakes all.
        let Some(known) = self.server.known() else { return Ok(Outcome::Done) };
        if namespace.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        self.bring(&namespace.metadata, &known, whose)
    }
}

impl NetworkPolicies {
    fn shoots(&self) -> MutexGuard<'_, SortedMap<String, ShootNetworks>> {
        self.shoots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bring(&self, namespace: &ObjectMeta, known: &Known, whose: Whose) -> Result<Outcome, Failure> {
        let (mut wanted, missing) = self.central(namespace, known)?;
        wanted.whose = whose;
        if whose == Whose::Ours {
            self.sight.ask(namespace, &mut wanted)?;
        }
        if self.sight.whose() != whose || !self.sight.is_synced(whose) {
            // What was read may have been forgotten meanwhile.
            return Ok(Outcome::After(AGAIN_SOON));
        }
        let name = namespace.name.as_str();
        let plan = decide::plan(name, wanted, &self.sight.policies.within(name));
        for step in &plan.steps {
            if is_of_service(step) && self.sight.whose() != Whose::Ours {
                // Whoever has the lease now writes them.
                return Ok(Outcome::Done);
            }
            act::step(&self.seed, name, step)?;
        }
        if plan.stays_open {
            log::debug!(namespace = name; "The namespace stays open: not all is known that has to be allowed in it");
        }
        missing.map_or(Ok(Outcome::Done), Err)
    }

    /// The central policies, and what is missing for some of them.
    fn central(&self, namespace: &ObjectMeta, known: &Known) -> Result<(Wanted, Option<Failure>), Failure> {
        let host = self.sight.namespace("kube-system");
        let is_hosted = host.is_some_and(|namespace| hosting::has_role_shoot(&namespace.metadata));
        if known.is_garden || is_hosted {
            return Ok((Wanted::default(), None));
        }
        let shoot = if central::is_of_shoot(&namespace.name) { self.shoot(&namespace.name)? } else { None };
        let given = Given {
            networks: &self.networks,
            additional: &self.additional,
            api_server: known.rules.as_ref().map(|rules| rules.as_slice()),
            shoot: shoot.as_ref(),
        };
        let Central { policies, unknown } = central::policies(namespace, &given);
        let is_missing = shoot.is_none() && unknown.iter().any(|name| name.ends_with("private-networks"));
        let missing = is_missing.then(|| {
            Failure::retry(format!(
                "the seed has no Cluster {0}, which names the networks of the Shoot: until it has, namespace {0} is not closed",
                namespace.name
            ))
        });
        Ok((Wanted { policies, unknown, has_central: true, ..Wanted::default() }, missing))
    }

    /// The networks of a Shoot.
    fn shoot(&self, name: &str) -> Result<Option<ShootNetworks>, Failure> {
        if let Some(known) = self.shoots().get(name) {
            return Ok(Some(known.clone()));
        }
        let cluster = self.seed.find::<Value>(&CLUSTER, "", name)?;
        let networks = cluster.as_ref().map(ShootNetworks::read);
        if let Some(networks) = &networks {
            self.shoots().insert(name.to_owned(), networks.clone());
        }
        Ok(networks)
    }
}

fn is_of_service(step: &Step) -> bool {
    match step {
        Step::Create(policy) | Step::Change(policy) => policy.service.is_some(),
        Step::Delete(name) => !policy::CENTRAL.contains(&name.as_str()),
    }
}
