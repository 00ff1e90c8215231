//! Additions to control plane pods that their manifests do not contain: replicas and a spread that survive failures,
//! and the time that they stay on a lost node. Webhooks of a gardener-resource-manager do this where one runs.

use serde_json::Value;

use crate::api::core::NODE;
use crate::api::meta::{ALL_NAMESPACES, Metadata};
use crate::components::availability::{self, Availability};
use crate::config::settings::Settings;
use crate::flow::Failed;
use crate::kube::ListParams;

use super::work::Work;

/// The maximum number of zones of a control plane.
const ZONES_MAX: usize = 3;

/// The minimum number of replicas of an active workload.
pub(super) fn replicas(work: &Work) -> i64 {
    if work.env.settings.edge.resource_manager.is_here() {
        availability::replicas(&work.view.failure_tolerance)
    } else {
        1
    }
}

/// The settings for the workloads; `None` if a gardener-resource-manager sets them.
pub(super) fn availability(work: &Work) -> Result<Option<Availability<'_>>, Failed> {
    let settings: &Settings = &work.env.settings;
    if !settings.edge.resource_manager.is_here() {
        return Ok(None);
    }
    let tolerance = work.view.failure_tolerance.as_str();
    let has_several_nodes = !tolerance.is_empty() && {
        let two = ListParams { limit: 2, metadata_only: true, ..ListParams::default() };
        work.env.seed.list::<Metadata>(&NODE, ALL_NAMESPACES, &two)?.items.len() > 1
    };
    Ok(Some(Availability {
        toleration: settings.node_toleration,
        has_seccomp_profile: settings.feature_gates.get("DefaultSeccompProfile") == Some(&true),
        tolerance,
        zones: work.view.zones.len().min(ZONES_MAX),
        has_several_nodes,
    }))
}

pub(super) fn set(wanted: Option<&Availability<'_>>, workload: Option<&mut Value>) {
    if let (Some(wanted), Some(workload)) = (wanted, workload) {
        wanted.set(workload);
    }
}
