//! Plain and quoted text. Folding turns a single line break into a blank, and drops the first of several.

use std::borrow::Cow;

use super::chars::{self, BLANK, BREAK, COLON, FLOW, QUOTED};
use super::{Error, Kind, Scanner};

/// Text that stays borrowed while it is contiguous.
struct FlowText<'a> {
    whole: &'a str,
    /// The position of the borrowed piece; start and end are equal if there is none.
    start: usize,
    end: usize,
    copy: Option<String>,
}

impl<'a> FlowText<'a> {
    fn new(whole: &'a str, at: usize) -> Self {
        Self { whole, start: at, end: at, copy: None }
    }

    fn copy(&mut self) -> &mut String {
        self.copy.get_or_insert_with(|| self.whole[self.start..self.end].to_owned())
    }

    fn is_empty(&self) -> bool {
        self.copy.as_ref().map_or(self.start == self.end, String::is_empty)
    }

    fn push(&mut self, start: usize, end: usize) {
        if start == end {
            return;
        }
        if self.is_empty() && self.copy.is_none() {
            (self.start, self.end) = (start, end);
        } else {
            let piece = &self.whole[start..end];
            self.copy().push_str(piece);
        }
    }

    fn finish(self) -> Cow<'a, str> {
        match self.copy {
            Some(copy) => Cow::Owned(copy),
            None => Cow::Borrowed(&self.whole[self.start..self.end]),
        }
    }
}

/// The line breaks between two lines of a text.
#[derive(Default)]
struct Breaks {
    first: &'static str,
    /// Those that follow it.
    more: String,
    any: bool,
}

impl Breaks {
    fn push(&mut self, text: &'static str) {
        if self.any {
            self.more.push_str(text);
        } else {
            (self.any, self.first) = (true, text);
        }
    }

    fn join(&self, text: &mut String) {
        match (self.first, self.more.as_str()) {
            ("\n", "") => text.push(' '),
            ("\n", more) => text.push_str(more),
            (first, more) => {
                text.push_str(first);
                text.push_str(more);
            }
        }
    }
}

impl<'a> Scanner<'a> {
    /// A normalized line break; all but two kinds become the same.
    pub(super) fn take_break(&mut self) -> Option<&'static str> {
        let len = self.break_len(0);
        let text = match (len, self.byte(2)) {
            (0, _) => return None,
            (3, 0xa8) => "\u{2028}",
            (3, _) => "\u{2029}",
            _ => "\n",
        };
        self.skip_break(len);
        Some(text)
    }

    pub(super) fn plain_scalar(&mut self) -> Result<(Kind, Cow<'a, str>), Error> {
        let mut text = FlowText::new(self.text, self.pos);
        let mut breaks = Breaks::default();
        loop {
            if self.is_at_document_indicator() || self.byte(0) == b'#' {
                break;
            }
            let (start, end) = self.plain_line();
            if end > start {
                if breaks.any {
                    breaks.join(text.copy());
                    breaks = Breaks::default();
                }
                text.push(start, end);
            }
            if self.break_len(0) == 0 {
                break;
            }
            self.plain_breaks(&mut breaks)?;
            if !self.is_in_brackets() && self.column() < self.level {
                break;
            }
        }
        self.key_allowed |= breaks.any;
        Ok((Kind::Plain, text.finish()))
    }

    /// Scans the text of one line and returns its range without trailing blanks. Stops after the blanks.
    fn plain_line(&mut self) -> (usize, usize) {
        let stops = if self.is_in_brackets() { BLANK | BREAK | COLON | FLOW } else { BLANK | BREAK | COLON };
        let start = self.pos;
        let mut end = start;
        loop {
            let rest = self.rest();
            self.pos += rest.iter().position(|b| chars::is(*b, stops)).unwrap_or(rest.len());
            if self.pos > start && !chars::is(self.text.as_bytes()[self.pos - 1], BLANK) {
                end = self.pos;
            }
            let byte = self.byte(0);
            if chars::is(byte, BLANK) {
                self.skip_blanks();
                if self.byte(0) == b'#' {
                    return (start, end);
                }
            } else if byte == 0
                || (byte == b':' && self.is_gap(1))
                || (chars::is(byte, FLOW) && chars::is(byte, stops))
                || (chars::is(byte, BREAK) && self.break_len(0) > 0)
            {
                return (start, end);
            } else {
                self.pos += 1;
                end = self.pos;
            }
        }
    }

    fn plain_breaks(&mut self, breaks: &mut Breaks) -> Result<(), Error> {
        loop {
            if self.byte(0) == b'\t' && breaks.any && self.column() < self.level {
                return self.fail("found a tab character that violates indentation");
            }
            if self.is_blank(0) {
                self.pos += 1;
            } else if let Some(text) = self.take_break() {
                breaks.push(text);
            } else {
                return Ok(());
            }
        }
    }

    pub(super) fn quoted_scalar(&mut self, quote: u8) -> Result<(Kind, Cow<'a, str>), Error> {
        self.pos += 1;
        let mut text = FlowText::new(self.text, self.pos);
        loop {
            if self.is_at_document_indicator() {
                return self.fail("found unexpected document indicator");
            }
            if self.byte(0) == 0 {
                return self.fail("found unexpected end of stream");
            }
            let escaped = self.quoted_line(quote, &mut text)?;
            if self.byte(0) == quote {
                self.pos += 1;
                return Ok((Kind::Quoted, text.finish()));
            }
            self.quoted_breaks(escaped, &mut text);
        }
    }

    /// Text up to blanks before a line break, the closing quote, or the end; true if an escaped break was skipped.
    fn quoted_line(&mut self, quote: u8, text: &mut FlowText<'a>) -> Result<bool, Error> {
        let mut start = self.pos;
        loop {
            let rest = self.rest();
            self.pos += rest.iter().position(|b| chars::is(*b, QUOTED | BLANK | BREAK)).unwrap_or(rest.len());
            let byte = self.byte(0);
            if chars::is(byte, BLANK) {
                let end = self.pos;
                self.skip_blanks();
                if self.break_len(0) > 0 {
                    text.push(start, end);
                    return Ok(false);
                }
            } else if byte == 0 || (chars::is(byte, BREAK) && self.break_len(0) > 0) {
                text.push(start, self.pos);
                return Ok(false);
            } else if byte == b'\\' && quote == b'"' {
                text.push(start, self.pos);
                if self.break_len(1) > 0 {
                    self.pos += 1;
                    self.skip_break(self.break_len(0));
                    return Ok(true);
                }
                let c = self.escape()?;
                text.copy().push(c);
                start = self.pos;
            } else if byte == quote && quote == b'\'' && self.byte(1) == b'\'' {
                self.pos += 1;
                text.push(start, self.pos);
                self.pos += 1;
                start = self.pos;
            } else if byte == quote {
                text.push(start, self.pos);
                return Ok(false);
            } else {
                self.pos += 1;
            }
        }
    }

    /// Blanks and line breaks; `escaped`: after an escaped line break.
    fn quoted_breaks(&mut self, escaped: bool, text: &mut FlowText<'a>) {
        let mut breaks = Breaks { any: escaped, ..Breaks::default() };
        loop {
            if self.is_blank(0) {
                self.pos += 1;
            } else if let Some(text) = self.take_break() {
                breaks.push(text);
            } else {
                break;
            }
        }
        if breaks.any {
            breaks.join(text.copy());
        }
    }

    /// The character of an escape sequence.
    fn escape(&mut self) -> Result<char, Error> {
        let (c, digits) = match self.byte(1) {
            b'0' => ('\0', 0),
            b'a' => ('\u{7}', 0),
            b'b' => ('\u{8}', 0),
            b't' | b'\t' => ('\t', 0),
            b'n' => ('\n', 0),
            b'v' => ('\u{b}', 0),
            b'f' => ('\u{c}', 0),
            b'r' => ('\r', 0),
            b'e' => ('\u{1b}', 0),
            b' ' => (' ', 0),
            b'"' => ('"', 0),
            b'\'' => ('\'', 0),
            b'\\' => ('\\', 0),
            b'N' => ('\u{85}', 0),
            b'_' => ('\u{a0}', 0),
            b'L' => ('\u{2028}', 0),
            b'P' => ('\u{2029}', 0),
            b'x' => ('\0', 2),
            b'u' => ('\0', 4),
            b'U' => ('\0', 8),
            _ => return self.fail("found unknown escape character"),
        };
        self.pos += 2;
        if digits == 0 {
            return Ok(c);
        }
        let mut value = 0;
        for i in 0..digits {
            let Some(digit) = char::from(self.byte(i)).to_digit(16) else {
                return self.fail("did not find expected hexdecimal number");
            };
            value = (value << 4) + digit;
        }
        let Some(c) = char::from_u32(value) else {
            return self.fail("found invalid Unicode character escape code");
        };
        self.pos += digits;
        Ok(c)
    }
}
