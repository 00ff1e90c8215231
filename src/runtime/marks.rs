//! The cache of an informer for kinds with many objects, if it is enough to notice new objects and versions: two hashes
//! per object, and no name. A seed with many shoots has tens of thousands of Secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use ring::digest::{Context, SHA256};
use serde_json::Value;

use super::informer::InformerCache;
use super::source::{Listeners, Listening};
use super::store::StoreView;
use crate::api::meta::Key;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::kube::UndecodableObject;
use crate::kube::value::StreamedObject;

/// A key in 16 bytes: enough of a SHA-256 to avoid collisions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Mark([u8; 16]);

impl Mark {
    /// The mark of a key.
    pub(crate) fn of(key: &Key) -> Self {
        // Namespaces contain no slash.
        Self(first(&[&key.namespace, "/", &key.name]))
    }
}

/// The marks of a list. They arrive in random order, because they are hashes.
pub(crate) type ListedMarks = BTreeSet<Mark>;

/// The first bytes of the SHA-256 of a text.
fn first<const N: usize>(parts: &[&str]) -> [u8; N] {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part.as_bytes()));
    let (mut bytes, hash) = ([0; N], context.finish());
    bytes.iter_mut().zip(hash.as_ref()).for_each(|(byte, hashed)| *byte = *hashed);
    bytes
}

/// The known version of an object. Other versions have other hashes, except for one in 2^64.
pub(super) type VersionHash = [u8; 8];

/// The hash of a version.
pub(super) fn version(text: &str) -> VersionHash {
    first(&[text])
}

/// An object is new, or has a new version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ChangedObject {
    pub(crate) key: Key,
    /// It was unknown before.
    pub(crate) is_new: bool,
}

#[derive(Default)]
struct KnownMarks {
    known: BTreeMap<Mark, VersionHash>,
    view: StoreView,
}

/// The marks of one kind, and the listeners. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Marks {
    inner: Arc<Mutex<KnownMarks>>,
    listeners: Listeners<ChangedObject>,
    gone: Listeners<Option<Key>>,
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Marks").field(&self.view().objects).finish()
    }
}

impl Marks {
    /// Calls `listener` for new objects and versions from now on, until the result is dropped.
    pub(crate) fn listen(&self, listener: impl Fn(&ChangedObject) + Send + Sync + 'static) -> Listening {
        self.listeners.add(listener)
    }

    /// Calls `listener` for deleted objects, until the result is dropped. `None`: an unknown object was deleted.
    pub(crate) fn listen_gone(&self, listener: impl Fn(&Option<Key>) + Send + Sync + 'static) -> Listening {
        self.gone.add(listener)
    }

    fn lock(&self) -> MutexGuard<'_, KnownMarks> {
        // Only single calls change the map: a panic cannot leave it half changed.
        self.inner.lock().ignore_poison()
    }
}

impl InformerCache for Marks {
    fn view(&self) -> StoreView {
        let inner = self.lock();
        StoreView { objects: inner.known.len(), ..inner.view }
    }

    fn heard(&self, at: Mono) {
        self.lock().view.heard_at = Some(at);
    }

    fn has(&self, key: &Key) -> bool {
        self.lock().known.contains_key(&Mark::of(key))
    }

    fn has_version(&self, key: &Key, version: &str) -> bool {
        self.lock().known.get(&Mark::of(key)).is_some_and(|known| *known == self::version(version))
    }

    fn put(&self, key: Key, object: StreamedObject) -> Result<(), UndecodableObject> {
        let before = self.lock().known.insert(Mark::of(&key), version(object.version()));
        self.listeners.tell(&ChangedObject { key, is_new: before.is_none() });
        Ok(())
    }

    /// Nothing is decoded, so nothing can fail.
    fn put_head(&self, _key: Key, _head: &Value) {}

    fn remove(&self, key: &Key) {
        let before = self.lock().known.remove(&Mark::of(key));
        if before.is_some() {
            self.gone.tell(&Some(key.clone()));
        }
    }

    fn retain(&self, listed: &ListedMarks) {
        let is_any_gone = {
            let mut inner = self.lock();
            let before = inner.known.len();
            inner.known.retain(|mark, _| listed.contains(mark));
            inner.view.synced = true;
            inner.known.len() < before
        };
        if is_any_gone {
            self.gone.tell(&None);
        }
    }

    fn clear(&self) {
        let mut inner = self.lock();
        inner.known.clear();
        inner.view.synced = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_distinguish_keys_and_versions() {
        let key = Key::new;
        let all = [key("a", "b"), key("", "b"), key("a", ""), key("", "ab"), key("ab", "")];
        let marks: ListedMarks = all.iter().map(Mark::of).collect();
        assert_eq!(marks.len(), all.len());
        assert_eq!(Mark::of(&all[0]), Mark::of(&key("a", "b")));
        assert_ne!(first::<8>(&["1"]), first::<8>(&["2"]));
    }
}
