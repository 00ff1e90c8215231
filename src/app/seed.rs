//! The seed side: what needs the seed only and goes on without a garden. Definitions first, then the embedded applier under
//! the lease that gardener-resource-manager uses itself.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::api::core::{SECRET, SERVICE_ACCOUNT};
use crate::api::meta::{Key, Metadata};
use crate::api::resources::MANAGED_RESOURCE;
use crate::base::backoff::Backoff;
use crate::base::error::chain;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::components::{crds, install};
use crate::config::settings::ResourceManager;
use crate::kube::{self, Applier};
use crate::limits;
use crate::resources::{self, Resources, Watched, reads_secret, wants_apply, wants_check};
use crate::runtime::controller::Context;
use crate::runtime::fence::Fence;
use crate::runtime::informer::{self, Handler, Options};
use crate::runtime::leader::{self, Elector, Listener};
use crate::runtime::store::Store;

use super::controllers::{context, inform};
use super::status::complain;
use super::{Shared, join};

const PART: &str = "seed";
const APPLIER: &str = "managedresource-applier";
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Namespace, name and account of gardener-resource-manager.
const GRM_NAMESPACE: &str = "garden";
const GRM_NAME: &str = "gardener-resource-manager";
/// Lifetime of the applier's token, and when it is renewed.
const TOKEN_SECONDS: u32 = 3_600;
const TOKEN_RENEW: Duration = Duration::from_secs(2_400);

/// Why the seed side does not get further.
#[derive(Debug)]
enum Error {
    Definitions(kube::Error),
    Token(kube::Error),
    Client(kube::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Definitions(_) => f.write_str("install the custom resource definitions in the seed"),
            Self::Token(_) => write!(
                f,
                "get a token of service account {GRM_NAMESPACE}/{GRM_NAME} in the seed (create it and bind it to \
                 cluster-admin, or set edge.resourceManager: External)"
            ),
            Self::Client(_) => f.write_str("make the applier's client"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let (Self::Definitions(source) | Self::Token(source) | Self::Client(source)) = self;
        Some(source)
    }
}

/// Runs until `stop`.
pub(super) fn run(shared: &Arc<Shared>, stop: &Stop) {
    if install_definitions(shared, stop) {
        match shared.settings.edge.resource_manager {
            ResourceManager::Embedded => apply(shared, stop),
            ResourceManager::External => shared.status.stage(APPLIER, "left to gardener-resource-manager"),
        }
    }
    shared.status.progress.end(PART);
    shared.status.forget_informers();
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
                    complain(&shared.status, PART, &Error::Definitions(source));
                    backoff.next_delay()
                }
            },
        };
        stop.wait(&shared.env.clock, wait);
    }
    false
}

/// Keeps the applier's identity and its lease; the elector starts and ends the reconcilers.
fn apply(shared: &Arc<Shared>, stop: &Stop) {
    shared.status.stage(APPLIER, "getting an identity");
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    let fence = Fence::new(shared.env.clock.clone(), &format!("{GRM_NAMESPACE}/{GRM_NAME}"));
    let mut identity: Option<Identity> = None;
    let mut elector: Option<JoinHandle<()>> = None;
    while !stop.is_stopped() {
        shared.status.progress.beat(PART, TOKEN_RENEW * 2);
        let wait = match renew(shared, &mut identity, &fence) {
            Ok(identity) => {
                backoff.reset();
                shared.status.recovered(APPLIER);
                if elector.is_none() {
                    elector = start_elector(shared, stop, &identity, &fence);
                }
                TOKEN_RENEW
            }
            Err(error) => {
                complain(&shared.status, APPLIER, &error);
                backoff.next_delay()
            }
        };
        stop.wait(&shared.env.clock, wait);
    }
    if let Some(elector) = elector {
        join("applier election", elector);
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenRequest {
    status: TokenStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenStatus {
    token: String,
}

/// The clients of the applier: one for its work and one, with connections of its own, for its Lease.
#[derive(Clone)]
struct Identity {
    applier: Applier,
    election: kube::Client,
}

/// A fresh token for the applier's clients; the first makes the clients.
fn renew(shared: &Shared, identity: &mut Option<Identity>, fence: &Fence) -> Result<Identity, Error> {
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    });
    let made = shared
        .clients
        .seed
        .create_sub::<TokenRequest>(&SERVICE_ACCOUNT, GRM_NAMESPACE, GRM_NAME, "token", &request)
        .map_err(Error::Token)?;
    let connection = shared.clients.seed_connection.clone().with_token(made.status.token);
    if let Some(present) = identity {
        present.applier.replace(connection.clone()).map_err(Error::Client)?;
        present.election.replace(connection).map_err(Error::Client)?;
        return Ok(present.clone());
    }
    let made = Identity {
        applier: Applier(shared.clients.seed_as(connection.clone(), fence).map_err(Error::Client)?),
        election: shared.clients.election_as(connection).map_err(Error::Client)?,
    };
    *identity = Some(made.clone());
    Ok(made)
}

fn start_elector(
    shared: &Arc<Shared>,
    stop: &Stop,
    identity: &Identity,
    fence: &Fence,
) -> Option<JoinHandle<()>> {
    let election = &shared.settings.leader_election;
    let options = leader::Options {
        namespace: GRM_NAMESPACE.to_owned(),
        name: GRM_NAME.to_owned(),
        holder: format!("{}_{}", shared.env.hostname, shared.instance_id),
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
    };
    let part = Arc::new(ApplierPart {
        shared: Arc::clone(shared),
        stop: stop.clone(),
        resources: Resources::new(identity.applier.clone(), resources::Settings::default()),
        fence: fence.clone(),
        started: AtomicBool::new(false),
        watched: Store::new(),
        informers: Mutex::default(),
    });
    let mut elector = Elector::new(
        identity.election.clone(),
        shared.env.clock.clone(),
        options,
        fence.clone(),
        shared.env.metrics.clone(),
        Arc::<ApplierPart>::clone(&part),
    );
    let stop = stop.clone();
    let run = move || {
        elector.run(&stop);
        part.end();
        part.join();
    };
    match thread::spawn("applier-election", limits::SMALL_STACK_BYTES, run) {
        Ok(handle) => Some(handle),
        Err(e) => {
            let err = chain(&e);
            log::error!(err = err.as_str(); "The applier cannot be started");
            None
        }
    }
}

/// The reconcilers of the applier, started and ended with its lease.
struct ApplierPart {
    shared: Arc<Shared>,
    stop: Stop,
    resources: Resources,
    fence: Fence,
    /// The informers run from the first time on: what they know stays true without the lease.
    started: AtomicBool,
    watched: Store<Watched>,
    informers: Mutex<Vec<JoinHandle<()>>>,
}

impl Listener for ApplierPart {
    fn elected(&self) {
        self.shared.status.stage(APPLIER, "running");
        let lanes = &self.shared.lanes;
        lanes.apply.start(Arc::new(self.resources.applying()), self.context());
        lanes.checks.start(Arc::new(self.resources.checks()), self.context());
        lanes.garbage.start(Arc::new(self.resources.garbage_collector()), self.context());
        lanes.garbage.add(Key::new("", "all"));
        if !self.started.swap(true, Ordering::SeqCst) {
            self.inform();
        }
        // Lanes forget their keys when the lease is lost, and the informer tells only what changes.
        for (key, watched) in self.watched.all() {
            if wants_apply(None, Some(&watched)) {
                lanes.apply.add(key.clone());
            }
            if wants_check(None, Some(&watched)) {
                lanes.checks.add(key);
            }
        }
    }

    fn lost(&self) {
        self.end();
        self.shared.status.stage(APPLIER, "waiting for the lease");
    }

    fn standing(&self, holder: &str) {
        let why = format!(
            "lease {GRM_NAMESPACE}/{GRM_NAME} is held by {holder}: a gardener-resource-manager works in this seed"
        );
        self.shared.status.stage(APPLIER, "passive");
        if self.shared.status.problem(APPLIER, &why) {
            log::info!(holder = holder; "Another resource manager works in this seed; the embedded one stays passive");
        }
    }
}

impl ApplierPart {
    fn context(&self) -> Context {
        Context { fence: self.fence.clone(), ..context(&self.shared, &self.stop) }
    }

    fn end(&self) {
        for lane in [&self.shared.lanes.apply, &self.shared.lanes.checks, &self.shared.lanes.garbage] {
            lane.end();
        }
    }

    fn inform(&self) {
        let shared = &self.shared;
        let store = self.watched.clone();
        let options = Options::all("seed/managedresources", MANAGED_RESOURCE);
        let resources =
            inform(shared, &self.stop, &shared.clients.seed, options, &store, on_resource(shared));
        let secrets = Store::<SecretVersion>::new();
        let options = Options { metadata_only: true, ..Options::all("seed/secrets", SECRET) };
        let handler = on_secret(shared, store);
        let secrets = inform(shared, &self.stop, &shared.clients.seed, options, &secrets, handler);
        let mut informers = self.informers.lock().unwrap_or_else(PoisonError::into_inner);
        informers.extend(resources.into_iter().chain(secrets));
    }

    /// Waits for the informers, which end with the term.
    fn join(&self) {
        let informers = std::mem::take(&mut *self.informers.lock().unwrap_or_else(PoisonError::into_inner));
        for informer in informers {
            join("informer", informer);
        }
    }
}

fn on_resource(shared: &Arc<Shared>) -> Handler<Watched> {
    let shared = Arc::clone(shared);
    Box::new(move |change| {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if wants_apply(old, new) {
            shared.lanes.apply.add(change.key.clone());
        }
        if wants_check(old, new) {
            shared.lanes.checks.add(change.key.clone());
        }
        let installation = new.or(old).and_then(|w| w.metadata.labels.get("controllerinstallation-name"));
        if let Some(name) =
            installation.filter(|name| !name.is_empty() && change.key.namespace == GRM_NAMESPACE)
        {
            shared.lanes.care.add(Key::new("", name.as_str()));
        }
    })
}

/// Of a Secret only its version is kept.
#[derive(Debug, Default)]
struct SecretVersion {
    metadata: crate::api::meta::ObjectMeta,
}

impl<'de> Deserialize<'de> for SecretVersion {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let full = Metadata::deserialize(d)?.metadata;
        let mut metadata = crate::api::meta::ObjectMeta::default();
        (metadata.name, metadata.namespace) = (full.name, full.namespace);
        metadata.resource_version = full.resource_version;
        Ok(Self { metadata })
    }
}

impl informer::Object for SecretVersion {
    fn metadata(&self) -> &crate::api::meta::ObjectMeta {
        &self.metadata
    }
}

/// Updates only: a Secret that appears after its ManagedResource is found by the retry.
fn on_secret(shared: &Arc<Shared>, resources: Store<Watched>) -> Handler<SecretVersion> {
    let shared = Arc::clone(shared);
    Box::new(move |change| {
        if change.old.is_none() || change.new.is_none() {
            return;
        }
        for (key, watched) in resources.all() {
            if reads_secret(&watched, &change.key) {
                shared.lanes.apply.add(key);
            }
        }
    })
}
