//! The parts of a seed that a Shoot needs to come up, without a node: a stand-in for the kubelets, and API servers that start
//! with the Secrets of the Deployment.
//!
//! A [`Site`] looks at all namespaces that begin with `shoot--`, through a client, so that the seed may be the API server
//! of this process or a real one. It does three things there:
//!
//! - **Pods and workloads** (`kubelet.rs`, `workloads.rs`). A pod runs when its claims are bound and its Secrets and
//!   ConfigMaps are there. It is ready at once; that of `kube-apiserver` is ready when its server answers its probe, and
//!   that server needs a ready pod behind each host of `--etcd-servers`. Where a real kube-controller-manager makes pods
//!   and counts them ([`Manager::Theirs`]), that is left to it. A [`Trouble`] keeps a workload from running.
//! - **API servers** (`server.rs`, `settings.rs`, `files.rs`). Certificate, client CAs, token file, keys of
//!   ServiceAccounts and versions are those that arguments and mounted files name; a file that is missing kills it. It ends
//!   with the last pod of the Deployment and starts again with each new pod. It keeps its data, in place of etcd, as long as
//!   the namespace exists. The work of kube-controller-manager in the Shoot is done while one of its pods is ready.
//! - **Data that move** ([`Options::etcds`]; `etcd.rs`, `jobs.rs`, `buckets.rs`, `ledger.rs`). With them the data belong to the
//!   claim of etcd-main: a new one begins with the newest snapshot of its bucket. Jobs take and copy snapshots; for an Etcd, an
//!   etcd-druid does that (`druid.rs`). The buckets are shared by all sites of a test, and so is a ledger, which knows who serves which data and names what is wrong.
//! - **Services and claims** (`network.rs`): ingress addresses, EndpointSlices, bound volumes, and the way to the servers.
//!
//! # How an agent reaches such a server
//!
//! Addresses of Services lead nowhere without a node, so there are two ways:
//!
//! - *An agent in this process* dials through [`Routes`] ([`Site::routes`]; `world::Agent::site`, see
//!   [`Listen::Anywhere`]). `<clusterIP>:443`, `kube-apiserver.<namespace>.svc:443`, the ingress address of a load
//!   balancer and `<node address>:<nodePort>` are answered by the server of that namespace, on whatever port of loopback
//!   it is. An address within the cluster that nobody serves is refused. [`Routes::lose`] makes packets vanish.
//! - *The program as a process of its own* cannot be told. There the server listens at `127.0.0.1:<nodePort>` of the
//!   Service that exposes it ([`Listen::NodePort`]), and the agent is configured with `edge.exposure.type: NodePort` and
//!   `edge.exposure.address: 127.0.0.1`. A server does not begin before its Service has such a port.

pub mod buckets;
pub mod crowd;
pub mod druid;
pub mod etcd;
pub mod files;
pub mod history;
pub mod host;
pub mod jobs;
pub mod kubelet;
pub mod ledger;
pub mod network;
pub mod object;
pub mod owner;
pub mod routes;
pub mod said;
pub mod scene;
pub mod server;
pub mod settings;
pub mod workloads;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use gardenlet::kube::Client;
use serde_json::Value;

use self::druid::Sidecar;
use self::etcd::{Etcds, Volume};
pub use self::routes::Routes;
use self::scene::{Hands, Scene};
use self::server::Server;
use super::TestCluster;
use super::api::store::{Store, rest};
use super::controllers::Share;
use super::json::text;

/// The prefix of the namespaces of Shoots.
pub const PREFIX: &str = "shoot--";
/// How often a thread polls without notice of changes, or while it waits for something.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_SOON: Duration = Duration::from_millis(50);
/// The shortest pause between two looks.
const LOOK_MIN: Duration = Duration::from_millis(8);
const STACK_BYTES: usize = 1 << 20;

/// The component that creates and counts the pods of workloads, binds claims and writes EndpointSlices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manager {
    /// The site.
    Ours,
    /// A real kube-controller-manager.
    Theirs,
}

/// Where API servers listen, on loopback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listen {
    /// On any port: dialers know the way.
    Anywhere,
    /// On the port of the nodes that leads to them.
    NodePort,
}

/// A fault of a workload, a claim or a Service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// No node has room for the pods.
    NoRoom,
    /// The image cannot be pulled.
    NoImage,
    /// The program ends whenever it begins.
    Dies,
    /// The probe is never answered.
    NeverReady,
    /// No volume is made for the claim.
    Unbound,
    /// The Service gets no address of a load balancer.
    NoAddress,
}

/// How a site is made.
#[derive(Clone, Debug)]
pub struct Options {
    pub manager: Manager,
    pub listen: Listen,
    /// A namespace whose server listens on any port: another server uses its node port.
    pub elsewhere: String,
    /// Addresses of nodes, at which ports of the nodes are reached.
    pub node_addresses: Vec<String>,
    /// How long a pod has to be ready before it counts, whatever its Deployment says.
    pub min_ready: Option<Duration>,
    /// How long a pod of kube-apiserver keeps working in its deletion.
    pub lingers: Duration,
    /// How the data of etcd-main outlive their namespace. None: they do not.
    pub etcds: Option<Etcds>,
}

impl Default for Options {
    fn default() -> Self {
        let node_addresses = ["127.0.0.1", "localhost", "10.50.0.1"].map(str::to_owned).to_vec();
        Self {
            manager: Manager::Ours,
            listen: Listen::Anywhere,
            elsewhere: String::new(),
            node_addresses,
            min_ready: None,
            lingers: Duration::ZERO,
            etcds: None,
        }
    }
}

/// What the parts of a site share.
pub struct Shared {
    options: Options,
    hands: Hands,
    routes: Routes,
    clock: Clock,
    servers: Mutex<BTreeMap<String, Arc<Server>>>,
    /// The data of etcd-main, by namespace, if they outlive it.
    volumes: Mutex<BTreeMap<String, Volume>>,
    /// The servers beside the etcd-mains of a druid, by namespace.
    sidecars: Mutex<BTreeMap<String, Sidecar>>,
    me: Weak<Self>,
    /// By namespace and name of a workload or claim.
    troubles: Mutex<BTreeMap<(String, String), Trouble>>,
    /// The storage that notifies of changes, if there is one.
    store: Option<Store>,
    stop: Stop,
}

impl Shared {
    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volumes(&self) -> MutexGuard<'_, BTreeMap<String, Volume>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sidecars(&self) -> MutexGuard<'_, BTreeMap<String, Sidecar>> {
        self.sidecars.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn troubles(&self) -> MutexGuard<'_, BTreeMap<(String, String), Trouble>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong with a pod, by the workload whose name it begins with, or with a claim or a Service.
    fn trouble_of(&self, namespace: &str, name: &str) -> Option<Trouble> {
        let troubles = self.troubles();
        let is_named =
            |of: &str| name == of || name.strip_prefix(of).is_some_and(|rest| rest.starts_with('-'));
        let mut found =
            troubles.iter().filter(|((in_namespace, of), _)| in_namespace == namespace && is_named(of));
        found.next().map(|(_, trouble)| *trouble)
    }

    /// Where the server of a namespace listens.
    fn listens(&self, namespace: &str) -> Listen {
        if self.options.elsewhere == namespace { Listen::Anywhere } else { self.options.listen }
    }

    /// The server of a namespace, which is made if there is none.
    fn server(&self, namespace: &Value, scene: &Scene) -> Arc<Server> {
        let (name, uid) = (text(namespace, "/metadata/name"), text(namespace, "/metadata/uid"));
        let port = match self.listens(name) {
            Listen::Anywhere => 0,
            Listen::NodePort => network::node_port(scene, name).map_or(0, |address| address.port()),
        };
        let make = || {
            let server = Server::new(name, uid, &self.clock, port);
            if let Some(etcds) = &self.options.etcds {
                etcd::fill(self, etcds, namespace, &server);
            }
            Arc::new(server)
        };
        let mut servers = self.servers();
        let server = servers.entry(name.to_owned()).or_insert_with(make);
        server.clone()
    }

    /// Drops the data of deleted namespaces, also if a new one has the same name.
    fn forget(&self, scene: &Scene) {
        let is_there = |name: &str, server: &Server| {
            scene.namespaces.iter().any(|namespace| {
                text(namespace, "/metadata/name") == name
                    && text(namespace, "/metadata/uid") == server.namespace_uid
            })
        };
        let gone: Vec<_> = {
            let mut servers = self.servers();
            let names: Vec<String> = servers
                .iter()
                .filter(|(name, server)| !is_there(name, server))
                .map(|(name, _)| name.clone())
                .collect();
            names.iter().filter_map(|name| servers.remove_entry(name)).collect()
        };
        for (name, server) in gone {
            self.routes.set(&name, BTreeMap::new());
            server.stop();
        }
        let has_namespace =
            |name: &str| scene.namespaces.iter().any(|found| text(found, "/metadata/name") == name);
        // A claim of a later namespace has another UID.
        self.volumes().retain(|name, _| has_namespace(name));
    }

    /// One look at everything. True if something waits for time, or for a change without notice.
    fn look(&self) -> bool {
        let scene = match Scene::read(&self.hands.client, self.store.as_ref(), PREFIX) {
            Ok(scene) => scene,
            Err(error) => {
                if !self.stop.is_stopped() {
                    self.hands.complain(format!("look: {error}"));
                }
                return true;
            }
        };
        self.forget(&scene);
        network::balance(self, &scene);
        network::write_routes(self, &scene);
        let mut waits = network::bind(self, &scene);
        waits |= kubelet::look(self, &scene);
        // A server that has just begun.
        network::write_routes(self, &scene);
        if self.options.manager == Manager::Ours {
            if let Some(etcds) = &self.options.etcds {
                waits |= jobs::look(self, &scene);
                waits |= druid::look(self, &scene, etcds);
            }
            waits |= workloads::look(&self.hands, &scene, self.options.min_ready);
            network::write_slices(&self.hands, &scene);
        }
        waits
    }

    /// Waits for a change that concerns Shoots after a revision, or for the next look.
    fn wait(&self, mut seen: u64, waits: bool) {
        let Some(store) = &self.store else {
            self.stop.wait(&Clock::system(), LOOK);
            return;
        };
        let clock = Clock::system();
        let deadline = clock.mono() + if waits { LOOK_SOON } else { LOOK };
        loop {
            let left = deadline.saturating_sub(clock.mono());
            let revision = store.wait_after(seen, left);
            if self.stop.is_stopped() || left.is_zero() {
                return;
            }
            let state = store.read();
            let concerns = state.since(seen).any(|change| {
                change.id.namespace.starts_with(PREFIX)
                    || (change.id.plural == "namespaces" && change.id.name.starts_with(PREFIX))
            });
            if concerns && revision > seen {
                return;
            }
            seen = revision;
        }
    }
}

/// The stand-in for nodes. It ends when dropped, with all its API servers.
pub struct Site {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Site {
    /// In a seed of this process, which leaves the workloads of Shoots to the site from now on.
    pub fn in_process(seed: &TestCluster, share: Share) -> Self {
        Self::in_process_with(seed, share, Options::default())
    }

    /// The same in a way of its own.
    pub fn in_process_with(seed: &TestCluster, share: Share, options: Options) -> Self {
        seed.set_share(Share { workloads_but_in: PREFIX, ..share });
        Self::run(seed.client(), options, Some(seed.store().clone()))
    }

    /// In the seed of a client that may do everything.
    pub fn start(client: Client, options: Options) -> Self {
        Self::run(client, options, None)
    }

    fn run(client: Client, options: Options, store: Option<Store>) -> Self {
        let shared = Arc::new_cyclic(|me| Shared {
            options,
            clock: client.clock().clone(),
            hands: Hands::new(client),
            routes: Routes::default(),
            servers: Mutex::default(),
            volumes: Mutex::default(),
            sidecars: Mutex::default(),
            me: me.clone(),
            troubles: Mutex::default(),
            store,
            stop: Stop::new(),
        });
        let running = shared.clone();
        let body = move || {
            let clock = Clock::system();
            while !running.stop.is_stopped() {
                let began = clock.mono();
                let seen = running.store.as_ref().map_or(0, |store| store.read().revision);
                let waits = running.look();
                rest(&running.stop, began, LOOK_MIN);
                running.wait(seen, waits);
            }
        };
        let thread = thread::spawn("site", STACK_BYTES, body).unwrap();
        Self { shared, thread: Mutex::new(Some(thread)) }
    }

    /// The way to the API servers.
    pub fn routes(&self) -> Routes {
        self.shared.routes.clone()
    }

    /// The API server of a namespace, as soon as it has begun once.
    pub fn server(&self, namespace: &str) -> Option<Arc<Server>> {
        self.shared.servers().get(namespace).cloned()
    }

    /// Makes trouble for a workload, claim or Service, or ends it.
    pub fn trouble(&self, namespace: &str, name: &str, trouble: Option<Trouble>) {
        let place = (namespace.to_owned(), name.to_owned());
        match trouble {
            Some(trouble) => drop(self.shared.troubles().insert(place, trouble)),
            None => drop(self.shared.troubles().remove(&place)),
        }
        if let Some(store) = &self.shared.store {
            store.wake();
        }
    }

    /// What went wrong: requests that were refused, API servers that could not begin.
    pub fn complaints(&self) -> Vec<String> {
        self.shared.hands.complaints()
    }

    /// Ends it. API servers go on until it is dropped.
    pub fn stop(&self) {
        self.shared.stop.stop();
        if let Some(store) = &self.shared.store {
            store.wake();
        }
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("---- complaints of the site:\n{}", self.complaints().join("\n"));
        }
    }
}
