//! The patches of Kubernetes: JSON merge (RFC 7396), JSON patch (RFC 6902), strategic merge.

use serde_json::{Map, Value, json};

use super::failure::Failure;

/// Applies a JSON merge patch.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Applies a JSON patch.
pub fn json_patch(target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Some(operations) = patch.as_array() else {
        return Err(Failure::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value",
        ));
    };
    for operation in operations {
        apply_operation(target, operation).map_err(|why| {
            Failure::new(
                422,
                "Invalid",
                format!("the server rejected our request due to an error in our request: {why}"),
            )
        })?;
    }
    Ok(())
}

fn apply_operation(target: &mut Value, operation: &Value) -> Result<(), String> {
    let field = |name: &str| operation[name].as_str().map(str::to_owned).ok_or(format!("missing {name}"));
    let path = field("path")?;
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match field("op")?.as_str() {
        "add" => add(target, &path, value()),
        "remove" => take(target, &path).map(drop),
        "replace" => {
            *target.pointer_mut(&path).ok_or(format!("missing path: {path}"))? = value();
            Ok(())
        }
        "test" => {
            let same = target.pointer(&path).unwrap_or(&Value::Null) == &value();
            same.then_some(()).ok_or(format!("testing value {path} failed"))
        }
        "move" => {
            let moved = take(target, &field("from")?)?;
            add(target, &path, moved)
        }
        "copy" => {
            let from = field("from")?;
            let copied = target.pointer(&from).cloned().ok_or(format!("missing path: {from}"))?;
            add(target, &path, copied)
        }
        other => Err(format!("unexpected kind: {other}")),
    }
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (parent, key) = path.rsplit_once('/').ok_or(format!("bad path: {path}"))?;
    let key = key.replace("~1", "/").replace("~0", "~");
    Ok((target.pointer_mut(parent).ok_or(format!("doc is missing path: {path}"))?, key))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (parent, key) = parent(target, path)?;
    match parent {
        Value::Object(fields) => drop(fields.insert(key, value)),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = key
                .parse::<usize>()
                .ok()
                .filter(|at| *at <= items.len())
                .ok_or(format!("bad index: {key}"))?;
            items.insert(at, value);
        }
        _ => return Err(format!("doc is missing path: {path}")),
    }
    Ok(())
}

fn take(target: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, key) = parent(target, path)?;
    let missing = format!("unable to remove nonexistent key: {key}");
    match parent {
        Value::Object(fields) => fields.remove(&key).ok_or(missing),
        Value::Array(items) => {
            let at = key.parse::<usize>().ok().filter(|at| *at < items.len()).ok_or(missing)?;
            Ok(items.remove(at))
        }
        _ => Err(missing),
    }
}

/// How a strategic merge treats a list.
#[derive(Clone, Copy)]
enum ListMerge {
    /// Elements are maps with this key.
    By(&'static str),
    /// Elements are plain values of a set.
    Set,
    Replace,
}

/// The merge strategy of the Go types for lists of this name, for the kinds served here.
fn list_merge(field: &str, parent: &str) -> ListMerge {
    match field {
        "conditions" | "addresses" if parent == "status" => ListMerge::By("type"),
        "constraints" if parent == "status" => ListMerge::By("type"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets"
        | "webhooks"
        | "resourceClaims"
        | "advertisedAddresses"
        | "machineImages"
        | "machineTypes"
        | "volumeTypes"
        | "regions"
        | "workers"
        | "admissionPlugins" => ListMerge::By("name"),
        "gardener" if parent == "resources" => ListMerge::By("name"),
        "resources" if parent == "spec" => ListMerge::By("name"),
        "versions" if parent == "kubernetes" => ListMerge::By("version"),
        "tolerations" if parent == "spec" => ListMerge::By("key"),
        "volumeMounts" => ListMerge::By("mountPath"),
        "volumeDevices" => ListMerge::By("devicePath"),
        "hostAliases" => ListMerge::By("ip"),
        "topologySpreadConstraints" => ListMerge::By("topologyKey"),
        "ports" if parent == "containers" || parent == "initContainers" => ListMerge::By("containerPort"),
        "ports" if parent == "spec" => ListMerge::By("port"),
        "ownerReferences" => ListMerge::By("uid"),
        "finalizers" => ListMerge::Set,
        _ => ListMerge::Replace,
    }
}

/// Applies a strategic merge patch.
pub fn strategic(target: &mut Value, patch: &Value) -> Result<(), Failure> {
    strategic_at(target, patch, "").map_err(|why| Failure::new(400, "BadRequest", why))
}

fn strategic_at(target: &mut Value, patch: &Value, parent: &str) -> Result<(), String> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            let mut new = patch.clone();
            new.remove("$patch");
            *target = Value::Object(new);
            return Ok(());
        }
        Some("delete") => {
            *target = json!({});
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(format!("Unknown patch type found: {other}")),
    }
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    if let Some(keep) = patch.get("$retainKeys").and_then(Value::as_array) {
        fields.retain(|key, _| keep.iter().any(|k| k == key.as_str()));
    }
    for (key, value) in patch {
        let before = fields.get(key).and_then(Value::as_array).cloned();
        strategic_field(fields, key, value, parent)?;
        let order = patch.get(&format!("$setElementOrder/{key}")).or(Some(value)).and_then(Value::as_array);
        let by = list_merge(key, parent);
        if let (Some(order), Some(items)) = (order, fields.get_mut(key).and_then(Value::as_array_mut))
            && !matches!(by, ListMerge::Replace)
        {
            *items = ordered(items, order, &before.unwrap_or_default(), by);
        }
    }
    for (key, order) in patch {
        let Some(key) = key.strip_prefix("$setElementOrder/").filter(|key| !patch.contains_key(*key)) else {
            continue;
        };
        if let (Some(order), Some(items)) =
            (order.as_array(), fields.get_mut(key).and_then(Value::as_array_mut))
        {
            *items = ordered(items, order, &items.clone(), list_merge(key, parent));
        }
    }
    Ok(())
}

/// The elements in the order of the patch, with those that the patch does not name in between: where both were there before,
/// they stay in front of what they were in front of; what is new comes as early as possible.
fn ordered(items: &[Value], patch: &[Value], before: &[Value], by: ListMerge) -> Vec<Value> {
    let id = |item: &Value| match by {
        ListMerge::By(key) => item.get(key).cloned().unwrap_or_default(),
        _ => item.clone(),
    };
    let at = |list: &[Value], item: &Value| list.iter().position(|other| id(other) == id(item));
    let (mut named, mut others): (Vec<&Value>, Vec<&Value>) =
        items.iter().partition(|item| at(patch, item).is_some());
    named.sort_by_key(|item| at(patch, item));
    others.sort_by_key(|item| at(before, item));
    let mut all = Vec::new();
    while let (Some(named_one), Some(other)) = (named.first(), others.first()) {
        let is_before = at(before, other).zip(at(before, named_one)).is_some_and(|(a, b)| a < b);
        all.push((*if is_before { others.remove(0) } else { named.remove(0) }).clone());
    }
    all.extend(named.into_iter().chain(others).cloned());
    all
}

fn strategic_field(
    fields: &mut Map<String, Value>,
    key: &str,
    value: &Value,
    parent: &str,
) -> Result<(), String> {
    if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
        let gone = value.as_array().cloned().unwrap_or_default();
        if let Some(items) = fields.get_mut(list).and_then(Value::as_array_mut) {
            items.retain(|item| !gone.contains(item));
        }
        return Ok(());
    }
    if key.starts_with('$') {
        return Ok(());
    }
    match value {
        Value::Null => drop(fields.remove(key)),
        Value::Object(_) => {
            let deletes = value["$patch"] == "delete";
            strategic_at(fields.entry(key).or_insert_with(|| json!({})), value, key)?;
            if deletes {
                fields.remove(key);
            }
        }
        Value::Array(items) => {
            let into = fields.entry(key).or_insert_with(|| json!([]));
            if !into.is_array() {
                *into = json!([]);
            }
            merge_list(into.as_array_mut().unwrap(), items, list_merge(key, parent), key)?;
        }
        _ => drop(fields.insert(key.to_owned(), value.clone())),
    }
    Ok(())
}

fn merge_list(into: &mut Vec<Value>, patch: &[Value], how: ListMerge, field: &str) -> Result<(), String> {
    let key = match how {
        ListMerge::Replace => {
            *into = patch.to_vec();
            return Ok(());
        }
        ListMerge::Set => {
            patch.iter().for_each(|item| {
                if !into.contains(item) {
                    into.push(item.clone());
                }
            });
            return Ok(());
        }
        ListMerge::By(key) => key,
    };
    if patch.iter().any(|item| item["$patch"] == "replace" && item.get(key).is_none()) {
        *into = patch.iter().filter(|item| item.get(key).is_some()).cloned().collect();
        return Ok(());
    }
    for item in patch {
        let Some(id) = item.get(key) else {
            return Err(format!("map: {item} does not contain declared merge key: {key}"));
        };
        let at = into.iter().position(|existing| existing.get(key) == Some(id));
        match (item["$patch"].as_str(), at) {
            (Some("delete"), Some(at)) => drop(into.remove(at)),
            (Some("delete"), None) => {}
            (_, Some(at)) => strategic_at(&mut into[at], item, field)?,
            (_, None) => {
                let mut new = json!({});
                strategic_at(&mut new, item, field)?;
                into.push(new);
            }
        }
    }
    Ok(())
}

#[test]
fn strategic_merge_joins_lists_by_their_keys() {
    let mut seed = json!({"metadata": {"finalizers": ["a"]}, "status": {"conditions": [
        {"type": "A", "status": "True", "reason": "x"}, {"type": "B", "status": "True"}]}});
    let patch = json!({"metadata": {"finalizers": ["b"], "$deleteFromPrimitiveList/finalizers": ["a"]},
        "status": {"conditions": [
            {"type": "A", "status": "False"}, {"type": "B", "$patch": "delete"}, {"type": "C", "status": "Unknown"}]}});
    strategic(&mut seed, &patch).unwrap();
    assert_eq!(seed["metadata"]["finalizers"], json!(["b"]));
    let conditions =
        json!([{"type": "A", "status": "False", "reason": "x"}, {"type": "C", "status": "Unknown"}]);
    assert_eq!(seed["status"]["conditions"], conditions);
    // What is new comes before what the patch does not name.
    strategic(&mut seed, &json!({"status": {"conditions": [{"type": "D"}]}})).unwrap();
    let types = |seed: &Value| {
        let all = seed["status"]["conditions"].as_array().unwrap().iter();
        all.map(|c| c["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>().concat()
    };
    assert_eq!(types(&seed), "DAC");
    let order = json!([{"type": "C"}, {"type": "D"}, {"type": "A"}]);
    strategic(&mut seed, &json!({"status": {"$setElementOrder/conditions": order}})).unwrap();
    assert_eq!(types(&seed), "CDA");
    assert!(strategic(&mut seed, &json!({"status": {"conditions": [{"status": "True"}]}})).is_err());
}

#[test]
fn json_patches_follow_their_operations() {
    let mut object = json!({"a": {"b": [1, 2]}, "c": 3});
    let patch = json!([{"op": "add", "path": "/a/b/1", "value": 9}, {"op": "add", "path": "/a/b/-", "value": 4},
        {"op": "remove", "path": "/c"}, {"op": "test", "path": "/a/b/0", "value": 1},
        {"op": "replace", "path": "/a/b/0", "value": 0}, {"op": "copy", "from": "/a", "path": "/x~1y"}]);
    json_patch(&mut object, &patch).unwrap();
    assert_eq!(object, json!({"a": {"b": [0, 9, 2, 4]}, "x/y": {"b": [0, 9, 2, 4]}}));
    assert_eq!(json_patch(&mut object, &json!([{"op": "remove", "path": "/z"}])).unwrap_err().code, 422);
}
