//! The content of a ShootState, with its size limited while it is collected.

use ring::digest::SHA256;
use serde_json::Value;

use super::machines;
use crate::base::json::json;
use crate::limits;

/// The SHA-256 of a content.
pub(crate) type StateDigest = [u8; 32];

/// The digest of the spec of a ShootState.
pub(crate) fn digest(spec: &Value) -> StateDigest {
    digest_of(&spec.to_string())
}

fn digest_of(text: &str) -> StateDigest {
    let hash = ring::digest::digest(&SHA256, text.as_bytes());
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(hash.as_ref()).for_each(|(byte, hashed)| *byte = *hashed);
    bytes
}

/// The entry of a spec with the state of the machines.
pub(crate) fn machines_of(spec: &Value) -> Option<&Value> {
    let entries = spec["gardener"].as_array().into_iter().flatten();
    entries.into_iter().find(|entry| entry["type"] == machines::MACHINE_STATE)
}

/// The desired content of a ShootState.
#[derive(Debug)]
pub(crate) struct CollectedState {
    pub(crate) spec: Value,
    pub(crate) digest: StateDigest,
    /// What is missing, with the reasons.
    pub(crate) left_out: Vec<String>,
}

impl CollectedState {
    /// The digest of what is missing.
    pub(crate) fn lacks(&self) -> Option<StateDigest> {
        (!self.left_out.is_empty()).then(|| digest_of(&self.left_out.join("\n")))
    }
}

/// An entry with its size.
pub(super) struct Entry {
    /// Kind and name, for sorting.
    place: (String, String),
    value: Value,
    bytes: usize,
}

impl Entry {
    pub(super) fn new(kind: &str, name: &str, value: Value) -> Self {
        let bytes = value.to_string().len();
        Self { place: (kind.to_owned(), name.to_owned()), value, bytes }
    }

    #[cfg(test)]
    pub(super) const fn value(&self) -> &Value {
        &self.value
    }
}

/// The content that has been read so far.
#[derive(Default)]
pub(super) struct Gathered {
    /// Secrets, and the state of the machines.
    keys: Vec<Entry>,
    extensions: Vec<Entry>,
    resources: Vec<Entry>,
    bytes: usize,
    pub(super) left_out: Vec<String>,
}

impl Gathered {
    /// Adds entries that are never dropped. Returns the size so far.
    pub(super) fn keep(&mut self, entries: impl IntoIterator<Item = Entry>) -> usize {
        for entry in entries {
            self.bytes += entry.bytes;
            self.keys.push(entry);
        }
        self.bytes
    }

    /// Adds the state of an extension. If the limit is exceeded, the largest state is dropped, because
    /// all others then fit.
    pub(super) fn take(&mut self, entry: Entry) {
        self.bytes += entry.bytes;
        self.extensions.push(entry);
        while self.bytes > limits::SHOOT_STATE_BYTES_MAX {
            let largest = (0..self.extensions.len()).max_by_key(|at| self.extensions[*at].bytes);
            let Some(at) = largest else { break };
            let Entry { place: (kind, name), bytes, .. } = self.extensions.swap_remove(at);
            self.bytes -= bytes;
            self.lacks_room(&format!("the state of {kind} {name}"), bytes);
        }
    }

    /// Adds an object that a state refers to, if there is room.
    pub(super) fn refer(&mut self, entry: Entry) {
        if self.bytes + entry.bytes > limits::SHOOT_STATE_BYTES_MAX {
            let Entry { place: (kind, name), bytes, .. } = entry;
            self.lacks_room(&format!("{kind} {name}"), bytes);
            return;
        }
        self.bytes += entry.bytes;
        self.resources.push(entry);
    }

    fn lacks_room(&mut self, what: &str, bytes: usize) {
        let max = limits::SHOOT_STATE_BYTES_MAX;
        self.left_out.push(format!("{what}: it has {bytes} bytes, and a ShootState may have {max}"));
    }

    /// The references of the states to other objects.
    pub(super) fn references(&self) -> Vec<Value> {
        let named = self.extensions.iter().filter_map(|entry| entry.value["resources"].as_array()).flatten();
        named.map(|named| named["resourceRef"].clone()).collect()
    }

    /// Whether it has the object that a state refers to.
    pub(super) fn refers_to(&self, kind: &str, name: &str) -> bool {
        self.resources.iter().any(|entry| entry.place.0 == kind && entry.place.1 == name)
    }

    pub(super) fn content(mut self) -> CollectedState {
        let mut spec = json!({});
        let lists = [
            ("gardener", &mut self.keys),
            ("extensions", &mut self.extensions),
            ("resources", &mut self.resources),
        ];
        for (name, entries) in lists {
            entries.sort_by(|a, b| a.place.cmp(&b.place));
            if !entries.is_empty() {
                spec[name] = entries.drain(..).map(|entry| entry.value).collect();
            }
        }
        self.left_out.sort();
        CollectedState { digest: digest(&spec), spec, left_out: self.left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_state_is_dropped_first() {
        let entry = |name: &str, bytes: usize| Entry::new("Extension", name, json!("x".repeat(bytes)));
        let mut gathered = Gathered { bytes: 100, ..Gathered::default() };
        for (name, bytes) in [("a", 10), ("b", 1 << 20), ("c", 900_000), ("d", 20)] {
            gathered.take(entry(name, bytes));
        }
        let content = gathered.content();
        assert_eq!(content.spec["extensions"].as_array().unwrap().len(), 3);
        let [left_out] = content.left_out.as_slice() else { panic!("{:?}", content.left_out) };
        assert!(left_out.starts_with("the state of Extension b: it has 1048578 bytes"), "{left_out}");
    }

    #[test]
    fn keys_are_never_dropped() {
        let entry = |kind: &str, bytes: usize| Entry::new(kind, "a", json!("x".repeat(bytes)));
        let mut gathered = Gathered::default();
        assert_eq!(gathered.keep([entry("Secret", 600_000), entry("machine-state", 700_000)]), 1_300_004);
        gathered.take(entry("Extension", 20_000));
        gathered.refer(entry("ConfigMap", 20_000));
        let content = gathered.content();
        let kept = content.spec["gardener"].as_array().unwrap().len();
        assert_eq!((kept, content.spec.as_object().unwrap().len()), (2, 1));
        assert_eq!(content.left_out.len(), 2, "{:?}", content.left_out);
    }

    #[test]
    fn the_order_does_not_matter() {
        let content = |names: [&str; 2]| {
            let mut gathered = Gathered::default();
            for name in names {
                gathered.take(Entry::new("Extension", name, json!({"name": name})));
            }
            gathered.content()
        };
        let (one, other) = (content(["a", "b"]), content(["b", "a"]));
        assert_eq!((&one.spec, one.digest), (&other.spec, other.digest));
        assert_ne!(one.digest, content(["a", "c"]).digest);
        assert_eq!(one.spec.get("resources"), None);
    }
}
