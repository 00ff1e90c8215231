//! Conversions between types: `int`, `float64`, `toString`, and the conversions of arithmetic.

use super::super::unquote::{parse_float, parse_int};
use super::{Args, Cause, Function, FunctionResult, fixed, to_text};
use crate::chart::value::Type::{Any, Str};
use crate::chart::value::{GoString, List, ListKind, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("int", &[Any], |a| Ok(Value::Int(to_int(a.any(0))))),
    fixed("int64", &[Any], |a| Ok(Value::Int64(to_int(a.any(0))))),
    fixed("float64", &[Any], |a| Ok(Value::Float(to_float(a.any(0))))),
    fixed("atoi", &[Str], |a| Ok(Value::Int(atoi(&a.str(0))))),
    fixed("toDecimal", &[Any], to_decimal),
    fixed("toString", &[Any], |a| Ok(to_text(a.any(0))?.into())),
    fixed("toStrings", &[Any], |a| Ok(Value::List(to_strings(a.any(0))?))),
    fixed("typeOf", &[Any], |a| Ok(a.any(0).type_name().into_owned().into())),
    fixed("typeIs", &[Str, Any], |a| Ok((a.any(1).type_name() == a.str(0)).into())),
    fixed("typeIsLike", &[Str, Any], type_is_like),
    fixed("kindOf", &[Any], |a| Ok(a.any(0).kind_name().into())),
    fixed("kindIs", &[Str, Any], |a| Ok((a.any(1).kind_name() == a.str(0)).into())),
];

fn type_is_like(a: &Args<'_>) -> FunctionResult {
    let (target, name) = (a.str(0), a.any(1).type_name());
    Ok((name == target || name.strip_prefix('*') == Some(&*target)).into())
}

/// Converts any value to an integer; 0 if that is impossible. Text may have base prefixes, so `010` is 8.
pub(super) fn to_int(value: &Value) -> i64 {
    match value {
        Value::Int(i) | Value::Int64(i) => *i,
        Value::Uint64(u) => u.cast_signed(),
        Value::Uint8(b) => i64::from(*b),
        Value::Float(f) => truncate(*f),
        Value::Bool(b) => i64::from(*b),
        Value::Str(s) => parse_int(without_zero_fraction(&s.to_str())).unwrap_or(0),
        _ => 0,
    }
}

/// Go's conversion on 64-bit machines: a value out of range becomes the smallest integer.
#[expect(clippy::cast_possible_truncation)] // range checked
fn truncate(f: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&f) { f as i64 } else { i64::MIN }
}

#[expect(clippy::cast_precision_loss)] // as Go converts
fn int_to_float(i: i64) -> f64 {
    i as f64
}

/// Removes the fraction of `1.0` and `1.00`.
fn without_zero_fraction(s: &str) -> &str {
    let whole = s.trim_end_matches('0');
    match whole.strip_suffix('.') {
        Some(integer) if whole.len() < s.len() => integer,
        _ => s,
    }
}

/// Converts any value to a float; 0 if that is impossible.
pub(super) fn to_float(value: &Value) -> f64 {
    match value {
        Value::Int(i) | Value::Int64(i) => int_to_float(*i),
        #[expect(clippy::cast_precision_loss)] // as Go converts
        Value::Uint64(u) => *u as f64,
        Value::Uint8(b) => f64::from(*b),
        Value::Float(f) => *f,
        Value::Bool(b) => f64::from(u8::from(*b)),
        Value::Str(s) => parse_float(&s.to_str()).unwrap_or(0.0),
        _ => 0.0,
    }
}

/// Go's `strconv.Atoi` without its error: 0, or the exceeded bound.
fn atoi(text: &str) -> i64 {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return 0;
    }
    let bound = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    text.parse().unwrap_or(bound)
}

/// Reads the printed value as an octal number.
fn to_decimal(a: &Args<'_>) -> FunctionResult {
    let text = super::format::display(a.any(0))?;
    let text = text.to_str();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let valid = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    Ok(Value::Int64(if valid { i64::from_str_radix(&text, 8).unwrap_or(0) } else { 0 }))
}

/// sprig's `strslice`: the texts of the items that are not nil; a single text for a value that is not a list.
pub(super) fn to_strings(value: &Value) -> Result<List, Cause> {
    match value {
        Value::Nil | Value::NilInterface => Ok(List::of(ListKind::Strings, Vec::new())),
        Value::List(list) if list.kind() == ListKind::Strings => Ok(list.clone()),
        _ => {
            let items = super::lists::items(value);
            let one = [value.clone()];
            let texts: Result<Vec<Value>, Cause> = items
                .as_deref()
                .unwrap_or(&one)
                .iter()
                .filter(|item| !item.is_nil())
                .map(|item| to_text(item).map(Value::Str))
                .collect();
            Ok(List::of(ListKind::Strings, texts?))
        }
    }
}

/// The texts of [`to_strings`].
pub(super) fn texts(value: &Value) -> Result<Vec<GoString>, Cause> {
    let list = to_strings(value)?;
    let texts = list.items().iter().filter_map(|v| v.as_text().cloned()).collect();
    Ok(texts)
}
