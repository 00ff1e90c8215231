//! YAML as Kubernetes tools written in Go read and write it. Input is YAML 1.1 (`y` is true, `0777` is octal); output
//! has three dialects. Values are JSON values; a value that JSON cannot represent is an error.
//!
//! Behaviour follows sigs.k8s.io/yaml, which reads YAML with go-yaml v2 and passes it through JSON.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

mod emit;
mod order;
mod parse;
mod resolve;
mod scalar;
mod scan;
mod tree;

pub(crate) use tree::{Tree, TreeNode};

/// The Go program whose output format is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `toYaml` of Helm: long text folded at 80 columns, sequences at the indentation of their key.
    V2,
    /// `toYamlPretty` of Helm: nothing folded, sequences indented.
    V3,
    /// What a gardenlet writes into Secrets: nothing folded, sequences at the indentation of their key.
    V4,
}

/// Why a text is not YAML, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The line, counted from 1; 0 if unknown.
    pub(crate) line: u64,
    /// The column in characters, counted from 1; 0 if unknown.
    pub(crate) column: u64,
    /// What is wrong there. It repeats nothing of the text, which may be secret.
    pub(crate) message: Cow<'static, str>,
    /// What the Go library says instead, if that repeats a part of the text.
    go_message: Option<Box<str>>,
    go: Go,
}

/// [`Error::message`] and, if it differs, what the Go library says.
type Words = (Cow<'static, str>, Option<Box<str>>);

/// How the Go library words an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    /// `yaml: line N: message`; 0: without a line.
    Syntax(u64),
    /// `yaml: message`: found while decoding the tree.
    Decode,
    /// The message alone: found during the conversion to JSON.
    Json,
    /// A limit: the rest of the document is not read.
    Limit,
}

impl Error {
    /// The text that Helm's `fromYaml` and chart loader report. It may repeat a part of the document.
    pub(crate) fn go_text(&self) -> String {
        let place = match self.go {
            Go::Syntax(0) | Go::Decode | Go::Limit => "yaml: ".to_owned(),
            Go::Syntax(line) => format!("yaml: line {line}: "),
            Go::Json => String::new(),
        };
        let message = self.go_message.as_deref().unwrap_or(&self.message);
        format!("error converting YAML to JSON: {place}{message}")
    }

    /// Whether the document is too large or too deep; it may be valid otherwise.
    pub(crate) fn is_limit(&self) -> bool {
        self.go == Go::Limit
    }

    /// The same error in a document that starts `lines` lines below the top of its file.
    #[must_use]
    pub(crate) fn below(mut self, lines: u64) -> Self {
        if self.line > 0 {
            self.line += lines;
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => f.write_str(&self.message),
            (line, 0) => write!(f, "line {line}: {}", self.message),
            (line, column) => write!(f, "line {line}, column {column}: {}", self.message),
        }
    }
}

impl std::error::Error for Error {}

/// One document of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlDocument {
    /// The line of its first line in the stream, counted from 1.
    pub(crate) line: u64,
    /// Its value; line numbers of an error count from the top of the stream.
    pub value: Result<Value, Error>,
}

/// Parses the first document of a text. An empty text is null.
///
/// Duplicate keys: the last wins. `<<` merges in place. Keys become text. Errors: syntax, a value without
/// JSON form (`.inf`), an alias without anchor, too deep nesting, too much growth by aliases.
pub fn parse(text: &str) -> Result<Value, Error> {
    parse::document(text)
}

/// Parses the first document of a text as [`parse`] does, if it has at most `nodes_max` nodes. Keys, aliases
/// and each 128 bytes of text count as nodes. Errors: as [`parse`]; [`Error::is_limit`] identifies a document
/// that is too large.
pub(crate) fn parse_within(text: &str, nodes_max: usize) -> Result<Value, Error> {
    parse::within(text, nodes_max)
}

/// Parses the first document of a text as [`parse`] does, with the same errors. Of a map, only the
/// values of some keys are kept (all, if the document has anchors): `key`, or `key.inner` for a part of
/// it. Errors: as [`parse`].
pub fn parse_part(text: &str, keys: &[&str]) -> Result<Value, Error> {
    parse::part(text, keys)
}

/// A key that occurs twice in one map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repeated {
    pub(crate) key: String,
    /// The lines of both, counted from 1.
    pub(crate) lines: (usize, usize),
}

/// Parses the first document of a text as [`parse`] does, with the same errors, and finds keys that occur
/// twice in one map. The document holds only the last value. Errors: as [`parse`].
pub(crate) fn parse_noting_repeated(text: &str) -> Result<(Value, Vec<Repeated>), Error> {
    parse::noting_repeated(text)
}

/// Parses every document of a stream on its own: a broken one does not hide the others. Empty documents are left out.
pub fn parse_all(text: &str) -> Vec<YamlDocument> {
    let mut documents = Vec::new();
    let (mut start, mut line, mut at) = (0, 0, 0);
    let mut first_line = 0;
    for piece in text.split_inclusive('\n') {
        if is_separator(piece) && at > start {
            push_document(&mut documents, &text[start..at], first_line);
            (start, first_line) = (at, line);
        }
        at += piece.len();
        line += 1;
    }
    push_document(&mut documents, &text[start..], first_line);
    documents
}

/// Writes a value as one document, with a line break at the end.
pub fn emit(value: &dyn Tree, dialect: Dialect) -> String {
    emit::document(value, dialect)
}

/// Whether a line begins a document: `---` alone or before a blank.
pub(crate) fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// The place of an error, without a message.
fn place(text: &str, at: usize) -> Error {
    let above = &text[..at];
    let line = above.matches('\n').count();
    let column = above.rsplit('\n').next().unwrap_or("").chars().count();
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX - 1) + 1;
    Error { line: count(line), column: count(column), message: "".into(), go_message: None, go: Go::Decode }
}

fn push_document(documents: &mut Vec<YamlDocument>, text: &str, lines_above: u64) {
    let value = parse(text).map_err(|e| e.below(lines_above));
    if value != Ok(Value::Null) {
        documents.push(YamlDocument { line: lines_above + 1, value });
    }
}

#[cfg(test)]
mod tests;
