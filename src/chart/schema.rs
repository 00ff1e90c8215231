//! values.schema.json: the part of JSON Schema that charts use, drafts 4 to 2020-12 read alike.
//!
//! Not checked: `format`, `unevaluated*`, and references to other documents, which upstream would fetch over the network
//! (each is logged once). Messages follow those that Helm prints.

use std::collections::HashMap;
use std::fmt::Write as _;

use regex_lite::Regex;
use serde_json::{Map, Value};

use super::{Chart, Table};
use crate::format::number;
use crate::limits::{SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX};

mod keywords;

/// Checks the values of a chart and of all charts below it; `None` if all is well, else what is wrong, line by line.
pub(super) fn check(chart: &Chart, values: &Table) -> Option<String> {
    let mut report = String::new();
    check_into(chart, values, &mut report);
    (!report.is_empty()).then_some(report)
}

fn check_into(chart: &Chart, values: &Table, report: &mut String) {
    if let Some(schema) = &chart.schema {
        let problems = match serde_json::from_slice(schema) {
            Ok(schema) => check_one(&schema, &Value::Object(values.clone())),
            Err(error) => format!("{error}"),
        };
        if !problems.is_empty() {
            let _infallible = write!(report, "{}:\n{problems}", chart.name());
        }
    }
    for child in &chart.children {
        if let Some(Value::Object(values)) = values.get(child.name()) {
            check_into(child, values, report);
        }
    }
}

/// What is wrong with one value; empty if all is well.
fn check_one(schema: &Value, value: &Value) -> String {
    let mut check = Check { root: schema, patterns: HashMap::new(), steps: SCHEMA_STEPS_MAX, broken: None };
    let mut failures = Vec::new();
    check.value(schema, value, &Place::default(), &mut failures);
    // Nothing beside a group: the report is the group.
    if let [group] = &mut failures[..]
        && group.message == GROUP
    {
        failures = std::mem::take(&mut group.causes);
    }
    if let Some(broken) = check.broken {
        return format!("{broken}\n");
    }
    let mut text = String::new();
    failures.iter().for_each(|failure| failure.write(0, &mut text));
    text
}

/// The message of several failures of one schema.
const GROUP: &str = "validation failed";

/// What does not hold, and where.
#[derive(Debug)]
struct Failure {
    path: String,
    message: String,
    causes: Vec<Failure>,
}

impl Failure {
    fn write(&self, depth: usize, out: &mut String) {
        let _infallible = writeln!(out, "{}- at '{}': {}", "  ".repeat(depth), self.path, self.message);
        self.causes.iter().for_each(|cause| cause.write(depth + 1, out));
    }
}

/// Where in the values, and how deep in the schema.
#[derive(Clone, Default)]
struct Place {
    path: String,
    depth: usize,
}

impl Place {
    fn below(&self, key: &str) -> Self {
        let key = key.replace('~', "~0").replace('/', "~1");
        Self { path: format!("{}/{key}", self.path), depth: self.depth + 1 }
    }

    fn deeper(&self) -> Self {
        Self { path: self.path.clone(), depth: self.depth + 1 }
    }

    fn failure(&self, message: impl Into<String>) -> Failure {
        Failure { path: self.path.clone(), message: message.into(), causes: Vec::new() }
    }
}

struct Check<'a> {
    root: &'a Value,
    patterns: HashMap<String, Regex>,
    steps: usize,
    /// Why the schema itself cannot be used.
    broken: Option<String>,
}

impl<'a> Check<'a> {
    /// Several failures of one schema are shown as one group, but for those of the first.
    fn value(&mut self, schema: &'a Value, value: &Value, place: &Place, failures: &mut Vec<Failure>) {
        let mut own = Vec::new();
        self.ungrouped(schema, value, place, &mut own);
        if own.len() > 1 && place.depth > 0 {
            own = vec![Failure { causes: own, ..place.failure(GROUP) }];
        }
        failures.append(&mut own);
    }

    fn ungrouped(&mut self, schema: &'a Value, value: &Value, place: &Place, failures: &mut Vec<Failure>) {
        if self.broken.is_some() {
            return;
        }
        if place.depth > SCHEMA_DEPTH_MAX || self.steps == 0 {
            self.broken = Some("the schema takes too long to check".to_owned());
            return;
        }
        self.steps -= 1;
        let schema = match schema {
            Value::Bool(false) => return failures.push(place.failure("false schema")),
            Value::Object(schema) => schema,
            _ => return,
        };
        if let Some(Value::String(reference)) = schema.get("$ref") {
            match resolve(self.root, reference) {
                Some(target) => self.value(target, value, &place.deeper(), failures),
                None if reference.starts_with('#') => {
                    self.broken = Some(format!("schema reference {reference:?} leads nowhere"));
                }
                None => {
                    log::warn!(reference = reference.as_str(); "Schema reference to another document skipped");
                }
            }
        }
        self.combinations(schema, value, place, failures);
        keywords::any(schema, value, place, failures);
        match value {
            Value::Number(n) => keywords::numbers(schema, n, place, failures),
            Value::String(text) => {
                keywords::lengths(schema, text.chars().count(), ("minLength", "maxLength"), place, failures);
                self.pattern(schema, text, place, failures);
            }
            Value::Array(list) => self.list(schema, list, place, failures),
            Value::Object(map) => self.map(schema, map, place, failures),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// What is wrong with a value under a schema.
    fn problems(&mut self, schema: &'a Value, value: &Value, place: &Place) -> Vec<Failure> {
        let mut failures = Vec::new();
        self.value(schema, value, &place.deeper(), &mut failures);
        failures
    }

    fn combinations(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &Value,
        place: &Place,
        failures: &mut Vec<Failure>,
    ) {
        let list = |key: &str| schema.get(key).and_then(Value::as_array);
        let failed = |name: &str, causes| Failure { causes, ..place.failure(format!("'{name}' failed")) };
        if let Some(all) = list("allOf") {
            let causes: Vec<Failure> = all.iter().flat_map(|s| self.problems(s, value, place)).collect();
            if !causes.is_empty() {
                failures.push(failed("allOf", causes));
            }
        }
        if let Some(any) = list("anyOf") {
            let mut causes = Vec::new();
            let one = any.iter().any(|s| {
                let problems = self.problems(s, value, place);
                let fits = problems.is_empty();
                causes.extend(problems);
                fits
            });
            if !one {
                failures.push(failed("anyOf", causes));
            }
        }
        if let Some(one) = list("oneOf") {
            let results: Vec<Vec<Failure>> = one.iter().map(|s| self.problems(s, value, place)).collect();
            let fitting: Vec<usize> =
                results.iter().enumerate().filter(|(_, p)| p.is_empty()).map(|(i, _)| i).collect();
            match fitting.as_slice() {
                [_] => {}
                [] => {
                    let causes = results.into_iter().flatten().collect();
                    failures.push(Failure { causes, ..place.failure("'oneOf' failed, none matched") });
                }
                [a, b, ..] => {
                    failures.push(place.failure(format!("'oneOf' failed, subschemas {a}, {b} matched")));
                }
            }
        }
        if let Some(not) = schema.get("not")
            && self.problems(not, value, place).is_empty()
        {
            failures.push(place.failure("'not' failed"));
        }
        if let Some(condition) = schema.get("if") {
            let branch = if self.problems(condition, value, place).is_empty() { "then" } else { "else" };
            if let Some(branch) = schema.get(branch) {
                self.value(branch, value, &place.deeper(), failures);
            }
        }
    }

    fn pattern(
        &mut self,
        schema: &Map<String, Value>,
        text: &str,
        place: &Place,
        failures: &mut Vec<Failure>,
    ) {
        if let Some(Value::String(pattern)) = schema.get("pattern")
            && !self.fits(pattern, text)
        {
            failures.push(place.failure(format!("'{text}' does not match pattern '{pattern}'")));
        }
    }

    fn fits(&mut self, pattern: &str, text: &str) -> bool {
        if !self.patterns.contains_key(pattern) {
            match Regex::new(pattern) {
                Ok(regex) => {
                    self.patterns.insert(pattern.to_owned(), regex);
                }
                Err(error) => {
                    self.broken = Some(format!("schema pattern {pattern:?}: {error}"));
                    return true;
                }
            }
        }
        self.patterns.get(pattern).is_none_or(|regex| regex.is_match(text))
    }

    fn list(
        &mut self,
        schema: &'a Map<String, Value>,
        list: &[Value],
        place: &Place,
        failures: &mut Vec<Failure>,
    ) {
        keywords::lengths(schema, list.len(), ("minItems", "maxItems"), place, failures);
        keywords::unique(schema, list, place, failures);
        // Drafts before 2020 have the schemas of the first items in `items` itself.
        let (first, others) = match (schema.get("prefixItems"), schema.get("items")) {
            (Some(Value::Array(first)), others) => (first.as_slice(), others),
            (_, Some(Value::Array(first))) => (first.as_slice(), schema.get("additionalItems")),
            (_, others) => (&[][..], others),
        };
        for (i, item) in list.iter().enumerate() {
            if let Some(schema) = first.get(i).or(others) {
                self.value(schema, item, &place.below(&i.to_string()), failures);
            }
        }
        if let Some(contains) = schema.get("contains")
            && !list.iter().any(|item| self.problems(contains, item, place).is_empty())
        {
            failures.push(place.failure("no items match contains schema"));
        }
    }

    fn map(
        &mut self,
        schema: &'a Map<String, Value>,
        map: &Map<String, Value>,
        place: &Place,
        failures: &mut Vec<Failure>,
    ) {
        keywords::lengths(schema, map.len(), ("minProperties", "maxProperties"), place, failures);
        keywords::required(schema, map, place, failures);
        let table = |key: &str| schema.get(key).and_then(Value::as_object);
        let (properties, patterns) = (table("properties"), table("patternProperties"));
        let mut additional = Vec::new();
        for (key, value) in map {
            let mut known = false;
            if let Some(schema) = properties.and_then(|p| p.get(key)) {
                self.value(schema, value, &place.below(key), failures);
                known = true;
            }
            for (pattern, schema) in patterns.into_iter().flatten() {
                if self.fits(pattern, key) {
                    self.value(schema, value, &place.below(key), failures);
                    known = true;
                }
            }
            match schema.get("additionalProperties") {
                Some(Value::Bool(false)) if !known => additional.push(key.as_str()),
                Some(schema) if !known => self.value(schema, value, &place.below(key), failures),
                _ => {}
            }
            if let Some(names) = schema.get("propertyNames") {
                let causes = self.problems(names, &Value::String(key.clone()), place);
                if !causes.is_empty() {
                    let failure = place.failure(format!("invalid propertyName '{key}'"));
                    failures.push(Failure { causes, ..failure });
                }
            }
        }
        if !additional.is_empty() {
            let names = keywords::quoted(&additional);
            failures.push(place.failure(format!("additional properties {names} not allowed")));
        }
        for (key, schema) in ["dependencies", "dependentSchemas"].into_iter().filter_map(table).flatten() {
            if map.contains_key(key) && !schema.is_array() {
                self.value(schema, &Value::Object(map.clone()), &place.deeper(), failures);
            }
        }
    }
}

/// The schema that a reference within the same document names.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let id = root.get("$id").or_else(|| root.get("id")).and_then(Value::as_str).unwrap_or("");
    let local = reference.strip_prefix(id.trim_end_matches('#')).unwrap_or(reference);
    let fragment = local.strip_prefix('#')?;
    if fragment.is_empty() || fragment.starts_with('/') {
        return root.pointer(&fragment.replace("%25", "%").replace("%24", "$"));
    }
    anchor(root, fragment, 0)
}

/// The schema with a name of its own.
fn anchor<'a>(schema: &'a Value, name: &str, depth: usize) -> Option<&'a Value> {
    if depth > SCHEMA_DEPTH_MAX {
        return None;
    }
    let says = |key: &str| schema.get(key).and_then(Value::as_str);
    if says("$anchor") == Some(name) || says("$id").and_then(|id| id.strip_prefix('#')) == Some(name) {
        return Some(schema);
    }
    match schema {
        Value::Object(map) => map.values().find_map(|v| anchor(v, name, depth + 1)),
        Value::Array(list) => list.iter().find_map(|v| anchor(v, name, depth + 1)),
        _ => None,
    }
}

/// A value as messages show it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        Value::Number(n) if n.is_f64() => number::json(n.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
