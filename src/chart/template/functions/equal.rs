//! Go's `reflect.DeepEqual`: types count, so 1 and 1.0 differ.

use super::{Cause, Function, fixed};
use crate::chart::value::Type::Any;
use crate::chart::value::{Budget, Value};

pub(super) const FUNCTIONS: &[Function] =
    &[fixed("deepEqual", &[Any, Any], |a| Ok(deep_equal(a.any(0), a.any(1))?.into()))];

/// Whether two values are deeply equal.
///
/// # Errors
/// If a value is too large to be compared, or contains itself.
pub(super) fn deep_equal(a: &Value, b: &Value) -> Result<bool, Cause> {
    within(a, b, &mut Budget::new())
}

fn within(a: &Value, b: &Value, budget: &mut Budget) -> Result<bool, Cause> {
    if !budget.enter() {
        return Err("value is too large to be compared, or contains itself".into());
    }
    let equal = match (a, b) {
        (Value::Nil | Value::NilInterface, Value::Nil | Value::NilInterface) => true,
        (Value::Bool(x), Value::Bool(y)) => x == y,
        (Value::Int(x), Value::Int(y)) | (Value::Int64(x), Value::Int64(y)) => x == y,
        (Value::Uint64(x), Value::Uint64(y)) => x == y,
        (Value::Uint8(x), Value::Uint8(y)) => x == y,
        (Value::Float(x), Value::Float(y)) => x == y,
        (Value::Str(x), Value::Str(y)) => x == y,
        (Value::Bytes(x), Value::Bytes(y)) => x == y,
        (Value::List(x), Value::List(y)) => {
            let (left, right) = (x.items(), y.items());
            if x.kind() != y.kind() || x.is_nil() != y.is_nil() || left.len() != right.len() {
                false
            } else {
                all(left.iter().zip(right.iter()), budget)?
            }
        }
        (Value::Map(x), Value::Map(y)) => {
            let (left, right) = (x.entries(), y.entries());
            if x.kind() != y.kind() || x.is_nil() != y.is_nil() || !left.keys().eq(right.keys()) {
                false
            } else {
                x.is_same(y) || all(left.values().zip(right.values()), budget)?
            }
        }
        (Value::Native(x), Value::Native(y)) => x.type_name() == y.type_name() && x.display() == y.display(),
        _ => false,
    };
    budget.leave();
    Ok(equal)
}

fn all<'v>(pairs: impl Iterator<Item = (&'v Value, &'v Value)>, budget: &mut Budget) -> Result<bool, Cause> {
    for (a, b) in pairs {
        if !within(a, b, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}
