//! Splits the value of a Secret's key into the texts of its documents. A key that ends in `.br` holds a Brotli stream,
//! which is unpacked piece by piece. The number and size of the documents are checked before any text is parsed.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use serde::de::IgnoredAny;
use serde_json::Value;

use super::{memory, weight};
use crate::format::{brotli, yaml};
use crate::kube::value;
use crate::limits;

const BUFFER_BYTES: usize = 16 << 10;
/// The fields of an object that a plan needs.
const OUTLINE: [&[&str]; 3] = [&["apiVersion"], &["kind"], &["metadata"]];

/// One document that is not empty.
#[derive(Clone, Debug)]
pub(super) struct UnpackedDocument {
    text: String,
    is_json: bool,
    /// Lines above it in its key.
    lines_above: u64,
}

/// Why a document or a key cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// It is broken; others may be valid.
    Broken(String),
    /// It exceeds the applier's limits. Its content is unknown, so nothing is applied or deleted.
    TooLarge(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Broken(why) | Self::TooLarge(why)) = self;
        f.write_str(why)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Documents, the broken ones included.
    pub(super) documents: usize,
    /// Bytes of text, separators and comments included.
    pub(super) bytes: usize,
}

impl Room {
    /// The limits of one ManagedResource.
    pub(super) const ALL: Self = Self {
        documents: limits::MANAGED_RESOURCE_OBJECTS_MAX,
        bytes: limits::MANAGED_RESOURCE_TEXT_BYTES_MAX,
    };
}

/// The documents of one key, broken ones included. Errors: a broken Brotli stream, or an exceeded limit.
pub(super) fn documents(
    key: &str,
    bytes: &[u8],
    room: &mut Room,
) -> Result<Vec<Result<UnpackedDocument, Trouble>>, Trouble> {
    let mut pieces = Pieces { room, found: Vec::new(), lines: 0 };
    if !key.ends_with(".br") {
        pieces.read(&mut &*bytes)?;
    } else {
        pieces.read(&mut BufReader::with_capacity(BUFFER_BYTES, brotli::reader(bytes)))?;
    }
    Ok(pieces.found)
}

struct Pieces<'a> {
    room: &'a mut Room,
    found: Vec<Result<UnpackedDocument, Trouble>>,
    /// Lines above the current piece.
    lines: u64,
}

impl Pieces<'_> {
    fn read(&mut self, from: &mut dyn BufRead) -> Result<(), Trouble> {
        let (mut piece, mut lines) = (Vec::new(), 0);
        loop {
            let start = piece.len();
            if self.line(from, &mut piece)? == 0 {
                return self.add(&piece);
            }
            let is_separator = str::from_utf8(&piece[start..]).is_ok_and(yaml::is_separator);
            if is_separator && start > 0 {
                let next = piece.split_off(start);
                self.add(&piece)?;
                self.lines += std::mem::take(&mut lines);
                piece = next;
            }
            lines += 1;
        }
    }

    /// Appends the next line. Returns zero at the end.
    fn line(&mut self, from: &mut dyn BufRead, piece: &mut Vec<u8>) -> Result<usize, Trouble> {
        let document_max = limits::DOCUMENT_BYTES_MAX - piece.len();
        let most = u64::try_from(self.room.bytes.min(document_max)).unwrap_or(u64::MAX);
        let read = from.take(most + 1).read_until(b'\n', piece).map_err(|e| broken_stream(&e))?;
        if read > document_max {
            return Err(too_large("a document of", limits::DOCUMENT_BYTES_MAX, "bytes"));
        }
        self.room.bytes = self.room.bytes.checked_sub(read).ok_or_else(|| {
            too_large("manifests of", limits::MANAGED_RESOURCE_TEXT_BYTES_MAX, "bytes when unpacked")
        })?;
        Ok(read)
    }

    /// Adds one piece of a stream: one document of YAML, or several of JSON.
    fn add(&mut self, piece: &[u8]) -> Result<(), Trouble> {
        let Ok(text) = str::from_utf8(piece) else {
            return self.push(Err(Trouble::Broken("not UTF-8".to_owned())));
        };
        if text.trim_start_matches("---").trim().is_empty() {
            return Ok(());
        }
        if text.trim_start().starts_with('{') && self.add_json(text)? {
            return Ok(());
        }
        self.push(Ok(UnpackedDocument { text: text.to_owned(), is_json: false, lines_above: self.lines }))
    }

    /// Several JSON documents may follow each other without a separator, unlike in YAML. Returns false if the
    /// text is not JSON.
    fn add_json(&mut self, text: &str) -> Result<bool, Trouble> {
        let mut documents = serde_json::Deserializer::from_slice(text.as_bytes()).into_iter::<IgnoredAny>();
        let (mut ends, mut nodes_max) = (vec![0], 0);
        while let Some(document) = documents.next() {
            if document.is_err() {
                return Ok(false);
            }
            let (start, end) = (ends.last().copied().unwrap_or(0), documents.byte_offset());
            nodes_max = nodes_max.max(value::count(&text[start..end]));
            ends.push(end);
            if ends.len() - 1 > self.room.documents {
                return Err(too_many());
            }
        }
        if nodes_max > limits::DOCUMENT_NODES_MAX {
            return Err(too_many_values());
        }
        let mut start = 0;
        for end in ends.into_iter().skip(1) {
            let one = text[start..end].trim_start().to_owned();
            self.push(Ok(UnpackedDocument { text: one, is_json: true, lines_above: self.lines }))?;
            start = end;
        }
        Ok(true)
    }

    fn push(&mut self, document: Result<UnpackedDocument, Trouble>) -> Result<(), Trouble> {
        self.room.documents = self.room.documents.checked_sub(1).ok_or_else(too_many)?;
        self.found.push(document);
        Ok(())
    }
}

impl UnpackedDocument {
    /// The parsed document; `Null` if it contains only comments.
    pub(super) fn value(&self) -> Result<Value, Trouble> {
        if self.is_json {
            let read = value::read_within(self.text.as_bytes(), limits::DOCUMENT_NODES_MAX);
            return read.map_err(|e| Trouble::Broken(e.to_string()));
        }
        yaml::parse_within(&self.text, limits::DOCUMENT_NODES_MAX).map_err(|error| match error.is_limit() {
            true => too_many_values(),
            false => Trouble::Broken(error.below(self.lines_above).to_string()),
        })
    }

    /// The fields that a plan needs, if `hold` reserves the memory for it, and the memory of the whole value.
    pub(super) fn outline<E>(
        &self,
        hold: &mut dyn FnMut(usize) -> Result<(), E>,
    ) -> Result<Result<(Value, usize), Trouble>, E> {
        if !self.is_json {
            hold(memory::of_text(&self.text))?;
            return Ok(self.value().map(|value| {
                let bytes = memory::of(&value);
                (value, bytes)
            }));
        }
        let text = self.text.as_bytes();
        let broken = |e: serde_json::Error| Trouble::Broken(e.to_string());
        let bytes = match weight::of_json(text) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Err(broken(error))),
        };
        hold(bytes)?;
        Ok(value::read_parts(text, &OUTLINE).map(|outline| (outline, bytes)).map_err(broken))
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn broken_stream(error: &io::Error) -> Trouble {
    Trouble::Broken(format!("broken brotli stream: {error}"))
}

fn too_large(what: &str, max: usize, unit: &str) -> Trouble {
    Trouble::TooLarge(format!("{what} more than {max} {unit}"))
}

fn too_many() -> Trouble {
    too_large("it has", limits::MANAGED_RESOURCE_OBJECTS_MAX, "documents")
}

fn too_many_values() -> Trouble {
    let depth = limits::NESTING_DEPTH_MAX;
    let values = limits::DOCUMENT_NODES_MAX;
    Trouble::TooLarge(format!(
        "a document with more than {values} values, or nested deeper than {depth} levels"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(key: &str, bytes: &[u8]) -> Result<Vec<Result<UnpackedDocument, Trouble>>, Trouble> {
        documents(key, bytes, &mut { Room::ALL })
    }

    #[test]
    fn limits_are_checked_before_anything_is_parsed() {
        let many = limits::MANAGED_RESOURCE_OBJECTS_MAX + 1;
        let deep = format!("a: {}1{}", "[".repeat(200), "]".repeat(200));
        let nested_anchors: String =
            (0..100).map(|n| format!("&a{n} [")).collect::<String>() + &"1,".repeat(3_000) + &"]".repeat(100);
        let text = "x".repeat(4_000);
        let table = [
            ("json", "k", b"{}".repeat(many), "it has more than 2000 documents"),
            ("yaml", "k", b"a: 1\n---\n".repeat(many), "it has more than 2000 documents"),
            ("broken", "k", b"a: [\n---\n".repeat(many), "it has more than 2000 documents"),
            (
                "text",
                "k",
                vec![b' '; limits::DOCUMENT_BYTES_MAX + 1],
                "a document of more than 3145728 bytes",
            ),
            (
                "nothing",
                "k",
                b"---\n".repeat(limits::MANAGED_RESOURCE_TEXT_BYTES_MAX / 4 + 1),
                "manifests of more than 8388608 bytes when unpacked",
            ),
            ("list", "k", format!("{{\"a\":[{}0]}}", "0,".repeat(60_000)).into_bytes(), "60000 values"),
            ("yaml list", "k", format!("[{}0]", "a,".repeat(60_000)).into_bytes(), "60000 values"),
            ("depth", "k", deep.into_bytes(), "nested deeper than 128 levels"),
            (
                "aliases",
                "k",
                format!("a: &a [{}]\nb: [{}]", "1,".repeat(900), "*a,".repeat(900)).into_bytes(),
                "60000",
            ),
            (
                "aliases of a long text",
                "k",
                format!("a: &a {text}\nb: [{}]", "*a,".repeat(9_000)).into_bytes(),
                "60000",
            ),
            ("anchors", "k", nested_anchors.into_bytes(), "60000 values"),
        ];
        for (name, key, bytes, expected) in table {
            let found = all(key, &bytes)
                .and_then(|found| found.into_iter().try_for_each(|document| document?.value().map(drop)));
            let Err(Trouble::TooLarge(why)) = found else { panic!("{name}: {found:?}") };
            assert!(why.contains(expected), "{name}: {why}");
            let packed = brotli::encode(&bytes);
            let found = all("k.br", &packed)
                .and_then(|found| found.into_iter().try_for_each(|document| document?.value().map(drop)));
            assert_eq!(found, Err(Trouble::TooLarge(why)), "{name}, packed");
        }
    }

    #[test]
    fn only_the_outline_of_json_is_parsed() {
        let text = r#"{"apiVersion":"v1","kind":"K","metadata":{"name":"n"},"spec":{"a":[{"b":1}]}}"#;
        let document = all("k", text.as_bytes()).unwrap().remove(0).unwrap();
        let mut held = Vec::new();
        let outline = document.outline(&mut |bytes| {
            held.push(bytes);
            Ok::<_, ()>(())
        });
        let (object, bytes) = outline.unwrap().unwrap();
        let expected = serde_json::json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}});
        assert_eq!((object, held), (expected, vec![memory::of(&document.value().unwrap())]));
        assert_eq!(bytes, memory::of(&document.value().unwrap()));
        assert_eq!(document.outline(&mut |_| Err("no memory")), Err("no memory"));
    }

    #[test]
    fn a_key_leaves_its_unused_limits_to_the_next() {
        let mut room = Room { documents: 3, bytes: 20 };
        assert_eq!(documents("a", b"{}{}", &mut room).unwrap().len(), 2);
        assert_eq!((room.documents, room.bytes), (1, 16));
        assert!(documents("b", b"{}{}", &mut room).is_err());
    }

    #[test]
    fn lines_of_errors_count_from_the_top_of_the_key() {
        let found = all("k", b"a: 1\n---\nb: 2\n---\nc: [\n").unwrap();
        let Err(Trouble::Broken(why)) = found[2].clone().unwrap().value() else { panic!() };
        assert!(why.starts_with("line 6") || why.starts_with("line 5"), "{why}");
    }
}
