//! Arithmetic: 64-bit integers that wrap, floats, and decimals for `addf` and related functions.

use super::cast::{to_float, to_int};
use super::decimal::Decimal;
use super::{Args, Cause, Function, FunctionResult, fixed, variadic};
use crate::chart::value::Type::{Any, Float, Int};
use crate::chart::value::{List, ListKind, Value};
use crate::limits::TEMPLATE_LIST_ITEMS_MAX;

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("add1", &[Any], |a| Ok(Value::Int64(to_int(a.any(0)).wrapping_add(1)))),
    variadic("add", &[], Any, |a| Ok(fold(a, 0, i64::wrapping_add))),
    fixed("sub", &[Any, Any], |a| Ok(Value::Int64(to_int(a.any(0)).wrapping_sub(to_int(a.any(1)))))),
    variadic("mul", &[Any], Any, |a| Ok(fold(a, 1, i64::wrapping_mul))),
    fixed("div", &[Any, Any], |a| divide(a, i64::wrapping_div)),
    fixed("mod", &[Any, Any], |a| divide(a, i64::wrapping_rem)),
    variadic("max", &[Any], Any, |a| Ok(fold(a, i64::MIN, i64::max))),
    variadic("biggest", &[Any], Any, |a| Ok(fold(a, i64::MIN, i64::max))),
    variadic("min", &[Any], Any, |a| Ok(fold(a, i64::MAX, i64::min))),
    variadic("maxf", &[Any], Any, |a| Ok(fold_float(a, max))),
    variadic("minf", &[Any], Any, |a| Ok(fold_float(a, min))),
    fixed("floor", &[Any], |a| Ok(Value::Float(to_float(a.any(0)).floor()))),
    fixed("ceil", &[Any], |a| Ok(Value::Float(to_float(a.any(0)).ceil()))),
    variadic("round", &[Any, Int], Float, round),
    fixed("add1f", &[Any], |a| decimals(a, a.any(0), &[Value::Int(1)], Decimal::add)),
    variadic("addf", &[], Any, |a| decimals(a, &Value::Float(0.0), a.rest(0), Decimal::add)),
    variadic("subf", &[Any], Any, |a| decimals(a, a.any(0), a.rest(1), Decimal::sub)),
    variadic("mulf", &[Any], Any, |a| decimals(a, a.any(0), a.rest(1), Decimal::mul)),
    variadic("divf", &[Any], Any, |a| decimals(a, a.any(0), a.rest(1), Decimal::div)),
    fixed("until", &[Int], until),
    fixed("untilStep", &[Int, Int, Int], |a| ints(steps(a.int(0), a.int(1), a.int(2))?)),
    variadic("seq", &[], Int, seq),
];

fn fold(a: &Args<'_>, start: i64, f: fn(i64, i64) -> i64) -> Value {
    Value::Int64(a.rest(0).iter().map(to_int).fold(start, f))
}

fn divide(a: &Args<'_>, f: fn(i64, i64) -> i64) -> FunctionResult {
    match to_int(a.any(1)) {
        0 => Err("runtime error: integer divide by zero".into()),
        divisor => Ok(Value::Int64(f(to_int(a.any(0)), divisor))),
    }
}

fn fold_float(a: &Args<'_>, f: fn(f64, f64) -> f64) -> Value {
    let mut numbers = a.rest(0).iter().map(to_float);
    let first = numbers.next().unwrap_or(0.0);
    Value::Float(numbers.fold(first, f))
}

/// Go's maximum: infinity wins, then NaN, and 0 is more than -0, unlike in Rust.
fn max(x: f64, y: f64) -> f64 {
    match (x, y) {
        _ if x == f64::INFINITY || y == f64::INFINITY => f64::INFINITY,
        _ if x.is_nan() || y.is_nan() => f64::NAN,
        // Equal numbers differ at most in their sign, if they are zero.
        _ if x == y => f64::from_bits(x.to_bits() & y.to_bits()),
        _ => x.max(y),
    }
}

fn min(x: f64, y: f64) -> f64 {
    -max(-x, -y)
}

/// Rounds up from a fraction of `.5`, or of the third argument; for negative numbers only the sign
/// of the fraction decides.
fn round(a: &Args<'_>) -> FunctionResult {
    let round_on = match a.rest(2).first() {
        Some(Value::Float(f)) => *f,
        _ => 0.5,
    };
    let places = i32::try_from(a.int(1)).unwrap_or(i32::MAX);
    let pow = 10_f64.powi(places);
    let digit = pow * to_float(a.any(0));
    let whole = if digit.fract() >= round_on { digit.ceil() } else { digit.floor() };
    Ok(Value::Float(whole / pow))
}

type DecimalOperation = fn(&Decimal, &Decimal) -> Result<Decimal, String>;

fn decimals(a: &Args<'_>, first: &Value, rest: &[Value], f: DecimalOperation) -> FunctionResult {
    let mut total = Decimal::from_float(to_float(first))?;
    for value in rest {
        let other = Decimal::from_float(to_float(value))?;
        a.engine.shared.charge(total.steps(&other))?;
        total = f(&total, &other)?;
    }
    Ok(Value::Float(total.to_float()))
}

fn until(a: &Args<'_>) -> FunctionResult {
    let count = a.int(0);
    ints(steps(0, count, if count < 0 { -1 } else { 1 })?)
}

fn ints(numbers: Vec<i64>) -> FunctionResult {
    Ok(Value::List(List::of(ListKind::Ints, numbers.into_iter().map(Value::Int).collect())))
}

/// The numbers from `start` up to `stop`, exclusive; none if the step points away from it.
fn steps(start: i64, stop: i64, step: i64) -> Result<Vec<i64>, Cause> {
    let mut numbers = Vec::new();
    let mut next = start;
    let toward = |n: i64| if stop < start { step < 0 && n > stop } else { step > 0 && n < stop };
    while toward(next) {
        if numbers.len() >= TEMPLATE_LIST_ITEMS_MAX {
            return Err(format!("list has more than {TEMPLATE_LIST_ITEMS_MAX} items").into());
        }
        numbers.push(next);
        // As in Go, overflow wraps around.
        next = next.wrapping_add(step);
    }
    Ok(numbers)
}

fn seq(a: &Args<'_>) -> FunctionResult {
    let given: Vec<i64> = (0..a.rest(0).len()).map(|i| a.int(i)).collect();
    let (start, step, end) = match given[..] {
        [end] => (1, if end < 1 { -1 } else { 1 }, end),
        [start, end] => (start, if end < start { -1 } else { 1 }, end),
        [start, step, end] => (start, step, end),
        _ => return Ok("".into()),
    };
    if end < start && step > 0 {
        return Ok("".into());
    }
    let stop = end.wrapping_add(if end < start { -1 } else { 1 });
    let texts: Vec<String> = steps(start, stop, step)?.iter().map(ToString::to_string).collect();
    Ok(texts.join(" ").into())
}
