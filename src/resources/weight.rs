//! The approximate memory of the value of a JSON text, computed without creating the value: a text of a megabyte can
//! become values of a gigabyte. The text is parsed as strictly as for its value.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::memory::{ITEM_BYTES, KEY_BYTES, of_map};

/// The memory of the value of one object, without the bookkeeping of field managers, which
/// [`crate::kube::value`] omits. Errors: the text is not JSON.
pub(super) fn of_json(text: &[u8]) -> serde_json::Result<usize> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let bytes = Weight(WeighedPart::Object).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(bytes)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WeighedPart {
    Object,
    Metadata,
    Elsewhere,
}

struct Weight(WeighedPart);

impl<'de> DeserializeSeed<'de> for Weight {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<usize, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Weight {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_i64<E>(self, _: i64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_u64<E>(self, _: u64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_f64<E>(self, _: f64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_str<E>(self, text: &str) -> Result<usize, E> {
        Ok(text.len())
    }

    fn visit_unit<E>(self) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut bytes = 0;
        while let Some(item) = items.next_element_seed(Weight(WeighedPart::Elsewhere))? {
            bytes += ITEM_BYTES + item;
        }
        Ok(bytes)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<usize, A::Error> {
        let (mut count, mut bytes) = (0, 0);
        while let Some(key) = entries.next_key::<String>()? {
            let place = match (self.0, key.as_str()) {
                (WeighedPart::Metadata, "managedFields") => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
                (WeighedPart::Object, "metadata") => WeighedPart::Metadata,
                _ => WeighedPart::Elsewhere,
            };
            count += 1;
            bytes += KEY_BYTES + key.len() + entries.next_value_seed(Weight(place))?;
        }
        Ok(of_map(count) + bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::value;
    use crate::resources::memory;

    #[test]
    fn the_weight_is_that_of_the_value() {
        let many: serde_json::Map<_, _> = (0..40).map(|n| (format!("k{n}"), json!([n, "x"]))).collect();
        let table = [
            json!(null),
            json!("a\n\u{1F600}"),
            json!([1, -1, 1.5, true, {}, [], ""]),
            json!({"kind": "K", "metadata": {"name": "n", "labels": many}, "spec": many}),
            json!({"metadata": {"managedFields": many}, "spec": {"metadata": {"managedFields": many}}}),
        ];
        for value in table {
            let text = value.to_string();
            let made: Value = value::read_within(text.as_bytes(), usize::MAX).unwrap();
            assert_eq!(of_json(text.as_bytes()).unwrap(), memory::of(&made), "{text}");
        }
    }

    #[test]
    fn invalid_json_is_an_error() {
        for text in ["", "{", "{} x", "[1,]", r#"{"a":1e999}"#, r#"["\ud800"]"#, &"[".repeat(200)] {
            let made = value::read_within(text.as_bytes(), usize::MAX).unwrap_err();
            assert_eq!(of_json(text.as_bytes()).unwrap_err().to_string(), made.to_string(), "{text}");
        }
    }
}
