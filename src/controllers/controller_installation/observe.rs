//! Reads the inputs of an installation from the garden. An input that cannot be read is reported in `Valid`.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::condition::ConditionStatus;
use crate::api::core::{CONFIG_MAP, ConfigMap};
use crate::api::gardener::{
    CONTROLLER_DEPLOYMENT, ControllerDeployment, ControllerInstallation, HelmDeployment, SEED,
};
use crate::api::meta::{Key, Resource};
use crate::base::error::chain;
use crate::kube::Garden;
use crate::runtime::controller::ReconcileFailure;

use super::status::InstallationConditions;
use super::{InstallationReconciler, resources};

impl InstallationReconciler {
    /// The deployment and its chart, if it has one.
    pub(super) fn deployment(
        &self,
        installation: &ControllerInstallation,
    ) -> Result<Option<(ControllerDeployment, HelmDeployment)>, ReconcileFailure> {
        let Some(reference) = &installation.spec.deployment_ref else { return Ok(None) };
        let mut found: ControllerDeployment =
            self.site.garden.get(&CONTROLLER_DEPLOYMENT, &Key::cluster(&reference.name))?;
        Ok(found.helm.take().map(|helm| (found, helm)))
    }

    /// Reads an object that the installation depends on, and reports a failure in `Valid`.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        resource: &Resource,
        name: &str,
        what: &str,
        verdict: &mut InstallationConditions,
    ) -> Result<T, ReconcileFailure> {
        self.site.garden.get::<T>(resource, &Key::cluster(name)).map_err(|e| {
            let (status, suffix, problem) = if e.is_not_found() {
                (ConditionStatus::False, "NotFound", "does not exist")
            } else {
                (ConditionStatus::Unknown, "ReadError", "cannot be read")
            };
            let reason = format!("{}{suffix}", what.trim_start_matches("Controller"));
            verdict.valid(status, &reason, &format!("Referenced {what} {problem}: {}", chain(&e)));
            e.into()
        })
    }

    pub(super) fn seed_object(
        &self,
        verdict: &mut InstallationConditions,
    ) -> Result<Value, ReconcileFailure> {
        self.read(&SEED, self.site.seed_name(), "Seed", verdict)
    }

    /// The data for the templates in the deployment's values.
    pub(super) fn resources(
        &self,
        deployment: &ControllerDeployment,
        helm: &HelmDeployment,
        verdict: &mut InstallationConditions,
    ) -> Result<Value, ReconcileFailure> {
        if !matches!(helm.values, Value::Null | Value::Object(_)) {
            // Omit the value: it may contain secrets.
            let why = "chart values cannot be unmarshalled: helm.values must be a map";
            verdict.valid(ConditionStatus::False, "ChartInformationInvalid", why);
            return Err(ReconcileFailure::terminal(why));
        }
        resources::resolve(&self.site.garden, &deployment.resources, &helm.values).map_err(|e| {
            let why = format!(
                "helm values cannot be rendered: failed resolving resource references: {}",
                chain(&e)
            );
            verdict.valid(ConditionStatus::False, "RenderingHelmValuesFailed", &why);
            e.into()
        })
    }
}

/// The value of `cluster-identity` in the garden.
pub(super) fn garden_identity(garden: &Garden) -> Result<String, ReconcileFailure> {
    let map = garden.get::<ConfigMap>(&CONFIG_MAP, &Key::new("kube-system", "cluster-identity"))?;
    let identity = map.data.get("cluster-identity").cloned();
    identity.ok_or_else(|| {
        ReconcileFailure::retry("config map kube-system/cluster-identity of the garden has no identity")
    })
}

/// The registration that it belongs to.
pub(super) fn registration(installation: &ControllerInstallation) -> &str {
    &installation.spec.registration_ref.name
}
