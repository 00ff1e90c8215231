//! Kinds of the garden.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::condition::Condition;
use super::meta::{ObjectMeta, Resource, or_default};
use crate::base::cut::cut;
use crate::limits;

/// The namespace of a seed in the garden, which the garden's controller manager creates.
pub fn seed_namespace(seed: &str) -> String {
    format!("seed-{seed}")
}

/// core.gardener.cloud/v1beta1 BackupBucket.
pub const BACKUP_BUCKET: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "BackupBucket", "backupbuckets", false);

/// core.gardener.cloud/v1beta1 BackupEntry.
pub const BACKUP_ENTRY: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "BackupEntry", "backupentries", true);

/// core.gardener.cloud/v1beta1 CloudProfile.
pub const CLOUD_PROFILE: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "CloudProfile", "cloudprofiles", false);

/// core.gardener.cloud/v1beta1 NamespacedCloudProfile.
pub const NAMESPACED_CLOUD_PROFILE: Resource = Resource::new(
    "core.gardener.cloud",
    "v1beta1",
    "NamespacedCloudProfile",
    "namespacedcloudprofiles",
    true,
);

/// core.gardener.cloud/v1beta1 ControllerInstallation.
pub const CONTROLLER_INSTALLATION: Resource = Resource::new(
    "core.gardener.cloud",
    "v1beta1",
    "ControllerInstallation",
    "controllerinstallations",
    false,
);

/// core.gardener.cloud/v1beta1 ControllerRegistration.
pub const CONTROLLER_REGISTRATION: Resource = Resource::new(
    "core.gardener.cloud",
    "v1beta1",
    "ControllerRegistration",
    "controllerregistrations",
    false,
);

/// core.gardener.cloud/v1beta1 ExposureClass.
pub const EXPOSURE_CLASS: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "ExposureClass", "exposureclasses", false);

/// core.gardener.cloud/v1beta1 InternalSecret.
pub const INTERNAL_SECRET: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "InternalSecret", "internalsecrets", true);

/// The annotation that requests an operation on an object of any kind; it is removed when the operation begins or is
/// done.
pub const OPERATION: &str = "gardener.cloud/operation";

/// core.gardener.cloud/v1beta1 Project.
pub const PROJECT: Resource = Resource::new("core.gardener.cloud", "v1beta1", "Project", "projects", false);

/// core.gardener.cloud/v1beta1 Quota.
pub const QUOTA: Resource = Resource::new("core.gardener.cloud", "v1beta1", "Quota", "quotas", true);

/// core.gardener.cloud/v1beta1 SecretBinding.
pub const SECRET_BINDING: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "SecretBinding", "secretbindings", true);

/// core.gardener.cloud/v1beta1 Seed.
pub const SEED: Resource = Resource::new("core.gardener.cloud", "v1beta1", "Seed", "seeds", false);

/// core.gardener.cloud/v1beta1 Shoot.
pub const SHOOT: Resource = Resource::new("core.gardener.cloud", "v1beta1", "Shoot", "shoots", true);

/// core.gardener.cloud/v1beta1 ShootState.
pub const SHOOT_STATE: Resource =
    Resource::new("core.gardener.cloud", "v1beta1", "ShootState", "shootstates", true);

/// core.gardener.cloud/v1 ControllerDeployment.
pub const CONTROLLER_DEPLOYMENT: Resource =
    Resource::new("core.gardener.cloud", "v1", "ControllerDeployment", "controllerdeployments", false);

/// seedmanagement.gardener.cloud/v1alpha1 Gardenlet.
pub const GARDENLET: Resource =
    Resource::new("seedmanagement.gardener.cloud", "v1alpha1", "Gardenlet", "gardenlets", true);

/// seedmanagement.gardener.cloud/v1alpha1 ManagedSeed.
pub const MANAGED_SEED: Resource =
    Resource::new("seedmanagement.gardener.cloud", "v1alpha1", "ManagedSeed", "managedseeds", true);

/// seedmanagement.gardener.cloud/v1alpha1 ManagedSeedSet.
pub const MANAGED_SEED_SET: Resource =
    Resource::new("seedmanagement.gardener.cloud", "v1alpha1", "ManagedSeedSet", "managedseedsets", true);

/// operations.gardener.cloud/v1alpha1 Bastion.
pub const BASTION: Resource =
    Resource::new("operations.gardener.cloud", "v1alpha1", "Bastion", "bastions", true);

/// security.gardener.cloud/v1alpha1 CredentialsBinding.
pub const CREDENTIALS_BINDING: Resource =
    Resource::new("security.gardener.cloud", "v1alpha1", "CredentialsBinding", "credentialsbindings", true);

/// security.gardener.cloud/v1alpha1 WorkloadIdentity.
pub const WORKLOAD_IDENTITY: Resource =
    Resource::new("security.gardener.cloud", "v1alpha1", "WorkloadIdentity", "workloadidentities", true);

/// A Seed as the program reads it.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Seed {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: SeedSpec,
    /// What the agent and the garden report.
    pub status: SeedStatus,
}

/// See [`Seed`].
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SeedSpec {
    /// Where it runs.
    pub provider: SeedProvider,
}

/// See [`Seed`].
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SeedProvider {
    /// Availability zones.
    #[serde(deserialize_with = "or_default")]
    pub zones: Vec<String>,
}

/// See [`Seed`].
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeedStatus {
    /// Keyed by type; several writers.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    /// Never changes once set.
    #[serde(deserialize_with = "or_default")]
    pub cluster_identity: String,
    /// The generation that the agent reconciled last.
    #[serde(deserialize_with = "or_default")]
    pub observed_generation: i64,
    /// What the agent did last.
    pub last_operation: Option<LastOperation>,
}

/// The last operation on an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastOperation {
    /// For people.
    pub description: String,
    /// RFC 3339.
    pub last_update_time: String,
    /// Percent.
    pub progress: u32,
    /// `Processing`, `Succeeded`, `Error`, `Failed`, `Pending`, `Aborted`.
    pub state: String,
    /// `Create`, `Reconcile`, `Delete`, `Migrate`, `Restore`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The part of a Shoot that is cached; the controllers of Shoots read the rest when they need it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ShootHead {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The part of the spec that the status page shows.
    #[serde(deserialize_with = "or_default")]
    pub spec: ShootHeadSpec,
    /// The part of the status that its care needs.
    #[serde(deserialize_with = "or_default")]
    pub status: ShootStatus,
}

/// See [`ShootHead`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ShootHeadSpec {
    /// Its Kubernetes.
    #[serde(deserialize_with = "or_default")]
    pub kubernetes: ShootKubernetes,
}

/// See [`ShootHeadSpec`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ShootKubernetes {
    /// The version.
    #[serde(deserialize_with = "or_default")]
    pub version: String,
}

/// An address of a Shoot's API server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AdvertisedAddress {
    /// Whom it is for: `external`, `internal`, `unmanaged`, and others.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The URL.
    #[serde(deserialize_with = "or_default")]
    pub url: String,
}

/// See [`ShootHead`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShootStatus {
    /// Where its API server answers.
    #[serde(deserialize_with = "or_default")]
    pub advertised_addresses: Vec<AdvertisedAddress>,
    /// Keyed by type; several writers.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    /// Constraints: what its owner or the garden cannot do at the moment. The same shape as conditions.
    #[serde(deserialize_with = "or_default")]
    pub constraints: Vec<Condition>,
    /// `hibernated`.
    #[serde(rename = "hibernated", deserialize_with = "or_default")]
    pub is_hibernated: bool,
    /// The errors of the last operation.
    #[serde(deserialize_with = "or_default")]
    pub last_errors: Vec<LastError>,
    /// The last operation.
    pub last_operation: Option<LastOperation>,
    /// The generation that was reconciled last.
    #[serde(deserialize_with = "or_default")]
    pub observed_generation: i64,
    /// The seed that runs its control plane.
    #[serde(deserialize_with = "or_default")]
    pub seed_name: String,
    /// The namespace of its control plane.
    #[serde(rename = "technicalID", deserialize_with = "or_default")]
    pub technical_id: String,
}

/// An error of the last operation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LastError {
    /// A text for people, cut after [`limits::FAILED_TEXT_BYTES_MAX`] bytes.
    #[serde(deserialize_with = "beginning")]
    pub description: String,
}

fn beginning<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    or_default(deserializer).map(|text| cut(text, limits::FAILED_TEXT_BYTES_MAX))
}

/// A ControllerInstallation as the program reads it.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ControllerInstallation {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: ControllerInstallationSpec,
    /// The progress of the installation.
    pub status: ControllerInstallationStatus,
}

/// See [`ControllerInstallation`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerInstallationSpec {
    /// The ControllerRegistration.
    pub registration_ref: ObjectReference,
    /// The Seed; absent for installations in self-hosted shoots.
    pub seed_ref: Option<ObjectReference>,
    /// The self-hosted Shoot.
    pub shoot_ref: Option<ObjectReference>,
    /// The ControllerDeployment.
    pub deployment_ref: Option<ObjectReference>,
    /// Values for the chart.
    #[serde(deserialize_with = "or_default")]
    pub resource_refs: Vec<ObjectReference>,
}

/// See [`ControllerInstallation`].
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ControllerInstallationStatus {
    /// `Valid`, `Installed`, `Healthy`, `Progressing`, `Required`.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

/// A reference that changes with its object: the garden writes the resourceVersion into it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Kind, if the field does not imply it.
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// Namespace, for namespaced kinds.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// Name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The version that the garden saw.
    #[serde(deserialize_with = "or_default")]
    pub resource_version: String,
}

/// A ControllerRegistration as the program reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ControllerRegistration {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The extensions that it provides.
    pub spec: ControllerRegistrationSpec,
}

/// See [`ControllerRegistration`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ControllerRegistrationSpec {
    /// Kinds and types of extension objects.
    #[serde(deserialize_with = "or_default")]
    pub resources: Vec<ControllerResource>,
}

/// A kind and type of extension objects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerResource {
    /// Such as `Infrastructure`.
    pub kind: String,
    /// Such as `local`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The classes of objects (`shoot`, `seed`) for which an Extension of this type exists unless it is disabled.
    #[serde(deserialize_with = "or_default")]
    pub auto_enable: Vec<String>,
    /// The older word for `auto_enable: [shoot]`; counts only without it.
    #[serde(deserialize_with = "or_default")]
    pub globally_enabled: bool,
    /// Whether it works for Shoots without workers.
    #[serde(deserialize_with = "or_default")]
    pub workerless_supported: bool,
    /// When the extension is reconciled.
    pub lifecycle: Option<ControllerResourceLifecycle>,
    /// How long the extension may take for an object, as a Go duration; empty for the default time.
    #[serde(deserialize_with = "or_default")]
    pub reconcile_timeout: String,
}

/// See [`ControllerResource`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ControllerResourceLifecycle {
    /// `BeforeKubeAPIServer`, `AfterKubeAPIServer` (the default), `AfterWorker`.
    #[serde(deserialize_with = "or_default")]
    pub reconcile: String,
    /// `BeforeKubeAPIServer` (the default), `AfterKubeAPIServer`.
    #[serde(deserialize_with = "or_default")]
    pub delete: String,
}

/// A ControllerDeployment (core.gardener.cloud/v1) as the program reads it.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerDeployment {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The chart; absent for deployments that other programs handle.
    pub helm: Option<HelmDeployment>,
    /// Whether workloads get access to the garden.
    pub inject_garden_kubeconfig: Option<bool>,
    /// Secrets and ConfigMaps to which the values may refer.
    #[serde(deserialize_with = "or_default")]
    pub resources: Vec<Value>,
}

/// See [`ControllerDeployment`].
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HelmDeployment {
    /// Base64 of a chart archive.
    #[serde(deserialize_with = "or_default")]
    pub raw_chart: String,
    /// Values that override the chart's own.
    pub values: Value,
    /// The repository of the chart.
    pub oci_repository: Option<OciRepository>,
}

/// The location of a chart in a registry. See [`HelmDeployment`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OciRepository {
    /// The complete reference; takes precedence over all others.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// Registry and repository.
    pub repository: Option<String>,
    /// Tag.
    pub tag: Option<String>,
    /// `sha256:...`; takes precedence over the tag.
    pub digest: Option<String>,
    /// Secret in namespace `garden` of the garden, with `.dockerconfigjson`.
    pub pull_secret_ref: Option<LocalReference>,
    /// Secret in the same namespace with `bundle.crt`: the only trusted CAs.
    pub ca_bundle_secret_ref: Option<LocalReference>,
}

impl OciRepository {
    /// The reference, composed as Gardener does it (`GetURL`).
    pub fn url(&self) -> String {
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
pub struct LocalReference {
    /// Name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_beginning_of_a_last_error_is_kept() {
        let long = "\u{e4}".repeat(limits::FAILED_TEXT_BYTES_MAX);
        let error: LastError = serde_json::from_value(json!({"description": &long, "taskID": "x"})).unwrap();
        assert_eq!(error.description, cut(long, limits::FAILED_TEXT_BYTES_MAX));
        let error: LastError = serde_json::from_value(json!({"description": null})).unwrap();
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
            let repository: OciRepository = serde_json::from_value(repository).unwrap();
            assert_eq!(repository.url(), expected);
        }
    }
}
