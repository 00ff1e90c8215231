//! What scalars mean: with their tags, as values and as keys.

use std::borrow::Cow;

use serde_json::Value;

use super::scalar::{self, Scalar};
use super::{Go, Words};
use crate::format::{base64, number};

pub(super) type ResolveProblem = (Words, Go);

/// A scalar as the document spells it.
pub(super) struct ScalarText<'a> {
    value: Cow<'a, str>,
    tag: Option<String>,
    /// Its type follows from its text.
    plain: bool,
}

impl<'a> ScalarText<'a> {
    pub(super) fn new(value: Cow<'a, str>, tag: Option<String>, plain: bool) -> Self {
        let plain = tag.as_deref().map_or(plain, |tag| tag == "!");
        Self { value, tag, plain }
    }

    pub(super) fn is_merge(&self) -> bool {
        self.value == "<<" && (self.plain || self.tag.as_deref() == Some("tag:yaml.org,2002:merge"))
    }

    /// The type that the tag names; empty if there is none.
    fn wanted(&self) -> &str {
        match self.tag.as_deref() {
            None if self.plain => "",
            None => "str",
            Some(tag) => match tag.strip_prefix("tag:yaml.org,2002:") {
                Some(kind @ ("binary" | "bool" | "int" | "float" | "null" | "timestamp")) => kind,
                _ => "str",
            },
        }
    }

    fn resolve(&self) -> Result<Scalar, ResolveProblem> {
        let wanted = self.wanted();
        if wanted == "str" {
            return Ok(Scalar::Text);
        }
        let scalar = scalar::resolve(&self.value);
        let fits = match scalar {
            _ if wanted.is_empty() => true,
            Scalar::Null => wanted == "null",
            Scalar::Bool(_) => wanted == "bool",
            Scalar::Int(_) => matches!(wanted, "int" | "float"),
            Scalar::Uint(_) => wanted == "int",
            Scalar::Float(_) => wanted == "float",
            Scalar::Date => wanted == "timestamp",
            Scalar::Text => false,
        };
        if fits {
            return Ok(scalar);
        }
        let is = tag_name(&scalar);
        let message = format!("cannot decode !!{is} as a !!{wanted}");
        let full = format!("cannot decode !!{is} `{}` as a !!{wanted}", self.value);
        Err(((message.into(), Some(full.into())), Go::Decode))
    }
}

/// The value of a scalar. If it is not kept, it is only checked.
pub(super) fn value(text: ScalarText<'_>, keep: bool) -> Result<Value, ResolveProblem> {
    if text.wanted() == "binary" {
        return binary(&text.value).map(Value::String);
    }
    let scalar = text.resolve()?;
    match scalar {
        Scalar::Text | Scalar::Date if !keep => Ok(Value::Null),
        Scalar::Text | Scalar::Date => Ok(Value::String(text.value.into_owned())),
        _ => scalar::to_json(&scalar, &text.value).ok_or_else(|| {
            let float = if let Scalar::Float(f) = scalar { f } else { 0.0 };
            ((format!("json: unsupported value: {}", number::general(float)).into(), None), Go::Json)
        }),
    }
}

/// The text of a scalar as a key; `None` if it is null. If it is not kept, it is only checked.
pub(super) fn scalar_key(text: ScalarText<'_>, keep: bool) -> Result<Option<String>, ResolveProblem> {
    if text.wanted() == "binary" {
        return binary(&text.value).map(Some);
    }
    Ok(Some(match text.resolve()? {
        Scalar::Text | Scalar::Date if !keep => String::new(),
        Scalar::Text | Scalar::Date => text.value.into_owned(),
        Scalar::Float(f) => float_key(f),
        Scalar::Null => return Ok(None),
        Scalar::Bool(b) => b.to_string(),
        Scalar::Int(n) => n.to_string(),
        Scalar::Uint(n) => n.to_string(),
    }))
}

/// The text of a value as a key; `None` if it is null.
pub(super) fn key(value: Value) -> Result<Option<String>, ResolveProblem> {
    Ok(Some(match value {
        Value::String(text) => text,
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => match n.as_f64() {
            Some(float) if n.is_f64() => float_key(float),
            _ => n.to_string(),
        },
        Value::Null => return Ok(None),
        key => {
            let full = format!("invalid map key: {}", go_syntax(&key));
            return Err((("invalid map key".into(), Some(full.into())), Go::Decode));
        }
    }))
}

/// JSON does not allow null as a key.
pub(super) fn null_key(value: &Value) -> ResolveProblem {
    let value = if value.is_null() { "<nil>".to_owned() } else { go_syntax(value) };
    let message = "unsupported map key of type: %!s(<nil>), key: <nil>";
    ((message.into(), Some(format!("{message}, value: {value}").into())), Go::Json)
}

fn tag_name(scalar: &Scalar) -> &'static str {
    match scalar {
        Scalar::Null => "null",
        Scalar::Bool(_) => "bool",
        Scalar::Int(_) | Scalar::Uint(_) => "int",
        Scalar::Float(_) => "float",
        Scalar::Date => "timestamp",
        Scalar::Text => "str",
    }
}

/// A value in Go's `%#v` format, for the message about a template that was not rendered.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k:?}:{}", go_syntax(v))).collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", entries.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

fn binary(text: &str) -> Result<String, ResolveProblem> {
    let bytes = base64::decode(text.as_bytes())
        .map_err(|_| ((Cow::Borrowed("!!binary value contains invalid base64 data"), None), Go::Decode))?;
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        // As Go's JSON encoder: one replacement character for each byte.
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Ok(text)
}

#[allow(clippy::cast_possible_truncation)] // as upstream: keys are written with 32 bits
fn float_key(value: f64) -> String {
    match number::general32(value as f32) {
        text if text == "+Inf" => ".inf".to_owned(),
        text if text == "-Inf" => "-.inf".to_owned(),
        text if text == "NaN" => ".nan".to_owned(),
        text => text,
    }
}
