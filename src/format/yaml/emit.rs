//! Writes values exactly as go-yaml does.
//!
//! The writer keeps the state that decides about blanks and line breaks there: the column, and whether the line so far
//! holds only indentation or ends with a blank.

use super::tree::{Tree, TreeNode};
use super::{Dialect, order, scalar};
use crate::format::{base64, number};

/// Text longer than this many columns is folded at the next blank (v2 only).
const FOLD_COLUMN: usize = 80;
/// Enough capacity for most documents that templates write.
const BYTES_USUAL: usize = 256;
/// Keys longer than this many bytes are written with `? `.
const SIMPLE_KEY_BYTES_MAX: usize = 128;

pub(super) fn document(value: &dyn Tree, dialect: Dialect) -> String {
    let out = String::with_capacity(BYTES_USUAL);
    let mut writer = Writer { out, dialect, column: 0, only_indent: true, after_blank: true };
    writer.node(value, None, false);
    if writer.column > 0 {
        writer.line_break();
    }
    writer.out
}

/// Indentation after a line break within a text, and whether a long text is folded at blanks.
#[derive(Clone, Copy)]
struct Fold {
    indent: usize,
    on: bool,
}

const NO_FOLD: Fold = Fold { indent: 0, on: false };

struct Writer {
    out: String,
    dialect: Dialect,
    /// A number of characters.
    column: usize,
    /// The line holds only indentation and indicators.
    only_indent: bool,
    /// The last character separates, so no further blank is needed.
    after_blank: bool,
}

impl Writer {
    /// Writes a node below a parent at `indent` (`None` at the top).
    fn node(&mut self, value: &dyn Tree, indent: Option<usize>, value_of_key: bool) {
        value.view(self.dialect, &mut |view| self.viewed(view, indent, value_of_key));
    }

    fn viewed(&mut self, view: TreeNode<'_>, indent: Option<usize>, value_of_key: bool) {
        match view {
            TreeNode::NilList if self.dialect == Dialect::V3 => self.empty('[', ']'),
            TreeNode::NilMap if self.dialect == Dialect::V3 => self.empty('{', '}'),
            TreeNode::NilList | TreeNode::NilMap => self.plain("null", NO_FOLD),
            TreeNode::Map(map) if map.is_empty() => self.empty('{', '}'),
            TreeNode::List(list) if list.is_empty() => self.empty('[', ']'),
            TreeNode::Map(map) => {
                let indent = indent.map_or(0, |i| i + 2);
                for (key, value) in order::sort(map, self.dialect) {
                    self.entry(key, value, indent);
                }
            }
            TreeNode::List(list) => {
                let indent = self.list_indent(indent, value_of_key);
                for item in list {
                    self.item(indent);
                    self.node(item, Some(indent), false);
                }
            }
            TreeNode::Bytes(bytes) if self.dialect != Dialect::V3 => {
                self.viewed(TreeNode::Text(&base64::encode(bytes)), indent, value_of_key);
            }
            TreeNode::Bytes([]) => self.empty('[', ']'),
            TreeNode::Bytes(bytes) => {
                let indent = self.list_indent(indent, value_of_key);
                for byte in bytes {
                    self.item(indent);
                    self.plain(&byte.to_string(), NO_FOLD);
                }
            }
            TreeNode::Word(word) => self.plain(word, NO_FOLD),
            TreeNode::Float(float) => self.plain(&float_text(float, self.dialect), NO_FOLD),
            TreeNode::Text(text) => self.text(text, indent.map_or(2, |i| i + 2)),
        }
    }

    /// The indentation of the items of a list.
    fn list_indent(&self, indent: Option<usize>, value_of_key: bool) -> usize {
        let level = value_of_key && !self.only_indent && self.dialect != Dialect::V3;
        indent.map_or(0, |i| if level { i } else { i + 2 })
    }

    /// Begins an item of a list.
    fn item(&mut self, indent: usize) {
        self.indent(indent);
        self.indicator("-", true, false, true);
    }

    fn entry(&mut self, key: &str, value: &dyn Tree, indent: usize) {
        self.indent(indent);
        let shape = Shape::of(key, self.dialect);
        if !shape.multiline && key.len() <= SIMPLE_KEY_BYTES_MAX {
            self.scalar(key, &shape, indent, true);
            self.indicator(":", false, false, false);
        } else {
            self.indicator("?", true, false, true);
            self.scalar(key, &shape, indent + 2, false);
            self.indent(indent);
            self.indicator(":", true, false, true);
        }
        self.node(value, Some(indent), true);
    }

    fn empty(&mut self, open: char, close: char) {
        self.indicator(open.encode_utf8(&mut [0; 4]), true, true, false);
        self.indicator(close.encode_utf8(&mut [0; 4]), false, false, false);
    }

    fn text(&mut self, text: &str, indent: usize) {
        let shape = Shape::of(text, self.dialect);
        self.scalar(text, &shape, indent, false);
    }

    fn scalar(&mut self, text: &str, shape: &Shape, indent: usize, key: bool) {
        let fold = Fold { indent, on: self.dialect == Dialect::V2 && !key };
        match style(text, shape, self.dialect, key) {
            Style::Plain => self.plain(text, fold),
            Style::Single => self.single(text, fold),
            Style::Double => self.double(text, fold),
            Style::Literal => self.literal(text, indent),
        }
    }

    fn plain(&mut self, text: &str, fold: Fold) {
        if !self.after_blank {
            self.put(' ');
        }
        self.folded(text, fold, |_| true);
        (self.only_indent, self.after_blank) = (false, false);
    }

    fn single(&mut self, text: &str, fold: Fold) {
        self.indicator("'", true, false, false);
        let last = text.len().saturating_sub(1);
        self.folded(text, fold, |at| at > 0 && at < last);
        self.indicator("'", false, false, false);
        (self.only_indent, self.after_blank) = (false, false);
    }

    /// Text without line breaks, or with line breaks other than `\n`. Quotes are doubled only in single-quoted text:
    /// other text here has no quotes that matter.
    fn folded(&mut self, text: &str, fold: Fold, may_fold: impl Fn(usize) -> bool) {
        let fits = !fold.on || self.column + text.len() <= FOLD_COLUMN;
        if fits && text.bytes().all(|b| b != b'\'' && (b' '..=b'~').contains(&b)) {
            self.out.push_str(text);
            self.column += text.len();
            return;
        }
        let quoted = self.out.ends_with('\'');
        let (mut blank_before, mut break_before) = (false, false);
        for (at, c) in text.char_indices() {
            if c == ' ' {
                let next_blank = text[at + 1..].starts_with(' ');
                if fold.on && !blank_before && self.column > FOLD_COLUMN && !next_blank && may_fold(at) {
                    self.indent(fold.indent);
                } else {
                    self.put(' ');
                }
                blank_before = true;
                continue;
            }
            if is_break(c) {
                self.put_break(c);
                break_before = true;
                continue;
            }
            if break_before {
                self.indent(fold.indent);
            }
            if c == '\'' && quoted {
                self.put('\'');
            }
            self.put(c);
            (self.only_indent, blank_before, break_before) = (false, false, false);
        }
    }

    fn double(&mut self, text: &str, fold: Fold) {
        self.indicator("\"", true, false, false);
        let last = text.len().saturating_sub(1);
        let mut blank_before = false;
        for (at, c) in text.char_indices() {
            if c == ' ' {
                if fold.on && !blank_before && self.column > FOLD_COLUMN && at > 0 && at < last {
                    self.indent(fold.indent);
                    if text[at + 1..].starts_with(' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(' ');
                }
                blank_before = true;
                continue;
            }
            if !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
                for e in escape(c).chars() {
                    self.put(e);
                }
            } else {
                self.put(c);
            }
            blank_before = false;
        }
        self.indicator("\"", false, false, false);
        (self.only_indent, self.after_blank) = (false, false);
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.indicator("|", true, false, false);
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator("2", false, false, false);
        }
        let mut end = text.chars().rev().map(is_break);
        match (end.next(), end.next()) {
            (Some(true), Some(false)) => {}
            (Some(true), _) => self.indicator("+", false, false, false),
            _ => self.indicator("-", false, false, false),
        }
        self.line_break();
        (self.only_indent, self.after_blank) = (true, true);
        let mut break_before = true;
        for c in text.chars() {
            if is_break(c) {
                self.put_break(c);
                break_before = true;
            } else {
                if break_before {
                    self.indent(indent);
                }
                self.put(c);
                (self.only_indent, break_before) = (false, false);
            }
        }
    }

    fn indicator(&mut self, text: &str, needs_blank: bool, is_blank: bool, is_indent: bool) {
        if needs_blank && !self.after_blank {
            self.put(' ');
        }
        self.out.push_str(text);
        self.column += text.len();
        self.after_blank = is_blank;
        self.only_indent &= is_indent;
    }

    fn indent(&mut self, indent: usize) {
        let passed = self.column > indent || (self.column == indent && !self.after_blank);
        if !self.only_indent || passed {
            self.line_break();
        }
        if self.column < indent {
            self.out.extend(std::iter::repeat_n(' ', indent - self.column));
            self.column = indent;
        }
        (self.only_indent, self.after_blank) = (true, true);
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    /// A line break of the text itself.
    fn put_break(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
        self.only_indent = true;
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

fn style(text: &str, shape: &Shape, dialect: Dialect, key: bool) -> Style {
    let quoted = || if shape.single { Style::Single } else { Style::Double };
    if text.contains('\n') {
        return if shape.literal && !key { Style::Literal } else { Style::Double };
    }
    if scalar::needs_quotes(text, dialect) || (key && shape.multiline) {
        return Style::Double;
    }
    if shape.plain { Style::Plain } else { quoted() }
}

/// The styles that a text allows.
#[derive(Clone, Copy, Default)]
struct Shape {
    multiline: bool,
    plain: bool,
    single: bool,
    literal: bool,
}

impl Shape {
    fn of(text: &str, dialect: Dialect) -> Self {
        if is_word(text) {
            return Self { multiline: false, plain: true, single: true, literal: true };
        }
        let mut seen = TextAnalysis::default();
        let mut indicator = text.starts_with("---") || text.starts_with("...");
        let (mut after_blank, mut before) = (true, Before::Other);
        let mut chars = text.chars().peekable();
        let mut first = true;
        while let Some(c) = chars.next() {
            let ends_word = chars.peek().is_none_or(|n| matches!(n, ' ' | '\t'));
            indicator |= match c {
                '#' => after_blank,
                ':' => ends_word,
                '?' | '-' => first && ends_word,
                _ => first && ",[]{}&*!|>'\"%@`".contains(c),
            };
            seen.character(c, dialect);
            seen.place(c, before, first, chars.peek().is_none());
            before = match c {
                ' ' => Before::Blank,
                c if is_break(c) => Before::Break,
                _ => Before::Other,
            };
            after_blank = matches!(c, ' ' | '\t') || is_break(c);
            first = false;
        }
        seen.shape(indicator)
    }
}

/// A quick check whether every style fits: most names and numbers.
fn is_word(text: &str) -> bool {
    let is_usual = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/' | b'-' | b'_' | b':' | b'=');
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !text.ends_with(':')
        && text.bytes().all(is_usual)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Other,
    Blank,
    Break,
}

/// What go-yaml's analysis records about a text.
#[derive(Default)]
struct TextAnalysis {
    special: bool,
    tab: bool,
    breaks: bool,
    edge: bool,
    blank_at_end: bool,
    break_blank: bool,
    blank_break: bool,
}

impl TextAnalysis {
    fn character(&mut self, c: char, dialect: Dialect) {
        if c == '\t' && dialect != Dialect::V2 {
            self.tab = true;
        } else if !is_printable(c) {
            self.special = true;
        }
    }

    fn place(&mut self, c: char, before: Before, first: bool, last: bool) {
        if c == ' ' {
            self.edge |= first || last;
            self.blank_at_end |= last;
            self.break_blank |= before == Before::Break;
        } else if is_break(c) {
            self.breaks = true;
            self.edge |= first || last;
            self.blank_break |= before == Before::Blank;
        }
    }

    fn shape(&self, indicator: bool) -> Shape {
        let quotable = !self.break_blank && !self.blank_break && !self.special && !self.tab;
        Shape {
            multiline: self.breaks,
            plain: quotable && !self.edge && !self.breaks && !indicator,
            single: quotable,
            literal: !self.blank_at_end && !self.blank_break && !self.special,
        }
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What go-yaml considers printable: no emoji and nothing else beyond the basic plane.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn escape(c: char) -> String {
    let letter = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        c => {
            return match u32::from(c) {
                n @ 0..=0xff => format!("\\x{n:02X}"),
                n @ 0x100..=0xffff => format!("\\u{n:04X}"),
                n => format!("\\U{n:08X}"),
            };
        }
    };
    format!("\\{letter}")
}

/// v2 and v4 pass through JSON, which turns every whole number that it writes without an exponent into an integer.
fn float_text(float: f64, dialect: Dialect) -> String {
    if float.is_nan() {
        return ".nan".to_owned();
    }
    if float.is_infinite() {
        return if float < 0.0 { "-.inf" } else { ".inf" }.to_owned();
    }
    if dialect != Dialect::V2 {
        return number::general(float);
    }
    if let Some(whole) = number::whole(float) {
        return whole.to_string();
    }
    let json = number::json(float);
    if json.parse::<u64>().is_ok() { json } else { number::general(float) }
}
