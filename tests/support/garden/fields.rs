//! Which fields the kinds of gardener-apiserver have. It drops others, and refuses values of another type.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

/// The fields of each type, and the type of each kind.
struct Types {
    fields: HashMap<&'static str, HashMap<&'static str, &'static str>>,
    kinds: HashMap<(&'static str, &'static str), &'static str>,
}

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let mut types = Types { fields: HashMap::new(), kinds: HashMap::new() };
    for line in include_str!("fields.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        match words.next() {
            Some("=") => {
                if let (Some(version), Some(kind), Some(of)) = (words.next(), words.next(), words.next()) {
                    types.kinds.insert((version, kind), of);
                }
            }
            Some(name) => {
                types.fields.insert(name, words.filter_map(|word| word.split_once(':')).collect());
            }
            None => {}
        }
    }
    types
});

/// Drops unknown fields of an object and returns them. A value of another type is an error.
pub fn shape(api_version: &str, kind: &str, object: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    if let Some(of) = TYPES.kinds.get(&(api_version, kind)) {
        shape_as(object, of, "", &mut unknown)?;
    }
    Ok(unknown)
}

/// What Go calls the type of a value.
fn called(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Array(_) => "array",
        _ => "object",
    }
}

fn shape_as(value: &mut Value, of: &str, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    let fits = match of {
        _ if value.is_null() => return Ok(()),
        "*" => return Ok(()),
        "s" => value.is_string(),
        "i" => value.is_i64() || value.is_u64(),
        "n" => value.is_number(),
        "b" => value.is_boolean(),
        _ if of.starts_with("[]") => value.is_array(),
        _ => value.is_object(),
    };
    if !fits {
        return Err(format!("json: cannot unmarshal {} into Go struct field {path}", called(value)));
    }
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                shape_as(item, &of[2..], &format!("{path}[{i}]"), unknown)?;
            }
        }
        Value::Object(fields) => {
            let known = TYPES.fields.get(of);
            let of_field = |key: &str| match of.strip_prefix("{}") {
                Some(rest) => Some(rest),
                None if path.is_empty() && ["apiVersion", "kind"].contains(&key) => Some("s"),
                None => known.and_then(|known| known.get(key).copied()),
            };
            let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            let others: Vec<String> = fields.keys().filter(|key| of_field(key).is_none()).cloned().collect();
            for key in others {
                fields.remove(&key);
                unknown.push(below(&key));
            }
            for (key, value) in fields {
                shape_as(value, of_field(key).unwrap_or("*"), &below(key), unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

#[test]
fn unknown_fields_are_dropped_and_other_types_refused() {
    use serde_json::json;
    let version = "core.gardener.cloud/v1beta1";
    let mut shoot = json!({"apiVersion": version, "kind": "Shoot", "metadata": {"name": "a", "any": 1}, "other": 1,
        "spec": {"region": "x", "nonsense": {}, "extensions": [{"type": "t", "more": 1, "providerConfig": {"any": [1]}}]},
        "status": {"hibernated": true}});
    let unknown = shape(version, "Shoot", &mut shoot).unwrap();
    assert_eq!(unknown, ["other", "spec.nonsense", "spec.extensions[0].more"]);
    assert_eq!(shoot["spec"]["extensions"][0], json!({"type": "t", "providerConfig": {"any": [1]}}));
    shoot["status"]["hibernated"] = json!("yes");
    let refused = shape(version, "Shoot", &mut shoot).unwrap_err();
    assert_eq!(refused, "json: cannot unmarshal string into Go struct field status.hibernated");
    assert_eq!(shape("v1", "Secret", &mut json!({"any": 1})), Ok(Vec::new()));
}
