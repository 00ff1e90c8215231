//! What is written to the seed: namespace, Secret and ManagedResource.

use serde_json::Value;

use crate::api::condition::ConditionStatus;
use crate::api::core::NAMESPACE;
use crate::api::gardener::ControllerInstallation;
use crate::api::meta::Key;
use crate::base::sorted::SortedMap;
use crate::components::managed;
use crate::controllers::site::is_garden;
use crate::runtime::controller::ReconcileFailure;
use crate::runtime::write;

use super::observe::registration;
use super::status::InstallationConditions;
use super::{InstallationReconciler, objects};

const POD_SECURITY_ANNOTATION: &str = "security.gardener.cloud/pod-security-enforce";

impl InstallationReconciler {
    pub(super) fn ensure_namespace(
        &self,
        installation: &ControllerInstallation,
        seed: &Value,
    ) -> Result<(), ReconcileFailure> {
        let zones = seed.pointer("/spec/provider/zones").and_then(Value::as_array);
        let zones: Vec<String> =
            zones.into_iter().flatten().filter_map(|zone| zone.as_str().map(str::to_owned)).collect();
        let facts = objects::NamespaceFacts {
            registration: registration(installation),
            zones: &zones,
            seed_is_garden: is_garden(&self.site.seed)?,
            pod_security: installation.metadata.annotations.get(POD_SECURITY_ANNOTATION).map(String::as_str),
        };
        let key = Key::cluster(objects::namespace_name(&installation.metadata.name));
        write::ensure(&self.site.seed, &NAMESPACE, &key, &|namespace| {
            objects::label_namespace(namespace, facts);
        })?;
        Ok(())
    }

    /// Writes the Secret and the ManagedResource, and reports the result in `Installed`.
    pub(super) fn apply(
        &self,
        name: &str,
        registration: &str,
        data: &SortedMap<String, String>,
        verdict: &mut InstallationConditions,
    ) -> Result<(), ReconcileFailure> {
        self.write_manifests(name, registration, data).inspect_err(|e| {
            let message = format!("Creation of ManagedResource \"{name}\" failed: {}", e.text());
            verdict.installed(ConditionStatus::False, "InstallationFailed", &message);
        })?;
        if verdict.installed.status == ConditionStatus::Unknown {
            let message = format!("Installation of ManagedResource \"{name}\" is still pending.");
            verdict.installed(ConditionStatus::False, "InstallationPending", &message);
        }
        Ok(())
    }

    fn write_manifests(
        &self,
        name: &str,
        registration: &str,
        data: &SortedMap<String, String>,
    ) -> Result<(), ReconcileFailure> {
        let (key, secret) = managed::secret(name, data);
        managed::apply(&self.site.seed, name, &key, &secret, &|object| {
            objects::set_managed_resource(object, name, registration, &key.name);
        })?;
        Ok(())
    }
}
