//! The metrics that the agent computes when it serves them.

use crate::api::condition::Condition;
use crate::api::gardener::ShootHead;
use crate::base::clock::Timestamp;
use crate::base::metrics::Metrics;
use crate::base::process;
use crate::config::version::{GARDENER, PROGRAM};
use crate::controllers::lease::INTERVAL;
use crate::kube::{ANSWERED, REACHABLE, RESPONSE_SECONDS};
use crate::runtime::{leader, pool};
use crate::shoot::ShootMove;

use super::super::status::{AgentStatus, CertificateValidity};
use super::{Sources, Stores};

/// The states of a Shoot's last operation; `None` is for a Shoot without one.
const SHOOT_STATES: [&str; 7] = ["Succeeded", "Processing", "Pending", "Error", "Failed", "Aborted", "None"];
/// Only these types are counted, so that the number of series is fixed whatever the objects contain.
const SHOOT_CONDITIONS: [&str; 5] = [
    "APIServerAvailable",
    "ControlPlaneHealthy",
    "ObservabilityComponentsHealthy",
    "EveryNodeReady",
    "SystemComponentsHealthy",
];
const INSTALLATION_CONDITIONS: [&str; 5] = ["Valid", "Installed", "Healthy", "Progressing", "Required"];
const SEED_CONDITIONS: [&str; 5] = [
    "GardenletReady",
    "SeedSystemComponentsHealthy",
    "BackupBucketsReady",
    "ExtensionsReady",
    "EmergencyStopShootReconciliations",
];
const STATUSES: [&str; 4] = ["True", "False", "Progressing", "Unknown"];

const LEASE_AGE: &str = "gardenlet_seed_lease_age_seconds";
const EXPIRES: &str = "gardenlet_garden_certificate_expiration_timestamp_seconds";
const STARTED: &str = "process_start_time_seconds";

/// Removes the metrics that only a leader updates.
pub(in crate::app) fn withdraw(metrics: &Metrics) {
    for name in [LEASE_AGE, INTERVAL, EXPIRES] {
        metrics.remove(name, &[]);
    }
    for name in [REACHABLE, ANSWERED, RESPONSE_SECONDS] {
        for peer in ["garden", "shoot"] {
            metrics.remove(name, &[("peer", peer)]);
        }
    }
}

/// Sets the metrics that the agent computes when it serves them.
pub(in crate::app) fn refresh(status: &AgentStatus, sources: &Sources, metrics: &Metrics) {
    refresh_term(status, metrics);
    refresh_process(metrics);
    for (lease, fence) in &status.leases() {
        leader::refresh(metrics, lease.rsplit('/').next().unwrap_or_default(), fence);
    }
    for lane in sources.pool.lanes() {
        refresh_lane(metrics, &lane);
    }
    refresh_objects(metrics, status.stores().as_ref());
}

fn refresh_term(status: &AgentStatus, metrics: &Metrics) {
    if !status.is_leading() {
        // Requests of the last term may have ended after it.
        return withdraw(metrics);
    }
    let set = |name, help, to| metrics.set(name, help, &[], to);
    if let Some(age) = status.lease_age() {
        set(LEASE_AGE, "Time since the seed's lease was renewed.", age.as_secs_f64());
    }
    if let Some(CertificateValidity { expires, .. }) = status.validity() {
        set(EXPIRES, "When the client certificate for the garden expires.", expires.seconds());
    }
}

/// Sets all series even on an agent without objects, because another agent leads.
#[expect(clippy::cast_precision_loss, reason = "a metric needs no more precision")]
fn refresh_objects(metrics: &Metrics, stores: Option<&Stores>) {
    let shoots = stores.map(|stores| stores.shoots.store().values()).unwrap_or_default();
    let state_of = |shoot: &ShootHead| {
        let last = shoot.status.last_operation.as_ref().map_or("None", |last| last.state.as_str());
        SHOOT_STATES.iter().position(|state| *state == last)
    };
    let mut counts = [0_usize; SHOOT_STATES.len()];
    shoots.iter().filter_map(|shoot| state_of(shoot)).for_each(|state| counts[state] += 1);
    for (state, count) in SHOOT_STATES.iter().zip(counts) {
        let help = "Shoots of this seed by the state of their last operation.";
        metrics.set("gardenlet_shoots", help, &[("state", state)], count as f64);
    }
    let seed = stores.map_or("", |stores| stores.seed.name.as_str());
    let moves = shoots.iter().filter_map(|shoot| ShootMove::of(shoot, seed)).map(ShootMove::direction);
    let moves: Vec<&str> = moves.collect();
    for direction in ["leaving", "arriving"] {
        let help = "Shoots that move from this seed to another one, or to this one.";
        let count = moves.iter().filter(|found| **found == direction).count();
        metrics.set("gardenlet_moving_shoots", help, &[("direction", direction)], count as f64);
    }
    let conditions = shoots.iter().flat_map(|shoot| &shoot.status.conditions);
    let help = "Shoots of this seed by type and status of each condition.";
    set(metrics, "gardenlet_shoot_conditions", help, &counted(&SHOOT_CONDITIONS, &mut { conditions }));
    let installations = stores.map(|stores| stores.installations.store().values()).unwrap_or_default();
    let conditions = installations.iter().flat_map(|it| &it.status.conditions);
    let help = "ControllerInstallations of this seed by type and status of each condition.";
    let counts = counted(&INSTALLATION_CONDITIONS, &mut { conditions });
    set(metrics, "gardenlet_controller_installation_conditions", help, &counts);
    let seed = stores.and_then(|stores| stores.seeds.store().get(&stores.seed));
    let conditions = seed.iter().flat_map(|seed| &seed.status.conditions);
    let help = "Whether a condition of the Seed has this status.";
    set(metrics, "gardenlet_seed_conditions", help, &counted(&SEED_CONDITIONS, &mut { conditions }));
}

type Counts = Vec<(&'static str, [u32; STATUSES.len()])>;

/// Counts the conditions of these types by status.
fn counted(kinds: &[&'static str], conditions: &mut dyn Iterator<Item = &Condition>) -> Counts {
    let mut counts: Counts = kinds.iter().map(|kind| (*kind, [0; STATUSES.len()])).collect();
    for condition in conditions {
        let of_kind = counts.iter_mut().find(|(kind, _)| *kind == condition.kind);
        let status = STATUSES.iter().position(|status| *status == condition.status.as_str());
        if let (Some((_, counts)), Some(status)) = (of_kind, status) {
            counts[status] += 1;
        }
    }
    counts
}

fn set(metrics: &Metrics, name: &'static str, help: &'static str, counts: &Counts) {
    for (kind, counts) in counts {
        for (status, count) in STATUSES.iter().zip(counts) {
            metrics.set(name, help, &[("condition", kind), ("status", status)], f64::from(*count));
        }
    }
}

fn refresh_process(metrics: &Metrics) {
    let usage = process::usage();
    let help = "Total user and system CPU time spent in seconds.";
    metrics.reach("process_cpu_seconds_total", help, &[], usage.cpu_s);
    let gauges = [
        ("process_resident_memory_bytes", "Resident memory size in bytes.", usage.resident_bytes),
        ("process_virtual_memory_bytes", "Virtual memory size in bytes.", usage.virtual_bytes),
        ("process_open_fds", "Number of open file descriptors.", usage.open_fds),
        ("process_threads", "Number of threads.", usage.threads),
    ];
    for (name, help, to) in gauges {
        metrics.set(name, help, &[], to);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric needs no more precision")]
fn refresh_lane(metrics: &Metrics, lane: &pool::LaneView) {
    let (name, controller) = ([("name", lane.name)], [("controller", lane.name)]);
    metrics.set("workqueue_depth", "Current depth of workqueue.", &name, lane.depth as f64);
    let help = "How many seconds has the longest running processor for workqueue been running.";
    let longest = lane.longest.as_secs_f64();
    metrics.set("workqueue_longest_running_processor_seconds", help, &name, longest);
    let help = "Number of currently used workers per controller.";
    metrics.set("controller_runtime_active_workers", help, &controller, lane.active as f64);
    let help = "Maximum number of concurrent reconciles per controller.";
    metrics.set("controller_runtime_max_concurrent_reconciles", help, &controller, lane.permits as f64);
    let help = "Total number of adds handled by workqueue.";
    metrics.reach("workqueue_adds_total", help, &name, lane.adds as f64);
    let help = "Total number of retries handled by workqueue.";
    metrics.reach("workqueue_retries_total", help, &name, lane.retries as f64);
}

/// Sets the metrics that never change. A reload changes nothing about the start of the process.
pub(in crate::app) fn introduce(metrics: &Metrics, now: Timestamp) {
    let labels = [("version", PROGRAM), ("gardener_version", GARDENER), ("arch", std::env::consts::ARCH)];
    metrics.set("gardenlet_build_info", "Versions and architecture of this program; always 1.", &labels, 1.0);
    let help = "Start time of the process since unix epoch in seconds.";
    if metrics.value(STARTED, &[]).is_none() {
        metrics.set(STARTED, help, &[], now.seconds());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::condition::ConditionStatus;
    use crate::base::clock::{Clock, Mono};
    use crate::controllers::lease::BeatOutcome;

    #[test]
    fn conditions_are_counted_by_known_types_and_all_statuses() {
        let condition =
            |kind: &str, status| Condition { kind: kind.to_owned(), status, ..Condition::default() };
        let all = [
            condition("Valid", ConditionStatus::True),
            condition("Valid", ConditionStatus::True),
            condition("Valid", ConditionStatus::Progressing),
            condition("Foreign", ConditionStatus::False),
        ];
        let counts = counted(&["Valid", "Healthy"], &mut all.iter());
        assert_eq!(counts, [("Valid", [2, 0, 1, 0]), ("Healthy", [0; 4])]);
    }

    #[test]
    fn a_reload_is_no_start() {
        let metrics = Metrics::new();
        for now in [5, 9] {
            introduce(&metrics, Timestamp::from_unix(now));
        }
        assert_eq!(metrics.value(STARTED, &[]), Some(5.0));
    }

    #[test]
    fn who_does_not_lead_knows_nothing_of_the_garden() {
        let metrics = Metrics::new();
        let status = AgentStatus::new(Clock::system());
        let (begins, expires) = (Timestamp::from_unix(5), Timestamp::from_unix(9));
        status.leading(true);
        status.certificate(Some(CertificateValidity { begins, expires }));
        status.beat.record(BeatOutcome::Renewed, Mono::ZERO, Duration::ZERO);
        for name in [REACHABLE, ANSWERED, RESPONSE_SECONDS] {
            for peer in ["garden", "seed"] {
                metrics.set(name, "", &[("peer", peer)], 1.0);
            }
        }
        metrics.set(INTERVAL, "", &[], 5.0);
        refresh_term(&status, &metrics);
        assert_eq!(metrics.value(EXPIRES, &[]), Some(9.0));
        assert!(metrics.value(LEASE_AGE, &[]).is_some());
        status.leading(false);
        refresh_term(&status, &metrics);
        let left: Vec<String> =
            metrics.text().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        let of_seed =
            [REACHABLE, ANSWERED, RESPONSE_SECONDS].map(|name| format!("{name}{{peer=\"seed\"}} 1"));
        assert!(left.len() == 3 && of_seed.iter().all(|line| left.contains(line)), "{left:?}");
    }

    #[test]
    fn without_objects_all_series_are_there() {
        let metrics = Metrics::new();
        refresh_objects(&metrics, None);
        assert_eq!(metrics.value("gardenlet_shoots", &[("state", "None")]), Some(0.0));
        let labels = [("condition", "GardenletReady"), ("status", "Unknown")];
        assert_eq!(metrics.value("gardenlet_seed_conditions", &labels), Some(0.0));
        assert_eq!(metrics.text().lines().filter(|line| !line.starts_with('#')).count(), 69);
    }
}
