//! From the chart of a deployment to the data of the Secret.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::condition::Status;
use crate::api::gardener::{ControllerDeployment, ControllerInstallation, HelmDeployment};
use crate::base::error::chain;
use crate::chart::child::Request;
use crate::chart::render::secret_text;
use crate::format::base64;
use crate::runtime::controller::{Context, Failure};

use super::{InstallationReconciler, Verdict, inject, objects, registration};

/// Renders the chart and writes the result, good or bad, into `Valid`.
pub(super) fn manifests(
    this: &InstallationReconciler,
    installation: &ControllerInstallation,
    deployment: &ControllerDeployment,
    helm: &HelmDeployment,
    values: &Value,
    verdict: &mut Verdict,
    cx: &Context,
) -> Result<BTreeMap<String, String>, Failure> {
    let archive = archive(deployment, helm).map_err(|(reason, why)| {
        verdict.valid(Status::False, reason, &why);
        Failure::terminal(why)
    })?;
    let namespace = objects::namespace_name(&installation.metadata.name);
    let version = this.seed.version()?;
    let request = Request {
        name: registration(installation).to_owned(),
        namespace: namespace.clone(),
        values: values.clone(),
        kubernetes_version: version.git_version,
    };
    let rendered = this.renderer.render(&request, &archive, &cx.stop).map_err(|error| {
        let why = format!("chart rendering process failed: {}", chain(&error));
        verdict.valid(Status::False, "ChartCannotBeRendered", &why);
        Failure::from(error)
    })?;
    verdict.valid(Status::True, "RegistrationValid", "chart could be rendered successfully.");
    let mutated: Result<_, String> = rendered
        .into_iter()
        .map(|(key, mut object)| {
            inject::seed_name(&mut object, &namespace, &this.seed_name)?;
            Ok((key, secret_text(&object)))
        })
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
