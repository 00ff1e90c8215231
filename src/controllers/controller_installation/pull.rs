//! Pulls the chart archive that a deployment's `helm.ociRepository` refers to.

use crate::api::condition::ConditionStatus;
use crate::api::gardener::HelmDeployment;
use crate::chart::child::Archive;
use crate::oci::{self, Error, VerifiedContent};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure};

use super::InstallationReconciler;
use super::render::BUSY_AGAIN;
use super::status::InstallationConditions;
use crate::controllers::charts::order;

/// A chart's archive. A pulled one stays on disk: only the rendering process reads it.
pub(super) enum Chart {
    /// Contained in the deployment.
    Raw(Vec<u8>),
    /// Pulled from a registry.
    Pulled(VerifiedContent),
}

impl Chart {
    pub(super) fn archive(&self) -> Archive<'_> {
        match self {
            Self::Raw(bytes) => Archive::Bytes(bytes),
            Self::Pulled(content) => content.into(),
        }
    }
}

/// Pulls the chart, and reports a failure in `Valid`. Only a reference that can never work waits for a change of the
/// deployment. Other failures are retried, because no event reports a changed registry or Secret.
pub(super) fn chart(
    this: &InstallationReconciler,
    helm: &HelmDeployment,
    verdict: &mut InstallationConditions,
    cx: &ReconcileContext,
) -> Result<Chart, ReconcileFailure> {
    let nowhere = "the deployment has neither helm.rawChart nor helm.ociRepository";
    let repository = helm.oci_repository.as_ref().ok_or_else(|| ReconcileFailure::terminal(nowhere));
    let order = repository.and_then(|repository| order(&this.site.garden, repository));
    let result = order.and_then(|order| match this.site.charts.pull(&order, &cx.stop) {
        // Not the chart's fault, so nothing is reported.
        Err(error @ (Error::Busy | Error::Stopped)) => Ok(Err(ReconcileFailure::later(BUSY_AGAIN, error))),
        pulled => pulled.map(Ok).map_err(failure),
    });
    let pulled = result.inspect_err(|failure| {
        let why = format!("chart pulling process failed: {}", failure.text());
        verdict.valid(ConditionStatus::False, "OCIChartCannotBePulled", &why);
    })?;
    pulled.map(Chart::Pulled)
}

fn failure(error: Error) -> ReconcileFailure {
    match error.verdict() {
        oci::PullVerdict::Final => ReconcileFailure::terminal(error),
        oci::PullVerdict::Retry | oci::PullVerdict::Configuration => ReconcileFailure::retry(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_references_are_final() {
        assert!(matches!(failure(Error::Reference("x")), ReconcileFailure::Terminal(_)));
        assert!(matches!(failure(Error::NotInLayout), ReconcileFailure::Retry(_)));
        assert!(matches!(failure(Error::Stopped), ReconcileFailure::Retry(_)));
    }
}
