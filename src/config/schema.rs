//! Every field of a `GardenletConfiguration`: its path, type, default and rule. Unknown fields, defaults, types and
//! single-field rules all come from this one table. Bounds and fields without effect come from two tables beside it;
//! rules across fields are in `validate`.
//!
//! Source: Gardener v1.150, `pkg/apis/config/gardenlet/v1alpha1` and `pkg/apis/core/v1beta1` (the Seed); `edge` is
//! ours.

use super::bounds::{self, Bounds};
use super::inert;
use super::rule::FieldRule;
use super::rule::FieldRule::{
    AbsolutePath, AnnotationKeys, Cron, DnsLabel, Ip, LabelSelector, Labels, OneOf, QualifiedName, Rate,
    Required, Subdomain,
};

use Type::{Any, Bool, Bools, Duration, Float, Int, Int32, List, Object, Quantities, Quantity, Text, Texts};

use crate::base::sorted::SortedMap;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// An object with fields of its own.
    Object,
    /// A list whose items are described by the rows `path[]...`, or by a scalar row `path[]`.
    List,
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int,
    Float,
    Text,
    /// A Go duration, never negative.
    Duration,
    Quantity,
    /// A map of texts.
    Texts,
    /// A map of booleans.
    Bools,
    /// A map of quantities.
    Quantities,
    /// Anything: a type of another API.
    Any,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Dotted; `{a,b}` stands for two rows, `[]` for the items of a list.
    path: &'static str,
    pub(super) ty: Type,
    /// JSON; empty if there is none.
    pub(super) default: &'static str,
    /// Whether the default also replaces an empty value, as for Go fields that are not pointers.
    pub(super) default_for_empty: bool,
    pub(super) rule: FieldRule,
}

impl Field {
    const fn default(mut self, json: &'static str) -> Self {
        self.default = json;
        self
    }

    const fn default_for_empty(mut self, json: &'static str) -> Self {
        self.default_for_empty = true;
        self.default(json)
    }

    const fn rule(mut self, rule: FieldRule) -> Self {
        self.rule = rule;
        self
    }
}

const fn field(path: &'static str, ty: Type) -> Field {
    Field { path, ty, default: "", default_for_empty: false, rule: FieldRule::Any }
}

/// A node of the schema.
#[derive(Clone, Debug)]
pub(super) struct SchemaNode {
    pub(super) field: Field,
    pub(super) children: SortedMap<String, Self>,
    pub(super) item: Option<Box<Self>>,
    pub(super) bounds: Option<&'static Bounds>,
    /// The missing part, if the field has no effect.
    pub(super) inert: Option<&'static str>,
}

impl SchemaNode {
    const fn new() -> Self {
        Self { field: field("", Object), children: SortedMap::new(), item: None, bounds: None, inert: None }
    }

    /// Whether an absent field is created because it, or a field in it, has a default.
    pub(super) fn has_default(&self) -> bool {
        !self.field.default.is_empty() || self.children.values().any(Self::has_default)
    }

    /// The node of a path, created if missing.
    fn at(&mut self, path: &str) -> &mut Self {
        if path.is_empty() {
            self
        } else if let Some(rest) = path.strip_prefix("[]") {
            self.field.ty = List;
            let item = self.item.get_or_insert_with(|| Box::new(Self::new()));
            item.at(rest.trim_start_matches('.'))
        } else {
            let end = path.find(['.', '[']).unwrap_or(path.len());
            let child = self.children.entry(path[..end].to_owned()).or_insert_with(Self::new);
            child.at(path[end..].trim_start_matches('.'))
        }
    }
}

pub(super) fn tree() -> SchemaNode {
    let mut root = SchemaNode::new();
    for table in [GARDENLET, CONTROLLERS, SEED, EDGE] {
        for field in table {
            for path in expand(field.path) {
                root.at(&path).field = *field;
            }
        }
    }
    for bounds in bounds::TABLE {
        for path in expand(bounds.path) {
            root.at(&path).bounds = Some(bounds);
        }
    }
    for (path, missing) in inert::TABLE {
        for path in expand(path) {
            root.at(&path).inert = Some(missing);
        }
    }
    root
}

/// `a.{b,c}.d` becomes `a.b.d` and `a.c.d`.
pub(super) fn expand(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (choices, after) = rest.split_once('}').unwrap_or((rest, ""));
    let joined = choices.split(',').map(|choice| format!("{before}{choice}{after}"));
    joined.flat_map(|path| expand(&path)).collect()
}

pub(super) const API_VERSION: &str = "gardenlet.config.gardener.cloud/v1alpha1";
pub(super) const KIND: &str = "GardenletConfiguration";
const PURPOSES: &[&str] = &["evaluation", "testing", "development", "infrastructure", "production"];

const GARDENLET: &[Field] = &[
    field("apiVersion", Text)
        .default_for_empty(r#""gardenlet.config.gardener.cloud/v1alpha1""#)
        .rule(OneOf(&[API_VERSION])),
    field("kind", Text).default_for_empty(r#""GardenletConfiguration""#).rule(OneOf(&[KIND])),
    field("{garden,seed,shoot}ClientConnection.{kubeconfig,acceptContentTypes,contentType}", Text),
    field("{garden,seed,shoot}ClientConnection.qps", Float).default_for_empty("50").rule(Rate),
    field("{garden,seed,shoot}ClientConnection.burst", Int32).default_for_empty("100"),
    field("gardenClientConnection.gardenClusterAddress", Text),
    field("gardenClientConnection.{bootstrapKubeconfig,kubeconfigSecret}.{name,namespace}", Text)
        .rule(Required),
    field("gardenClientConnection.kubeconfigValidity.validity", Duration),
    field("gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMin", Int32).default("70"),
    field("gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMax", Int32).default("90"),
    field("resources.{capacity,reserved}", Quantities),
    field("leaderElection.leaderElect", Bool).default("true"),
    field("leaderElection.leaseDuration", Duration).default_for_empty(r#""15s""#),
    field("leaderElection.renewDeadline", Duration).default_for_empty(r#""10s""#),
    field("leaderElection.retryPeriod", Duration).default_for_empty(r#""2s""#),
    field("leaderElection.resourceLock", Text).default_for_empty(r#""leases""#).rule(OneOf(&["leases"])),
    field("leaderElection.resourceName", Text).default_for_empty(r#""gardenlet-leader-election""#),
    field("leaderElection.resourceNamespace", Text).default_for_empty(r#""garden""#),
    field("logLevel", Text).default_for_empty(r#""info""#).rule(OneOf(&["debug", "info", "error"])),
    field("logFormat", Text).default_for_empty(r#""json""#).rule(OneOf(&["json", "text"])),
    field("server.{healthProbes,metrics}.bindAddress", Text).default(r#""""#),
    field("server.healthProbes.port", Int).default_for_empty("2728"),
    field("server.metrics.port", Int).default_for_empty("2729"),
    field("debugging.{enableProfiling,enableContentionProfiling}", Bool),
    field("featureGates", Bools),
    field("logging.enabled", Bool).default("false"),
    field("logging.{vali,victoriaLogs,shootEventLogging}.enabled", Bool),
    field("logging.{vali,victoriaLogs}.garden.storage", Quantity).default(r#""100Gi""#),
    field("logging.shootNodeLogging.shootPurposes[]", Text),
    field("sni.ingress.namespace", Text).default(r#""istio-ingress""#),
    field("sni.ingress.serviceName", Text).default(r#""istio-ingressgateway""#),
    field("sni.ingress.labels", Texts).default(r#"{"app":"istio-ingressgateway","istio":"ingressgateway"}"#),
    field("sni.ingress.serviceExternalIP", Text).rule(Ip),
    field("exposureClassHandlers[].name", Text).rule(DnsLabel),
    field("exposureClassHandlers[].loadBalancerService.annotations", Texts),
    field("exposureClassHandlers[].loadBalancerService.class", Text).rule(QualifiedName),
    field("exposureClassHandlers[].sni.ingress.namespace", Text),
    field("exposureClassHandlers[].sni.ingress.serviceName", Text).default(r#""istio-ingressgateway""#),
    field("exposureClassHandlers[].sni.ingress.labels", Texts)
        .default_for_empty(r#"{"app":"istio-ingressgateway","gardener.cloud/role":"exposureclass-handler"}"#),
    field("exposureClassHandlers[].sni.ingress.serviceExternalIP", Text).rule(Ip),
    field("etcdConfig.etcdController.workers", Int).default("50"),
    field("etcdConfig.custodianController.workers", Int).default("10"),
    field("etcdConfig.backupCompactionController.workers", Int).default("3"),
    field("etcdConfig.backupCompactionController.enableBackupCompaction", Bool).default("false"),
    field("etcdConfig.backupCompactionController.eventsThreshold", Int).default("1000000"),
    field("etcdConfig.backupCompactionController.metricsScrapeWaitDuration", Duration).default(r#""1m0s""#),
    field("etcdConfig.backupCompactionController.activeDeadlineDuration", Duration),
    field("etcdConfig.backupLeaderElection.{reelectionPeriod,etcdConnectionTimeout}", Duration),
    field("etcdConfig.featureGates", Bools),
    field("etcdConfig.deltaSnapshotRetentionPeriod", Duration),
    field("monitoring.shoot.enabled", Bool).default("true"),
    field("monitoring.shoot.remoteWrite.url", Text),
    field("monitoring.shoot.remoteWrite.keep[]", Text),
    field("monitoring.shoot.externalLabels", Texts),
    field("nodeToleration.{defaultNotReadyTolerationSeconds,defaultUnreachableTolerationSeconds}", Int),
];

const CONTROLLERS: &[Field] = &[
    field("controllers.cacheSyncTimeout", Duration).default(r#""2m0s""#),
    field("controllers.{backupBucket,backupEntry,controllerInstallation,controllerInstallationCare}.concurrentSyncs", Int)
        .default("20"),
    field("controllers.backupEntry.deletionGracePeriodHours", Int).default("0"),
    field("controllers.backupEntry.deletionGracePeriodShootPurposes[]", Text).rule(OneOf(PURPOSES)),
    field("controllers.bastion.concurrentSyncs", Int).default("20"),
    field("controllers.controllerInstallationCare.syncPeriod", Duration).default(r#""30s""#),
    field("controllers.controllerInstallationRequired.concurrentSyncs", Int).default("1"),
    field("controllers.gardenlet.syncPeriod", Duration).default(r#""1h0m0s""#),
    field("controllers.seed.syncPeriod", Duration).default(r#""1m0s""#),
    field("controllers.seed.leaseResyncSeconds", Int32).default("2"),
    field("controllers.seed.leaseResyncMissThreshold", Int32).default("10"),
    field("controllers.seedCare.syncPeriod", Duration).default(r#""30s""#),
    field("controllers.{seedCare,shootCare}.conditionThresholds[].type", Text).rule(Required),
    field("controllers.{seedCare,shootCare}.conditionThresholds[].duration", Duration),
    field("controllers.shoot.concurrentSyncs", Int).default("20"),
    field("controllers.shoot.syncPeriod", Duration).default(r#""1h0m0s""#),
    field("controllers.shoot.retryDuration", Duration).default(r#""12h0m0s""#),
    field("controllers.shoot.progressReportPeriod", Duration),
    field("controllers.shoot.{reconcileInMaintenanceOnly,respectSyncPeriodOverwrite}", Bool).default("false"),
    field("controllers.shoot.dnsEntryTTLSeconds", Int).default("120"),
    field("controllers.shootCare.concurrentSyncs", Int).default("20"),
    field("controllers.shootCare.syncPeriod", Duration).default(r#""1m0s""#),
    // The default enables only an absent block: in Go, `enabled` is not a pointer.
    field("controllers.shootCare.staleExtensionHealthChecks", Object).default(r#"{"enabled":true}"#),
    field("controllers.shootCare.staleExtensionHealthChecks.enabled", Bool).default("false"),
    field("controllers.shootCare.staleExtensionHealthChecks.threshold", Duration).default(r#""5m0s""#),
    field("controllers.shootCare.managedResourceProgressingThreshold", Duration),
    field("controllers.shootCare.webhookRemediatorEnabled", Bool),
    field("controllers.{shootState,networkPolicy,tokenRequestor,vpaEvictionRequirements}.concurrentSyncs", Int)
        .default("5"),
    field("controllers.shootState.syncPeriod", Duration).default(r#""6h0m0s""#),
    // Upstream has no default and crashes without the block; its chart sets 5.
    field("controllers.shootStatus.concurrentSyncs", Int).default("5"),
    field("controllers.networkPolicy.concurrentSyncs", Int).default("5"),
    field("controllers.networkPolicy.additionalNamespaceSelectors[]", Any).rule(LabelSelector),
    field("controllers.managedSeed.concurrentSyncs", Int).default("20"),
    field("controllers.managedSeed.syncPeriod", Duration).default(r#""1h0m0s""#),
    field("controllers.managedSeed.waitSyncPeriod", Duration).default(r#""15s""#),
    field("controllers.managedSeed.syncJitterPeriod", Duration).default(r#""5m0s""#),
    field("controllers.managedSeed.jitterUpdates", Bool).default("false"),
    field("controllers.tokenRequestorWorkloadIdentity.concurrentSyncs", Int).default("5"),
    field("controllers.tokenRequestorWorkloadIdentity.tokenExpirationDuration", Duration).default(r#""6h0m0s""#),
];

const SEED: &[Field] = &[
    field("seedConfig.metadata.{name,generateName,namespace,uid,resourceVersion,selfLink}", Text),
    field("seedConfig.metadata.{generation,deletionGracePeriodSeconds}", Int),
    field(
        "seedConfig.metadata.{creationTimestamp,deletionTimestamp,ownerReferences,finalizers,managedFields}",
        Any,
    ),
    field("seedConfig.metadata.labels", Texts).rule(Labels),
    field("seedConfig.metadata.annotations", Texts).rule(AnnotationKeys),
    field("seedConfig.spec.backup.{provider,region}", Text),
    field("seedConfig.spec.{backup,provider,ingress.controller}.providerConfig", Any),
    field("seedConfig.spec.{backup,dns.provider,dns.internal,dns.defaults[]}.credentialsRef", Object),
    field(
        "seedConfig.spec.{backup,dns.provider,dns.internal,dns.defaults[]}.credentialsRef.\
         {apiVersion,kind,namespace,name,uid,resourceVersion,fieldPath}",
        Text,
    ),
    field("seedConfig.spec.dns.{provider,internal,defaults[]}.type", Text),
    field("seedConfig.spec.dns.{internal,defaults[]}.{domain,zone}", Text),
    field("seedConfig.spec.networks.{nodes,pods,services,shootDefaults.pods,shootDefaults.services}", Text),
    field("seedConfig.spec.networks.blockCIDRs[]", Text),
    field("seedConfig.spec.networks.ipFamilies[]", Text).rule(OneOf(&["IPv4", "IPv6"])),
    field("seedConfig.spec.provider.{type,region}", Text),
    field("seedConfig.spec.provider.zones[]", Text),
    field("seedConfig.spec.taints[].{key,value}", Text),
    field("seedConfig.spec.volume.minimumSize", Quantity),
    field("seedConfig.spec.volume.providers[].{purpose,name}", Text).rule(Required),
    field("seedConfig.spec.ingress.domain", Text).rule(Subdomain),
    field("seedConfig.spec.ingress.controller.kind", Text).rule(OneOf(&["nginx"])),
    field("seedConfig.spec.settings.excessCapacityReservation.enabled", Bool),
    field("seedConfig.spec.settings.excessCapacityReservation.configs[].resources", Quantities)
        .rule(Required),
    field("seedConfig.spec.settings.excessCapacityReservation.configs[].nodeSelector", Texts),
    field(
        "seedConfig.spec.settings.excessCapacityReservation.configs[].tolerations[].{key,operator,value,effect}",
        Text,
    ),
    field(
        "seedConfig.spec.settings.excessCapacityReservation.configs[].tolerations[].tolerationSeconds",
        Int,
    ),
    field("seedConfig.spec.settings.scheduling.visible", Bool),
    field("seedConfig.spec.settings.loadBalancerServices.{annotations,zones[].annotations}", Texts)
        .rule(AnnotationKeys),
    field(
        "seedConfig.spec.settings.loadBalancerServices.{externalTrafficPolicy,zones[].externalTrafficPolicy}",
        Text,
    )
    .rule(OneOf(&["Cluster", "Local"])),
    field(
        "seedConfig.spec.settings.loadBalancerServices.{proxyProtocol,zones[].proxyProtocol}.allowed",
        Bool,
    ),
    field("seedConfig.spec.settings.loadBalancerServices.zonalIngress.enabled", Bool),
    field("seedConfig.spec.settings.loadBalancerServices.class", Text).rule(QualifiedName),
    field("seedConfig.spec.settings.loadBalancerServices.zones[].name", Text).rule(Required),
    field("seedConfig.spec.settings.verticalPodAutoscaler.enabled", Bool),
    field("seedConfig.spec.settings.verticalPodAutoscaler.featureGates", Bools),
    field("seedConfig.spec.settings.verticalPodAutoscaler.maxAllowed", Quantities),
    field("seedConfig.spec.settings.{persistentVolumeClaimAutoscaler,topologyAwareRouting}.enabled", Bool),
    field("seedConfig.spec.settings.dependencyWatchdog.{weeder,prober}.enabled", Bool),
    field("seedConfig.spec.settings.zoneSelection.mode", Text).rule(OneOf(&["Prefer", "Enforce"])),
    field("seedConfig.spec.accessRestrictions[].name", Text).rule(Required),
    field("seedConfig.spec.accessRestrictions[].options", Texts),
    field("seedConfig.spec.extensions[].type", Text),
    field("seedConfig.spec.extensions[].providerConfig", Any),
    field("seedConfig.spec.extensions[].disabled", Bool),
    field(
        "seedConfig.spec.resources[].{name,resourceRef.apiVersion,resourceRef.kind,resourceRef.name}",
        Text,
    ),
];

/// Allowed values of `edge.components.nodes`.
const NODE_COMPONENTS: [&str; 2] = ["node-exporter", "node-problem-detector"];

/// Allowed values of `edge.components.disabled`.
pub(super) const COMPONENTS: [&str; 5] =
    ["cluster-identity", "etcd-crds", "machine-crds", "system", "vpa-crds"];

const EDGE: &[Field] = &[
    field("edge.workers", Int).default("8"),
    field("edge.resourceManager", Text).default(r#""Auto""#).rule(OneOf(&["Auto", "Embedded", "External"])),
    field("edge.stateDir", Text).rule(AbsolutePath),
    field("edge.heartbeat.{probeTimeout,renewTimeout}", Duration).default(r#""2s""#),
    // The longest heartbeat interval on slow links.
    field("edge.heartbeat.intervalMax", Duration),
    field("edge.liveness.stallTimeout", Duration).default(r#""2m0s""#),
    field("edge.liveness.tolerateOffline", Bool).default("false"),
    field("edge.chartCache.maxSize", Quantity).default(r#""64Mi""#),
    field("edge.registries", List),
    field("edge.registries[].host", Text).rule(Required),
    field("edge.registries[].mirrors[]", Text),
    field("edge.registries[].rewrites[].from", Text).rule(Required),
    field("edge.registries[].rewrites[].to", Text),
    field("edge.registries[].{caFile,certificateFile,keyFile,layoutDir}", Text),
    field("edge.registries[].insecure", Bool),
    field("edge.components.profile", Text).default(r#""core""#).rule(OneOf(&["core", "full"])),
    field("edge.components.disabled", List),
    field("edge.components.disabled[]", Text).rule(OneOf(&COMPONENTS)),
    field("edge.components.nodes", List),
    field("edge.components.nodes[]", Text).rule(OneOf(&NODE_COMPONENTS)),
    field("edge.bootstrap.keep", Bool).default("false"),
    field("edge.bootstrap.kubeconfig", Text),
    field("edge.etcd.mode", Text).default(r#""Plain""#).rule(OneOf(&["Plain", "Druid"])),
    field("edge.etcd.{main,events}.storageClass", Text).rule(Subdomain),
    // Its default depends on the Seed: `control_plane`.
    field("edge.etcd.{main,events}.size", Quantity),
    field("edge.etcd.snapshots.store", Text).default(r#""None""#).rule(OneOf(&["None", "Directory", "S3"])),
    field("edge.etcd.snapshots.directory", Text).rule(AbsolutePath),
    field("edge.etcd.snapshots.keep", Int).default("7"),
    // Its default depends on the Shoot.
    field("edge.etcd.snapshots.schedule", Text).rule(Cron),
    field("edge.etcd.snapshots.image", Text),
    field("edge.exposure.type", Text).default(r#""NodePort""#).rule(OneOf(&[
        "NodePort",
        "LoadBalancer",
        "ClusterIP",
    ])),
    field("edge.exposure.address", Text),
    field("edge.exposure.annotations", Texts).rule(AnnotationKeys),
    field("edge.hosts.types", List),
    field("edge.hosts.types[]", Text).rule(Required),
    field("edge.tunnel", Text).default(r#""Konnectivity""#).rule(OneOf(&["Konnectivity", "Direct"])),
];
