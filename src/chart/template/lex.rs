//! Splits a template into tokens, as Go's `text/template/parse` does: the same words, trim markers and errors.

use std::fmt;

use super::unquote::{is_print, quote};
use crate::limits::TEMPLATE_TOKENS_MAX;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Error,
    Bool,
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    Eof,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    // Keywords, and the dot, which Go counts as one.
    Block,
    Break,
    Continue,
    Dot,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

impl Kind {
    fn keyword(word: &str) -> Option<Self> {
        Some(match word {
            "block" => Self::Block,
            "break" => Self::Break,
            "continue" => Self::Continue,
            "define" => Self::Define,
            "else" => Self::Else,
            "end" => Self::End,
            "if" => Self::If,
            "nil" => Self::Nil,
            "range" => Self::Range,
            "template" => Self::Template,
            "with" => Self::With,
            _ => return None,
        })
    }

    fn is_keyword(self) -> bool {
        use Kind::{Block, Break, Continue, Define, Dot, Else, End, If, Nil, Range, Template, With};
        matches!(
            self,
            Block | Break | Continue | Dot | Define | Else | End | If | Nil | Range | Template | With
        )
    }
}

/// A token of the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    /// The offset in the text, in bytes.
    pub(super) pos: usize,
    pub(super) text: &'a str,
}

/// The line of an offset, counted from 1.
pub(super) fn line(text: &str, pos: usize) -> u32 {
    let above = text.as_bytes().get(..pos).unwrap_or_default().iter().filter(|b| **b == b'\n').count();
    u32::try_from(above).unwrap_or(u32::MAX).saturating_add(1)
}

/// The tokens of a template.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    /// All tokens; the last one is the end or an error.
    pub(super) list: Vec<Token<'a>>,
    /// The message of the error.
    pub(super) error: String,
}

/// The name of a token in Go's messages.
impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Eof | Kind::Error => f.write_str("EOF"),
            kind if kind.is_keyword() => write!(f, "<{}>", self.text),
            _ if self.text.len() > 10 => {
                let cut: String = self.text.chars().take(10).collect();
                write!(f, "{}...", quote(cut.as_bytes()))
            }
            _ => f.write_str(&quote(self.text.as_bytes())),
        }
    }
}

/// Splits a template into tokens.
pub(super) fn tokens(text: &str) -> Tokens<'_> {
    let tokens = Vec::with_capacity(TOKENS_USUAL.min(text.len() / 4));
    let mut lexer = Lexer { text, pos: 0, start: 0, parens: 0, tokens };
    let error = lexer.run().err().unwrap_or_default();
    Tokens { list: lexer.tokens, error }
}

/// Enough capacity for the tokens of most files.
const TOKENS_USUAL: usize = 256;
const LEFT: &str = "{{";
const RIGHT: &str = "}}";

struct Lexer<'a> {
    text: &'a str,
    pos: usize,
    start: usize,
    parens: u32,
    tokens: Vec<Token<'a>>,
}

/// The next state; `Err` is the message of an error token.
type LexerStep<T> = Result<T, String>;

impl<'a> Lexer<'a> {
    fn run(&mut self) -> LexerStep<()> {
        let done = loop {
            match self.text_or_comment() {
                Ok(true) => {}
                other => break other.map(|_| ()),
            }
        };
        match &done {
            Ok(()) => self.emit(Kind::Eof),
            Err(_) => {
                self.tokens.push(Token { kind: Kind::Error, pos: self.start, text: "" });
            }
        }
        done
    }

    /// Text up to an action, and the start of the action. False at the end.
    fn text_or_comment(&mut self) -> LexerStep<bool> {
        let Some(found) = find_left(self.rest()) else {
            self.pos = self.text.len();
            if self.pos > self.start {
                self.emit(Kind::Text);
            }
            return Ok(false);
        };
        let delim = self.pos + found;
        let text = &self.text[self.pos..delim];
        let trims = has_left_trim(&self.text.as_bytes()[delim + LEFT.len()..]);
        let kept = if trims {
            text.as_bytes().iter().rposition(|b| !is_space(*b)).map_or(0, |last| last + 1)
        } else {
            text.len()
        };
        self.pos += kept;
        if kept > 0 {
            self.emit(Kind::Text);
        }
        self.pos = delim;
        self.ignore();
        self.left_delim(trims)?;
        Ok(true)
    }

    fn left_delim(&mut self, trims: bool) -> LexerStep<()> {
        let after_marker = self.pos + LEFT.len() + if trims { 2 } else { 0 };
        if self.text.as_bytes()[after_marker..].starts_with(b"/*") {
            self.pos = after_marker;
            self.ignore();
            return self.comment();
        }
        self.pos += LEFT.len();
        self.emit(Kind::LeftDelim);
        self.pos = after_marker;
        self.ignore();
        self.parens = 0;
        while !self.inside_action()? {
            if self.tokens.len() > TEMPLATE_TOKENS_MAX {
                return Err(format!("template has more than {TEMPLATE_TOKENS_MAX} words"));
            }
        }
        Ok(())
    }

    fn comment(&mut self) -> LexerStep<()> {
        let body = self.pos + 2;
        let end = self.text[body..].find("*/").ok_or("unclosed comment")?;
        self.pos = body + end + 2;
        let trims = self.at_right_delim().ok_or("comment ends before closing delimiter")?;
        self.skip_right_delim(trims);
        self.ignore();
        Ok(())
    }

    /// One token within an action; true if it was the closing one.
    fn inside_action(&mut self) -> LexerStep<bool> {
        if let Some(trims) = self.at_right_delim() {
            if self.parens > 0 {
                return Err("unclosed left paren".to_owned());
            }
            self.right_delim(trims);
            return Ok(true);
        }
        let Some(c) = self.next() else { return Err("unclosed action".to_owned()) };
        match c {
            ' ' | '\t' | '\r' | '\n' => return Ok(self.space()),
            '=' => self.emit(Kind::Assign),
            ':' if self.next() == Some('=') => self.emit(Kind::Declare),
            ':' => return Err("expected :=".to_owned()),
            '|' => self.emit(Kind::Pipe),
            '"' => self.quoted('"', Kind::String, "unterminated quoted string")?,
            '\'' => self.quoted('\'', Kind::CharConstant, "unterminated character constant")?,
            '`' => self.raw_quoted()?,
            '$' => self.field_or_variable(Kind::Variable)?,
            // At the very end of the text, Go reads the dot as a number.
            '.' if self.peek().is_some_and(|c| !c.is_ascii_digit()) => self.field_or_variable(Kind::Field)?,
            '.' | '+' | '-' | '0'..='9' => {
                self.pos -= 1;
                self.number()?;
            }
            _ if is_alphanumeric(c) => self.identifier()?,
            '(' => {
                self.parens += 1;
                self.emit(Kind::LeftParen);
            }
            ')' => {
                self.parens = self.parens.checked_sub(1).ok_or("unexpected right paren")?;
                self.emit(Kind::RightParen);
            }
            ' '..='~' => self.emit(Kind::Char),
            _ => return Err(format!("unrecognized character in action: {}", code_point(c))),
        }
        Ok(false)
    }

    /// A run of spaces, the first of which is already consumed. The last one may belong to a trim marker.
    fn space(&mut self) -> bool {
        while self.byte().is_some_and(is_space) {
            self.pos += 1;
        }
        if has_right_trim(&self.text.as_bytes()[self.pos - 1..]) {
            self.pos -= 1;
            if self.pos == self.start {
                self.right_delim(true);
                return true;
            }
        }
        self.emit(Kind::Space);
        false
    }

    fn right_delim(&mut self, trims: bool) {
        if trims {
            self.pos += 2;
            self.ignore();
        }
        self.pos += RIGHT.len();
        self.emit(Kind::RightDelim);
        if trims {
            self.skip_spaces();
        }
    }

    fn skip_right_delim(&mut self, trims: bool) {
        self.pos += RIGHT.len() + if trims { 2 } else { 0 };
        if trims {
            self.skip_spaces();
        }
    }

    fn skip_spaces(&mut self) {
        while self.byte().is_some_and(is_space) {
            self.pos += 1;
        }
        self.ignore();
    }

    fn quoted(&mut self, end: char, kind: Kind, unterminated: &str) -> LexerStep<()> {
        loop {
            match self.next() {
                Some('\\') if !matches!(self.next(), None | Some('\n')) => {}
                None | Some('\n' | '\\') => return Err(unterminated.to_owned()),
                Some(c) if c == end => break,
                Some(_) => {}
            }
        }
        self.emit(kind);
        Ok(())
    }

    fn raw_quoted(&mut self) -> LexerStep<()> {
        let end = self.rest().find('`').ok_or("unterminated raw quoted string")?;
        self.pos += end + 1;
        self.emit(Kind::RawString);
        Ok(())
    }

    fn field_or_variable(&mut self, kind: Kind) -> LexerStep<()> {
        if self.at_terminator() {
            self.emit(if kind == Kind::Variable { kind } else { Kind::Dot });
            return Ok(());
        }
        self.word()?;
        self.emit(kind);
        Ok(())
    }

    fn identifier(&mut self) -> LexerStep<()> {
        self.word()?;
        let word = &self.text[self.start..self.pos];
        self.emit(match word {
            "true" | "false" => Kind::Bool,
            _ => Kind::keyword(word).unwrap_or(Kind::Identifier),
        });
        Ok(())
    }

    fn word(&mut self) -> LexerStep<()> {
        loop {
            let rest = self.rest();
            let end = rest.bytes().position(|b| !b.is_ascii_alphanumeric() && b != b'_');
            self.pos += end.unwrap_or(rest.len());
            if !self.peek().is_some_and(|c| !c.is_ascii() && is_alphanumeric(c)) {
                break;
            }
            self.next();
        }
        match self.peek() {
            Some(c) if !self.at_terminator() => Err(format!("bad character {}", code_point(c))),
            _ => Ok(()),
        }
    }

    /// Whether an identifier may end here.
    fn at_terminator(&self) -> bool {
        match &self.text.as_bytes()[self.pos..] {
            [] | [b'.' | b',' | b'|' | b':' | b')' | b'(', ..] | [b'}', b'}', ..] => true,
            [b, ..] => is_space(*b),
        }
    }

    fn number(&mut self) -> LexerStep<()> {
        let mut good = self.scan_number();
        let mut kind = Kind::Number;
        if good && matches!(self.peek(), Some('+' | '-')) {
            kind = Kind::Complex;
            good = self.scan_number() && self.text[..self.pos].ends_with('i');
        }
        if !good {
            let text = &self.text[self.start..self.pos];
            return Err(format!("bad number syntax: {}", quote(text.as_bytes())));
        }
        self.emit(kind);
        Ok(())
    }

    fn scan_number(&mut self) -> bool {
        self.accept("+-");
        let mut digits = "0123456789_";
        if self.accept("0") {
            if self.accept("xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        if (digits.len() == 11 && self.accept("eE")) || (digits.len() == 23 && self.accept("pP")) {
            self.accept("+-");
            self.accept_run("0123456789_");
        }
        self.accept("i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            return false;
        }
        true
    }

    fn accept(&mut self, valid: &str) -> bool {
        let found = self.peek().is_some_and(|c| valid.contains(c));
        if found {
            self.pos += 1;
        }
        found
    }

    fn accept_run(&mut self, valid: &str) {
        while self.accept(valid) {}
    }

    /// Whether an action ends here, and if so, whether with a trim marker.
    fn at_right_delim(&self) -> Option<bool> {
        match &self.text.as_bytes()[self.pos..] {
            [b'}', b'}', ..] => Some(false),
            rest => has_right_trim(rest).then_some(true),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.pos..]
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    fn peek(&self) -> Option<char> {
        match self.byte() {
            Some(b) if !b.is_ascii() => self.rest().chars().next(),
            byte => byte.map(char::from),
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        Some(c)
    }

    fn emit(&mut self, kind: Kind) {
        let text = &self.text[self.start..self.pos];
        self.tokens.push(Token { kind, pos: self.start, text });
        self.ignore();
    }

    fn ignore(&mut self) {
        self.start = self.pos;
    }
}

/// The start of the next action. Searches for its first character, which is faster than searching for both.
fn find_left(text: &str) -> Option<usize> {
    text.match_indices('{').map(|(at, _)| at).find(|at| text.as_bytes().get(*at + 1) == Some(&b'{'))
}

fn has_left_trim(rest: &[u8]) -> bool {
    matches!(rest, [b'-', b, ..] if is_space(*b))
}

/// Whether an action ends here with a trim marker.
fn has_right_trim(rest: &[u8]) -> bool {
    matches!(rest, [b, b'-', b'}', b'}', ..] if is_space(*b))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Go's `%#U`.
fn code_point(c: char) -> String {
    let code = u32::from(c);
    if is_print(c) { format!("U+{code:04X} '{c}'") } else { format!("U+{code:04X}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: &str) {
        let got: Vec<String> =
            tokens(text).list.iter().map(|t| format!("{:?}:{t}@{}", t.kind, line(text, t.pos))).collect();
        assert_eq!(got.join(" "), want, "{text}");
    }

    #[test]
    fn actions_text_and_trim_markers() {
        check(
            "a {{- .x -}} \n b",
            r#"Text:"a"@1 LeftDelim:"{{"@1 Field:".x"@1 RightDelim:"}}"@1 Text:"b"@2 Eof:EOF@2"#,
        );
        check("{{-3}}", r#"LeftDelim:"{{"@1 Number:"-3"@1 RightDelim:"}}"@1 Eof:EOF@1"#);
        check("{{/* c */ -}}\n x", r#"Text:"x"@2 Eof:EOF@2"#);
        check(
            "{{\n$a := 1\n-}}",
            "LeftDelim:\"{{\"@1 Space:\"\\n\"@1 Variable:\"$a\"@2 Space:\" \"@2 Declare:\":=\"@2 Space:\" \"@2 \
             Number:\"1\"@2 RightDelim:\"}}\"@3 Eof:EOF@3",
        );
        check("{{if .}}", r#"LeftDelim:"{{"@1 If:<if>@1 Space:" "@1 Dot:<.>@1 RightDelim:"}}"@1 Eof:EOF@1"#);
    }

    #[test]
    fn errors_are_those_of_go() {
        for (text, want) in [
            ("{{", "unclosed action"),
            ("{{ \"x }}", "unterminated quoted string"),
            ("{{ `x }}", "unterminated raw quoted string"),
            ("{{ 'x }}", "unterminated character constant"),
            ("{{/* x", "unclosed comment"),
            ("{{/* x */ }}", "comment ends before closing delimiter"),
            ("{{ (1 }}", "unclosed left paren"),
            ("{{ 1) }}", "unexpected right paren"),
            ("{{ 3k }}", "bad number syntax: \"3k\""),
            ("{{ $x+2 }}", "bad character U+002B '+'"),
            ("{{ \u{1} }}", "unrecognized character in action: U+0001"),
            ("{{ a:b }}", "expected :="),
        ] {
            let all = tokens(text);
            assert_eq!(all.list.last().map(|t| t.kind), Some(Kind::Error), "{text}");
            assert_eq!(all.error, want, "{text}");
        }
    }
}
