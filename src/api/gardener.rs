//! Kinds of the garden.

use super::meta::Resource;

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
