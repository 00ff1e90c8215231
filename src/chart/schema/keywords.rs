//! Keywords of JSON Schema without sub-schemas.

use serde_json::{Map, Number, Value};

use super::{BYTES_PER_STEP, Draft, SchemaFailure, SchemaPlace, formats, quoted_text, shown};
use crate::format::number;

/// The cost of the keywords of one schema for one value, in steps; sub-schemas are counted separately.
pub(super) fn steps(schema: &Map<String, Value>, value: &Value) -> usize {
    const KEYWORDS_PER_STEP: usize = 8;
    let lists = schema.values().map(|keyword| keyword.as_array().map_or(0, Vec::len)).sum::<usize>();
    let dependencies = ["dependencies", "dependentRequired", "dependentSchemas"]
        .map(|keyword| schema.get(keyword).and_then(Value::as_object).map_or(0, Map::len));
    let mut steps = (lists + dependencies.iter().sum::<usize>()) / KEYWORDS_PER_STEP;
    steps += match value {
        Value::String(text) => text.len() / BYTES_PER_STEP,
        Value::Array(list) => list.len() / KEYWORDS_PER_STEP,
        Value::Object(map) => map.len() / KEYWORDS_PER_STEP,
        _ => 0,
    };
    // Values are compared with each choice, and items with each other.
    if schema.contains_key("enum") || schema.contains_key("const") {
        steps += size(value).saturating_mul(1 + lists) / KEYWORDS_PER_STEP;
    }
    if let (true, Value::Array(list)) = (schema.contains_key("uniqueItems"), value) {
        let compared = list.len().min(COMPARED_MAX);
        steps += size(value).saturating_mul(compared) / 64;
    }
    steps
}

/// The number of values in a value, and the bytes of their texts.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len() / BYTES_PER_STEP,
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(map) => map.values().map(size).sum(),
        _ => 0,
    }
}

/// `uniqueItems` compares all pairs, so its cost grows with the square: longer lists pass unchecked.
const COMPARED_MAX: usize = 2_000;

/// Keywords that end the check of a value: `type`, `const`, `enum`, `format`, in this order.
pub(super) fn first(
    schema: &Map<String, Value>,
    value: &Value,
    place: &SchemaPlace,
    draft: Draft,
) -> Option<SchemaFailure> {
    // Before 2019, a reference replaces all its sibling keywords.
    if !draft.has(2019) && schema.contains_key("$ref") {
        return None;
    }
    if let Some(wanted) = schema.get("type") {
        let wanted: Vec<&str> = match wanted {
            Value::String(one) => vec![one],
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !wanted.iter().any(|kind| is(value, kind)) {
            let got = kind_of(value);
            const ORDER: [&str; 7] = ["null", "boolean", "number", "integer", "string", "array", "object"];
            let known: Vec<&str> = ORDER.into_iter().filter(|kind| wanted.contains(kind)).collect();
            return Some(place.failure(format!("got {got}, want {}", known.join(" or "))));
        }
    }
    if let Some(wanted) = schema.get("const").filter(|_| draft.has(6))
        && !equal(wanted, value)
    {
        let simple = !wanted.is_array() && !wanted.is_object();
        let message =
            if simple { format!("value must be {}", shown(wanted)) } else { "'const' failed".to_owned() };
        return Some(place.failure(message));
    }
    if let Some(Value::Array(choices)) = schema.get("enum")
        && !choices.iter().any(|choice| equal(choice, value))
    {
        let simple = choices.iter().all(|c| !c.is_array() && !c.is_object());
        let shown: Vec<String> = choices.iter().map(shown).collect();
        return Some(place.failure(match shown.as_slice() {
            _ if !simple => "'enum' failed".to_owned(),
            [one] => format!("value must be {one}"),
            many => format!("value must be one of {}", many.join(", ")),
        }));
    }
    // Later editions treat it as an annotation.
    if let (Some(Value::String(format)), Value::String(text)) = (schema.get("format"), value)
        && !draft.has(2019)
        && let Err(why) = formats::check(format, text)
    {
        return Some(place.failure(format!("{} is not valid {format}: {why}", shown(value))));
    }
    None
}

/// Limits of numbers. In draft 4, the exclusive limits are booleans that modify the others.
pub(super) fn numbers(
    schema: &Map<String, Value>,
    n: &Number,
    place: &SchemaPlace,
    failures: &mut Vec<SchemaFailure>,
) {
    let value = n.as_f64().unwrap_or(0.0);
    let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
    let switch = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let mut fail = |name: &str, want: f64| {
        let (got, want) = (localized(value), localized(want));
        failures.push(place.failure(format!("{name}: got {got}, want {want}")));
    };
    for (key, exclusive, sign) in
        [("minimum", "exclusiveMinimum", 1.0), ("maximum", "exclusiveMaximum", -1.0)]
    {
        if let Some(want) = limit(key) {
            let distance = (value - want) * sign;
            if distance < 0.0 {
                fail(key, want);
            } else if distance == 0.0 && switch(exclusive) {
                fail(exclusive, want);
            }
        }
        if let Some(want) = limit(exclusive)
            && (value - want) * sign <= 0.0
        {
            fail(exclusive, want);
        }
    }
    if let Some(factor) = limit("multipleOf").filter(|f| *f > 0.0)
        && (value / factor).fract() != 0.0
    {
        fail("multipleOf", factor);
    }
}

/// Limits of a length.
pub(super) fn lengths(
    schema: &Map<String, Value>,
    got: usize,
    min: &str,
    max: &str,
    place: &SchemaPlace,
    failures: &mut Vec<SchemaFailure>,
) {
    let limit = |key: &str| schema.get(key).and_then(count);
    if let Some(want) = limit(min).filter(|want| got < *want) {
        failures.push(place.failure(format!("{min}: got {}, want {}", grouped(got), grouped(want))));
    }
    if let Some(want) = limit(max).filter(|want| got > *want) {
        failures.push(place.failure(format!("{max}: got {}, want {}", grouped(got), grouped(want))));
    }
}

/// A number in upstream's English format: `1,234.5`, `1×10⁰⁶`.
fn localized(value: f64) -> String {
    let text = number::general(value);
    if let Some((digits, exponent)) = text.split_once('e') {
        let raised = exponent.chars().filter_map(|c| match c {
            '-' => Some('⁻'),
            c => "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(usize::try_from(c.to_digit(10)?).ok()?),
        });
        return format!("{digits}×10{}", raised.collect::<String>());
    }
    let (sign, text) = text.strip_prefix('-').map_or(("", &*text), |rest| ("-", rest));
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), grouped);
    fraction.map_or_else(|| format!("{sign}{whole}"), |fraction| format!("{sign}{whole}.{fraction}"))
}

/// A count with commas.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A limit of a length.
pub(super) fn count(limit: &Value) -> Option<usize> {
    usize::try_from(limit.as_f64().and_then(number::whole)?).ok()
}

/// `uniqueItems`.
pub(super) fn unique(
    schema: &Map<String, Value>,
    list: &[Value],
    place: &SchemaPlace,
    failures: &mut Vec<SchemaFailure>,
) {
    if schema.get("uniqueItems") != Some(&Value::Bool(true)) || list.len() > COMPARED_MAX {
        return;
    }
    for (j, item) in list.iter().enumerate() {
        if let Some(i) = list[..j].iter().position(|other| equal(other, item)) {
            return failures.push(place.failure(format!("items at {i} and {j} are equal")));
        }
    }
}

/// `required`, `dependentRequired`, and the lists of `dependencies`.
pub(super) fn required(
    schema: &Map<String, Value>,
    map: &Map<String, Value>,
    place: &SchemaPlace,
    draft: Draft,
    failures: &mut Vec<SchemaFailure>,
) {
    let absent = |names: &Value| -> Vec<String> {
        let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.filter(|name| !map.contains_key(*name)).map(str::to_owned).collect()
    };
    if let Some(names) = schema.get("required") {
        let absent = absent(names);
        if !absent.is_empty() {
            let word = if absent.len() == 1 { "property" } else { "properties" };
            failures.push(place.failure(format!("missing {word} {}", quoted(&absent))));
        }
    }
    let keywords = ["dependencies", "dependentRequired"];
    for keyword in keywords.into_iter().take(if draft.has(2019) { 2 } else { 1 }) {
        let pairs = schema.get(keyword).and_then(Value::as_object).into_iter().flatten();
        for (key, names) in pairs.filter(|(key, _)| map.contains_key(*key)) {
            let absent = absent(names);
            if !absent.is_empty() {
                let names = quoted(&absent);
                failures.push(
                    place.failure(format!("properties {names} required, if {} exists", quoted_text(key))),
                );
            }
        }
    }
}

pub(super) fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted_text(name.as_ref())).collect();
    names.join(", ")
}

fn is(value: &Value, kind: &str) -> bool {
    match value {
        Value::Number(n) if kind == "integer" => n.as_f64().is_some_and(|f| f.fract() == 0.0),
        value => kind_of(value) == kind,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Equality in which 1 equals 1.0.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| equal(v, w)))
        }
        (a, b) => a == b,
    }
}
