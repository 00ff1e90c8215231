//! JSON as Go's encoder writes it, and Go's errors for invalid JSON ([`scan`]).

mod scan;

use super::{Args, Cause, Function, FunctionResult, fixed};
use crate::chart::value::Type::{Any, Str};
use crate::chart::value::{Budget, GoString, List, ListKind, Map, Numbers, Value};
use crate::format::{base64, number, view};
use crate::limits::TEMPLATE_OUTPUT_BYTES_MAX;

pub(super) const FUNCTIONS: &[Function] = &[
    // The plain forms ignore errors.
    fixed("toJson", &[Any], |a| Ok(encode(a.any(0), Style::HTML).unwrap_or_default().into())),
    fixed("mustToJson", &[Any], |a| Ok(encode(a.any(0), Style::HTML)?.into())),
    fixed("toPrettyJson", &[Any], |a| Ok(encode(a.any(0), Style::PRETTY).unwrap_or_default().into())),
    fixed("mustToPrettyJson", &[Any], |a| Ok(encode(a.any(0), Style::PRETTY)?.into())),
    fixed("toRawJson", &[Any], |a| Ok(encode(a.any(0), Style::RAW)?.into())),
    fixed("mustToRawJson", &[Any], |a| Ok(encode(a.any(0), Style::RAW)?.into())),
    fixed("fromJson", &[Str], from_json),
    fixed("fromJsonArray", &[Str], from_json_array),
    fixed("mustFromJson", &[Str], |a| Ok(decode(a.bytes(0))?)),
];

fn from_json(a: &Args<'_>) -> FunctionResult {
    Ok(as_map(decode(a.bytes(0)), ""))
}

fn from_json_array(a: &Args<'_>) -> FunctionResult {
    Ok(as_array(decode(a.bytes(0)), ""))
}

/// The result of decoding into a map: an error becomes its key `Error`.
pub(super) fn as_map(decoded: Result<Value, String>, prefix: &str) -> Value {
    let message = match decoded {
        Ok(map @ Value::Map(_)) => return map,
        Ok(Value::Nil) => return Map::nil().into(),
        Ok(other) => format!("{prefix}{}", unmarshal_error(&other, "map[string]interface {}")),
        Err(message) => message,
    };
    Value::map([("Error", message.into())])
}

/// The result of decoding into a slice: an error becomes the only item.
pub(super) fn as_array(decoded: Result<Value, String>, prefix: &str) -> Value {
    let message = match decoded {
        Ok(list @ Value::List(_)) => return list,
        Ok(Value::Nil) => return Value::List(List::nil(ListKind::Any)),
        Ok(other) => format!("{prefix}{}", unmarshal_error(&other, "[]interface {}")),
        Err(message) => message,
    };
    Value::list(vec![message.into()])
}

fn unmarshal_error(value: &Value, wanted: &str) -> String {
    let kind = match value {
        Value::Map(_) => "object",
        Value::List(_) => "array",
        Value::Bool(_) => "bool",
        Value::Str(_) => "string",
        _ => "number",
    };
    format!("json: cannot unmarshal {kind} into Go value of type {wanted}")
}

/// Broken characters in a string become U+FFFD, as in Go.
fn decode(text: &[u8]) -> Result<Value, String> {
    match view::json(String::from_utf8_lossy(text).as_bytes()) {
        Ok(json) => Ok(Value::from_json(&json, Numbers::Float64Always)),
        Err(e) => Err(scan::mistake(text).unwrap_or_else(|| e.to_string())),
    }
}

#[derive(Clone, Copy)]
struct Style {
    escapes_html: bool,
    indents: bool,
}

impl Style {
    const HTML: Self = Self { escapes_html: true, indents: false };
    const RAW: Self = Self { escapes_html: false, indents: false };
    const PRETTY: Self = Self { escapes_html: true, indents: true };
}

fn encode(value: &Value, style: Style) -> Result<GoString, Cause> {
    let mut writer = Writer { out: String::new(), style, level: 0, budget: Budget::new() };
    writer.value(value)?;
    Ok(writer.out.into())
}

struct Writer {
    out: String,
    style: Style,
    level: usize,
    budget: Budget,
}

impl Writer {
    fn value(&mut self, value: &Value) -> Result<(), Cause> {
        if !self.budget.enter() || self.out.len() > TEMPLATE_OUTPUT_BYTES_MAX {
            return Err(
                format!("json: unsupported value: encountered a cycle via {}", value.type_name()).into()
            );
        }
        match value {
            Value::Nil | Value::NilInterface => self.out.push_str("null"),
            Value::Bool(b) => self.out.push_str(if *b { "true" } else { "false" }),
            Value::Int(i) | Value::Int64(i) => self.out.push_str(&i.to_string()),
            Value::Uint64(u) => self.out.push_str(&u.to_string()),
            Value::Uint8(b) => self.out.push_str(&b.to_string()),
            Value::Float(f) if !f.is_finite() => {
                return Err(format!("json: unsupported value: {}", number::general(*f)).into());
            }
            Value::Float(f) => self.out.push_str(&number::json(*f)),
            Value::Str(s) => self.text(s.as_bytes()),
            Value::Bytes(b) => self.string(&base64::encode(b)),
            Value::List(list) if list.is_nil() => self.out.push_str("null"),
            Value::List(list) => {
                let items = list.items();
                self.nested('[', ']', items.iter(), Self::value)?;
            }
            Value::Map(map) if map.is_nil() => self.out.push_str("null"),
            Value::Map(map) => {
                let entries = map.entries();
                self.nested('{', '}', entries.iter(), |w, (key, value)| {
                    w.string(key);
                    w.out.push_str(if w.style.indents { ": " } else { ":" });
                    w.value(value)
                })?;
            }
            Value::Native(object) => {
                let json = object.to_json();
                self.value(&Value::from_json(&json, Numbers::Int64))?;
            }
        }
        self.budget.leave();
        Ok(())
    }

    fn nested<T>(
        &mut self,
        open: char,
        close: char,
        items: impl ExactSizeIterator<Item = T>,
        write: impl Fn(&mut Self, T) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        let empty = items.len() == 0;
        self.out.push(open);
        self.level += 1;
        for (i, item) in items.enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            self.line();
            write(self, item)?;
        }
        self.level -= 1;
        if !empty {
            self.line();
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self) {
        if self.style.indents {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n("  ", self.level));
        }
    }

    fn string(&mut self, s: &str) {
        self.text(s.as_bytes());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.out.push('"');
        for chunk in bytes.utf8_chunks() {
            self.chars(chunk.valid());
            self.out.extend(chunk.invalid().iter().map(|_| "\\ufffd"));
        }
        self.out.push('"');
    }

    fn chars(&mut self, s: &str) {
        let mut rest = s;
        loop {
            // Most of a text needs no escaping.
            let is_special = |b: u8| matches!(b, 0..b' ' | b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2);
            let plain = rest.bytes().position(is_special).unwrap_or(rest.len());
            self.out.push_str(&rest[..plain]);
            let mut chars = rest[plain..].chars();
            let Some(c) = chars.next() else { return };
            rest = chars.as_str();
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\x08' => self.out.push_str("\\b"),
                '\x0c' => self.out.push_str("\\f"),
                '<' | '>' | '&' if self.style.escapes_html => self.unicode(c),
                '\0'..' ' | '\u{2028}' | '\u{2029}' => self.unicode(c),
                _ => self.out.push(c),
            }
        }
    }

    fn unicode(&mut self, c: char) {
        self.out.push_str(&format!("\\u{:04x}", u32::from(c)));
    }
}
