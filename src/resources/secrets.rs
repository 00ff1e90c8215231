//! The Secrets with manifests: when one changes, the ManagedResources that name it are applied again.

use serde::Deserialize;

use crate::api::core::SECRET;
use crate::api::meta::{Key, Metadata, ObjectMeta};
use crate::kube::Client;
use crate::runtime::group::Group;
use crate::runtime::informer::{Object, Options};
use crate::runtime::source::Source;
use crate::runtime::store::{Change, Store};

use super::target::Targets;
use super::trigger::{Watched, reads_secret};

/// What an informer keeps of a Secret: name and version.
#[derive(Debug, Default)]
pub struct SecretVersion {
    metadata: ObjectMeta,
}

impl<'de> Deserialize<'de> for SecretVersion {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let full = Metadata::deserialize(d)?.metadata;
        let mut metadata = ObjectMeta::default();
        (metadata.name, metadata.namespace) = (full.name, full.namespace);
        metadata.resource_version = full.resource_version;
        Ok(Self { metadata })
    }
}

impl Object for SecretVersion {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Watches the Secrets of the seed, without their data.
pub fn watch_secrets(seed: &Client, secrets: &Source<SecretVersion>, group: &mut Group) {
    let options = Options { metadata_only: true, ..Options::all("seed/secrets", SECRET) };
    group.watch(seed, options, secrets);
}

/// Updates only: a Secret that appears after its ManagedResource is found by the retry.
pub(super) fn readers(
    managed: &Store<Watched>,
    targets: &Targets,
    change: &Change<SecretVersion>,
) -> Vec<Key> {
    if change.old.is_none() || change.new.is_none() {
        return Vec::new();
    }
    let reads = |watched: &Watched| {
        reads_secret(watched, &change.key) && targets.of(&watched.metadata, &watched.spec.class).is_some()
    };
    managed.all().into_iter().filter(|(_, watched)| reads(watched)).map(|(key, _)| key).collect()
}
