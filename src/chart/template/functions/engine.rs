//! Helm's own functions that use the engine or the cluster.

use super::super::error::{Cause, warn_wrap};
use super::{Args, Function, FunctionResult, fixed};
use crate::chart::value::Type::{Any, Str};
use crate::chart::value::{Map, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("include", &[Str, Any], |a| Ok(a.engine.include(&a.text(0), a.any(1).clone())?.into())),
    fixed("tpl", &[Str, Any], |a| Ok(a.engine.tpl(&a.text(0), a.any(1).clone())?.into())),
    fixed("required", &[Str, Any], required),
    fixed("fail", &[Str], |a| Err(warned(a))),
    // A gardenlet renders without access to a cluster, as `helm template` does.
    fixed("lookup", &[Str, Str, Str, Str], |_| Ok(Map::new().into())),
    fixed("getHostByName", &[Str], |_| Ok("".into())),
];

fn required(a: &Args<'_>) -> FunctionResult {
    match a.any(1) {
        Value::Nil | Value::NilInterface => Err(warned(a)),
        Value::Str(s) if s.is_empty() => Err(warned(a)),
        value => Ok(value.clone()),
    }
}

fn warned(a: &Args<'_>) -> Cause {
    warn_wrap(&a.str(0)).into()
}
