//! Events to values. The scanner is libyaml's; anchors, merge keys, key text and types are resolved here.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use libyaml_safer::{EventData, Mark, Parser, ScalarStyle};
use serde_json::{Map, Value};

use super::scalar::{self, Scalar};
use super::{Error, Go};
use crate::format::{base64, number};
use crate::limits::{NESTING_DEPTH_MAX, YAML_ALIAS_NODES_PER_BYTE_MAX};

/// The scanner keeps four bytes for each character that it was handed: it is handed little at a time.
const READ_BYTES: usize = 8 << 10;

/// Nodes that even the smallest document may have.
const NODES_MIN: usize = 10_000;

/// Reads the first document of a text.
pub(super) fn document(text: &str) -> Result<Value, Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(at) = verbatim_tag_before_comma(text) {
        return Err(error_at(text, at, "a verbatim tag may not end at a comma"));
    }
    // A block scalar or a backslash at the very end: the scanner panics for want of one more character. It gets a line
    // break, which `literal` takes away again where it would show.
    let padded = !text.ends_with(['\n', '\r']);
    let input = text.as_bytes().chain(if padded { &b"\n"[..] } else { &[] });
    let mut input = BufReader::with_capacity(READ_BYTES, input);
    let mut parser = Parser::new();
    parser.set_input(&mut input);
    let mut loader = Loader {
        text,
        padded,
        parser,
        anchors: BTreeMap::new(),
        nodes: 0,
        nodes_max: text.len().saturating_mul(YAML_ALIAS_NODES_PER_BYTE_MAX).max(NODES_MIN),
        pending: Vec::new(),
        open: 0,
    };
    loader.document()
}

/// Where the scanner would panic: `!<tag>,`. Outside of quoted text, nobody writes that.
fn verbatim_tag_before_comma(text: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].find("!<").map(|i| i + from) {
        let starts = text[..at].chars().next_back().is_none_or(|c| " \t\n[{,".contains(c));
        let end = text[at..].find('>').map(|i| at + i + 1);
        if starts && end.is_some_and(|end| text[end..].starts_with(',')) {
            return Some(at);
        }
        from = at + 2;
    }
    None
}

struct Loader<'a, R> {
    text: &'a str,
    padded: bool,
    parser: Parser<R>,
    anchors: BTreeMap<String, Anchor>,
    /// Nodes made so far, those of aliases included.
    nodes: usize,
    nodes_max: usize,
    /// Anchors whose nodes are not complete.
    pending: Vec<String>,
    /// Maps and lists entered since an error.
    open: usize,
}

#[derive(Clone)]
struct Anchor {
    value: Value,
    nodes: usize,
}

struct Event {
    data: EventData,
    start: Mark,
    end: Mark,
}

/// A scalar as the scanner saw it.
struct Text {
    value: String,
    tag: Option<String>,
    plain: bool,
}

impl<R: std::io::BufRead> Loader<'_, R> {
    fn document(&mut self) -> Result<Value, Error> {
        loop {
            let event = self.next()?;
            match event.data {
                EventData::StreamEnd => return Ok(Value::Null),
                EventData::StreamStart { .. } | EventData::DocumentStart { .. } => {}
                _ => {
                    let value = self.node(event, 0);
                    return match &value {
                        Err(Error { go: Go::Limit | Go::Syntax(_), .. }) => value,
                        // A document must be well-formed to its end; what follows it is not read.
                        _ => self.rest().and(value),
                    };
                }
            }
        }
    }

    /// Reads to the end of the document, so that its first syntax error is the one that is reported.
    fn rest(&mut self) -> Result<(), Error> {
        loop {
            match self.next()?.data {
                EventData::DocumentEnd { .. } | EventData::StreamEnd => return Ok(()),
                EventData::SequenceStart { .. } | EventData::MappingStart { .. } => self.open += 1,
                EventData::SequenceEnd | EventData::MappingEnd => self.open = self.open.saturating_sub(1),
                _ => {}
            }
            if self.open > NESTING_DEPTH_MAX {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Result<Event, Error> {
        match self.parser.parse() {
            Ok(event) => Ok(Event { data: event.data, start: event.start_mark, end: event.end_mark }),
            Err(error) => {
                // The line break that was appended is no line of the text.
                let last = self.text.bytes().filter(|b| *b == b'\n').count();
                Err(syntax(&error, u64::try_from(last).unwrap_or(u64::MAX)))
            }
        }
    }

    fn node(&mut self, event: Event, depth: usize) -> Result<Value, Error> {
        self.count(1, event.start)?;
        if depth > NESTING_DEPTH_MAX {
            return Err(limit(event.start, format!("nested deeper than {NESTING_DEPTH_MAX} levels")));
        }
        match event.data {
            EventData::Alias { anchor } => self.alias(&anchor, event.start),
            EventData::Scalar { anchor, tag, value, plain_implicit, style, .. } => {
                let value = self.literal(value, style, event.end);
                let text = Text { value, tag, plain: plain_implicit };
                let value = scalar_value(text, event.start)?;
                self.anchored(anchor, |_| Ok(value))
            }
            EventData::SequenceStart { anchor, .. } => self.anchored(anchor, |l| l.sequence(depth)),
            EventData::MappingStart { anchor, .. } => self.anchored(anchor, |l| l.mapping(depth)),
            _ => Err(decode(event.start, "a node was expected")),
        }
    }

    fn anchored(
        &mut self,
        anchor: Option<String>,
        read: impl FnOnce(&mut Self) -> Result<Value, Error>,
    ) -> Result<Value, Error> {
        let Some(name) = anchor else { return read(self) };
        self.pending.push(name);
        let nodes_before = self.nodes;
        let value = read(self)?;
        let nodes = self.nodes - nodes_before + 1;
        if let Some(name) = self.pending.pop() {
            self.anchors.insert(name, Anchor { value: value.clone(), nodes });
        }
        Ok(value)
    }

    fn count(&mut self, nodes: usize, mark: Mark) -> Result<(), Error> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > self.nodes_max {
            return Err(limit(mark, "document contains excessive aliasing"));
        }
        Ok(())
    }

    fn alias(&mut self, name: &str, mark: Mark) -> Result<Value, Error> {
        if self.pending.iter().any(|p| p == name) {
            return Err(decode(mark, format!("anchor '{name}' value contains itself")));
        }
        let Some(anchor) = self.anchors.get(name).cloned() else {
            return Err(decode(mark, format!("unknown anchor '{name}' referenced")));
        };
        self.count(anchor.nodes, mark)?;
        Ok(anchor.value)
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, Error> {
        let mut items = Vec::new();
        loop {
            let event = self.next()?;
            if matches!(event.data, EventData::SequenceEnd) {
                return Ok(Value::Array(items));
            }
            items.push(self.node(event, depth + 1)?);
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, Error> {
        let mut map = Map::new();
        loop {
            let event = self.next()?;
            if matches!(event.data, EventData::MappingEnd) {
                return Ok(Value::Object(map));
            }
            if is_merge(&event.data) {
                let event = self.next()?;
                let (mark, aliased) = (event.start, matches!(event.data, EventData::Alias { .. }));
                let value = self.node(event, depth + 1)?;
                merge(&mut map, value, aliased, mark)?;
                continue;
            }
            let key = self.key(event, depth + 1)?;
            let event = self.next()?;
            let value = self.node(event, depth + 1)?;
            map.insert(key, value);
        }
    }

    fn key(&mut self, event: Event, depth: usize) -> Result<String, Error> {
        let mark = event.start;
        let mut float = None;
        if let EventData::Scalar { anchor: None, tag: None, value, plain_implicit: true, .. } = &event.data {
            match scalar::resolve(value) {
                // Nearly all keys.
                Scalar::Text | Scalar::Date => {
                    self.count(1, mark)?;
                    let EventData::Scalar { value, .. } = event.data else { return Ok(String::new()) };
                    return Ok(value);
                }
                Scalar::Float(f) => float = Some(f),
                _ => {}
            }
        }
        match self.node(event, depth)? {
            Value::String(text) => Ok(text),
            Value::Bool(b) => Ok(b.to_string()),
            // A float is written with the digits of 32 bits; its own text tells it from a whole number.
            Value::Number(n) => Ok(float.map_or_else(|| n.to_string(), float_key)),
            Value::Null => Err(json(mark, "unsupported map key of type: %!s(<nil>)")),
            key => Err(decode(mark, format!("invalid map key: {}", go_syntax(&key)))),
        }
    }

    /// Takes the line break away that `document` appended, if it became part of a block scalar.
    fn literal(&self, mut value: String, style: ScalarStyle, end: Mark) -> String {
        let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        let at_end = usize::try_from(end.index).is_ok_and(|index| index > self.text.len());
        if self.padded && block && at_end {
            let last_line = self.text.rsplit('\n').next().unwrap_or("");
            // Of a line that holds only indentation, a break remains only if all are kept.
            let content = !last_line.trim_start_matches([' ', '\t']).is_empty();
            let shows = content || ["\n\n", " \n", "\t\n"].iter().any(|end| value.ends_with(end));
            if shows && value.ends_with('\n') {
                value.pop();
            }
        }
        value
    }
}

fn is_merge(data: &EventData) -> bool {
    match data {
        EventData::Scalar { value, tag, plain_implicit, .. } if value == "<<" => {
            *plain_implicit || tag.as_deref() == Some("tag:yaml.org,2002:merge")
        }
        _ => false,
    }
}

/// Copies the entries of the merged map over those that stand there already; of a list, the first map wins.
fn merge(map: &mut Map<String, Value>, value: Value, aliased: bool, mark: Mark) -> Result<(), Error> {
    let wanted = || decode(mark, "map merge requires map or sequence of maps as the value");
    match value {
        Value::Object(other) => map.extend(other),
        Value::Array(list) if !aliased => {
            for item in list.into_iter().rev() {
                let Value::Object(other) = item else { return Err(wanted()) };
                map.extend(other);
            }
        }
        _ => return Err(wanted()),
    }
    Ok(())
}

fn scalar_value(text: Text, mark: Mark) -> Result<Value, Error> {
    let kind = match text.tag.as_deref() {
        None if !text.plain => return Ok(Value::String(text.value)),
        None => "",
        Some(tag) => tag.strip_prefix("tag:yaml.org,2002:").unwrap_or("str"),
    };
    let scalar = match kind {
        "str" => return Ok(Value::String(text.value)),
        "binary" => return binary(&text.value, mark),
        "" | "bool" | "int" | "float" | "null" | "timestamp" => scalar::resolve(&text.value),
        _ => return Ok(Value::String(text.value)),
    };
    let fits = match scalar {
        _ if kind.is_empty() => true,
        Scalar::Null => kind == "null",
        Scalar::Bool(_) => kind == "bool",
        Scalar::Int(_) => matches!(kind, "int" | "float"),
        Scalar::Uint(_) => kind == "int",
        Scalar::Float(_) => kind == "float",
        Scalar::Date => kind == "timestamp",
        Scalar::Text => false,
    };
    if !fits {
        let is = tag_name(&scalar);
        return Err(decode(mark, format!("cannot decode !!{is} `{}` as a !!{kind}", text.value)));
    }
    let float = if let Scalar::Float(f) = scalar { f } else { 0.0 };
    scalar::to_json(&scalar, &text.value)
        .ok_or_else(|| json(mark, format!("json: unsupported value: {}", number::general(float))))
}

fn tag_name(scalar: &Scalar) -> &'static str {
    match scalar {
        Scalar::Null => "null",
        Scalar::Bool(_) => "bool",
        Scalar::Int(_) | Scalar::Uint(_) => "int",
        Scalar::Float(_) => "float",
        Scalar::Date => "timestamp",
        Scalar::Text => "str",
    }
}

/// A value as Go's `%#v` shows it, for the message about a template that was not rendered.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k:?}:{}", go_syntax(v))).collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", entries.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

fn binary(text: &str, mark: Mark) -> Result<Value, Error> {
    let bytes = base64::decode(text.as_bytes())
        .map_err(|_| decode(mark, "!!binary value contains invalid base64 data"))?;
    Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()))
}

#[allow(clippy::cast_possible_truncation)] // as upstream: keys are written with 32 bits
fn float_key(value: f64) -> String {
    number::general32(value as f32)
}

type Message = std::borrow::Cow<'static, str>;

fn decode(mark: Mark, message: impl Into<Message>) -> Error {
    Error { line: mark.line + 1, column: mark.column + 1, message: message.into(), go: Go::Decode }
}

fn json(mark: Mark, message: impl Into<Message>) -> Error {
    Error { go: Go::Json, ..decode(mark, message) }
}

fn limit(mark: Mark, message: impl Into<Message>) -> Error {
    Error { go: Go::Limit, ..decode(mark, message) }
}

/// An error of the scanner or parser, with the line as go-yaml counts it.
fn syntax(error: &libyaml_safer::Error, last_line: u64) -> Error {
    let mut mark = error.problem_mark().unwrap_or_default();
    let context = error.context_mark().unwrap_or_default();
    let scanner = error.kind() == libyaml_safer::ErrorKind::Scanner;
    if scanner {
        mark.line = mark.line.min(last_line);
    }
    let go_line = match (mark.line, context.line) {
        (0, line) => line,
        (line, _) => line + u64::from(scanner),
    };
    let known = error.problem_mark().is_some();
    Error {
        line: if known { mark.line + 1 } else { 0 },
        column: if known { mark.column + 1 } else { 0 },
        message: error.problem().into(),
        go: Go::Syntax(go_line),
    }
}

fn error_at(text: &str, at: usize, message: &'static str) -> Error {
    let above = &text[..at];
    let line = above.matches('\n').count();
    let column = above.rsplit('\n').next().unwrap_or("").chars().count();
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX - 1) + 1;
    Error { line: count(line), column: count(column), message: message.into(), go: Go::Syntax(count(line)) }
}
