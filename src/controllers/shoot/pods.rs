//! What pods of a control plane get that their manifests do not have: replicas and a spread that outlive failures, and how long they
//! stay on a node that is gone. Where a gardener-resource-manager runs, its webhooks do that.

use serde_json::Value;

use crate::api::core::NODE;
use crate::api::meta::Metadata;
use crate::components::availability::{self, Availability};
use crate::config::settings::Settings;
use crate::flow::Failed;
use crate::kube::ListParams;

use super::tasks::Work;

/// As many zones a control plane spans at most.
const ZONES_MAX: usize = 3;

/// The fewest replicas of a workload that is on.
pub(super) fn replicas(work: &Work) -> i64 {
    if work.settings.edge.resource_manager.is_here() {
        availability::replicas(&work.view.failure_tolerance)
    } else {
        1
    }
}

/// What is set on the workloads; nothing, if somebody else does it.
pub(super) fn availability(work: &Work) -> Result<Option<Availability<'_>>, Failed> {
    let settings: &Settings = &work.settings;
    if !settings.edge.resource_manager.is_here() {
        return Ok(None);
    }
    let tolerance = work.view.failure_tolerance.as_str();
    let has_several_nodes = !tolerance.is_empty() && {
        let two = ListParams { limit: 2, metadata_only: true, ..ListParams::default() };
        work.seed.list::<Metadata>(&NODE, "", &two)?.items.len() > 1
    };
    Ok(Some(Availability {
        toleration: settings.node_toleration,
        has_seccomp_profile: settings.feature_gates.get("DefaultSeccompProfile") == Some(&true),
        tolerance,
        zones: work.view.zones.len().min(ZONES_MAX),
        has_several_nodes,
    }))
}

/// Sets it.
pub(super) fn set(wanted: Option<&Availability<'_>>, workload: Option<&mut Value>) {
    if let (Some(wanted), Some(workload)) = (wanted, workload) {
        wanted.set(workload);
    }
}
