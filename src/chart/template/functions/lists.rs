//! Lists. Most functions return new lists of `interface {}`. None changes its argument, except `sortAlpha`, which sorts
//! a list of strings in place, as in sprig.

use super::cast::{to_int, to_strings};
use super::defaults::is_empty;
use super::equal::deep_equal;
use super::{Args, Cause, Function, FunctionResult, fixed, to_text, variadic};
use crate::chart::value::Type::{Any, Int};
use crate::chart::value::{GoString, List, ListKind, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    variadic("list", &[], Any, |a| Ok(Value::list(a.rest(0).to_vec()))),
    variadic("tuple", &[], Any, |a| Ok(Value::list(a.rest(0).to_vec()))),
    fixed("append", &[Any, Any], append),
    fixed("push", &[Any, Any], append),
    fixed("mustAppend", &[Any, Any], append),
    fixed("mustPush", &[Any, Any], append),
    fixed("prepend", &[Any, Any], prepend),
    fixed("mustPrepend", &[Any, Any], prepend),
    fixed("first", &[Any], first),
    fixed("mustFirst", &[Any], first),
    fixed("last", &[Any], last),
    fixed("mustLast", &[Any], last),
    fixed("rest", &[Any], rest),
    fixed("mustRest", &[Any], rest),
    fixed("initial", &[Any], initial),
    fixed("mustInitial", &[Any], initial),
    fixed("reverse", &[Any], reverse),
    fixed("mustReverse", &[Any], reverse),
    fixed("compact", &[Any], compact),
    fixed("mustCompact", &[Any], compact),
    fixed("uniq", &[Any], uniq),
    fixed("mustUniq", &[Any], uniq),
    variadic("without", &[Any], Any, without),
    variadic("mustWithout", &[Any], Any, without),
    fixed("has", &[Any, Any], has),
    fixed("mustHas", &[Any, Any], has),
    variadic("slice", &[Any], Any, slice),
    variadic("mustSlice", &[Any], Any, slice),
    variadic("concat", &[], Any, concat),
    fixed("chunk", &[Int, Any], chunk),
    fixed("mustChunk", &[Int, Any], chunk),
    fixed("sortAlpha", &[Any], sort_alpha),
];

/// The items, if Go's reflection sees a slice.
pub(super) fn items(value: &Value) -> Option<Vec<Value>> {
    match value {
        Value::List(list) => Some(list.items().clone()),
        Value::Bytes(bytes) => Some(bytes.iter().map(|b| Value::Uint8(*b)).collect()),
        Value::Native(object) if object.kind_name() == "slice" => {
            Some(object.entries().into_iter().map(|(_, v)| v).collect())
        }
        _ => None,
    }
}

/// Go's runtime error for a method call on nil.
pub(super) const NIL_POINTER: &str = "runtime error: invalid memory address or nil pointer dereference";

fn items_for(value: &Value, complaint: &str) -> Result<Vec<Value>, Cause> {
    if value.is_nil() {
        return Err(NIL_POINTER.into());
    }
    items(value).ok_or_else(|| format!("{complaint} {}", value.kind_name()).into())
}

fn append(a: &Args<'_>) -> FunctionResult {
    let mut list = items_for(a.any(0), "Cannot push on type")?;
    list.push(a.any(1).clone());
    Ok(Value::list(list))
}

fn prepend(a: &Args<'_>) -> FunctionResult {
    let mut list = items_for(a.any(0), "Cannot prepend on type")?;
    list.insert(0, a.any(1).clone());
    Ok(Value::list(list))
}

fn first(a: &Args<'_>) -> FunctionResult {
    Ok(items_for(a.any(0), "Cannot find first on type")?.into_iter().next().unwrap_or_default())
}

fn last(a: &Args<'_>) -> FunctionResult {
    Ok(items_for(a.any(0), "Cannot find last on type")?.pop().unwrap_or_default())
}

fn rest(a: &Args<'_>) -> FunctionResult {
    let mut list = items_for(a.any(0), "Cannot find rest on type")?;
    if list.is_empty() {
        return Ok(Value::List(List::nil(ListKind::Any)));
    }
    list.remove(0);
    Ok(Value::list(list))
}

fn initial(a: &Args<'_>) -> FunctionResult {
    let mut list = items_for(a.any(0), "Cannot find initial on type")?;
    if list.pop().is_none() {
        return Ok(Value::List(List::nil(ListKind::Any)));
    }
    Ok(Value::list(list))
}

fn reverse(a: &Args<'_>) -> FunctionResult {
    let mut list = items_for(a.any(0), "Cannot find reverse on type")?;
    list.reverse();
    Ok(Value::list(list))
}

fn compact(a: &Args<'_>) -> FunctionResult {
    let mut list = items_for(a.any(0), "Cannot compact on type")?;
    list.retain(|v| !is_empty(v));
    Ok(Value::list(list))
}

fn uniq(a: &Args<'_>) -> FunctionResult {
    let mut unique: Vec<Value> = Vec::new();
    for item in items_for(a.any(0), "Cannot find uniq on type")? {
        if !contains(a, &unique, &item)? {
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}

fn without(a: &Args<'_>) -> FunctionResult {
    let mut kept = Vec::new();
    for item in items_for(a.any(0), "Cannot find without on type")? {
        if !contains(a, a.rest(1), &item)? {
            kept.push(item);
        }
    }
    Ok(Value::list(kept))
}

fn has(a: &Args<'_>) -> FunctionResult {
    if a.any(1).is_nil() {
        return Ok(false.into());
    }
    let list = items_for(a.any(1), "Cannot find has on type")?;
    Ok(contains(a, &list, a.any(0))?.into())
}

fn contains(a: &Args<'_>, list: &[Value], item: &Value) -> Result<bool, Cause> {
    a.charge(list.len().saturating_mul(super::BYTES_PER_STEP / super::ITEMS_PER_STEP))?;
    for other in list {
        if deep_equal(a, item, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn slice(a: &Args<'_>) -> FunctionResult {
    let list = items_for(a.any(0), "list should be type of slice or array but")?;
    if list.is_empty() {
        return Ok(Value::Nil);
    }
    let start = a.rest(1).first().map_or(0, to_int);
    let end = a.rest(1).get(1).map_or_else(|| i64::try_from(list.len()).unwrap_or(i64::MAX), to_int);
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let Some(part) = range.and_then(|(start, end)| list.get(start..end)) else {
        return Err("reflect.Value.Slice: slice index out of bounds".into());
    };
    let kind = match a.any(0) {
        Value::List(original) => original.kind(),
        _ => ListKind::Any,
    };
    Ok(Value::List(List::of(kind, part.to_vec())))
}

fn concat(a: &Args<'_>) -> FunctionResult {
    let mut all = Vec::new();
    for list in a.rest(0) {
        if list.is_nil() {
            return Err(NIL_POINTER.into());
        }
        let Some(more) = items(list) else {
            return Err(format!("Cannot concat type {} as list", list.kind_name()).into());
        };
        all.extend(more);
    }
    if all.is_empty() {
        return Ok(Value::List(List::nil(ListKind::Any)));
    }
    Ok(Value::list(all))
}

fn chunk(a: &Args<'_>) -> FunctionResult {
    let list = items_for(a.any(1), "Cannot chunk type")?;
    let size = usize::try_from(a.int(0).unsigned_abs()).unwrap_or(usize::MAX);
    // The result of sprig's formula for a negative size.
    let chunks = match (a.int(0) > 0, list.len()) {
        (true, _) => list.chunks(size).map(|c| Value::list(c.to_vec())).collect(),
        (false, 1) if size > 1 => vec![Value::list(list)],
        (false, 2..) if list.len() - 1 <= size => Vec::new(),
        _ => return Err("runtime error: makeslice: len out of range".into()),
    };
    Ok(Value::List(List::of(ListKind::Lists, chunks)))
}

fn sort_alpha(a: &Args<'_>) -> FunctionResult {
    let value = a.any(0);
    if items(value).is_none() {
        let text = if value.is_nil() { "<nil>".into() } else { to_text(value)? };
        return Ok(Value::strings([text]));
    }
    let list = to_strings(value)?;
    let size: usize = list.items().iter().filter_map(Value::as_text).map(|text| text.len() + 64).sum();
    let rounds = usize::try_from(list.items().len().max(1).ilog2()).unwrap_or(0);
    a.charge(size.saturating_mul(rounds))?;
    list.items_mut()
        .sort_by(|x, y| x.as_text().map(GoString::as_bytes).cmp(&y.as_text().map(GoString::as_bytes)));
    Ok(Value::List(list))
}
