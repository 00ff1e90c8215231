//! The part of objects that informers keep if they do not need the content. All of them share one type, because each
//! watched type adds 14 kB to the program.

use serde::Deserialize;

use super::names;
use crate::api::meta::{Metadata, ObjectMeta};
use crate::runtime::informer::PartialObject;

/// The name and versions of an object, and the ManagedResource that it comes from.
#[derive(Debug, Default)]
pub(super) struct WorkloadHead {
    metadata: ObjectMeta,
}

impl<'de> Deserialize<'de> for WorkloadHead {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let mut full = Metadata::deserialize(d)?.metadata;
        full.annotations.retain(|name, _| name == names::ORIGIN);
        let metadata = ObjectMeta {
            name: full.name,
            namespace: full.namespace,
            resource_version: full.resource_version,
            generation: full.generation,
            deletion_timestamp: full.deletion_timestamp,
            annotations: full.annotations,
            ..ObjectMeta::default()
        };
        Ok(Self { metadata })
    }
}

impl PartialObject for WorkloadHead {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}
