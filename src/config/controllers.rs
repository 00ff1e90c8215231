//! `controllers`: how many reconcilers of each kind run at once, and how often.

use std::time::Duration;

use serde_json::Value;

use super::backup::BackupEntryController;
use super::care::{SeedCare, ShootCare};
use super::read::FieldReader;

/// `controllers`: the fields that the agent reads. Workers are permits, not threads, and at least 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Controllers {
    /// Field `backupBucket.concurrentSyncs` of this section.
    pub(crate) backup_bucket_workers: u32,
    /// Field `backupEntry` of this section.
    pub(crate) backup_entry: BackupEntryController,
    /// Field `bastion.concurrentSyncs` of this section.
    pub(crate) bastion_workers: u32,
    /// Field `controllerInstallation.concurrentSyncs` of this section.
    pub(crate) controller_installation_workers: u32,
    /// Field `controllerInstallationCare.concurrentSyncs` of this section.
    pub(crate) controller_installation_care_workers: u32,
    /// Field `controllerInstallationCare.syncPeriod` of this section.
    pub(crate) controller_installation_care_sync_period: Duration,
    /// Field `controllerInstallationRequired.concurrentSyncs` of this section.
    pub(crate) controller_installation_required_workers: u32,
    /// `gardenlet.syncPeriod`: the agent reconciles itself at least this often; zero disables it.
    pub(crate) gardenlet_sync_period: Duration,
    /// Field `managedSeed` of this section.
    pub(crate) managed_seed: ManagedSeedController,
    /// Field `tokenRequestor.concurrentSyncs` of this section.
    pub(crate) token_requestor_workers: u32,
    /// Field `tokenRequestorWorkloadIdentity` of this section.
    pub(crate) workload_identity_tokens: WorkloadIdentityTokens,
    /// Field `vpaEvictionRequirements.concurrentSyncs` of this section.
    pub(crate) vpa_eviction_requirements_workers: u32,
    pub(crate) seed: SeedController,
    /// Field `seedCare` of this section.
    pub(crate) seed_care: SeedCare,
    pub(crate) shoot: ShootController,
    /// Field `shootState` of this section.
    pub(crate) shoot_state: ShootState,
    /// Field `shootCare` of this section.
    pub(crate) shoot_care: ShootCare,
    /// Field `networkPolicy` of this section.
    pub(crate) network_policy: NetworkPolicyController,
}

/// Field `controllers.networkPolicy` of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NetworkPolicyController {
    /// Field `concurrentSyncs` of this section.
    pub(crate) workers: u32,
    /// `additionalNamespaceSelectors`: further namespaces for the central policies.
    pub(crate) additional_namespace_selectors: Vec<Value>,
}

/// Field `controllers.tokenRequestorWorkloadIdentity` of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadIdentityTokens {
    /// Field `concurrentSyncs` of this section.
    pub(crate) workers: u32,
    /// `tokenExpirationDuration`: the lifetime of a token.
    pub(crate) lifetime: Duration,
}

/// Field `controllers.managedSeed` of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ManagedSeedController {
    /// Field `concurrentSyncs` of this section.
    pub(crate) workers: u32,
    /// The deployment of an agent is reconciled at least this often.
    pub(crate) sync_period: Duration,
    /// How often the agent polls while it waits.
    pub(crate) wait_sync_period: Duration,
    /// After a start, the reconciliations of ManagedSeeds are spread over this time.
    pub(crate) sync_jitter_period: Duration,
    /// Whether reconciliations after changes are spread too.
    pub(crate) jitter_updates: bool,
}

/// Field `controllers.shootState` of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShootState {
    /// `concurrentSyncs`; 0: disabled.
    pub(crate) workers: u32,
    /// A ShootState is written at least this often.
    pub(crate) sync_period: Duration,
}

/// Field `controllers.shoot` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShootController {
    /// Field `concurrentSyncs` of this section.
    pub(crate) workers: u32,
    /// Field `dnsEntryTTLSeconds` of this section.
    pub(crate) dns_entry_ttl_seconds: u32,
    /// A Shoot is reconciled at least this often.
    pub(crate) sync_period: Duration,
    /// Whether annotations of any Shoot may lengthen that period or make the agent ignore the Shoot; otherwise only
    /// Shoots in namespace `garden` may.
    pub(crate) respect_sync_period_overwrite: bool,
    /// Whether up-to-date Shoots are reconciled only in their maintenance time windows.
    pub(crate) reconcile_in_maintenance_only: bool,
    /// How long an operation is retried before it fails for good.
    pub(crate) retry_duration: Duration,
    /// The minimum interval between two progress reports of a flow.
    pub(crate) progress_report_period: Option<Duration>,
}

/// Field `controllers.seed` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeedController {
    /// A Seed is reconciled at least this often.
    pub(crate) sync_period: Duration,
    /// `leaseResyncSeconds`: the interval between two renewals of the Lease.
    pub(crate) lease_resync: Duration,
    /// How many renewals may be missed before the agent reports itself as unhealthy.
    pub(crate) lease_resync_miss_threshold: u32,
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
