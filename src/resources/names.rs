//! Labels, annotations, finalizers, reasons and texts of ManagedResources.

/// The class of ManagedResources for the seed.
pub(crate) const SEED_CLASS: &str = "seed";
/// The explicit name of the default class.
pub(crate) const DEFAULT_CLASS: &str = "resources";
/// Finalizer of the applier of the default class. Other classes append a dash and their name.
pub(crate) const FINALIZER_PREFIX: &str = "resources.gardener.cloud/gardener-resource-manager";
/// Finalizer of the applier of class `seed`.
pub(crate) const SEED_FINALIZER: &str = "resources.gardener.cloud/gardener-resource-manager-seed";

/// The owner of an object: `<namespace>/<name>` of its ManagedResource.
pub(crate) const ORIGIN: &str = "resources.gardener.cloud/origin";
/// The notice for people who read an object.
pub(crate) const DESCRIPTION: &str = "resources.gardener.cloud/description";
/// The text of the notice, equal to upstream's: a different one would cause a write on each hand-over.
pub(crate) const DESCRIPTION_TEXT: &str = "DO NOT EDIT - This resource is managed by gardener-resource-manager.\n\
    Any modifications are discarded and the resource is returned to the original state.";
/// Label on objects, pod templates and volume claim templates.
pub(crate) const MANAGED_BY: &str = "resources.gardener.cloud/managed-by";
/// Its value in a seed.
pub(crate) const MANAGED_BY_VALUE: &str = "gardener";

/// Selects the objects that were applied.
pub(super) fn applied_objects() -> String {
    format!("{MANAGED_BY}={MANAGED_BY_VALUE}")
}

/// On a ManagedResource: ignore it. On an object: create it, but never change it.
pub(crate) const IGNORE: &str = "resources.gardener.cloud/ignore";
/// `Ignore`: the object does not belong to the set any more, and is released.
pub(crate) const MODE: &str = "resources.gardener.cloud/mode";
/// The value of [`MODE`] that releases.
pub(crate) const MODE_IGNORE: &str = "Ignore";
/// The object is never deleted.
pub(crate) const KEEP_OBJECT: &str = "resources.gardener.cloud/keep-object";
/// If the server considers an update invalid, the object is deleted.
pub(crate) const DELETE_ON_INVALID_UPDATE: &str = "resources.gardener.cloud/delete-on-invalid-update";
/// How that deletion treats dependents.
pub(crate) const PROPAGATION_ON_INVALID_UPDATE: &str =
    "resources.gardener.cloud/deletion-propagation-on-invalid-update";
/// `spec.replicas` is not changed.
pub(crate) const PRESERVE_REPLICAS: &str = "resources.gardener.cloud/preserve-replicas";
/// CPU and memory of containers are not changed.
pub(crate) const PRESERVE_RESOURCES: &str = "resources.gardener.cloud/preserve-resources";
/// The object counts neither for `ResourcesHealthy` nor for `ResourcesProgressing`.
pub(crate) const SKIP_HEALTH_CHECK: &str = "resources.gardener.cloud/skip-health-check";
/// If the deletion takes longer than this time, finalizers are removed.
pub(crate) const FINALIZE_DELETION_AFTER: &str = "resources.gardener.cloud/finalize-deletion-after";

/// The condition about applying.
pub(crate) const APPLIED: &str = "ResourcesApplied";
/// The condition about health.
pub(crate) const HEALTHY: &str = "ResourcesHealthy";
/// The condition about rolling out.
pub(crate) const PROGRESSING: &str = "ResourcesProgressing";

/// The reasons of the three conditions.
pub(crate) mod reason {
    pub(crate) const APPLY_SUCCEEDED: &str = "ApplySucceeded";
    /// An object could not be applied.
    pub(crate) const APPLY_FAILED: &str = "ApplyFailed";
    /// A document could not be read.
    pub(crate) const DECODING_FAILED: &str = "DecodingFailed";
    /// The apply is in progress.
    pub(crate) const APPLY_PROGRESSING: &str = "ApplyProgressing";
    /// An object could not be deleted.
    pub(crate) const DELETION_FAILED: &str = "DeletionFailed";
    /// Objects are being deleted.
    pub(crate) const DELETION_PENDING: &str = "DeletionPending";
    /// An object could not be released.
    pub(crate) const RELEASE_FAILED: &str = "ReleaseOfOrphanedResourcesFailed";
    /// The ManagedResource is ignored.
    pub(crate) const IGNORED: &str = "ManagedResourceIgnored";
    /// The objects changed and were not checked since.
    pub(crate) const CHECKS_PENDING: &str = "ChecksPending";
    /// A Secret could not be read.
    pub(crate) const CANNOT_READ_SECRET: &str = "CannotReadSecret";
    /// All objects are healthy.
    pub(crate) const RESOURCES_HEALTHY: &str = "ResourcesHealthy";
    /// The health of an object could not be determined.
    pub(crate) const HEALTH_CHECK_ERROR: &str = "HealthCheckError";
    /// All objects are rolled out.
    pub(crate) const ROLLED_OUT: &str = "ResourcesRolledOut";
}
