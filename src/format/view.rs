//! Typed views of JSON values, as Go reads JSON: a `null` counts as an absent field, a list is not an object, and
//! unknown fields are ignored.
//!
//! Each way to read a type adds kilobytes to the program. So there is one way, for owned and for borrowed values, and one to
//! read JSON.

use std::borrow::Cow;

use serde::de::value::CowStrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer as _, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value, map};

/// Reads a view from a value, and moves its texts. Errors: if the value has another shape.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    T::deserialize(ValueView::Own(value))
}

/// Reads a view from a borrowed value. Errors: if the value has another shape.
pub(crate) fn look<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    T::deserialize(ValueView::Lent(value))
}

/// Reads a view from a text. Errors: if the text is not JSON, or has another shape.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    json(text).and_then(read)
}

/// Reads JSON. Errors: if the text is something else.
pub(crate) fn json(text: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(text)
}

enum ValueView<'v> {
    Own(Value),
    Lent(&'v Value),
}

impl ValueView<'_> {
    fn value(&self) -> &Value {
        match self {
            Self::Own(value) => value,
            Self::Lent(value) => value,
        }
    }

    /// The value has another type than expected. The error names its type only: the value may be a secret.
    fn refused(&self, expected: &dyn Expected) -> Error {
        let found = match self.value() {
            Value::Null => Unexpected::Unit,
            Value::Bool(_) => Unexpected::Other("boolean"),
            Value::Number(_) => Unexpected::Other("number"),
            Value::String(_) => Unexpected::Other("string"),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        Error::invalid_type(found, expected)
    }
}

impl<'v> ValueView<'v> {
    fn entries(self, expected: &dyn Expected, has_nulls: bool) -> Result<Entries<'v>, Error> {
        let left = match self {
            Self::Own(Value::Object(map)) => RemainingEntries::Own(map.into_iter()),
            Self::Lent(Value::Object(map)) => RemainingEntries::Lent(map.iter()),
            other => return Err(other.refused(expected)),
        };
        Ok(Entries { left, value: None, has_nulls })
    }

    fn items(self, expected: &dyn Expected) -> Result<Items<'v>, Error> {
        match self {
            Self::Own(Value::Array(list)) => Ok(Items::Own(list.into_iter())),
            Self::Lent(Value::Array(list)) => Ok(Items::Lent(list.iter())),
            other => Err(other.refused(expected)),
        }
    }
}

macro_rules! numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.value() {
                Value::Number(number) => number.$method(visitor),
                _ => Err(self.refused(&visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for ValueView<'_> {
    type Error = Error;

    /// A value without a type keeps its nulls.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Own(value) => value.deserialize_any(visitor),
            Self::Lent(value) => value.clone().deserialize_any(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value() {
            Value::Bool(bool) => visitor.visit_bool(*bool),
            _ => Err(self.refused(&visitor)),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Own(Value::String(text)) => visitor.visit_string(text),
            Self::Lent(Value::String(text)) => visitor.visit_str(text),
            other => Err(other.refused(&visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value().is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let items = self.items(&visitor)?;
        visitor.visit_seq(items)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let entries = self.entries(&visitor, true)?;
        visitor.visit_map(entries)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let entries = self.entries(&visitor, false)?;
        visitor.visit_map(entries)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let read = match self {
            Self::Own(value) => value.deserialize_enum(name, variants, visitor),
            Self::Lent(value) => value.clone().deserialize_enum(name, variants, visitor),
        };
        read.map_err(|_| Error::custom(format_args!("expected one of: {}", variants.join(", "))))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { bytes byte_buf char unit unit_struct tuple tuple_struct identifier }
}

enum Items<'v> {
    Own(std::vec::IntoIter<Value>),
    Lent(std::slice::Iter<'v, Value>),
}

impl<'v> Items<'v> {
    fn next(&mut self) -> Option<ValueView<'v>> {
        match self {
            Self::Own(left) => left.next().map(ValueView::Own),
            Self::Lent(left) => left.next().map(ValueView::Lent),
        }
    }
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.next().map(|item| seed.deserialize(item)).transpose()
    }
}

enum RemainingEntries<'v> {
    Own(map::IntoIter),
    Lent(map::Iter<'v>),
}

struct Entries<'v> {
    left: RemainingEntries<'v>,
    /// The value of the key that was returned last.
    value: Option<ValueView<'v>>,
    /// Whether entries that are null are returned.
    has_nulls: bool,
}

impl<'v> Entries<'v> {
    fn next(&mut self) -> Option<Cow<'v, str>> {
        loop {
            let (key, value) = match &mut self.left {
                RemainingEntries::Own(left) => {
                    left.next().map(|(key, value)| (Cow::Owned(key), ValueView::Own(value)))?
                }
                RemainingEntries::Lent(left) => {
                    left.next().map(|(key, value)| (Cow::Borrowed(key.as_str()), ValueView::Lent(value)))?
                }
            };
            if self.has_nulls || !value.value().is_null() {
                self.value = Some(value);
                return Some(key);
            }
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let key = |key: Cow<'_, str>| {
            let key: CowStrDeserializer<'_, Error> = key.into_deserializer();
            seed.deserialize(key)
        };
        self.next().map(key).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.value.take().unwrap_or(ValueView::Own(Value::Null)))
    }
}

#[cfg(test)]
mod tests {
    use crate::base::sorted::SortedMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, Default, PartialEq, Debug)]
    #[serde(rename_all = "camelCase", default)]
    struct Whole {
        text: String,
        flag: bool,
        number: i64,
        small: u16,
        list: Vec<TestPart>,
        map: SortedMap<String, TestPart>,
        kind: Kind,
        maybe: Option<TestPart>,
        any: Value,
    }

    #[derive(Deserialize, PartialEq, Debug)]
    struct TestPart {
        name: String,
    }

    #[derive(Deserialize, Default, PartialEq, Debug)]
    enum Kind {
        #[default]
        One,
        Two,
    }

    #[test]
    fn values_are_read_alike_whether_lent_or_given() {
        let part = || TestPart { name: "n".to_owned() };
        let value = json!({"text": "t", "flag": true, "number": -7, "small": 65_535, "list": [{"name": "n", "else": [1]}],
            "map": {"a": {"name": "n"}}, "kind": "Two", "maybe": {"name": "n"}, "any": {"a": [null], "b": null}, "else": 1});
        let expected = Whole {
            text: "t".to_owned(),
            flag: true,
            number: -7,
            small: u16::MAX,
            list: vec![part()],
            map: SortedMap::from([("a".to_owned(), part())]),
            kind: Kind::Two,
            maybe: Some(part()),
            any: json!({"a": [null], "b": null}),
        };
        assert_eq!(look::<Whole>(&value).unwrap(), expected);
        assert_eq!(parse::<Whole>(value.to_string().as_bytes()).unwrap(), expected);
        assert_eq!(read::<Whole>(value.clone()).unwrap(), expected);
        assert_eq!(read::<Value>(value.clone()).unwrap(), value);
    }

    #[test]
    fn a_null_is_a_field_that_is_absent() {
        let value = json!({"text": null, "flag": null, "number": null, "small": null, "list": null, "map": null, "kind": null,
            "maybe": null, "any": null});
        assert_eq!(look::<Whole>(&value).unwrap(), Whole::default());
        assert_eq!(read::<Whole>(value).unwrap(), Whole::default());
        let missing = look::<TestPart>(&json!({"name": null})).unwrap_err().to_string();
        assert_eq!(missing, "missing field `name`");
    }

    #[test]
    fn another_shape_is_refused() {
        let table = [
            (json!([]), "invalid type: sequence, expected struct Whole"),
            (json!({"text": 1}), "invalid type: number, expected a string"),
            (json!({"flag": "x"}), "invalid type: string, expected a boolean"),
            (json!({"number": {}}), "invalid type: map, expected i64"),
            (json!({"number": 1.5}), "invalid type: floating point `1.5`, expected i64"),
            (json!({"small": 65_536}), "invalid value: integer `65536`, expected u16"),
            (json!({"list": {}}), "invalid type: map, expected a sequence"),
            (json!({"map": true}), "invalid type: boolean, expected a map"),
            (json!({"kind": "Three"}), "expected one of: One, Two"),
        ];
        for (value, expected) in table {
            assert_eq!(look::<Whole>(&value).unwrap_err().to_string(), expected);
            assert_eq!(read::<Whole>(value).unwrap_err().to_string(), expected);
        }
        assert!(parse::<Whole>(b"{} x").is_err_and(|error| error.is_syntax()));
    }
}
