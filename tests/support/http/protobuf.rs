//! Objects in protobuf. `kubectl create secret`, `configmap` and `namespace` send only this format; answers are JSON.
//!
//! The numbers of the fields are those of `k8s.io/api/core/v1/generated.proto` and of
//! `k8s.io/apimachinery/pkg/{runtime,apis/meta/v1}/generated.proto`.

use serde_json::{Map, Value, json};

use crate::encoding::base64;

const MAGIC: &[u8] = b"k8s\0";

/// Reads an object. An unknown kind or field is an error, so that nothing is lost.
pub fn read(bytes: &[u8]) -> Result<Value, String> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or("the body does not begin with `k8s` and a zero")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (field, content) in fields(envelope)? {
        match field {
            1 => {
                for (field, content) in fields(content.bytes()?)? {
                    match field {
                        1 => api_version = content.text()?,
                        2 => kind = content.text()?,
                        _ => {}
                    }
                }
            }
            2 => raw = content.bytes()?,
            _ => {}
        }
    }
    let mut object = json!({"apiVersion": api_version, "kind": kind});
    for (field, content) in fields(raw)? {
        match (api_version.as_str(), kind.as_str(), field) {
            ("v1", "Secret" | "ConfigMap" | "Namespace", 1) => {
                object["metadata"] = metadata(content.bytes()?)?;
            }
            ("v1", "Secret", 2) => entry(&mut object, "data", content, &encoded)?,
            ("v1", "Secret", 3) => object["type"] = json!(content.text()?),
            ("v1", "Secret", 4) | ("v1", "ConfigMap", 2) => {
                let key = if kind == "Secret" { "stringData" } else { "data" };
                entry(&mut object, key, content, &plain)?;
            }
            ("v1", "ConfigMap", 3) => entry(&mut object, "binaryData", content, &encoded)?,
            ("v1", "Secret", 5) | ("v1", "ConfigMap", 4) => {
                object["immutable"] = json!(content.number()? != 0);
            }
            // A client that creates a Namespace sends spec and status without values.
            ("v1", "Namespace", 2 | 3) if fields(content.bytes()?)?.iter().all(|(_, it)| it.is_empty()) => {}
            _ => return Err(format!("field {field} of {api_version} {kind} is not supported")),
        }
    }
    Ok(object)
}

fn metadata(bytes: &[u8]) -> Result<Value, String> {
    let mut metadata = json!({});
    for (field, content) in fields(bytes)? {
        match field {
            1..=3 => {
                let key = ["name", "generateName", "namespace"][field as usize - 1];
                let value = content.text()?;
                if !value.is_empty() {
                    metadata[key] = json!(value);
                }
            }
            11 => entry(&mut metadata, "labels", content, &plain)?,
            12 => entry(&mut metadata, "annotations", content, &plain)?,
            // A client that creates an object sends them empty: from selfLink to creationTimestamp.
            4..=8 if content.is_empty() => {}
            _ => return Err(format!("field {field} of the metadata is not supported")),
        }
    }
    Ok(metadata)
}

/// Adds an entry of a map.
fn entry(
    object: &mut Value,
    key: &str,
    content: Content<'_>,
    value: &dyn Fn(&[u8]) -> Result<Value, String>,
) -> Result<(), String> {
    let (mut name, mut found) = (String::new(), value(&[])?);
    for (field, content) in fields(content.bytes()?)? {
        match field {
            1 => name = content.text()?,
            _ => found = value(content.bytes()?)?,
        }
    }
    if !object[key].is_object() {
        object[key] = Map::new().into();
    }
    object[key][name] = found;
    Ok(())
}

fn encoded(bytes: &[u8]) -> Result<Value, String> {
    Ok(json!(base64(bytes)))
}

fn plain(bytes: &[u8]) -> Result<Value, String> {
    Content::Bytes(bytes).text().map(Value::from)
}

#[derive(Clone, Copy)]
enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Content<'a> {
    fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err("a number is where bytes should be".to_owned()),
        }
    }

    fn text(self) -> Result<String, String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|error| error.to_string())
    }

    fn number(self) -> Result<u64, String> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err("bytes are where a number should be".to_owned()),
        }
    }

    fn is_empty(self) -> bool {
        matches!(self, Self::Number(0) | Self::Bytes([]))
    }
}

/// The fields of a message with their numbers.
fn fields(mut rest: &[u8]) -> Result<Vec<(u64, Content<'_>)>, String> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let key = number(&mut rest)?;
        let content = match key & 7 {
            0 => Content::Number(number(&mut rest)?),
            2 => {
                let length = usize::try_from(number(&mut rest)?).map_err(|error| error.to_string())?;
                let (bytes, after) = rest.split_at_checked(length).ok_or("the body is cut off")?;
                rest = after;
                Content::Bytes(bytes)
            }
            other => return Err(format!("wire type {other} is not supported")),
        };
        all.push((key >> 3, content));
    }
    Ok(all)
}

fn number(rest: &mut &[u8]) -> Result<u64, String> {
    let mut found = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or("the body is cut off")?;
        *rest = after;
        found |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(found);
        }
    }
    Err("a number has more than 64 bits".to_owned())
}
