//! The Seed: registered from the configuration, its status kept, its seed cluster prepared (Gardener's `seed`).
//!
//! Woken by a new generation of the Seed and once per `controllers.seed.syncPeriod`. What a round does not have to change
//! it does not write: an idle seed costs the garden one read per period. Upstream writes `Processing` and `Succeeded` in
//! each period; readers look at state, generation and the agent's identity, which stay true.

mod decide;
mod delete;
pub mod register;
mod registration;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::core::{CONFIG_MAP, ConfigMap, NAMESPACE};
use crate::api::gardener::{self, SEED, seed_namespace};
use crate::api::meta::{Key, Metadata};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::base::clock::{Mono, Timestamp};
use crate::base::error::chain;
use crate::components::{crds, install};
use crate::kube::{self, Garden, Patch, Seed};
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::events::{About, News};
use crate::runtime::group::Group;
use crate::runtime::queue::Retry;
use crate::runtime::write;

use super::Site;
use super::site::is_garden;

pub use decide::Agent;
use decide::{Observed, Phase};
pub use registration::{Absence, Registration};

/// The finalizer of objects that Gardener looks after.
pub const FINALIZER: &str = "gardener";
/// Why a Seed cannot be reconciled now.
#[derive(Debug)]
pub enum Error {
    /// The seed's Kubernetes is too old.
    Version(String),
    /// The garden has not made the seed's namespace.
    NoNamespace(String),
    /// A definition is not served yet.
    Definitions(Vec<install::Waiting>),
    /// A request failed.
    Kube {
        /// What was tried.
        operation: &'static str,
        /// The cause.
        source: kube::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(
                    f,
                    "the Kubernetes version of the Seed cluster must be at least 1.32, but is {version}"
                )
            }
            // As upstream says it.
            Self::NoNamespace(name) => {
                write!(f, "failed to get seed namespace in garden cluster: Namespace {name:?} not found")
            }
            Self::Definitions(waiting) => {
                let all: Vec<String> = waiting.iter().map(ToString::to_string).collect();
                write!(f, "custom resource definitions are not ready: {}", all.join("; "))
            }
            Self::Kube { operation, .. } => f.write_str(operation),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kube { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn kube_error(operation: &'static str) -> impl FnOnce(kube::Error) -> Error {
    move |source| Error::Kube { operation, source }
}

/// Adds the controller.
pub fn add(site: &Site, group: &mut Group) {
    let lane = group.lane("seed", 1, Retry::up_to(RETRY_MAX));
    let (registration, own) = (site.registration.clone(), site.seed_name().to_owned());
    group.wake(&lane, &site.seeds, move |change| {
        let new = change
            .new
            .as_deref()
            .filter(|new| change.key.name == own && registration.is_of(&new.metadata.uid))?;
        wants_reconcile(change.old.as_deref(), new).then(|| change.key.clone())
    });
    let key = site.seed_key();
    group.wake_on(&lane, &site.certificate_changed, move || [key.clone()]);
    let settings = &site.settings;
    let reconciler = SeedReconciler {
        garden: site.garden.clone(),
        seed: site.seed.clone(),
        agent: site.agent.clone(),
        certificate_expiry: Arc::clone(&site.certificate_expiry),
        capacity: settings.resources.capacity.clone(),
        reserved: settings.resources.reserved.clone(),
        sync_period: settings.controllers.seed.sync_period,
        registration: site.registration.clone(),
        any_version: site.any_version,
        definitions_at: Mutex::default(),
        patient_until: site.clock.mono().saturating_add(DEFINITIONS_PATIENCE),
    };
    group.run(lane, reconciler);
}

/// Until when the agent's certificate is valid; the rotation replaces it.
pub(super) type CertificateExpiry = Arc<dyn Fn() -> Option<Timestamp> + Send + Sync>;

struct SeedReconciler {
    garden: Garden,
    seed: Seed,
    /// Who we are: `status.gardener`.
    agent: Agent,
    certificate_expiry: CertificateExpiry,
    /// `resources.capacity`.
    capacity: BTreeMap<String, String>,
    /// `resources.reserved`.
    reserved: BTreeMap<String, String>,
    sync_period: Duration,
    /// Which Seed is served.
    registration: Registration,
    any_version: bool,
    /// When the definitions were last made right.
    definitions_at: Mutex<Option<Mono>>,
    /// Until then definitions that are not ready are no error.
    patient_until: Mono,
}

/// After a conflicting write of others.
const CONFLICT_RETRY: Duration = Duration::from_millis(50);
const DEFINITIONS_PERIOD: Duration = Duration::from_secs(3_600);

/// How long definitions may take at the start.
const DEFINITIONS_PATIENCE: Duration = Duration::from_secs(30);
/// The longest delay after a failure.
const RETRY_MAX: Duration = Duration::from_secs(60);

impl Reconciler for SeedReconciler {
    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        let Some(live) = self.garden.find::<Value>(&SEED, "", &key.name)? else {
            return Ok(Outcome::Done);
        };
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        if !self.registration.is_of(uid) {
            // Somebody made it anew: it is registered first.
            return Ok(Outcome::Done);
        }
        let mut observed = self.observe(live)?;
        if observed.deleting() {
            self.registration.is_deleted(observed.live["metadata"]["uid"].as_str().unwrap_or_default());
        }
        let phase = decide::phase(&observed);
        if matches!(phase, Phase::Begin) {
            let object = decide::begun(&observed, cx.clock.now());
            match self.garden.replace_object::<Value>(&SEED, "", &key.name, "status", &object) {
                // The garden and our own heartbeat write conditions at the same time: look again.
                Err(e) if e.is_conflict() => return Ok(Outcome::After(CONFLICT_RETRY)),
                other => observed.live = other?,
            }
        }
        let result = if observed.deleting() {
            delete::step(self, key, &observed)
        } else {
            self.prepare(key, &observed, cx)
        };
        self.finish(key, &observed, &phase, result, cx)
    }
}

impl SeedReconciler {
    fn observe(&self, live: Value) -> Result<Observed, Error> {
        let version = self.seed.version().map_err(kube_error("read the version of the seed"))?;
        let cluster_identity = match decide::cluster_identity(&live) {
            Some(identity) => identity.to_owned(),
            None => self.cluster_identity()?,
        };
        Ok(Observed {
            live,
            agent: self.agent.clone(),
            kubernetes_version: version.git_version,
            cluster_identity,
            certificate_expiry: (self.certificate_expiry)(),
            capacity: self.capacity.clone(),
            reserved: self.reserved.clone(),
        })
    }

    /// What the seed calls itself, else the uid of its namespace `kube-system`.
    fn cluster_identity(&self) -> Result<String, Error> {
        let failed = || kube_error("read the identity of the seed cluster");
        let found =
            self.seed.find::<ConfigMap>(&CONFIG_MAP, "kube-system", "cluster-identity").map_err(failed())?;
        if let Some(identity) = found.and_then(|map| map.data.get("cluster-identity").cloned()) {
            return Ok(identity);
        }
        let namespace = self.seed.get::<Metadata>(&NAMESPACE, "", "kube-system").map_err(failed())?;
        Ok(namespace.metadata.uid)
    }

    /// Finalizer, namespaces and definitions; each write only if something differs.
    fn prepare(&self, key: &Key, observed: &Observed, cx: &Context) -> Result<delete::Step, Failure> {
        let namespace = seed_namespace(&key.name);
        if self.garden.find::<Metadata>(&NAMESPACE, "", &namespace)?.is_none() {
            return Err(Error::NoNamespace(namespace).into());
        }
        if let Some(patch) = decide::finalizer_patch(&observed.live) {
            match self.garden.patch::<Value>(&SEED, "", &key.name, "", &Patch::Merge(patch)) {
                Err(e) if e.is_conflict() => return Ok(delete::Step::Again(CONFLICT_RETRY)),
                other => drop(other?),
            }
        }
        if !self.any_version && !decide::is_supported(&observed.kubernetes_version) {
            return Err(Error::Version(observed.kubernetes_version.clone()).into());
        }
        self.namespaces(&observed.zones())?;
        if self.definitions_are_due(observed, cx) {
            if let Some(waiting) = self.definitions()? {
                // At the start the seed's side of the agent installs them at the same time.
                if cx.clock.mono() < self.patient_until {
                    return Ok(delete::Step::Again(install::AGAIN));
                }
                return Err(Error::Definitions(waiting).into());
            }
            *self.definitions_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.clock.mono());
        }
        Ok(delete::Step::Wait(self.sync_period))
    }

    fn namespaces(&self, zones: &[String]) -> Result<(), Failure> {
        let is_garden = is_garden(&self.seed)?;
        let garden = Key::new("", GARDEN_NAMESPACE);
        write::ensure(&self.seed, &NAMESPACE, &garden, |ns| decide::label_garden(ns, zones, is_garden))?;
        let system = Key::new("", "kube-system");
        write::ensure(&self.seed, &NAMESPACE, &system, |ns| {
            ns["metadata"]["labels"]["role"] = json!("kube-system");
        })?;
        Ok(())
    }

    /// They are some hundred kilobytes to unpack and compare: once per life and generation, and then each hour.
    fn definitions_are_due(&self, observed: &Observed, cx: &Context) -> bool {
        let last = *self.definitions_at.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = last.is_some_and(|at| cx.clock.mono() < at.saturating_add(DEFINITIONS_PERIOD));
        !recent || matches!(decide::phase(observed), Phase::Begin)
    }

    /// What is not ready yet, if something is not.
    fn definitions(&self) -> Result<Option<Vec<install::Waiting>>, Failure> {
        Ok(match install::ensure(&self.seed, crds::own(is_garden(&self.seed)?))? {
            install::Step::Done => None,
            install::Step::Again(waiting) => Some(waiting),
        })
    }

    /// Writes how the round ended, if that is not what stands there.
    fn finish(
        &self,
        key: &Key,
        observed: &Observed,
        phase: &Phase,
        result: Result<delete::Step, Failure>,
        cx: &Context,
    ) -> Result<Outcome, Failure> {
        match result {
            Ok(delete::Step::Gone) => Ok(Outcome::Done),
            Ok(delete::Step::Again(after)) => Ok(Outcome::After(after)),
            Ok(delete::Step::Blocked(why, after)) => {
                self.tell_blocked(key, observed, &why, cx)?;
                Ok(Outcome::After(after))
            }
            Ok(delete::Step::Wait(after)) => {
                if matches!(phase, Phase::Begin) && !observed.deleting() {
                    let patch = decide::succeeded(observed, cx.clock.now());
                    write::status_patch::<Value>(&self.garden, &SEED, key, &Patch::Strategic(patch))?;
                    log::info!(seed = key.name.as_str(); "Reconciled the Seed");
                }
                Ok(Outcome::After(after))
            }
            Err(failure) if failure.postponed().is_some() => Err(failure),
            Err(failure) => {
                let reason = if observed.deleting() { "DeleteError" } else { "ReconcileError" };
                self.tell(key, observed, (true, reason, &failure.text()), cx);
                let patch = decide::failed(observed, &failure.text(), cx.clock.now());
                if let Err(e) =
                    write::status_patch::<Value>(&self.garden, &SEED, key, &Patch::Strategic(patch))
                {
                    let err = chain(&e);
                    log::warn!(seed = key.name.as_str(), err = err.as_str(); "The Seed's last operation was not written");
                }
                Err(failure)
            }
        }
    }
}

impl SeedReconciler {
    fn tell(
        &self,
        key: &Key,
        observed: &Observed,
        (warning, reason, note): (bool, &str, &str),
        cx: &Context,
    ) {
        let uid = observed.live["metadata"]["uid"].as_str().unwrap_or_default();
        let about = About { resource: &SEED, namespace: "", name: &key.name, uid };
        let action = if observed.deleting() { "Delete" } else { "Reconcile" };
        let news = News { controller: "seed-controller", warning, reason, action, note };
        cx.events.tell(&self.garden, &cx.clock, about, news);
    }

    /// The operation goes on and says what it waits for. Told once for each reason, in the status, as an event and in the
    /// log.
    fn tell_blocked(&self, key: &Key, observed: &Observed, why: &str, cx: &Context) -> Result<(), Failure> {
        if decide::says(observed, why) {
            return Ok(());
        }
        log::warn!(seed = key.name.as_str(), why; "The Seed cannot be deleted yet");
        let now = cx.clock.now();
        // With which upstream says the same.
        self.tell(key, observed, (false, "ResourceReferenced", why), cx);
        let patch = Patch::Strategic(decide::blocked(why, now));
        write::status_patch::<Value>(&self.garden, &SEED, key, &patch)?;
        Ok(())
    }
}

/// Whether a change of the Seed needs a round: a new generation, or a deletion.
fn wants_reconcile(old: Option<&gardener::Seed>, new: &gardener::Seed) -> bool {
    old.is_none_or(|old| {
        old.metadata.generation != new.metadata.generation
            || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
    })
}
