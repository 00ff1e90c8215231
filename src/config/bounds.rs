//! The smallest and largest value of each number, duration and quantity of a configuration, and why. Zero is checked
//! after the defaults are set: where a default replaces zero, zero means the default.

use serde_json::Value;

use crate::limits;

use super::scalar;
use super::schema::Type;
use super::shown::shown;

/// The bounds of one field, or of several fields with the same meaning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// As in the schema.
    pub(super) path: &'static str,
    /// Numbers as they are, durations in seconds, quantities in whole units.
    least: i64,
    /// [`i64::MAX`]: there is no upper bound.
    most: i64,
    pub(super) why: &'static str,
}

const fn within(path: &'static str, least: i64, most: i64, why: &'static str) -> Bounds {
    Bounds { path, least, most, why }
}

const HOUR_S: i64 = 3_600;
const WEEK_S: i64 = 7 * 24 * HOUR_S;
/// Ten years. Upstream has no bound for these, and this version does not read them yet.
const LONG_S: i64 = 87_600 * HOUR_S;
const LONG_WHY: &str = "a longer time is probably a mistake";
/// The most seconds that 32 bits can count, in whole hours.
const VALIDITY_S: i64 = 596_523 * HOUR_S;
const WORKERS: i64 = 1_000;

pub(super) const TABLE: &[Bounds] = &[
    within(
        "{garden,seed,shoot}ClientConnection.burst",
        1,
        10_000,
        "more requests at once overload an API server",
    ),
    within(
        "gardenClientConnection.kubeconfigValidity.validity",
        600,
        VALIDITY_S,
        "an API server signs for no shorter time, and a certificate request counts its seconds in 32 bits",
    ),
    within(
        "gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMin",
        1,
        99,
        "it is a percentage of the certificate's lifetime, below autoRotationJitterPercentageMax",
    ),
    within(
        "gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMax",
        2,
        100,
        "it is a percentage of the certificate's lifetime, above autoRotationJitterPercentageMin",
    ),
    within("resources.{capacity,reserved}", 0, i64::MAX, "a seed has no negative capacity"),
    within("leaderElection.leaseDuration", 1, WEEK_S, "a Lease counts whole seconds"),
    within("leaderElection.renewDeadline", 1, WEEK_S, "a Lease counts whole seconds"),
    within(
        "leaderElection.retryPeriod",
        1,
        HOUR_S,
        "a shorter one loads the seed's API server, a longer one leaves the seed without an agent",
    ),
    within("server.{healthProbes,metrics}.port", 1, 65_535, "TCP has no other ports"),
    within("logging.{vali,victoriaLogs}.garden.storage", 0, i64::MAX, "a volume has no negative size"),
    within(
        "etcdConfig.{etcdController,custodianController,backupCompactionController}.workers",
        0,
        WORKERS,
        "more workers do not help",
    ),
    within(
        "etcdConfig.backupCompactionController.eventsThreshold",
        0,
        1_000_000_000,
        "it is a number of events",
    ),
    within(
        "etcdConfig.backupCompactionController.{metricsScrapeWaitDuration,activeDeadlineDuration}",
        0,
        LONG_S,
        LONG_WHY,
    ),
    within(
        "etcdConfig.{backupLeaderElection.reelectionPeriod,backupLeaderElection.etcdConnectionTimeout,deltaSnapshotRetentionPeriod}",
        0,
        LONG_S,
        LONG_WHY,
    ),
    within(
        "nodeToleration.{defaultNotReadyTolerationSeconds,defaultUnreachableTolerationSeconds}",
        0,
        LONG_S,
        LONG_WHY,
    ),
    within("controllers.cacheSyncTimeout", 0, LONG_S, LONG_WHY),
    within(
        "controllers.{backupBucket,backupEntry,bastion,controllerInstallation,controllerInstallationCare,\
         controllerInstallationRequired,shoot,shootCare,shootState,shootStatus,networkPolicy,managedSeed,tokenRequestor,\
         tokenRequestorWorkloadIdentity,vpaEvictionRequirements}.concurrentSyncs",
        0,
        WORKERS,
        "more workers do not help",
    ),
    within("controllers.backupEntry.deletionGracePeriodHours", 0, LONG_S / HOUR_S, LONG_WHY),
    within(
        "controllers.{controllerInstallationCare,seed,seedCare}.syncPeriod",
        1,
        WEEK_S,
        "a shorter one loads the API servers constantly, a longer one sees changes too late",
    ),
    within("controllers.{gardenlet,shoot,managedSeed}.syncPeriod", 0, LONG_S, LONG_WHY),
    within(
        "controllers.{shootCare,shootState}.syncPeriod",
        1,
        LONG_S,
        "a shorter one loads the API servers constantly",
    ),
    within(
        "controllers.seed.leaseResyncSeconds",
        1,
        limits::LEASE_RESYNC_S_MAX,
        "a shorter one loads the garden constantly, and the garden considers a seed lost after 40 s without a \
         renewal, and one renewal may fail",
    ),
    within(
        "controllers.seed.leaseResyncMissThreshold",
        1,
        1_000,
        "without a renewal that may be missed the agent never becomes healthy",
    ),
    within("controllers.{seedCare,shootCare}.conditionThresholds[].duration", 0, LONG_S, LONG_WHY),
    within("controllers.shoot.{retryDuration,progressReportPeriod}", 0, LONG_S, LONG_WHY),
    within("controllers.shoot.dnsEntryTTLSeconds", 30, 600, "Gardener allows no other"),
    within(
        "controllers.shootCare.{staleExtensionHealthChecks.threshold,managedResourceProgressingThreshold}",
        0,
        LONG_S,
        LONG_WHY,
    ),
    within("controllers.managedSeed.{waitSyncPeriod,syncJitterPeriod}", 0, LONG_S, LONG_WHY),
    within("controllers.tokenRequestorWorkloadIdentity.tokenExpirationDuration", 0, LONG_S, LONG_WHY),
    within("seedConfig.metadata.{generation,deletionGracePeriodSeconds}", 0, i64::MAX, "it counts"),
    within("seedConfig.spec.volume.minimumSize", 0, i64::MAX, "a volume has no negative size"),
    within(
        "seedConfig.spec.settings.{excessCapacityReservation.configs[].resources,verticalPodAutoscaler.maxAllowed}",
        0,
        i64::MAX,
        "no container takes a negative amount",
    ),
    within(
        "seedConfig.spec.settings.excessCapacityReservation.configs[].tolerations[].tolerationSeconds",
        -LONG_S,
        LONG_S,
        "zero and less evict at once, and a longer time is probably a mistake",
    ),
    within("edge.workers", 1, 32, "each is a thread"),
    within(
        "edge.heartbeat.{probeTimeout,renewTimeout}",
        1,
        15,
        "the garden considers a seed lost after 40 s without a renewal, and these times count towards them",
    ),
    within(
        "edge.heartbeat.intervalMax",
        1,
        limits::HEARTBEAT_INTERVAL_S_MAX.cast_signed(),
        "the garden considers a seed lost after 40 s without a renewal, and some renewals may fail",
    ),
    within(
        "edge.liveness.stallTimeout",
        10,
        24 * HOUR_S,
        "a shorter one restarts an agent that only waits, a longer one leaves a stuck one alone",
    ),
    within("edge.chartCache.maxSize", 0, 1 << 40, "a cache of charts is never larger"),
    within(
        "edge.etcd.{main,events}.size",
        1 << 28,
        1 << 44,
        "etcd writes its log in files of 64 MiB and keeps several, and its data are at most 8Gi",
    ),
    within(
        "edge.etcd.snapshots.keep",
        1,
        1_000,
        "fewer keep nothing, and all of them are listed at each run",
    ),
];

impl Bounds {
    /// The problem of `value`, which has the type `ty`, and the remedy. `default` is JSON, or empty.
    pub(super) fn complaint(&self, value: &Value, ty: Type, default: &str) -> Option<String> {
        if let (Type::Quantities, Some(map)) = (ty, value.as_object()) {
            let wrong = map.iter().find(|(_, value)| self.excludes(value, Type::Quantity));
            return wrong.map(|(key, value)| {
                format!("{}: {}", shown(key), self.explain(value, Type::Quantity, default))
            });
        }
        self.excludes(value, ty).then(|| self.explain(value, ty, default))
    }

    fn excludes(&self, value: &Value, ty: Type) -> bool {
        let (amount, unit) = match ty {
            Type::Duration => {
                (value.as_str().and_then(scalar::duration_nanos).map(i128::from), 1_000_000_000)
            }
            Type::Quantity => (scalar::quantity_value(value), 1),
            _ => (value.as_i64().map(i128::from), 1),
        };
        let is_above = |amount| self.most != i64::MAX && amount > i128::from(self.most) * unit;
        amount.is_some_and(|amount| amount < i128::from(self.least) * unit || is_above(amount))
    }

    fn explain(&self, value: &Value, ty: Type, default: &str) -> String {
        let written = value.as_str().map_or_else(|| value.to_string(), shown);
        let remedy = match default.trim_matches('"') {
            "" => "change it or leave it out".to_owned(),
            default => format!("leave it out for the default, {default}"),
        };
        let from = if self.most == i64::MAX { "" } else { "from " };
        format!("must be {from}{}, not {written}: {}; {remedy}", self.range(ty), self.why)
    }

    /// The bounds as the documents write them.
    pub(super) fn range(&self, ty: Type) -> String {
        let text = |amount: i64| match ty {
            Type::Duration => scalar::seconds_text(amount),
            Type::Quantity | Type::Quantities => scalar::size_text(amount),
            _ => amount.to_string(),
        };
        match self.most {
            i64::MAX => format!("at least {}", text(self.least)),
            most => format!("{} to {}", text(self.least), text(most)),
        }
    }
}
