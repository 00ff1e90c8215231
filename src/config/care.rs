//! How often the health of Seeds and Shoots is checked, and how long faults are tolerated.

use std::time::Duration;

use super::read::FieldReader;
use crate::base::sorted::SortedMap;

/// Field `controllers.seedCare` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeedCare {
    /// How often components and pods are checked.
    pub(crate) sync_period: Duration,
    /// How long a condition may be `Progressing` before it is `False`, by its type.
    pub(crate) thresholds: SortedMap<String, Duration>,
}

/// Field `controllers.shootCare` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShootCare {
    /// Field `concurrentSyncs` of this section.
    pub(crate) workers: u32,
    /// How often a healthy Shoot is checked.
    pub(crate) sync_period: Duration,
    /// How long a condition may be `Progressing` before it is `False`, by its type.
    pub(crate) thresholds: SortedMap<String, Duration>,
    /// The report of an extension whose Lease is older than this is ignored; `None`: reports of any age count.
    pub(crate) stale_reports: Option<Duration>,
    /// How long the rollout of a ManagedResource may take before it is a fault; `None`: it is a fault at once.
    pub(crate) progressing_threshold: Option<Duration>,
    /// Whether the agent changes webhooks of the owner that could keep the Shoot from waking up.
    pub(crate) remediates_webhooks: bool,
}

impl SeedCare {
    pub(super) fn read(r: FieldReader<'_>) -> Self {
        Self { sync_period: r.duration("syncPeriod"), thresholds: thresholds(r) }
    }
}

impl ShootCare {
    pub(super) fn read(r: FieldReader<'_>) -> Self {
        let stale = r.at("staleExtensionHealthChecks");
        Self {
            workers: r.count("concurrentSyncs").max(1),
            sync_period: r.duration("syncPeriod"),
            thresholds: thresholds(r),
            stale_reports: stale.flag("enabled").then(|| stale.duration("threshold")),
            progressing_threshold: r.optional_duration("managedResourceProgressingThreshold"),
            remediates_webhooks: r.flag("webhookRemediatorEnabled"),
        }
    }
}

fn thresholds(care: FieldReader<'_>) -> SortedMap<String, Duration> {
    let items = care.items("conditionThresholds");
    items.map(|item| (item.str("type").to_owned(), item.duration("duration"))).collect()
}
