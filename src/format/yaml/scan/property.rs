//! Anchors, aliases, tags and directives.

use std::borrow::Cow;

use super::chars::{self, NAME, URI};
use super::{Error, Kind, Scanner, Token};

/// Maximum number of digits of each part of a version.
const VERSION_DIGITS_MAX: usize = 2;

impl<'a> Scanner<'a> {
    pub(super) fn anchor(&mut self, kind: Kind) -> Result<Token<'a>, Error> {
        let mark = self.mark();
        self.pos += 1;
        let name = self.name();
        if name.is_empty() || !(self.is_gap(0) || b"?:,]}%@`".contains(&self.byte(0))) {
            return self.fail("did not find expected alphabetic or numeric character");
        }
        Ok(Token { text: Cow::Borrowed(name), ..self.token(kind, mark) })
    }

    fn name(&mut self) -> &'a str {
        let start = self.pos;
        while chars::is(self.byte(0), NAME) {
            self.pos += 1;
        }
        &self.text[start..self.pos]
    }

    pub(super) fn tag(&mut self) -> Result<Token<'a>, Error> {
        let mark = self.mark();
        let (handle, text) = if self.byte(1) == b'<' {
            self.pos += 2;
            let uri = self.uri("")?;
            if self.byte(0) != b'>' {
                return self.fail("did not find the expected '>'");
            }
            self.pos += 1;
            ("", uri)
        } else {
            let handle = self.tag_handle(false)?;
            if handle.len() > 1 && handle.ends_with('!') {
                (handle, self.uri("")?)
            } else {
                match self.uri(handle)? {
                    uri if uri.is_empty() => ("", Cow::Borrowed("!")),
                    uri => ("!", uri),
                }
            }
        };
        if !self.is_gap(0) {
            return self.fail("did not find expected whitespace or line break");
        }
        Ok(Token { text, handle, ..self.token(Kind::Tag, mark) })
    }

    fn tag_handle(&mut self, directive: bool) -> Result<&'a str, Error> {
        let start = self.pos;
        if self.byte(0) != b'!' {
            return self.fail("did not find expected '!'");
        }
        self.pos += 1;
        self.name();
        if self.byte(0) == b'!' {
            self.pos += 1;
        } else if directive && self.pos - start > 1 {
            return self.fail("did not find expected '!'");
        }
        Ok(&self.text[start..self.pos])
    }

    /// The URI after `head`, which was read as a handle but is not one.
    fn uri(&mut self, head: &'a str) -> Result<Cow<'a, str>, Error> {
        let from = self.pos;
        let start = if head.is_empty() { from } else { from - head.len() + 1 };
        let mut copy: Option<Vec<u8>> = None;
        while chars::is(self.byte(0), NAME | URI) {
            let at = self.pos;
            if self.byte(0) == b'%' {
                let bytes = copy.get_or_insert_with(|| self.text.as_bytes()[start..at].to_vec());
                let mut bytes = std::mem::take(bytes);
                self.uri_escape(&mut bytes)?;
                copy = Some(bytes);
            } else {
                copy.iter_mut().for_each(|bytes| bytes.push(self.text.as_bytes()[at]));
                self.pos += 1;
            }
        }
        if head.is_empty() && self.pos == from {
            return self.fail("did not find expected tag URI");
        }
        Ok(match copy {
            None => Cow::Borrowed(&self.text[start..self.pos]),
            Some(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        })
    }

    /// One character as a sequence of `%XX`, one for each of its bytes.
    fn uri_escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let mut left = None;
        while left != Some(0) {
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
            let octet = match (self.byte(0), digit(self.byte(1)), digit(self.byte(2))) {
                (b'%', Some(high), Some(low)) => high << 4 | low,
                _ => return self.fail("did not find URI escaped octet"),
            };
            left = match left {
                None => match octet {
                    0..=0x7f => Some(0),
                    0xc0..=0xdf => Some(1),
                    0xe0..=0xef => Some(2),
                    0xf0..=0xf7 => Some(3),
                    _ => return self.fail("found an incorrect leading UTF-8 octet"),
                },
                Some(_) if octet & 0xc0 != 0x80 => {
                    return self.fail("found an incorrect trailing UTF-8 octet");
                }
                Some(n) => Some(n - 1),
            };
            bytes.push(octet);
            self.pos += 3;
        }
        Ok(())
    }

    pub(super) fn directive(&mut self) -> Result<Token<'a>, Error> {
        let mark = self.mark();
        self.pos += 1;
        let name = self.name();
        if name.is_empty() {
            return self.fail("could not find expected directive name");
        }
        if !self.is_gap(0) {
            return self.fail("found unexpected non-alphabetical character");
        }
        self.skip_blanks();
        let token = match name {
            "YAML" => {
                let text = Cow::Borrowed(self.version()?);
                Token { text, ..self.token(Kind::VersionDirective, mark) }
            }
            "TAG" => {
                let (handle, text) = self.tag_definition()?;
                Token { text, handle, ..self.token(Kind::TagDirective, mark) }
            }
            _ => return self.fail("found unknown directive name"),
        };
        self.skip_blanks();
        if self.byte(0) == b'#' {
            self.skip_line();
        }
        match self.break_len(0) {
            0 if self.byte(0) != 0 => return self.fail("did not find expected comment or line break"),
            0 => {}
            len => self.skip_break(len),
        }
        Ok(token)
    }

    fn version(&mut self) -> Result<&'a str, Error> {
        let start = self.pos;
        self.version_number()?;
        if self.byte(0) != b'.' {
            return self.fail("did not find expected digit or '.' character");
        }
        self.pos += 1;
        self.version_number()?;
        Ok(&self.text[start..self.pos])
    }

    fn version_number(&mut self) -> Result<(), Error> {
        let start = self.pos;
        while self.byte(0).is_ascii_digit() {
            if self.pos - start == VERSION_DIGITS_MAX {
                return self.fail("found extremely long version number");
            }
            self.pos += 1;
        }
        if self.pos == start { self.fail("did not find expected version number") } else { Ok(()) }
    }

    fn tag_definition(&mut self) -> Result<(&'a str, Cow<'a, str>), Error> {
        let handle = self.tag_handle(true)?;
        if !self.is_blank(0) {
            return self.fail("did not find expected whitespace");
        }
        self.skip_blanks();
        let prefix = self.uri("")?;
        if !self.is_gap(0) {
            return self.fail("did not find expected whitespace or line break");
        }
        Ok((handle, prefix))
    }
}
