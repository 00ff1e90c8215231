//! Keeps the objects of an informer if they are many and similar: a text per object with all relevant fields. Equal
//! texts are stored once, names not at all. Objects that all Shoots of a seed have cost little more than those of a
//! single Shoot.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;

use super::informer::InformerCache;
use super::marks::{ListedMarks, Mark, VersionHash, version};
use super::source::{Listeners, Listening};
use super::store::StoreView;
use crate::api::meta::Key;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::kube::UndecodableObject;
use crate::kube::value::StreamedObject;

/// A new, changed or deleted object. Versions with the same text are not reported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TextChange {
    /// The namespace of the object.
    pub(crate) namespace: Arc<str>,
    pub(crate) old: Option<Arc<str>>,
    pub(crate) new: Option<Arc<str>>,
}

struct Entry {
    version: VersionHash,
    text: Arc<str>,
}

#[derive(Default)]
struct AlikeTexts {
    namespaces: SortedMap<Arc<str>, SortedMap<Mark, Entry>>,
    texts: SortedSet<Arc<str>>,
    view: StoreView,
}

/// The store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct TextStore {
    inner: Arc<Mutex<AlikeTexts>>,
    listeners: Listeners<TextChange>,
    look: fn(&Value) -> String,
}

impl fmt::Debug for TextStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TextStore").field(&self.view().objects).finish()
    }
}

impl AlikeTexts {
    /// The shared copy of a text.
    fn text(&mut self, text: String) -> Arc<str> {
        let text = Arc::from(text);
        if let Some(known) = self.texts.get(&text) {
            return Arc::clone(known);
        }
        self.texts.insert(Arc::clone(&text));
        text
    }

    /// Drops texts that no object has any more.
    fn sweep(&mut self) {
        self.texts.retain(|text| Arc::strong_count(text) > 1);
    }

    fn put(&mut self, key: &Key, entry: Entry) -> (Arc<str>, Option<Arc<str>>) {
        let namespace = self.namespaces.get_key_value(key.namespace.as_str());
        let namespace =
            namespace.map_or_else(|| Arc::from(key.namespace.as_str()), |(known, _)| Arc::clone(known));
        let entries = self.namespaces.entry(Arc::clone(&namespace)).or_default();
        let old = entries.insert(Mark::of(key), entry).map(|entry| entry.text);
        self.view.objects += usize::from(old.is_none());
        (namespace, old)
    }

    /// Removes the objects for which `is_gone` is true.
    fn take(&mut self, is_gone: impl Fn(&str, &Mark) -> bool) -> Vec<TextChange> {
        let mut gone = Vec::new();
        self.namespaces.retain(|namespace, entries| {
            entries.retain(|mark, entry| {
                let goes = is_gone(namespace, mark);
                if goes {
                    let (namespace, old) = (Arc::clone(namespace), Some(Arc::clone(&entry.text)));
                    gone.push(TextChange { namespace, old, new: None });
                }
                !goes
            });
            !entries.is_empty()
        });
        self.view.objects = self.view.objects.saturating_sub(gone.len());
        gone
    }
}

impl TextStore {
    /// Empty. `look` creates the text of an object.
    pub(crate) fn new(look: fn(&Value) -> String) -> Self {
        Self { inner: Arc::default(), listeners: Listeners::default(), look }
    }

    /// Calls `listener` for changes from now on, until the result is dropped.
    pub(crate) fn listen(&self, listener: impl Fn(&TextChange) + Send + Sync + 'static) -> Listening {
        self.listeners.add(listener)
    }

    /// Whether a complete list was received.
    pub(crate) fn is_synced(&self) -> bool {
        self.lock().view.synced
    }

    /// The texts of the objects in a namespace, with duplicates.
    pub(crate) fn within(&self, namespace: &str) -> Vec<Arc<str>> {
        let inner = self.lock();
        let entries = inner.namespaces.get(namespace).into_iter().flat_map(SortedMap::values);
        entries.map(|entry| Arc::clone(&entry.text)).collect()
    }

    /// The namespaces and texts of objects that match `is_wanted`. It is called once for equal texts.
    pub(crate) fn find(&self, is_wanted: &dyn Fn(&str) -> bool) -> Vec<(Arc<str>, Arc<str>)> {
        let inner = self.lock();
        let wanted: SortedSet<&Arc<str>> = inner.texts.iter().filter(|text| is_wanted(text)).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (namespace, entries) in &inner.namespaces {
            let texts = entries.values().map(|entry| &entry.text).filter(|text| wanted.contains(text));
            found.extend(texts.map(|text| (Arc::clone(namespace), Arc::clone(text))));
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, AlikeTexts> {
        // Nothing that can panic happens between the changes of its maps.
        self.inner.lock().ignore_poison()
    }

    fn tell(&self, altered: Vec<TextChange>) {
        altered.iter().for_each(|altered| self.listeners.tell(altered));
        drop(altered);
        self.lock().sweep();
    }
}

impl InformerCache for TextStore {
    fn view(&self) -> StoreView {
        self.lock().view
    }

    fn heard(&self, at: Mono) {
        self.lock().view.heard_at = Some(at);
    }

    fn has(&self, key: &Key) -> bool {
        self.lock().namespaces.get(key.namespace.as_str()).is_some_and(|of| of.contains_key(&Mark::of(key)))
    }

    fn has_version(&self, key: &Key, known: &str) -> bool {
        let inner = self.lock();
        let entry = inner.namespaces.get(key.namespace.as_str()).and_then(|of| of.get(&Mark::of(key)));
        entry.is_some_and(|entry| entry.version == version(known))
    }

    fn put(&self, key: Key, object: StreamedObject) -> Result<(), UndecodableObject> {
        let version = version(object.version());
        let text = (self.look)(&object.decode::<Value>()?);
        let (namespace, old, new) = {
            let mut inner = self.lock();
            let new = inner.text(text);
            let (namespace, old) = inner.put(&key, Entry { version, text: Arc::clone(&new) });
            (namespace, old, new)
        };
        if old.as_ref() != Some(&new) {
            self.tell(vec![TextChange { namespace, old, new: Some(new) }]);
        }
        Ok(())
    }

    /// The known text stays.
    fn put_head(&self, _key: Key, _head: &Value) {}

    fn remove(&self, key: &Key) {
        let mark = Mark::of(key);
        let gone = self.lock().take(|namespace, other| namespace == key.namespace && *other == mark);
        self.tell(gone);
    }

    fn retain(&self, listed: &ListedMarks) {
        let gone = {
            let mut inner = self.lock();
            inner.view.synced = true;
            inner.take(|_, mark| !listed.contains(mark))
        };
        self.tell(gone);
    }

    fn clear(&self) {
        let mut inner = self.lock();
        inner.namespaces.clear();
        inner.texts.clear();
        inner.view = StoreView { heard_at: inner.view.heard_at, ..StoreView::default() };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn put(alike: &TextStore, namespace: &str, name: &str, version: u32, look: &str) {
        let object = json!({"metadata": {"namespace": namespace, "name": name, "resourceVersion": version.to_string()},
            "look": look});
        let streamed = serde_json::from_value(object).unwrap();
        alike.put(Key::new(namespace, name), streamed).unwrap();
    }

    #[test]
    fn equal_texts_are_kept_once_and_changes_are_reported() {
        let alike = TextStore::new(|object| object["look"].as_str().unwrap_or_default().to_owned());
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let _listening = alike.listen(move |altered| {
            let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
            let line = (altered.namespace.to_string(), text(&altered.old), text(&altered.new));
            telling.lock().unwrap().push(line);
        });
        let news = || std::mem::take(&mut *told.lock().unwrap());
        let line = |namespace: &str, old: Option<&str>, new: Option<&str>| {
            (namespace.to_owned(), old.map(str::to_owned), new.map(str::to_owned))
        };
        put(&alike, "a", "x", 1, "round");
        put(&alike, "b", "x", 2, "round");
        put(&alike, "b", "y", 3, "square");
        assert_eq!(
            news(),
            [line("a", None, Some("round")), line("b", None, Some("round")), line("b", None, Some("square"))]
        );
        put(&alike, "b", "y", 4, "square");
        assert_eq!(news(), [], "another version looks the same");
        assert!(alike.has_version(&Key::new("b", "y"), "4") && !alike.has_version(&Key::new("b", "y"), "3"));
        assert!(!alike.has(&Key::new("a", "y")));
        assert_eq!((alike.view().objects, alike.lock().texts.len()), (3, 2));
        let round = alike.find(&|text| text == "round");
        let places: Vec<&str> = round.iter().map(|(namespace, _)| namespace.as_ref()).collect();
        assert_eq!(places, ["a", "b"]);
        drop(round);
        assert_eq!(alike.within("b").len(), 2);

        put(&alike, "a", "x", 5, "square");
        alike.remove(&Key::new("b", "x"));
        assert_eq!(news(), [line("a", Some("round"), Some("square")), line("b", Some("round"), None)]);
        assert_eq!(alike.lock().texts.len(), 1, "no object has this text any more");
        assert!(!alike.is_synced());
        alike.retain(&[Mark::of(&Key::new("a", "x"))].into());
        assert_eq!(news(), [line("b", Some("square"), None)]);
        assert!(alike.is_synced());
        assert_eq!((alike.view().objects, alike.lock().namespaces.len()), (1, 1));
        alike.remove(&Key::new("a", "z"));
        alike.clear();
        assert_eq!((news(), alike.view().objects, alike.is_synced()), (vec![], 0, false));
    }
}
