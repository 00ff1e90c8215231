//! Kinds that extension controllers reconcile.

use super::meta::Resource;

/// extensions.gardener.cloud/v1alpha1 BackupBucket.
pub const BACKUP_BUCKET: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "BackupBucket", "backupbuckets", false);

/// extensions.gardener.cloud/v1alpha1 BackupEntry.
pub const BACKUP_ENTRY: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "BackupEntry", "backupentries", false);

/// extensions.gardener.cloud/v1alpha1 Bastion.
pub const BASTION: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Bastion", "bastions", true);

/// extensions.gardener.cloud/v1alpha1 Cluster.
pub const CLUSTER: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Cluster", "clusters", false);

/// extensions.gardener.cloud/v1alpha1 ContainerRuntime.
pub const CONTAINER_RUNTIME: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "ContainerRuntime", "containerruntimes", true);

/// extensions.gardener.cloud/v1alpha1 ControlPlane.
pub const CONTROL_PLANE: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "ControlPlane", "controlplanes", true);

/// extensions.gardener.cloud/v1alpha1 DNSRecord.
pub const DNS_RECORD: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "DNSRecord", "dnsrecords", true);

/// extensions.gardener.cloud/v1alpha1 Extension.
pub const EXTENSION: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Extension", "extensions", true);

/// extensions.gardener.cloud/v1alpha1 Infrastructure.
pub const INFRASTRUCTURE: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Infrastructure", "infrastructures", true);

/// extensions.gardener.cloud/v1alpha1 Network.
pub const NETWORK: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "Network", "networks", true);

/// extensions.gardener.cloud/v1alpha1 OperatingSystemConfig.
pub const OPERATING_SYSTEM_CONFIG: Resource = Resource::new(
    "extensions.gardener.cloud",
    "v1alpha1",
    "OperatingSystemConfig",
    "operatingsystemconfigs",
    true,
);

/// extensions.gardener.cloud/v1alpha1 SelfHostedShootExposure.
pub const SELF_HOSTED_SHOOT_EXPOSURE: Resource = Resource::new(
    "extensions.gardener.cloud",
    "v1alpha1",
    "SelfHostedShootExposure",
    "selfhostedshootexposures",
    true,
);

/// extensions.gardener.cloud/v1alpha1 Worker.
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
