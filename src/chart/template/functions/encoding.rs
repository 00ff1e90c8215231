//! YAML, Base64 and Base32.

use std::borrow::Cow;

use super::json::{as_array, as_map};
use super::{Args, Cause, Function, FunctionResult, fixed};
use crate::chart::value::Type::{Any, Str};
use crate::chart::value::{GoString, Map, Numbers, Value};
use crate::format::base64;
use crate::format::yaml::{self, Dialect};
use crate::limits::{YAML_ALIAS_NODES_MAX, YAML_ALIAS_NODES_PER_BYTE_MAX};

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("toYaml", &[Any], |a| Ok(to_yaml(a.any(0), Dialect::V2).unwrap_or_default().into())),
    fixed("toYamlPretty", &[Any], |a| Ok(to_yaml(a.any(0), Dialect::V3).unwrap_or_default().into())),
    fixed("mustToYaml", &[Any], must_to_yaml),
    fixed("fromYaml", &[Str], |a| {
        charge_aliases(a)?;
        Ok(as_map(from_yaml(a.bytes(0), Map::new().into()), YAML_PREFIX))
    }),
    fixed("fromYamlArray", &[Str], |a| {
        charge_aliases(a)?;
        Ok(as_array(from_yaml(a.bytes(0), Value::list(Vec::new())), YAML_PREFIX))
    }),
    fixed("b64enc", &[Str], |a| Ok(base64::encode(a.bytes(0)).into())),
    fixed("b64dec", &[Str], |a| {
        Ok(base64::decode(a.bytes(0)).map_or_else(|e| e.to_string().into(), GoString::from).into())
    }),
    fixed("b32enc", &[Str], |a| Ok(base32(a.bytes(0)).into())),
    fixed("b32dec", &[Str], |a| Ok(from_base32(a.bytes(0)).into())),
];

/// The prefix of a type mismatch, which Go finds after the conversion from YAML to JSON.
const YAML_PREFIX: &str = "error unmarshaling JSON: while decoding JSON: ";

/// YAML without its last line break; `None` for values without a JSON form.
pub(super) fn to_yaml(value: &Value, dialect: Dialect) -> Option<String> {
    if !value.has_yaml(dialect) {
        return None;
    }
    let mut text = yaml::emit(value, dialect);
    if text.ends_with('\n') {
        text.pop();
    }
    Some(text)
}

fn must_to_yaml(a: &Args<'_>) -> FunctionResult {
    let value = a.any(0);
    let text = to_yaml(value, Dialect::V2).ok_or_else(|| match value.to_json() {
        None => "error marshaling into JSON: json: unsupported value",
        Some(_) => "yaml: control characters are not allowed",
    });
    Ok(text?.into())
}

/// Counts the maximum expansion of the aliases in a text.
fn charge_aliases(a: &Args<'_>) -> Result<(), Cause> {
    let text = a.bytes(0);
    if !(text.contains(&b'&') && text.contains(&b'*')) {
        return Ok(());
    }
    let nodes = text.len().saturating_mul(YAML_ALIAS_NODES_PER_BYTE_MAX).min(YAML_ALIAS_NODES_MAX);
    a.charge(nodes.saturating_mul(super::BYTES_PER_STEP / super::ITEMS_PER_STEP))
}

/// The first document. Errors have the words of the library that converts YAML to JSON to Go. An empty document or null
/// keeps the value before.
fn from_yaml(bytes: &[u8], before: Value) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        format!("error converting YAML to JSON: yaml: {}", broken_utf8(&bytes[error.valid_up_to()..]))
    })?;
    let json = yaml::parse(text).map_err(|e| e.go_text())?;
    Ok(if json.is_null() { before } else { Value::from_json(&json, Numbers::Float64Always) })
}

/// What go-yaml's reader says of bytes that begin with a broken character.
fn broken_utf8(bytes: &[u8]) -> &'static str {
    let width = match bytes.first() {
        Some(0..=0x7f) => 1,
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    let trailing = bytes.get(1..width.min(bytes.len())).unwrap_or_default();
    if bytes.len() < width {
        return "incomplete UTF-8 octet sequence";
    }
    if trailing.iter().any(|octet| octet & 0xc0 != 0x80) {
        return "invalid trailing UTF-8 octet";
    }
    let first = u32::from(bytes[0]) & (0x7f >> width);
    let code = trailing.iter().fold(first, |code, octet| code << 6 | u32::from(octet & 0x3f));
    let is_long = matches!((width, code), (2, 0x80..) | (3, 0x800..) | (4, 0x1_0000..));
    if is_long { "invalid Unicode character" } else { "invalid length of a UTF-8 sequence" }
}

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(5) * 8);
    for chunk in bytes.chunks(5) {
        let group = chunk.iter().fold(0_u64, |g, b| g << 8 | u64::from(*b)) << (8 * (5 - chunk.len()));
        let letters = (chunk.len() * 8).div_ceil(5);
        for i in 0..8 {
            let index = usize::try_from(group >> (35 - 5 * i) & 31).unwrap_or(0);
            out.push(if i < letters { char::from(ALPHABET[index]) } else { '=' });
        }
    }
    out
}

/// The bytes, or Go's message in their place.
fn from_base32(text: &[u8]) -> GoString {
    let clean: Cow<'_, [u8]> = if text.iter().any(|b| matches!(b, b'\r' | b'\n')) {
        text.iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect()
    } else {
        Cow::Borrowed(text)
    };
    let illegal = |at: usize| format!("illegal base32 data at input byte {at}").into();
    let mut out = Vec::with_capacity(clean.len() / 8 * 5);
    for (block, chunk) in clean.chunks(8).enumerate() {
        let start = block * 8;
        let letters = chunk.iter().position(|b| *b == b'=').unwrap_or(chunk.len());
        let mut group = 0_u64;
        for (i, b) in chunk[..letters].iter().enumerate() {
            let Some(index) = ALPHABET.iter().position(|a| a == b) else { return illegal(start + i) };
            group = group << 5 | u64::try_from(index).unwrap_or(0);
        }
        if chunk.len() < 8 {
            return illegal(if (2..chunk.len()).contains(&letters) { clean.len() } else { start });
        }
        let padded = chunk[letters..].iter().all(|b| *b == b'=');
        let last = start + 8 == clean.len();
        if letters < 8 && (!padded || !last || !matches!(letters, 2 | 4 | 5 | 7)) {
            return illegal(start + letters);
        }
        let bytes = letters * 5 / 8;
        group <<= 5 * (8 - letters);
        out.extend((0..bytes).map(|i| u8::try_from(group >> (32 - 8 * i) & 0xff).unwrap_or(0)));
    }
    out.into()
}
