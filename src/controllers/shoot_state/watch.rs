//! States of extensions, reduced to a hash each, to notice changes.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;

use crate::api::meta::Key;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::kube::UndecodableObject;
use crate::kube::value::StreamedObject;
use crate::runtime::informer::InformerCache;
use crate::runtime::marks::{ListedMarks, Mark};
use crate::runtime::source::{Listeners, Listening};
use crate::runtime::store::StoreView;
use crate::shoot::state::digest;

/// The known facts about an object.
struct KnownState {
    version: String,
    state: u64,
}

#[derive(Default)]
struct WatchedObjects {
    known: SortedMap<Key, KnownState>,
    view: StoreView,
}

/// The objects of a kind, and the listeners for changes of their states. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct States {
    inner: Arc<Mutex<WatchedObjects>>,
    listeners: Listeners<Key>,
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("States").field(&self.view().objects).finish()
    }
}

impl States {
    /// Calls `listener` for objects that are new, gone, or have another state.
    pub(super) fn listen(&self, listener: impl Fn(&Key) + Send + Sync + 'static) -> Listening {
        self.listeners.add(listener)
    }

    fn lock(&self) -> MutexGuard<'_, WatchedObjects> {
        // Only single calls change the map: a panic cannot leave it half changed.
        self.inner.lock().ignore_poison()
    }
}

/// Hashes the part of the object that a ShootState contains.
fn state(object: &Value) -> u64 {
    let status = &object["status"];
    let is_deleted = !object["metadata"]["deletionTimestamp"].is_null();
    short(&Value::from(vec![status["state"].clone(), status["resources"].clone(), is_deleted.into()]))
}

fn short(value: &Value) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(digest(value)).for_each(|(byte, hashed)| *byte = hashed);
    u64::from_be_bytes(bytes)
}

impl InformerCache for States {
    fn view(&self) -> StoreView {
        let inner = self.lock();
        StoreView { objects: inner.known.len(), ..inner.view }
    }

    fn heard(&self, at: Mono) {
        self.lock().view.heard_at = Some(at);
    }

    fn has(&self, key: &Key) -> bool {
        self.lock().known.contains_key(key)
    }

    fn has_version(&self, key: &Key, version: &str) -> bool {
        self.lock().known.get(key).is_some_and(|known| known.version == version)
    }

    fn put(&self, key: Key, object: StreamedObject) -> Result<(), UndecodableObject> {
        let version = object.version().to_owned();
        // ShootStates omit an object with too many values. Treat each version of it as a change, because it may be
        // smaller.
        let state = object.decode::<Value>().map_or_else(|_| short(&version.as_str().into()), |o| state(&o));
        let before = self.lock().known.insert(key.clone(), KnownState { version, state });
        if before.is_none_or(|before| before.state != state) {
            self.listeners.tell(&key);
        }
        Ok(())
    }

    /// Decoding never fails.
    fn put_head(&self, _key: Key, _head: &Value) {}

    fn remove(&self, key: &Key) {
        let before = self.lock().known.remove(key);
        if before.is_some() {
            self.listeners.tell(key);
        }
    }

    fn retain(&self, listed: &ListedMarks) {
        let gone: Vec<Key> = {
            let mut inner = self.lock();
            inner.view.synced = true;
            inner.known.keys().filter(|key| !listed.contains(&Mark::of(key))).cloned().collect()
        };
        gone.iter().for_each(|key| self.remove(key));
    }

    fn clear(&self) {
        let mut inner = self.lock();
        inner.known.clear();
        inner.view.synced = false;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_states_count() {
        let states = States::default();
        let told = Arc::new(Mutex::new(0));
        let count = Arc::clone(&told);
        let _listening = states.listen(move |_| *count.lock().unwrap() += 1);
        let key = Key::new("shoot--p--a", "one");
        let put = |version: &str, status: Value| {
            let object = json!({"kind": "Extension", "metadata": {"name": "one", "namespace": "shoot--p--a", "resourceVersion": version},
                "status": status});
            states.put(key.clone(), serde_json::from_value(object).unwrap()).unwrap();
            assert!(states.has_version(&key, version));
            *told.lock().unwrap()
        };
        assert_eq!(put("1", json!({})), 1);
        assert_eq!(put("2", json!({"conditions": [{"type": "Healthy"}]})), 1);
        assert_eq!(put("3", json!({"state": {"a": 1}})), 2);
        assert_eq!(put("4", json!({"state": {"a": 1}, "observedGeneration": 3})), 2);
        assert_eq!(put("5", json!({"state": {"a": 1}, "resources": [{"name": "r"}]})), 3);
        states.retain(&ListedMarks::from([Mark::of(&key)]));
        assert_eq!(*told.lock().unwrap(), 3);
        states.retain(&ListedMarks::new());
        assert_eq!((*told.lock().unwrap(), states.has(&key)), (4, false));
    }
}
