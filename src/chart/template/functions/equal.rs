//! Go's `reflect.DeepEqual`: types matter, so 1 and 1.0 differ.

use super::{Args, BYTES_PER_STEP, Cause, Function, fixed};
use crate::chart::value::Type::Any;
use crate::chart::value::{Budget, Map, Value, count_walked};

pub(super) const FUNCTIONS: &[Function] =
    &[fixed("deepEqual", &[Any, Any], |a| Ok(deep_equal(a, a.any(0), a.any(1))?.into()))];

/// Whether two values are deeply equal. Errors: if a value is too large to compare, or contains itself, or
/// no steps are left.
pub(super) fn deep_equal(args: &Args<'_>, a: &Value, b: &Value) -> Result<bool, Cause> {
    Comparison { args, budget: Budget::new() }.equal(a, b)
}

/// A comparison that counts its steps.
struct Comparison<'a> {
    args: &'a Args<'a>,
    budget: Budget,
}

impl Comparison<'_> {
    fn equal(&mut self, a: &Value, b: &Value) -> Result<bool, Cause> {
        if !self.budget.enter() {
            return Err("value is too large to be compared, or contains itself".into());
        }
        let equal = match (a, b) {
            (Value::Nil | Value::NilInterface, Value::Nil | Value::NilInterface) => true,
            (Value::Bool(x), Value::Bool(y)) => x == y,
            (Value::Int(x), Value::Int(y)) | (Value::Int64(x), Value::Int64(y)) => x == y,
            (Value::Uint64(x), Value::Uint64(y)) => x == y,
            (Value::Uint8(x), Value::Uint8(y)) => x == y,
            (Value::Float(x), Value::Float(y)) => x == y,
            (Value::Str(x), Value::Str(y)) => self.bytes(x.as_bytes(), y.as_bytes())?,
            (Value::Bytes(x), Value::Bytes(y)) => self.bytes(x, y)?,
            (Value::List(x), Value::List(y)) => {
                let (left, right) = (x.items(), y.items());
                if x.kind() != y.kind() || x.is_nil() != y.is_nil() || left.len() != right.len() {
                    false
                } else {
                    self.all(left.iter().zip(right.iter()))?
                }
            }
            (Value::Map(x), Value::Map(y)) => self.maps(x, y)?,
            (Value::Native(x), Value::Native(y)) => {
                x.type_name() == y.type_name()
                    && self.bytes(x.display().as_bytes(), y.display().as_bytes())?
            }
            _ => false,
        };
        self.budget.leave();
        Ok(equal)
    }

    fn maps(&mut self, a: &Map, b: &Map) -> Result<bool, Cause> {
        if a.kind() != b.kind() || a.is_nil() != b.is_nil() {
            return Ok(false);
        }
        if a.is_same(b) {
            return Ok(true);
        }
        let (left, right) = (a.entries(), b.entries());
        if left.len() != right.len() {
            return Ok(false);
        }
        for (x, y) in left.keys().zip(right.keys()) {
            if !self.bytes(x.as_bytes(), y.as_bytes())? {
                return Ok(false);
            }
        }
        self.all(left.values().zip(right.values()))
    }

    fn all<'v>(&mut self, pairs: impl Iterator<Item = (&'v Value, &'v Value)>) -> Result<bool, Cause> {
        for (a, b) in pairs {
            if !self.equal(a, b)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Texts of different lengths differ without a comparison.
    fn bytes(&self, a: &[u8], b: &[u8]) -> Result<bool, Cause> {
        if a.len() != b.len() {
            return Ok(false);
        }
        count_walked(1);
        if a.len() >= BYTES_PER_STEP {
            self.args.charge(a.len())?;
        }
        Ok(a == b)
    }
}
