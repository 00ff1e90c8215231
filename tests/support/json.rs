//! Short ways into JSON objects. Paths are JSON pointers.

use serde_json::{Map, Value};

/// The value at the path. [`Value::pointer`] allocates memory for each part of a path, and the stand-ins read paths all
/// the time.
fn at<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return value.pointer(pointer);
    }
    pointer.split('/').skip(1).try_fold(value, |at, part| match at {
        Value::Object(map) => map.get(part),
        Value::Array(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
        _ => None,
    })
}

/// The text at the path; empty if there is none.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    at(value, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at the path; empty if there is none.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    at(value, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The elements of the list at the path, to be changed.
pub fn elements<'a>(value: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    value.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The text of a key of the map at the path: for labels, whose keys hold slashes.
pub fn entry<'a>(value: &'a Value, pointer: &str, key: &str) -> Option<&'a str> {
    value.pointer(pointer)?.get(key)?.as_str()
}

/// The map at the path, made on the way if it is missing.
pub fn map<'a>(value: &'a mut Value, pointer: &str) -> &'a mut Map<String, Value> {
    let mut at = value;
    for part in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = at.as_object_mut().unwrap().entry(part).or_insert(Value::Null);
    }
    if !at.is_object() {
        *at = Value::Object(Map::new());
    }
    at.as_object_mut().unwrap()
}

/// Sets the value at the path, making the maps on the way.
pub fn set(value: &mut Value, pointer: &str, new: impl Into<Value>) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    map(value, parent).insert(key.to_owned(), new.into());
}

/// Sets the value at the path if there is none.
pub fn default(value: &mut Value, pointer: &str, new: impl Into<Value>) {
    if value.pointer(pointer).is_none_or(Value::is_null) {
        set(value, pointer, new);
    }
}

/// Removes and returns the value at the path.
pub fn remove(value: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent)?.as_object_mut()?.remove(key)
}

/// Makes the value at the path of `to` the one of `from`, absence included.
pub fn copy(from: &Value, to: &mut Value, pointer: &str) {
    match from.pointer(pointer) {
        Some(value) => set(to, pointer, value.clone()),
        None => drop(remove(to, pointer)),
    }
}
