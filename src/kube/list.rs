//! Lists that are decoded while they arrive: the agent holds one object at a time, never a page.

use std::io::Read;

use serde_json::Value;

use super::bounds::{Busy, Claims, HeldPermit};
use super::request::ListMeta;
use super::split::{Broken, Sink, Splitter};
use super::value::StreamedObject;
use crate::api::meta::Resource;
use crate::format::view;
use crate::net;

const CHUNK_BYTES: usize = 16 << 10;

/// Takes one object of a list, and the length of its text.
pub(super) type Each<'a> = &'a mut dyn FnMut(StreamedObject, &[u8]) -> Result<(), net::Error>;

/// Why a page cannot be read.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The connection broke, or a limit is exceeded.
    Net(net::Error),
    /// The text is not a list.
    Text(String),
    /// There is no memory for a long object now.
    Busy,
}

impl From<Busy> for Trouble {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl From<serde_json::Error> for Trouble {
    fn from(error: serde_json::Error) -> Self {
        Self::Text(error.to_string())
    }
}

/// Reads one page of at most `bytes_max` from `reader`, and passes on its objects; returns the length of the page. Objects of
/// built-in kinds get the `apiVersion` and `kind` that the server omits in lists.
pub(super) fn read_page(
    reader: &mut dyn Read,
    bytes_max: usize,
    resource: &Resource,
    claims: &Claims,
    each: Each<'_>,
) -> Result<(ListMeta, usize), Trouble> {
    let api_version = resource.api_version();
    let mut items = Items { api_version: &api_version, kind: &resource.kind, claims, held: None, each };
    let mut splitter = Splitter::new(claims.bounds.object_bytes_max);
    let (mut chunk, mut bytes) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let amount = match reader.read(&mut chunk) {
            Ok(0) => break,
            Ok(amount) => amount,
            Err(error) => return Err(Trouble::Net(net::Error::from_io("read a page", error))),
        };
        bytes += amount;
        if bytes > bytes_max {
            return Err(Trouble::Net(net::Error::TooLarge { what: "page of a list", bytes_max }));
        }
        splitter.feed(&chunk[..amount], &mut items).map_err(|broken| match broken {
            Broken::Sink(trouble) => trouble,
            Broken::Text(why) => Trouble::Text(why.to_owned()),
        })?;
    }
    let rest = splitter.finish().map_err(|why| Trouble::Text(why.to_owned()))?;
    let mut page = view::json(&rest)?;
    match page.get("items") {
        // Go writes an empty list as `null`.
        Some(Value::Null) => {}
        Some(Value::Array(items)) if items.is_empty() => {}
        // A response without items, such as a Status, must not count as an empty list.
        _ => return Err(Trouble::Text("its items are not a list of objects".to_owned())),
    }
    let metadata = view::read::<Option<ListMeta>>(page["metadata"].take())?;
    Ok((metadata.unwrap_or_default(), bytes))
}

struct Items<'a> {
    api_version: &'a str,
    kind: &'a str,
    claims: &'a Claims,
    /// The permit for the present text.
    held: Option<HeldPermit>,
    each: Each<'a>,
}

impl Sink for Items<'_> {
    type Error = Trouble;

    fn lengthens(&mut self) -> Result<(), Trouble> {
        self.held = Some(self.claims.text()?);
        Ok(())
    }

    fn object(&mut self, text: &[u8]) -> Result<(), Trouble> {
        let held = self.claims.values(text)?;
        let object: StreamedObject = serde_json::from_slice(text)?;
        self.pass(object.with_permit(held), text)
    }

    fn skipped(&mut self, head: Option<&[u8]>) -> Result<(), Trouble> {
        let head = head.unwrap_or_default();
        let held = self.claims.values(head)?;
        self.pass(StreamedObject::too_long(head).with_permit(held), head)
    }
}

impl Items<'_> {
    fn pass(&mut self, object: StreamedObject, text: &[u8]) -> Result<(), Trouble> {
        let whole = object.map(|object| {
            if let Value::Object(map) = object {
                map.entry("apiVersion").or_insert_with(|| Value::from(self.api_version));
                map.entry("kind").or_insert_with(|| Value::from(self.kind));
            }
        });
        let passed = (self.each)(whole, text);
        self.held = None;
        passed.map_err(Trouble::Net)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::core::SECRET;
    use crate::base::stop::Stop;
    use crate::kube::bounds::Bounds;

    fn claims(object_bytes_max: usize) -> Claims {
        let bounds = Bounds { object_bytes_max, ..Bounds::default() };
        Claims { bounds, wait_max: Duration::ZERO, stop: Stop::new() }
    }

    fn read(text: &str) -> Result<(Vec<Value>, ListMeta), Trouble> {
        let mut objects = Vec::new();
        let each = &mut |object: StreamedObject, _: &[u8]| {
            objects.push(object.whole().unwrap());
            Ok(())
        };
        let (meta, bytes) = read_page(&mut text.as_bytes(), 1_000, &SECRET, &claims(1_000), each)?;
        assert_eq!(bytes, text.len());
        Ok((objects, meta))
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
        let texts = [
            "",
            "{",
            r#"{"items":[{}"#,
            r#"{"kind":"Status"}"#,
            "<html>",
            "[]",
            r#"{"items":{}}"#,
            r#"{"items":[{"a":}]}"#,
            r#"{"items":[{]]}"#,
            r#"{"items":[]} {}"#,
            // The key is `items`, but no JSON encoder writes it like that.
            r#"{"\u0069tems":[{}]}"#,
        ];
        for text in texts {
            assert!(matches!(read(text), Err(Trouble::Text(_))), "{text:?}");
        }
    }

    #[test]
    fn a_page_beyond_the_limit_is_refused() {
        let text = r#"{"items":[{},{},{},{}],"metadata":{}}"#;
        let each = &mut |_: StreamedObject, _: &[u8]| Ok(());
        let read = read_page(&mut text.as_bytes(), 20, &SECRET, &claims(1_000), each);
        assert!(matches!(read, Err(Trouble::Net(net::Error::TooLarge { bytes_max: 20, .. }))));
    }

    #[test]
    fn an_object_beyond_the_limit_is_known_and_not_decoded() {
        let long = "x".repeat(60);
        let text = format!(
            r#"{{"items":[{{"metadata":{{"name":"a"}}}},{{"metadata":{{"name":"b","namespace":"c","labels":{{"d":"{long}"}}}}}},
                {{"data":"{long}"}},{{"metadata":{{"name":"e"}}}}],"metadata":{{"resourceVersion":"7"}}}}"#
        );
        let mut seen = Vec::new();
        let each = &mut |object: StreamedObject, _: &[u8]| {
            let has_name = object.has_name();
            let decoded = object.decode::<Value>().map(|value| value["metadata"]["name"].clone());
            seen.push((has_name, decoded.map_err(|error| format!("{} {}", error.key, error.why))));
            Ok(())
        };
        let (meta, _) = read_page(&mut text.as_bytes(), 1_000, &SECRET, &claims(60), each).unwrap();
        assert_eq!(meta.resource_version, "7");
        let expected = [
            (true, Ok(Value::from("a"))),
            (true, Err("c/b the object is too long".to_owned())),
            (false, Err(" the object is too long".to_owned())),
            (true, Ok(Value::from("e"))),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_page_waits_for_no_memory_forever() {
        let mut claims = claims(10 << 20);
        claims.bounds.texts = crate::kube::bounds::Permits::new(1);
        let text = format!(r#"{{"items":[{{"a":"{}"}},{{}}]}}"#, "x".repeat(1 << 20));
        let read = || {
            let mut count = 0;
            let each = &mut |_: StreamedObject, _: &[u8]| {
                count += 1;
                Ok(())
            };
            read_page(&mut text.as_bytes(), 10 << 20, &SECRET, &claims, each).map(|_| count)
        };
        assert_eq!(read().unwrap(), 2);
        let held = claims.text().unwrap();
        assert!(matches!(read(), Err(Trouble::Busy)));
        drop(held);
        assert_eq!(read().unwrap(), 2);
    }
}
