//! Numbers as Go prints them.

/// Go's `%g` with the shortest digits that read back as the same value (`strconv.FormatFloat(v, 'g', -1, 64)`): exponent
/// form when the decimal exponent is below -4 or above 5.
pub(crate) fn general(value: f64) -> String {
    if let Some(small) = small(value) {
        return small.to_string();
    }
    if !value.is_finite() {
        return special(value);
    }
    lay_out(&shortest(value))
}

/// The shortest digits that read back as the same value, in Rust's `{:e}`. Of two that are equally near, Go takes the even one,
/// and Rust the larger one.
fn shortest(value: f64) -> String {
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let count = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let last = mantissa.bytes().last().unwrap_or(b'0');
    if count < TIE_DIGITS_MIN || last % 2 == 0 {
        return text;
    }
    // The exact value has one digit more, and this is a five.
    let exact = format!("{value:.*e}", count + EXACT_DIGITS);
    let begin = mantissa.len();
    let rest = exact.get(begin..).and_then(|rest| rest.split('e').next()).unwrap_or_default();
    if !(rest.starts_with('5') && rest[1..].bytes().all(|digit| digit == b'0')) {
        return text;
    }
    let is_lower = exact.starts_with(mantissa);
    let even = if is_lower { last + 1 } else { last - 1 };
    // A nine or a zero would have had a shorter form.
    format!("{}{}e{exponent}", &mantissa[..begin - 1], char::from(even))
}

/// With fewer digits, no two texts are equally near to one value.
const TIE_DIGITS_MIN: usize = 16;
/// More digits than follow a tie that is none.
const EXACT_DIGITS: usize = 40;

/// The same for 32 bits: the text of keys that look like numbers, and of numbers in chart metadata.
pub(crate) fn general32(value: f32) -> String {
    if !value.is_finite() {
        return special(f64::from(value));
    }
    lay_out(&format!("{value:e}"))
}

/// A number as `encoding/json` writes it: plain for 1e-6 <= |v| < 1e21, else with an exponent without leading zero.
pub(crate) fn json(value: f64) -> String {
    if let Some(small) = small(value) {
        return small.to_string();
    }
    let size = value.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return plain(&shortest(value));
    }
    let text = scientific(&shortest(value));
    // "1e-07" becomes "1e-7"; exponents above 20 have two digits anyway.
    match text.strip_suffix(|c: char| c.is_ascii_digit()) {
        Some(head) if head.ends_with("e-0") => format!("{}{}", &head[..head.len() - 1], &text[head.len()..]),
        _ => text,
    }
}

/// The integer that a float becomes after a round trip through JSON, if JSON writes it without fraction and exponent:
/// the shortest digits of this float, padded with zeros.
pub(crate) fn whole(value: f64) -> Option<i64> {
    if value.fract() != 0.0 || !value.is_finite() {
        return None;
    }
    small(value).map(i64::from).or_else(|| json(value).parse().ok())
}

/// A whole number of up to six digits, which looks the same in all formats: nearly every number of a chart.
pub(crate) fn small(value: f64) -> Option<i32> {
    #[expect(clippy::cast_possible_truncation)] // compared with what it was
    let whole = value as i32;
    // Zero may have a sign.
    (f64::from(whole) == value && whole != 0 && whole.unsigned_abs() < 1_000_000).then_some(whole)
}

fn special(value: f64) -> String {
    let text = match value {
        v if v.is_nan() => "NaN",
        v if v > 0.0 => "+Inf",
        _ => "-Inf",
    };
    text.to_owned()
}

/// Rust's `{:e}` (shortest digits, "-1.25e-7") in Go's layout.
fn lay_out(rust: &str) -> String {
    let exponent = rust.split_once('e').map_or("0", |(_, exponent)| exponent);
    let is_plain = exponent.parse::<i32>().is_ok_and(|exponent| (-4..=5).contains(&exponent));
    if is_plain { plain(rust) } else { scientific(rust) }
}

/// Rust's `{:e}` without an exponent.
fn plain(rust: &str) -> String {
    let (mantissa, exponent) = rust.split_once('e').unwrap_or((rust, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |m| ("-", m));
    let digits = mantissa.replace('.', "");
    if exponent < 0 {
        let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or(0));
        return format!("{sign}0.{zeros}{digits}");
    }
    let point = usize::try_from(exponent + 1).unwrap_or(1);
    if digits.len() <= point {
        return format!("{sign}{digits:0<point$}");
    }
    format!("{sign}{}.{}", &digits[..point], &digits[point..])
}

/// Rust's `{:e}` with Go's exponent: a sign and at least two digits.
fn scientific(rust: &str) -> String {
    let (mantissa, exponent) = rust.split_once('e').unwrap_or((rust, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
    format!("{mantissa}e{sign}{digits:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_read_as_in_go() {
        for (value, g, j) in [
            (0.0, "0", "0"),
            (1.0, "1", "1"),
            (-1.5, "-1.5", "-1.5"),
            (100_000.0, "100000", "100000"),
            (123_456.7, "123456.7", "123456.7"),
            (1e6, "1e+06", "1000000"),
            (1_234_567.5, "1.2345675e+06", "1234567.5"),
            (1e20, "1e+20", "100000000000000000000"),
            (1e21, "1e+21", "1e+21"),
            (1e100, "1e+100", "1e+100"),
            (0.000_12, "0.00012", "0.00012"),
            (0.000_1, "0.0001", "0.0001"),
            (1e-5, "1e-05", "0.00001"),
            (1e-7, "1e-07", "1e-7"),
            (-2.5e-10, "-2.5e-10", "-2.5e-10"),
            (123_456_789_012_345_680_000.0, "1.2345678901234568e+20", "123456789012345680000"),
            // Two texts are equally near.
            (1e15 + 2.25, "1.0000000000000022e+15", "1000000000000002.2"),
            (1e15 + 2.75, "1.0000000000000028e+15", "1000000000000002.8"),
            (-1e15 - 2.25, "-1.0000000000000022e+15", "-1000000000000002.2"),
        ] {
            assert_eq!(general(value), g);
            assert_eq!(json(value), j);
        }
        for whole in [1, -1, 8080, 65_535, 999_999, -999_999] {
            let text = whole.to_string();
            assert_eq!((general(f64::from(whole)), json(f64::from(whole))), (text.clone(), text));
        }
        assert_eq!((general(-0.0), json(-0.0)), ("-0".to_owned(), "-0".to_owned()));
        assert_eq!(general(f64::NEG_INFINITY), "-Inf");
        assert_eq!(general32(1.1), "1.1");
        assert_eq!(general32(123_456_789.0), "1.2345679e+08");
    }

    #[test]
    fn whole_numbers_are_recognized() {
        assert_eq!(whole(-3.0), Some(-3));
        assert_eq!(whole(9_007_199_254_740_992.0), Some(9_007_199_254_740_992));
        assert_eq!(
            (whole(0.5), whole(1e19), whole(f64::NAN), whole(f64::INFINITY)),
            (None, None, None, None)
        );
    }
}
