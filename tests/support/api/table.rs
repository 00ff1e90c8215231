//! Objects as `kubectl get` asks for them: as a `Table`, whose columns the server chooses.

use gardenlet::base::clock::{Clock, Timestamp};
use serde_json::{Value, json};

use super::kinds::Kind;
use super::read::metadata_of;
use crate::encoding::from_rfc3339;
use crate::json::{list, text};

/// How much of each object a row repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Include {
    None,
    Metadata,
    Object,
}

/// The form in which a client wants objects.
#[derive(Clone, Debug, Default)]
pub enum Form {
    #[default]
    Whole,
    Metadata,
    Table(Include, Clock),
}

impl Form {
    /// The first form of an `Accept` header that this server has. `include` is the parameter `includeObject`.
    pub fn parse(accept: &str, include: Option<&str>, clock: &Clock) -> Self {
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            if !matches!(parts.next(), Some("application/json" | "*/*" | "application/*")) {
                continue;
            }
            let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
            let get = |name: &str| parameters.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
            return match (get("as"), get("v")) {
                (Some("Table"), Some("v1")) => Self::Table(
                    match include {
                        Some("None") => Include::None,
                        Some("Object") => Include::Object,
                        _ => Include::Metadata,
                    },
                    clock.clone(),
                ),
                (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), _) => Self::Metadata,
                (None, _) => Self::Whole,
                _ => continue,
            };
        }
        Self::Whole
    }

    /// One object of a kind in this form.
    pub fn one(&self, kind: &Kind, version: &str, object: Value) -> Value {
        match self {
            Self::Whole => object,
            Self::Metadata => metadata_of(&object),
            Self::Table(include, clock) => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                table(kind, version, &[object], &metadata, *include, clock.now())
            }
        }
    }
}

/// A column of a kind that is compiled in.
#[derive(Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub cell: Cell,
    /// Only `-o wide` shows it.
    pub is_wide: bool,
}

impl Column {
    pub const fn new(name: &'static str, cell: Cell) -> Self {
        Self { name, cell, is_wide: false }
    }

    pub const fn wide(name: &'static str, cell: Cell) -> Self {
        Self { name, cell, is_wide: true }
    }

    fn definition(&self) -> Value {
        let format = if self.name == "Name" { "name" } else { "" };
        definition(self.name, self.cell.kind(), format, i64::from(self.is_wide))
    }
}

/// Where the content of a column comes from.
#[derive(Clone, Copy)]
pub enum Cell {
    /// The value at this pointer, or this text if there is none.
    At(&'static str, &'static str),
    /// The number at this pointer, or 0.
    Number(&'static str),
    /// How many entries the maps or lists at these pointers have together.
    Count(&'static [&'static str]),
    /// The time since the timestamp at this pointer.
    Age(&'static str),
    /// The status of a condition, or `<unknown>`.
    Condition(&'static str),
    /// Computed from the whole object.
    Made(fn(&Value) -> String),
    /// The same with the present time.
    Timed(fn(&Value, Timestamp) -> String),
}

/// The first column of nearly all kinds.
pub const NAME: Column = Column::new("Name", Cell::At("/metadata/name", ""));
/// The last one.
pub const AGE: Column = Column::new("Age", Cell::Age("/metadata/creationTimestamp"));
/// What kube-apiserver shows of a kind for which it has no columns.
const OTHERS: [Column; 2] = [NAME, Column::new("Created At", Cell::At("/metadata/creationTimestamp", ""))];

impl Cell {
    fn of(self, object: &Value, now: Timestamp) -> Value {
        match self {
            Self::At(pointer, missing) => match object.pointer(pointer) {
                None | Some(Value::Null) => missing.into(),
                Some(Value::String(text)) if text.is_empty() => missing.into(),
                Some(Value::String(text)) => text.as_str().into(),
                Some(other) => other.to_string().into(),
            },
            Self::Number(pointer) => object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0).into(),
            Self::Count(pointers) => {
                pointers.iter().map(|pointer| count(object, pointer)).sum::<usize>().into()
            }
            Self::Age(pointer) => since(text(object, pointer), now).into(),
            Self::Condition(kind) => condition(object, kind).unwrap_or("<unknown>").into(),
            Self::Made(make) => make(object).into(),
            Self::Timed(make) => make(object, now).into(),
        }
    }

    fn kind(self) -> &'static str {
        if matches!(self, Self::Number(_)) { "integer" } else { "string" }
    }
}

/// How many entries a map or list has.
pub fn count(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(fields)) => fields.len(),
        _ => 0,
    }
}

/// The status of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let found = list(object, "/status/conditions").iter().find(|condition| condition["type"] == kind)?;
    found["status"].as_str()
}

/// The time since a timestamp as kubectl writes it.
pub fn since(timestamp: &str, now: Timestamp) -> String {
    match from_rfc3339(timestamp) {
        Some(then) if then <= now => duration(now.since(then).as_secs()),
        // Clocks may differ by a second.
        Some(then) if then.since(now).as_secs() < 2 => "0s".to_owned(),
        Some(_) => "<invalid>".to_owned(),
        None => "<unknown>".to_owned(),
    }
}

/// Seconds as kubectl writes them: two units while the larger one is small.
pub fn duration(seconds: u64) -> String {
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match (minutes, hours) {
        (0..2, _) => format!("{seconds}s"),
        (2..10, _) => two(minutes, "m", seconds % 60, "s"),
        (_, 0..3) => format!("{minutes}m"),
        (_, 3..8) => two(hours, "h", minutes % 60, "m"),
        (_, 8..48) => format!("{hours}h"),
        (_, 48..192) => two(days, "d", hours % 24, "h"),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

/// Objects, which are shown in this version, as a table. `metadata` is that of the list.
pub fn table(
    kind: &Kind,
    version: &str,
    objects: &[Value],
    metadata: &Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let printed = kind.printed.get(version);
    let columns = if kind.columns.is_empty() { &OTHERS } else { kind.columns };
    let definitions: Vec<Value> = match printed {
        Some(printed) => custom_columns(printed),
        None => columns.iter().map(Column::definition).collect(),
    };
    let cells = |object: &Value| -> Vec<Value> {
        match printed {
            Some(printed) => custom_cells(printed, object, now),
            None => columns.iter().map(|column| column.cell.of(object, now)).collect(),
        }
    };
    let row = |object: &Value| {
        let mut row = json!({"cells": cells(object)});
        match include {
            Include::None => {}
            Include::Metadata => row["object"] = metadata_of(object),
            Include::Object => row["object"] = object.clone(),
        }
        row
    };
    let rows: Vec<Value> = objects.iter().map(row).collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions,
        "rows": rows})
}

fn definition(name: &str, kind: &str, format: &str, priority: i64) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
}

/// The columns of a version of a CustomResourceDefinition: `additionalPrinterColumns`, or the age.
pub fn printed(version: &Value) -> Vec<Value> {
    match list(version, "/additionalPrinterColumns") {
        [] => vec![json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})],
        columns => columns.to_vec(),
    }
}

fn custom_columns(printed: &[Value]) -> Vec<Value> {
    let name = std::iter::once(definition("Name", "string", "name", 0));
    let others = printed.iter().map(|column| {
        let priority = column["priority"].as_i64().unwrap_or(0);
        definition(text(column, "/name"), text(column, "/type"), text(column, "/format"), priority)
    });
    name.chain(others).collect()
}

fn custom_cells(printed: &[Value], object: &Value, now: Timestamp) -> Vec<Value> {
    let name = std::iter::once(object["metadata"]["name"].clone());
    let others = printed.iter().map(|column| {
        let found = find(object, text(column, "/jsonPath")).unwrap_or(&Value::Null);
        match (text(column, "/type"), found) {
            (_, Value::Null) => Value::Null,
            ("date", Value::String(time)) if from_rfc3339(time).is_none() => "<invalid>".into(),
            ("date", Value::String(time)) => since(time, now).into(),
            ("string", Value::String(text)) => text.as_str().into(),
            ("string", other) => other.to_string().into(),
            ("integer", Value::Number(number)) => {
                number.as_i64().or(number.as_f64().map(|n| n as i64)).into()
            }
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => found.clone(),
            _ => Value::Null,
        }
    });
    name.chain(others).collect()
}

/// The first value at a simple JSONPath, as columns of definitions have it: `.a.b`, `[0]`, `['a']`, `[?(@.type=="A")]`.
pub fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut at = object;
    let mut rest = path.trim();
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = inner.split_once(']')?;
            (at, rest) = (index(at, step)?, after);
        } else {
            let (key, after) = field(rest.strip_prefix('.')?);
            (at, rest) = (at.get(&key)?, after);
        }
    }
    Some(at)
}

/// The name of a field, in which a backslash keeps a dot, and what follows.
fn field(text: &str) -> (String, &str) {
    let mut key = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => key.extend(characters.next().map(|(_, kept)| kept)),
            '.' | '[' => return (key, &text[at..]),
            other => key.push(other),
        }
    }
    (key, "")
}

fn index<'a>(value: &'a Value, step: &str) -> Option<&'a Value> {
    let unquote = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
    if let Some(filter) = step.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        let (path, wanted) = filter.split_once("==")?;
        let (path, wanted) = (path.trim().strip_prefix('@')?, unquote(wanted));
        return value.as_array()?.iter().find(|item| find(item, path).is_some_and(|v| *v == wanted.as_str()));
    }
    match step {
        "*" => value.as_array()?.first(),
        _ => match step.parse::<usize>() {
            Ok(at) => value.get(at),
            Err(_) => value.get(unquote(step)),
        },
    }
}

#[test]
fn durations_are_those_of_kubectl() {
    let (minute, hour, day) = (60, 3_600, 86_400);
    for (seconds, expected) in [
        (0, "0s"),
        (119, "119s"),
        (2 * minute, "2m"),
        (9 * minute + 59, "9m59s"),
        (10 * minute + 59, "10m"),
        (3 * hour - 1, "179m"),
        (3 * hour, "3h"),
        (7 * hour + 5 * minute, "7h5m"),
        (8 * hour + 5 * minute, "8h"),
        (2 * day - 1, "47h"),
        (2 * day, "2d"),
        (7 * day + 3 * hour, "7d3h"),
        (8 * day + 3 * hour, "8d"),
        (729 * day, "729d"),
        (730 * day, "2y"),
        (7 * 365 * day + day, "7y1d"),
        (9 * 365 * day, "9y"),
    ] {
        assert_eq!(duration(seconds), expected, "{seconds}");
    }
    let now = from_rfc3339("2026-01-01T00:01:00Z").unwrap();
    assert_eq!(since("2026-01-01T00:00:00Z", now), "60s");
    assert_eq!(since("2026-01-01T00:01:01Z", now), "0s");
    assert_eq!(since("2027-01-01T00:00:00Z", now), "<invalid>");
    assert_eq!(since("", now), "<unknown>");
}

#[test]
fn simple_paths_lead_to_values() {
    let object = json!({"spec": {"hosts": ["a", "b"], "x.y": 1, "empty": null}, "status": {"conditions": [
        {"type": "A", "status": "True"}, {"type": "B", "status": "False"}]}});
    for (path, expected) in [
        (".spec.hosts[1]", Some(json!("b"))),
        (".spec.hosts[*]", Some(json!("a"))),
        (".spec.hosts[2]", None),
        (r".spec.x\.y", Some(json!(1))),
        (".spec['x.y']", Some(json!(1))),
        (".spec.empty", Some(Value::Null)),
        (".spec.other.deeper", None),
        (r#".status.conditions[?(@.type=="B")].status"#, Some(json!("False"))),
        (".status.conditions[?(@.type == 'A')].status", Some(json!("True"))),
        (".status.conditions[?(@.type=='C')].status", None),
        ("spec", None),
        (".spec[", None),
    ] {
        assert_eq!(find(&object, path), expected.as_ref(), "{path}");
    }
}

#[test]
fn a_definition_chooses_its_columns() {
    let definition = json!({"spec": {"group": "g", "scope": "Namespaced", "names": {"kind": "K", "plural": "ks"}, "versions": [
        {"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [
            {"name": "Class", "type": "string", "jsonPath": ".spec.class"},
            {"name": "Hosts", "type": "string", "jsonPath": ".spec.hosts", "priority": 1},
            {"name": "Number", "type": "integer", "jsonPath": ".spec.number"},
            {"name": "Right", "type": "boolean", "jsonPath": ".spec.number"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]},
        {"name": "v2", "served": true}]}});
    let kind = super::crd::kind_of(&definition);
    let object = json!({"metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"hosts": ["a"], "number": 3}});
    let now = from_rfc3339("2026-01-01T00:05:00Z").unwrap();
    let show = |version: &str, include| {
        table(&kind, version, std::slice::from_ref(&object), &json!({"resourceVersion": "7"}), include, now)
    };
    let shown = show("v1", Include::None);
    assert_eq!(shown["rows"], json!([{"cells": ["n", null, "[\"a\"]", 3, null, "5m"]}]));
    let names: Vec<&str> = list(&shown, "/columnDefinitions").iter().map(|c| text(c, "/name")).collect();
    assert_eq!(names, ["Name", "Class", "Hosts", "Number", "Right", "Age"]);
    assert_eq!(shown["columnDefinitions"][2]["priority"], 1);
    assert_eq!(shown["metadata"]["resourceVersion"], "7");
    let shown = show("v2", Include::Metadata);
    assert_eq!(shown["rows"][0]["cells"], json!(["n", "5m"]));
    assert_eq!(shown["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(show("v2", Include::Object)["rows"][0]["object"], object);
}

#[test]
fn the_first_known_form_counts() {
    let clock = Clock::system();
    let form = |accept: &str, include| match Form::parse(accept, include, &clock) {
        Form::Whole => "whole".to_owned(),
        Form::Metadata => "metadata".to_owned(),
        Form::Table(include, _) => format!("table with {include:?}"),
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    assert_eq!(form(table, None), "table with Metadata");
    assert_eq!(form(table, Some("Object")), "table with Object");
    assert_eq!(form(table, Some("None")), "table with None");
    for (accept, expected) in [
        ("", "whole"),
        ("*/*", "whole"),
        ("application/json", "whole"),
        ("application/json, application/json;as=Table;v=v1;g=meta.k8s.io", "whole"),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", "whole"),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io, application/json", "whole"),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "metadata"),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json", "metadata"),
    ] {
        assert_eq!(form(accept, None), expected, "{accept}");
    }
}
