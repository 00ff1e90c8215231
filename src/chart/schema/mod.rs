//! values.schema.json: JSON Schema, drafts 4 to 2020-12.
//!
//! Two things are not checked: the schema against the meta-schema, and references to other documents, which upstream
//! would fetch over the network (each is logged). Messages follow Helm's.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::template::Expression;
use super::{Chart, ValuesTable};
use crate::base::sorted::SortedSet;
use crate::format::{number, view};
use crate::limits::{SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX};

mod formats;
mod keywords;
mod parts;
mod patterns;
mod references;

/// Whether a chart or one below it has a schema.
pub(super) fn is_wanted(chart: &Chart) -> bool {
    chart.schema.is_some() || chart.children.iter().any(is_wanted)
}

/// Checks the values of a chart and of all charts below it; `None` if they are valid, else a report, line by line.
pub(super) fn check(chart: &Chart, values: &ValuesTable) -> Option<String> {
    let mut report = String::new();
    check_into(chart, values, &mut report);
    (!report.is_empty()).then_some(report)
}

fn check_into(chart: &Chart, values: &ValuesTable, report: &mut String) {
    if let Some(schema) = &chart.schema {
        let problems = match view::json(schema) {
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

/// The report for one value; empty if it is valid.
fn check_one(schema: &Value, value: &Value) -> String {
    let mut check = Check {
        root: schema,
        draft: Draft::of(schema),
        patterns: HashMap::new(),
        targets: HashMap::new(),
        steps: SCHEMA_STEPS_MAX,
        broken: None,
    };
    let mut failures = match check.value(schema, value, &SchemaPlace::default(), false) {
        Ok(_) => Vec::new(),
        Err(failure) => vec![failure],
    };
    // The group becomes the report.
    if let [group] = &mut failures[..]
        && group.kind == Kind::Group
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

/// The edition of JSON Schema that a document follows: 4, 6, 7, 2019 or 2020.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Draft(u16);

impl Draft {
    /// The edition of `$schema`; the newest if it is unknown.
    fn of(schema: &Value) -> Self {
        let url = schema.get("$schema").and_then(Value::as_str).unwrap_or("");
        let url = url.trim_end_matches('#');
        let url = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or(url);
        Self(match url {
            "json-schema.org/draft/2019-09/schema" => 2019,
            "json-schema.org/draft-07/schema" => 7,
            "json-schema.org/draft-06/schema" => 6,
            "json-schema.org/draft-04/schema" => 4,
            _ => 2020,
        })
    }

    /// Whether the document may use keywords of this edition.
    fn has(self, edition: u16) -> bool {
        self.0 >= edition
    }
}

/// The kind of a failure, as far as the report needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Several failures of one schema.
    Group,
    /// Failures of a referenced schema; a single one is reported alone.
    Reference,
}

/// A failure and its place.
#[derive(Debug)]
struct SchemaFailure {
    path: String,
    message: String,
    kind: Kind,
    causes: Vec<SchemaFailure>,
}

impl SchemaFailure {
    fn write(&self, depth: usize, out: &mut String) {
        if self.kind == Kind::Reference && self.causes.len() == 1 {
            return self.causes.iter().for_each(|cause| cause.write(depth, out));
        }
        let path = quoted_text(&self.path);
        let _infallible = writeln!(out, "{}- at {path}: {}", "  ".repeat(depth), self.message);
        self.causes.iter().for_each(|cause| cause.write(depth + 1, out));
    }
}

/// A text in single quotes, as in upstream's reports.
fn quoted_text(text: &str) -> String {
    let quoted = super::template::quoted(text).replace("\\\"", "\"").replace('\'', "\\'");
    format!("'{}'", quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default())
}

/// The path in the values, and the depth in the schema.
#[derive(Clone, Default)]
struct SchemaPlace {
    path: String,
    depth: usize,
}

impl SchemaPlace {
    fn below(&self, key: &str) -> Self {
        let key = key.replace('~', "~0").replace('/', "~1");
        Self { path: format!("{}/{key}", self.path), depth: self.depth + 1 }
    }

    fn deeper(&self) -> Self {
        Self { path: self.path.clone(), depth: self.depth + 1 }
    }

    fn failure(&self, message: impl Into<String>) -> SchemaFailure {
        SchemaFailure {
            path: self.path.clone(),
            message: message.into(),
            kind: Kind::Plain,
            causes: Vec::new(),
        }
    }

    fn failure_of(&self, message: impl Into<String>, causes: Vec<SchemaFailure>) -> SchemaFailure {
        SchemaFailure { causes, ..self.failure(message) }
    }
}

/// Keys and items that no keyword has evaluated yet, for `unevaluated...`. Empty if no keyword needs them.
#[derive(Debug, Default)]
struct Unevaluated {
    keys: SortedSet<String>,
    items: SortedSet<usize>,
}

impl Unevaluated {
    fn of(value: &Value) -> Self {
        match value {
            Value::Object(map) => Self { keys: map.keys().cloned().collect(), ..Self::default() },
            Value::Array(list) => Self { items: (0..list.len()).collect(), ..Self::default() },
            _ => Self::default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.items.is_empty()
    }

    /// Keeps only what the other has not evaluated either.
    fn merge(&mut self, other: &Self) {
        self.keys.retain(|key| other.keys.contains(key));
        self.items.retain(|item| other.items.contains(item));
    }
}

struct Check<'a> {
    root: &'a Value,
    draft: Draft,
    patterns: HashMap<String, Expression>,
    /// The targets of references that were looked up.
    targets: HashMap<&'a str, Option<&'a Value>>,
    steps: usize,
    /// Why the schema itself is unusable.
    broken: Option<String>,
}

/// One schema applied to one value.
struct Subject<'a, 'v> {
    schema: &'a Map<String, Value>,
    value: &'v Value,
    place: &'v SchemaPlace,
    unevaluated: Unevaluated,
    failures: Vec<SchemaFailure>,
}

/// Bytes that one step processes.
const BYTES_PER_STEP: usize = 32;
const TOO_LONG: &str = "the schema takes too long to check";

impl<'a> Check<'a> {
    /// Counts steps against the limit of one check.
    fn spend(&mut self, steps: usize) {
        match self.steps.checked_sub(steps) {
            Some(left) => self.steps = left,
            None => self.broken = Some(TOO_LONG.to_owned()),
        }
    }

    /// What nothing has evaluated, if the caller needs it, or why the value does not match.
    fn value(
        &mut self,
        schema: &'a Value,
        value: &Value,
        place: &SchemaPlace,
        is_asked: bool,
    ) -> Result<Unevaluated, SchemaFailure> {
        if self.broken.is_some() {
            return Ok(Unevaluated::default());
        }
        if place.depth > SCHEMA_DEPTH_MAX {
            self.broken = Some(TOO_LONG.to_owned());
            return Ok(Unevaluated::default());
        }
        self.spend(1 + place.path.len() / BYTES_PER_STEP);
        let draft = self.draft;
        let own = |schema: &Map<String, Value>| {
            let wants = |key| draft.has(2019) && schema.contains_key(key);
            wants("unevaluatedProperties") || wants("unevaluatedItems")
        };
        let schema = match schema {
            Value::Bool(false) => return Err(place.failure("false schema")),
            Value::Object(schema) => schema,
            _ if is_asked => return Ok(Unevaluated::of(value)),
            _ => return Ok(Unevaluated::default()),
        };
        self.spend(keywords::steps(schema, value));
        if self.broken.is_some() {
            return Ok(Unevaluated::default());
        }
        if let Some(failure) = keywords::first(schema, value, place, self.draft) {
            return Err(failure);
        }
        let unevaluated =
            if is_asked || own(schema) { Unevaluated::of(value) } else { Unevaluated::default() };
        let mut subject = Subject { schema, value, place, unevaluated, failures: Vec::new() };
        self.reference(&mut subject, "$ref");
        if self.draft.has(2019) || !schema.contains_key("$ref") {
            self.by_type(&mut subject);
            if self.draft.has(2019) {
                self.reference(&mut subject, "$recursiveRef");
                self.reference(&mut subject, "$dynamicRef");
            }
            self.combinations(&mut subject);
            if self.draft.has(2019) {
                self.unevaluated(&mut subject);
            }
        }
        let Subject { unevaluated, mut failures, .. } = subject;
        match failures.len() {
            0 => Ok(unevaluated),
            1 => Err(failures.remove(0)),
            _ => Err(SchemaFailure { kind: Kind::Group, ..place.failure_of("validation failed", failures) }),
        }
    }

    fn by_type(&mut self, subject: &mut Subject<'a, '_>) {
        let (schema, place) = (subject.schema, subject.place);
        match subject.value {
            Value::Number(n) => keywords::numbers(schema, n, place, &mut subject.failures),
            Value::String(text) => {
                let (got, failures) = (text.chars().count(), &mut subject.failures);
                keywords::lengths(schema, got, "minLength", "maxLength", place, failures);
                self.pattern(schema, text, place, &mut subject.failures);
            }
            Value::Array(list) => self.list(subject, list),
            Value::Object(map) => self.map(subject, map),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Applies another schema to the same value: its evaluated parts count if it matches.
    fn same(&mut self, subject: &mut Subject<'a, '_>, schema: &'a Value) -> Result<(), SchemaFailure> {
        let is_asked = !subject.unevaluated.is_empty();
        let unevaluated = self.value(schema, subject.value, &subject.place.deeper(), is_asked)?;
        subject.unevaluated.merge(&unevaluated);
        Ok(())
    }

    /// Applies a schema to a part of the value.
    fn part(&mut self, subject: &mut Subject<'a, '_>, schema: &'a Value, value: &Value, key: &str) {
        let result = self.value(schema, value, &subject.place.below(key), false);
        subject.failures.extend(result.err());
    }

    fn reference(&mut self, subject: &mut Subject<'a, '_>, keyword: &str) {
        let Some(Value::String(reference)) = subject.schema.get(keyword) else { return };
        let target = self.target(reference);
        if self.broken.is_some() {
            return;
        }
        let Some(target) = target else {
            if reference.starts_with('#') {
                self.broken = Some(format!("schema reference {reference:?} has no target"));
            } else {
                log::warn!(reference = reference.as_str(); "Schema reference to another document skipped");
            }
            return;
        };
        if let Err(failure) = self.same(subject, target) {
            let causes = if failure.kind == Kind::Group { failure.causes } else { vec![failure] };
            let failure = subject.place.failure_of("validation failed", causes);
            subject.failures.push(SchemaFailure { kind: Kind::Reference, ..failure });
        }
    }

    fn combinations(&mut self, subject: &mut Subject<'a, '_>) {
        let schema = subject.schema;
        if let Some(not) = schema.get("not")
            && self.same(subject, not).is_ok()
        {
            subject.failures.push(subject.place.failure("'not' failed"));
        }
        let list = |key: &str| schema.get(key).and_then(Value::as_array).filter(|list| !list.is_empty());
        if let Some(all) = list("allOf") {
            let causes: Vec<SchemaFailure> = all.iter().filter_map(|s| self.same(subject, s).err()).collect();
            if !causes.is_empty() {
                subject.failures.push(subject.place.failure_of("'allOf' failed", causes));
            }
        }
        if let Some(any) = list("anyOf") {
            self.any_of(subject, any);
        }
        if let Some(one) = list("oneOf") {
            self.one_of(subject, one);
        }
        if let Some(condition) = schema.get("if").filter(|_| self.draft.has(7)) {
            let branch = if self.same(subject, condition).is_ok() { "then" } else { "else" };
            if let Some(branch) = schema.get(branch) {
                let result = self.same(subject, branch);
                subject.failures.extend(result.err());
            }
        }
    }

    fn any_of(&mut self, subject: &mut Subject<'a, '_>, schemas: &'a [Value]) {
        let (mut causes, mut fits) = (Vec::new(), false);
        for schema in schemas {
            match self.same(subject, schema) {
                Err(failure) => causes.push(failure),
                Ok(()) => {
                    fits = true;
                    // If no keyword needs the evaluated parts, one match is enough.
                    if subject.unevaluated.is_empty() {
                        break;
                    }
                }
            }
        }
        if !fits {
            subject.failures.push(subject.place.failure_of("'anyOf' failed", causes));
        }
    }

    fn one_of(&mut self, subject: &mut Subject<'a, '_>, schemas: &'a [Value]) {
        let (mut causes, mut fitting) = (Vec::new(), None);
        for (i, schema) in schemas.iter().enumerate() {
            match (self.same(subject, schema), fitting) {
                (Err(failure), None) => causes.push(failure),
                (Err(_), Some(_)) => {}
                (Ok(()), None) => fitting = Some(i),
                (Ok(()), Some(first)) => {
                    let message = format!("'oneOf' failed, subschemas {first}, {i} matched");
                    return subject.failures.push(subject.place.failure(message));
                }
            }
        }
        if fitting.is_none() {
            subject.failures.push(subject.place.failure_of("'oneOf' failed, none matched", causes));
        }
    }

    fn unevaluated(&mut self, subject: &mut Subject<'a, '_>) {
        if let (Some(schema), Value::Object(map)) =
            (subject.schema.get("unevaluatedProperties"), subject.value)
        {
            for key in std::mem::take(&mut subject.unevaluated.keys) {
                if let Some(value) = map.get(&key) {
                    self.part(subject, schema, value, &key);
                }
            }
        }
        if let (Some(schema), Value::Array(list)) = (subject.schema.get("unevaluatedItems"), subject.value) {
            for i in std::mem::take(&mut subject.unevaluated.items) {
                if let Some(value) = list.get(i) {
                    self.part(subject, schema, value, &i.to_string());
                }
            }
        }
    }
}

/// A value as messages show it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted_text(text),
        Value::Null => "<nil>".to_owned(),
        Value::Number(n) if n.is_f64() => number::json(n.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
