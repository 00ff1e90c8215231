//! The settings that the agent reads, with types and units. Fields are named as in the document; parts that no code
//! reads yet stay in [`Settings::document`].

use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;
use serde_json::{Map, Value};

use crate::api::meta::Key;
use crate::base::log::LogFormat;
use crate::base::sorted::SortedMap;

use super::control_plane::{Etcd, Exposure, NodeSettings, Tunnel};
pub(crate) use super::controllers::{Controllers, ManagedSeedController, ShootController};
use super::features;
use super::read::FieldReader;

/// A validated configuration with all defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How to reach the garden.
    pub garden_client_connection: GardenClientConnection,
    /// How to reach the seed.
    pub(crate) seed_client_connection: ClientConnection,
    /// One entry per controller.
    pub(crate) controllers: Controllers,
    /// What the Seed's status offers to the scheduler.
    pub(crate) resources: SeedResources,
    /// Leader election among instances, in the seed.
    pub(crate) leader_election: LeaderElection,
    /// The lowest level that is logged.
    pub(crate) log_level: LevelFilter,
    /// The format of a log line.
    pub(crate) log_format: LogFormat,
    /// The listener for /healthz and the other probes.
    pub health_probes: ListenAddress,
    /// The listener for /metrics.
    pub metrics: ListenAddress,
    /// Field `debugging.enableProfiling` of the configuration.
    pub(crate) profiling: bool,
    /// Every known gate with its effective value.
    pub(crate) feature_gates: SortedMap<String, bool>,
    /// `sni.ingress`: the Service of the ingress gateway, if the seed has one.
    pub(crate) ingress_gateway: Key,
    /// Field `nodeToleration` of this section.
    pub(crate) node_toleration: NodeToleration,
    /// The Seed that is registered.
    pub seed_config: SeedConfig,
    /// Our own options.
    pub edge: Edge,
    /// The whole document with its defaults.
    pub(crate) document: Value,
}

/// Field `gardenClientConnection` of this section.
#[derive(Clone, Debug, PartialEq)]
pub struct GardenClientConnection {
    /// The fields that all connections have.
    pub connection: ClientConnection,
    /// Secret in the seed with the bootstrap kubeconfig.
    pub(crate) bootstrap_kubeconfig: Option<SecretReference>,
    /// Secret in the seed with the agent's own kubeconfig. Without it there is neither bootstrap nor rotation.
    pub(crate) kubeconfig_secret: Option<SecretReference>,
    /// The address of the garden for extensions, if it differs from the agent's.
    pub(crate) garden_cluster_address: Option<String>,
    /// The requested lifetime; if unset, the signer decides.
    pub(crate) validity: Option<Duration>,
    /// Rotation starts at a random share of the lifetime, from here (percent) ...
    pub(crate) auto_rotation_jitter_percentage_min: u32,
    /// ... to here (percent).
    pub(crate) auto_rotation_jitter_percentage_max: u32,
}

/// What `gardenClientConnection`, `seedClientConnection` and `shootClientConnection` have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConnection {
    /// A kubeconfig file. Without it the agent uses its in-cluster configuration, or the kubeconfig
    /// comes from a Secret.
    pub kubeconfig: Option<PathBuf>,
    /// Its context; empty for the current one. Only options of commands set it.
    pub(crate) context: String,
    /// Requests per second; negative means without a limit.
    pub(crate) qps: f64,
    /// Requests at once before the `qps` limit applies.
    pub(crate) burst: u32,
}

/// A Secret by name and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretReference {
    pub(crate) name: String,
    pub(crate) namespace: String,
}

/// `resources`: quantities as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeedResources {
    /// Total capacity by resource name.
    pub(crate) capacity: SortedMap<String, String>,
    /// The part that is reserved, not available for shoots.
    pub(crate) reserved: SortedMap<String, String>,
}

/// Field `leaderElection` of this section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaderElection {
    /// Whether instances elect a leader at all.
    pub(crate) leader_elect: bool,
    /// How long other instances respect a lease that is not renewed.
    pub(crate) lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub(crate) renew_deadline: Duration,
    /// Pause between attempts to get the lease.
    pub(crate) retry_period: Duration,
    /// Time from one renewal to the next.
    pub(crate) renew_period: Duration,
    /// Name of the Lease.
    pub(crate) resource_name: String,
    /// Namespace of the Lease.
    pub(crate) resource_namespace: String,
}

/// `nodeToleration`: for how many seconds pods of control planes stay on a lost node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeToleration {
    /// On a node that is not ready.
    pub(crate) not_ready: Option<i64>,
    /// On an unreachable node.
    pub(crate) unreachable: Option<i64>,
}

/// A listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// An IP address; empty means all.
    pub bind_address: String,
    /// A TCP port.
    pub port: u16,
}

/// `seedConfig`: the Seed to register.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeedConfig {
    /// The Seed's name, a DNS label.
    pub name: String,
    /// Labels to set on the Seed.
    pub(crate) labels: SortedMap<String, String>,
    /// Annotations to add to the Seed.
    pub(crate) annotations: SortedMap<String, String>,
    /// `spec` exactly as written: registration sends it verbatim.
    pub(crate) spec: Value,
}

/// Our own options: the top-level key `edge`, which the Go program ignores.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Threads of the worker pool.
    pub(crate) workers: usize,
    pub(crate) resource_manager: ResourceManager,
    /// The directory for state that survives a restart, if configured.
    pub state_dir: Option<PathBuf>,
    pub(crate) heartbeat: Heartbeat,
    /// /livez fails when a thread of the agent has made no progress for this long.
    pub(crate) liveness_stall_timeout: Duration,
    /// /healthz does not fail while the garden is unreachable.
    pub(crate) liveness_tolerate_offline: bool,
    /// Bytes of the chart cache in the state directory.
    pub(crate) chart_cache_bytes_max: u64,
    /// What the agent installs in the seed.
    pub(crate) components: Components,
    /// Registries that need more settings than their name.
    pub(crate) registries: Vec<Registry>,
    /// Keeps bootstrap credentials after use: the Secret in the seed and the token in the garden.
    pub(crate) bootstrap_keep: bool,
    /// A file with a bootstrap kubeconfig. It may appear later, and the agent never deletes it.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// The file that a unit of systemd hands to the agent as its bootstrap kubeconfig. Only commands that are
    /// run by hand set it.
    pub(crate) bootstrap_credential: Option<PathBuf>,
    /// The etcds of Shoots.
    pub(crate) etcd: Etcd,
    /// How clients reach Shoots from outside the seed.
    pub(crate) exposure: Exposure,
    /// The types of infrastructure whose nodes are hosts of the site: no extension makes them.
    pub(crate) host_types: Vec<String>,
    /// How API servers of Shoots reach nodes and pods.
    pub(crate) tunnel: Tunnel,
}

/// Field `edge.components` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Components {
    /// Components that the agent does not manage.
    pub(crate) disabled: Vec<String>,
    /// Components on the nodes of Shoots that the site asks for.
    pub(crate) nodes: Vec<String>,
}

impl Edge {
    /// What the site wants on the nodes of each Shoot.
    pub(crate) fn nodes(&self) -> NodeSettings {
        let has = |name: &str| self.components.nodes.iter().any(|chosen| chosen == name);
        NodeSettings {
            tunnel: self.tunnel,
            has_problem_detector: has("node-problem-detector"),
            has_exporter: has("node-exporter"),
        }
    }
}

impl Components {
    /// Whether the agent does not manage this component.
    pub(crate) fn is_disabled(&self, name: &str) -> bool {
        self.disabled.iter().any(|disabled| disabled == name)
    }
}

/// An item of `edge.registries`. Its connection settings apply to every connection to that host, even as a mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// Host as in references, with a port unless it is the HTTPS port.
    pub host: String,
    /// URLs that are tried before the registry itself, in this order; a path precedes the repository.
    pub mirrors: Vec<String>,
    /// Repository prefixes and their replacements at mirrors; the first match applies.
    pub rewrites: Vec<(String, String)>,
    /// CAs for this host, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// A client certificate for this host.
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// An OCI layout that is tried before everything else.
    pub layout_dir: Option<PathBuf>,
    /// The host speaks plain HTTP.
    pub insecure: bool,
}

/// `edge.heartbeat`: both timeouts fit into one `controllers.seed.leaseResyncSeconds`, or exceed it if so configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// Timeout of a request to the seed's /healthz.
    pub(crate) probe_timeout: Duration,
    /// Timeout of one renewal of the Lease.
    pub(crate) renew_timeout: Duration,
    /// The longest interval while renewals are slow; zero: always `leaseResyncSeconds`.
    pub(crate) interval_max: Duration,
}

/// Who applies ManagedResources in the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceManager {
    /// This process, once no gardener-resource-manager holds the Lease. A running one continues to work.
    Auto,
    /// This process. A gardener-resource-manager is scaled to 0.
    Embedded,
    External,
}

impl ResourceManager {
    /// Whether this process applies ManagedResources, now or later.
    pub(crate) const fn is_here(self) -> bool {
        matches!(self, Self::Auto | Self::Embedded)
    }
}

impl Settings {
    /// Reads a valid document with all its defaults.
    pub(super) fn read(document: &Value) -> Self {
        let r = FieldReader::new(document);
        Self {
            garden_client_connection: GardenClientConnection::read(r),
            seed_client_connection: ClientConnection::read(r.at("seedClientConnection")),
            controllers: Controllers::read(r.at("controllers")),
            resources: SeedResources {
                capacity: r.texts("resources.capacity"),
                reserved: r.texts("resources.reserved"),
            },
            leader_election: LeaderElection::read(r.at("leaderElection")),
            log_level: match r.str("logLevel") {
                "debug" => LevelFilter::Debug,
                "error" => LevelFilter::Error,
                _ => LevelFilter::Info,
            },
            log_format: if r.str("logFormat") == "text" { LogFormat::Text } else { LogFormat::Json },
            health_probes: ListenAddress::read(r.at("server.healthProbes")),
            metrics: ListenAddress::read(r.at("server.metrics")),
            profiling: r.flag("debugging.enableProfiling"),
            feature_gates: features::effective(
                r.at("featureGates").value().as_object().unwrap_or(&Map::new()),
            ),
            ingress_gateway: Key::new(r.str("sni.ingress.namespace"), r.str("sni.ingress.serviceName")),
            node_toleration: NodeToleration::read(r.at("nodeToleration")),
            seed_config: SeedConfig::read(r.at("seedConfig")),
            edge: Edge::read(r.at("edge"), r.at("seedConfig.spec.volume.minimumSize")),
            document: document.clone(),
        }
    }
}

impl GardenClientConnection {
    fn read(root: FieldReader<'_>) -> Self {
        let r = root.at("gardenClientConnection");
        Self {
            connection: ClientConnection::read(r),
            bootstrap_kubeconfig: SecretReference::read(r.at("bootstrapKubeconfig")),
            kubeconfig_secret: SecretReference::read(r.at("kubeconfigSecret")),
            garden_cluster_address: Some(r.str("gardenClusterAddress"))
                .filter(|a| !a.is_empty())
                .map(str::to_owned),
            validity: r.optional_duration("kubeconfigValidity.validity"),
            auto_rotation_jitter_percentage_min: r
                .count("kubeconfigValidity.autoRotationJitterPercentageMin"),
            auto_rotation_jitter_percentage_max: r
                .count("kubeconfigValidity.autoRotationJitterPercentageMax"),
        }
    }
}

impl ClientConnection {
    fn read(r: FieldReader<'_>) -> Self {
        Self {
            kubeconfig: r.path("kubeconfig"),
            context: String::new(),
            qps: r.float("qps"),
            burst: r.count("burst"),
        }
    }
}

impl SecretReference {
    /// The key of the Secret.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace.as_str(), self.name.as_str())
    }

    fn read(r: FieldReader<'_>) -> Option<Self> {
        (!r.is_absent())
            .then(|| Self { name: r.str("name").to_owned(), namespace: r.str("namespace").to_owned() })
    }
}

impl LeaderElection {
    fn read(r: FieldReader<'_>) -> Self {
        Self {
            leader_elect: r.flag("leaderElect"),
            lease_duration: r.duration("leaseDuration"),
            renew_deadline: r.duration("renewDeadline"),
            retry_period: r.duration("retryPeriod"),
            renew_period: r.duration("retryPeriod"),
            resource_name: r.str("resourceName").to_owned(),
            resource_namespace: r.str("resourceNamespace").to_owned(),
        }
    }
}

/// The longest default interval between two renewals of a lease.
const RENEW_PERIOD_MAX: Duration = Duration::from_secs(4);

impl LeaderElection {
    /// Applies if `retryPeriod` is not set. The lease is renewed less often than upstream renews it, because each
    /// renewal wears out the flash memory of the seed's etcd. Writes need half of the renew deadline
    /// (`app/clients.rs`); the rest of the other half is for one retry.
    pub(super) fn spare_writes(&mut self) {
        self.renew_period = (self.renew_deadline * 2 / 5).min(RENEW_PERIOD_MAX).max(self.retry_period);
    }
}

impl NodeToleration {
    fn read(r: FieldReader<'_>) -> Self {
        let seconds = |field| r.at(field).value().as_i64();
        Self {
            not_ready: seconds("defaultNotReadyTolerationSeconds"),
            unreachable: seconds("defaultUnreachableTolerationSeconds"),
        }
    }
}

impl ListenAddress {
    fn read(r: FieldReader<'_>) -> Self {
        Self {
            bind_address: r.str("bindAddress").to_owned(),
            port: u16::try_from(r.count("port")).unwrap_or(0),
        }
    }
}

impl SeedConfig {
    fn read(r: FieldReader<'_>) -> Self {
        Self {
            name: r.str("metadata.name").to_owned(),
            labels: r.texts("metadata.labels"),
            annotations: r.texts("metadata.annotations"),
            spec: r.at("spec").value().clone(),
        }
    }
}

impl Edge {
    fn read(r: FieldReader<'_>, volume_least: FieldReader<'_>) -> Self {
        Self {
            workers: usize::try_from(r.count("workers")).unwrap_or(1),
            resource_manager: match r.str("resourceManager") {
                "External" => ResourceManager::External,
                "Embedded" => ResourceManager::Embedded,
                _ => ResourceManager::Auto,
            },
            state_dir: r.path("stateDir"),
            heartbeat: Heartbeat {
                probe_timeout: r.duration("heartbeat.probeTimeout"),
                renew_timeout: r.duration("heartbeat.renewTimeout"),
                interval_max: r.duration("heartbeat.intervalMax"),
            },
            liveness_stall_timeout: r.duration("liveness.stallTimeout"),
            liveness_tolerate_offline: r.flag("liveness.tolerateOffline"),
            chart_cache_bytes_max: r.bytes("chartCache.maxSize"),
            components: Components {
                disabled: r.texts_of("components.disabled"),
                nodes: r.texts_of("components.nodes"),
            },
            registries: r.items("registries").map(Registry::read).collect(),
            bootstrap_keep: r.flag("bootstrap.keep"),
            bootstrap_kubeconfig: r.path("bootstrap.kubeconfig"),
            bootstrap_credential: None,
            etcd: Etcd::read(r.at("etcd"), volume_least),
            exposure: Exposure::read(r.at("exposure")),
            host_types: r.texts_of("hosts.types"),
            tunnel: if r.str("tunnel") == "Direct" { Tunnel::Direct } else { Tunnel::Konnectivity },
        }
    }
}

impl Registry {
    fn read(r: FieldReader<'_>) -> Self {
        let text = |r: FieldReader<'_>| r.value().as_str().unwrap_or_default().to_owned();
        Self {
            host: r.str("host").to_owned(),
            mirrors: r.items("mirrors").map(text).collect(),
            rewrites: r
                .items("rewrites")
                .map(|item| (item.str("from").to_owned(), item.str("to").to_owned()))
                .collect(),
            ca_file: r.path("caFile"),
            certificate_file: r.path("certificateFile"),
            key_file: r.path("keyFile"),
            layout_dir: r.path("layoutDir"),
            insecure: r.flag("insecure"),
        }
    }
}
