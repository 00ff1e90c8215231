//! Serves the clusters of Shoots, as the gardener-resource-manager of each would: a Shoot's namespace in the seed
//! becomes a target of the applier as soon as its API server answers. It needs no garden.
//!
//! Woken by namespaces, and by writers of a control plane ([`ServedShoots::wake`]). Each check reads only cheap facts: the
//! replicas of the API server, whether another program does the work, and whether the server answers.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, DEPLOYMENT};
use crate::api::meta::{Key, text};
use crate::base::backoff::delay_after;
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::base::sorted::SortedMap;
use crate::components::exposure::KUBE_APISERVER;
use crate::components::{cluster_identity, webhooks};
use crate::kube::{self, Seed};
use crate::resources::{ManagedResourceApplier, ManagedResourceHead, TargetCluster};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::Retry;
use crate::runtime::source::WatchSource;
use crate::shoot::client::{Error, OpenedClient, ShootConnector};
use crate::shoot::{ServedShoots, ServingState};

use super::Namespace;

/// How many namespaces are checked at once. An unreachable server blocks a worker for seconds.
const WORKERS: u32 = 2;
/// How often a cluster is checked, whether it is served or not.
const PERIOD: Duration = Duration::from_secs(120);
const PERIOD_ASLEEP: Duration = Duration::from_secs(60);
/// The first and the longest delay after a failure.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The uid of a namespace, if it belongs to a Shoot.
fn of_shoot(namespace: &Namespace) -> Option<&str> {
    let metadata = &namespace.metadata;
    let is_of_shoot = metadata.labels.get("gardener.cloud/role").is_some_and(|role| role == "shoot");
    is_of_shoot.then_some(metadata.uid.as_str())
}

pub(crate) fn add(serving: ShootServing, group: &mut ControllerGroup) {
    let lane = group.lane("shoot-serving", WORKERS, Retry::up_to(AGAIN.1));
    serving.served.looks(&lane);
    group.wake(&lane, &serving.spaces, |change| {
        // Its metadata contains nothing else of interest.
        let uid = |space: &Option<Arc<Namespace>>| space.as_deref().and_then(of_shoot).map(str::to_owned);
        (uid(&change.old) != uid(&change.new)).then(|| change.key.clone())
    });
    group.run(lane, serving);
}

/// The state of the controller.
#[derive(Debug)]
pub(crate) struct ShootServing {
    seed: Seed,
    connector: ShootConnector,
    served: ServedShoots,
    resources: ManagedResourceApplier,
    managed: WatchSource<ManagedResourceHead>,
    spaces: WatchSource<Namespace>,
    identity: OnceLock<String>,
    known: Mutex<SortedMap<String, KnownNamespace>>,
}

/// The state of a namespace between two checks.
#[derive(Clone, Debug, Default)]
struct KnownNamespace {
    /// The uid of the namespace.
    uid: String,
    opened: Option<OpenedClient>,
    is_target: bool,
    failures: u32,
}

/// The decision from the workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ServingPlan {
    Serve,
    Leave(ServingState),
}

/// Decides from the replicas of both Deployments; `None` if one does not exist.
fn plan(server: Option<i64>, other: Option<i64>) -> ServingPlan {
    match (server, other) {
        (_, Some(1..)) => ServingPlan::Leave(ServingState::LeftToOther),
        (Some(1..), _) => ServingPlan::Serve,
        (Some(_), _) => ServingPlan::Leave(ServingState::Asleep),
        (None, _) => {
            ServingPlan::Leave(ServingState::Waiting(format!("there is no deployment {KUBE_APISERVER} yet")))
        }
    }
}

impl ShootServing {
    /// `connector` creates clients that check the applier's lease.
    pub(crate) fn new(
        seed: Seed,
        connector: ShootConnector,
        served: ServedShoots,
        resources: ManagedResourceApplier,
        managed: WatchSource<ManagedResourceHead>,
        spaces: WatchSource<Namespace>,
    ) -> Self {
        Self {
            seed,
            connector,
            served,
            resources,
            managed,
            spaces,
            identity: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SortedMap<String, KnownNamespace>> {
        // Only single calls change the map: a panic cannot leave it half changed.
        self.known.lock().ignore_poison()
    }

    fn replicas(&self, namespace: &str, name: &str) -> Result<Option<i64>, kube::Error> {
        let found = self.seed.find::<Value>(&DEPLOYMENT, &Key::new(namespace, name))?;
        // An absent field means 1 replica.
        Ok(found.map(|workload| workload["spec"]["replicas"].as_i64().unwrap_or(1)))
    }

    /// The identity of the seed; it never changes.
    fn identity(&self) -> Result<&str, Error> {
        if let Some(identity) = self.identity.get() {
            return Ok(identity);
        }
        let key = Key::new(cluster_identity::NAMESPACE, cluster_identity::NAME);
        let what = || format!("configmap {key}");
        let found = self.seed.find::<Value>(&CONFIG_MAP, &key);
        let map = found.map_err(|source| Error::Read { what: what(), source })?.unwrap_or_default();
        let identity = text(&map["data"][cluster_identity::NAME]).to_owned();
        if identity.is_empty() {
            return Err(Error::Missing { what: format!("the seed has no {} yet", what()) });
        }
        Ok(self.identity.get_or_init(|| identity))
    }

    /// Stops sending requests to the cluster. Applied objects stay.
    fn leave(&self, namespace: &str, known: &mut KnownNamespace) {
        if std::mem::take(&mut known.is_target) {
            self.resources.set_target(namespace, None, &self.managed);
        }
        known.failures = 0;
    }

    /// A client to which the server has answered just now, or to the care controller a moment ago.
    fn contact(
        &self,
        namespace: &str,
        known: &mut KnownNamespace,
        now: Timestamp,
    ) -> Result<OpenedClient, Error> {
        let due = |opened: &&OpenedClient| now < opened.renew_at && known.failures == 0;
        if let Some(opened) = known.opened.as_ref().filter(due)
            && (self.served.has_heard(namespace, now) || opened.client.ungated().version().is_ok())
        {
            return Ok(opened.clone());
        }
        // Whatever failed, another certificate, CA or address may help.
        let opened = self.connector.open(namespace)?;
        known.opened = Some(opened.clone());
        Ok(opened)
    }

    fn serve(
        &self,
        namespace: &str,
        known: &mut KnownNamespace,
        now: Timestamp,
    ) -> Result<OpenedClient, Error> {
        let opened = self.contact(namespace, known, now)?;
        if !known.is_target {
            let target = TargetCluster::shoot(opened.client.0.clone(), self.identity()?);
            self.resources.set_target(namespace, Some(target), &self.managed);
            known.is_target = true;
        }
        known.failures = 0;
        Ok(opened)
    }

    fn tell(&self, namespace: &str, serving: ServingState, client: Option<&OpenedClient>, now: Timestamp) {
        let words = serving.to_string();
        let is_served = serving == ServingState::Served;
        if !self.served.tell(namespace, serving, client, now) {
            return;
        }
        if is_served {
            log::info!(namespace = namespace; "Serving the cluster of the Shoot");
        } else {
            log::info!(namespace = namespace, why = words.as_str(); "Not serving the cluster of the Shoot");
        }
    }

    fn look(
        &self,
        namespace: &str,
        known: &mut KnownNamespace,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        let now = cx.clock.now();
        let plan = if self.served.is_let_go(namespace, now) {
            ServingPlan::Leave(ServingState::Asleep)
        } else {
            plan(self.replicas(namespace, KUBE_APISERVER)?, self.replicas(namespace, webhooks::NAME)?)
        };
        if let ServingPlan::Leave(serving) = plan {
            self.leave(namespace, known);
            let is_new = matches!(serving, ServingState::Waiting(_));
            self.tell(namespace, serving, None, now);
            return Ok(ReconcileOutcome::After(jittered(if is_new {
                PERIOD_ASLEEP / 6
            } else {
                PERIOD_ASLEEP
            })));
        }
        match self.serve(namespace, known, now) {
            Ok(client) => {
                self.tell(namespace, ServingState::Served, Some(&client), now);
                Ok(ReconcileOutcome::After(next_look(jittered(PERIOD), client.renew_at, now)))
            }
            Err(error) => match error.postponed() {
                Some(after) => Ok(ReconcileOutcome::After(after)),
                None => {
                    let delay = delay_after(AGAIN.0, AGAIN.1, known.failures);
                    known.failures = known.failures.saturating_add(1);
                    // Its tokens may be requested when it is reachable again, before the next check.
                    let client = known.opened.as_ref().filter(|_| known.is_target);
                    self.tell(namespace, ServingState::Waiting(chain(&error)), client, now);
                    Ok(ReconcileOutcome::After(jittered(delay)))
                }
            },
        }
    }
}

impl Reconciler for ShootServing {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let namespace = key.name.as_str();
        let space = self.spaces.store().get(key);
        let uid = space.as_deref().and_then(of_shoot);
        let mut known = self.lock().remove(namespace).unwrap_or_default();
        if known.uid != uid.unwrap_or_default() {
            // Deleted, or replaced by another one with its name.
            self.leave(namespace, &mut known);
            self.connector.forget(namespace);
            self.served.renew(namespace);
            known = KnownNamespace { uid: uid.unwrap_or_default().to_owned(), ..KnownNamespace::default() };
        }
        if uid.is_none() {
            self.served.forget(namespace);
            return Ok(ReconcileOutcome::Done);
        }
        let outcome = self.look(namespace, &mut known, cx);
        self.lock().insert(namespace.to_owned(), known);
        outcome
    }
}

/// Not later than the renewal of the certificate, which is also used between two checks.
fn next_look(period: Duration, renew_at: Timestamp, now: Timestamp) -> Duration {
    period.min(renew_at.since(now).max(AGAIN.0))
}

/// Nine to eleven tenths, so that checks that start together spread out.
fn jittered(period: Duration) -> Duration {
    period.mul_f64(0.9 + 0.2 * random::unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_in_time() {
        let (now, seconds) = (Timestamp::from_unix(1_767_600_000), Duration::from_secs);
        let look = |until: Duration| next_look(seconds(130), now.plus(until), now);
        assert_eq!(look(seconds(480)), seconds(130));
        assert_eq!(look(seconds(4)), seconds(4));
        // The clock was set meanwhile.
        assert_eq!(look(Duration::ZERO), seconds(1));
        assert_eq!(next_look(seconds(130), now, now.plus(seconds(9))), seconds(1));
    }

    #[test]
    fn which_program_serves_a_cluster() {
        let waiting = || {
            ServingPlan::Leave(ServingState::Waiting("there is no deployment kube-apiserver yet".to_owned()))
        };
        let table = [
            (None, None, waiting()),
            (None, Some(0), waiting()),
            (Some(0), None, ServingPlan::Leave(ServingState::Asleep)),
            (Some(0), Some(0), ServingPlan::Leave(ServingState::Asleep)),
            (Some(1), None, ServingPlan::Serve),
            (Some(3), Some(0), ServingPlan::Serve),
            (Some(1), Some(2), ServingPlan::Leave(ServingState::LeftToOther)),
            (Some(0), Some(1), ServingPlan::Leave(ServingState::LeftToOther)),
        ];
        for (server, other, expected) in table {
            assert_eq!(plan(server, other), expected, "{server:?} {other:?}");
        }
    }
}
