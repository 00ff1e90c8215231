//! Structural schemas of custom resources: pruning, defaulting and the checks that catch wrong manifests.

use serde_json::Value;

/// A schema, as the CustomResourceDefinition holds it.
#[derive(Debug)]
pub struct Schema(pub Value);

impl Schema {
    /// Drops fields that the schema does not know and fills in defaults. `null` where none is allowed is dropped.
    pub fn shape(&self, object: &mut Value) {
        shape(object, &self.0, true);
    }

    /// The first invalid field and the reason.
    pub fn check(&self, object: &Value) -> Option<(String, String)> {
        check(object, &self.0, "")
    }
}

fn keeps_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn shape(value: &mut Value, schema: &Value, root: bool) {
    let embedded = schema["x-kubernetes-embedded-resource"] == true;
    match value {
        Value::Object(fields) => {
            let properties = schema["properties"].as_object();
            let additional = schema.get("additionalProperties").filter(|a| a.is_object());
            fields.retain(|key, value| {
                let known = properties.is_some_and(|p| p.contains_key(key));
                let reserved =
                    (root || embedded) && ["apiVersion", "kind", "metadata"].contains(&key.as_str());
                let nullable = properties.is_some_and(|p| p.get(key).is_some_and(|s| s["nullable"] == true));
                let kept = known || reserved || additional.is_some() || keeps_unknown(schema);
                kept && !(value.is_null() && known && !nullable)
            });
            for (key, sub) in properties.into_iter().flatten() {
                if !fields.contains_key(key) && !sub["default"].is_null() {
                    fields.insert(key.clone(), sub["default"].clone());
                }
                if let Some(value) = fields.get_mut(key).filter(|_| !(root && key == "metadata")) {
                    shape(value, sub, false);
                }
            }
            if let Some(sub) = additional {
                fields.values_mut().for_each(|value| shape(value, sub, false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| shape(item, &schema["items"], false)),
        _ => {}
    }
}

fn fits(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn check(value: &Value, schema: &Value, path: &str) -> Option<(String, String)> {
    let wrong = |why: String| Some((path.trim_start_matches('.').to_owned(), why));
    if value.is_null() && schema["nullable"] == true {
        return None;
    }
    if let Some(expected) = schema["type"].as_str()
        && !fits(value, expected)
    {
        return wrong(format!("Invalid value: {value}: {path} in body must be of type {expected}"));
    }
    if schema["x-kubernetes-int-or-string"] == true && !(value.is_string() || value.is_i64()) {
        return wrong(format!("Invalid value: {value}: must be an integer or a string"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return wrong(format!("Unsupported value: {value}: supported values: {}", schema["enum"]));
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.is_object() && value.get(required).is_none() {
            let field = format!("{path}.{required}").trim_start_matches('.').to_owned();
            return Some((field, "Required value".to_owned()));
        }
    }
    if let (Some(text), Some(max)) = (value.as_str(), schema["maxLength"].as_u64())
        && text.chars().count() as u64 > max
    {
        return wrong(format!("Too long: may not be more than {max} bytes"));
    }
    if let (Some(number), Some(min)) = (value.as_f64(), schema["minimum"].as_f64())
        && number < min
    {
        return wrong(format!("Invalid value: {value}: should be greater than or equal to {min}"));
    }
    check_parts(value, schema, path)
}

fn check_parts(value: &Value, schema: &Value, path: &str) -> Option<(String, String)> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let sub = schema["properties"].get(key).or(schema.get("additionalProperties"))?;
            check(value, sub, &format!("{path}.{key}"))
        }),
        Value::Array(items) => {
            let sub = schema.get("items")?;
            items.iter().enumerate().find_map(|(i, item)| check(item, sub, &format!("{path}[{i}]")))
        }
        _ => None,
    }
}

#[test]
fn schemas_prune_default_and_check() {
    use serde_json::json;
    let schema =
        Schema(json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object",
        "properties": {"class": {"type": "string", "default": "seed"}, "n": {"type": "integer", "minimum": 1},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}));
    let mut object = json!({"kind": "X", "metadata": {"name": "a", "labels": {"b": "c"}},
        "spec": {"n": 2, "other": 1, "free": {"any": [1]}}, "junk": 1});
    schema.shape(&mut object);
    let expected = json!({"kind": "X", "metadata": {"name": "a", "labels": {"b": "c"}},
        "spec": {"class": "seed", "n": 2, "free": {"any": [1]}}});
    assert_eq!(object, expected);
    assert_eq!(schema.check(&object), None);
    assert_eq!(schema.check(&json!({})).unwrap().0, "spec");
    assert_eq!(schema.check(&json!({"spec": {"n": "2"}})).unwrap().0, "spec.n");
    assert_eq!(schema.check(&json!({"spec": {"n": 0}})).unwrap().0, "spec.n");
}
