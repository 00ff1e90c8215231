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
use crate::operation::components::component::{Duty, Turn};
use crate::operation::components::workload::Workload;
use crate::operation::components::{COMPONENTS, stopping};
use crate::resources::{ManagedResourceFault, ManagedResourceHead, RolloutPatience};
use crate::shoot::pools::Pool;

use super::nodes::{self, NodeFindings};
use super::reports::{self, ExtensionReport};

/// Whether the API server answers.
pub(super) const API_SERVER: &str = "APIServerAvailable";
/// Whether the control plane in the seed is healthy.
pub(super) const CONTROL_PLANE: &str = "ControlPlaneHealthy";
/// Whether the observability components of the Shoot are healthy.
pub(super) const OBSERVABILITY: &str = "ObservabilityComponentsHealthy";
/// Whether Gardener's components inside the Shoot are healthy.
pub(super) const SYSTEM: &str = "SystemComponentsHealthy";
/// Whether the nodes of a Shoot with workers are healthy.
pub(super) const EVERY_NODE: &str = "EveryNodeReady";
/// The conditions of a Shoot. The last one is only for workers.
pub(super) const CONDITIONS: [&str; 5] = [API_SERVER, CONTROL_PLANE, OBSERVABILITY, SYSTEM, EVERY_NODE];

/// The conditions that a Shoot has.
pub(super) fn kinds(has_workers: bool) -> &'static [&'static str] {
    if has_workers { &CONDITIONS } else { &CONDITIONS[..4] }
}

/// How long a control plane may take to become healthy after a successful operation. Upstream's chart configures the same
/// time for all conditions.
const SETTLES: Duration = Duration::from_secs(60);
/// The message for a hibernated Shoot.
const ASLEEP: &str = "Shoot cluster has been hibernated.";
/// The message for a Shoot that is unknown in the seed.
pub(super) const NOT_INITIALIZED: &str = "Precondition failed: operation could not be initialized";

/// The result of a request to the API server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ServerHealth {
    /// It is not supposed to run: there is no Deployment with replicas. No request was sent.
    Stopped,
    /// There is no client for it, or it refused the client's credentials.
    Unreached(String),
    /// It did not answer a known client.
    Silent(String),
    /// It reports that it is unhealthy.
    Sick(u16, String),
    Well,
}

/// A Deployment of a control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeenWorkload {
    /// What is wrong with it.
    pub(super) health: Result<(), String>,
    /// It should have pods: it has replicas and is not being deleted.
    pub(super) is_to_run: bool,
}

/// The findings in a Shoot's namespace of the seed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plane {
    /// Deployments of the control plane by name.
    pub(super) deployments: SortedMap<String, SeenWorkload>,
    /// Its etcds by name: what is wrong with them.
    pub(super) etcds: SortedMap<String, Result<(), String>>,
    /// The conditions that extensions report; empty unless all of them are known.
    pub(super) reports: Vec<ExtensionReport>,
}

impl Plane {
    /// Whether the API server should run.
    pub(super) fn has_server(&self) -> bool {
        let is_to_run =
            |server: Workload| self.deployments.get(server.name()).is_some_and(|seen| seen.is_to_run);
        stopping(Turn::Server).all(is_to_run)
    }
}

/// The input of a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckInput<'a> {
    pub(super) now: Timestamp,
    pub(super) care: &'a ShootCare,
    /// The status in the garden.
    pub(super) status: &'a ShootStatus,
    /// The conditions before this check.
    pub(super) old: &'a [Condition],
    /// The Shoot is hibernated, or is about to be.
    pub(super) is_asleep: bool,
    /// The result of a request to its API server.
    pub(super) server: &'a ServerHealth,
    /// Its namespace in the seed, or why it cannot be read.
    pub(super) plane: Result<&'a Plane, &'a str>,
    /// The ManagedResources in it.
    pub(super) managed: &'a [Arc<ManagedResourceHead>],
    /// What decides which workloads the namespace must have.
    pub(super) duty: Duty,
    /// Why the embedded applier does not do that program's work although it should.
    pub(super) applier: Option<&'a str>,
    /// The pools of the Shoot; none without workers.
    pub(super) pools: &'a [Pool],
    /// What is known about its nodes; none while its server does not answer.
    pub(super) nodes: Option<&'a NodeFindings>,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CheckResult {
    Well(Finding),
    Failed(Finding),
    /// The report of an extension, unchanged.
    Reported(ConditionStatus, Finding),
    Unknown(String),
}

impl CheckInput<'_> {
    pub(super) fn conditions(&self) -> Vec<Condition> {
        let of = |kind: &&str| {
            let old = condition::find_or_init(self.old, kind, self.now);
            let next = self.apply(&old, self.check(kind));
            pardon(self.status, &old, next, self.now)
        };
        kinds(!self.pools.is_empty()).iter().map(of).collect()
    }

    fn check(&self, kind: &str) -> CheckResult {
        if self.is_asleep {
            return CheckResult::Well(Finding::new("ConditionNotChecked", ASLEEP));
        }
        match kind {
            API_SERVER => self.api_server(),
            CONTROL_PLANE => self.control_plane(),
            OBSERVABILITY => self.observability(),
            SYSTEM => self.system(),
            _ => self.every_node(),
        }
    }

    fn apply(&self, old: &Condition, verdict: CheckResult) -> Condition {
        match verdict {
            CheckResult::Well(finding) => old.updated(self.now, ConditionStatus::True, finding),
            CheckResult::Failed(finding) => old.failed(self.now, self.patience(&old.kind), finding),
            CheckResult::Reported(status, finding) => old.updated(self.now, status, finding),
            CheckResult::Unknown(why) => old.unknown(self.now, why),
        }
    }

    fn patience(&self, kind: &str) -> FailurePatience {
        let last = self.status.last_operation.as_ref().filter(|last| last.state == "Succeeded");
        let succeeded_at = last.and_then(|last| parse_rfc3339(&last.last_update_time).ok());
        // The flow waits for the etcds and the API server, but not for its clients. Upstream's takes longer after that.
        let settles = if kind == CONTROL_PLANE { SETTLES } else { Duration::ZERO };
        FailurePatience { threshold: self.care.thresholds.get(kind).copied(), succeeded_at, settles }
    }

    fn api_server(&self) -> CheckResult {
        let down = "Could not reach API server during client initialization.";
        let failed = |reason: &str, text: String| CheckResult::Failed(Finding::new(reason, text));
        match self.server {
            ServerHealth::Stopped => failed("APIServerDown", down.to_owned()),
            ServerHealth::Unreached(why) => failed("APIServerDown", format!("{down} {why}")),
            ServerHealth::Silent(why) => {
                failed("HealthzRequestFailed", format!("API server /healthz endpoint gave no answer: {why}"))
            }
            ServerHealth::Sick(code, body) => failed(
                "HealthzRequestError",
                format!("API server /healthz endpoint answered with status code {code}: {body}"),
            ),
            ServerHealth::Well => CheckResult::Well(Finding::new(
                "HealthzRequestSucceeded",
                "API server /healthz endpoint responded with success status code.",
            )),
        }
    }

    fn control_plane(&self) -> CheckResult {
        let plane = match self.plane {
            Ok(plane) => plane,
            Err(why) => return CheckResult::Unknown(why.to_owned()),
        };
        let found = self
            .report(CONTROL_PLANE)
            .or_else(|| self.etcds(plane).map(CheckResult::Failed))
            .or_else(|| self.deployments(plane).map(CheckResult::Failed))
            .or_else(|| self.applier().map(CheckResult::Failed))
            .or_else(|| self.managed(|m| !m.spec.class.is_empty() && feeds(m, CONTROL_PLANE, true)));
        found.unwrap_or_else(|| {
            CheckResult::Well(Finding::new(
                "ControlPlaneRunning",
                "All control plane components are healthy.",
            ))
        })
    }

    fn etcds(&self, plane: &Plane) -> Option<Finding> {
        let is_etcd = |workload: &Workload| matches!(workload, Workload::Etcd(_));
        workloads("Etcd", &required(self.duty, is_etcd), plane.etcds.iter())
    }

    fn deployments(&self, plane: &Plane) -> Option<Finding> {
        let is_deployment = |workload: &Workload| matches!(workload, Workload::Deployment(_));
        let found = plane.deployments.iter().map(|(name, workload)| (name, &workload.health));
        workloads("Deployment", &required(self.duty, is_deployment), found)
    }

    /// The embedded applier, which replaces a gardener-resource-manager. It needs the API server.
    fn applier(&self) -> Option<Finding> {
        let why = self.applier.filter(|_| *self.server == ServerHealth::Well)?;
        let text = format!("The agent does not apply the ManagedResources of the Shoot: {why}");
        Some(Finding::new("ResourceManagerNotServing", text))
    }

    fn observability(&self) -> CheckResult {
        let found = self.report(OBSERVABILITY).or_else(|| self.managed(|m| feeds(m, OBSERVABILITY, false)));
        found.unwrap_or_else(|| {
            CheckResult::Well(Finding::new(
                "ObservabilityComponentsRunning",
                "All observability components are healthy. This gardenlet installs no monitoring and no logging.",
            ))
        })
    }

    /// Why nothing inside the Shoot can be checked.
    fn shut(&self) -> Option<CheckResult> {
        match self.server {
            ServerHealth::Stopped => Some(CheckResult::Unknown(not_running(self.status).to_owned())),
            ServerHealth::Unreached(why) => {
                let text = format!("Could not initialize Shoot client for health check: {why}");
                Some(CheckResult::Unknown(text))
            }
            ServerHealth::Silent(_) | ServerHealth::Sick(..) | ServerHealth::Well => None,
        }
    }

    fn every_node(&self) -> CheckResult {
        if let Some(unknown) = self.shut() {
            return unknown;
        }
        let found = self.report(EVERY_NODE).or_else(|| match self.nodes.map(|found| &found.nodes) {
            None => Some(CheckResult::Unknown("The API server of the Shoot does not answer.".to_owned())),
            Some(Err(why)) => Some(CheckResult::Unknown(format!("The nodes cannot be read: {why}"))),
            Some(Ok(nodes)) => nodes::problem(self.pools, nodes).map(CheckResult::Failed),
        });
        found.unwrap_or_else(|| CheckResult::Well(Finding::new("EveryNodeReady", "All nodes are ready.")))
    }

    /// The way of the API server to the kubelets.
    fn tunnel(&self) -> Option<CheckResult> {
        let why = self.nodes?.tunnel.as_ref()?;
        Some(CheckResult::Failed(Finding::new("TunnelConnectionBroken", why.as_str())))
    }

    fn system(&self) -> CheckResult {
        if let Some(unknown) = self.shut() {
            return unknown;
        }
        let found = self
            .report(SYSTEM)
            .or_else(|| self.managed(|m| m.spec.class.is_empty() || feeds(m, SYSTEM, false)))
            .or_else(|| self.tunnel());
        found.unwrap_or_else(|| {
            CheckResult::Well(Finding::new("SystemComponentsRunning", "All system components are healthy."))
        })
    }

    fn report(&self, kind: &str) -> Option<CheckResult> {
        let reports = self.plane.map_or(&[] as &[ExtensionReport], |plane| plane.reports.as_slice());
        reports::verdict(reports, kind, self.care.stale_reports, self.now)
    }

    /// The first fault of the ManagedResources that count, ordered by name.
    fn managed(&self, counts: impl Fn(&ManagedResourceHead) -> bool) -> Option<CheckResult> {
        let patience =
            self.care.progressing_threshold.map(|threshold| RolloutPatience { threshold, now: self.now });
        let mut faults = self.managed.iter().filter(|m| counts(m)).filter_map(|m| m.fault(patience));
        faults.next().map(ManagedResourceFault::into_finding).map(CheckResult::Failed)
    }
}

/// Whether the label of a ManagedResource assigns it to this condition. With `or_none`, a missing label counts too.
fn feeds(managed: &ManagedResourceHead, kind: &str, or_none: bool) -> bool {
    let said = managed.metadata.labels.get(CARE_LABEL).map_or("", String::as_str);
    said == kind || (or_none && said.is_empty())
}

/// The names of the workloads that the components of a control plane must have, in their order.
fn required(duty: Duty, is_meant: impl Fn(&Workload) -> bool) -> Vec<&'static str> {
    let components = COMPONENTS.iter().filter(|component| component.is_demanded(duty));
    let workloads = components.flat_map(|component| component.workloads);
    let mut names: Vec<&str> = workloads.filter(|each| is_meant(each)).map(|each| each.name()).collect();
    names.sort_unstable();
    names
}

/// What is wrong with the workloads of a kind: one is missing, or the first one is unhealthy.
fn workloads<'a>(
    kind: &str,
    required: &[&str],
    found: impl Iterator<Item = (&'a String, &'a Result<(), String>)> + Clone,
) -> Option<Finding> {
    let is_there = |name: &str| found.clone().any(|(found, _)| found == name);
    let missing: Vec<&str> = required.iter().copied().filter(|name| !is_there(name)).collect();
    if !missing.is_empty() {
        let text = format!("Missing required {}s: [{}]", kind.to_lowercase(), missing.join(" "));
        return Some(Finding::new(format!("{kind}Missing"), text));
    }
    let mut ill = found.filter_map(|(name, health)| Some((name, health.as_ref().err()?)));
    let (name, why) = ill.next()?;
    Some(Finding::new(format!("{kind}Unhealthy"), format!("{kind} \"{name}\" is unhealthy: {why}")))
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
