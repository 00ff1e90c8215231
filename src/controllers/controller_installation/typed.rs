//! Converts a workload to Kubernetes' own types and back.
//!
//! A Go gardenlet decodes Deployments and similar objects into typed structs before it changes them, and writes the
//! result: unknown fields are dropped, fields without `omitempty` appear with their zero value, quantities are
//! canonical. The bytes of the Secret depend on this, so the agent does the same with a table: `typed/types.txt` has a
//! line for each type of `k8s.io/api` v0.36 that a workload contains, with its fields as `name:shape`. After a name,
//! `!` means that the field is always written, `0` that its zero is not written, nothing that an empty value is not
//! written. Shapes: `*x` is a pointer, `[]x` a list, `{}x` a map by text; others are a scalar or another line.
//!
//! Two checks are stricter than in Go: an integer out of range is refused instead of truncated, and so is an absurdly
//! large quantity.

use std::fmt;
use std::sync::OnceLock;

use serde_json::{Map, Number, Value};

use crate::components::archive::packed_text;
use crate::format::quantity::Quantity;
use crate::format::{number, time};

/// The table. See above.
fn types() -> &'static str {
    static TYPES: OnceLock<String> = OnceLock::new();
    TYPES.get_or_init(|| packed_text("types.txt"))
}

/// A field that does not fit its type. The value is omitted: it may be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Error {
    path: String,
    wanted: &'static str,
    got: &'static str,
}

impl Error {
    fn new(wanted: &'static str, got: &Value) -> Self {
        let got = match got {
            Value::Null => "null",
            Value::Bool(_) => "a bool",
            Value::Number(_) => "a number",
            Value::String(_) => "text",
            Value::Array(_) => "a list",
            Value::Object(_) => "a map",
        };
        Self { path: String::new(), wanted, got }
    }

    fn within(mut self, step: impl fmt::Display) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{step}{dot}{}", self.path);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}, not {} like this", self.path, self.wanted, self.got)
    }
}

impl std::error::Error for Error {}

/// The object after a round trip through the type `kind`, a line of the table. Errors: the first field whose
/// value has the wrong shape.
pub(super) fn round_trip(kind: &str, object: &Value) -> Result<Value, Error> {
    convert(kind, object)
}

/// One field of a type.
struct Field<'a> {
    name: &'a str,
    written: Written,
    shape: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Always,
    UnlessEmpty,
    UnlessZero,
}

/// The kinds of values that a shape allows.
enum Sort<'a> {
    Pointer(&'a str),
    List(&'a str),
    Map(&'a str),
    Scalar(Scalar),
    Type(&'static str),
}

#[derive(Clone, Copy)]
enum Scalar {
    Text,
    Bool,
    Int32,
    Int64,
    Quantity,
    IntOrText,
    Time,
    Raw,
}

impl<'a> Sort<'a> {
    fn of(shape: &'a str) -> Self {
        if let Some(inner) = shape.strip_prefix('*') {
            return Self::Pointer(inner);
        }
        if let Some(inner) = shape.strip_prefix("[]") {
            return Self::List(inner);
        }
        if let Some(inner) = shape.strip_prefix("{}") {
            return Self::Map(inner);
        }
        Self::Scalar(match shape {
            "string" => Scalar::Text,
            "bool" => Scalar::Bool,
            "int32" => Scalar::Int32,
            "int64" => Scalar::Int64,
            "quantity" => Scalar::Quantity,
            "intstr" => Scalar::IntOrText,
            "time" => Scalar::Time,
            "raw" => Scalar::Raw,
            name => return Self::Type(line(name).unwrap_or_default()),
        })
    }
}

/// The fields of a type, as listed in the table.
fn line(name: &str) -> Option<&'static str> {
    types().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

fn fields(line: &str) -> impl Iterator<Item = Field<'_>> {
    line.split(' ').filter_map(|field| {
        let (name, shape) = field.split_once(':')?;
        let (name, written) = match (name.strip_suffix('!'), name.strip_suffix('0')) {
            (Some(name), _) => (name, Written::Always),
            (_, Some(name)) => (name, Written::UnlessZero),
            _ => (name, Written::UnlessEmpty),
        };
        Some(Field { name, written, shape })
    })
}

/// A value of this shape; null is its zero.
fn convert(shape: &str, value: &Value) -> Result<Value, Error> {
    match Sort::of(shape) {
        Sort::Pointer(_) | Sort::List(_) | Sort::Map(_) if value.is_null() => Ok(Value::Null),
        Sort::Pointer(inner) => convert(inner, value),
        Sort::List(inner) => list(inner, value),
        Sort::Map(inner) => map(inner, value),
        Sort::Scalar(scalar) => scalar.convert(value),
        Sort::Type(line) => object(line, value),
    }
}

fn list(inner: &str, value: &Value) -> Result<Value, Error> {
    let items = value.as_array().ok_or_else(|| Error::new("a list", value))?;
    let convert = |(at, item)| convert(inner, item).map_err(|e| e.within(format_args!("[{at}]")));
    items.iter().enumerate().map(convert).collect()
}

fn map(inner: &str, value: &Value) -> Result<Value, Error> {
    let entries = value.as_object().ok_or_else(|| Error::new("a map", value))?;
    let convert = |(key, value): (&String, &Value)| {
        Ok((key.clone(), convert(inner, value).map_err(|e: Error| e.within(key))?))
    };
    entries.iter().map(convert).collect::<Result<Map<_, _>, _>>().map(Value::Object)
}

fn object(line: &str, value: &Value) -> Result<Value, Error> {
    if !value.is_null() && !value.is_object() {
        return Err(Error::new("a map", value));
    }
    let mut out = Map::new();
    for field in fields(line) {
        let given = value.get(field.name).unwrap_or(&Value::Null);
        let converted = convert(field.shape, given).map_err(|e| e.within(field.name))?;
        let left_out = match field.written {
            Written::Always => false,
            Written::UnlessZero => converted.is_null(),
            Written::UnlessEmpty => is_empty(&Sort::of(field.shape), &converted),
        };
        if !left_out {
            out.insert(field.name.to_owned(), converted);
        }
    }
    Ok(Value::Object(out))
}

/// Whether Go's `omitempty` omits the value. Structs are never omitted.
fn is_empty(sort: &Sort<'_>, value: &Value) -> bool {
    match sort {
        Sort::Pointer(_) => value.is_null(),
        Sort::List(_) | Sort::Map(_) => match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            other => other.is_null(),
        },
        Sort::Scalar(Scalar::Text) => value == "",
        Sort::Scalar(Scalar::Bool) => value == false,
        Sort::Scalar(Scalar::Int32 | Scalar::Int64) => value == 0,
        Sort::Scalar(_) | Sort::Type(_) => false,
    }
}

impl Scalar {
    fn convert(self, value: &Value) -> Result<Value, Error> {
        match (self, value) {
            (Self::Text, Value::Null) => Ok(Value::from("")),
            (Self::Bool, Value::Null) => Ok(Value::from(false)),
            (Self::Int32 | Self::Int64 | Self::IntOrText, Value::Null) => Ok(Value::from(0)),
            (Self::Quantity, Value::Null) => Ok(Value::from("0")),
            (Self::Raw, _)
            | (Self::Text | Self::IntOrText, Value::String(_))
            | (Self::Bool, Value::Bool(_))
            | (Self::Time, Value::Null) => Ok(value.clone()),
            (Self::Int64, Value::Number(n)) => {
                integer(n).map(Value::from).ok_or_else(|| Error::new("an integer of 64 bits", value))
            }
            (Self::Int32 | Self::IntOrText, Value::Number(n)) => integer(n)
                .and_then(|n| i32::try_from(n).ok())
                .map(Value::from)
                .ok_or_else(|| Error::new("an integer of 32 bits", value)),
            (Self::Quantity, Value::String(text)) => quantity(text, value),
            (Self::Quantity, Value::Number(n)) => {
                quantity(&number::json(n.as_f64().unwrap_or(f64::NAN)), value)
            }
            (Self::Time, Value::String(text)) => time::parse_rfc3339(text)
                .map(|at| Value::from(time::rfc3339(at)))
                .map_err(|_| Error::new("a time", value)),
            _ => Err(Error::new(self.name(), value)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Bool => "a bool",
            Self::Int32 | Self::Int64 => "a number",
            Self::Quantity => "a quantity",
            Self::IntOrText => "a number or text",
            Self::Time => "a time",
            Self::Raw => "anything",
        }
    }
}

/// Converts through a float, like all numbers of a manifest.
fn integer(n: &Number) -> Option<i64> {
    number::whole(n.as_f64()?)
}

fn quantity(text: &str, value: &Value) -> Result<Value, Error> {
    let parsed = Quantity::parse(text.trim()).map_err(|_| Error::new("a quantity", value))?;
    Ok(Value::from(parsed.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::format::yaml::{self, Dialect};

    /// The output of a Go program that sends the same text through k8s.io/api v0.36.1 and apimachinery's converter.
    const GOLDEN: &[(&str, &str)] = &[
        (include_str!("typed/odd.yaml"), include_str!("typed/odd.golden.yaml")),
        (include_str!("typed/kinds.yaml"), include_str!("typed/kinds.golden.yaml")),
        (include_str!("typed/bare.yaml"), include_str!("typed/bare.golden.yaml")),
        (include_str!("typed/rich.yaml"), include_str!("typed/rich.golden.yaml")),
    ];

    #[test]
    fn workloads_are_converted_like_go() {
        for (given, expected) in GOLDEN {
            let mut out = String::new();
            for document in yaml::parse_all(given) {
                let object = document.value.unwrap();
                let kind = object["kind"].as_str().unwrap();
                let back = round_trip(kind, &object).unwrap();
                assert_eq!(round_trip(kind, &back).unwrap(), back);
                out.push_str(&format!("\n---\n{}", yaml::emit(&back, Dialect::V4)));
            }
            assert_eq!(format!("{out}\n---\n"), *expected);
        }
    }

    #[test]
    fn the_table_is_complete() {
        let mut names = Vec::new();
        for line in types().lines() {
            let (name, rest) = line.split_once(' ').unwrap();
            names.push(name);
            assert_eq!(fields(rest).count(), rest.split(' ').count(), "{name}");
            for field in fields(rest) {
                let mut shape = field.shape;
                while let Sort::Pointer(inner) | Sort::List(inner) | Sort::Map(inner) = Sort::of(shape) {
                    shape = inner;
                }
                if let Sort::Type(fields) = Sort::of(shape) {
                    assert!(!fields.is_empty(), "{name}.{}: {shape}", field.name);
                }
            }
        }
        for kind in ["CronJob", "DaemonSet", "Deployment", "Job", "StatefulSet"] {
            assert!(names.contains(&kind), "{kind}");
        }
        assert!(names.is_sorted() && names.len() > 100, "{}", names.len());
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        let container = |inner: Value| json!({"spec": {"template": {"spec": {"containers": [inner]}}}});
        let table = [
            (json!({"spec": {"replicas": "1"}}), "spec.replicas must be a number, not text like this"),
            (
                json!({"spec": {"replicas": 1.5}}),
                "spec.replicas must be an integer of 32 bits, not a number like this",
            ),
            (
                json!({"spec": {"replicas": 99_999_999_999_i64}}),
                "spec.replicas must be an integer of 32 bits, not a number like this",
            ),
            (json!({"spec": [1]}), "spec must be a map, not a list like this"),
            (json!({"spec": {"paused": 1}}), "spec.paused must be a bool, not a number like this"),
            (
                json!({"spec": {"template": {"metadata": {"labels": {"a": 1}}}}}),
                "spec.template.metadata.labels.a must be text, not a number like this",
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": {}}}}}),
                "spec.template.spec.containers must be a list, not a map like this",
            ),
            (container(json!(5)), "spec.template.spec.containers[0] must be a map, not a number like this"),
            (
                container(json!({"env": [{"name": "a"}, {"name": "b", "value": 5}]})),
                "spec.template.spec.containers[0].env[1].value must be text, not a number like this",
            ),
            (
                container(json!({"resources": {"limits": {"cpu": "abc"}}})),
                "spec.template.spec.containers[0].resources.limits.cpu must be a quantity, not text like this",
            ),
            (
                container(json!({"livenessProbe": {"httpGet": {"port": true}}})),
                "spec.template.spec.containers[0].livenessProbe.httpGet.port must be a number or text, not a bool \
                 like this",
            ),
            (
                json!({"metadata": {"creationTimestamp": "foo"}}),
                "metadata.creationTimestamp must be a time, not text like this",
            ),
        ];
        for (object, expected) in table {
            assert_eq!(round_trip("Deployment", &object).unwrap_err().to_string(), expected);
        }
    }
}
