//! The cache of an informer. It has one writer and many readers; readers get the object, never the lock.

use std::sync::{Arc, RwLock};

use super::marks::{ListedMarks, Mark};
use crate::api::meta::Key;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;

/// Objects of one kind, reduced to the fields that are used. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Store<T> {
    inner: Arc<RwLock<StoredObjects<T>>>,
}

#[derive(Debug)]
struct StoredObjects<T> {
    objects: SortedMap<Key, Arc<T>>,
    synced: bool,
    /// When the server last sent something.
    heard_at: Option<Mono>,
}

/// The state of a cache for observers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreView {
    /// It has received a complete list.
    pub(crate) synced: bool,
    /// The number of objects.
    pub(crate) objects: usize,
    /// When the server last sent something about them.
    pub(crate) heard_at: Option<Mono>,
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            inner: Arc::new(RwLock::new(StoredObjects {
                objects: SortedMap::new(),
                synced: false,
                heard_at: None,
            })),
        }
    }
}

/// A change: `old` is absent for a new object, `new` for a deleted one.
#[derive(Debug)]
pub(crate) struct Change<T> {
    pub(crate) key: Key,
    pub(crate) old: Option<Arc<T>>,
    pub(crate) new: Option<Arc<T>>,
}

impl<T> Store<T> {
    /// An empty store that has not received a list yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.read(|inner| inner.objects.get(key).cloned())
    }

    /// Whether the object is there, or may be, because not all objects are known yet.
    pub(crate) fn may_have(&self, key: &Key) -> bool {
        self.read(|inner| !inner.synced || inner.objects.contains_key(key))
    }

    /// All objects, by key.
    pub(crate) fn all(&self) -> Vec<(Key, Arc<T>)> {
        self.read(|inner| {
            inner.objects.iter().map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
        })
    }

    /// All objects of a namespace, by name.
    pub(crate) fn within(&self, namespace: &str) -> Vec<Arc<T>> {
        let first = Key::new(namespace, "");
        self.read(|inner| {
            let from = inner.objects.range_from(&first);
            let ours = from.take_while(|(key, _)| key.namespace == namespace);
            ours.map(|(_, object)| Arc::clone(object)).collect()
        })
    }

    /// All objects without their keys.
    pub(crate) fn values(&self) -> Vec<Arc<T>> {
        self.read(|inner| inner.objects.values().map(Arc::clone).collect())
    }

    /// Whether the store has received a complete list.
    pub(crate) fn is_synced(&self) -> bool {
        self.read(|inner| inner.synced)
    }

    /// The state of the store for observers.
    pub(crate) fn view(&self) -> StoreView {
        self.read(|inner| StoreView {
            synced: inner.synced,
            objects: inner.objects.len(),
            heard_at: inner.heard_at,
        })
    }

    /// The server has sent something.
    pub(in crate::runtime) fn heard(&self, at: Mono) {
        self.write(|inner| inner.heard_at = Some(at));
    }

    /// Stores an object. Only informers write.
    pub(in crate::runtime) fn put(&self, key: Key, object: T) -> Change<T> {
        let new = Arc::new(object);
        let old = self.write(|inner| inner.objects.insert(key.clone(), Arc::clone(&new)));
        Change { key, old, new: Some(new) }
    }

    pub(in crate::runtime) fn remove(&self, key: &Key) -> Change<T> {
        let old = self.write(|inner| inner.objects.remove(key));
        Change { key: key.clone(), old, new: None }
    }

    /// The store is not maintained any more: it is emptied.
    pub(in crate::runtime) fn clear(&self) {
        self.write(|inner| {
            inner.objects.clear();
            inner.synced = false;
        });
    }

    /// A complete list has ended: objects that it did not contain are gone.
    pub(in crate::runtime) fn keep(&self, listed: &ListedMarks) -> Vec<Change<T>> {
        let is_gone = |key: &&Key| !listed.contains(&Mark::of(key));
        let gone: Vec<Key> = self.read(|inner| inner.objects.keys().filter(is_gone).cloned().collect());
        let changes = gone.iter().map(|key| self.remove(key)).collect();
        self.write(|inner| inner.synced = true);
        changes
    }

    fn read<R>(&self, f: impl FnOnce(&StoredObjects<T>) -> R) -> R {
        // A map insert cannot leave the map half changed; the next list repairs a panic of the writer.
        f(&self.inner.read().ignore_poison())
    }

    fn write<R>(&self, f: impl FnOnce(&mut StoredObjects<T>) -> R) -> R {
        f(&mut self.inner.write().ignore_poison())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: String::new(), name: name.to_owned() }
    }

    #[test]
    fn a_list_shows_what_is_gone() {
        let store = Store::new();
        for name in ["a", "b", "c"] {
            let change = store.put(key(name), 1);
            assert!(change.old.is_none());
        }
        assert!(!store.is_synced());
        let gone = store.keep(&ListedMarks::from([key("a"), key("c")].map(|key| Mark::of(&key))));
        assert_eq!(gone.iter().map(|c| c.key.clone()).collect::<Vec<_>>(), [key("b")]);
        assert!(store.is_synced() && store.values().len() == 2);
        assert_eq!(store.put(key("a"), 2).old.as_deref(), Some(&1));
        store.clear();
        assert!(!store.is_synced() && store.values().is_empty());
    }
}
