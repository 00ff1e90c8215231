//! Combines the values of a user, a chart and its sub-charts.
//!
//! There are two ways, as upstream: *coalescing* lets a null of the user delete a default and drops the nulls of
//! defaults; *merging* keeps nulls, for values that are coalesced later.

use std::fmt;
use std::rc::Rc;

use serde_json::Value as Json;

use super::value::{Map, Numbers, Value};
use super::{Chart, ValuesTable};
use crate::format::number;

/// The key whose table all charts share.
const GLOBAL: &str = "global";

/// Whether nulls are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nulls {
    Drop,
    Keep,
}

/// The values below the name of a sub-chart are not a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The name of the sub-chart.
    pub(crate) name: String,
    pub(crate) value: Json,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type mismatch on {}: {}", self.name, as_bool(&self.value))
    }
}

/// How Go's `%t` prints a value that is not a boolean: upstream's message has a wrong verb.
fn as_bool(value: &Json) -> String {
    match value {
        Json::Null => "%!t(<nil>)".to_owned(),
        Json::Bool(b) => b.to_string(),
        Json::Number(n) if n.is_i64() => format!("%!t(int64={n})"),
        Json::Number(n) => format!("%!t(float64={})", number::general(n.as_f64().unwrap_or(0.0))),
        Json::String(text) => format!("%!t(string={text})"),
        Json::Array(list) => {
            let items: Vec<String> = list.iter().map(as_bool).collect();
            format!("[{}]", items.join(" "))
        }
        Json::Object(_) => "a map".to_owned(),
    }
}

impl std::error::Error for Error {}

/// The values of a user, completed with the defaults of a chart and of all charts below it. As upstream, all
/// charts share the tables below the tables of `global`: every chart sees what another chart adds or a
/// template sets. Errors: if the values of a sub-chart are not a map.
pub(super) fn coalesced(chart: &Chart, user: &ValuesTable, nulls: Nulls) -> Result<Map, Error> {
    let values = map_of(user);
    below(chart, &values, nulls)?;
    Ok(values)
}

/// The same, as JSON. Errors: if the values of a sub-chart are not a map.
pub(super) fn coalesced_json(chart: &Chart, user: &ValuesTable, nulls: Nulls) -> Result<ValuesTable, Error> {
    Ok(table_of(coalesced(chart, user, nulls)?))
}

/// A table as JSON.
pub(super) fn table_of(map: Map) -> ValuesTable {
    match Value::Map(map).to_json() {
        Some(Json::Object(table)) => table,
        _ => ValuesTable::new(),
    }
}

fn map_of(table: &ValuesTable) -> Map {
    table
        .iter()
        .map(|(key, value)| (Rc::from(key.as_str()), Value::from_json(value, Numbers::Int64)))
        .collect()
}

fn below(chart: &Chart, values: &Map, nulls: Nulls) -> Result<(), Error> {
    defaults(chart, values, nulls);
    for child in &chart.children {
        let own = match values.get(child.name()) {
            Some(Value::Map(own)) => own,
            Some(value) => {
                return Err(Error {
                    name: child.name().to_owned(),
                    value: value.to_json().unwrap_or_default(),
                });
            }
            None => Map::new(),
        };
        values.insert(child.name(), own.clone());
        globals(&own, values);
        below(child, &own, nulls)?;
    }
    Ok(())
}

fn defaults(chart: &Chart, values: &Map, nulls: Nulls) {
    for (key, default) in &chart.values {
        match values.get(key) {
            Some(Value::Nil) if nulls == Nulls::Drop => {
                values.entries_mut().remove(key.as_str());
            }
            Some(Value::Map(own)) => match default {
                Json::Object(default) => {
                    // Nulls below the name of a sub-chart affect that chart's own defaults.
                    let is_child = chart.children.iter().any(|c| c.name() == key);
                    let nulls = if is_child { Nulls::Keep } else { nulls };
                    let default = map_of(default);
                    if nulls == Nulls::Drop {
                        drop_nulls(&default);
                    }
                    complete_map(&own, &default, nulls);
                }
                Json::Null => {}
                _ => log::warn!(chart = chart.name(), key = key.as_str(); "Skipped a default: not a table"),
            },
            Some(_) => {}
            None => {
                let default = Value::from_json(default, Numbers::Int64);
                if nulls == Nulls::Drop {
                    if default.is_nil() {
                        continue;
                    }
                    if let Value::Map(table) = &default {
                        drop_nulls(table);
                    }
                }
                values.insert(key.as_str(), default);
            }
        }
    }
}

/// Copies the parent's globals into those of a sub-chart; the parent's win. Only their first level is copied.
fn globals(child: &Map, parent: &Map) {
    let table = |values: &Map| match values.get(GLOBAL) {
        None => Some(Map::new()),
        Some(Value::Map(table)) => Some(table),
        Some(_) => None,
    };
    let Some(to) = table(child) else {
        log::warn!("Skipped globals: the destination is not a table");
        return;
    };
    let Some(from) = table(parent) else {
        log::warn!("Skipped globals: not a table");
        return;
    };
    for (key, value) in entries(&from) {
        match (to.get(&key), value) {
            (None, Value::Map(from)) => to.insert(key, entries(&from).into_iter().collect::<Map>()),
            (Some(Value::Map(own)), Value::Map(from)) => {
                let both: Map = entries(&from).into_iter().collect();
                complete_map(&both, &own, Nulls::Keep);
                to.insert(key, both);
            }
            // Tables and other values do not replace each other.
            (Some(Value::Map(_)), _) | (Some(_), Value::Map(_)) => {}
            (_, value) => to.insert(key, value),
        }
    }
    child.insert(GLOBAL, to);
}

/// Completes `target` with another table; values of `target` win.
fn complete_map(target: &Map, source: &Map, nulls: Nulls) {
    if target.is_same(source) {
        return;
    }
    for (key, value) in entries(source) {
        match (target.get(&key), value) {
            // A null of the target hides the source's value.
            (Some(Value::Nil), value) => {
                if nulls == Nulls::Drop && !value.is_nil() {
                    target.entries_mut().remove(&key);
                }
            }
            (None, value) => target.insert(key, value),
            (Some(Value::Map(own)), Value::Map(other)) => complete_map(&own, &other, nulls),
            (Some(own), other) => {
                let is_map = |value: &Value| value.as_map().is_some();
                if !other.is_nil() && is_map(&own) != is_map(&other) {
                    log::warn!(key = &*key; "Skipped a value: a table and another value do not mix");
                }
            }
        }
    }
}

/// A snapshot of the entries, because the caller may change the map.
fn entries(map: &Map) -> Vec<(Rc<str>, Value)> {
    map.entries().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn drop_nulls(map: &Map) {
    map.entries_mut().retain(|_, value| !value.is_nil());
    for (_, value) in entries(map) {
        if let Value::Map(map) = value {
            drop_nulls(&map);
        }
    }
}

/// Completes `target` with another table; values of `target` win, and nulls are kept.
pub(super) fn complete(target: &mut ValuesTable, source: &ValuesTable) {
    let both = map_of(target);
    complete_map(&both, &map_of(source), Nulls::Keep);
    *target = table_of(both);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn table(value: Value) -> ValuesTable {
        let Value::Object(table) = value else { panic!("no map") };
        table
    }

    fn chart(name: &str, values: Value, children: Vec<Chart>) -> Chart {
        let mut chart = Chart { values: table(values), children, ..Chart::default() };
        name.clone_into(&mut chart.metadata.name);
        chart
    }

    fn of_json(chart: &Chart, user: Value) -> Value {
        Value::Object(coalesced_json(chart, &table(user), Nulls::Drop).unwrap())
    }

    #[test]
    fn users_win_over_parents_over_children() {
        let child = chart("c", json!({"a": 1, "b": 1, "d": 1, "m": {"x": 1, "y": 1}, "l": [1]}), vec![]);
        let parent =
            chart("p", json!({"c": {"a": 2, "b": 2, "m": {"y": 2}, "l": [2]}, "own": true}), vec![child]);
        let values = of_json(&parent, json!({"c": {"a": 3}}));
        let expected = json!({"a": 3, "b": 2, "d": 1, "m": {"x": 1, "y": 2}, "l": [2], "global": {}});
        assert_eq!(values, json!({"own": true, "c": expected}));
    }

    #[test]
    fn nulls_delete_defaults() {
        let child = chart("c", json!({"a": 1, "m": {"x": 1, "y": 1}, "n": null}), vec![]);
        let parent =
            chart("p", json!({"x": 1, "t": {"a": 1, "b": null}, "n": null, "z": {"q": null}}), vec![child]);
        let user = json!({"x": null, "t": {"a": null, "new": null}, "c": {"a": null, "m": {"x": null}}});
        let values = of_json(&parent, user);
        assert_eq!(values, json!({"t": {"new": null}, "z": {}, "c": {"m": {"y": 1}, "global": {}}}));
        let values = of_json(&chart("p", json!({}), vec![]), json!({"u": null}));
        assert_eq!(values, json!({"u": null}));
    }

    #[test]
    fn globals_reach_every_chart() {
        let grandchild = chart("g", json!({"global": {"t": {"g": 1, "a": 0}}}), vec![]);
        let child = chart("c", json!({"global": {"c": 1, "t": {"c": 1}, "s": {"no": 1}}}), vec![grandchild]);
        let parent = chart("p", json!({"global": {"a": 1, "t": {"a": 1}, "s": 5}}), vec![child]);
        let values = of_json(&parent, json!({"global": {"a": 2}}));
        let global = &values["c"]["global"];
        assert_eq!(*global, json!({"a": 2, "t": {"a": 1, "c": 1}, "s": 5, "c": 1}));
        assert_eq!(values["c"]["g"]["global"]["t"], json!({"a": 1, "c": 1, "g": 1}));
        assert_eq!(values["global"], json!({"a": 2, "t": {"a": 1}, "s": 5}));
    }

    #[test]
    fn nested_tables_of_globals_are_shared() {
        let first = chart("a", json!({"global": {"t": {"deep": {"a": 1}, "a": 1}}}), vec![]);
        let second = chart("b", json!({}), vec![]);
        let parent = chart("p", json!({"global": {"t": {"deep": {"p": 1}}}}), vec![first, second]);
        let values = of_json(&parent, json!({}));
        for path in ["/global", "/a/global", "/b/global"] {
            assert_eq!(values.pointer(path).unwrap()["t"]["deep"], json!({"a": 1, "p": 1}), "{path}");
        }
        assert_eq!(
            (&values["global"]["t"]["a"], &values["a"]["global"]["t"]["a"]),
            (&Value::Null, &json!(1))
        );
    }

    #[test]
    fn values_of_a_child_must_be_a_map() {
        let parent = chart("p", json!({}), vec![chart("c", json!({}), vec![])]);
        for (value, text) in [
            (json!("x"), "%!t(string=x)"),
            (json!([1.5, true]), "[%!t(float64=1.5) true]"),
            (json!(null), "%!t(<nil>)"),
            (json!(1), "%!t(int64=1)"),
        ] {
            let error = coalesced(&parent, &table(json!({"c": value})), Nulls::Drop).err().unwrap();
            assert_eq!(error.to_string(), format!("type mismatch on c: {text}"));
        }
    }

    #[test]
    fn tables_and_other_values_do_not_mix() {
        let chart = chart("p", json!({"a": 1, "b": {"x": 1}}), vec![]);
        assert_eq!(of_json(&chart, json!({"a": {"y": 1}, "b": 2})), json!({"a": {"y": 1}, "b": 2}));
    }
}
