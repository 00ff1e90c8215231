//! Reading and changing objects whose kind is not known at compile time.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

use super::names;
use crate::api::meta::{Key, annotation};
use crate::base::sorted::SortedMap;

pub(super) use crate::api::meta::text;

/// The group of an `apiVersion`: empty for `v1`.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// A map of texts, such as labels and annotations. Values of other types are omitted.
pub(super) fn texts(value: &Value) -> SortedMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}

/// The labels in `metadata.labels`.
pub(super) fn labels(object: &Value) -> SortedMap<String, String> {
    texts(&object["metadata"]["labels"])
}

/// The annotations in `metadata.annotations`.
pub(super) fn annotations(object: &Value) -> SortedMap<String, String> {
    texts(&object["metadata"]["annotations"])
}

/// Whether a value is empty: absent, `null`, or an empty text, list or map.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(s) => s.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The map at a path. Missing maps are created. Values of other types are replaced, because the API has maps there.
pub(super) fn map_at<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let map = as_map(value);
    match path {
        [] => map,
        [first, rest @ ..] => map_at(map.entry(*first).or_insert(Value::Null), rest),
    }
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => {
            *other = Value::Object(Map::new());
            as_map(other)
        }
    }
}

/// Sets a key of the map at a path; `None` or an empty value removes it.
pub(super) fn set(value: &mut Value, path: &[&str], key: &str, new: Value) {
    if !is_empty(&new) {
        map_at(value, path).insert(key.to_owned(), new);
    } else if let Some(map) = find_map(value, path) {
        map.remove(key);
    }
}

/// The map at a path, if it exists.
pub(super) fn find_map<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    path.iter().try_fold(value, |value, key| value.get_mut(*key))?.as_object_mut()
}

/// Labels or annotations as a value.
pub(super) fn from_texts(map: SortedMap<String, String>) -> Value {
    Value::Object(map.into_iter().map(|(k, v)| (k, Value::String(v))).collect())
}

/// A kind as a key: its API version and its name.
pub(super) fn kind_key(api_version: &str, kind: &str) -> Key {
    Key::new(api_version, kind)
}

/// A hash that is the same while the program runs.
pub(super) fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Whether an object asks not to be checked.
pub(super) fn skips_checks(live: &Value) -> bool {
    annotation(live, names::SKIP_HEALTH_CHECK) == "true"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::meta::is_true;

    #[test]
    fn groups() {
        for (api_version, group) in [("v1", ""), ("apps/v1", "apps"), ("a.b.c/v1alpha1", "a.b.c"), ("", "")] {
            assert_eq!(group_of(api_version), group);
        }
    }

    #[test]
    fn truth_is_gos() {
        for (text, expected) in
            [("true", true), ("1", true), ("T", true), ("yes", false), ("tRUE", false), ("", false)]
        {
            assert_eq!(is_true(text), expected, "{text}");
        }
    }

    #[test]
    fn missing_maps_are_created() {
        let mut value = json!({"a": "text"});
        map_at(&mut value, &["a", "b"]).insert("c".into(), json!(1));
        assert_eq!(value, json!({"a": {"b": {"c": 1}}}));
        set(&mut value, &["a", "b"], "c", Value::Null);
        set(&mut value, &["x", "y"], "z", json!({}));
        assert_eq!(value, json!({"a": {"b": {}}}));
    }

    #[test]
    fn invalid_labels_are_omitted() {
        let object = json!({"metadata": {"labels": {"a": "b", "n": 1, "z": null}}});
        assert_eq!(labels(&object), SortedMap::from([("a".to_owned(), "b".to_owned())]));
        assert!(annotations(&json!("text")).is_empty());
    }
}
