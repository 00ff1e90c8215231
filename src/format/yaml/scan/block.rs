//! Block scalars: `|` and `>`.

use std::borrow::Cow;

use super::{Error, Kind, Scanner};

/// How trailing line breaks are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomp {
    Clip,
    Strip,
    Keep,
}

impl<'a> Scanner<'a> {
    pub(super) fn block_scalar(&mut self, literal: bool) -> Result<(Kind, Cow<'a, str>), Error> {
        self.pos += 1;
        let (chomp, increment) = self.block_header()?;
        let mut indent = match increment {
            0 => 0,
            increment => self.level.saturating_sub(1) + increment,
        };
        let mut text = String::new();
        let (mut leading, mut trailing) = ("", String::new());
        self.block_breaks(&mut indent, &mut trailing)?;
        let mut blank_above = false;
        while self.column() == indent && self.byte(0) != 0 {
            let blank = self.is_blank(0);
            // Lines that begin with a blank are not folded.
            if !literal && !blank_above && !blank && leading == "\n" {
                if trailing.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(leading);
            }
            text.push_str(&trailing);
            trailing.clear();
            blank_above = blank;
            let start = self.pos;
            self.skip_line();
            text.push_str(&self.text[start..self.pos]);
            leading = self.take_break().unwrap_or("");
            self.block_breaks(&mut indent, &mut trailing)?;
        }
        if chomp != Chomp::Strip {
            text.push_str(leading);
        }
        if chomp == Chomp::Keep {
            text.push_str(&trailing);
        }
        Ok((Kind::Quoted, Cow::Owned(text)))
    }

    /// The header after the indicator: how to end, and how far to indent (0: like the first line).
    fn block_header(&mut self) -> Result<(Chomp, usize), Error> {
        let mut chomp = self.chomp();
        let mut increment = 0;
        let digit = self.byte(0);
        if digit.is_ascii_digit() {
            if digit == b'0' {
                return self.fail("found an indentation indicator equal to 0");
            }
            increment = usize::from(digit - b'0');
            self.pos += 1;
            if chomp.is_none() {
                chomp = self.chomp();
            }
        }
        self.skip_blanks();
        if self.byte(0) == b'#' {
            self.skip_line();
        }
        let len = self.break_len(0);
        if len > 0 {
            self.skip_break(len);
        } else if self.byte(0) != 0 {
            return self.fail("did not find expected comment or line break");
        }
        Ok((chomp.unwrap_or(Chomp::Clip), increment))
    }

    fn chomp(&mut self) -> Option<Chomp> {
        let chomp = match self.byte(0) {
            b'+' => Chomp::Keep,
            b'-' => Chomp::Strip,
            _ => return None,
        };
        self.pos += 1;
        Some(chomp)
    }

    /// Skips empty lines, and reads the indentation of the next line. Detects the indentation if it is not known.
    fn block_breaks(&mut self, indent: &mut usize, breaks: &mut String) -> Result<(), Error> {
        let mut widest = 0;
        loop {
            while self.byte(0) == b' ' && (*indent == 0 || self.column() < *indent) {
                self.pos += 1;
            }
            widest = widest.max(self.column());
            if self.byte(0) == b'\t' && (*indent == 0 || self.column() < *indent) {
                return self.fail("found a tab character where an indentation space is expected");
            }
            match self.take_break() {
                Some(text) => breaks.push_str(text),
                None => break,
            }
        }
        if *indent == 0 {
            *indent = widest.max(self.level).max(1);
        }
        Ok(())
    }
}
