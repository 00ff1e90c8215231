//! Maps are references: `set`, `unset` and the merges change them for all holders.

use super::{Args, Cause, Function, FunctionResult, fixed, to_text, variadic};
use crate::chart::value::Type::{Any, Map as MapType, Str};
use crate::chart::value::{Budget, Entries, GoString, List, Map, MapKind, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    variadic("dict", &[], Any, dict),
    fixed("get", &[MapType, Str], |a| Ok(a.map(0).get(&a.str(1)).unwrap_or_else(|| "".into()))),
    fixed("set", &[MapType, Str, Any], set),
    fixed("unset", &[MapType, Str], unset),
    fixed("hasKey", &[MapType, Str], |a| Ok(a.map(0).entries().contains_key(&*a.str(1)).into())),
    variadic("pluck", &[Str], MapType, pluck),
    variadic("keys", &[], MapType, keys),
    fixed("values", &[MapType], |a| Ok(Value::list(a.map(0).entries().values().cloned().collect()))),
    variadic("pick", &[MapType], Str, pick),
    variadic("omit", &[MapType], Str, omit),
    variadic("merge", &[MapType], MapType, |a| merge(a, false)),
    variadic("mustMerge", &[MapType], MapType, |a| merge(a, false)),
    variadic("mergeOverwrite", &[MapType], MapType, |a| merge(a, true)),
    variadic("mustMergeOverwrite", &[MapType], MapType, |a| merge(a, true)),
    fixed("deepCopy", &[Any], copy),
    fixed("mustDeepCopy", &[Any], copy),
    variadic("dig", &[], Any, dig),
];

fn dict(a: &Args<'_>) -> FunctionResult {
    let map = Map::new();
    for pair in a.rest(0).chunks(2) {
        let value = pair.get(1).cloned().unwrap_or_else(|| "".into());
        map.insert(to_text(&pair[0])?.to_key(), value);
    }
    Ok(map.into())
}

fn set(a: &Args<'_>) -> FunctionResult {
    let map = a.map(0);
    if map.is_nil() {
        return Err("assignment to entry in nil map".into());
    }
    map.insert(a.text(1).to_key(), a.any(2).clone());
    Ok(map.with_kind(MapKind::Any).into())
}

fn unset(a: &Args<'_>) -> FunctionResult {
    let map = a.map(0);
    let old = map.entries_mut().remove(&*a.str(1));
    drop(old);
    Ok(map.with_kind(MapKind::Any).into())
}

fn pluck(a: &Args<'_>) -> FunctionResult {
    let key = a.str(0);
    let found = a.rest(1).iter().filter_map(|v| v.as_map()?.get(&key)).collect();
    Ok(Value::list(found))
}

// Go iterates maps in random order; sorted order is one of the possible ones.
fn keys(a: &Args<'_>) -> FunctionResult {
    let maps = a.rest(0).iter().filter_map(Value::as_map);
    let names: Vec<_> = maps.flat_map(|m| m.entries().keys().cloned().collect::<Vec<_>>()).collect();
    Ok(Value::strings(names))
}

fn pick(a: &Args<'_>) -> FunctionResult {
    let map = a.map(0);
    let names = a.rest(1).iter().filter_map(Value::as_text).map(GoString::to_key);
    let picked: Map = names.filter_map(|k| Some((k.clone(), map.get(&k)?))).collect();
    Ok(picked.into())
}

fn omit(a: &Args<'_>) -> FunctionResult {
    let mut kept = a.map(0).entries().clone();
    for name in a.rest(1).iter().filter_map(Value::as_text) {
        kept.remove(&*name.to_str());
    }
    Ok(Map::of(MapKind::Any, kept).into())
}

fn merge(a: &Args<'_>, overwrite: bool) -> FunctionResult {
    let mut target = a.map(0).with_kind(MapKind::Any);
    for source in a.rest(1).iter().filter_map(Value::as_map) {
        if target.is_nil() && !source.is_nil() {
            target = Map::new();
        }
        merge_into(&target, source, overwrite, &mut Budget::new())?;
    }
    Ok(target.into())
}

/// sprig merges with mergo. Without `overwrite`, only empty values are filled, including false and 0; with it, empty
/// values and nil are copied too. Maps under the same key are merged in place; all other values are shared.
fn merge_into(target: &Map, source: &Map, overwrite: bool, budget: &mut Budget) -> Result<(), Cause> {
    if !budget.enter() {
        return Err("maps are too large to be merged, or contain themselves".into());
    }
    let entries: Vec<_> = source.entries().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    for (key, value) in entries {
        let present = target.get(&key);
        if value.is_nil() {
            if overwrite {
                target.insert(key, value);
            }
            continue;
        }
        if let (Some(Value::Map(inner)), Value::Map(more)) = (&present, &value) {
            merge_into(inner, more, overwrite, budget)?;
        }
        let occupied = present.as_ref().is_some_and(|v| !is_zero(v));
        let merged = matches!((&present, &value), (Some(Value::Map(_)), Value::Map(_))) && occupied;
        if !merged && (overwrite || !occupied) {
            target.insert(key, value);
        }
    }
    budget.leave();
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Native(_) => false,
        other => !other.is_true(),
    }
}

fn copy(a: &Args<'_>) -> FunctionResult {
    if a.any(0).is_nil() {
        return Err("reflect: call of reflect.Value.Type on zero Value".into());
    }
    deep_copy(a.any(0), &mut Budget::new())
}

fn deep_copy(value: &Value, budget: &mut Budget) -> FunctionResult {
    if !budget.enter() {
        return Err("value is too large to be copied, or contains itself".into());
    }
    let copy = match value {
        Value::List(list) if !list.is_nil() => {
            let items: Result<Vec<Value>, Cause> =
                list.items().iter().map(|v| deep_copy(v, budget)).collect();
            Value::List(List::of(list.kind(), items?))
        }
        Value::Map(map) if !map.is_nil() => {
            let copied = |(k, v): (&std::rc::Rc<str>, &Value)| Ok((k.clone(), deep_copy(v, budget)?));
            let entries: Result<Entries, Cause> = map.entries().iter().map(copied).collect();
            Value::Map(Map::of(map.kind(), entries?))
        }
        other => other.clone(),
    };
    budget.leave();
    Ok(copy)
}

fn dig(a: &Args<'_>) -> FunctionResult {
    let [keys @ .., default, root] = a.rest(0) else {
        return Err("dig needs at least three arguments".into());
    };
    if keys.is_empty() {
        return Err("dig needs at least three arguments".into());
    }
    let mut names = Vec::new();
    let mut map = as_plain_map(root)?;
    for key in keys {
        names.push(key.as_text().ok_or_else(|| wrong_type(key, "string"))?.to_str());
    }
    for (i, name) in names.iter().enumerate() {
        let Some(step) = map.get(name) else { return Ok(default.clone()) };
        if i + 1 == names.len() {
            return Ok(step);
        }
        map = as_plain_map(&step)?;
    }
    Ok(default.clone())
}

/// Go's type assertion, which accepts no other name for the type: `.Values` itself fails.
fn as_plain_map(value: &Value) -> Result<Map, Cause> {
    match value {
        Value::Map(map) if map.kind() == MapKind::Any => Ok(map.clone()),
        other => Err(wrong_type(other, "map[string]interface {}")),
    }
}

fn wrong_type(value: &Value, wanted: &str) -> Cause {
    let got = if value.is_nil() { "nil".into() } else { value.type_name() };
    format!("interface conversion: interface {{}} is {got}, not {wanted}").into()
}
