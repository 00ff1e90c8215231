//! Objects out of JSON, as values. A value takes up to a hundred times the memory of its text, so their number is limited
//! while they are made; the bookkeeping of field managers, which nobody here reads, is left out.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads one object of at most so many values; keys count, too.
///
/// # Errors
/// Text that is no JSON, and an object of more values.
pub fn read_within(text: &[u8], nodes_max: usize) -> serde_json::Result<Value> {
    let left = Cell::new(nodes_max);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Node { left: &left, place: Place::Object }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Where a value stands, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Object,
    Metadata,
    Elsewhere,
}

impl Place {
    fn of(self, key: &str) -> Self {
        if self == Self::Object && key == "metadata" { Self::Metadata } else { Self::Elsewhere }
    }
}

#[derive(Clone, Copy)]
struct Node<'a> {
    left: &'a Cell<usize>,
    place: Place,
}

impl Node<'_> {
    fn count<E: serde::de::Error>(self) -> Result<(), E> {
        let left =
            self.left.get().checked_sub(1).ok_or_else(|| E::custom("the object has too many values"))?;
        self.left.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.count()?;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Node { place: Place::Elsewhere, ..self })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if self.place == Place::Metadata && key == "managedFields" {
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            self.count::<A::Error>()?;
            let value = entries.next_value_seed(Node { place: self.place.of(&key), ..self })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// How many values a JSON text has at most, keys included. Nothing is made, and nothing calls itself: the text may be nested
/// as deeply as it likes.
pub fn count(text: &str) -> usize {
    let (mut count, mut in_text, mut escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b',' | b':' | b'[' | b'{' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_those_of_json() {
        let text = r#"{"a":[1,-1,1.5,"x\n",null,true,{}],"b":{"managedFields":1},"metadata":{"managedFields":[{"a":1}],"name":"n"}}"#;
        let expected = json!({"a": [1, -1, 1.5, "x\n", null, true, {}], "b": {"managedFields": 1},
            "metadata": {"name": "n"}});
        assert_eq!(read_within(text.as_bytes(), usize::MAX).unwrap(), expected);
        assert!(read_within(b"{} x", usize::MAX).is_err());
        assert!(read_within(b"{", usize::MAX).is_err());
    }

    #[test]
    fn the_number_of_values_is_limited() {
        let text = br#"{"a":[1,{"b":2}]}"#;
        // The map, its key, the list, the number, the inner map, its key, its value.
        assert_eq!(count(str::from_utf8(text).unwrap()), 7);
        assert_eq!(count(r#"{"a,:[{\\\",":"x"}"#), 3);
        assert!(read_within(text, 7).is_ok());
        let error = read_within(text, 6).unwrap_err();
        assert!(
            error.is_data() && error.to_string().starts_with("the object has too many values"),
            "{error}"
        );
    }
}
