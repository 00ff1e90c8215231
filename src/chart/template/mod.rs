//! Go's `text/template` with the functions of Helm and sprig, over shared mutable values.
//!
//! A [`Templates`] is one namespace of definitions: every file and every `define`. Behaviour and messages follow Go
//! 1.26, Helm v4.2 and sprig 3.3. The text of a file becomes tokens ([`lex`]) and then a tree ([`parse`], [`ast`]), and
//! [`eval`] walks the tree; all functions are in one table ([`functions`]). Everything that a chart can inflate has a
//! maximum: stack, steps, text, lists.

mod ast;
mod error;
mod eval;
mod format;
mod functions;
mod lex;
mod parse;
mod stack;
mod unquote;

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

pub(crate) use error::Error;

use super::TextSlice;
use super::value::{GoString, Value};
use crate::base::clock::Clock;
use crate::limits::{
    TEMPLATE_INCLUDES_MAX, TEMPLATE_OUTPUT_BYTES_MAX, TEMPLATE_STACK_BYTES_MAX, TEMPLATE_STEPS_MAX,
};
use ast::{NodeKind, TemplateNode, Tree};
use eval::{Engine, Scope, SharedExecution, Spare};
pub(super) use functions::regex::Expression;
use stack::StackGuard;

/// The name of the common parent template in messages about `tpl`.
const ROOT: &str = "gotpl";

/// The settings of a rendering besides templates and values.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The clock for `now`.
    pub clock: Clock,
    /// Stack that parsing and rendering may use, in bytes, counted from the call. The thread must have 1 MiB more.
    pub(crate) stack_bytes_max: usize,
    /// The maximum number of steps of one rendering: actions, calls, iterations and the work of functions.
    pub(crate) steps_max: u64,
    /// The steps so far. Sets of templates with clones of these options share the count.
    pub(crate) steps: Rc<Cell<u64>>,
    /// Whether a missing key of a map is an error (`missingkey=error`).
    pub(crate) missing_is_error: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            stack_bytes_max: TEMPLATE_STACK_BYTES_MAX,
            steps_max: TEMPLATE_STEPS_MAX,
            steps: Rc::default(),
            missing_is_error: false,
        }
    }
}

/// A set of templates that see each other.
#[derive(Debug)]
pub(crate) struct Templates {
    scope: Scope<'static>,
    options: Options,
    spare: Spare,
}

impl Templates {
    pub(crate) fn new(options: Options) -> Self {
        Self { scope: Scope::default(), options, spare: Spare::default() }
    }

    /// Adds a file: its definitions, and its text as a template with the name of the file. The last
    /// definition of a name wins, except that an empty body never replaces another. Callers must add the
    /// files in Helm's order. Errors: the first mistake in the text.
    pub(crate) fn parse(&mut self, name: &str, text: impl Into<TextSlice>) -> Result<(), Error> {
        for tree in parse::parse(name, &text.into(), StackGuard::new(self.options.stack_bytes_max))? {
            self.scope.add(tree);
        }
        Ok(())
    }

    /// Executes the template with this name on `data`. `<no value>` is removed from the text, as Helm does.
    /// Errors: the error of the template or of a function, or the exceeded limit.
    pub(crate) fn render(&self, name: &str, data: &Value) -> Result<String, Error> {
        self.render_file(name, data).map(|text| text.to_string())
    }

    /// Like [`Templates::render`]; does not copy the text of a file without
    /// actions. Errors: as [`Templates::render`].
    pub(crate) fn render_file(&self, name: &str, data: &Value) -> Result<TextSlice, Error> {
        // The output of a file without actions is its text.
        if let Some([TemplateNode { kind: NodeKind::Text(text), .. }]) =
            self.scope.find(name).map(|t| &*t.root)
            && find(text.as_bytes(), NO_VALUE).is_none()
            && text.len() <= TEMPLATE_OUTPUT_BYTES_MAX
        {
            return Ok(text.clone());
        }
        let shared = SharedExecution::new(&self.options, &self.spare);
        let engine = Engine { scope: &self.scope, shared: &shared };
        shared.with_buffer(|out| {
            engine.execute_named(name, data.clone(), out)?;
            let text = without_no_value(out);
            Ok(match std::str::from_utf8(&text) {
                Ok(text) => text.into(),
                Err(_) => TextSlice::from(&*String::from_utf8_lossy(&text)),
            })
        })
    }
}

/// A text in Go's quotes.
pub(super) fn quoted(text: &str) -> String {
    unquote::quote(text.as_bytes())
}

/// Compiles an expression in Go's syntax. Errors: in Go's words.
pub(super) fn regex(pattern: &str) -> Result<Expression, String> {
    functions::regex::build(pattern)
}

/// Parses a URL as Go's `net/url` does: scheme, host with port, host alone. Errors: in Go's words.
pub(super) fn url_parts(text: &str) -> Result<(String, String, String), String> {
    functions::urls::parts(text)
}

impl Engine<'_> {
    fn execute_named(self, name: &str, data: Value, out: &mut Vec<u8>) -> Result<(), Error> {
        let Some(tree) = self.scope.find(name).cloned() else {
            return Err(Error::plain(format!(
                "template: no template {} associated with template \"{ROOT}\"",
                unquote::quote(name.as_bytes())
            )));
        };
        self.execute(&tree, data, out)
    }

    /// `include`: the output of a template.
    fn include(self, name: &GoString, data: Value) -> Result<GoString, error::Cause> {
        let key = name.to_str();
        if self.included(name) > TEMPLATE_INCLUDES_MAX {
            return Err(format!(
                "rendering template has a nested reference name: {key}: unable to execute template"
            )
            .into());
        }
        self.check_depth()?;
        self.shared.included.borrow_mut().push(name.clone());
        let text = self.shared.with_buffer(|out| {
            self.execute_named(&key, data, out)?;
            Ok(GoString::from(&**out))
        });
        self.shared.included.borrow_mut().pop();
        text
    }

    /// How often the inclusion of a template is in progress: counted only if it can exceed the limit.
    fn included(self, name: &GoString) -> usize {
        let all = self.shared.included.borrow();
        if all.len() > TEMPLATE_INCLUDES_MAX { all.iter().filter(|n| *n == name).count() } else { 0 }
    }

    /// `tpl`: parses a text and executes it. Only the templates that it executes see its definitions.
    fn tpl(self, text: &GoString, data: Value) -> Result<GoString, error::Cause> {
        self.check_depth()?;
        // Most values that may be templates are not. Without an action, bytes that are not UTF-8 stay as they are.
        if find(text.as_bytes(), b"{{").is_none() {
            self.shared.charge(1)?;
            return Ok(match without_no_value(text.as_bytes()) {
                Cow::Borrowed(_) => text.clone(),
                Cow::Owned(shorter) => GoString::from(shorter),
            });
        }
        let quoted = || unquote::quote(text.as_bytes());
        let trees = parse::parse(ROOT, &TextSlice::from(&*text.to_str()), self.shared.guard)
            .map_err(|e| Error::wrap(format!("cannot parse template {}: ", quoted()), e))?;
        let mut scope = Scope { outer: Some(self.scope), ..Scope::default() };
        let mut main: Option<Tree> = None;
        for tree in trees {
            if tree.name == ROOT {
                main = Some(tree);
            } else {
                scope.add(tree);
            }
        }
        let Some(tree) = main else { return Ok(GoString::default()) };
        let engine = Engine { scope: &scope, shared: self.shared };
        self.shared.with_buffer(|out| {
            engine.execute(&tree, data, out).map_err(|e| {
                Error::wrap(format!("error during tpl function execution for {}: ", quoted()), e)
            })?;
            Ok(GoString::from(&*without_no_value(out)))
        })
    }
}

/// Go's output for nil.
const NO_VALUE: &[u8] = b"<no value>";

/// Removes Go's output for nil.
fn without_no_value(out: &[u8]) -> Cow<'_, [u8]> {
    let mut kept = Vec::new();
    let mut rest = out;
    while let Some(at) = find(rest, NO_VALUE) {
        kept.extend_from_slice(&rest[..at]);
        rest = &rest[at + NO_VALUE.len()..];
    }
    if rest.len() == out.len() {
        return Cow::Borrowed(out);
    }
    kept.extend_from_slice(rest);
    Cow::Owned(kept)
}

/// The position of `needle`, if present. Bytes, because Go's strings need not be UTF-8.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let Some((first, _)) = needle.split_first() else { return Some(0) };
    if needle.len() > NEEDLE_BYTES_MAX {
        return find_long(haystack, needle);
    }
    // The fastest way to rule a match out.
    if !haystack.contains(first) {
        return None;
    }
    let last = haystack.len().checked_sub(needle.len())?;
    let mut at = 0;
    while at <= last {
        at += haystack[at..=last].iter().position(|b| b == first)?;
        if haystack[at..].starts_with(needle) {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Longer needles are not compared at each position: that would take the product of both lengths.
const NEEDLE_BYTES_MAX: usize = 64;

/// The Knuth-Morris-Pratt search: its time grows with the sum of both lengths.
fn find_long(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    // For each byte: the length of the longest prefix of the needle that ends there.
    let mut borders = vec![0usize; needle.len()];
    let advance = |borders: &[usize], mut matched: usize, byte: u8| {
        while matched > 0 && needle[matched] != byte {
            matched = borders[matched - 1];
        }
        matched + usize::from(needle[matched] == byte)
    };
    for at in 1..needle.len() {
        borders[at] = advance(&borders, borders[at - 1], needle[at]);
    }
    let mut matched = 0;
    for (at, byte) in haystack.iter().enumerate() {
        matched = advance(&borders, matched, *byte);
        if matched == needle.len() {
            return Some(at + 1 - matched);
        }
    }
    None
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
