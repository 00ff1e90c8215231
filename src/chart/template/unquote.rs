//! Go's literals: quoted strings and characters, numbers, and quoting (`%q`).

use std::borrow::Cow;
use std::fmt::Write as _;

/// Decodes a quoted or raw string: Go's `strconv.Unquote`.
pub(super) fn unquote(literal: &str) -> Option<Cow<'_, [u8]>> {
    if let Some(raw) = literal.strip_prefix('`').and_then(|s| s.strip_suffix('`')) {
        return Some(raw.bytes().filter(|b| *b != b'\r').collect());
    }
    let mut rest = literal.strip_prefix('"')?.strip_suffix('"')?;
    if !rest.bytes().any(|b| matches!(b, b'\\' | b'"' | b'\n')) {
        return Some(Cow::Borrowed(rest.as_bytes()));
    }
    let mut out = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let (unit, tail) = unquote_unit(rest, '"')?;
        match unit {
            Unit::Char(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Unit::Byte(b) => out.push(b),
        }
        rest = tail;
    }
    Some(Cow::Owned(out))
}

/// The number of a character constant such as `'a'`; the error is in Go's words.
pub(super) fn unquote_char(literal: &str) -> Result<i64, String> {
    let syntax = || "invalid syntax".to_owned();
    let inner = literal.strip_prefix('\'').ok_or_else(syntax)?;
    let (unit, tail) = unquote_unit(inner, '\'').ok_or_else(syntax)?;
    if tail != "'" {
        return Err(format!("malformed character constant: {literal}"));
    }
    Ok(match unit {
        Unit::Char(c) => i64::from(u32::from(c)),
        Unit::Byte(b) => i64::from(b),
    })
}

enum Unit {
    Char(char),
    Byte(u8),
}

fn unquote_unit(s: &str, quote: char) -> Option<(Unit, &str)> {
    let mut chars = s.chars();
    let first = chars.next()?;
    if first == quote || first == '\n' {
        return None;
    }
    if first != '\\' {
        return Some((Unit::Char(first), chars.as_str()));
    }
    let kind = chars.next()?;
    let rest = chars.as_str();
    let simple = |c: char| Some((Unit::Char(c), rest));
    match kind {
        'a' => simple('\x07'),
        'b' => simple('\x08'),
        'f' => simple('\x0c'),
        'n' => simple('\n'),
        'r' => simple('\r'),
        't' => simple('\t'),
        'v' => simple('\x0b'),
        '\\' => simple('\\'),
        '\'' | '"' if kind == quote => simple(kind),
        'x' => hex_unit(rest, 2).and_then(|(n, tail)| Some((Unit::Byte(u8::try_from(n).ok()?), tail))),
        'u' => hex_unit(rest, 4).and_then(|(n, tail)| Some((Unit::Char(char::from_u32(n)?), tail))),
        'U' => hex_unit(rest, 8).and_then(|(n, tail)| Some((Unit::Char(char::from_u32(n)?), tail))),
        '0'..='7' => {
            let digits = s.get(1..4).filter(|d| d.bytes().all(|b| (b'0'..=b'7').contains(&b)))?;
            Some((Unit::Byte(u8::from_str_radix(digits, 8).ok()?), &s[4..]))
        }
        _ => None,
    }
}

fn hex_unit(s: &str, digits: usize) -> Option<(u32, &str)> {
    let text = s.get(..digits).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some((u32::from_str_radix(text, 16).ok()?, &s[digits..]))
}

/// Go's `%q` of a string.
pub(super) fn quote(bytes: &[u8]) -> String {
    quote_with(bytes, '"', false)
}

/// A quoted string, optionally with everything but ASCII escaped (`%+q`).
pub(super) fn quote_with(bytes: &[u8], mark: char, ascii_only: bool) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push(mark);
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while !rest.is_empty() {
            // Most of a text needs no escaping.
            let is_plain = |b: u8| (b' '..=b'~').contains(&b) && b != b'\\' && char::from(b) != mark;
            let plain = rest.bytes().position(|b| !is_plain(b)).unwrap_or(rest.len());
            out.push_str(&rest[..plain]);
            let mut chars = rest[plain..].chars();
            if let Some(c) = chars.next() {
                quote_char(&mut out, c, mark, ascii_only);
            }
            rest = chars.as_str();
        }
        for b in chunk.invalid() {
            let _ = write!(out, "\\x{b:02x}");
        }
    }
    out.push(mark);
    out
}

fn quote_char(out: &mut String, c: char, mark: char, ascii_only: bool) {
    let simple = match c {
        '\x07' => 'a',
        '\x08' => 'b',
        '\x0c' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\x0b' => 'v',
        '\\' => '\\',
        c if c == mark => mark,
        _ if (c.is_ascii() || !ascii_only) && is_print(c) => return out.push(c),
        _ => {
            let code = u32::from(c);
            let _ = match code {
                0..0x20 | 0x7f => write!(out, "\\x{code:02x}"),
                0x20..0x1_0000 => write!(out, "\\u{code:04x}"),
                _ => write!(out, "\\U{code:08x}"),
            };
            return;
        }
    };
    out.push('\\');
    out.push(simple);
}

/// Go's `unicode.IsPrint`, as far as Rust's debug escapes can tell: graphic characters and the ASCII blank.
pub(super) fn is_print(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\u{0}'..='\u{a0}' | '\u{ad}' => false,
        // Rust escapes unprintable characters, and combining marks at the start of a string, which Go prints.
        _ => !c.is_whitespace() && (c.escape_debug().len() == 1 || is_grapheme_extend(c)),
    }
}

fn is_grapheme_extend(c: char) -> bool {
    // `str::escape_debug` escapes unprintable characters, but not a mark after a letter.
    let text = String::from_iter(['a', c]);
    text.escape_debug().skip(1).count() == 1
}

/// A numeric constant in every type that it fits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Number {
    pub(super) text: String,
    pub(super) int: Option<i64>,
    pub(super) uint: Option<u64>,
    pub(super) float: Option<f64>,
    /// Real and imaginary part of a number with `i`.
    pub(super) complex: Option<(f64, f64)>,
}

impl Number {
    pub(super) fn from_char(text: &str) -> Result<Self, String> {
        let code = unquote_char(text)?;
        let float = u32::try_from(code).ok().map(f64::from);
        Ok(Self {
            text: text.to_owned(),
            int: Some(code),
            uint: u64::try_from(code).ok(),
            float,
            complex: None,
        })
    }

    /// A number such as `2i` or `1+2i`, if the text is one. If the imaginary part is zero, it is also a real number.
    fn imaginary(text: &str) -> Option<Self> {
        let body = text.strip_suffix('i')?;
        let split =
            body.rfind(['+', '-']).filter(|at| *at > 0 && !body[..*at].ends_with(['e', 'E', 'p', 'P']));
        let (re, im) = body.split_at(split.unwrap_or(0));
        let (re, im) = (if re.is_empty() { 0.0 } else { parse_float(re)? }, parse_float(im)?);
        let real = (im == 0.0).then_some(re);
        Some(Self {
            text: text.to_owned(),
            int: real.and_then(whole),
            uint: real.and_then(whole_unsigned),
            float: real,
            complex: Some((re, im)),
        })
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(int) = plain(text) {
            let float = Some(f64::from(int));
            let (int, uint) = (Some(i64::from(int)), Some(u64::from(int)));
            return Ok(Self { text: text.to_owned(), int, uint, float, complex: None });
        }
        if let Some(complex) = Self::imaginary(text) {
            return Ok(complex);
        }
        let (mut int, mut uint) = (parse_int(text), parse_uint(text));
        if int == Some(0) {
            uint = Some(0);
        }
        let float = match (int, uint) {
            (Some(i), _) => Some(lossy_float(i)),
            (None, Some(u)) => Some(lossy_float_unsigned(u)),
            (None, None) => {
                let f = parse_float(text);
                if f.is_some() && !text.contains(['.', 'e', 'E', 'p', 'P']) {
                    return Err(format!("integer overflow: {}", quote(text.as_bytes())));
                }
                int = f.and_then(whole);
                uint = f.and_then(whole_unsigned);
                f
            }
        };
        if int.is_none() && uint.is_none() && float.is_none() {
            return Err(format!("illegal number syntax: {}", quote(text.as_bytes())));
        }
        Ok(Self { text: text.to_owned(), int, uint, float, complex: None })
    }

    /// Whether its spelling makes it a float where no type is required.
    pub(super) fn is_float_literal(&self) -> bool {
        let text = self.text.as_bytes();
        let hex_int = text.len() > 2
            && text[0] == b'0'
            && matches!(text[1], b'x' | b'X')
            && !self.text.contains(['p', 'P']);
        let rune = text.first() == Some(&b'\'');
        self.float.is_some() && !hex_int && !rune && self.text.contains(['.', 'e', 'E', 'p', 'P'])
    }
}

/// Up to nine digits without a leading zero: most numbers of templates.
fn plain(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let usual = digits && text.len() < 10 && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| usual)
}

#[expect(clippy::cast_precision_loss)] // as Go converts
fn lossy_float(i: i64) -> f64 {
    i as f64
}

#[expect(clippy::cast_precision_loss)] // as Go converts
fn lossy_float_unsigned(u: u64) -> f64 {
    u as f64
}

/// The integer that equals a float exactly.
#[expect(clippy::cast_possible_truncation)] // checked: out of range saturates and differs
pub(super) fn whole(f: f64) -> Option<i64> {
    let i = f as i64;
    (lossy_float(i) == f && i != i64::MAX).then_some(i)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked: out of range saturates and differs
fn whole_unsigned(f: f64) -> Option<u64> {
    let u = f as u64;
    (lossy_float_unsigned(u) == f && u != u64::MAX).then_some(u)
}

/// Go's `strconv.ParseInt(s, 0, 64)`.
pub(super) fn parse_int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = parse_uint(digits)?;
    match negative {
        true => 0_i64.checked_sub_unsigned(magnitude),
        false => i64::try_from(magnitude).ok(),
    }
}

/// Go's `strconv.ParseUint(s, 0, 64)`.
pub(super) fn parse_uint(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, &lower[..]),
    };
    let clean: String = digits.chars().filter(|c| *c != '_').collect();
    if clean.len() != digits.len() && !underscores_fit(&lower) {
        return None;
    }
    if !clean.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(&clean, radix).ok()
}

/// Whether each `_` is between digits, or between a base prefix and a digit.
fn underscores_fit(number: &str) -> bool {
    let body = number.trim_start_matches(['+', '-']);
    let prefixed =
        body.len() >= 2 && body.starts_with('0') && matches!(body.as_bytes()[1], b'x' | b'b' | b'o');
    let hex = prefixed && body.as_bytes()[1] == b'x';
    let mut last = if prefixed { b'0' } else { b'^' };
    for b in body.bytes().skip(if prefixed { 2 } else { 0 }) {
        let digit = b.is_ascii_digit() || (hex && matches!(b, b'a'..=b'f'));
        let class = if digit { b'0' } else { b };
        if (class == b'_' && last != b'0') || (class != b'0' && class != b'_' && last == b'_') {
            return false;
        }
        last = class;
    }
    last != b'_'
}

/// Go's `strconv.ParseFloat(s, 64)`, with hexadecimal floats; `None` if it is out of range too.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    if lower.contains('_') && !underscores_fit(&lower) {
        return None;
    }
    let clean: String = lower.chars().filter(|c| *c != '_').collect();
    let (sign, magnitude) = match clean.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, clean.strip_prefix('+').unwrap_or(&clean)),
    };
    match magnitude.strip_prefix("0x") {
        Some(hex) => parse_hex_float(hex).map(|f| sign * f),
        None => match magnitude {
            "inf" | "infinity" => Some(sign * f64::INFINITY),
            // With a sign it is no number.
            "nan" if magnitude == clean => Some(f64::NAN),
            _ if !magnitude.starts_with(|c: char| c.is_ascii_digit() || c == '.') => None,
            _ => magnitude.parse::<f64>().ok().filter(|f| f.is_finite()).map(|f| sign * f),
        },
    }
}

fn parse_hex_float(hex: &str) -> Option<f64> {
    let (mantissa, exponent) = hex.split_once('p')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 || whole.len() + fraction.len() > 15 {
        return None;
    }
    let digits = u64::from_str_radix(&format!("{whole}{fraction}"), 16).ok()?;
    let shift = exponent.parse::<i32>().ok()? - 4 * i32::try_from(fraction.len()).ok()?;
    Some(lossy_float_unsigned(digits) * 2_f64.powi(shift)).filter(|f| f.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_unquoted_as_in_go() {
        for (literal, want) in [
            (r#""a\tb\"\\""#, Some(&b"a\tb\"\\"[..])),
            (r#""\x41\101\u00e4\U0001F600""#, Some("AA\u{e4}\u{1f600}".as_bytes())),
            (r#""\xff""#, Some(&b"\xff"[..])),
            ("`a\\n\r`", Some(&b"a\\n"[..])),
            (r#""\'""#, None),
            (r#""\400""#, None),
            (r#""\q""#, None),
            (r#""\ud800""#, None),
        ] {
            assert_eq!(unquote(literal).as_deref(), want, "{literal}");
        }
        assert_eq!(unquote_char("'a'"), Ok(97));
        assert_eq!(unquote_char(r"'\''"), Ok(39));
        assert!(unquote_char("'ab'").is_err() && unquote_char("''").is_err());
    }

    #[test]
    fn strings_are_quoted_as_in_go() {
        for (text, want) in [
            (&b"a\"b\\c\n"[..], r#""a\"b\\c\n""#),
            (b"\x00\x7f\xff", r#""\x00\x7f\xff""#),
            ("\u{e4}\u{200b}\u{a0}\u{feff}".as_bytes(), "\"\u{e4}\\u200b\\u00a0\\ufeff\""),
            ("e\u{301}\u{1f600}".as_bytes(), "\"e\u{301}\u{1f600}\""),
        ] {
            assert_eq!(quote(text), want);
        }
        assert_eq!(quote_with("\u{e4}\u{1f600}".as_bytes(), '"', true), r#""\u00e4\U0001f600""#);
    }

    #[test]
    fn numbers_take_every_type_that_fits() {
        for (text, int, float, literal) in [
            ("17", Some(17), Some(17.0), false),
            ("-3", Some(-3), Some(-3.0), false),
            ("0x1F", Some(31), Some(31.0), false),
            ("0b101", Some(5), Some(5.0), false),
            ("0o17", Some(15), Some(15.0), false),
            ("017", Some(15), Some(15.0), false),
            ("1_000", Some(1000), Some(1000.0), false),
            ("2.0", Some(2), Some(2.0), true),
            ("2.5", None, Some(2.5), true),
            ("1e3", Some(1000), Some(1000.0), true),
            ("0x1p4", Some(16), Some(16.0), true),
            (".5", None, Some(0.5), true),
            ("0xeE", Some(0xee), Some(238.0), false),
        ] {
            let n = Number::parse(text).unwrap();
            assert_eq!((n.int, n.float, n.is_float_literal()), (int, float, literal), "{text}");
        }
        assert_eq!(Number::parse("08").unwrap_err(), "integer overflow: \"08\"");
        assert_eq!(Number::parse("0x").unwrap_err(), "illegal number syntax: \"0x\"");
        assert_eq!(Number::parse("1__0").unwrap_err(), "illegal number syntax: \"1__0\"");
        assert_eq!(
            Number::parse("99999999999999999999").unwrap_err(),
            "integer overflow: \"99999999999999999999\""
        );
        assert_eq!(Number::parse("18446744073709551615").unwrap().int, None);
    }
}
