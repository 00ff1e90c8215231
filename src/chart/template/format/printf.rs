//! The format strings of `printf`.

use super::{Flags, Printer};
use crate::chart::value::Value;

/// The largest width, precision and index that Go accepts.
const NUMBER_MAX: i64 = 1_000_000;

/// Go's `fmt.Sprintf`. Errors: if a value contains itself, or the text is too long.
pub(in super::super) fn sprintf(format: &[u8], args: &[Value]) -> Result<Vec<u8>, String> {
    let state = State {
        format,
        at: 0,
        args,
        arg: 0,
        reordered: false,
        good_index: true,
        printer: Printer::default(),
    };
    state.run().finish()
}

struct State<'a> {
    format: &'a [u8],
    at: usize,
    args: &'a [Value],
    arg: usize,
    reordered: bool,
    good_index: bool,
    printer: Printer,
}

impl State<'_> {
    fn run(mut self) -> Printer {
        while self.at < self.format.len() {
            let rest = &self.format[self.at..];
            let plain = rest.iter().position(|b| *b == b'%').unwrap_or(rest.len());
            self.printer.out.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            if plain == rest.len() {
                break;
            }
            self.good_index = true;
            if !self.directive() {
                break;
            }
        }
        self.extra();
        self.printer
    }

    /// One directive after its `%`; false at the end of the format.
    fn directive(&mut self) -> bool {
        self.printer.flags = Flags::default();
        self.flags();
        let mut after_index = self.index();
        after_index = self.width(after_index);
        after_index = self.precision(after_index);
        if !after_index {
            self.index();
        }
        let Some((verb, size)) = first_char(&self.format[self.at.min(self.format.len())..]) else {
            self.write("%!(NOVERB)");
            return false;
        };
        self.at += size;
        self.verb(verb);
        true
    }

    fn verb(&mut self, verb: char) {
        if verb == '%' {
            self.write("%");
        } else if !self.good_index {
            self.write(&format!("%!{verb}(BADINDEX)"));
        } else if let Some(value) = self.args.get(self.arg) {
            if matches!(verb, 'v' | 'w') {
                let flags = &mut self.printer.flags;
                flags.go_syntax = std::mem::take(&mut flags.sharp);
                flags.plus = false;
            }
            self.printer.arg(value, verb);
            self.arg += 1;
        } else {
            self.write(&format!("%!{verb}(MISSING)"));
        }
    }

    fn flags(&mut self) {
        while let Some(b) = self.format.get(self.at) {
            let flags = &mut self.printer.flags;
            match b {
                b'#' => flags.sharp = true,
                b'0' => flags.zero = true,
                b'+' => flags.plus = true,
                b'-' => flags.minus = true,
                b' ' => flags.space = true,
                _ => return,
            }
            self.at += 1;
        }
    }

    fn width(&mut self, after_index: bool) -> bool {
        if self.format.get(self.at) == Some(&b'*') {
            self.at += 1;
            match self.int_argument() {
                None => self.write("%!(BADWIDTH)"),
                Some(w) => {
                    let flags = &mut self.printer.flags;
                    flags.width = usize::try_from(w.unsigned_abs()).ok();
                    if w < 0 {
                        flags.minus = true;
                        flags.zero = false;
                    }
                }
            }
            return false;
        }
        self.printer.flags.width = self.number();
        if after_index && self.printer.flags.width.is_some() {
            self.good_index = false;
        }
        after_index
    }

    fn precision(&mut self, after_index: bool) -> bool {
        if self.format.get(self.at) != Some(&b'.') || self.at + 1 >= self.format.len() {
            return after_index;
        }
        self.at += 1;
        if after_index {
            self.good_index = false;
        }
        let after_index = self.index();
        if self.format.get(self.at) == Some(&b'*') {
            self.at += 1;
            let precision = self.int_argument().and_then(|p| usize::try_from(p).ok());
            if precision.is_none() {
                self.write("%!(BADPREC)");
            }
            self.printer.flags.precision = precision;
            return false;
        }
        self.printer.flags.precision = Some(self.number().unwrap_or(0));
        after_index
    }

    /// An explicit index such as `[2]`; true if there was one.
    fn index(&mut self) -> bool {
        if self.format.get(self.at) != Some(&b'[') {
            return false;
        }
        self.reordered = true;
        let rest = &self.format[self.at..];
        let close = rest.iter().position(|b| *b == b']');
        let inner = close.and_then(|end| std::str::from_utf8(&rest[1..end]).ok());
        let number =
            inner.filter(|s| s.bytes().all(|b| b.is_ascii_digit())).and_then(|s| s.parse::<i64>().ok());
        self.at += close.map_or(1, |end| end + 1);
        match number.filter(|n| *n <= NUMBER_MAX) {
            Some(n) => {
                match usize::try_from(n - 1).ok().filter(|i| *i < self.args.len()) {
                    Some(i) => self.arg = i,
                    None => self.good_index = false,
                }
                true
            }
            None => {
                self.good_index = false;
                false
            }
        }
    }

    fn number(&mut self) -> Option<usize> {
        let digits = self.format[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let text = std::str::from_utf8(&self.format[self.at..self.at + digits]).unwrap_or_default();
        match text.parse::<i64>().ok().filter(|n| *n < 10 * NUMBER_MAX + 10) {
            Some(n) => {
                self.at += digits;
                usize::try_from(n).ok()
            }
            // Go ignores the rest of the format.
            None => {
                self.at = self.format.len();
                None
            }
        }
    }

    fn int_argument(&mut self) -> Option<i64> {
        let value = self.args.get(self.arg)?;
        self.arg += 1;
        let number = match value {
            Value::Int(i) | Value::Int64(i) => Some(*i),
            Value::Uint64(u) => i64::try_from(*u).ok(),
            Value::Uint8(b) => Some(i64::from(*b)),
            _ => None,
        };
        number.filter(|n| n.abs() <= NUMBER_MAX)
    }

    fn extra(&mut self) {
        if self.reordered || self.arg >= self.args.len() {
            return;
        }
        self.printer.flags = Flags::default();
        self.write("%!(EXTRA ");
        for (i, value) in self.args[self.arg..].iter().enumerate() {
            if i > 0 {
                self.write(", ");
            }
            if !value.is_nil() {
                self.write(&format!("{}=", value.type_name()));
            }
            self.printer.arg(value, 'v');
        }
        self.write(")");
    }

    fn write(&mut self, text: &str) {
        self.printer.out.extend_from_slice(text.as_bytes());
    }
}

/// The first rune and its length; an invalid UTF-8 byte is one U+FFFD.
pub(in crate::chart::template) fn first_char(bytes: &[u8]) -> Option<(char, usize)> {
    // No rune is longer, so the rest of the text does not matter.
    const RUNE_BYTES: usize = 4;
    let chunk = bytes[..bytes.len().min(RUNE_BYTES)].utf8_chunks().next()?;
    Some(chunk.valid().chars().next().map_or(('\u{fffd}', 1), |c| (c, c.len_utf8())))
}
