//! A Secret as the cluster has it.

use std::fmt;

use super::labels;
use crate::base::clock::Timestamp;
use crate::base::sorted::SortedMap;

/// The entries of a Secret.
pub type SecretEntries = SortedMap<String, Vec<u8>>;

/// A Secret of the secrets manager.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StoredSecret {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: SortedMap<String, String>,
    /// Its content.
    pub data: SecretEntries,
    /// When it was created.
    pub created: Timestamp,
    /// Its data is immutable.
    pub is_immutable: bool,
    /// `Opaque`, or `kubernetes.io/tls`.
    pub kind: String,
}

impl fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.data.keys().map(String::as_str).collect();
        let Self { name, labels, kind, .. } = self;
        f.debug_struct("StoredSecret")
            .field("name", name)
            .field("labels", labels)
            .field("type", kind)
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

impl StoredSecret {
    /// One entry.
    pub fn get(&self, key: &str) -> &[u8] {
        self.data.get(key).map_or(&[], Vec::as_slice)
    }

    pub(super) fn label(&self, key: &str) -> &str {
        self.labels.get(key).map_or("", String::as_str)
    }

    pub(super) fn time(&self, key: &str) -> Option<Timestamp> {
        self.label(key).parse().ok().map(Timestamp::from_unix)
    }

    /// The sort key for the newest of several: creation times have no fractions of a second.
    pub(super) fn age(&self) -> (Timestamp, Option<Timestamp>) {
        (self.created, self.time(labels::LAST_ROTATION))
    }

    /// Also true for one of which a part is lost.
    pub(super) fn is_ca(&self) -> bool {
        self.data.contains_key("ca.key") || (self.data.contains_key("ca.crt") && self.data.len() == 1)
    }
}
