//! Lists that are decoded while they arrive: the agent holds one object at a time, never a page.

use std::fmt;
use std::io::{self, Read};

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::request::ListMeta;
use super::value::Streamed;
use crate::api::meta::Resource;
use crate::net;

/// Takes one object of a list.
type Each<'a> = &'a mut dyn FnMut(Streamed);

/// Reads one page from `reader` and passes on its objects. Objects of built-in kinds get the `apiVersion` and `kind`
/// that the server omits in lists.
pub(super) fn read_page(
    reader: &mut dyn Read,
    resource: &Resource,
    each: Each<'_>,
) -> Result<ListMeta, serde_json::Error> {
    let api_version = resource.api_version();
    let mut complete = |object: Streamed| {
        each(object.map(|object| {
            if let Value::Object(map) = object {
                map.entry("apiVersion").or_insert_with(|| Value::from(api_version.as_str()));
                map.entry("kind").or_insert_with(|| Value::from(resource.kind.as_ref()));
            }
        }));
    };
    let mut json = serde_json::Deserializer::from_reader(io::BufReader::with_capacity(16 << 10, reader));
    let meta = Page(&mut complete).deserialize(&mut json)?;
    json.end()?;
    Ok(meta)
}

struct Page<'a>(Each<'a>);

impl<'de> DeserializeSeed<'de> for Page<'_> {
    type Value = ListMeta;

    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<ListMeta, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Page<'_> {
    type Value = ListMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ListMeta, A::Error> {
        let (mut meta, mut has_items) = (None, false);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => meta = map.next_value()?,
                "items" => {
                    map.next_value_seed(Items(&mut *self.0))?;
                    has_items = true;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        // A response without items, such as a Status, must not count as an empty list.
        if has_items { Ok(meta.unwrap_or_default()) } else { Err(serde::de::Error::missing_field("items")) }
    }
}

struct Items<'a>(Each<'a>);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the objects of a list")
    }

    /// Go writes an empty list as `null`.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(object) = seq.next_element::<Streamed>()? {
            (self.0)(object);
        }
        Ok(())
    }
}

/// A reader with a size limit.
pub(super) struct Capped<R> {
    inner: R,
    left: usize,
    bytes_max: usize,
}

impl<R> Capped<R> {
    pub(super) const fn new(inner: R, bytes_max: usize) -> Self {
        Self { inner, left: bytes_max, bytes_max }
    }
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let amount = self.inner.read(buffer)?;
        match self.left.checked_sub(amount) {
            Some(left) => {
                self.left = left;
                Ok(amount)
            }
            None => Err(io::Error::other(net::Error::TooLarge {
                what: "page of a list",
                bytes_max: self.bytes_max,
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::core::SECRET;

    fn read(text: &str) -> Result<(Vec<Value>, ListMeta), String> {
        let mut objects = Vec::new();
        read_page(&mut text.as_bytes(), &SECRET, &mut |object| objects.push(object.whole().unwrap()))
            .map(|meta| (objects, meta))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_page_yields_its_objects_and_its_metadata() {
        let text = r#"{"kind":"SecretList","items":[{"metadata":{"name":"a","managedFields":[1]}},{"kind":"Own"}],
            "metadata":{"resourceVersion":"7","continue":"next","remainingItemCount":3}}"#;
        let (objects, meta) = read(text).unwrap();
        assert_eq!(objects[0].to_string(), r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#);
        assert_eq!(objects[1]["kind"], "Own");
        assert_eq!((meta.resource_version.as_str(), meta.continue_token.as_str()), ("7", "next"));
        assert_eq!(read(r#"{"items":null,"metadata":null}"#).unwrap(), (vec![], ListMeta::default()));
    }

    #[test]
    fn half_a_page_and_other_documents_are_errors() {
        for text in ["", "{", r#"{"items":[{}"#, r#"{"kind":"Status"}"#, "<html>", "[]", r#"{"items":{}}"#] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_page_beyond_the_limit_is_refused() {
        let text = r#"{"items":[{},{},{},{}],"metadata":{}}"#;
        let mut capped = Capped::new(text.as_bytes(), 20);
        let error = read_page(&mut capped, &SECRET, &mut drop).unwrap_err();
        let error = net::Error::from_io("", io::Error::from(error));
        assert!(matches!(error, net::Error::TooLarge { bytes_max: 20, .. }), "{error}");
    }
}
