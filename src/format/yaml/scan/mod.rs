//! Turns text into tokens by the rules of YAML 1.1 as go-yaml applies them. The scanner imitates what go-yaml accepts
//! and refuses beyond the specification, and where it looks ahead, because the errors must be the same.
//!
//! The scanner reads the text once. Text without escapes is borrowed from the document.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::{Error, Go};
use chars::{BLANK, BREAK, INDICATOR};

mod block;
mod chars;
mod flow;
mod keys;
mod property;
mod skim;

/// A position in the text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    /// A number of bytes.
    pos: usize,
    /// The first line has number 0.
    pub(super) line: usize,
    /// In bytes, counted from 0: indented content has only ASCII before it.
    column: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    StreamEnd,
    VersionDirective,
    TagDirective,
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias,
    Anchor,
    Tag,
    /// Text without quotes.
    Plain,
    /// Text in quotes or in a block.
    Quoted,
}

#[derive(Clone, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) mark: Mark,
    /// A scalar, the name of an anchor, the end of a tag, the prefix that a directive defines, or a version.
    pub(super) text: Cow<'a, str>,
    /// The handle of a tag: `!`, `!!`, `!name!` or empty.
    pub(super) handle: &'a str,
}

/// The start of a possible key, which becomes one if a `:` follows.
#[derive(Clone, Copy)]
struct SimpleKey {
    possible: bool,
    /// Only a key may be here.
    required: bool,
    /// The number of its first token.
    number: usize,
    /// Whether that token must wait until its role is known.
    holds: bool,
    mark: Mark,
}

pub(super) struct Scanner<'a> {
    text: &'a str,
    pos: usize,
    line: usize,
    /// The offset of column 0.
    line_start: usize,
    tokens: VecDeque<Token<'a>>,
    /// The next token, once it is known.
    next: Option<(Kind, Mark)>,
    /// The number of tokens returned so far.
    taken: usize,
    ended: bool,
    /// The least indentation of content in the current block: 0 outside of all blocks.
    level: usize,
    levels: Vec<usize>,
    /// One for the block, and one for each open bracket.
    keys: Vec<SimpleKey>,
    key_allowed: bool,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let key =
            SimpleKey { possible: false, required: false, number: 0, holds: false, mark: Mark::default() };
        Self {
            text,
            pos: 0,
            line: 0,
            line_start: 0,
            tokens: VecDeque::new(),
            next: None,
            taken: 0,
            ended: false,
            level: 0,
            levels: Vec::new(),
            keys: vec![key],
            key_allowed: true,
        }
    }

    /// The position of a forbidden character.
    pub(super) fn forbidden(text: &str) -> Option<usize> {
        chars::forbidden(text)
    }

    /// The position up to which the text was read.
    pub(super) fn position(&self) -> usize {
        self.pos
    }

    /// Peeks at the next token. The last token is the end of the stream, which stays.
    pub(super) fn peek(&mut self) -> Result<(Kind, Mark), Error> {
        if let Some(next) = self.next {
            return Ok(next);
        }
        while self.wants_more()? {
            self.fetch()?;
        }
        let next =
            self.tokens.front().map_or((Kind::StreamEnd, self.mark()), |token| (token.kind, token.mark));
        self.next = Some(next);
        Ok(next)
    }

    /// Whether the peeked token has this text.
    pub(super) fn is_next(&self, text: &str) -> bool {
        self.tokens.front().is_some_and(|token| token.text == text)
    }

    /// Takes the peeked token.
    pub(super) fn take(&mut self) -> Token<'a> {
        self.next = None;
        match self.tokens.pop_front() {
            Some(token) => {
                self.taken += 1;
                token
            }
            None => self.token(Kind::StreamEnd, self.mark()),
        }
    }

    /// An error at a position. `scanner`: go-yaml reports the error with its own line number, else with the
    /// number of the line above.
    pub(super) fn error_at(&self, mark: Mark, message: &'static str, scanner: bool) -> Error {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let go_line = if mark.line == 0 { 0 } else { count(mark.line) + u64::from(scanner) };
        Error { message: message.into(), go: Go::Syntax(go_line), ..self.place(mark) }
    }

    /// The place of an error, without a message.
    pub(super) fn place(&self, mark: Mark) -> Error {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let before = self.text.get(mark.pos.saturating_sub(mark.column)..mark.pos);
        let column = before.map_or(mark.column, |before| before.chars().count());
        Error {
            line: count(mark.line) + 1,
            column: count(column) + 1,
            message: "".into(),
            go_message: None,
            go: Go::Decode,
        }
    }

    fn fail<T>(&self, message: &'static str) -> Result<T, Error> {
        Err(self.error_at(self.mark(), message, true))
    }

    fn token(&self, kind: Kind, mark: Mark) -> Token<'a> {
        Token { kind, mark, text: Cow::Borrowed(""), handle: "" }
    }

    fn mark(&self) -> Mark {
        Mark { pos: self.pos, line: self.line, column: self.column() }
    }

    fn column(&self) -> usize {
        self.pos - self.line_start
    }

    fn is_in_brackets(&self) -> bool {
        self.keys.len() > 1
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.pos..]
    }

    /// The byte `ahead` bytes further on; 0 beyond the end, because no text contains it.
    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.pos + ahead).copied().unwrap_or(0)
    }

    fn is_blank(&self, ahead: usize) -> bool {
        chars::is(self.byte(ahead), BLANK)
    }

    /// A blank, a line break, or the end.
    fn is_gap(&self, ahead: usize) -> bool {
        let byte = self.byte(ahead);
        byte == 0 || chars::is(byte, BLANK) || (chars::is(byte, BREAK) && self.break_len(ahead) > 0)
    }

    fn break_len(&self, ahead: usize) -> usize {
        if !chars::is(self.byte(ahead), BREAK) {
            return 0;
        }
        self.text.as_bytes().get(self.pos + ahead..).map_or(0, chars::break_len)
    }

    fn skip_break(&mut self, len: usize) {
        self.pos += len;
        self.line += 1;
        self.line_start = self.pos;
    }

    fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.pos += 1;
        }
    }

    /// Skips to the next line break or the end.
    fn skip_line(&mut self) {
        loop {
            let rest = self.rest();
            let Some(at) = rest.iter().position(|b| chars::is(*b, BREAK)) else {
                self.pos += rest.len();
                return;
            };
            self.pos += at;
            if self.break_len(0) > 0 {
                return;
            }
            self.pos += 1;
        }
    }

    /// `---` or `...` at the beginning of a line.
    fn is_at_document_indicator(&self) -> bool {
        self.column() == 0
            && (self.rest().starts_with(b"---") || self.rest().starts_with(b"..."))
            && self.is_gap(3)
    }
}

/// One token after the other.
impl<'a> Scanner<'a> {
    fn fetch(&mut self) -> Result<(), Error> {
        self.skip_to_token();
        self.close_blocks(self.column() + 1);
        if self.pos >= self.text.len() {
            return self.fetch_stream_end();
        }
        let byte = self.byte(0);
        if self.column() == 0 {
            if byte == b'%' {
                return self.fetch_directive();
            }
            if self.is_at_document_indicator() {
                let kind = if byte == b'-' { Kind::DocumentStart } else { Kind::DocumentEnd };
                return self.fetch_document_indicator(kind);
            }
        }
        let brackets = self.is_in_brackets();
        match byte {
            b'[' => self.fetch_opening(Kind::FlowSequenceStart),
            b'{' => self.fetch_opening(Kind::FlowMappingStart),
            b']' => self.fetch_closing(Kind::FlowSequenceEnd),
            b'}' => self.fetch_closing(Kind::FlowMappingEnd),
            b',' => {
                self.remove_key()?;
                self.key_allowed = true;
                self.push_indicator(Kind::FlowEntry);
                Ok(())
            }
            b'-' if self.is_gap(1) => self.fetch_block_entry(),
            b'?' if brackets || self.is_gap(1) => self.fetch_key(),
            b':' if brackets || self.is_gap(1) => self.fetch_value(),
            b'*' | b'&' | b'!' => self.fetch_property(byte),
            b'|' | b'>' if !brackets => {
                self.remove_key()?;
                self.key_allowed = true;
                self.push_scalar(|s| s.block_scalar(byte == b'|'))
            }
            b'\'' | b'"' => self.fetch_text(|s| s.quoted_scalar(byte)),
            b'-' | b'?' | b':' => self.fetch_text(Self::plain_scalar),
            _ if chars::is(byte, INDICATOR | BLANK) => {
                self.fail("found character that cannot start any token")
            }
            _ => self.fetch_text(Self::plain_scalar),
        }
    }

    fn skip_to_token(&mut self) {
        loop {
            let tabs = self.is_in_brackets() || !self.key_allowed;
            while self.byte(0) == b' ' || (tabs && self.byte(0) == b'\t') {
                self.pos += 1;
            }
            if self.byte(0) == b'#' {
                self.skip_line();
            }
            match self.break_len(0) {
                0 => return,
                len => self.skip_break(len),
            }
            self.key_allowed |= !self.is_in_brackets();
        }
    }

    fn push_indicator(&mut self, kind: Kind) {
        let token = self.token(kind, self.mark());
        self.pos += 1;
        self.tokens.push_back(token);
    }

    fn fetch_stream_end(&mut self) -> Result<(), Error> {
        if self.column() != 0 {
            self.skip_break(0);
        }
        self.close_blocks(0);
        self.remove_key()?;
        self.key_allowed = false;
        self.ended = true;
        let end = self.token(Kind::StreamEnd, self.mark());
        self.tokens.push_back(end);
        Ok(())
    }

    fn fetch_directive(&mut self) -> Result<(), Error> {
        self.close_blocks(0);
        self.remove_key()?;
        self.key_allowed = false;
        let token = self.directive()?;
        self.tokens.push_back(token);
        Ok(())
    }

    fn fetch_document_indicator(&mut self, kind: Kind) -> Result<(), Error> {
        self.close_blocks(0);
        self.remove_key()?;
        self.key_allowed = false;
        self.push_indicator(kind);
        self.pos += 2;
        Ok(())
    }

    fn fetch_opening(&mut self, kind: Kind) -> Result<(), Error> {
        self.save_key()?;
        self.open_bracket();
        self.key_allowed = true;
        self.push_indicator(kind);
        Ok(())
    }

    fn fetch_closing(&mut self, kind: Kind) -> Result<(), Error> {
        self.remove_key()?;
        self.close_bracket();
        self.key_allowed = false;
        self.push_indicator(kind);
        Ok(())
    }

    fn fetch_block_entry(&mut self) -> Result<(), Error> {
        // Within brackets the parser reports the error.
        if !self.is_in_brackets() {
            if !self.key_allowed {
                return self.fail("block sequence entries are not allowed in this context");
            }
            self.open_block(self.column(), None, Kind::BlockSequenceStart, self.mark());
        }
        self.remove_key()?;
        self.key_allowed = true;
        self.push_indicator(Kind::BlockEntry);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), Error> {
        let brackets = self.is_in_brackets();
        if !brackets {
            if !self.key_allowed {
                return self.fail("mapping keys are not allowed in this context");
            }
            self.open_block(self.column(), None, Kind::BlockMappingStart, self.mark());
        }
        self.remove_key()?;
        self.key_allowed = !brackets;
        self.push_indicator(Kind::Key);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), Error> {
        let at = self.keys.len() - 1;
        if self.is_key_valid(at)? {
            let SimpleKey { number, mark, .. } = self.keys[at];
            let key = self.token(Kind::Key, mark);
            self.insert(Some(number), key);
            self.open_block(mark.column, Some(number), Kind::BlockMappingStart, mark);
            (self.keys[at].possible, self.keys[at].holds) = (false, false);
            self.key_allowed = false;
        } else {
            let brackets = self.is_in_brackets();
            if !brackets {
                if !self.key_allowed {
                    return self.fail("mapping values are not allowed in this context");
                }
                self.open_block(self.column(), None, Kind::BlockMappingStart, self.mark());
            }
            self.key_allowed = !brackets;
        }
        self.push_indicator(Kind::Value);
        Ok(())
    }

    fn fetch_property(&mut self, byte: u8) -> Result<(), Error> {
        self.save_key()?;
        self.key_allowed = false;
        let token = match byte {
            b'!' => self.tag()?,
            b'*' => self.anchor(Kind::Alias)?,
            _ => self.anchor(Kind::Anchor)?,
        };
        self.tokens.push_back(token);
        Ok(())
    }

    fn fetch_text(
        &mut self,
        scan: impl FnOnce(&mut Self) -> Result<(Kind, Cow<'a, str>), Error>,
    ) -> Result<(), Error> {
        self.save_key()?;
        self.key_allowed = false;
        self.push_scalar(scan)
    }

    fn push_scalar(
        &mut self,
        scan: impl FnOnce(&mut Self) -> Result<(Kind, Cow<'a, str>), Error>,
    ) -> Result<(), Error> {
        let mark = self.mark();
        let (kind, text) = scan(self)?;
        self.tokens.push_back(Token { kind, mark, text, handle: "" });
        Ok(())
    }
}
