//! A watch that several controllers share: one informer, one store, and listeners to its changes.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use serde_json::Value;

use super::informer::{InformerCache, PartialObject};
use super::marks::ListedMarks;
use super::store::{Change, Store, StoreView};
use crate::api::meta::Key;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::kube::UndecodableObject;
use crate::kube::value::StreamedObject;

type Listener<E> = Arc<dyn Fn(&E) + Send + Sync>;

struct ListenerTable<E> {
    next: u64,
    listeners: Vec<(u64, Listener<E>)>,
}

/// The listeners of an event. Cheap to clone.
pub(crate) struct Listeners<E>(Arc<Mutex<ListenerTable<E>>>);

/// A signal that no watch delivers. The event carries no data.
pub(crate) type Notice = Listeners<()>;

/// Its listener is called while this lives.
#[must_use = "dropping it ends the listening"]
pub(crate) struct Listening(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listening")
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl<E> Clone for Listeners<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> Default for Listeners<E> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(ListenerTable { next: 0, listeners: Vec::new() })))
    }
}

impl<E> fmt::Debug for Listeners<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listeners").field(&self.0.lock().ignore_poison().listeners.len()).finish()
    }
}

impl<E: 'static> Listeners<E> {
    /// Calls `listener` for each event until the result is dropped. An event that is being delivered at that
    /// moment may still arrive.
    pub(crate) fn add(&self, listener: impl Fn(&E) + Send + Sync + 'static) -> Listening {
        let mut table = self.0.lock().ignore_poison();
        let id = table.next;
        table.next += 1;
        table.listeners.push((id, Arc::new(listener)));
        let table: Weak<Mutex<ListenerTable<E>>> = Arc::downgrade(&self.0);
        Listening(Box::new(move || {
            if let Some(table) = table.upgrade() {
                table.lock().ignore_poison().listeners.retain(|(other, _)| *other != id);
            }
        }))
    }

    /// Calls all present listeners.
    pub(crate) fn tell(&self, event: &E) {
        let listeners = self.0.lock().ignore_poison().listeners.clone();
        for (_, listener) in listeners {
            listener(event);
        }
    }
}

/// A store, and the listeners of its changes. Cheap to clone.
#[derive(Debug)]
pub struct WatchSource<T> {
    store: Store<T>,
    listeners: Listeners<Change<T>>,
}

impl<T> Clone for WatchSource<T> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), listeners: self.listeners.clone() }
    }
}

impl<T> Default for WatchSource<T> {
    fn default() -> Self {
        Self { store: Store::new(), listeners: Listeners::default() }
    }
}

impl<T: Send + Sync + 'static> WatchSource<T> {
    pub(crate) fn store(&self) -> &Store<T> {
        &self.store
    }

    /// Calls `listener` for all existing objects, as new, and for every change from now on. At the start, it may be
    /// called twice for the same object.
    pub(crate) fn listen(&self, listener: impl Fn(&Change<T>) + Send + Sync + 'static) -> Listening {
        let listener = Arc::new(listener);
        let later = Arc::clone(&listener);
        // Subscribe to changes before reading existing objects: in the other order, a change in between would be lost.
        let listening = self.listeners.add(move |change| later(change));
        for (key, object) in self.store.all() {
            listener(&Change { key, old: None, new: Some(object) });
        }
        listening
    }
}

impl<T: PartialObject> InformerCache for WatchSource<T> {
    fn view(&self) -> StoreView {
        self.store.view()
    }

    fn heard(&self, at: Mono) {
        self.store.heard(at);
    }

    fn has(&self, key: &Key) -> bool {
        self.store.get(key).is_some()
    }

    fn has_version(&self, key: &Key, version: &str) -> bool {
        self.store.get(key).is_some_and(|known| known.metadata().resource_version == version)
    }

    fn put(&self, key: Key, object: StreamedObject) -> Result<(), UndecodableObject> {
        let object = object.decode()?;
        self.listeners.tell(&self.store.put(key, object));
        Ok(())
    }

    fn put_head(&self, key: Key, head: &Value) {
        if let Some(object) = T::of_head(head) {
            self.listeners.tell(&self.store.put(key, object));
        }
    }

    fn remove(&self, key: &Key) {
        self.listeners.tell(&self.store.remove(key));
    }

    fn retain(&self, listed: &ListedMarks) {
        self.store.keep(listed).iter().for_each(|change| self.listeners.tell(change));
    }

    fn clear(&self) {
        self.store.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_late_listener_gets_existing_objects_and_then_changes() {
        let source = WatchSource::<u8>::default();
        let tell = |change: Change<u8>| source.listeners.tell(&change);
        tell(source.store.put(Key::cluster("before"), 1));
        let (sender, told) = mpsc::channel();
        let listening = source.listen(move |change| {
            let (old, new) = (change.old.as_deref().copied(), change.new.as_deref().copied());
            sender.send((change.key.name.clone(), old, new)).unwrap();
        });
        tell(source.store.put(Key::cluster("before"), 2));
        tell(source.store.remove(&Key::cluster("before")));
        let all: Vec<_> = told.try_iter().collect();
        let name = || "before".to_owned();
        assert_eq!(all, [(name(), None, Some(1)), (name(), Some(1), Some(2)), (name(), Some(2), None)]);
        drop(listening);
        tell(source.store.put(Key::cluster("after"), 3));
        assert!(told.try_recv().is_err(), "the listener was dropped");
    }

    #[test]
    fn a_notice_reaches_all_listeners() {
        let notice = Notice::default();
        let (sender, told) = mpsc::channel();
        let other = sender.clone();
        let first = notice.add(move |()| sender.send(1).unwrap());
        let second = notice.add(move |()| other.send(2).unwrap());
        notice.tell(&());
        drop(first);
        notice.tell(&());
        drop(second);
        notice.tell(&());
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 2, 2]);
    }
}
