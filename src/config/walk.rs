//! One pass over a document along the schema: types, rules of single fields, unknown fields, defaults.

use serde_json::{Map, Value};

use super::rule::FieldRule;
use super::schema::{SchemaNode, Type};
use super::shown::{quoted, shown};
use super::{ConfigProblem, ConfigProblems, inert, scalar};
use crate::base::near::nearest;
use crate::format::view;

/// Checks `document` and fills in the defaults.
pub(super) fn walk(document: &mut Value, schema: &SchemaNode, problems: &mut ConfigProblems) {
    visit(document, schema, "", problems);
}

fn visit(value: &mut Value, node: &SchemaNode, path: &str, problems: &mut ConfigProblems) {
    let complaint = type_complaint(value, node.field.ty)
        .or_else(|| node.field.rule.complaint(value))
        .or_else(|| node.bounds?.complaint(value, node.field.ty, node.field.default));
    if let Some(message) = complaint {
        problems.errors.push(ConfigProblem::new(path, message));
        return;
    }
    match value {
        Value::Object(map) if node.field.ty == Type::Object => visit_object(map, node, path, problems),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                if let Some(node) = &node.item {
                    visit(item, node, &format!("{path}[{index}]"), problems);
                }
            }
        }
        _ => {}
    }
}

fn visit_object(map: &mut Map<String, Value>, node: &SchemaNode, path: &str, problems: &mut ConfigProblems) {
    // As in Go, null is the same as absent.
    map.retain(|_, value| !value.is_null());
    for key in map.keys().filter(|key| !node.children.contains_key(*key)) {
        unknown(&join(path, &shown(key)), key, node, problems);
    }
    for (key, child) in &node.children {
        let path = join(path, key);
        if let Some(missing) = child.inert
            && map.get(key).is_some_and(|value| inert::asks(value, child))
        {
            problems.warning(&path, format!("has no effect: {missing}"));
        }
        fill(map, key, child);
        match map.get_mut(key) {
            Some(value) => visit(value, child, &path, problems),
            None if child.field.rule == FieldRule::Required => {
                problems.errors.push(ConfigProblem::new(&path, "must be given"));
            }
            None => {}
        }
    }
}

/// Sets the default of an absent field, or an empty object for the defaults below it.
fn fill(map: &mut Map<String, Value>, key: &str, child: &SchemaNode) {
    let is_missing = match map.get(key) {
        None => child.has_default(),
        Some(value) => child.field.default_for_empty && is_empty(value, child.field.ty),
    };
    if is_missing {
        let json = if child.field.default.is_empty() { "{}" } else { child.field.default };
        // A default that is not JSON is a mistake in the table, which a test finds.
        map.insert(key.to_owned(), view::json(json.as_bytes()).unwrap_or_default());
    }
}

fn is_empty(value: &Value, ty: Type) -> bool {
    match value {
        Value::String(text) if ty == Type::Duration => scalar::duration_nanos(text) == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn type_complaint(value: &Value, ty: Type) -> Option<String> {
    let all = |fits: fn(&Value) -> bool| value.as_object().is_some_and(|map| map.values().all(fits));
    let is_quantity = |value: &Value| scalar::quantity_value(value).is_some();
    let (fits, wanted) = match ty {
        Type::Object => (value.is_object(), "fields"),
        Type::List => (value.is_array(), "a list"),
        Type::Bool => (value.is_boolean(), "true or false"),
        Type::Int32 => {
            (value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()), "a whole number of 32 bits")
        }
        Type::Int => (value.as_i64().is_some(), "a whole number"),
        Type::Float => (value.is_number(), "a number"),
        Type::Text => (value.is_string(), "a text"),
        Type::Duration => return duration_complaint(value),
        Type::Quantity => (is_quantity(value), "a quantity such as 100Gi"),
        Type::Texts => (all(Value::is_string), "a map of texts"),
        Type::Bools => (all(Value::is_boolean), "a map of true and false"),
        Type::Quantities => (all(is_quantity), "a map of quantities"),
        Type::Any => (true, ""),
    };
    (!fits).then(|| format!("expected {wanted}, found {}", kind_of(value)))
}

fn duration_complaint(value: &Value) -> Option<String> {
    match value.as_str().map(scalar::duration_nanos) {
        Some(Some(0..)) => None,
        Some(Some(_)) => Some(format!("must not be negative: {}", shown(value.as_str().unwrap_or_default()))),
        _ => Some(format!("expected a duration such as 1h30m or 10s, found {}", kind_of(value))),
    }
}

fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        Value::String(text) => format!("the text {}", quoted(text)),
        scalar => scalar.to_string(),
    }
}

fn unknown(path: &str, key: &str, node: &SchemaNode, problems: &mut ConfigProblems) {
    let hint = nearest(key, node.children.keys().map(String::as_str));
    let hint = hint.map_or_else(String::new, |known| format!("; did you mean {known:?}?"));
    if path.starts_with("edge.") {
        // Only this program reads these options, so an unknown one is never meant for another version.
        problems.error(path, format!("unknown option{hint}"));
        return;
    }
    // The Seed's spec is sent to the garden unchanged, and the garden may know more fields than this version.
    let fate = if path.starts_with("seedConfig.spec.") { "passed on to the garden" } else { "ignored" };
    problems.warning(path, format!("unknown field, {fate}{hint}"));
}
