//! TOML, as the Go library of Helm writes it; [`parse`] reads it.

mod parse;

use super::json::as_map;
use super::{Args, Function, FunctionResult, fixed};
use crate::chart::value::Type::{Any, Str};
use crate::chart::value::{Budget, Map, Value};
use crate::format::number;
use crate::limits::TEMPLATE_OUTPUT_BYTES_MAX;

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("toToml", &[Any], to_toml),
    fixed("mustToToml", &[Any], |a| Ok(encode(a.any(0))?.into())),
    fixed("fromToml", &[Str], |a| Ok(as_map(parse::document(&a.str(0)), ""))),
];

/// An error becomes the result text.
fn to_toml(a: &Args<'_>) -> FunctionResult {
    if a.any(0).is_nil() {
        return Err("reflect: call of reflect.Value.Type on zero Value".into());
    }
    Ok(encode(a.any(0)).unwrap_or_else(|message| message).into())
}

fn encode(value: &Value) -> Result<String, String> {
    let mut writer = Writer { out: String::new(), budget: Budget::new() };
    writer.value(&mut Vec::new(), value)?;
    Ok(writer.out)
}

/// Whether the value is written as a table of its own, or as several.
#[derive(PartialEq)]
enum Shape {
    Plain,
    Table,
    Tables,
}

fn shape(value: &Value) -> Result<Shape, String> {
    match value {
        Value::Map(map) if !map.is_nil() => Ok(Shape::Table),
        Value::List(list) if !list.items().is_empty() => {
            let mut tables = true;
            for item in list.items().iter() {
                if is_absent(item) {
                    return Err("toml: cannot encode array with nil element".to_owned());
                }
                tables &= matches!(item, Value::Map(_));
                if let Value::List(_) = item {
                    shape(item)?;
                }
            }
            Ok(if tables { Shape::Tables } else { Shape::Plain })
        }
        _ => Ok(Shape::Plain),
    }
}

fn is_absent(value: &Value) -> bool {
    match value {
        Value::Nil | Value::NilInterface => true,
        Value::List(list) => list.is_nil(),
        Value::Map(map) => map.is_nil(),
        _ => false,
    }
}

struct Writer {
    out: String,
    budget: Budget,
}

impl Writer {
    fn value(&mut self, path: &mut Vec<String>, value: &Value) -> Result<(), String> {
        self.enter()?;
        match (shape(value)?, value) {
            (Shape::Table, Value::Map(map)) => {
                if path.len() == 1 {
                    self.line_break();
                }
                if !path.is_empty() {
                    self.out.push_str(&format!("{}[{}]\n", indent(path), header(path)));
                }
                self.table(path, map)?;
            }
            (Shape::Tables, Value::List(list)) => {
                if path.is_empty() {
                    return Err("toml: top-level values must be Go maps or structs".to_owned());
                }
                for item in list.items().iter().filter_map(Value::as_map) {
                    self.line_break();
                    self.out.push_str(&format!("{}[[{}]]\n", indent(path), header(path)));
                    self.table(path, item)?;
                }
            }
            // A nil map at the top has no table, and so no text.
            (Shape::Plain, Value::Map(_)) if path.is_empty() => {}
            _ => match path.last() {
                None => self.element(value)?,
                Some(name) => {
                    self.out.push_str(&format!("{}{} = ", indent(path), key(name)));
                    self.element(value)?;
                    self.out.push('\n');
                }
            },
        }
        self.budget.leave();
        Ok(())
    }

    /// Plain values come first, tables after them.
    fn table(&mut self, path: &mut Vec<String>, map: &Map) -> Result<(), String> {
        let (plain, tables) = sorted(map)?;
        for (name, value) in plain.into_iter().chain(tables).filter(|(_, v)| !is_absent(v)) {
            path.push(name);
            self.value(path, &value)?;
            path.pop();
        }
        Ok(())
    }

    fn element(&mut self, value: &Value) -> Result<(), String> {
        self.enter()?;
        match value {
            Value::Str(s) => self.quoted(&s.to_str()),
            Value::Bool(b) => self.out.push_str(if *b { "true" } else { "false" }),
            Value::Int(i) | Value::Int64(i) => self.out.push_str(&i.to_string()),
            Value::Uint64(u) => self.out.push_str(&u.to_string()),
            Value::Uint8(b) => self.out.push_str(&b.to_string()),
            Value::Float(f) => self.out.push_str(&float(*f)),
            Value::Bytes(bytes) => {
                let numbers: Vec<String> = bytes.iter().map(ToString::to_string).collect();
                self.out.push_str(&format!("[{}]", numbers.join(", ")));
            }
            Value::List(list) => {
                self.out.push('[');
                for (i, item) in list.items().iter().enumerate() {
                    if i > 0 {
                        self.out.push_str(", ");
                    }
                    self.element(item)?;
                }
                self.out.push(']');
            }
            Value::Map(map) => self.inline(map)?,
            Value::Native(object) if object.type_name() == "time.Time" => {
                self.out.push_str(object.to_json().as_str().unwrap_or_default());
            }
            Value::Native(object) => self.quoted(&object.display()),
            Value::Nil | Value::NilInterface => {
                return Err("toml: cannot encode array with nil element".to_owned());
            }
        }
        self.budget.leave();
        Ok(())
    }

    /// A table within a list that also has other items. As in the library, a nil at its end leaves its comma.
    fn inline(&mut self, map: &Map) -> Result<(), String> {
        let (plain, tables) = sorted(map)?;
        self.out.push('{');
        for (entries, more_follow) in [(&plain, !tables.is_empty()), (&tables, false)] {
            for (i, (name, value)) in entries.iter().enumerate().filter(|(_, (_, v))| !is_absent(v)) {
                self.out.push_str(&format!("{} = ", key(name)));
                self.element(value)?;
                if more_follow || i + 1 < entries.len() {
                    self.out.push_str(", ");
                }
            }
        }
        self.out.push('}');
        Ok(())
    }

    fn quoted(&mut self, s: &str) {
        self.out.push_str(&quote(s));
    }

    fn line_break(&mut self) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
    }

    fn enter(&mut self) -> Result<(), String> {
        if !self.budget.enter() || self.out.len() > TEMPLATE_OUTPUT_BYTES_MAX {
            return Err("toml: value is too large, or contains itself".to_owned());
        }
        Ok(())
    }
}

type Sorted = (Vec<(String, Value)>, Vec<(String, Value)>);

fn sorted(map: &Map) -> Result<Sorted, String> {
    let mut sorted = Sorted::default();
    for (name, value) in map.entries().iter() {
        let entry = (name.to_string(), value.clone());
        match shape(value)? {
            Shape::Plain => sorted.0.push(entry),
            _ => sorted.1.push(entry),
        }
    }
    Ok(sorted)
}

fn indent(path: &[String]) -> String {
    "  ".repeat(path.len().saturating_sub(1))
}

fn header(path: &[String]) -> String {
    path.iter().map(|name| key(name)).collect::<Vec<_>>().join(".")
}

fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { name.to_owned() } else { quote(name) }
}

fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\0'..' ' | '\x7f' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

fn float(f: f64) -> String {
    if f.is_nan() {
        // On x86, zero times infinity has a sign.
        return if f.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if f.is_infinite() {
        return if f < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let text = number::general(f);
    if text.contains(['e', '.']) { text } else { format!("{text}.0") }
}
