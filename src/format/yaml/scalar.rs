//! The meaning of a plain scalar, and whether a text would change its meaning if it were written plain.

use serde_json::Value;

use super::Dialect;
use crate::format::number;

/// The meaning of a plain scalar under YAML 1.1, as go-yaml v2 resolves it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// Beyond `i64`.
    Uint(u64),
    Float(f64),
    /// A date: text for JSON, but quoted in the output.
    Date,
    Text,
}

/// Resolves a plain scalar.
pub(super) fn resolve(text: &str) -> Scalar {
    match text.as_bytes().first() {
        None => Scalar::Null,
        Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~') => word(text),
        Some(b'.') => special_float(text).or_else(|| decimal(text)).map_or(Scalar::Text, Scalar::Float),
        Some(b'+' | b'-' | b'0'..=b'9') => numeric(text),
        Some(_) => Scalar::Text,
    }
}

/// Whether a text must be quoted because a reader would take it for another type. Every dialect quotes words of YAML
/// 1.1, for old readers.
pub(super) fn needs_quotes(text: &str, dialect: Dialect) -> bool {
    let own = match dialect {
        Dialect::V2 => false,
        Dialect::V3 => signed_digits(&text.replace('_', ""), "0o", 8).is_some(),
        Dialect::V4 => text == "<<",
    };
    own || resolve(text) != Scalar::Text || is_base60(text)
}

/// The JSON form of a scalar; `None` for infinities and not-a-number.
pub(super) fn to_json(scalar: &Scalar, text: &str) -> Option<Value> {
    Some(match *scalar {
        Scalar::Null => Value::Null,
        Scalar::Bool(b) => Value::Bool(b),
        Scalar::Int(n) => n.into(),
        Scalar::Uint(n) => n.into(),
        Scalar::Float(f) => match number::whole(f) {
            Some(n) => n.into(),
            None => serde_json::Number::from_f64(f)?.into(),
        },
        Scalar::Date | Scalar::Text => Value::String(text.to_owned()),
    })
}

fn word(text: &str) -> Scalar {
    match text {
        "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        _ => Scalar::Text,
    }
}

fn numeric(text: &str) -> Scalar {
    if let Some(float) = special_float(text) {
        return Scalar::Float(float);
    }
    if is_date(text) {
        return Scalar::Date;
    }
    let plain: std::borrow::Cow<'_, str> =
        if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    if let Some(integer) = integer(&plain) {
        return integer;
    }
    if let Some(float) = decimal(&plain) {
        return Scalar::Float(float);
    }
    signed_digits(&plain, "0b", 2).map_or(Scalar::Text, Scalar::Int)
}

/// `0b-1`: upstream's second attempt at a number accepts a sign after the prefix.
fn signed_digits(plain: &str, prefix: &str, radix: u32) -> Option<i64> {
    let digits = plain.strip_prefix(prefix).filter(|d| d.starts_with(['-', '+']))?;
    i64::from_str_radix(digits, radix).ok()
}

/// Go's `ParseInt` and `ParseUint` with base 0: a sign and a prefix that names the base; a leading zero is octal.
fn integer(plain: &str) -> Option<Scalar> {
    let (negative, unsigned) = match plain.as_bytes().first() {
        Some(b'-') => (true, &plain[1..]),
        Some(b'+') => (false, &plain[1..]),
        _ => (false, plain),
    };
    let (digits, radix) = based(unsigned);
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    match (negative, i64::try_from(value)) {
        (false, Ok(n)) => Some(Scalar::Int(n)),
        (true, Ok(n)) => Some(Scalar::Int(-n)),
        (true, Err(_)) if value == 1 << 63 => Some(Scalar::Int(i64::MIN)),
        // `ParseUint` accepts no sign.
        (false, Err(_)) if !plain.starts_with('+') => Some(Scalar::Uint(value)),
        _ => None,
    }
}

fn based(unsigned: &str) -> (&str, u32) {
    let bytes = unsigned.as_bytes();
    match (bytes.first(), bytes.get(1).map(u8::to_ascii_lowercase)) {
        (Some(b'0'), Some(b'x')) => (&unsigned[2..], 16),
        (Some(b'0'), Some(b'o')) => (&unsigned[2..], 8),
        (Some(b'0'), Some(b'b')) => (&unsigned[2..], 2),
        (Some(b'0'), Some(_)) => (&unsigned[1..], 8),
        _ => (unsigned, 10),
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`; a value that is too large for a float is not a number.
fn decimal(plain: &str) -> Option<f64> {
    let unsigned = plain.strip_prefix(['-', '+']).unwrap_or(plain);
    let (mantissa, exponent) =
        unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        None => digits(mantissa),
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
    };
    let exponent_ok = exponent.is_none_or(|e| digits(e.strip_prefix(['-', '+']).unwrap_or(e)));
    if !mantissa_ok || !exponent_ok {
        return None;
    }
    plain.parse().ok().filter(|f: &f64| f.is_finite())
}

fn special_float(text: &str) -> Option<f64> {
    match text {
        ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`: numbers of base 60, which only old readers accept.
fn is_base60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    let (head, fraction) = unsigned.split_once('.').map_or((unsigned, ""), |(h, f)| (h, f));
    let mut parts = head.split(':');
    let first = parts.next().unwrap_or("");
    let tail: Vec<&str> = parts.collect();
    let loose = |s: &str| s.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    loose(first)
        && loose(fraction)
        && !tail.is_empty()
        && tail.iter().all(|part| match part.as_bytes() {
            [d] => d.is_ascii_digit(),
            [t, d] => (b'0'..=b'5').contains(t) && d.is_ascii_digit(),
            _ => false,
        })
}

/// The four layouts that go-yaml accepts as a point in time: a date, or a date and a time of day. The zone is optional
/// only after a blank. Fields may lack their leading zero; they must name a day that exists.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || bytes[4] != b'-' || !bytes[..4].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let year: u32 = text[..4].parse().unwrap_or(0);
    let Some((month, rest)) = short_number(&text[5..]) else { return false };
    let Some((day, rest)) = rest.strip_prefix('-').and_then(short_number) else { return false };
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return false;
    }
    match rest.as_bytes().first() {
        None => true,
        Some(b' ') => time_of_day(&rest[1..]) == Some(""),
        Some(b'T' | b't') => time_of_day(&rest[1..]).is_some_and(is_zone),
        Some(_) => false,
    }
}

fn days_in(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// One or two digits, and the rest.
fn short_number(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

/// The rest after `15:4:5` and an optional fraction.
fn time_of_day(text: &str) -> Option<&str> {
    let (hour, rest) = short_number(text)?;
    let (minute, rest) = short_number(rest.strip_prefix(':')?)?;
    let (second, rest) = short_number(rest.strip_prefix(':')?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    match rest.strip_prefix(['.', ',']) {
        Some(fraction) if fraction.starts_with(|c: char| c.is_ascii_digit()) => {
            Some(fraction.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        _ => Some(rest),
    }
}

fn is_zone(text: &str) -> bool {
    let two =
        |t: &[u8], max: u8| t.iter().all(u8::is_ascii_digit) && (t[0] - b'0') * 10 + (t[1] - b'0') <= max;
    match text.as_bytes() {
        b"Z" => true,
        [b'+' | b'-', h @ .., b':', m1, m2] if h.len() == 2 => two(h, 24) && two(&[*m1, *m2], 60),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_mean_what_yaml_1_1_says() {
        use Scalar::{Bool, Date, Float, Int, Null, Text, Uint};
        for (text, meaning) in [
            ("", Null),
            ("~", Null),
            ("NULL", Null),
            ("nULL", Text),
            ("y", Bool(true)),
            ("Off", Bool(false)),
            ("oN", Text),
            ("0777", Int(511)),
            ("0o17", Int(15)),
            ("0b101", Int(5)),
            ("-0x1F", Int(-31)),
            ("1_000", Int(1000)),
            ("+12", Int(12)),
            ("08", Float(8.0)),
            ("0", Int(0)),
            ("-", Text),
            ("+", Text),
            ("0x", Text),
            ("0b-11", Int(-3)),
            ("1e3", Float(1000.0)),
            ("1.", Float(1.0)),
            (".5", Float(0.5)),
            (".", Text),
            ("1e", Text),
            ("1e400", Text),
            ("-9223372036854775808", Int(i64::MIN)),
            ("18446744073709551615", Uint(u64::MAX)),
            ("+18446744073709551615", Float(18_446_744_073_709_551_615.0)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            (".inf", Float(f64::INFINITY)),
            ("-.INF", Float(f64::NEG_INFINITY)),
            ("2020-02-29", Date),
            ("2021-02-29", Text),
            ("2020-1-2T3:4:5.6Z", Date),
            ("2020-01-02 03:04:05", Date),
            ("2020-01-02T03:04:05", Text),
            ("2020-01-02t03:04:05+01:00", Date),
            ("2020-01-02T25:04:05Z", Text),
            ("1:30", Text),
            ("1.2.3", Text),
            ("ä", Text),
        ] {
            assert_eq!(resolve(text), meaning, "{text:?}");
        }
    }

    #[test]
    fn ambiguous_text_is_quoted() {
        for text in ["yes", "1", "1:30", "-1_0:59.5", "2020-01-02", "null", "", "0o7", "1e3", ".5"] {
            assert!(needs_quotes(text, Dialect::V2), "{text}");
        }
        for text in ["1:60", "1.2.3", "a", "yess", "1h", "10.0.0.1/8", "v1", "<<", "0o-7"] {
            assert!(!needs_quotes(text, Dialect::V2), "{text}");
        }
        assert!(needs_quotes("0o-7", Dialect::V3) && !needs_quotes("<<", Dialect::V3));
        assert!(needs_quotes("<<", Dialect::V4) && !needs_quotes("0o-7", Dialect::V4));
    }
}
