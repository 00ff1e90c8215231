//! Empty values, and choices between values.

use super::lists::items;
use super::{Args, Function, FunctionResult, fixed, variadic};
use crate::chart::value::Type::{Any, Bool};
use crate::chart::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    variadic("default", &[Any], Any, default),
    fixed("empty", &[Any], |a| Ok(is_empty(a.any(0)).into())),
    variadic("coalesce", &[], Any, |a| {
        Ok(a.rest(0).iter().find(|v| !is_empty(v)).cloned().unwrap_or_default())
    }),
    variadic("all", &[], Any, |a| Ok((!a.rest(0).iter().any(is_empty)).into())),
    variadic("any", &[], Any, |a| Ok((!a.rest(0).iter().all(is_empty)).into())),
    fixed("ternary", &[Any, Any, Bool], |a| Ok(a.any(if a.bool(2) { 0 } else { 1 }).clone())),
    fixed("hello", &[], |_| Ok("Hello!".into())),
];

/// Whether sprig considers the value empty: nil, zero, false, or without content.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Native(object) => match object.kind_name() {
            "map" | "slice" => items(value).is_none_or(|i| i.is_empty()) && !object.is_true(),
            _ => false,
        },
        other => !other.is_true(),
    }
}

fn default(a: &Args<'_>) -> FunctionResult {
    let given = a.rest(1).first().filter(|v| !is_empty(v));
    Ok(given.unwrap_or(a.any(0)).clone())
}
