//! ManagedResources whose objects were healthy and rolled out at their last check. While their version is the same, a check
//! needs only the names of their objects, and those are here: the ManagedResource itself is not read again.
//!
//! Shoots have the same objects, except for names with digests. Equal lists are stored once.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::api::meta::Key;
use crate::api::resources::ObjectReference;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::{SortedMap, SortedSet};

#[derive(Debug)]
struct Calm {
    /// The version of the ManagedResource.
    version: Box<str>,
    /// A line per object, with tabs between its fields.
    objects: Arc<str>,
}

#[derive(Debug, Default)]
struct CalmState {
    all: SortedMap<Key, Calm>,
    lists: SortedSet<Arc<str>>,
}

impl CalmState {
    fn forget(&mut self, key: &Key) {
        let Some(calm) = self.all.remove(key) else { return };
        // One here, one in the set.
        if Arc::strong_count(&calm.objects) == 2 {
            self.lists.remove(&calm.objects);
        }
    }
}

/// All of them. Cheap for many Shoots.
#[derive(Debug, Default)]
pub(super) struct CalmResources(Mutex<CalmState>);

impl CalmResources {
    fn lock(&self) -> MutexGuard<'_, CalmState> {
        // Both maps change together, by calls that cannot panic in between.
        self.0.lock().ignore_poison()
    }

    /// The objects of a ManagedResource that is calm in this version.
    pub(super) fn find(&self, key: &Key, version: &str) -> Option<Vec<ObjectReference>> {
        let state = self.lock();
        let calm = state.all.get(key).filter(|calm| *calm.version == *version)?;
        Some(calm.objects.lines().filter_map(read).collect())
    }

    /// All objects of a ManagedResource were found, and are healthy and rolled out.
    pub(super) fn remember(&self, key: &Key, version: &str, objects: &[ObjectReference]) {
        let mut text = String::new();
        for ObjectReference { api_version, kind, namespace, name, .. } in objects {
            text.extend([api_version, "\t", kind, "\t", namespace, "\t", name, "\n"]);
        }
        let mut state = self.lock();
        state.forget(key);
        // A name with a separator does not come from an API server.
        let parsed: Option<Vec<ObjectReference>> = text.lines().map(read).collect();
        if version.is_empty() || parsed.is_none_or(|parsed| parsed.len() != objects.len()) {
            return;
        }
        let text = Arc::from(text);
        let objects = state.lists.get(&text).cloned().unwrap_or(text);
        state.lists.insert(objects.clone());
        state.all.insert(key.clone(), Calm { version: version.into(), objects });
    }

    /// Everything is looked at anew.
    pub(super) fn clear(&self) {
        *self.lock() = CalmState::default();
    }

    /// The cluster of a Shoot is another one, or gone.
    pub(super) fn forget_all_in(&self, namespace: &str) {
        let mut state = self.lock();
        let of_shoot: Vec<Key> = state.all.keys().filter(|key| key.namespace == namespace).cloned().collect();
        of_shoot.iter().for_each(|key| state.forget(key));
    }

    /// It is not calm any more, or gone.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().forget(key);
    }
}

fn read(line: &str) -> Option<ObjectReference> {
    let mut fields = line.split('\t').map(str::to_owned);
    let mut next = || fields.next();
    let object = ObjectReference {
        api_version: next()?,
        kind: next()?,
        namespace: next()?,
        name: next()?,
        ..ObjectReference::default()
    };
    fields.next().is_none().then_some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectReference {
        ObjectReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "kube-system".into(),
            name: name.into(),
            ..ObjectReference::default()
        }
    }

    #[test]
    fn what_is_known_belongs_to_one_version() {
        let calm = CalmResources::default();
        let (key, other) = (Key::new("shoot--p--a", "m"), Key::new("shoot--p--b", "m"));
        let cluster_scoped = ObjectReference { namespace: String::new(), ..object("b") };
        let objects = [object("a"), cluster_scoped];
        calm.remember(&key, "7", &objects);
        calm.remember(&other, "8", &objects);
        assert_eq!(calm.lock().lists.len(), 1, "equal lists are stored once");
        assert_eq!(calm.find(&key, "7").as_deref(), Some(&objects[..]));
        assert_eq!(calm.find(&key, "9"), None, "it has changed");
        calm.forget(&key);
        assert_eq!((calm.find(&key, "7"), calm.lock().lists.len()), (None, 1));
        calm.forget_all_in("shoot--p--b");
        assert_eq!(calm.lock().lists.len(), 0);
        calm.remember(&key, "7", &objects);
        calm.clear();
        assert_eq!(calm.find(&key, "7"), None);
    }

    #[test]
    fn names_that_cannot_be_kept_are_read_each_time() {
        let calm = CalmResources::default();
        let key = Key::new("n", "m");
        for name in ["a\tb", "a\nb"] {
            calm.remember(&key, "1", &[object(name)]);
            assert_eq!(calm.find(&key, "1"), None, "{name:?}");
        }
        calm.remember(&key, "1", &[]);
        assert_eq!(calm.find(&key, "1"), Some(Vec::new()));
    }
}
