//! Starts and ends the controllers of the garden side, and the heartbeat beside them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::base::clock::Timestamp;
use crate::base::lock::IgnorePoison;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::components::images;
use crate::config::version::GARDENER;
use crate::controllers::lease::{self, Heartbeat};
use crate::controllers::seed::Agent;
use crate::controllers::{self, Site};
use crate::deployer::ParentAgent;
use crate::limits;
use crate::net::ProxyPolicy;
use crate::oci::{self, Puller};
use crate::runtime::controller::ReconcileContext;
use crate::runtime::group::ControllerGroup;
use crate::runtime::source::{Listening, Notice, WatchSource};

use super::AgentContext;
use super::clients::{GardenClients, write_deadline};
use super::report::Stores;

/// A group whose informers end with `stop`.
pub(super) fn group(shared: &AgentContext, stop: &Stop) -> ControllerGroup {
    let context = ReconcileContext {
        clock: shared.env.clock.clone(),
        stop: stop.clone(),
        metrics: shared.env.metrics.clone(),
        events: shared.events.clone(),
    };
    let status = shared.status.clone();
    ControllerGroup::new(
        shared.lanes.clone(),
        context,
        Arc::new(move |name, look| status.informer(name, look)),
    )
}

/// Starts the heartbeat on its own thread.
pub(super) fn start_heartbeat(
    shared: &AgentContext,
    garden: &GardenClients,
    stop: &Stop,
) -> Option<JoinHandle<()>> {
    let (settings, all) = (&shared.settings.controllers.seed, &shared.settings.edge);
    let edge = &all.heartbeat;
    let heartbeat = Heartbeat {
        options: lease::HeartbeatOptions {
            seed_name: shared.settings.seed_config.name.clone(),
            resync: settings.lease_resync,
            interval_max: edge.interval_max,
            miss_threshold: settings.lease_resync_miss_threshold,
            probe_timeout: edge.probe_timeout,
            // A write may not take longer than the leader's lease allows.
            renew_timeout: edge.renew_timeout.min(write_deadline(&shared.settings.leader_election)),
            stall_timeout: all.liveness_stall_timeout,
        },
        seed: shared.clients.seed_heartbeat.clone(),
        garden: garden.heartbeat.clone(),
        watching: garden.controllers.clone(),
        // The heartbeat stamps the lease with the garden's time, because the garden compares it with its own clock.
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
pub(super) struct RunningControllers {
    shared: Arc<AgentContext>,
    site: Arc<Site>,
    certificate_expiry: Arc<Mutex<Option<Timestamp>>>,
    group: ControllerGroup,
    /// Ends the controllers when the Seed was replaced.
    _identity: Listening,
}

impl RunningControllers {
    /// Called when the rotation has replaced the certificate: the Seed's status shows its expiry time.
    pub(super) fn certificate_changed(&self, not_after: Timestamp) {
        *self.certificate_expiry.lock().ignore_poison() = Some(not_after);
        self.site.certificate_changed.tell(&());
    }

    /// Called when the garden's address or CAs have changed.
    pub(super) fn garden_moved(&self) {
        self.site.garden_moved.tell(&());
    }

    /// Whether the registered Seed is gone, or another Seed with its name exists.
    pub(super) fn has_lost_its_seed(&self) -> bool {
        let seeds = self.site.seeds.store();
        match seeds.get(&self.site.seed_key()) {
            Some(seed) => !self.site.registration.is_of(&seed.metadata.uid),
            None => seeds.is_synced(),
        }
    }

    /// Ends the controllers. The [`Stop`] they were started with must already be pulled.
    pub(super) fn end(self) {
        self.shared.status.watched(None);
        self.group.join();
        self.shared.status.forget_informers("garden/");
    }
}

/// Starts the controllers and their triggers.
pub(super) fn start_garden(
    shared: &Arc<AgentContext>,
    garden: &GardenClients,
    stop: &Stop,
    certificate_expiry: Option<Timestamp>,
) -> RunningControllers {
    let expiry = Arc::new(Mutex::new(certificate_expiry));
    let site = Arc::new(site(shared, garden, stop, &expiry));
    let mut group = group(shared, stop);
    let identity = watch_identity(&site, stop);
    for add in controllers::ALL {
        add(&site, &mut group);
    }
    controllers::watch(&site, &mut group);
    shared.status.watched(Some(Stores {
        seed: site.seed_key(),
        seeds: site.seeds.clone(),
        installations: site.installations.clone(),
        shoots: site.heads.clone(),
        buckets: site.buckets.clone(),
    }));
    RunningControllers {
        shared: Arc::clone(shared),
        site,
        certificate_expiry: expiry,
        group,
        _identity: identity,
    }
}

fn site(
    shared: &Arc<AgentContext>,
    garden: &GardenClients,
    stop: &Stop,
    expiry: &Arc<Mutex<Option<Timestamp>>>,
) -> Site {
    let expiry = Arc::clone(expiry);
    Site {
        settings: Arc::clone(&shared.settings),
        garden: garden.controllers.clone(),
        seed: shared.clients.seed_of_workers.clone(),
        agent: Agent {
            id: shared.instance_id.clone(),
            name: shared.env.hostname.clone(),
            version: GARDENER.to_owned(),
        },
        registration: shared.registration.clone(),
        beat: shared.status.beat.clone(),
        remarks: Arc::new(shared.status.remarks()),
        certificate_expiry: Arc::new(move || *expiry.lock().ignore_poison()),
        workers: shared.clients.workers.clone(),
        renderer: shared.env.renderer.clone(),
        keys: Arc::clone(&shared.env.keys),
        charts: Arc::new(puller(shared, stop)),
        any_version: shared.env.variable(super::versions::SWITCH) == Some("true"),
        seeds: WatchSource::default(),
        installations: WatchSource::default(),
        registrations: WatchSource::default(),
        managed: shared.managed.clone(),
        images: shared.images.clone(),
        parent: parent(shared),
        namespaces: shared.policy_watches.namespaces().clone(),
        heads: WatchSource::default(),
        buckets: WatchSource::default(),
        entry_objects: WatchSource::default(),
        shoots: shared.clients.shoots(),
        served: shared.served.clone(),
        tokens: shared.tokens.clone(),
        certificate_changed: Notice::default(),
        garden_moved: Notice::default(),
    }
}

/// What an agent in a Shoot inherits, besides the configuration.
fn parent(shared: &AgentContext) -> ParentAgent {
    let path = |name: &str| shared.env.variable(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    ParentAgent {
        images: path(images::VARIABLE),
        component_images: path("IMAGEVECTOR_OVERWRITE_COMPONENTS"),
        namespace: shared.env.variable("NAMESPACE").map(str::to_owned),
    }
}

/// Pulls charts from registries, over the same dialer and proxies as everything else.
fn puller(shared: &AgentContext, stop: &Stop) -> Puller {
    let env = &shared.env;
    let network = oci::RegistryNetwork {
        dialer: Arc::clone(&env.dialer),
        proxy: ProxyPolicy::from_env(&env.proxies()),
        system_cas: env.system_cas(),
        clock: shared.time.garden_clock(),
        silence: oci::SILENCE,
    };
    Puller::new(network, shared.settings.edge.registries.clone(), shared.charts.clone(), stop)
        .counting(env.metrics.clone())
        .sharing(shared.clients.workers.clone())
}

/// Ends the controllers when the registered Seed is gone or was replaced.
fn watch_identity(site: &Site, stop: &Stop) -> Listening {
    let (key, own) = (site.seed_key(), site.own_seed());
    let (registration, stop) = (site.registration.clone(), stop.clone());
    site.seeds.listen(move |change| match own(change) {
        None if change.key == key => stop.stop(),
        Some(seed) if seed.metadata.deletion_timestamp.is_some() => {
            registration.is_deleted(&seed.metadata.uid);
        }
        _ => {}
    })
}
