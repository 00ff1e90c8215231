//! Errors of templates, in Go's words and Helm's layout.

use std::fmt;

use super::unquote::quote;

/// An error of parsing or executing a template. `Display` prints the single line of Go's `text/template`, with the
/// whole chain of includes; [`Error::helm_text`] is Helm's version.
#[derive(Debug)]
pub struct Error(Box<Level>);

#[derive(Debug)]
struct Level {
    kind: Kind,
    inner: Option<Error>,
}

/// A node of a template.
#[derive(Debug)]
pub(super) struct ExecutedNode {
    /// The name of the template.
    pub(super) name: String,
    pub(super) node: String,
}

#[derive(Debug)]
enum Kind {
    Parse { name: String, line: u32, message: String },
    Exec { location: String, executing: Option<ExecutedNode>, message: String },
    Plain(String),
}

const WARN_START: &str = "HELM_ERR_START";
const WARN_END: &str = "HELM_ERR_END";

/// Marks the message of `required` and `fail`, which is printed alone.
pub(super) fn warn_wrap(message: &str) -> String {
    format!("{WARN_START}{message}{WARN_END}")
}

impl Error {
    pub(super) fn parse(name: &str, line: u32, message: impl Into<String>) -> Self {
        Self::of(Kind::Parse { name: name.to_owned(), line, message: message.into() }, None)
    }

    pub(super) fn exec(location: String, executing: Option<ExecutedNode>, fault: Fault) -> Self {
        let Fault { message, inner, plain } = fault;
        let kind = Kind::Exec { location, executing, message };
        Self::of(kind, inner.or_else(|| plain.map(Self::plain)))
    }

    /// An error outside of templates.
    pub(super) fn plain(message: impl Into<String>) -> Self {
        Self::of(Kind::Plain(message.into()), None)
    }

    pub(super) fn wrap(message: impl Into<String>, inner: Self) -> Self {
        Self::of(Kind::Plain(message.into()), Some(inner))
    }

    fn of(kind: Kind, inner: Option<Self>) -> Self {
        Self(Box::new(Level { kind, inner }))
    }

    /// The text that Helm prints: `parse error at (file:line): ...`, `execution error at (file:line:col): ...` for
    /// `required` and `fail`, else one block per level of inclusion.
    pub(crate) fn helm_text(&self) -> String {
        let line = self.to_string();
        match &self.0.kind {
            Kind::Parse { name, .. } => parse_text(name, &line),
            Kind::Exec { .. } => exec_text(self, line),
            Kind::Plain(_) => line,
        }
    }

    /// The text of this level, with as much of the next level as Helm uses.
    fn level_text(&self) -> String {
        let mut text = self.0.kind.to_string();
        if let Some(inner) = &self.0.inner {
            text.push_str(&inner.0.kind.to_string());
        }
        text
    }
}

fn parse_text(name: &str, line: &str) -> String {
    let tokens: Vec<&str> = line.split(": ").collect();
    match tokens[..] {
        [_, location, .., last] => format!("parse error at ({location}): {last}"),
        _ => format!("parse error in ({name}): {line}"),
    }
}

fn exec_text(error: &Error, line: String) -> String {
    if let Some(warning) = warning_text(&line) {
        return warning;
    }
    let mut blocks: Vec<String> = Vec::new();
    let mut current = Some(error);
    while let Some(level) = current {
        let Some(block) = block_text(&level.level_text()) else { return line };
        if blocks.last() != Some(&block) {
            blocks.push(block);
        }
        current = level.0.inner.as_ref();
    }
    blocks.concat().trim().to_owned()
}

fn warning_text(line: &str) -> Option<String> {
    let mut tokens = line.splitn(3, ": ");
    let (_, location, rest) = (tokens.next()?, tokens.next()?, tokens.next()?);
    let start = rest.find(WARN_START)? + WARN_START.len();
    let end = start + rest[start..].rfind(WARN_END)?;
    Some(format!("execution error at ({location}): {}", &rest[start..end]))
}

/// The block for one level: the location, the node, the message. Helm splits the text in this way.
fn block_text(text: &str) -> Option<String> {
    let rest = text.strip_prefix("template: ")?;
    if rest.starts_with("no template ") {
        return Some(format!("{text}\n"));
    }
    let (location, executing, message) = executing_parts(rest).or_else(|| simple_parts(rest))?;
    let message = message.find(" template:").map_or(message, |cut| &message[..cut]);
    let mut block = String::new();
    for (part, end) in [(location, "\n  "), (&executing, "\n    "), (message, "\n")] {
        if !part.is_empty() {
            block.push_str(part);
            block.push_str(end);
        }
    }
    Some(block)
}

fn executing_parts(rest: &str) -> Option<(&str, String, &str)> {
    let (location, after) = rest.split_once(": executing ")?;
    let (name, after) = after.strip_prefix('"')?.split_once('"')?;
    let (node, message) = after.strip_prefix(" at <")?.split_once(">: ")?;
    Some((location, format!("executing \"{name}\" at <{node}>:"), message))
}

fn simple_parts(rest: &str) -> Option<(&str, String, &str)> {
    let (location, message) = rest.rsplit_once(": ")?;
    Some((location, String::new(), message))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse { name, line, message } => write!(f, "template: {name}:{line}: {message}"),
            Self::Exec { location, executing: None, message } => write!(f, "template: {location}: {message}"),
            Self::Exec { location, executing: Some(ExecutedNode { name, node }), message } => {
                write!(f, "template: {location}: executing {} at <{node}>: {message}", quote(name.as_bytes()))
            }
            Self::Plain(message) => f.write_str(message),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut level = Some(self);
        while let Some(error) = level {
            error.0.kind.fmt(f)?;
            level = error.0.inner.as_ref();
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

// Drops a chain of a thousand includes in a loop.
impl Drop for Level {
    fn drop(&mut self) {
        let mut next = self.inner.take();
        while let Some(mut error) = next {
            next = error.0.inner.take();
        }
    }
}

/// An error of an action or a function, before the place is added.
#[derive(Debug, Default)]
pub(super) struct Fault {
    message: String,
    inner: Option<Error>,
    plain: Option<String>,
}

impl Fault {
    /// A message of the evaluator itself.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// An error of a function, which Go wraps: Helm then prints the raw chain.
    pub(super) fn wrapping(message: impl Into<String>, cause: Cause) -> Self {
        let message = message.into();
        match cause {
            Cause::Text(text) => Self { message, plain: Some(text), inner: None },
            Cause::Template(inner) => Self { message, inner: Some(inner), plain: None },
        }
    }
}

/// The error of a function.
#[derive(Debug)]
pub(super) enum Cause {
    Text(String),
    /// The error of a template that it executed.
    Template(Error),
}

impl From<String> for Cause {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cause {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        Self::Template(error)
    }
}
