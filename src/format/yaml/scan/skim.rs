//! Skips an unwanted value line by line, without tokens, as long as it certainly has no errors: maps and lists in
//! blocks, one-line scalars, short brackets, block scalars. The scanner handles everything else.

use super::Scanner;
use super::chars::{self, BREAK};

/// Nesting depth of blocks; far below what documents may have.
const DEPTH_MAX: usize = 50;
/// The scanner might refuse a longer key.
const KEY_BYTES_MAX: usize = 500;

/// The properties of a line.
#[derive(Clone, Copy)]
struct SkimmedLine {
    /// The column of its first character that is not blank.
    column: usize,
    /// The range from the first to the last character that is not blank.
    start: usize,
    end: usize,
    /// The position of the first `:` that a blank or the end follows, and the number of such colons.
    colon: usize,
    colons: usize,
    /// Only printable ASCII.
    is_printable: bool,
    has_comment: bool,
}

/// The lines from a position on.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
    count: usize,
}

impl<'a> Lines<'a> {
    /// Reads the next line.
    fn next(&mut self) -> Option<SkimmedLine> {
        let mut at = self.at;
        while self.bytes.get(at) == Some(&b' ') {
            at += 1;
        }
        let (column, start) = (at - self.at, at);
        let (mut end, mut colon, mut colons) = (at, 0, 0);
        let (mut is_printable, mut has_comment) = (true, false);
        for byte in self.bytes.get(at..).filter(|rest| column > 0 || !rest.is_empty())? {
            match byte {
                b'\n' => break,
                b' ' => {}
                b':' if matches!(self.bytes.get(at + 1), None | Some(b' ' | b'\n')) => {
                    colon = if colons == 0 { at } else { colon };
                    (colons, end) = (colons + 1, at + 1);
                }
                _ => {
                    is_printable &= (b'!'..=b'~').contains(byte);
                    has_comment |= *byte == b'#' && self.bytes.get(at.wrapping_sub(1)) == Some(&b' ');
                    end = at + 1;
                }
            }
            at += 1;
        }
        let ended = at < self.bytes.len();
        self.count += usize::from(ended);
        self.at = at + usize::from(ended);
        Some(SkimmedLine { column, start, end, colon, colons, is_printable, has_comment })
    }

    /// Puts the last line back.
    fn put_back(&mut self, at: usize) {
        self.count -= usize::from(self.bytes.get(self.at.wrapping_sub(1)) == Some(&b'\n'));
        self.at = at;
    }
}

/// The columns of the open blocks, and whether they are lists.
type Blocks = Vec<(usize, bool)>;

impl Scanner<'_> {
    /// Skips the value of a key in a block, up to the next key at the same or a lower indentation. Returns false,
    /// without any effect, if the value may be wrong or is hard to judge.
    pub(in crate::format::yaml) fn skim(&mut self) -> bool {
        if !self.tokens.is_empty() || self.is_in_brackets() || self.level == 0 {
            return false;
        }
        let mut lines = Lines { bytes: self.text.as_bytes(), at: self.pos, count: 0 };
        if lines.skim(self.level - 1).is_none() {
            return false;
        }
        (self.pos, self.line) = (lines.at, self.line + lines.count);
        self.line_start = self.text[..self.pos].rfind('\n').map_or(0, |at| at + 1);
        self.key_allowed = true;
        true
    }
}

impl Lines<'_> {
    /// Skips the value of a key at a column.
    fn skim(&mut self, column: usize) -> Option<()> {
        let mut blocks: Blocks = vec![(column, false)];
        let mut pending = match self.next() {
            Some(first) if first.start < first.end => self.value(&first, first.start, column, 0)?,
            _ => Some(column),
        };
        loop {
            let at = self.at;
            let Some(line) = self.next() else { return Some(()) };
            let content = self.bytes.get(line.start..line.end)?;
            if content.is_empty() || (content[0] == b'#' && line.is_printable) {
                continue;
            }
            let item = content.starts_with(b"- ");
            if line.column < column || (line.column == column && !item) {
                self.put_back(at);
                return (content[0].is_ascii_alphanumeric() || content[0] == b'_').then_some(());
            }
            enter(&mut blocks, pending.take(), line.column, item)?;
            pending = self.entry(&mut blocks, &line)?;
        }
    }

    /// A key with its value, or an item. Returns the column of a key whose value is on the following lines.
    fn entry(&mut self, blocks: &mut Blocks, line: &SkimmedLine) -> Option<Option<usize>> {
        let (mut column, mut at) = (line.column, line.start);
        let mut parent = None;
        while self.bytes.get(at..line.end)?.starts_with(b"- ") {
            let from = at;
            at += 1;
            while self.bytes.get(at) == Some(&b' ') {
                at += 1;
            }
            parent = Some(column);
            column += at - from;
            let nested = self.bytes.get(at..line.end)?.starts_with(b"- ");
            if nested || self.is_key(line, at) {
                blocks.push((column, nested));
            }
        }
        if blocks.len() >= DEPTH_MAX {
            return None;
        }
        if !self.is_key(line, at) {
            return self.value(line, at, parent?, 0);
        }
        at = line.colon + 1;
        while at < line.end && self.bytes.get(at) == Some(&b' ') {
            at += 1;
        }
        if at >= line.end { Some(Some(column)) } else { self.value(line, at, column, 1) }
    }

    /// Whether a plain key and its colon are at a position.
    fn is_key(&self, line: &SkimmedLine, at: usize) -> bool {
        let key = self.bytes.get(at..line.colon).unwrap_or_default();
        line.colons > 0 && key.len() <= KEY_BYTES_MAX && is_word(key)
    }

    /// A scalar or brackets on one line, after `colons` colons, or a block scalar within a block at `column`.
    fn value(
        &mut self,
        line: &SkimmedLine,
        start: usize,
        column: usize,
        colons: usize,
    ) -> Option<Option<usize>> {
        let text = self.bytes.get(start..line.end)?;
        let good = match text {
            [b'|' | b'>'] | [b'|' | b'>', b'-' | b'+'] => self.block_scalar(column).is_some(),
            _ if !line.is_printable => false,
            [b'\'', middle @ .., b'\''] => !middle.contains(&b'\''),
            [b'"', middle @ .., b'"'] => is_escaped(middle),
            b"[]" | b"{}" => true,
            [b'[', middle @ .., b']'] => words(middle, false),
            [b'{', middle @ .., b'}'] => words(middle, true),
            _ => is_plain(text) && line.colons == colons && !line.has_comment,
        };
        good.then_some(None)
    }

    /// The lines of a block scalar: the first one determines the indentation.
    fn block_scalar(&mut self, column: usize) -> Option<()> {
        let mut indent = 0;
        loop {
            let at = self.at;
            let Some(line) = self.next() else { break };
            if line.start == line.end {
                // Leading blanks matter if there are more than the indentation.
                if indent == 0 && line.column > 0 {
                    return None;
                }
            } else if line.column <= column {
                self.put_back(at);
                break;
            } else {
                indent = if indent == 0 { line.column } else { indent };
                if line.column < indent || !(line.is_printable || self.is_harmless(&line)) {
                    return None;
                }
            }
        }
        (indent > 0).then_some(())
    }

    /// Whether a line has no other kind of line break.
    fn is_harmless(&self, line: &SkimmedLine) -> bool {
        let text = self.bytes.get(line.start..line.end).unwrap_or_default();
        !text.iter().any(|b| chars::is(*b, BREAK) || *b == b'\t')
    }
}

/// Leaves the blocks that end before a line, and enters the block that begins there.
fn enter(blocks: &mut Blocks, pending: Option<usize>, column: usize, item: bool) -> Option<()> {
    if pending.is_some_and(|key| column > key || (item && column == key)) {
        blocks.push((column, item));
        return (blocks.len() < DEPTH_MAX).then_some(());
    }
    while blocks.last().is_some_and(|(at, list)| *at > column || (*at == column && *list && !item)) {
        blocks.pop();
    }
    (blocks.last() == Some(&(column, item))).then_some(())
}

/// Text that is a plain word, a number or a boolean.
fn is_word(text: &[u8]) -> bool {
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/');
    matches!(text, [first, ..] if first.is_ascii_alphanumeric() || *first == b'_')
        && text.iter().all(inner)
        && !matches!(text, b"null" | b"Null" | b"NULL")
}

/// Text between double quotes that does not end early, with only the usual escapes.
fn is_escaped(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let good = match byte {
            b'\\' => matches!(bytes.next(), Some(b'"' | b'\\' | b'n' | b't')),
            _ => *byte != b'"',
        };
        if !good {
            return false;
        }
    }
    true
}

/// `a, b`, or `a: b, c: d` if they are pairs.
fn words(text: &[u8], pairs: bool) -> bool {
    text.split(|b| *b == b',').enumerate().all(|(i, piece)| {
        let piece = if i == 0 { Some(piece) } else { piece.strip_prefix(b" ") };
        let Some(piece) = piece else { return false };
        let Some(colon) = piece.iter().position(|b| *b == b':').filter(|_| pairs) else {
            return !pairs && is_word(piece);
        };
        let value = piece[colon + 1..].strip_prefix(b" ");
        is_word(&piece[..colon]) && value.is_some_and(is_word)
    })
}

/// Plain text that is not a number that JSON lacks.
fn is_plain(text: &[u8]) -> bool {
    match text {
        [b'-', second, ..] => second.is_ascii_alphanumeric() || *second == b'-',
        [first, ..] => first.is_ascii_alphanumeric() || matches!(first, b'/' | b'_' | b'(' | b'$' | b'^'),
        [] => false,
    }
}
