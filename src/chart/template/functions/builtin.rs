//! The functions of `text/template` itself.

use std::cmp::Ordering;

use super::super::format;
use super::{Args, Function, FunctionBody, FunctionResult, fixed, variadic};
use crate::chart::value::Type::{Any, Reflect, Str};
use crate::chart::value::{MapKind, Signature, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    short_circuit("and", false),
    short_circuit("or", true),
    fixed("not", &[Reflect], |a| Ok((!a.any(0).is_true()).into())),
    fixed("len", &[Reflect], len),
    variadic("index", &[Reflect], Reflect, index),
    variadic("print", &[], Any, |a| Ok(format::sprint(a.rest(0))?.into())),
    variadic("println", &[], Any, |a| Ok(format::sprintln(a.rest(0))?.into())),
    variadic("printf", &[Str], Any, printf),
    Function { name: "call", signature: ANY_NUMBER, run: FunctionBody::Call },
    variadic("eq", &[Reflect], Reflect, |a| equal_any(a).map(Value::Bool)),
    fixed("ne", &[Reflect, Reflect], |a| equal_any(a).map(|equal| Value::Bool(!equal))),
    fixed("lt", &[Reflect, Reflect], |a| less(a.any(0), a.any(1)).map(Value::Bool)),
    fixed("le", &[Reflect, Reflect], |a| less_or_equal(a).map(Value::Bool)),
    fixed("gt", &[Reflect, Reflect], |a| less_or_equal(a).map(|le| Value::Bool(!le))),
    fixed("ge", &[Reflect, Reflect], |a| less(a.any(0), a.any(1)).map(|lt| Value::Bool(!lt))),
];

const ANY_NUMBER: Signature = Signature { fixed: &[Reflect], variadic: Some(Reflect) };

const fn short_circuit(name: &'static str, until: bool) -> Function {
    Function { name, signature: ANY_NUMBER, run: FunctionBody::ShortCircuit { until } }
}

fn printf(a: &Args<'_>) -> FunctionResult {
    let text = format::sprintf(a.bytes(0), a.rest(1))?;
    Ok(crate::chart::value::GoString::from(text).into())
}

fn len(a: &Args<'_>) -> FunctionResult {
    let len = match a.any(0) {
        Value::Str(s) => s.len(),
        Value::Bytes(b) => b.len(),
        Value::List(l) => l.items().len(),
        Value::Map(m) => m.entries().len(),
        Value::NilInterface => return Err("len of nil pointer".into()),
        Value::Nil => return Err("reflect: call of reflect.Value.Type on zero Value".into()),
        other => {
            let count = if let Value::Native(object) = other { object.count() } else { None };
            count.ok_or_else(|| format!("len of type {}", other.type_name()))?
        }
    };
    Ok(Value::Int(i64::try_from(len).unwrap_or(i64::MAX)))
}

fn index(a: &Args<'_>) -> FunctionResult {
    let mut item = a.any(0).clone();
    if item.is_nil() {
        return Err("index of untyped nil".into());
    }
    for key in a.rest(1) {
        item = match &item {
            Value::Nil | Value::NilInterface => return Err("index of nil pointer".into()),
            Value::Map(map) => {
                let found = map.get(&map_key(key)?);
                let missing = if map.kind() == MapKind::Strings { Value::str("") } else { Value::Nil };
                found.unwrap_or(missing)
            }
            Value::List(list) => {
                let at = position(key, list.items().len())?;
                list.get(at).ok_or_else(|| out_of_range("slice"))?
            }
            Value::Str(s) => byte(s.as_bytes(), key, "string")?,
            Value::Bytes(b) => byte(b, key, "slice")?,
            Value::Native(object) if object.count().is_some() => {
                if object.kind_name() == "map" {
                    let name = map_key(key)?;
                    object.field(&name).unwrap_or_default()
                } else {
                    let at = position(key, object.count().unwrap_or_default())?;
                    object.item(at).ok_or_else(|| out_of_range("slice"))?
                }
            }
            other => return Err(format!("can't index item of type {}", other.type_name()).into()),
        };
    }
    Ok(item)
}

fn byte(bytes: &[u8], key: &Value, kind: &str) -> FunctionResult {
    let at = position(key, bytes.len())?;
    let byte = bytes.get(at).ok_or_else(|| out_of_range(kind))?;
    Ok(Value::Uint8(*byte))
}

// Go's check accepts the index just after the end, and its reflection then panics.
fn out_of_range(kind: &str) -> super::Cause {
    format!("reflect: {kind} index out of range").into()
}

fn map_key(key: &Value) -> Result<std::rc::Rc<str>, super::Cause> {
    match key {
        Value::Str(s) => Ok(s.to_key()),
        Value::Nil | Value::NilInterface => Err("value is nil; should be of type string".into()),
        other => Err(format!("value has type {}; should be string", other.type_name()).into()),
    }
}

fn position(key: &Value, len: usize) -> Result<usize, super::Cause> {
    let number = match key {
        Value::Int(i) | Value::Int64(i) => *i,
        Value::Uint64(u) => i64::try_from(*u).unwrap_or(-1),
        Value::Uint8(b) => i64::from(*b),
        Value::Nil | Value::NilInterface => return Err("cannot index slice/array with nil".into()),
        other => return Err(format!("cannot index slice/array with type {}", other.type_name()).into()),
    };
    usize::try_from(number)
        .ok()
        .filter(|at| *at <= len)
        .ok_or_else(|| format!("index out of range: {number}").into())
}

/// Go's basic kinds: only equal kinds compare, but integers of any sign do too.
#[derive(PartialEq)]
enum Basic<'v> {
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(&'v [u8]),
    Other,
}

fn basic(value: &Value) -> Basic<'_> {
    match value {
        Value::Bool(b) => Basic::Bool(*b),
        Value::Int(i) | Value::Int64(i) => Basic::Int(i128::from(*i)),
        Value::Uint64(u) => Basic::Int(i128::from(*u)),
        Value::Uint8(b) => Basic::Int(i128::from(*b)),
        Value::Float(f) => Basic::Float(*f),
        Value::Str(s) => Basic::Str(s.as_bytes()),
        _ => Basic::Other,
    }
}

fn equal_any(a: &Args<'_>) -> Result<bool, super::Cause> {
    if a.rest(1).is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in a.rest(1) {
        if equal(a.any(0), other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equal(a: &Value, b: &Value) -> Result<bool, super::Cause> {
    match (basic(a), basic(b)) {
        (Basic::Bool(x), Basic::Bool(y)) => Ok(x == y),
        (Basic::Int(x), Basic::Int(y)) => Ok(x == y),
        (Basic::Float(x), Basic::Float(y)) => Ok(x == y),
        (Basic::Str(x), Basic::Str(y)) => Ok(x == y),
        (Basic::Other, Basic::Other) => equal_other(a, b),
        _ if a.is_nil() || b.is_nil() => Ok(false),
        _ => Err(incompatible(a, b)),
    }
}

fn equal_other(a: &Value, b: &Value) -> Result<bool, super::Cause> {
    if a.is_nil() || b.is_nil() || is_nil_collection(a) || is_nil_collection(b) {
        if !a.is_nil() && !b.is_nil() && a.kind_name() != b.kind_name() {
            return Err(non_comparable(a, b)?);
        }
        return Ok(is_nil_of_any_kind(a) == is_nil_of_any_kind(b));
    }
    match (a, b) {
        (Value::Native(x), Value::Native(y)) if a.kind_name() == b.kind_name() => {
            Ok(x.type_name() == y.type_name() && x.display() == y.display())
        }
        _ if a.kind_name() != b.kind_name() => Err(non_comparable(a, b)?),
        _ => {
            let text = format::sprintf(b"%s", std::slice::from_ref(b))?;
            Err(format!("non-comparable type {}: {}", String::from_utf8_lossy(&text), b.type_name()).into())
        }
    }
}

fn is_nil_collection(value: &Value) -> bool {
    match value {
        Value::List(l) => l.is_nil(),
        Value::Map(m) => m.is_nil(),
        _ => false,
    }
}

fn is_nil_of_any_kind(value: &Value) -> bool {
    value.is_nil() || is_nil_collection(value)
}

fn non_comparable(a: &Value, b: &Value) -> Result<super::Cause, super::Cause> {
    let (x, y) = (format::sprintf(b"%s", std::slice::from_ref(a))?, format::display(b)?);
    let (x, y) = (String::from_utf8_lossy(&x), y.to_str());
    Ok(format!("non-comparable types {x}: {}, {}: {y}", a.type_name(), b.type_name()).into())
}

fn incompatible(a: &Value, b: &Value) -> super::Cause {
    format!("incompatible types for comparison: {} and {}", a.type_name(), b.type_name()).into()
}

fn less(a: &Value, b: &Value) -> Result<bool, super::Cause> {
    let order = match (basic(a), basic(b)) {
        (Basic::Other, _) | (_, Basic::Other) | (Basic::Bool(_), Basic::Bool(_)) => {
            return Err("invalid type for comparison".into());
        }
        (Basic::Int(x), Basic::Int(y)) => Some(x.cmp(&y)),
        (Basic::Float(x), Basic::Float(y)) => x.partial_cmp(&y),
        (Basic::Str(x), Basic::Str(y)) => Some(x.cmp(y)),
        _ => return Err(incompatible(a, b)),
    };
    Ok(order == Some(Ordering::Less))
}

fn less_or_equal(a: &Args<'_>) -> Result<bool, super::Cause> {
    Ok(less(a.any(0), a.any(1))? || equal(a.any(0), a.any(1))?)
}
