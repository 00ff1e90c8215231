//! Renders the chart of a deployment into the data of the Secret.

use std::time::Duration;

use serde_json::Value;

use crate::api::condition::ConditionStatus;
use crate::api::gardener::{ControllerInstallation, HelmDeployment};
use crate::base::error::chain;
use crate::base::sorted::SortedMap;
use crate::chart::child::{self, RenderRequest, RenderedObjects};
use crate::chart::render::secret_text;
use crate::chart::{ValuesTable, values};
use crate::format::base64;
use crate::limits::SECRET_DATA_BYTES_MAX;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure};

use super::inject::{self, Injection};
use super::observe::registration;
use super::status::InstallationConditions;
use super::{InstallationReconciler, objects, pull};

/// When to retry while other charts are being pulled or rendered.
pub(super) const BUSY_AGAIN: Duration = Duration::from_secs(2);

/// The input of the renderer.
pub(super) struct ChartInput<'a> {
    /// The chart, and values that override its own.
    pub(super) helm: &'a HelmDeployment,
    /// The data for templates in the values; null if there is none.
    pub(super) resources: Value,
    /// The tree that overrides all other values.
    pub(super) mix_in: ValuesTable,
}

/// Renders the chart and reports success or failure in `Valid`.
pub(super) fn objects(
    this: &InstallationReconciler,
    installation: &ControllerInstallation,
    input: ChartInput<'_>,
    verdict: &mut InstallationConditions,
    cx: &ReconcileContext,
) -> Result<RenderedObjects, ReconcileFailure> {
    let raw = raw_chart(input.helm).inspect_err(|why| {
        verdict.valid(ConditionStatus::False, "ChartInformationInvalid", why);
    });
    let chart = match raw.map_err(ReconcileFailure::terminal)? {
        Some(archive) => pull::Chart::Raw(archive),
        None => pull::chart(this, input.helm, verdict, cx)?,
    };
    let version = this.site.seed.version()?;
    let request = RenderRequest {
        name: registration(installation).to_owned(),
        namespace: objects::namespace_name(&installation.metadata.name),
        values: input.helm.values.clone(),
        resources: input.resources,
        mix_in: input.mix_in,
        kubernetes_version: version.git_version,
        kubernetes_major: version.major,
        kubernetes_minor: version.minor,
        apart: false,
    };
    let busy = || ReconcileFailure::later(BUSY_AGAIN, child::Error::Busy);
    let _worker = this.site.workers.chart_soon(&cx.stop).ok_or_else(busy)?;
    let rendered = this.site.renderer.render(&request, chart.archive(), &cx.stop).map_err(|error| {
        // Not the chart's fault, so nothing is reported.
        if matches!(error, child::Error::Busy | child::Error::Stopped) {
            return ReconcileFailure::later(BUSY_AGAIN, error);
        }
        let (reason, what) = match &error {
            child::Error::Values(_) => ("RenderingHelmValuesFailed", "helm values cannot be rendered"),
            _ => ("ChartCannotBeRendered", "chart rendering process failed"),
        };
        verdict.valid(ConditionStatus::False, reason, &format!("{what}: {}", chain(&error)));
        ReconcileFailure::from(error)
    })?;
    verdict.valid(ConditionStatus::True, "RegistrationValid", "chart could be rendered successfully.");
    Ok(rendered)
}

/// The data of the Secret. A failure is reported in `Valid`, because the care controller rewrites `Installed`
/// and would lose the reason.
pub(super) fn data(
    objects: RenderedObjects,
    injection: Injection<'_>,
    verdict: &mut InstallationConditions,
) -> Result<SortedMap<String, String>, ReconcileFailure> {
    let max = SECRET_DATA_BYTES_MAX;
    let (mut data, mut size) = (SortedMap::new(), 0);
    let mut refuse = |why: String| {
        verdict.valid(ConditionStatus::False, "ChartCannotBeRendered", &why);
        ReconcileFailure::terminal(why)
    };
    for (key, object) in objects {
        let text = text(object, injection);
        let text = text.map_err(|e| refuse(format!("failed to inject the environment: {}", chain(&e))))?;
        // Count like the API server: without the keys.
        size += text.len();
        // Data beyond the limit is counted but not kept.
        if size <= max {
            data.insert(key, text);
        }
    }
    if size > max {
        return Err(refuse(format!(
            "the rendered manifests have {size} bytes; a Secret holds at most {max}: split the chart"
        )));
    }
    Ok(data)
}

/// Numbers are floats, as everywhere in Go's maps, except in typed workloads.
fn text(mut object: Value, injection: Injection<'_>) -> Result<String, inject::Error> {
    if !inject::inject(&mut object, injection)? {
        values::to_floats(&mut object);
    }
    Ok(secret_text(&object))
}

/// The archive, if the deployment contains it.
pub(super) fn raw_chart(helm: &HelmDeployment) -> Result<Option<Vec<u8>>, String> {
    if helm.raw_chart.is_empty() {
        return Ok(None);
    }
    let archive = base64::decode(helm.raw_chart.as_bytes());
    archive.map(Some).map_err(|e| format!("helm.rawChart is not base64: {e}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::clock::Timestamp;

    const INJECTION: Injection<'_> =
        Injection { namespace: "extension-ci", seed_name: "edge-1", garden: None };

    fn verdict() -> InstallationConditions {
        InstallationConditions::new(&[], Timestamp::from_unix(0))
    }

    #[test]
    fn a_chart_is_in_the_deployment_or_elsewhere() {
        let chart = |helm| raw_chart(&serde_json::from_value(helm).unwrap());
        assert_eq!(chart(json!({"rawChart": "eA==", "values": null})), Ok(Some(b"x".to_vec())));
        assert_eq!(chart(json!({"ociRepository": {"ref": "r"}})), Ok(None));
        assert!(chart(json!({"rawChart": "%"})).unwrap_err().starts_with("helm.rawChart is not base64: "));
    }

    #[test]
    fn numbers_are_formatted_like_go() {
        let map = json!({"apiVersion": "v1", "kind": "X", "list": [1, 1_000_000, 1.5, 123_456_789]});
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "extension-ci"}, "spec": {"replicas": 1_000_000}});
        let objects = [("a".to_owned(), map), ("b".to_owned(), workload)].into();
        let data = data(objects, INJECTION, &mut verdict()).unwrap();
        let expected =
            "\n---\napiVersion: v1\nkind: X\nlist:\n- 1\n- 1e+06\n- 1.5\n- 1.23456789e+08\n\n---\n";
        assert_eq!(data["a"], expected);
        assert!(data["b"].contains("\n  replicas: 1000000\n"), "{}", data["b"]);
    }

    #[test]
    fn objects_that_do_not_fit_a_secret_are_not_valid() {
        let large = json!({"apiVersion": "v1", "kind": "X", "text": "x".repeat(1 << 20)});
        let set =
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"namespace": "extension-ci"}});
        let table = [
            (
                set,
                "failed to inject the environment: environment cannot be injected into objects of kind ReplicaSet in apps/v1",
            ),
            (
                large,
                "the rendered manifests have 1048616 bytes; a Secret holds at most 1048576: split the chart",
            ),
        ];
        for (object, expected) in table {
            let mut verdict = verdict();
            let failure = data([("a".to_owned(), object)].into(), INJECTION, &mut verdict).unwrap_err();
            assert!(matches!(failure, ReconcileFailure::Terminal(_)));
            let valid = &verdict.valid;
            let found = (valid.status.as_str(), valid.reason.as_str(), valid.message.as_str());
            assert_eq!(found, ("False", "ChartCannotBeRendered", expected));
        }
    }
}
