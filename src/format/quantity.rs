//! Kubernetes quantities: `500m`, `1.5Gi`, `12e6`.
//!
//! Follows `k8s.io/apimachinery/pkg/api/resource`: anything finer than a billionth is rounded away from zero, and the
//! canonical text has no fraction and the largest suffix. Unlike upstream, values beyond 10^29 are refused.

use std::cmp::Ordering;
use std::fmt;

/// An amount, and the family of suffixes of its text.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// In units of 10^-9.
    nanos: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Binary,
    /// n, u, m, k, M ...
    Decimal,
    /// e3, E6 ...
    Exponent,
}

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    text: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a quantity", self.text)
    }
}

impl std::error::Error for Error {}

const NANOS: i128 = 1_000_000_000;
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// From 10^-9 in steps of a thousand.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl Quantity {
    /// Parses a quantity. Errors: the text, if it is not a quantity or is too large.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::read(text).ok_or_else(|| Error { text: text.to_owned() })
    }

    fn read(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (format, base, exponent) = scale(suffix)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        let nanos = scaled(mantissa, base, exponent, i32::try_from(fraction.len()).ok()?)?;
        Some(Self { nanos: if negative { -nanos } else { nanos }, format })
    }

    /// The amount, rounded up (away from zero) to a whole number.
    pub fn whole(&self) -> i128 {
        let rest = self.nanos % NANOS;
        self.nanos / NANOS + if rest == 0 { 0 } else { rest.signum() }
    }

    /// The amount in thousandths, rounded up (away from zero): millicores.
    pub fn milli(&self) -> i128 {
        let rest = self.nanos % 1_000_000;
        self.nanos / 1_000_000 + if rest == 0 { 0 } else { rest.signum() }
    }
}

/// Whether two texts mean the same amount: `1000` and `1k`, `1Gi` and `1024Mi`.
pub(crate) fn same(a: &str, b: &str) -> bool {
    let amount = |text| Quantity::parse(text).ok().map(|quantity| quantity.nanos);
    a == b || amount(a).is_some_and(|nanos| amount(b) == Some(nanos))
}

impl std::ops::Sub for Quantity {
    type Output = Self;

    /// The result has the suffix family of the left side.
    fn sub(self, less: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(less.nanos), format: self.format }
    }
}

/// Base, exponent and family of a suffix.
fn scale(suffix: &str) -> Option<(Format, i128, i32)> {
    let steps =
        |names: &[&str]| names.iter().position(|name| *name == suffix).and_then(|at| i32::try_from(at).ok());
    if let Some(step) = steps(&DECIMAL) {
        return Some((Format::Decimal, 10, 3 * step - 9));
    }
    if let Some(step) = steps(&BINARY) {
        return Some((Format::Binary, 1_024, step));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Format::Exponent, 10, exponent))
}

/// `mantissa * base^exponent / 10^fraction` in billionths, rounded away from zero.
fn scaled(mantissa: i128, base: i128, exponent: i32, fraction: i32) -> Option<i128> {
    let power = |base: i128, n: i32| u32::try_from(n).ok().and_then(|n| base.checked_pow(n));
    if mantissa == 0 {
        return Some(0);
    }
    let (up, down) = if base == 10 {
        let shift = exponent.checked_sub(fraction)?.checked_add(9)?;
        if shift >= 0 { (power(10, shift)?, 1) } else { (1, power(10, -shift).unwrap_or(i128::MAX)) }
    } else {
        let shift = 9 - fraction;
        let binary = power(base, exponent)?;
        if shift >= 0 {
            (binary.checked_mul(power(10, shift)?)?, 1)
        } else {
            (binary, power(10, -shift).unwrap_or(i128::MAX))
        }
    };
    let product = mantissa.checked_mul(up)?;
    Some(product / down + i128::from(product % down != 0))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos % NANOS == 0;
        if self.format == Format::Binary && whole && (self.nanos / NANOS).abs() >= 1_024 {
            let (number, step) = reduced(self.nanos / NANOS, 1_024, BINARY.len() - 1);
            return write!(f, "{number}{}", BINARY[step]);
        }
        let (number, step) = reduced(self.nanos, 1_000, DECIMAL.len() - 1);
        match (self.format, step) {
            (Format::Exponent, 3) => write!(f, "{number}"),
            (Format::Exponent, step) => {
                write!(f, "{number}e{}", 3 * i32::try_from(step).unwrap_or(0) - 9)
            }
            (_, step) => write!(f, "{number}{}", DECIMAL[step]),
        }
    }
}

/// Takes out factors of `base`, at most `steps_max`.
fn reduced(mut number: i128, base: i128, steps_max: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < steps_max && number % base == 0 {
        number /= base;
        steps += 1;
    }
    (number, steps)
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_keeps_the_family_of_the_left_side() {
        for (total, less, expected) in [("50", "5", "45"), ("8Gi", "512Mi", "7680Mi"), ("2", "500m", "1500m")]
        {
            let rest = Quantity::parse(total).unwrap() - Quantity::parse(less).unwrap();
            assert_eq!(rest.to_string(), expected, "{total} - {less}");
        }
    }

    #[test]
    fn quantities_become_canonical() {
        for (text, canonical) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("100m", "100m"),
            ("0.1", "100m"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("1000000000", "1G"),
            ("1024Ki", "1Mi"),
            ("0.5Gi", "512Mi"),
            ("1000Ki", "1000Ki"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("1.00001Ki", "1024010240u"),
            ("12e6", "12e6"),
            ("1E3", "1e3"),
            ("1e-3", "1e-3"),
            ("-1.5Gi", "-1536Mi"),
            ("+5", "5"),
            ("1E", "1E"),
            (".5", "500m"),
            ("5.", "5"),
            ("0.0000000001", "1n"),
            ("100000000000000000000", "100E"),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn quantities_compare_across_suffixes() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("1"), q("1000m"));
        assert!(q("1Gi") > q("1G"));
        assert!(q("-1") < q("0"));
        assert_eq!(
            (q("1.1").whole(), q("-1.1").whole(), q("100m").milli(), q("1u").milli()),
            (2, -2, 100, 1)
        );
    }

    #[test]
    fn invalid_quantities_are_refused() {
        for text in ["", "x", "1 Gi", "1gi", "1..2", ".", "--1", "1e", "1KiB", "1e999999999999", "1e40", "Ki"]
        {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
        assert!(Quantity::parse("999999999999999999999999999999999999999").is_err());
    }
}
