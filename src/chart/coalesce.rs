//! How the values of a user, a chart and its sub-charts come together.
//!
//! Two ways, as upstream: *coalescing* lets a null of the user delete a default and drops the nulls of defaults; *merging*
//! keeps nulls, for values that will be coalesced later.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::{Chart, Table};
use crate::format::number;

/// The key whose table every chart shares.
const GLOBAL: &str = "global";

/// Whether nulls are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nulls {
    Drop,
    Keep,
}

/// The values below the name of a sub-chart are no map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The name of the sub-chart.
    pub name: String,
    /// What stands there.
    pub value: Value,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type mismatch on {}: {}", self.name, as_bool(&self.value))
    }
}

/// How Go's `%t` prints what is no boolean: upstream's message has a wrong verb.
fn as_bool(value: &Value) -> String {
    match value {
        Value::Null => "%!t(<nil>)".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) if n.is_i64() => format!("%!t(int64={n})"),
        Value::Number(n) => format!("%!t(float64={})", number::general(n.as_f64().unwrap_or(0.0))),
        Value::String(text) => format!("%!t(string={text})"),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(as_bool).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(_) => "a map".to_owned(),
    }
}

impl std::error::Error for Error {}

/// Completes `values` with the defaults of a chart and of all charts below it.
///
/// # Errors
/// A sub-chart whose values are no map.
pub(super) fn coalesce(chart: &Chart, values: &mut Table, nulls: Nulls) -> Result<(), Error> {
    defaults(chart, values, nulls);
    for child in &chart.children {
        let entry = values.entry(child.name()).or_insert_with(|| Value::Object(Table::new()));
        let Value::Object(own) = entry else {
            return Err(Error { name: child.name().to_owned(), value: entry.clone() });
        };
        let mut own = std::mem::take(own);
        globals(&mut own, values);
        coalesce(child, &mut own, nulls)?;
        values.insert(child.name().to_owned(), Value::Object(own));
    }
    Ok(())
}

fn defaults(chart: &Chart, values: &mut Table, nulls: Nulls) {
    for (key, default) in &chart.values {
        match values.get_mut(key) {
            Some(Value::Null) if nulls == Nulls::Drop => {
                values.remove(key);
            }
            Some(Value::Object(table)) => match default {
                Value::Object(default) => {
                    // Nulls below a sub-chart's name are for that chart's own defaults.
                    let is_child = chart.children.iter().any(|c| c.name() == key);
                    let nulls = if is_child { Nulls::Keep } else { nulls };
                    let mut default = default.clone();
                    if nulls == Nulls::Drop {
                        drop_nulls(&mut default);
                    }
                    complete(table, default, nulls);
                }
                Value::Null => {}
                _ => log::warn!(chart = chart.name(), key = key.as_str(); "Skipped a default: not a table"),
            },
            Some(_) => {}
            None => {
                let mut default = default.clone();
                if nulls == Nulls::Drop {
                    if default.is_null() {
                        continue;
                    }
                    if let Value::Object(table) = &mut default {
                        drop_nulls(table);
                    }
                }
                values.insert(key.clone(), default);
            }
        }
    }
}

/// Copies the parent's globals into a sub-chart's; the parent's win.
fn globals(child: &mut Table, parent: &Table) {
    let from = match parent.get(GLOBAL) {
        None => Table::new(),
        Some(Value::Object(table)) => table.clone(),
        Some(_) => {
            log::warn!("Skipped globals: not a table");
            return;
        }
    };
    let to = child.entry(GLOBAL).or_insert_with(|| Value::Object(Table::new()));
    let Value::Object(to) = to else {
        log::warn!("Skipped globals: the destination is not a table");
        return;
    };
    for (key, value) in from {
        match (to.get_mut(&key), value) {
            (Some(Value::Object(own)), Value::Object(mut from)) => {
                complete(&mut from, std::mem::take(own), Nulls::Keep);
                *own = from;
            }
            // Tables and other values do not replace each other.
            (Some(Value::Object(_)), _) => {}
            (Some(own), Value::Object(_)) if !own.is_object() => {}
            (_, value) => {
                to.insert(key, value);
            }
        }
    }
}

/// Completes `target`, whose values win, with another table.
pub(super) fn complete(target: &mut Table, source: Table, nulls: Nulls) {
    // A null of the target hides the source's value, also in deeper tables.
    let absent: BTreeSet<String> =
        target.iter().filter(|(_, v)| v.is_null()).map(|(k, _)| k.clone()).collect();
    for (key, value) in source {
        if absent.contains(&key) {
            if nulls == Nulls::Drop && !value.is_null() {
                target.remove(&key);
            }
            continue;
        }
        match (target.get_mut(&key), value) {
            (None, value) => {
                target.insert(key, value);
            }
            (Some(Value::Object(own)), Value::Object(other)) => complete(own, other, nulls),
            (Some(own), other) => {
                if !other.is_null() && own.is_object() != other.is_object() {
                    log::warn!(key = key.as_str(); "Skipped a value: a table and another value do not mix");
                }
            }
        }
    }
}

fn drop_nulls(table: &mut Table) {
    table.retain(|_, value| !value.is_null());
    for value in table.values_mut() {
        if let Value::Object(table) = value {
            drop_nulls(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(value: Value) -> Table {
        let Value::Object(table) = value else { panic!("no map") };
        table
    }

    fn chart(name: &str, values: Value, children: Vec<Chart>) -> Chart {
        let mut chart = Chart { values: table(values), children, ..Chart::default() };
        name.clone_into(&mut chart.metadata.name);
        chart
    }

    fn coalesced(chart: &Chart, user: Value) -> Value {
        let mut values = table(user);
        coalesce(chart, &mut values, Nulls::Drop).unwrap();
        Value::Object(values)
    }

    #[test]
    fn users_win_over_parents_over_children() {
        let child = chart("c", json!({"a": 1, "b": 1, "d": 1, "m": {"x": 1, "y": 1}, "l": [1]}), vec![]);
        let parent =
            chart("p", json!({"c": {"a": 2, "b": 2, "m": {"y": 2}, "l": [2]}, "own": true}), vec![child]);
        let values = coalesced(&parent, json!({"c": {"a": 3}}));
        let expected = json!({"a": 3, "b": 2, "d": 1, "m": {"x": 1, "y": 2}, "l": [2], "global": {}});
        assert_eq!(values, json!({"own": true, "c": expected}));
    }

    #[test]
    fn nulls_delete_defaults() {
        let child = chart("c", json!({"a": 1, "m": {"x": 1, "y": 1}, "n": null}), vec![]);
        let parent =
            chart("p", json!({"x": 1, "t": {"a": 1, "b": null}, "n": null, "z": {"q": null}}), vec![child]);
        let user = json!({"x": null, "t": {"a": null, "new": null}, "c": {"a": null, "m": {"x": null}}});
        let values = coalesced(&parent, user);
        assert_eq!(values, json!({"t": {"new": null}, "z": {}, "c": {"m": {"y": 1}, "global": {}}}));
        let values = coalesced(&chart("p", json!({}), vec![]), json!({"u": null}));
        assert_eq!(values, json!({"u": null}));
    }

    #[test]
    fn globals_reach_every_chart() {
        let grandchild = chart("g", json!({"global": {"t": {"g": 1, "a": 0}}}), vec![]);
        let child = chart("c", json!({"global": {"c": 1, "t": {"c": 1}, "s": {"no": 1}}}), vec![grandchild]);
        let parent = chart("p", json!({"global": {"a": 1, "t": {"a": 1}, "s": 5}}), vec![child]);
        let values = coalesced(&parent, json!({"global": {"a": 2}}));
        let global = &values["c"]["global"];
        assert_eq!(*global, json!({"a": 2, "t": {"a": 1, "c": 1}, "s": 5, "c": 1}));
        assert_eq!(values["c"]["g"]["global"]["t"], json!({"a": 1, "c": 1, "g": 1}));
        assert_eq!(values["global"], json!({"a": 2, "t": {"a": 1}, "s": 5}));
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
            let error = coalesce(&parent, &mut table(json!({"c": value})), Nulls::Drop).unwrap_err();
            assert_eq!(error.to_string(), format!("type mismatch on c: {text}"));
        }
    }

    #[test]
    fn tables_and_other_values_do_not_mix() {
        let chart = chart("p", json!({"a": 1, "b": {"x": 1}}), vec![]);
        assert_eq!(coalesced(&chart, json!({"a": {"y": 1}, "b": 2})), json!({"a": {"y": 1}, "b": 2}));
    }
}
