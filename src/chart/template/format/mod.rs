//! Go's `fmt`: how templates print values, and `printf` with all its verbs.

mod float;
mod printf;

use std::rc::Rc;

pub(super) use printf::{first_char, sprintf};

use super::unquote::{quote, quote_with};
use crate::chart::value::{Budget, GoString, List, Map, Object, Value};
use crate::format::number;
use crate::limits::TEMPLATE_OUTPUT_BYTES_MAX;

/// The text of `%v`. Errors: if the value contains itself, or its text is too long.
pub(super) fn display(value: &Value) -> Result<GoString, String> {
    if let Value::Str(s) = value {
        return Ok(s.clone());
    }
    if let Some(text) = simple(value) {
        return Ok(text.into());
    }
    let mut printer = Printer::default();
    printer.arg(value, 'v');
    printer.finish().map(GoString::from)
}

/// `%v` of a value without parts.
fn simple(value: &Value) -> Option<String> {
    match value {
        Value::Bool(b) => Some(b.to_string()),
        Value::Int(i) | Value::Int64(i) => Some(i.to_string()),
        Value::Float(f) => Some(number::general(*f)),
        _ => None,
    }
}

/// The output of an action: `%v`, and `<no value>` for nil.
pub(super) fn print_action(out: &mut Vec<u8>, value: &Value) -> Result<(), String> {
    match value {
        Value::Nil | Value::NilInterface => out.extend_from_slice(b"<no value>"),
        Value::Str(s) => out.extend_from_slice(s.as_bytes()),
        Value::Native(object) => match object.action_text() {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.extend_from_slice(display(value)?.as_bytes()),
        },
        _ => match simple(value) {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.extend_from_slice(display(value)?.as_bytes()),
        },
    }
    Ok(())
}

/// Go's `fmt.Sprint`: blanks between operands if neither is a string.
pub(super) fn sprint(values: &[Value]) -> Result<GoString, String> {
    let mut printer = Printer::default();
    let mut after_string = true;
    for (i, value) in values.iter().enumerate() {
        let is_string = matches!(value, Value::Str(_));
        if i > 0 && !is_string && !after_string {
            printer.out.push(b' ');
        }
        printer.arg(value, 'v');
        after_string = is_string;
    }
    printer.finish().map(GoString::from)
}

/// Go's `fmt.Sprintln`.
pub(super) fn sprintln(values: &[Value]) -> Result<GoString, String> {
    let mut printer = Printer::default();
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            printer.out.push(b' ');
        }
        printer.arg(value, 'v');
    }
    printer.out.push(b'\n');
    printer.finish().map(GoString::from)
}

/// The flags of a verb.
#[derive(Clone, Copy, Default)]
struct Flags {
    width: Option<usize>,
    precision: Option<usize>,
    sharp: bool,
    zero: bool,
    plus: bool,
    minus: bool,
    space: bool,
    /// `%#v`.
    go_syntax: bool,
}

#[derive(Default)]
struct Printer {
    out: Vec<u8>,
    flags: Flags,
    budget: Budget,
    overflow: bool,
}

impl Printer {
    fn finish(self) -> Result<Vec<u8>, String> {
        if self.overflow {
            return Err("value is too large to be printed, or contains itself".to_owned());
        }
        Ok(self.out)
    }

    /// A value as an argument of its own.
    fn arg(&mut self, value: &Value, verb: char) {
        match (value, verb) {
            (Value::Nil | Value::NilInterface, 'T' | 'v') => self.pad(b"<nil>"),
            (Value::Nil | Value::NilInterface, _) => self.bad_verb(value, verb),
            (_, 'T') => {
                let name = value.type_name();
                self.string(name.as_bytes(), 's');
            }
            (_, 'p') => self.bad_verb(value, verb),
            (Value::Bytes(bytes), _) => self.bytes(bytes, verb, "[]byte"),
            _ => self.value(value, verb),
        }
    }

    /// A value, at any depth.
    fn value(&mut self, value: &Value, verb: char) {
        if !self.budget.enter() || self.out.len() > TEMPLATE_OUTPUT_BYTES_MAX {
            self.overflow = true;
            return;
        }
        match value {
            Value::Nil | Value::NilInterface if self.flags.go_syntax => {
                self.out.extend_from_slice(b"interface {}(nil)");
            }
            Value::Nil | Value::NilInterface => self.out.extend_from_slice(b"<nil>"),
            Value::Bool(b) if matches!(verb, 't' | 'v') => self.pad(b.to_string().as_bytes()),
            Value::Bool(_) => self.bad_verb(value, verb),
            Value::Int(i) | Value::Int64(i) => {
                if !self.integer(i.unsigned_abs(), *i < 0, true, verb) {
                    self.bad_verb(value, verb);
                }
            }
            Value::Uint64(u) => {
                if !self.integer(*u, false, false, verb) {
                    self.bad_verb(value, verb);
                }
            }
            Value::Uint8(b) => {
                if !self.integer(u64::from(*b), false, false, verb) {
                    self.bad_verb(value, verb);
                }
            }
            Value::Float(f) => {
                if !self.float(*f, verb) {
                    self.bad_verb(value, verb);
                }
            }
            Value::Str(s) => {
                if !self.string(s.as_bytes(), verb) {
                    self.bad_verb(value, verb);
                }
            }
            Value::Bytes(bytes) => self.bytes(bytes, verb, "[]uint8"),
            Value::List(list) => self.list(list, verb),
            Value::Map(map) => self.map(map, verb),
            Value::Native(object) => self.object(object, verb),
        }
        self.budget.leave();
    }

    fn list(&mut self, list: &List, verb: char) {
        let go_syntax = self.flags.go_syntax;
        let (open, between, close): (&[u8], &[u8], &[u8]) =
            if go_syntax { (b"{", b", ", b"}") } else { (b"[", b" ", b"]") };
        if go_syntax {
            self.out.extend_from_slice(Value::List(list.clone()).type_name().as_bytes());
            if list.is_nil() {
                self.out.extend_from_slice(b"(nil)");
                return;
            }
        }
        self.out.extend_from_slice(open);
        for (i, item) in list.items().iter().enumerate() {
            if i > 0 {
                self.out.extend_from_slice(between);
            }
            self.value(item, verb);
        }
        self.out.extend_from_slice(close);
    }

    fn map(&mut self, map: &Map, verb: char) {
        let go_syntax = self.flags.go_syntax;
        if go_syntax {
            self.out.extend_from_slice(Value::Map(map.clone()).type_name().as_bytes());
            if map.is_nil() {
                self.out.extend_from_slice(b"(nil)");
                return;
            }
            self.out.push(b'{');
        } else {
            self.out.extend_from_slice(b"map[");
        }
        for (i, (key, value)) in map.entries().iter().enumerate() {
            if i > 0 {
                self.out.extend_from_slice(if go_syntax { b", " } else { b" " });
            }
            if !self.string(key.as_bytes(), verb) {
                self.bad_verb(&Value::str(key.clone()), verb);
            }
            self.out.push(b':');
            self.value(value, verb);
        }
        self.out.push(if go_syntax { b'}' } else { b']' });
    }

    fn object(&mut self, object: &Rc<dyn Object>, verb: char) {
        if !object.is_stringer() && verb == 'v' {
            self.out.extend_from_slice(object.display().as_bytes());
        } else if !self.string(object.display().as_bytes(), verb) {
            self.bad_verb(&Value::Native(object.clone()), verb);
        }
    }

    /// A string; false if the verb does not apply to strings.
    fn string(&mut self, bytes: &[u8], verb: char) -> bool {
        match verb {
            'v' if self.flags.go_syntax => self.quoted(bytes),
            'v' | 's' => {
                let cut = self.truncated(bytes);
                self.pad(cut);
            }
            'q' => self.quoted(bytes),
            'x' => self.hex(bytes, false),
            'X' => self.hex(bytes, true),
            _ => return false,
        }
        true
    }

    fn bytes(&mut self, bytes: &[u8], verb: char, type_name: &str) {
        match verb {
            'v' | 'd' if self.flags.go_syntax => {
                self.out.extend_from_slice(type_name.as_bytes());
                let items: Vec<String> = bytes.iter().map(|b| format!("{b:#x}")).collect();
                self.out.extend_from_slice(format!("{{{}}}", items.join(", ")).as_bytes());
            }
            's' | 'q' | 'x' | 'X' => {
                self.string(bytes, verb);
            }
            _ => {
                self.out.push(b'[');
                for (i, b) in bytes.iter().enumerate() {
                    if i > 0 {
                        self.out.push(b' ');
                    }
                    if !self.integer(u64::from(*b), false, false, verb) {
                        self.out.extend_from_slice(format!("%!{verb}(uint8={b})").as_bytes());
                    }
                }
                self.out.push(b']');
            }
        }
    }

    fn quoted(&mut self, bytes: &[u8]) {
        let cut = self.truncated(bytes);
        if self.flags.sharp && can_backquote(cut) {
            self.pad(&[b"`", cut, b"`"].concat());
        } else if self.flags.plus {
            self.pad(quote_with(cut, '"', true).as_bytes());
        } else {
            self.pad(quote(cut).as_bytes());
        }
    }

    fn truncated<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(max) = self.flags.precision else { return bytes };
        &bytes[..rune_starts(bytes).nth(max).unwrap_or(bytes.len())]
    }

    fn hex(&mut self, bytes: &[u8], upper: bool) {
        let shown = &bytes[..self.flags.precision.map_or(bytes.len(), |p| p.min(bytes.len()))];
        let prefix = match (self.flags.sharp, upper) {
            (false, _) => "",
            (true, false) => "0x",
            (true, true) => "0X",
        };
        let digits = |b: &u8| if upper { format!("{b:02X}") } else { format!("{b:02x}") };
        let parts: Vec<String> = shown.iter().map(digits).collect();
        let text = match (parts.is_empty(), self.flags.space) {
            (true, _) => String::new(),
            (false, false) => format!("{prefix}{}", parts.concat()),
            (false, true) => format!("{prefix}{}", parts.join(&format!(" {prefix}"))),
        };
        self.pad(text.as_bytes());
    }

    /// An integer; false if the verb does not apply to integers.
    fn integer(&mut self, magnitude: u64, negative: bool, signed: bool, verb: char) -> bool {
        let value = if negative { magnitude.wrapping_neg() } else { magnitude };
        match verb {
            'v' if self.flags.go_syntax && !signed => self.pad(format!("{magnitude:#x}").as_bytes()),
            'v' | 'd' => self.digits(&magnitude.to_string(), negative, ""),
            'b' => self.digits(&format!("{magnitude:b}"), negative, "0b"),
            'o' => {
                let digits = format!("{magnitude:o}");
                let prefix = if digits.starts_with('0') { "" } else { "0" };
                self.digits(&digits, negative, prefix);
            }
            'O' => self.octal(magnitude, negative),
            'x' => self.digits(&format!("{magnitude:x}"), negative, "0x"),
            'X' => self.digits(&format!("{magnitude:X}"), negative, "0X"),
            'c' => self.pad(rune(value).encode_utf8(&mut [0; 4]).as_bytes()),
            'q' => {
                let text = rune(value).to_string();
                self.pad(quote_with(text.as_bytes(), '\'', self.flags.plus).as_bytes());
            }
            'U' => self.unicode(value),
            _ => return false,
        }
        true
    }

    fn octal(&mut self, magnitude: u64, negative: bool) {
        let sharp = std::mem::replace(&mut self.flags.sharp, true);
        self.digits(&format!("{magnitude:o}"), negative, if sharp { "0o0" } else { "0o" });
        self.flags.sharp = sharp;
    }

    fn digits(&mut self, digits: &str, negative: bool, prefix: &str) {
        let Flags { width, precision, zero, minus, plus, space, sharp, .. } = self.flags;
        let sign = match (negative, plus, space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            _ => "",
        };
        let least = match (precision, width) {
            (Some(0), _) if digits == "0" => {
                self.spaces(width.unwrap_or(0));
                return;
            }
            (Some(p), _) => p,
            (None, Some(w)) if zero && !minus => w - sign.len().min(w),
            _ => 0,
        };
        let prefix = if sharp { prefix } else { "" };
        let zeros = "0".repeat(least.saturating_sub(digits.len()));
        let text = format!("{sign}{prefix}{zeros}{digits}");
        let zero = std::mem::replace(&mut self.flags.zero, false);
        self.pad(text.as_bytes());
        self.flags.zero = zero;
    }

    fn unicode(&mut self, value: u64) {
        let digits = self.flags.precision.unwrap_or(4).max(4);
        let shown = format!("{value:X}");
        let mut text = format!("U+{}{shown}", "0".repeat(digits.saturating_sub(shown.len())));
        let shown =
            u32::try_from(value).ok().and_then(char::from_u32).filter(|c| super::unquote::is_print(*c));
        if let (true, Some(c)) = (self.flags.sharp, shown) {
            text.push_str(&format!(" '{c}'"));
        }
        let zero = std::mem::replace(&mut self.flags.zero, false);
        self.pad(text.as_bytes());
        self.flags.zero = zero;
    }

    fn float(&mut self, value: f64, verb: char) -> bool {
        let default = match verb {
            'v' | 'g' | 'G' | 'b' | 'x' | 'X' => None,
            'f' | 'F' | 'e' | 'E' => Some(6),
            _ => return false,
        };
        let format = match verb {
            'v' => 'g',
            'F' => 'f',
            other => other,
        };
        let precision = self.flags.precision.or(default);
        let text = float::format(value, format, precision);
        let text = if self.flags.sharp && verb != 'b' && value.is_finite() {
            float::with_point(&text, verb, precision)
        } else {
            text
        };
        self.pad_float(&text, value);
        true
    }

    fn pad_float(&mut self, text: &str, value: f64) {
        let Flags { width, zero, minus, plus, space, .. } = self.flags;
        let (negative, number) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let sign = match (negative, plus, space) {
            (true, ..) => "-",
            _ if value.is_infinite() && number.starts_with('+') => "",
            (_, true, _) => "+",
            (_, false, true) => " ",
            _ => "",
        };
        let whole = format!("{sign}{number}");
        if !value.is_finite() {
            self.flags.zero = false;
            self.pad(whole.as_bytes());
            self.flags.zero = zero;
        } else if let (true, false, Some(w), false) = (zero, minus, width, sign.is_empty()) {
            let fill = w.saturating_sub(whole.len());
            self.out.extend_from_slice(format!("{sign}{}{number}", "0".repeat(fill)).as_bytes());
        } else {
            self.pad(whole.as_bytes());
        }
    }

    /// Writes with the width and alignment of the flags.
    fn pad(&mut self, bytes: &[u8]) {
        let Some(width) = self.flags.width else { return self.out.extend_from_slice(bytes) };
        let missing = width.saturating_sub(rune_starts(bytes).count());
        if self.flags.minus {
            self.out.extend_from_slice(bytes);
            self.spaces(missing);
        } else {
            let fill = if self.flags.zero { b'0' } else { b' ' };
            self.out.resize(self.out.len() + missing, fill);
            self.out.extend_from_slice(bytes);
        }
    }

    fn spaces(&mut self, count: usize) {
        self.out.resize(self.out.len() + count, b' ');
    }

    fn bad_verb(&mut self, value: &Value, verb: char) {
        self.out.extend_from_slice(format!("%!{verb}(").as_bytes());
        if value.is_nil() {
            self.out.extend_from_slice(b"<nil>");
        } else {
            self.out.extend_from_slice(value.type_name().as_bytes());
            self.out.push(b'=');
            self.arg(value, 'v');
        }
        self.out.push(b')');
    }
}

fn rune(value: u64) -> char {
    u32::try_from(value).ok().and_then(char::from_u32).unwrap_or('\u{fffd}')
}

/// Start offsets of runes; each invalid UTF-8 byte counts as one.
pub(super) fn rune_starts(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut at = 0;
    bytes.utf8_chunks().flat_map(move |chunk| {
        let start = at;
        at += chunk.valid().len() + chunk.invalid().len();
        let invalid = start + chunk.valid().len()..at;
        chunk.valid().char_indices().map(move |(i, _)| start + i).chain(invalid)
    })
}

fn can_backquote(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_ok_and(|s| s.chars().all(|c| c == '\t' || (c >= ' ' && !matches!(c, '`' | '\x7f' | '\u{feff}'))))
}

#[cfg(test)]
mod tests;
