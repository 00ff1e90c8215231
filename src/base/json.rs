//! JSON values in the notation of JSON. `serde_json::json` does the same with three times as much code at each place, which is
//! more than a hundred kilobytes in all.

use serde::Serialize;
use serde_json::{Map, Value};

/// The value of an expression. Nothing that the program writes can fail: keys of maps are texts.
#[inline(never)]
pub(crate) fn value<T: Serialize + ?Sized>(of: &T) -> Value {
    let value = serde_json::to_value(of);
    debug_assert!(value.is_ok(), "{value:?}");
    value.unwrap_or_default()
}

#[inline(never)]
pub(crate) fn put(map: &mut Map<String, Value>, key: &str, value: Value) {
    map.insert(key.to_owned(), value);
}

/// A value: `json!({"a": [1, text, null], NAME: {}, (key): true})`.
macro_rules! json {
    (null) => { serde_json::Value::Null };
    ([ $($items:tt)* ]) => { serde_json::Value::Array($crate::base::json::json_items!([] $($items)*)) };
    ({}) => { serde_json::Value::Object(serde_json::Map::new()) };
    ({ $($entries:tt)* }) => {{
        let mut map = serde_json::Map::new();
        $crate::base::json::json_entries!(map $($entries)*);
        serde_json::Value::Object(map)
    }};
    ($other:expr) => { $crate::base::json::value(&$other) };
}

/// The items behind those that are done.
macro_rules! json_items {
    ([$($done:expr,)*]) => { vec![$($done),*] };
    ([$($done:expr,)*] null $(, $($rest:tt)*)?) => {
        $crate::base::json::json_items!([$($done,)* serde_json::Value::Null,] $($($rest)*)?)
    };
    ([$($done:expr,)*] [$($inner:tt)*] $(, $($rest:tt)*)?) => {
        $crate::base::json::json_items!([$($done,)* $crate::base::json::json!([$($inner)*]),] $($($rest)*)?)
    };
    ([$($done:expr,)*] {$($inner:tt)*} $(, $($rest:tt)*)?) => {
        $crate::base::json::json_items!([$($done,)* $crate::base::json::json!({$($inner)*}),] $($($rest)*)?)
    };
    ([$($done:expr,)*] $next:expr $(, $($rest:tt)*)?) => {
        $crate::base::json::json_items!([$($done,)* $crate::base::json::value(&$next),] $($($rest)*)?)
    };
}

/// Adds entries to a map: first its key, then its value.
macro_rules! json_entries {
    ($map:ident) => {};
    ($map:ident $key:literal : $($rest:tt)*) => { $crate::base::json::json_entries!(@ $map ($key) $($rest)*) };
    ($map:ident ($key:expr) : $($rest:tt)*) => { $crate::base::json::json_entries!(@ $map ($key) $($rest)*) };
    ($map:ident $key:path : $($rest:tt)*) => { $crate::base::json::json_entries!(@ $map ($key) $($rest)*) };
    (@ $map:ident ($key:expr) null $(, $($rest:tt)*)?) => {
        $crate::base::json::put(&mut $map, AsRef::<str>::as_ref(&$key), serde_json::Value::Null);
        $crate::base::json::json_entries!($map $($($rest)*)?);
    };
    (@ $map:ident ($key:expr) [$($inner:tt)*] $(, $($rest:tt)*)?) => {
        $crate::base::json::put(&mut $map, AsRef::<str>::as_ref(&$key), $crate::base::json::json!([$($inner)*]));
        $crate::base::json::json_entries!($map $($($rest)*)?);
    };
    (@ $map:ident ($key:expr) {$($inner:tt)*} $(, $($rest:tt)*)?) => {
        $crate::base::json::put(&mut $map, AsRef::<str>::as_ref(&$key), $crate::base::json::json!({$($inner)*}));
        $crate::base::json::json_entries!($map $($($rest)*)?);
    };
    (@ $map:ident ($key:expr) $value:expr $(, $($rest:tt)*)?) => {
        $crate::base::json::put(&mut $map, AsRef::<str>::as_ref(&$key), $crate::base::json::value(&$value));
        $crate::base::json::json_entries!($map $($($rest)*)?);
    };
}

pub(crate) use {json, json_entries, json_items};

#[cfg(test)]
mod tests {
    const NAME: &str = "name";

    mod inner {
        pub(super) const OTHER: &str = "other";
    }

    #[test]
    fn values_are_those_of_serde_json() {
        let (text, number, key, list) =
            ("x".to_owned(), 7_u16, "of a variable".to_owned(), vec![Some("a"), None]);
        assert_eq!(json!(null), serde_json::json!(null));
        assert_eq!(json!(text), serde_json::json!("x"));
        assert_eq!(json!([]), serde_json::json!([]));
        assert_eq!(json!({}), serde_json::json!({}));
        assert_eq!(json!([1, null, [text], {}, -1.5,]), serde_json::json!([1, null, ["x"], {}, -1.5]));
        let found = json!({
            "a": null, "b": [], "c": {"d": [number + 1, true]}, NAME: &text, inner::OTHER: list, key: text.len(),
            (format!("{text}!")): if number == 7 { "seven" } else { "" },
        });
        let expected = serde_json::json!({
            "a": null, "b": [], "c": {"d": [8, true]}, "name": "x", "other": ["a", null], "of a variable": 1, "x!": "seven",
        });
        assert_eq!(found, expected);
        let bytes = json!([0_u8, u64::MAX, i64::MIN]);
        assert_eq!(bytes.to_string(), "[0,18446744073709551615,-9223372036854775808]");
    }
}
