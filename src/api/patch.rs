//! JSON merge patches (RFC 7386), for objects that have other writers.

use serde_json::{Map, Value};

/// The patch that turns `old` into `new`; `None` if they are equal. A null in `new` means an absent field.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in from {
        if !value.is_null() && to.get(key).is_none_or(Value::is_null) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    for (key, value) in to.iter().filter(|(_, value)| !value.is_null()) {
        let change = from.get(key).map_or_else(|| Some(value.clone()), |before| difference(before, value));
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_holds_what_differs() {
        let table = [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1}), json!({"a": 2}), Some(json!({"a": 2}))),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), Some(json!({"b": null}))),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1, "c": 3}}), Some(json!({"a": {"c": 3}}))),
            (json!({"a": [1]}), json!({"a": [1, 2]}), Some(json!({"a": [1, 2]}))),
            (json!({"a": 1}), json!({"a": null}), Some(json!({"a": null}))),
            (json!({}), json!({"a": null}), None),
        ];
        for (old, new, expected) in table {
            assert_eq!(difference(&old, &new), expected, "{old} -> {new}");
        }
    }
}
