//! Kinds that extension controllers reconcile.

use super::meta::Resource;

/// The kind `BackupBucket` of `extensions.gardener.cloud/v1alpha1`.
pub const BACKUP_BUCKET: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "BackupBucket", "backupbuckets", false);

/// The kind `BackupEntry` of `extensions.gardener.cloud/v1alpha1`.
pub const BACKUP_ENTRY: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "BackupEntry", "backupentries", false);

/// The kind `Bastion` of `extensions.gardener.cloud/v1alpha1`.
pub const BASTION: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Bastion", "bastions", true);

pub(crate) const CLUSTER: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Cluster", "clusters", false);

/// The kind `ContainerRuntime` of `extensions.gardener.cloud/v1alpha1`.
pub const CONTAINER_RUNTIME: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "ContainerRuntime", "containerruntimes", true);

/// The kind `ControlPlane` of `extensions.gardener.cloud/v1alpha1`.
pub const CONTROL_PLANE: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "ControlPlane", "controlplanes", true);

/// The kind `DNSRecord` of `extensions.gardener.cloud/v1alpha1`.
pub const DNS_RECORD: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "DNSRecord", "dnsrecords", true);

/// The kind `Extension` of `extensions.gardener.cloud/v1alpha1`.
pub const EXTENSION: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Extension", "extensions", true);

/// The kind `Infrastructure` of `extensions.gardener.cloud/v1alpha1`.
pub const INFRASTRUCTURE: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Infrastructure", "infrastructures", true);

/// The kind `Network` of `extensions.gardener.cloud/v1alpha1`.
pub const NETWORK: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Network", "networks", true);

/// The kind `OperatingSystemConfig` of `extensions.gardener.cloud/v1alpha1`.
pub const OPERATING_SYSTEM_CONFIG: Resource = Resource::new(
    "extensions.gardener.cloud",
    "v1alpha1",
    "OperatingSystemConfig",
    "operatingsystemconfigs",
    true,
);

/// The kind `SelfHostedShootExposure` of `extensions.gardener.cloud/v1alpha1`.
pub const SELF_HOSTED_SHOOT_EXPOSURE: Resource = Resource::new(
    "extensions.gardener.cloud",
    "v1alpha1",
    "SelfHostedShootExposure",
    "selfhostedshootexposures",
    true,
);

/// The kind `Worker` of `extensions.gardener.cloud/v1alpha1`.
pub const WORKER: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Worker", "workers", true);

/// All kinds that extension controllers reconcile; they only read `Cluster`.
pub static SERVED: [Resource; 12] = [
    BACKUP_BUCKET,
    BACKUP_ENTRY,
    BASTION,
    CONTAINER_RUNTIME,
    CONTROL_PLANE,
    DNS_RECORD,
    EXTENSION,
    INFRASTRUCTURE,
    NETWORK,
    OPERATING_SYSTEM_CONFIG,
    SELF_HOSTED_SHOOT_EXPOSURE,
    WORKER,
];
