//! Collects the inputs of an installation for a command that reads the garden but installs nothing.

use serde_json::Value;

use crate::api::gardener::{ControllerDeployment, HelmDeployment, OciRepository};
use crate::api::meta::text;
use crate::base::error::chain;
use crate::base::sorted::SortedMap;
use crate::chart::child::RenderRequest;
use crate::chart::render::KubeVersion;
use crate::config::version::GARDENER;
use crate::controllers::charts;
use crate::kube::Garden;
use crate::oci::PullOrder;

use super::{objects, render, resources, values};

/// The inputs that the values of all charts share.
#[derive(Debug)]
pub(crate) struct InstallationPreview<'a> {
    pub(crate) garden: &'a Garden,
    pub(crate) seed: &'a Value,
    /// Every known feature gate.
    pub(crate) feature_gates: &'a SortedMap<String, bool>,
}

impl InstallationPreview<'_> {
    /// How to pull the chart: its reference, and the logins and CAs of the garden's Secrets. Errors: the
    /// problem of the reference, or of a Secret that it names.
    pub(crate) fn order(garden: &Garden, repository: &OciRepository) -> Result<PullOrder, String> {
        charts::order(garden, repository).map_err(|failure| failure.text())
    }

    /// The archive, if the deployment contains it. Errors: it cannot be decoded.
    pub(crate) fn raw_chart(helm: &HelmDeployment) -> Result<Option<Vec<u8>>, String> {
        render::raw_chart(helm)
    }

    /// The input of the renderer for a release with this name in the namespace of this installation. Errors:
    /// an input of the values cannot be read.
    pub(crate) fn request(
        &self,
        deployment: &ControllerDeployment,
        helm: &HelmDeployment,
        release: &str,
        installation: &str,
    ) -> Result<RenderRequest, String> {
        let inject = deployment.inject_garden_kubeconfig == Some(true);
        let mix_in = values::mix_in(values::GardenerValues {
            seed: self.seed,
            version: GARDENER,
            garden_identity: &super::observe::garden_identity(self.garden)
                .map_err(|failure| failure.text())?,
            feature_gates: self.feature_gates,
            // The name does not matter in a preview.
            generic_kubeconfig: inject.then_some("generic-garden-kubeconfig"),
        });
        let resources = resources::resolve(self.garden, &deployment.resources, &helm.values);
        let version = KubeVersion::of_flag(text(&self.seed["status"]["kubernetesVersion"]));
        Ok(RenderRequest {
            resources: resources.map_err(|error| chain(&error))?,
            mix_in,
            ..request(release, installation, helm.values.clone(), version)
        })
    }
}

/// The input of the renderer for a chart of which only the name and the values are known.
pub(crate) fn request(
    release: &str,
    installation: &str,
    values: Value,
    version: Option<KubeVersion>,
) -> RenderRequest {
    let version = version.unwrap_or_else(KubeVersion::helm_default);
    RenderRequest {
        name: release.to_owned(),
        namespace: objects::namespace_name(installation),
        values,
        resources: Value::Null,
        mix_in: crate::chart::ValuesTable::new(),
        kubernetes_version: version.version,
        kubernetes_major: version.major,
        kubernetes_minor: version.minor,
        apart: false,
    }
}
