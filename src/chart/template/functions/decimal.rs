//! Exact decimals for sprig's `addf`, `subf`, `mulf` and `divf`.

use std::cmp::Ordering;

/// Maximum number of digits: exponents of floats differ by some 600, and charts need no longer products.
const DIGITS_MAX: usize = 2_000;
/// Decimal places of a quotient.
const QUOTIENT_PLACES: i32 = 16;

/// `digits * 10^exponent`, the lowest digit first.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i32,
}

impl Decimal {
    /// The shortest decimal that reads back as the float.
    pub(super) fn from_float(f: f64) -> Result<Self, String> {
        if !f.is_finite() {
            let text = if f.is_nan() {
                "NaN"
            } else if f > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            };
            return Err(format!("Cannot create a Decimal from {text}"));
        }
        let text = format!("{f:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let digits: Vec<u8> = mantissa.bytes().rev().filter(u8::is_ascii_digit).map(|b| b - b'0').collect();
        let places = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let exponent = exponent.parse::<i32>().unwrap_or(0) - i32::try_from(places).unwrap_or(0);
        Ok(Self { negative: f < 0.0, digits, exponent }.trimmed())
    }

    pub(super) fn to_float(&self) -> f64 {
        let digits: String = self.digits.iter().rev().map(|d| char::from(b'0' + d)).collect();
        let sign = if self.negative { "-" } else { "" };
        format!("{sign}0{digits}e{}", self.exponent).parse().unwrap_or(f64::NAN)
    }

    /// The maximum cost of an operation on both, proportional to the digits that it reads and writes.
    pub(super) fn steps(&self, other: &Self) -> u64 {
        const DIGITS_PER_STEP: usize = 32;
        // The cost of a digit of the quotient in addition to the digits of the divisor.
        const OVERHEAD_DIGITS: usize = 32;
        let distance = self.exponent.abs_diff(other.exponent);
        let shift = usize::try_from(distance).unwrap_or(usize::MAX).min(DIGITS_MAX);
        let (a, b) = (self.digits.len(), other.digits.len());
        let work = (a + b + shift).saturating_mul(a.min(b) + OVERHEAD_DIGITS);
        u64::try_from(work / DIGITS_PER_STEP).unwrap_or(u64::MAX)
    }

    pub(super) fn add(&self, other: &Self) -> Result<Self, String> {
        let exponent = self.exponent.min(other.exponent);
        let (a, b) = (self.scaled_to(exponent)?, other.scaled_to(exponent)?);
        let (negative, digits) = if self.negative == other.negative {
            (self.negative, add(&a, &b))
        } else if compare(&a, &b) == Ordering::Less {
            (other.negative, subtract(&b, &a))
        } else {
            (self.negative, subtract(&a, &b))
        };
        Self { negative, digits, exponent }.checked()
    }

    pub(super) fn sub(&self, other: &Self) -> Result<Self, String> {
        self.add(&Self { negative: !other.negative, ..other.clone() })
    }

    pub(super) fn mul(&self, other: &Self) -> Result<Self, String> {
        let negative = self.negative != other.negative;
        let exponent = self.exponent + other.exponent;
        Self { negative, digits: multiply(&self.digits, &other.digits), exponent }.checked()
    }

    /// The quotient, rounded half away from zero at 16 places.
    pub(super) fn div(&self, other: &Self) -> Result<Self, String> {
        if other.is_zero() {
            return Err("decimal division by 0".to_owned());
        }
        let shift = self.exponent - other.exponent + QUOTIENT_PLACES;
        let (mut dividend, mut divisor) = (self.digits.clone(), other.digits.clone());
        let longer = if shift < 0 { &mut divisor } else { &mut dividend };
        shift_up(longer, usize::try_from(shift.unsigned_abs()).unwrap_or(0))?;
        let (mut quotient, remainder) = divide(&dividend, &divisor);
        if compare(&add(&remainder, &remainder), &divisor) != Ordering::Less {
            quotient = add(&quotient, &[1]);
        }
        let negative = self.negative != other.negative;
        Self { negative, digits: quotient, exponent: -QUOTIENT_PLACES }.checked()
    }

    fn is_zero(&self) -> bool {
        self.digits.iter().all(|d| *d == 0)
    }

    fn scaled_to(&self, exponent: i32) -> Result<Vec<u8>, String> {
        let mut digits = self.digits.clone();
        shift_up(&mut digits, usize::try_from(self.exponent - exponent).unwrap_or(0))?;
        Ok(digits)
    }

    fn checked(self) -> Result<Self, String> {
        let result = self.trimmed();
        if result.digits.len() > DIGITS_MAX || result.exponent.unsigned_abs() > 100_000 {
            return Err("decimal is too large".to_owned());
        }
        Ok(result)
    }

    fn trimmed(mut self) -> Self {
        trim(&mut self.digits);
        if self.digits.is_empty() {
            self.negative = false;
            self.exponent = 0;
        }
        self
    }
}

fn trim(digits: &mut Vec<u8>) {
    while digits.last() == Some(&0) {
        digits.pop();
    }
}

fn shift_up(digits: &mut Vec<u8>, places: usize) -> Result<(), String> {
    if digits.is_empty() {
        return Ok(());
    }
    if digits.len() + places > DIGITS_MAX {
        return Err("decimal is too large".to_owned());
    }
    digits.splice(0..0, std::iter::repeat_n(0, places));
    Ok(())
}

fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let significant = |d: &[u8]| d.iter().rposition(|x| *x != 0).map_or(0, |i| i + 1);
    let (a, b) = (&a[..significant(a)], &b[..significant(b)]);
    a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev()))
}

fn add(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let mut sum = Vec::with_capacity(a.len().max(b.len()) + 1);
    for i in 0..a.len().max(b.len()) {
        let digit = a.get(i).unwrap_or(&0) + b.get(i).unwrap_or(&0) + carry;
        sum.push(digit % 10);
        carry = digit / 10;
    }
    sum.push(carry);
    trim(&mut sum);
    sum
}

/// `a - b` for `a >= b`.
fn subtract(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut borrow = 0;
    let mut difference = Vec::with_capacity(a.len());
    for (i, digit) in a.iter().enumerate() {
        let minus = b.get(i).unwrap_or(&0) + borrow;
        borrow = u8::from(*digit < minus);
        difference.push(digit + 10 * borrow - minus);
    }
    trim(&mut difference);
    difference
}

fn multiply(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut columns = vec![0_u32; a.len() + b.len() + 1];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            columns[i + j] += u32::from(*x) * u32::from(*y);
        }
    }
    let mut carry = 0;
    let mut product = Vec::with_capacity(columns.len());
    for column in columns {
        carry += column;
        product.push(u8::try_from(carry % 10).unwrap_or(0));
        carry /= 10;
    }
    trim(&mut product);
    product
}

/// Quotient and remainder by long division.
fn divide(a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut quotient = vec![0; a.len()];
    let mut remainder: Vec<u8> = Vec::new();
    for i in (0..a.len()).rev() {
        remainder.insert(0, a[i]);
        trim(&mut remainder);
        while compare(&remainder, b) != Ordering::Less {
            remainder = subtract(&remainder, b);
            quotient[i] += 1;
        }
    }
    trim(&mut quotient);
    (quotient, remainder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        type DecimalOperation = fn(&Decimal, &Decimal) -> Result<Decimal, String>;
        let of = |f| Decimal::from_float(f).unwrap();
        for (a, op, b, want) in [
            (0.1, Decimal::add as DecimalOperation, 0.2, 0.3),
            (1.1, Decimal::sub, 1.0, 0.1),
            (-1.5, Decimal::add, 0.5, -1.0),
            (0.5, Decimal::sub, 2.0, -1.5),
            (1.1, Decimal::mul, 1.1, 1.21),
            (-3.0, Decimal::mul, 0.0, 0.0),
            (1.0, Decimal::div, 3.0, 0.333_333_333_333_333_3),
            (2.0, Decimal::div, 3.0, 0.666_666_666_666_666_7),
            (-10.0, Decimal::div, 4.0, -2.5),
            (1e300, Decimal::add, 1e-300, 1e300),
            (1e-10, Decimal::div, 1e10, 0.0),
        ] {
            assert_eq!(op(&of(a), &of(b)).unwrap().to_float(), want, "{a} {b}");
        }
        assert_eq!(of(1.0).div(&of(0.0)).unwrap_err(), "decimal division by 0");
        assert!(Decimal::from_float(f64::NAN).is_err());
    }
}
