//! Which controllers run against the garden, what wakes them, and the heartbeat.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::api::core::SECRET;
use crate::api::gardener::{
    CONTROLLER_INSTALLATION, CONTROLLER_REGISTRATION, ControllerInstallation, ControllerRegistration, SEED,
    Seed,
};
use crate::api::meta::{Key, Metadata};
use crate::base::clock::Timestamp;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::config::version::GARDENER;
use crate::controllers::controller_installation::{
    self as installation, CareReconciler, ExistingTypes, InstallationReconciler, RequiredReconciler,
    TypesReconciler,
};
use crate::controllers::lease::{self, Heartbeat, ReadyCondition};
use crate::controllers::seed::{self, Agent, SeedReconciler};
use crate::controllers::token_requestor::{self, TokenRequestor};
use crate::kube::Client;
use crate::limits;
use crate::net::ProxyPolicy;
use crate::oci::{self, Puller};
use crate::runtime::controller::{Context, Reconciler};
use crate::runtime::informer::{self, Handler, Object, Options};
use crate::runtime::pool::{Lane, Pool};
use crate::runtime::queue::{RETRY_DEFAULT, Retry};
use crate::runtime::store::{Store, StoreView};

use super::Shared;
use super::clients::{GardenClients, write_deadline};

/// The lanes of the pool, made once: terms start and end what runs in them.
#[derive(Debug)]
pub(super) struct Lanes {
    seed: Lane,
    ready: Lane,
    pub(super) installation: Lane,
    pub(super) care: Lane,
    required: Lane,
    types: Lane,
    tokens: Lane,
    pub(super) apply: Lane,
    pub(super) checks: Lane,
    pub(super) garbage: Lane,
}

/// How often the types of extension objects are listed.
const TYPES_PERIOD: Duration = Duration::from_secs(60);

impl Lanes {
    pub(super) fn new(pool: &Pool, settings: &crate::config::settings::Settings) -> Self {
        let c = &settings.controllers;
        let permits = |n: u32| usize::try_from(n).unwrap_or(1);
        let capped = |max: Duration| Retry { max, ..RETRY_DEFAULT };
        // Upstream's cap is 1000 s; a seed that comes back after a night must not wait a quarter of an hour.
        let retry = capped(Duration::from_secs(300));
        let care_period = c.controller_installation_care_sync_period;
        Self {
            seed: pool.lane("seed", 1, capped(Duration::from_secs(60))),
            ready: pool.lane("seed-lease", 1, capped(c.seed.lease_resync)),
            installation: pool.lane(
                "controllerinstallation",
                permits(c.controller_installation_workers),
                retry,
            ),
            care: pool.lane(
                "controllerinstallation-care",
                permits(c.controller_installation_care_workers),
                capped(care_period),
            ),
            required: pool.lane(
                "controllerinstallation-required",
                permits(c.controller_installation_required_workers),
                retry,
            ),
            types: pool.lane("controllerinstallation-required-types", 1, capped(TYPES_PERIOD)),
            tokens: pool.lane("token-requestor", permits(c.token_requestor_workers), retry),
            apply: pool.lane("managedresource", 20, retry),
            checks: pool.lane("managedresource-health", 5, capped(Duration::from_secs(60))),
            garbage: pool.lane("garbage-collector", 1, retry),
        }
    }
}

impl Object for Seed {
    fn metadata(&self) -> &crate::api::meta::ObjectMeta {
        &self.metadata
    }
}

impl Object for ControllerInstallation {
    fn metadata(&self) -> &crate::api::meta::ObjectMeta {
        &self.metadata
    }
}

impl Object for ControllerRegistration {
    fn metadata(&self) -> &crate::api::meta::ObjectMeta {
        &self.metadata
    }
}

impl Object for Metadata {
    fn metadata(&self) -> &crate::api::meta::ObjectMeta {
        &self.metadata
    }
}

/// What a reconciliation is handed.
pub(super) fn context(shared: &Shared, stop: &Stop) -> Context {
    Context {
        clock: shared.env.clock.clone(),
        stop: stop.child(),
        metrics: shared.env.metrics.clone(),
        events: shared.events.clone(),
    }
}

/// Starts an informer and makes its state known to the probes.
pub(super) fn inform<T: Object>(
    shared: &Shared,
    stop: &Stop,
    client: &Client,
    options: Options,
    store: &Store<T>,
    handler: Handler<T>,
) -> Option<JoinHandle<()>> {
    let (name, looked_at) = (options.name, store.clone());
    // One that is told to end knows nothing and need not.
    let ending = stop.clone();
    shared.status.informer(name, move || {
        let view = looked_at.view();
        StoreView { synced: view.synced || ending.is_stopped(), ..view }
    });
    let clock = shared.env.clock.clone();
    let spawned = informer::start(client.clone(), clock, stop, options, store.clone(), handler);
    super::started(&format!("watch {name}"), stop, spawned)
}

/// Starts the heartbeat on a thread of its own.
pub(super) fn start_heartbeat(
    shared: &Shared,
    garden: &GardenClients,
    stop: &Stop,
) -> Option<JoinHandle<()>> {
    let (settings, all) = (&shared.settings.controllers.seed, &shared.settings.edge);
    let edge = &all.heartbeat;
    let heartbeat = Heartbeat {
        options: lease::Options {
            seed_name: shared.settings.seed_config.name.clone(),
            resync: settings.lease_resync,
            interval_max: edge.interval_max,
            miss_threshold: settings.lease_resync_miss_threshold,
            probe_timeout: edge.probe_timeout,
            // Longer than the lease of the leader would never be allowed.
            renew_timeout: edge.renew_timeout.min(write_deadline(&shared.settings.leader_election)),
            stall_timeout: all.liveness_stall_timeout,
        },
        seed: shared.clients.seed_heartbeat.clone(),
        garden: garden.heartbeat.clone(),
        watching: garden.controllers.clone(),
        // Stamps the lease: the garden compares it with its own clock.
        clock: shared.time.garden_clock(),
        fence: shared.fence.clone(),
        beat: shared.status.beat.clone(),
        progress: shared.status.progress.clone(),
        metrics: shared.env.metrics.clone(),
    };
    let running = stop.clone();
    let spawned = thread::spawn("heartbeat", limits::SMALL_STACK_BYTES, move || heartbeat.run(&running));
    super::started("heartbeat", stop, spawned)
}

/// The controllers of the garden side while they run.
pub(super) struct Running {
    shared: Arc<Shared>,
    certificate_expiry: Arc<Mutex<Option<Timestamp>>>,
    seeds: Store<Seed>,
    informers: Vec<JoinHandle<()>>,
}

impl Running {
    /// The rotation has replaced the certificate: the Seed's status says until when it is valid.
    pub(super) fn certificate_changed(&self, not_after: Timestamp) {
        *self.certificate_expiry.lock().unwrap_or_else(PoisonError::into_inner) = Some(not_after);
        self.shared.lanes.seed.add(Key::new("", self.shared.settings.seed_config.name.as_str()));
    }

    /// Whether the Seed that was registered is gone, or another one stands in its place.
    pub(super) fn has_lost_its_seed(&self) -> bool {
        let seed = self.seeds.get(&Key::new("", self.shared.settings.seed_config.name.as_str()));
        match seed {
            Some(seed) => !self.shared.registration.is_of(&seed.metadata.uid),
            None => self.seeds.is_synced(),
        }
    }

    /// Ends them. The [`Stop`] that they were started with must have been pulled.
    pub(super) fn end(self) {
        let lanes = &self.shared.lanes;
        let all = [
            &lanes.seed,
            &lanes.ready,
            &lanes.installation,
            &lanes.care,
            &lanes.required,
            &lanes.types,
            &lanes.tokens,
        ];
        all.into_iter().for_each(Lane::end);
        for informer in self.informers {
            super::join("informer", informer);
        }
        self.shared.status.forget_informers("garden/");
    }
}

/// The stores of the garden side.
struct Stores {
    seeds: Store<Seed>,
    installations: Store<ControllerInstallation>,
    registrations: Store<ControllerRegistration>,
}

/// Starts the controllers and what wakes them.
pub(super) fn start_garden(
    shared: &Arc<Shared>,
    garden: &GardenClients,
    stop: &Stop,
    certificate_expiry: Option<Timestamp>,
) -> Running {
    let stores = Stores { seeds: Store::new(), installations: Store::new(), registrations: Store::new() };
    let expiry = Arc::new(Mutex::new(certificate_expiry));
    start_seed(shared, garden, &stores, stop, &expiry);
    start_installations(shared, garden, &stores, stop);
    start_tokens(shared, garden, stop);
    let informers = inform_garden(shared, garden, &stores, stop);
    Running { shared: Arc::clone(shared), certificate_expiry: expiry, seeds: stores.seeds, informers }
}

fn start(lane: &Lane, reconciler: impl Reconciler + 'static, context: Context) {
    lane.start(Arc::new(reconciler), context);
}

fn start_seed(
    shared: &Arc<Shared>,
    garden: &GardenClients,
    stores: &Stores,
    stop: &Stop,
    expiry: &Arc<Mutex<Option<Timestamp>>>,
) {
    let (settings, lanes) = (&shared.settings, &shared.lanes);
    let expiry = Arc::clone(expiry);
    let reconciler = SeedReconciler {
        garden: garden.controllers.clone(),
        seed: shared.clients.seed_of_workers.clone(),
        agent: Agent {
            id: shared.instance_id.clone(),
            name: shared.env.hostname.clone(),
            version: GARDENER.to_owned(),
        },
        certificate_expiry: Arc::new(move || *expiry.lock().unwrap_or_else(PoisonError::into_inner)),
        capacity: settings.resources.capacity.clone(),
        reserved: settings.resources.reserved.clone(),
        sync_period: settings.controllers.seed.sync_period,
        registration: shared.registration.clone(),
        any_version: shared.env.variable(super::versions::SWITCH) == Some("true"),
        definitions_at: Mutex::default(),
        patient_until: shared.env.clock.mono().saturating_add(seed::DEFINITIONS_PATIENCE),
    };
    start(&lanes.seed, reconciler, context(shared, stop));
    let ready = ReadyCondition {
        garden: garden.controllers.clone(),
        seeds: stores.seeds.clone(),
        beat: shared.status.beat.clone(),
        remarks: Arc::new(shared.status.remarks()),
        resync: settings.controllers.seed.lease_resync,
    };
    start(&lanes.ready, ready, context(shared, stop));
}

fn start_installations(shared: &Arc<Shared>, garden: &GardenClients, stores: &Stores, stop: &Stop) {
    let (settings, lanes) = (&shared.settings, &shared.lanes);
    let (garden, seed) = (garden.controllers.clone(), shared.clients.seed_of_workers.clone());
    let main = InstallationReconciler {
        garden: garden.clone(),
        seed: seed.clone(),
        installations: stores.installations.clone(),
        seed_name: settings.seed_config.name.clone(),
        version: GARDENER.to_owned(),
        feature_gates: settings.feature_gates.clone(),
        renderer: shared.env.renderer.clone(),
        charts: puller(shared, stop),
        garden_address: settings.garden_client_connection.garden_cluster_address.clone(),
        seed_is_garden: seed::is_garden,
    };
    start(&lanes.installation, main, context(shared, stop));
    let care = CareReconciler {
        garden: garden.clone(),
        seed: seed.clone(),
        installations: stores.installations.clone(),
        managed: shared.managed.clone(),
        remarks: Arc::new(shared.status.remarks()),
        sync_period: settings.controllers.controller_installation_care_sync_period,
    };
    start(&lanes.care, care, context(shared, stop));
    let types = ExistingTypes::new();
    let required = RequiredReconciler {
        garden,
        types: types.clone(),
        installations: stores.installations.clone(),
        registrations: stores.registrations.clone(),
        lister: lanes.types.clone(),
    };
    start(&lanes.required, required, context(shared, stop));
    let lister = TypesReconciler {
        seed,
        types,
        installations: stores.installations.clone(),
        registrations: stores.registrations.clone(),
        wake: lanes.required.clone(),
        period: TYPES_PERIOD,
    };
    start(&lanes.types, lister, context(shared, stop));
}

/// What gets charts out of registries, over the same dialer and proxies as everything else.
fn puller(shared: &Shared, stop: &Stop) -> Puller {
    let env = &shared.env;
    let network = oci::Network {
        dialer: Arc::clone(&env.dialer),
        proxy: ProxyPolicy::from_env(&env.proxies()),
        system_cas: env.system_cas(),
        clock: shared.time.garden_clock(),
        silence: oci::SILENCE,
    };
    Puller::new(network, shared.settings.edge.registries.clone(), shared.charts.clone(), stop)
        .counting(env.metrics.clone())
}

fn start_tokens(shared: &Arc<Shared>, garden: &GardenClients, stop: &Stop) {
    let requestor = TokenRequestor {
        garden: garden.controllers.clone(),
        seed: shared.clients.seed_of_workers.clone(),
        namespace: format!("seed-{}", shared.settings.seed_config.name),
    };
    start(&shared.lanes.tokens, requestor, context(shared, stop));
}

fn inform_garden(
    shared: &Arc<Shared>,
    garden: &GardenClients,
    stores: &Stores,
    stop: &Stop,
) -> Vec<JoinHandle<()>> {
    let client = &garden.controllers;
    let name = shared.settings.seed_config.name.as_str();
    let own = Options {
        label_selector: format!("name.seed.gardener.cloud/{name}=true"),
        ..Options::all("garden/seeds", SEED)
    };
    let handles = [
        inform(shared, stop, client, own, &stores.seeds, on_seed(shared, stop)),
        inform(
            shared,
            stop,
            client,
            Options {
                field_selector: format!("spec.seedRef.name={name}"),
                ..Options::all("garden/controllerinstallations", CONTROLLER_INSTALLATION)
            },
            &stores.installations,
            on_installation(shared),
        ),
        inform(
            shared,
            stop,
            client,
            Options::all("garden/controllerregistrations", CONTROLLER_REGISTRATION),
            &stores.registrations,
            on_registration(shared, stores),
        ),
        inform(
            shared,
            stop,
            &shared.clients.seed,
            Options {
                label_selector: token_requestor::SELECTOR.to_owned(),
                metadata_only: true,
                ..Options::all("seed/token-secrets", SECRET)
            },
            &Store::<Metadata>::new(),
            on_token_secret(shared),
        ),
    ];
    handles.into_iter().flatten().collect()
}

/// The watch also returns child seeds: others are left out by name. When the Seed is gone, or not the one that was
/// registered, the controllers end.
fn on_seed(shared: &Arc<Shared>, stop: &Stop) -> Handler<Seed> {
    let (shared, stop) = (Arc::clone(shared), stop.clone());
    Box::new(move |change| {
        if change.key.name != shared.settings.seed_config.name {
            return;
        }
        let new = change.new.as_ref().filter(|new| shared.registration.is_of(&new.metadata.uid));
        let Some(new) = new else { return stop.stop() };
        if new.metadata.deletion_timestamp.is_some() {
            shared.registration.is_deleted(&new.metadata.uid);
        }
        if seed::wants_reconcile(change.old.as_deref(), new) {
            shared.lanes.seed.add(change.key.clone());
        }
        shared.lanes.ready.add(change.key.clone());
    })
}

fn on_installation(shared: &Arc<Shared>) -> Handler<ControllerInstallation> {
    let shared = Arc::clone(shared);
    Box::new(move |change| {
        let lanes = &shared.lanes;
        if let Some(new) = &change.new {
            if installation::wants_reconcile(change.old.as_deref(), new) {
                lanes.installation.add(change.key.clone());
            }
            if change.old.is_none() {
                lanes.care.add(change.key.clone());
            }
            lanes.required.add(change.key.clone());
        }
    })
}

fn on_token_secret(shared: &Arc<Shared>) -> Handler<Metadata> {
    let shared = Arc::clone(shared);
    Box::new(move |change| shared.lanes.tokens.add(change.key.clone()))
}

fn on_registration(shared: &Arc<Shared>, stores: &Stores) -> Handler<ControllerRegistration> {
    let (shared, installations) = (Arc::clone(shared), stores.installations.clone());
    Box::new(move |change| {
        for (key, object) in installations.all() {
            if object.spec.registration_ref.name == change.key.name {
                shared.lanes.required.add(key);
            }
        }
    })
}
