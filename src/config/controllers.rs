//! `controllers`: how many reconcilers of each kind run at once, and how often.

use std::time::Duration;

use serde_json::Value;

use super::backup::BackupEntryController;
use super::care::{SeedCare, ShootCare};
use super::read::FieldReader;

/// `controllers`: the fields that the agent reads. Workers are permits, not threads, and at least 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Controllers {
    /// `backupBucket.concurrentSyncs`.
    pub backup_bucket_workers: u32,
    /// `backupEntry`.
    pub backup_entry: BackupEntryController,
    /// `bastion.concurrentSyncs`.
    pub bastion_workers: u32,
    /// `controllerInstallation.concurrentSyncs`.
    pub controller_installation_workers: u32,
    /// `controllerInstallationCare.concurrentSyncs`.
    pub controller_installation_care_workers: u32,
    /// `controllerInstallationCare.syncPeriod`.
    pub controller_installation_care_sync_period: Duration,
    /// `controllerInstallationRequired.concurrentSyncs`.
    pub controller_installation_required_workers: u32,
    /// `gardenlet.syncPeriod`: the agent reconciles itself at least this often; zero disables it.
    pub gardenlet_sync_period: Duration,
    /// `managedSeed`.
    pub managed_seed: ManagedSeedController,
    /// `tokenRequestor.concurrentSyncs`.
    pub token_requestor_workers: u32,
    /// `tokenRequestorWorkloadIdentity`.
    pub workload_identity_tokens: WorkloadIdentityTokens,
    /// `vpaEvictionRequirements.concurrentSyncs`.
    pub vpa_eviction_requirements_workers: u32,
    /// `seed`.
    pub seed: SeedController,
    /// `seedCare`.
    pub seed_care: SeedCare,
    /// `shoot`.
    pub shoot: ShootController,
    /// `shootState`.
    pub shoot_state: ShootState,
    /// `shootCare`.
    pub shoot_care: ShootCare,
    /// `networkPolicy`.
    pub network_policy: NetworkPolicyController,
}

/// `controllers.networkPolicy`.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkPolicyController {
    /// `concurrentSyncs`.
    pub workers: u32,
    /// `additionalNamespaceSelectors`: further namespaces for the central policies.
    pub additional_namespace_selectors: Vec<Value>,
}

/// `controllers.tokenRequestorWorkloadIdentity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadIdentityTokens {
    /// `concurrentSyncs`.
    pub workers: u32,
    /// `tokenExpirationDuration`: the lifetime of a token.
    pub lifetime: Duration,
}

/// `controllers.managedSeed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedSeedController {
    /// `concurrentSyncs`.
    pub workers: u32,
    /// The deployment of an agent is reconciled at least this often.
    pub sync_period: Duration,
    /// How often the agent polls while it waits.
    pub wait_sync_period: Duration,
    /// After a start, the reconciliations of ManagedSeeds are spread over this time.
    pub sync_jitter_period: Duration,
    /// Whether reconciliations after changes are spread too.
    pub jitter_updates: bool,
}

/// `controllers.shootState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShootState {
    /// `concurrentSyncs`; 0: disabled.
    pub workers: u32,
    /// A ShootState is written at least this often.
    pub sync_period: Duration,
}

/// `controllers.shoot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShootController {
    /// `concurrentSyncs`.
    pub workers: u32,
    /// `dnsEntryTTLSeconds`.
    pub dns_entry_ttl_seconds: u32,
    /// A Shoot is reconciled at least this often.
    pub sync_period: Duration,
    /// Whether annotations of any Shoot may lengthen that period or make the agent ignore the Shoot; otherwise only
    /// Shoots in namespace `garden` may.
    pub respect_sync_period_overwrite: bool,
    /// Whether up-to-date Shoots are reconciled only in their maintenance time windows.
    pub reconcile_in_maintenance_only: bool,
    /// How long an operation is retried before it fails for good.
    pub retry_duration: Duration,
    /// The minimum interval between two progress reports of a flow.
    pub progress_report_period: Option<Duration>,
}

/// `controllers.seed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedController {
    /// A Seed is reconciled at least this often.
    pub sync_period: Duration,
    /// `leaseResyncSeconds`: the interval between two renewals of the Lease.
    pub lease_resync: Duration,
    /// How many renewals may be missed before the agent reports itself as unhealthy.
    pub lease_resync_miss_threshold: u32,
}

impl Controllers {
    pub(super) fn read(r: FieldReader<'_>) -> Self {
        let workers = |path| r.count(path).max(1);
        Self {
            backup_bucket_workers: workers("backupBucket.concurrentSyncs"),
            backup_entry: BackupEntryController::read(r.at("backupEntry")),
            bastion_workers: workers("bastion.concurrentSyncs"),
            controller_installation_workers: workers("controllerInstallation.concurrentSyncs"),
            controller_installation_care_workers: workers("controllerInstallationCare.concurrentSyncs"),
            controller_installation_care_sync_period: r.duration("controllerInstallationCare.syncPeriod"),
            controller_installation_required_workers: workers(
                "controllerInstallationRequired.concurrentSyncs",
            ),
            gardenlet_sync_period: r.duration("gardenlet.syncPeriod"),
            managed_seed: ManagedSeedController {
                workers: workers("managedSeed.concurrentSyncs"),
                sync_period: r.duration("managedSeed.syncPeriod"),
                wait_sync_period: r.duration("managedSeed.waitSyncPeriod"),
                sync_jitter_period: r.duration("managedSeed.syncJitterPeriod"),
                jitter_updates: r.flag("managedSeed.jitterUpdates"),
            },
            token_requestor_workers: workers("tokenRequestor.concurrentSyncs"),
            workload_identity_tokens: WorkloadIdentityTokens {
                workers: workers("tokenRequestorWorkloadIdentity.concurrentSyncs"),
                lifetime: r.duration("tokenRequestorWorkloadIdentity.tokenExpirationDuration"),
            },
            vpa_eviction_requirements_workers: workers("vpaEvictionRequirements.concurrentSyncs"),
            seed: SeedController {
                sync_period: r.duration("seed.syncPeriod"),
                lease_resync: Duration::from_secs(r.count("seed.leaseResyncSeconds").into()),
                lease_resync_miss_threshold: r.count("seed.leaseResyncMissThreshold"),
            },
            seed_care: SeedCare::read(r.at("seedCare")),
            shoot_state: ShootState {
                workers: r.count("shootState.concurrentSyncs"),
                sync_period: r.duration("shootState.syncPeriod"),
            },
            shoot: ShootController {
                workers: r.count("shoot.concurrentSyncs"),
                dns_entry_ttl_seconds: r.count("shoot.dnsEntryTTLSeconds"),
                sync_period: r.duration("shoot.syncPeriod"),
                respect_sync_period_overwrite: r.flag("shoot.respectSyncPeriodOverwrite"),
                reconcile_in_maintenance_only: r.flag("shoot.reconcileInMaintenanceOnly"),
                retry_duration: r.duration("shoot.retryDuration"),
                progress_report_period: r.optional_duration("shoot.progressReportPeriod"),
            },
            shoot_care: ShootCare::read(r.at("shootCare")),
            network_policy: NetworkPolicyController {
                workers: workers("networkPolicy.concurrentSyncs"),
                additional_namespace_selectors: r
                    .items("networkPolicy.additionalNamespaceSelectors")
                    .map(|item| item.value().clone())
                    .collect(),
            },
        }
    }
}
