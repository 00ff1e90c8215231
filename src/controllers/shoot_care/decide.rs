//! Decides the conditions of a Shoot. Pure.
//!
//! Each check stops at its first finding: a condition reports one problem at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::api::condition::{self, Condition, ConditionStatus, FailurePatience, Finding};
use crate::api::gardener::ShootStatus;
use crate::api::resources::CARE_LABEL;
use crate::base::clock::Timestamp;
use crate::base::sorted::SortedMap;
use crate::config::care::ShootCare;
use crate::format::time::parse_rfc3339;
use crate::resources::{ManagedResourceFault, ManagedResourceHead};

use super::reports::{self, Report};

/// Whether the API server answers.
pub(super) const API_SERVER: &str = "APIServerAvailable";
/// Whether the control plane in the seed is healthy.
pub(super) const CONTROL_PLANE: &str = "ControlPlaneHealthy";
/// Whether the observability components of the Shoot are healthy.
pub(super) const OBSERVABILITY: &str = "ObservabilityComponentsHealthy";
/// Whether Gardener's components inside the Shoot are healthy.
pub(super) const SYSTEM: &str = "SystemComponentsHealthy";
/// The conditions of a Shoot without workers.
pub(super) const CONDITIONS: [&str; 4] = [API_SERVER, CONTROL_PLANE, OBSERVABILITY, SYSTEM];

/// The etcds of a control plane.
const ETCDS: [&str; 2] = ["etcd-events", "etcd-main"];
/// How long a control plane may take to become healthy after a successful operation. Upstream's chart configures the same
/// time for all conditions.
const SETTLES: Duration = Duration::from_secs(60);
/// The message for a hibernated Shoot.
const ASLEEP: &str = "Shoot cluster has been hibernated.";
/// The message for a Shoot that is unknown in the seed.
pub(super) const NOT_INITIALIZED: &str = "Precondition failed: operation could not be initialized";

/// The result of a request to the API server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Server {
    /// It is not supposed to run: there is no Deployment with replicas. No request was sent.
    Stopped,
    /// There is no client for it, or it refused the client's credentials.
    Unreached(String),
    /// It did not answer a known client.
    Silent(String),
    /// It reports that it is unhealthy.
    Sick(u16, String),
    /// It is healthy.
    Well,
}

/// A Deployment of a control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Workload {
    /// What is wrong with it.
    pub(super) health: Result<(), String>,
    /// It should have pods: it has replicas and is not being deleted.
    pub(super) is_to_run: bool,
}

/// The findings in a Shoot's namespace of the seed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plane {
    /// Deployments of the control plane by name.
    pub(super) deployments: SortedMap<String, Workload>,
    /// Its etcds by name: what is wrong with them.
    pub(super) etcds: SortedMap<String, Result<(), String>>,
    /// The conditions that extensions report; empty unless all of them are known.
    pub(super) reports: Vec<Report>,
}

impl Plane {
    /// Whether the API server should run.
    pub(super) fn has_server(&self) -> bool {
        self.deployments.get("kube-apiserver").is_some_and(|server| server.is_to_run)
    }
}

/// The input of a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// The present time.
    pub(super) now: Timestamp,
    /// The configuration.
    pub(super) care: &'a ShootCare,
    /// The status in the garden.
    pub(super) status: &'a ShootStatus,
    /// The conditions before this check.
    pub(super) old: &'a [Condition],
    /// The Shoot is hibernated, or is about to be.
    pub(super) is_asleep: bool,
    /// The result of a request to its API server.
    pub(super) server: &'a Server,
    /// Its namespace in the seed, or why it cannot be read.
    pub(super) plane: Result<&'a Plane, &'a str>,
    /// The ManagedResources in it.
    pub(super) managed: &'a [Arc<ManagedResourceHead>],
    /// A gardener-resource-manager should run in the namespace.
    pub(super) needs_manager: bool,
    /// Why the embedded applier does not do that program's work although it should.
    pub(super) applier: Option<&'a str>,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Healthy.
    Well(Finding),
    /// Unhealthy.
    Failed(Finding),
    /// The report of an extension, unchanged.
    Told(ConditionStatus, Finding),
    /// Unknown.
    Unknown(String),
}

impl Facts<'_> {
    /// All present conditions.
    pub(super) fn conditions(&self) -> Vec<Condition> {
        let all = CONDITIONS.map(|kind| {
            let old = condition::find_or_init(self.old, kind, self.now);
            let next = self.apply(&old, self.check(kind));
            pardon(self.status, &old, next, self.now)
        });
        all.into()
    }

    fn check(&self, kind: &str) -> Verdict {
        if self.is_asleep {
            return Verdict::Well(Finding::new("ConditionNotChecked", ASLEEP));
        }
        match kind {
            API_SERVER => self.api_server(),
            CONTROL_PLANE => self.control_plane(),
            OBSERVABILITY => self.observability(),
            _ => self.system(),
        }
    }

    fn apply(&self, old: &Condition, verdict: Verdict) -> Condition {
        match verdict {
            Verdict::Well(finding) => old.updated(self.now, ConditionStatus::True, finding),
            Verdict::Failed(finding) => old.failed(self.now, self.patience(&old.kind), finding),
            Verdict::Told(status, finding) => old.updated(self.now, status, finding),
            Verdict::Unknown(why) => old.unknown(self.now, why),
        }
    }

    fn patience(&self, kind: &str) -> FailurePatience {
        let last = self.status.last_operation.as_ref().filter(|last| last.state == "Succeeded");
        let succeeded_at = last.and_then(|last| parse_rfc3339(&last.last_update_time).ok());
        // The flow waits for etcd and kube-apiserver, but not for kube-controller-manager. Upstream's takes longer after that.
        let settles = if kind == CONTROL_PLANE { SETTLES } else { Duration::ZERO };
        FailurePatience { threshold: self.care.thresholds.get(kind).copied(), succeeded_at, settles }
    }

    fn api_server(&self) -> Verdict {
        let down = "Could not reach API server during client initialization.";
        let failed = |reason: &str, text: String| Verdict::Failed(Finding::new(reason, text));
        match self.server {
            Server::Stopped => failed("APIServerDown", down.to_owned()),
            Server::Unreached(why) => failed("APIServerDown", format!("{down} {why}")),
            Server::Silent(why) => {
                failed("HealthzRequestFailed", format!("API server /healthz endpoint gave no answer: {why}"))
            }
            Server::Sick(code, body) => failed(
                "HealthzRequestError",
                format!("API server /healthz endpoint answered with status code {code}: {body}"),
            ),
            Server::Well => Verdict::Well(Finding::new(
                "HealthzRequestSucceeded",
                "API server /healthz endpoint responded with success status code.",
            )),
        }
    }

    fn control_plane(&self) -> Verdict {
        let plane = match self.plane {
            Ok(plane) => plane,
            Err(why) => return Verdict::Unknown(why.to_owned()),
        };
        let found = self
            .report(CONTROL_PLANE)
            .or_else(|| etcds(plane).map(Verdict::Failed))
            .or_else(|| self.deployments(plane).map(Verdict::Failed))
            .or_else(|| self.applier().map(Verdict::Failed))
            .or_else(|| self.managed(|m| !m.spec.class.is_empty() && feeds(m, CONTROL_PLANE, true)));
        found.unwrap_or_else(|| {
            Verdict::Well(Finding::new("ControlPlaneRunning", "All control plane components are healthy."))
        })
    }

    fn deployments(&self, plane: &Plane) -> Option<Finding> {
        let required = ["gardener-resource-manager", "kube-apiserver", "kube-controller-manager"];
        let required = required.iter().skip(usize::from(!self.needs_manager));
        let missing: Vec<&str> =
            required.copied().filter(|name| !plane.deployments.contains_key(*name)).collect();
        if !missing.is_empty() {
            let text = format!("Missing required deployments: [{}]", missing.join(" "));
            return Some(Finding::new("DeploymentMissing", text));
        }
        first_ill(plane.deployments.iter().map(|(name, workload)| (name, &workload.health)), "Deployment")
            .map(|text| Finding::new("DeploymentUnhealthy", text))
    }

    /// The embedded applier, which replaces a gardener-resource-manager. It needs the API server.
    fn applier(&self) -> Option<Finding> {
        let why = self.applier.filter(|_| *self.server == Server::Well)?;
        let text = format!("The agent does not apply the ManagedResources of the Shoot: {why}");
        Some(Finding::new("ResourceManagerNotServing", text))
    }

    fn observability(&self) -> Verdict {
        let found = self.report(OBSERVABILITY).or_else(|| self.managed(|m| feeds(m, OBSERVABILITY, false)));
        found.unwrap_or_else(|| {
            Verdict::Well(Finding::new(
                "ObservabilityComponentsRunning",
                "All observability components are healthy. This gardenlet installs no monitoring and no logging.",
            ))
        })
    }

    fn system(&self) -> Verdict {
        match self.server {
            Server::Stopped => return Verdict::Unknown(not_running(self.status).to_owned()),
            Server::Unreached(why) => {
                let text = format!("Could not initialize Shoot client for health check: {why}");
                return Verdict::Unknown(text);
            }
            Server::Silent(_) | Server::Sick(..) | Server::Well => {}
        }
        let found = self
            .report(SYSTEM)
            .or_else(|| self.managed(|m| m.spec.class.is_empty() || feeds(m, SYSTEM, false)));
        found.unwrap_or_else(|| {
            Verdict::Well(Finding::new("SystemComponentsRunning", "All system components are healthy."))
        })
    }

    fn report(&self, kind: &str) -> Option<Verdict> {
        let reports = self.plane.map_or(&[] as &[Report], |plane| plane.reports.as_slice());
        reports::verdict(reports, kind, self.care.stale_reports, self.now)
    }

    /// The first fault of the ManagedResources that count, ordered by name.
    fn managed(&self, counts: impl Fn(&ManagedResourceHead) -> bool) -> Option<Verdict> {
        let patience = self.care.progressing_threshold.map(|threshold| (threshold, self.now));
        let mut faults = self.managed.iter().filter(|m| counts(m)).filter_map(|m| m.fault(patience));
        faults.next().map(ManagedResourceFault::into_finding).map(Verdict::Failed)
    }
}

/// Whether the label of a ManagedResource assigns it to this condition. With `or_none`, a missing label counts too.
fn feeds(managed: &ManagedResourceHead, kind: &str, or_none: bool) -> bool {
    let said = managed.metadata.labels.get(CARE_LABEL).map_or("", String::as_str);
    said == kind || (or_none && said.is_empty())
}

fn etcds(plane: &Plane) -> Option<Finding> {
    let missing: Vec<&str> = ETCDS.into_iter().filter(|name| !plane.etcds.contains_key(*name)).collect();
    if !missing.is_empty() {
        let text = format!("Missing required etcds: [{}]", missing.join(" "));
        return Some(Finding::new("EtcdMissing", text));
    }
    first_ill(plane.etcds.iter(), "Etcd").map(|text| Finding::new("EtcdUnhealthy", text))
}

fn first_ill<'a>(
    mut all: impl Iterator<Item = (&'a String, &'a Result<(), String>)>,
    kind: &str,
) -> Option<String> {
    all.find_map(|(name, health)| {
        health.as_ref().err().map(|why| format!("{kind} \"{name}\" is unhealthy: {why}"))
    })
}

/// The message while there is no API server, depending on the last operation.
pub(super) fn not_running(status: &ShootStatus) -> &'static str {
    match status.last_operation.as_ref().map(|last| last.kind.as_str()) {
        None | Some("Create") => "Shoot control plane has not been fully created yet.",
        Some("Delete") => "Shoot control plane has already been or is about to be deleted.",
        Some(_) => "Shoot control plane is not running at the moment.",
    }
}

/// While an operation runs on the Shoot, nobody needs to be alarmed: `False` becomes `Progressing`. Unlike in upstream,
/// the last transition time stays if the condition was `Progressing` before.
pub(super) fn pardon(status: &ShootStatus, old: &Condition, next: Condition, now: Timestamp) -> Condition {
    if next.status != ConditionStatus::False || !is_pardoned(status) {
        return next;
    }
    old.updated(
        now,
        ConditionStatus::Progressing,
        Finding { reason: next.reason, message: next.message, codes: next.codes },
    )
}

fn is_pardoned(status: &ShootStatus) -> bool {
    let Some(last) = &status.last_operation else { return true };
    let is_made_or_unmade = matches!(last.kind.as_str(), "Create" | "Delete") && last.state != "Succeeded";
    is_made_or_unmade || (last.state == "Processing" && status.last_errors.is_empty())
}
