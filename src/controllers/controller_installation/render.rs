//! From the chart of a deployment to the data of the Secret.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::api::condition::Status;
use crate::api::gardener::{ControllerDeployment, ControllerInstallation, HelmDeployment};
use crate::base::error::chain;
use crate::base::stop::Stop;
use crate::chart::child;
use crate::format::base64;
use crate::format::yaml::{self, Dialect};
use crate::runtime::controller::Failure;

use super::{InstallationReconciler, Verdict, inject, objects, registration};

/// What a chart is rendered with.
#[derive(Clone, Copy, Debug)]
pub struct Chart<'a> {
    /// The chart's archive.
    pub archive: &'a [u8],
    /// Release name: the registration's.
    pub release: &'a str,
    /// Release namespace: the extension's.
    pub namespace: &'a str,
    /// Values over the chart's own.
    pub values: &'a Value,
    /// The seed's version.
    pub kubernetes_version: &'a str,
}

/// Renders a chart as a gardenlet does: the Secret's keys and their manifests, or why not.
pub(super) type Render = dyn Fn(&Chart<'_>) -> Result<BTreeMap<String, String>, String> + Send + Sync;

/// Renders charts. Cheap to clone.
#[derive(Clone)]
pub struct Renderer(pub Arc<Render>);

impl Renderer {
    /// Renders with the chart engine, in a child process or a thread.
    pub fn of_charts(renderer: child::Renderer, stop: Stop) -> Self {
        Self(Arc::new(move |chart| {
            let request = child::Request {
                name: chart.release.to_owned(),
                namespace: chart.namespace.to_owned(),
                values: chart.values.clone(),
                kubernetes_version: chart.kubernetes_version.to_owned(),
            };
            let objects = renderer.render(&request, chart.archive, &stop).map_err(|e| chain(&e))?;
            Ok(objects.into_iter().map(|(key, object)| (key, yaml::emit(&object, Dialect::V4))).collect())
        }))
    }
}

impl fmt::Debug for Renderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renderer")
    }
}

/// Renders the chart and writes the result, good or bad, into `Valid`.
pub(super) fn manifests(
    this: &InstallationReconciler,
    installation: &ControllerInstallation,
    deployment: &ControllerDeployment,
    helm: &HelmDeployment,
    values: &Value,
    verdict: &mut Verdict,
) -> Result<BTreeMap<String, String>, Failure> {
    let archive = archive(deployment, helm).map_err(|(reason, why)| {
        verdict.valid(Status::False, reason, &why);
        Failure::terminal(why)
    })?;
    let namespace = objects::namespace_name(&installation.metadata.name);
    let version = this.seed.version()?;
    let chart = Chart {
        archive: &archive,
        release: registration(installation),
        namespace: &namespace,
        values,
        kubernetes_version: &version.git_version,
    };
    let rendered = (this.renderer.0)(&chart).map_err(|why| {
        verdict.valid(
            Status::False,
            "ChartCannotBeRendered",
            &format!("chart rendering process failed: {why}"),
        );
        Failure::retry(format!("render the chart: {why}"))
    })?;
    verdict.valid(Status::True, "RegistrationValid", "chart could be rendered successfully.");
    let mutated: Result<_, String> = rendered
        .iter()
        .map(|(key, text)| Ok((key.clone(), rewritten(text, &namespace, &this.seed_name)?)))
        .collect();
    mutated.map_err(Failure::terminal)
}

/// The archive, or reason and message of the condition.
fn archive(
    deployment: &ControllerDeployment,
    helm: &HelmDeployment,
) -> Result<Vec<u8>, (&'static str, String)> {
    if !deployment.resources.is_empty() {
        let why = "the deployment's resources[] are not supported by this gardenlet yet";
        return Err(("RenderingHelmValuesFailed", why.to_owned()));
    }
    if deployment.inject_garden_kubeconfig == Some(true) {
        let why = "injectGardenKubeconfig is not supported by this gardenlet yet";
        return Err(("ChartInformationInvalid", why.to_owned()));
    }
    if helm.raw_chart.is_empty() {
        let why = "the chart must be in helm.rawChart: ociRepository is not supported by this gardenlet yet";
        return Err(("OCIChartCannotBePulled", why.to_owned()));
    }
    base64::decode(helm.raw_chart.as_bytes())
        .map_err(|e| ("ChartInformationInvalid", format!("helm.rawChart is not base64: {e}")))
}

/// Every document decoded, given its environment, and written anew.
fn rewritten(text: &str, namespace: &str, seed_name: &str) -> Result<String, String> {
    let mut out = String::new();
    for document in yaml::parse_all(text) {
        let mut object = document.value.map_err(|e| e.to_string())?;
        if object.is_null() {
            continue;
        }
        inject::seed_name(&mut object, namespace, seed_name)?;
        out.push_str("\n---\n");
        out.push_str(&yaml::emit(&object, Dialect::V4));
    }
    out.push_str("\n---\n");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_document_is_written_anew() {
        let text = "# Source: x\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n---\nkind: B\n";
        let expected =
            "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n\n---\nkind: B\n\n---\n";
        assert_eq!(rewritten(text, "n", "s").unwrap(), expected);
    }

    #[test]
    fn what_is_not_supported_says_so() {
        let chart = json!({"rawChart": "eA==", "values": null});
        let table = [
            (json!({"helm": chart}), Ok(b"x".to_vec())),
            (json!({"helm": {"ociRepository": {"ref": "r"}}}), Err("OCIChartCannotBePulled")),
            (json!({"helm": {"rawChart": "%"}}), Err("ChartInformationInvalid")),
            (json!({"helm": chart, "injectGardenKubeconfig": true}), Err("ChartInformationInvalid")),
            (json!({"helm": chart, "resources": [{"name": "r"}]}), Err("RenderingHelmValuesFailed")),
        ];
        for (deployment, expected) in table {
            let deployment: ControllerDeployment = serde_json::from_value(deployment).unwrap();
            let found = archive(&deployment, deployment.helm.as_ref().unwrap());
            assert_eq!(found.map_err(|(reason, _)| reason), expected);
        }
    }
}
