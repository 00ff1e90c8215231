//! Whether a write would change anything.
//!
//! A manifest omits fields that the server fills in, so the merged object always differs from the live one. Every round
//! would write it again, only for the server to find out that nothing changed. So we remember, per object, its state
//! after the last write and what would have been written then: if both are the same again, so is the result.

use std::collections::HashMap;
use std::sync::Mutex;

use ring::digest;
use serde_json::Value;

use super::reference::Identity;
use crate::base::lock::IgnorePoison;
use crate::limits;

type Hash = [u8; 16];

/// The results of earlier writes: 48 bytes per object.
#[derive(Debug, Default)]
pub(super) struct Settled(Mutex<HashMap<Hash, (Hash, Hash)>>);

impl Settled {
    /// Whether the server would consider `merged` equal to the live object.
    pub(super) fn is(&self, identity: &Identity, live: &Value, merged: &Value) -> bool {
        if same(live, merged) {
            return true;
        }
        let known = self.lock().get(&hash_text(&identity.to_string())).copied();
        known == Some((fingerprint(live), fingerprint(merged)))
    }

    /// Records that the server answered with `live`, for which `merged` would be the next write.
    pub(super) fn remember(&self, identity: &Identity, live: &Value, merged: &Value) {
        let (key, entry) = (hash_text(&identity.to_string()), (fingerprint(live), fingerprint(merged)));
        let mut known = self.lock();
        if known.len() >= limits::SETTLED_OBJECTS_MAX {
            // Forgetting costs one needless write for each object.
            known.clear();
        }
        known.insert(key, entry);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Hash, (Hash, Hash)>> {
        // One map, changed by single calls: a panic cannot leave it half changed.
        self.0.lock().ignore_poison()
    }
}

/// Whether two objects are equal; a `null` field counts as missing.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let covered = |a: &serde_json::Map<String, Value>, b: &serde_json::Map<String, Value>| {
                a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(&Value::Null)))
            };
            covered(a, b) && b.iter().all(|(key, value)| a.contains_key(key) || value.is_null())
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => a == b,
    }
}

/// A hash of everything except fields that change without a change of the desired state.
fn fingerprint(object: &Value) -> Hash {
    let mut context = digest::Context::new(&digest::SHA256);
    for (key, value) in object.as_object().into_iter().flatten() {
        match key.as_str() {
            "status" => {}
            "metadata" => {
                let fields = value.as_object().into_iter().flatten();
                let kept = fields.filter(|(k, _)| {
                    !["resourceVersion", "generation", "managedFields"].contains(&k.as_str())
                });
                kept.for_each(|(key, value)| feed(&mut context, key, value));
            }
            _ => feed(&mut context, key, value),
        }
    }
    truncate(&context.finish())
}

fn feed(context: &mut digest::Context, key: &str, value: &Value) {
    // Maps are sorted and JSON is unambiguous, so the text identifies key and value.
    context.update(format!("{key:?}:{value}\n").as_bytes());
}

fn hash_text(text: &str) -> Hash {
    truncate(&digest::digest(&digest::SHA256, text.as_bytes()))
}

fn truncate(digest: &digest::Digest) -> Hash {
    let mut out = Hash::default();
    out.iter_mut().zip(digest.as_ref()).for_each(|(out, byte)| *out = *byte);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity(name: &str) -> Identity {
        Identity::of_object(&json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": name}}))
    }

    #[test]
    fn null_is_missing_and_nothing_else_is() {
        let table = [
            (json!({"a": 1}), json!({"a": 1, "b": null}), true),
            (json!({"a": [{"b": null}]}), json!({"a": [{}]}), true),
            (json!({"a": {}}), json!({}), false),
            (json!({"a": []}), json!({}), false),
            (json!({"a": ""}), json!({}), false),
            (json!({"a": [1, 2]}), json!({"a": [2, 1]}), false),
            (json!({"a": 1}), json!({"a": 2}), false),
            (json!({"a": 1}), json!({"b": 1}), false),
        ];
        for (a, b, expected) in table {
            assert_eq!(same(&a, &b), expected, "{a} {b}");
            assert_eq!(same(&b, &a), expected, "{b} {a}");
        }
    }

    #[test]
    fn an_object_is_not_written_again_until_something_changes() {
        let settled = Settled::default();
        let live = json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": {"a": 1, "default": 2}});
        let merged = json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": {"a": 1}});
        assert!(!settled.is(&identity("x"), &live, &merged));
        assert!(settled.is(&identity("x"), &live, &live));
        settled.remember(&identity("x"), &live, &merged);
        let (mut later_live, mut later_merged) = (live.clone(), merged.clone());
        for object in [&mut later_live, &mut later_merged] {
            object["metadata"]["resourceVersion"] = json!("9");
            object["status"] = json!({"ready": true});
        }
        assert!(settled.is(&identity("x"), &later_live, &later_merged));
        assert!(!settled.is(&identity("y"), &live, &merged));
        let mut drifted = live.clone();
        drifted["spec"]["default"] = json!(3);
        assert!(!settled.is(&identity("x"), &drifted, &merged));
        let mut wanted = merged.clone();
        wanted["spec"]["a"] = json!(2);
        assert!(!settled.is(&identity("x"), &live, &wanted));
        let mut labelled = live.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert!(!settled.is(&identity("x"), &labelled, &merged));
    }

    #[test]
    fn the_memory_is_bounded() {
        let settled = Settled::default();
        for n in 0..limits::SETTLED_OBJECTS_MAX + 10 {
            settled.remember(&identity(&n.to_string()), &Value::Null, &Value::Null);
        }
        assert_eq!(settled.lock().len(), 10);
    }
}
