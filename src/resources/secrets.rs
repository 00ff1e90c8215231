//! The Secrets with manifests: when one changes, the ManagedResources that name it are applied again.

use crate::api::core::SECRET;
use crate::api::meta::Key;
use crate::kube::Client;
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::Options;
use crate::runtime::marks::{ChangedObject, Marks};
use crate::runtime::store::Store;

use super::target::TargetClusters;
use super::trigger::{ManagedResourceHead, reads_secret};

/// Watches the Secrets of the seed, without their data.
pub(crate) fn watch_secrets(seed: &Client, secrets: &Marks, group: &mut ControllerGroup) {
    let options = Options { metadata_only: true, ..Options::all("seed/secrets", SECRET) };
    group.watch(seed, options, secrets);
}

/// Updates only: a Secret that appears after its ManagedResource is found by the retry.
pub(super) fn readers(
    managed: &Store<ManagedResourceHead>,
    targets: &TargetClusters,
    secret: &ChangedObject,
) -> Vec<Key> {
    if secret.is_new {
        return Vec::new();
    }
    let reads = |watched: &ManagedResourceHead| {
        reads_secret(watched, &secret.key) && targets.of(&watched.metadata, &watched.spec.class).is_some()
    };
    managed.all().into_iter().filter(|(_, watched)| reads(watched)).map(|(key, _)| key).collect()
}
