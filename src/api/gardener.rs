//! Kinds of the garden.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::condition::Condition;
use super::meta::{ObjectMeta, Resource};
use crate::base::cut::cut;
use crate::limits;

/// The namespace of a seed in the garden, which the garden's controller manager creates.
pub(crate) fn seed_namespace(seed: &str) -> String {
    format!("seed-{seed}")
}

/// The kind `BackupBucket` of `core.gardener.cloud/v1beta1`.
pub const BACKUP_BUCKET: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "BackupBucket", "backupbuckets", false);

/// The kind `BackupEntry` of `core.gardener.cloud/v1beta1`.
pub const BACKUP_ENTRY: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "BackupEntry", "backupentries", true);

/// The kind `CloudProfile` of `core.gardener.cloud/v1beta1`.
pub const CLOUD_PROFILE: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "CloudProfile", "cloudprofiles", false);

/// The kind `NamespacedCloudProfile` of `core.gardener.cloud/v1beta1`.
pub const NAMESPACED_CLOUD_PROFILE: Resource = Resource::new(
    "core.gardener.cloud",
    "v1beta1",
    "NamespacedCloudProfile",
    "namespacedcloudprofiles",
    true,
);

/// The kind `ControllerInstallation` of `core.gardener.cloud/v1beta1`.
pub const CONTROLLER_INSTALLATION: Resource = Resource::new(
    "core.gardener.cloud",
    "v1beta1",
    "ControllerInstallation",
    "controllerinstallations",
    false,
);

/// The kind `ControllerRegistration` of `core.gardener.cloud/v1beta1`.
pub const CONTROLLER_REGISTRATION: Resource = Resource::new(
    "core.gardener.cloud",
    "v1beta1",
    "ControllerRegistration",
    "controllerregistrations",
    false,
);

/// The kind `InternalSecret` of `core.gardener.cloud/v1beta1`.
pub const INTERNAL_SECRET: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "InternalSecret", "internalsecrets", true);

/// The annotation that requests an operation on an object of any kind; it is removed when the operation
/// begins or is done.
pub const OPERATION: &str = "gardener.cloud/operation";

/// The kind `Project` of `core.gardener.cloud/v1beta1`.
pub const PROJECT: Resource = Resource::new("core.gardener.cloud", "v1beta1", "Project", "projects", false);

/// The kind `Seed` of `core.gardener.cloud/v1beta1`.
pub const SEED: Resource = Resource::new("core.gardener.cloud", "v1beta1", "Seed", "seeds", false);

/// The kind `Shoot` of `core.gardener.cloud/v1beta1`.
pub const SHOOT: Resource = Resource::new("core.gardener.cloud", "v1beta1", "Shoot", "shoots", true);

/// The kind `ShootState` of `core.gardener.cloud/v1beta1`.
pub const SHOOT_STATE: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "ShootState", "shootstates", true);

/// The kind `ControllerDeployment` of `core.gardener.cloud/v1`.
pub const CONTROLLER_DEPLOYMENT: Resource =
    Resource::new("core.gardener.cloud", "v1", "ControllerDeployment", "controllerdeployments", false);

/// The kind `Gardenlet` of `seedmanagement.gardener.cloud/v1alpha1`.
pub const GARDENLET: Resource =
    Resource::new("seedmanagement.gardener.cloud", "v1alpha1", "Gardenlet", "gardenlets", true);

/// The kind `ManagedSeed` of `seedmanagement.gardener.cloud/v1alpha1`.
pub const MANAGED_SEED: Resource =
    Resource::new("seedmanagement.gardener.cloud", "v1alpha1", "ManagedSeed", "managedseeds", true);

/// The kind `Bastion` of `operations.gardener.cloud/v1alpha1`.
pub const BASTION: Resource =
    Resource::new("operations.gardener.cloud", "v1alpha1", "Bastion", "bastions", true);

/// The kind `CredentialsBinding` of `security.gardener.cloud/v1alpha1`.
pub(crate) const CREDENTIALS_BINDING: Resource =
    Resource::new("security.gardener.cloud", "v1alpha1", "CredentialsBinding", "credentialsbindings", true);

/// The kind `SecretBinding` of `core.gardener.cloud/v1beta1`.
pub(crate) const SECRET_BINDING: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "SecretBinding", "secretbindings", true);

/// The kind `WorkloadIdentity` of `security.gardener.cloud/v1alpha1`.
pub const WORKLOAD_IDENTITY: Resource =
    Resource::new("security.gardener.cloud", "v1alpha1", "WorkloadIdentity", "workloadidentities", true);

/// The finalizer of a ControllerInstallation whose deployment is in the seed.
pub(crate) const INSTALLATION_FINALIZER: &str = "core.gardener.cloud/controllerinstallation";

/// Whether a Shoot has workers.
pub(crate) fn has_workers(shoot: &Value) -> bool {
    shoot["spec"]["provider"]["workers"].as_array().is_some_and(|workers| !workers.is_empty())
}

/// Whether nodes of a Shoot can be opened by SSH: `spec.provider.workersSettings.sshAccess`.
pub(crate) fn has_ssh_access(shoot: &Value) -> bool {
    has_workers(shoot) && shoot["spec"]["provider"]["workersSettings"]["sshAccess"]["enabled"] != false
}

/// A Seed as the program reads it.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Seed {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SeedSpec,
    /// What the agent and the garden report.
    pub(crate) status: SeedStatus,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SeedSpec {
    pub(crate) provider: SeedProvider,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SeedProvider {
    pub(crate) zones: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SeedStatus {
    /// Keyed by type; several writers.
    pub(crate) conditions: Vec<Condition>,
    /// Never changes once set.
    pub(crate) cluster_identity: String,
    /// The generation that the agent reconciled last.
    pub(crate) observed_generation: i64,
    /// What the agent did last.
    pub(crate) last_operation: Option<LastOperation>,
}

/// The last operation on an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LastOperation {
    /// A text for people.
    pub(crate) description: String,
    /// RFC 3339.
    pub(crate) last_update_time: String,
    /// A number of percent.
    pub(crate) progress: u32,
    /// `Processing`, `Succeeded`, `Error`, `Failed`, `Pending`, `Aborted`.
    pub(crate) state: String,
    /// `Create`, `Reconcile`, `Delete`, `Migrate`, `Restore`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

/// The part of a Shoot that is cached; the controllers of Shoots read the rest when they need it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ShootHead {
    pub(crate) metadata: ObjectMeta,
    /// The part of the spec that the status page shows.
    pub(crate) spec: ShootHeadSpec,
    /// The part of the status that its care needs.
    pub(crate) status: ShootStatus,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ShootHeadSpec {
    pub(crate) kubernetes: ShootKubernetes,
    /// The seed to which the garden has bound it.
    pub(crate) seed_name: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ShootKubernetes {
    pub(crate) version: String,
}

/// An address of a Shoot's API server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AdvertisedAddress {
    /// Whom it is for: `external`, `internal`, `unmanaged`, and others.
    pub(crate) name: String,
    pub(crate) url: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ShootStatus {
    /// Where its API server answers.
    pub(crate) advertised_addresses: Vec<AdvertisedAddress>,
    /// Keyed by type; several writers.
    pub(crate) conditions: Vec<Condition>,
    /// Constraints: what its owner or the garden cannot do at the moment. The same shape as conditions.
    pub(crate) constraints: Vec<Condition>,
    /// `hibernated`.
    #[serde(rename = "hibernated")]
    pub(crate) is_hibernated: bool,
    /// The errors of the last operation.
    pub(crate) last_errors: Vec<LastError>,
    pub(crate) last_operation: Option<LastOperation>,
    /// The generation that was reconciled last.
    pub(crate) observed_generation: i64,
    /// The seed that runs its control plane.
    pub(crate) seed_name: String,
    /// The namespace of its control plane.
    #[serde(rename = "technicalID")]
    pub(crate) technical_id: String,
}

/// An error of the last operation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LastError {
    /// A text for people, cut after [`limits::FAILED_TEXT_BYTES_MAX`] bytes.
    #[serde(deserialize_with = "beginning")]
    pub(crate) description: String,
}

fn beginning<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|text| cut(text, limits::FAILED_TEXT_BYTES_MAX))
}

/// A ControllerInstallation as the program reads it.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ControllerInstallation {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ControllerInstallationSpec,
    /// The progress of the installation.
    pub(crate) status: ControllerInstallationStatus,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ControllerInstallationSpec {
    pub(crate) registration_ref: ObjectReference,
    /// The Seed; absent for installations in self-hosted shoots.
    pub(crate) seed_ref: Option<ObjectReference>,
    pub(crate) shoot_ref: Option<ObjectReference>,
    pub(crate) deployment_ref: Option<ObjectReference>,
    /// Values for the chart.
    pub(crate) resource_refs: Vec<ObjectReference>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ControllerInstallationStatus {
    /// `Valid`, `Installed`, `Healthy`, `Progressing`, `Required`.
    pub(crate) conditions: Vec<Condition>,
}

/// A reference that changes with its object: the garden writes the resourceVersion into it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectReference {
    /// Kind, if the field does not imply it.
    pub(crate) kind: String,
    /// Namespace, for namespaced kinds.
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The version that the garden saw.
    pub(crate) resource_version: String,
}

/// A ControllerRegistration as the program reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ControllerRegistration {
    pub(crate) metadata: ObjectMeta,
    /// The extensions that it provides.
    pub(crate) spec: ControllerRegistrationSpec,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ControllerRegistrationSpec {
    /// Kinds and types of extension objects.
    pub(crate) resources: Vec<ControllerResource>,
}

/// A kind and type of extension objects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ControllerResource {
    /// Such as `Infrastructure`.
    pub(crate) kind: String,
    /// Such as `local`.
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    /// The classes of objects (`shoot`, `seed`) for which an Extension of this type exists unless it is disabled.
    pub(crate) auto_enable: Vec<String>,
    /// The older word for `auto_enable: [shoot]`; counts only without it.
    pub(crate) globally_enabled: bool,
    /// Whether it works for Shoots without workers.
    pub(crate) workerless_supported: bool,
    /// When the extension is reconciled.
    pub(crate) lifecycle: Option<ControllerResourceLifecycle>,
    /// How long the extension may take for an object, as a Go duration; empty for the default time.
    pub(crate) reconcile_timeout: String,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ControllerResourceLifecycle {
    /// `BeforeKubeAPIServer`, `AfterKubeAPIServer` (the default), `AfterWorker`.
    pub(crate) reconcile: String,
    /// `BeforeKubeAPIServer` (the default), `AfterKubeAPIServer`.
    pub(crate) delete: String,
    /// The same for a migration.
    pub(crate) migrate: String,
}

/// A ControllerDeployment (core.gardener.cloud/v1) as the program reads it.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ControllerDeployment {
    pub(crate) metadata: ObjectMeta,
    /// The chart; absent for deployments that other programs handle.
    pub(crate) helm: Option<HelmDeployment>,
    /// Whether workloads get access to the garden.
    pub(crate) inject_garden_kubeconfig: Option<bool>,
    /// Secrets and ConfigMaps to which the values may refer.
    pub(crate) resources: Vec<Value>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HelmDeployment {
    /// Base64 of a chart archive.
    pub(crate) raw_chart: String,
    /// Values that override the chart's own.
    pub(crate) values: Value,
    /// The repository of the chart.
    pub(crate) oci_repository: Option<OciRepository>,
}

/// The location of a chart in a registry. See [`HelmDeployment`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OciRepository {
    /// The complete reference; takes precedence over all others.
    #[serde(rename = "ref")]
    pub(crate) reference: Option<String>,
    pub(crate) repository: Option<String>,
    pub(crate) tag: Option<String>,
    /// `sha256:...`; takes precedence over the tag.
    pub(crate) digest: Option<String>,
    /// Secret in namespace `garden` of the garden, with `.dockerconfigjson`.
    pub(crate) pull_secret_ref: Option<LocalReference>,
    /// Secret in the same namespace with `bundle.crt`: the only trusted CAs.
    pub(crate) ca_bundle_secret_ref: Option<LocalReference>,
}

impl OciRepository {
    /// The reference, composed as Gardener does it (`GetURL`).
    pub(crate) fn url(&self) -> String {
        let repository = self.repository.as_deref().unwrap_or_default();
        let url = match (&self.reference, &self.digest, &self.tag) {
            (Some(reference), _, _) => reference.clone(),
            (None, Some(digest), _) => format!("{repository}@{digest}"),
            (None, None, Some(tag)) => format!("{repository}:{tag}"),
            (None, None, None) => String::new(),
        };
        url.strip_prefix("oci://").map_or(url.clone(), str::to_owned)
    }
}

/// An object of a known kind and namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LocalReference {
    pub(crate) name: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::format::view;

    #[test]
    fn only_the_beginning_of_a_last_error_is_kept() {
        let long = "\u{e4}".repeat(limits::FAILED_TEXT_BYTES_MAX);
        let error: LastError = view::read(json!({"description": &long, "taskID": "x"})).unwrap();
        assert_eq!(error.description, cut(long, limits::FAILED_TEXT_BYTES_MAX));
        let error: LastError = view::read(json!({"description": null})).unwrap();
        assert_eq!(error.description, "");
    }

    #[test]
    fn references_to_charts_are_put_together() {
        let table = [
            (json!({"ref": "r.io/x:1", "repository": "s.io/y", "tag": "2", "digest": "d"}), "r.io/x:1"),
            (json!({"ref": "oci://r.io/x:1"}), "r.io/x:1"),
            (json!({"repository": "oci://r.io/x", "tag": "2", "digest": "sha256:0"}), "r.io/x@sha256:0"),
            (json!({"repository": "r.io/x", "tag": "2"}), "r.io/x:2"),
            (json!({"repository": "r.io/x"}), ""),
        ];
        for (repository, expected) in table {
            let repository: OciRepository = view::read(repository).unwrap();
            assert_eq!(repository.url(), expected);
        }
    }
}
