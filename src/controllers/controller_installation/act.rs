//! What is written into the seed: namespace, Secret and ManagedResource.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::condition::Status;
use crate::api::core::{NAMESPACE, SECRET};
use crate::api::gardener::ControllerInstallation;
use crate::api::meta::{Key, Metadata};
use crate::api::resources::{GARDEN_NAMESPACE, MANAGED_RESOURCE};
use crate::controllers::site::is_garden;
use crate::kube::Patch;
use crate::runtime::controller::Failure;
use crate::runtime::write;

use super::observe::registration;
use super::status::Verdict;
use super::{InstallationReconciler, objects};

const POD_SECURITY_ANNOTATION: &str = "security.gardener.cloud/pod-security-enforce";

impl InstallationReconciler {
    pub(super) fn ensure_namespace(
        &self,
        installation: &ControllerInstallation,
        seed: &Value,
    ) -> Result<(), Failure> {
        let zones = seed.pointer("/spec/provider/zones").and_then(Value::as_array);
        let zones: Vec<String> =
            zones.into_iter().flatten().filter_map(|zone| zone.as_str().map(str::to_owned)).collect();
        let facts = objects::NamespaceFacts {
            registration: registration(installation),
            zones: &zones,
            seed_is_garden: is_garden(&self.seed)?,
            pod_security: installation.metadata.annotations.get(POD_SECURITY_ANNOTATION).map(String::as_str),
        };
        let key = Key::new("", objects::namespace_name(&installation.metadata.name));
        write::ensure(&self.seed, &NAMESPACE, &key, |namespace| objects::label_namespace(namespace, facts))?;
        Ok(())
    }

    /// Writes the Secret and the ManagedResource, and the result into `Installed`.
    pub(super) fn bring(
        &self,
        name: &str,
        registration: &str,
        data: &BTreeMap<String, String>,
        verdict: &mut Verdict,
    ) -> Result<(), Failure> {
        self.write_manifests(name, registration, data).inspect_err(|e| {
            let message = format!("Creation of ManagedResource \"{name}\" failed: {}", e.text());
            verdict.installed(Status::False, "InstallationFailed", &message);
        })?;
        if verdict.installed.status == Status::Unknown {
            let message = format!("Installation of ManagedResource \"{name}\" is still pending.");
            verdict.installed(Status::False, "InstallationPending", &message);
        }
        Ok(())
    }

    /// Secret first: a ManagedResource never refers to one that does not exist.
    fn write_manifests(
        &self,
        name: &str,
        registration: &str,
        data: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let (secret, wanted) = objects::secret(name, data);
        write::ensure(&self.seed, &SECRET, &secret, |object| objects::set_secret(object, &wanted))?;
        let key = Key::new(GARDEN_NAMESPACE, name);
        self.release_old_secrets(&key, &secret)?;
        write::ensure(&self.seed, &MANAGED_RESOURCE, &key, |object| {
            objects::set_managed_resource(object, name, registration, &secret.name);
        })?;
        Ok(())
    }

    /// Secrets that were referred to may be collected as garbage once they are not: older agents did not say so.
    fn release_old_secrets(&self, managed_resource: &Key, present: &Key) -> Result<(), Failure> {
        let live = self.seed.find::<Value>(
            &MANAGED_RESOURCE,
            &managed_resource.namespace,
            &managed_resource.name,
        )?;
        let old = live.as_ref().map(objects::referenced_secrets).unwrap_or_default();
        for secret in old.into_iter().filter(|secret| secret != present) {
            if let Some(found) = self.seed.find::<Metadata>(&SECRET, &secret.namespace, &secret.name)?
                && found.metadata.labels.get(objects::GARBAGE_LABEL).is_none_or(|value| value != "true")
            {
                let patch = json!({"metadata": {"labels": {objects::GARBAGE_LABEL: "true"}}});
                let patch = Patch::Strategic(patch);
                self.seed.patch::<Value>(&SECRET, &secret.namespace, &secret.name, "", &patch)?;
            }
        }
        Ok(())
    }
}
