//! Turns tokens into values: the grammar, with anchors and merge keys.
//!
//! go-yaml parses a document to its end before it decodes it, so a syntax error wins over any other mistake before it.
//! The parser remembers the first mistake of another kind and continues.

use std::borrow::Cow;

use serde_json::Value;

use super::resolve::{self, ScalarText};
use super::scan::{Kind, Mark, Scanner, Token};
use super::{Error, Go, Repeated, Words};
use crate::base::sorted::SortedMap;
use crate::limits::{NESTING_DEPTH_MAX, YAML_ALIAS_NODES_MAX, YAML_ALIAS_NODES_PER_BYTE_MAX};

mod list;
mod map;

/// Nodes that even the smallest document may have.
const NODES_MIN: usize = 10_000;
/// This much text takes about as much memory as a node.
const TEXT_BYTES_PER_NODE: usize = 128;
/// go-yaml checks for forbidden characters in chunks of this many bytes.
const CHUNK_BYTES: usize = 512;

/// Parses the first document of a text.
pub(super) fn document(text: &str) -> Result<Value, Error> {
    read(text, None, usize::MAX).map(Option::unwrap_or_default)
}

/// Parses the first document of a text, if it has at most `nodes_max` nodes.
pub(super) fn within(text: &str, nodes_max: usize) -> Result<Value, Error> {
    read(text, None, nodes_max).map(Option::unwrap_or_default)
}

/// Parses the first document; of a map, only the values of some keys are kept.
pub(super) fn part(text: &str, keys: &[&str]) -> Result<Value, Error> {
    match read(text, Some(keys), usize::MAX)? {
        Some(value) => Ok(value),
        None => document(text),
    }
}

/// Parses the first document, and finds keys that occur twice in one map.
pub(super) fn noting_repeated(text: &str) -> Result<(Value, Vec<Repeated>), Error> {
    let value = document(text)?;
    let mut loader = Loader::new(text.trim_start_matches('\u{feff}'), None, usize::MAX);
    loader.lines = Some(Vec::new());
    // The first pass succeeded, so this one does as well, up to the end of the document.
    let _ = loader.document();
    Ok((value, loader.repeated))
}

/// `None`: only a part is wanted, but the document has an anchor, so the part cannot be separated.
fn read(text: &str, keys: Option<&[&str]>, nodes_max: usize) -> Result<Option<Value>, Error> {
    let text = text.trim_start_matches('\u{feff}');
    let Some(at) = Scanner::forbidden(text) else { return Loader::new(text, keys, nodes_max).document() };
    // If the text before the chunk with the forbidden character is a document, or is wrong, that result counts.
    let mut chunk = at / CHUNK_BYTES * CHUNK_BYTES;
    while !text.is_char_boundary(chunk) {
        chunk -= 1;
    }
    let mut loader = Loader::new(&text[..chunk], keys, nodes_max);
    let result = loader.document();
    if loader.scanner.position() + 4 <= chunk {
        return result;
    }
    let message = Cow::Borrowed("control characters are not allowed");
    Err(Error { message, go: Go::Decode, ..super::place(text, at) })
}

struct Loader<'a> {
    scanner: Scanner<'a>,
    /// Tag handles and their prefixes.
    tags: Vec<(&'a str, Cow<'a, str>)>,
    anchors: SortedMap<Cow<'a, str>, Anchor>,
    anchor_count: usize,
    /// Nodes created so far, including those of aliases.
    nodes: usize,
    /// Nodes of the copies that anchors keep.
    copies: usize,
    nodes_max: usize,
    /// The first mistake other than a syntax error.
    mistake: Option<Error>,
    /// The keys of the outermost map whose values are kept, or `key.inner` for maps below it; all if the list is empty.
    keys: Option<&'a [&'a str]>,
    /// The keys of the current value that are kept; all if the list is empty.
    inner: Vec<&'a str>,
    /// Whether the current value is kept.
    keep: bool,
    /// Only a part is wanted, but there is an anchor.
    gave_up: bool,
    /// The keys of the open maps with their lines, by depth; only if repeated keys are requested.
    lines: Option<Vec<SortedMap<String, usize>>>,
    repeated: Vec<Repeated>,
}

enum Anchor {
    /// Its node is not complete yet.
    Open(usize),
    Complete(Value, usize),
}

/// The nodes that a place allows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AllowedNodes {
    Block,
    /// The value of a key, which may be a list that is not indented.
    Entry,
    Brackets,
}

/// The properties before a node.
struct Properties<'a> {
    mark: Mark,
    anchor: Option<Cow<'a, str>>,
    tag: Option<String>,
}

enum Key {
    Text(String),
    Merge,
    Null(Mark),
    /// A tag that JSON cannot represent; the mistake is recorded.
    Wrong,
}

impl<'a> Loader<'a> {
    fn new(text: &'a str, keys: Option<&'a [&'a str]>, nodes_max: usize) -> Self {
        let with_aliases = text
            .len()
            .saturating_mul(YAML_ALIAS_NODES_PER_BYTE_MAX)
            .min(text.len().saturating_add(YAML_ALIAS_NODES_MAX))
            .max(NODES_MIN);
        Self {
            scanner: Scanner::new(text),
            tags: Vec::new(),
            anchors: SortedMap::new(),
            anchor_count: 0,
            nodes: 0,
            copies: 0,
            nodes_max: with_aliases.min(nodes_max),
            mistake: None,
            keys,
            inner: Vec::new(),
            keep: true,
            gave_up: false,
            lines: None,
            repeated: Vec::new(),
        }
    }

    fn document(&mut self) -> Result<Option<Value>, Error> {
        let value = match self.root() {
            _ if self.gave_up => return Ok(None),
            value => value?,
        };
        match self.mistake.take() {
            Some(mistake) => Err(mistake),
            None => Ok(Some(value)),
        }
    }

    fn root(&mut self) -> Result<Value, Error> {
        use Kind::{DocumentEnd, DocumentStart, StreamEnd, TagDirective, VersionDirective};
        let (kind, _) = self.scanner.peek()?;
        if kind == StreamEnd {
            return Ok(Value::Null);
        }
        let explicit = matches!(kind, VersionDirective | TagDirective | DocumentStart);
        self.directives()?;
        if explicit {
            let (kind, mark) = self.scanner.peek()?;
            if kind != DocumentStart {
                return Err(self.syntax(mark, "did not find expected <document start>"));
            }
            self.scanner.take();
            let (kind, _) = self.scanner.peek()?;
            if matches!(kind, VersionDirective | TagDirective | DocumentStart | DocumentEnd | StreamEnd) {
                return Ok(Value::Null);
            }
        }
        let value = self.node(AllowedNodes::Block, 0)?;
        // The next thing must be a token; its meaning does not matter.
        self.scanner.peek()?;
        Ok(value)
    }

    fn directives(&mut self) -> Result<(), Error> {
        let mut version = false;
        loop {
            let (kind, mark) = self.scanner.peek()?;
            match kind {
                Kind::VersionDirective => {
                    if version {
                        return Err(self.syntax(mark, "found duplicate %YAML directive"));
                    }
                    let token = self.scanner.take();
                    let numbers = token.text.split('.').map(|n| n.parse::<u8>().ok());
                    if !numbers.eq([Some(1), Some(1)]) {
                        return Err(self.syntax(mark, "found incompatible YAML document"));
                    }
                    version = true;
                }
                Kind::TagDirective => {
                    let Token { handle, text, .. } = self.scanner.take();
                    if self.tags.iter().any(|(h, _)| *h == handle) {
                        return Err(self.syntax(mark, "found duplicate %TAG directive"));
                    }
                    self.tags.push((handle, text));
                }
                _ => break,
            }
        }
        for (handle, prefix) in [("!", "!"), ("!!", "tag:yaml.org,2002:")] {
            if !self.tags.iter().any(|(h, _)| *h == handle) {
                self.tags.push((handle, Cow::Borrowed(prefix)));
            }
        }
        Ok(())
    }

    fn node(&mut self, place: AllowedNodes, depth: usize) -> Result<Value, Error> {
        let (kind, mark) = self.scanner.peek()?;
        match kind {
            Kind::Alias => self.alias(mark),
            Kind::Anchor | Kind::Tag => {
                let properties = self.properties(kind, mark)?;
                self.content(properties, place, depth)
            }
            _ => self.content(Properties { mark, anchor: None, tag: None }, place, depth),
        }
    }

    fn properties(&mut self, kind: Kind, mark: Mark) -> Result<Properties<'a>, Error> {
        let (mut anchor, mut tag) = (None, None);
        let mut next = kind;
        while (next == Kind::Anchor && anchor.is_none()) || (next == Kind::Tag && tag.is_none()) {
            let token = self.scanner.take();
            match token.kind {
                Kind::Anchor => anchor = Some(token.text),
                _ => tag = Some(token),
            }
            next = self.scanner.peek()?.0;
        }
        let tag = match tag {
            None => None,
            Some(tag) if tag.handle.is_empty() => Some(tag.text.into_owned()),
            Some(tag) => match self.tags.iter().find(|(handle, _)| *handle == tag.handle) {
                Some((_, prefix)) => Some(format!("{prefix}{}", tag.text)),
                None => return Err(self.syntax(tag.mark, "found undefined tag handle")),
            },
        };
        Ok(Properties { mark, anchor, tag })
    }

    fn content(
        &mut self,
        properties: Properties<'a>,
        place: AllowedNodes,
        depth: usize,
    ) -> Result<Value, Error> {
        let Properties { mark, anchor, tag } = properties;
        self.count(1, mark)?;
        if depth > NESTING_DEPTH_MAX {
            return Err(self.limit(mark, format!("nested deeper than {NESTING_DEPTH_MAX} levels")));
        }
        let Some(name) = anchor else { return self.bare(mark, tag, false, place, depth) };
        if self.keys.is_some() {
            self.gave_up = true;
            return Err(self.limit(mark, "an anchor"));
        }
        self.anchor_count += 1;
        let (id, nodes_before) = (self.anchor_count, self.nodes);
        self.anchors.insert(name.clone(), Anchor::Open(id));
        let value = self.bare(mark, tag, true, place, depth)?;
        self.copies = self.copies.saturating_add(self.nodes - nodes_before);
        self.count(0, mark)?;
        // Its name may have been reused within the node.
        if let Some(anchor @ Anchor::Open(_)) = self.anchors.get_mut(&name)
            && matches!(anchor, Anchor::Open(open) if *open == id)
        {
            *anchor = Anchor::Complete(value.clone(), self.nodes - nodes_before + 1);
        }
        Ok(value)
    }

    /// A node without its properties.
    fn bare(
        &mut self,
        mark: Mark,
        tag: Option<String>,
        anchored: bool,
        place: AllowedNodes,
        depth: usize,
    ) -> Result<Value, Error> {
        let (kind, at) = self.scanner.peek()?;
        match kind {
            Kind::Plain | Kind::Quoted => {
                let Token { text, .. } = self.scanner.take();
                self.count(text.len() / TEXT_BYTES_PER_NODE, mark)?;
                let text = ScalarText::new(text, tag, kind == Kind::Plain);
                Ok(self.scalar(text, mark))
            }
            Kind::BlockEntry if place == AllowedNodes::Entry => self.level_sequence(depth),
            Kind::BlockSequenceStart if place != AllowedNodes::Brackets => self.block_sequence(depth),
            Kind::BlockMappingStart if place != AllowedNodes::Brackets => self.block_mapping(depth),
            Kind::FlowSequenceStart => self.flow_sequence(depth),
            Kind::FlowMappingStart => self.flow_mapping(depth),
            _ if anchored || tag.is_some() => {
                let plain = tag.is_none();
                Ok(self.scalar(ScalarText::new(Cow::Borrowed(""), tag, plain), mark))
            }
            _ => Err(self.syntax(at, "did not find expected node content")),
        }
    }

    fn scalar(&mut self, text: ScalarText<'_>, mark: Mark) -> Value {
        match resolve::value(text, self.keep) {
            Ok(value) => value,
            Err((words, go)) => self.note(mark, words, go),
        }
    }

    fn alias(&mut self, mark: Mark) -> Result<Value, Error> {
        let name = self.scanner.take().text;
        let (value, nodes) = match self.anchors.get(&name) {
            Some(Anchor::Complete(value, nodes)) => (value, *nodes),
            Some(Anchor::Open(_)) => {
                self.count(1, mark)?;
                let full = format!("anchor '{name}' value contains itself");
                return Ok(self.note(
                    mark,
                    ("anchor value contains itself".into(), Some(full.into())),
                    Go::Decode,
                ));
            }
            None => {
                let go_message = Some(format!("unknown anchor '{name}' referenced").into());
                let message = Cow::Borrowed("unknown anchor referenced");
                return Err(Error { message, go_message, ..self.scanner.place(mark) });
            }
        };
        // Counted before the copy.
        self.nodes = self.nodes.saturating_add(nodes + 1);
        if self.nodes.saturating_add(self.copies) > self.nodes_max {
            return Err(self.limit(mark, EXCESSIVE));
        }
        Ok(value.clone())
    }

    fn count(&mut self, nodes: usize, mark: Mark) -> Result<(), Error> {
        self.nodes = self.nodes.saturating_add(nodes);
        let is_too_large = self.nodes.saturating_add(self.copies) > self.nodes_max;
        if is_too_large { Err(self.limit(mark, EXCESSIVE)) } else { Ok(()) }
    }
}

const EXCESSIVE: &str = "document contains excessive aliasing";

impl Loader<'_> {
    /// Records a mistake; a mistake that go-yaml finds earlier wins over one that it finds during
    /// the conversion to JSON.
    fn note(&mut self, mark: Mark, words: Words, go: Go) -> Value {
        let (message, go_message) = words;
        let earlier = self.mistake.as_ref().is_none_or(|m| m.go == Go::Json && go != Go::Json);
        if earlier {
            self.mistake = Some(Error { message, go_message, go, ..self.scanner.place(mark) });
        }
        Value::Null
    }

    fn limit(&self, mark: Mark, message: impl Into<Cow<'static, str>>) -> Error {
        Error { message: message.into(), go: Go::Limit, ..self.scanner.place(mark) }
    }

    fn syntax(&self, mark: Mark, message: &'static str) -> Error {
        self.scanner.error_at(mark, message, false)
    }
}
