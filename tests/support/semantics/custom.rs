//! Custom resources.

use gardenlet::api::crd::CUSTOM_RESOURCE_DEFINITION;
use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Resource};
use gardenlet::kube::{DeleteParams, Discovery, Patch};
use serde_json::{Value, json};

use super::{Named, Outcome, Place, ensure, equal, ok, refused, until};

pub(super) const CHECKS: &[Named] = &[
    ("a definition makes its kind served", served),
    ("instances are pruned, completed and checked", shaped),
    ("instances have a generation and a status of their own", generations),
    ("instances end with their definition", removed),
];

/// A kind of its own per check, as definitions are not bound to a namespace.
pub(super) fn define(place: &Place<'_>) -> Result<Resource, String> {
    let group = format!("{}.example.org", place.namespace);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "required": ["size"], "properties": {
                    "size": {"type": "integer"}, "class": {"type": "string", "default": "seed"},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}}}}]}});
    let created: Value =
        ok("create", place.client.create(&CUSTOM_RESOURCE_DEFINITION, CLUSTER_SCOPED, &definition))?;
    equal("singular", created["spec"]["names"]["singular"].as_str(), Some("thing"))?;
    let name = format!("things.{group}");
    until("the definition to be established", || {
        let found: Value = ok("get", place.client.get(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(&name)))?;
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True"))
    })?;
    let resource = Resource {
        group: group.into(),
        version: "v1".into(),
        kind: "Thing".into(),
        plural: "things".into(),
        namespaced: true,
    };
    until("the kind to be served", || {
        let list =
            place.client.list::<Value>(&resource, &place.namespace, &gardenlet::kube::ListParams::default());
        Ok(list.is_ok())
    })?;
    Ok(resource)
}

pub(super) fn thing(resource: &Resource, spec: &Value) -> Value {
    json!({"apiVersion": resource.api_version(), "kind": "Thing", "metadata": {"name": "t"}, "spec": spec})
}

fn served(place: &Place<'_>) -> Outcome {
    let resource = define(place)?;
    let discovery = Discovery::new(place.client.clone());
    until("discovery", || {
        let found = discovery.resource_for(&resource.api_version(), "Thing").map_err(|e| e.to_string())?;
        Ok(found.is_some_and(|r| r.plural == "things" && r.namespaced))
    })?;
    let object = thing(&resource, &json!({"size": 1}));
    ok("create", place.client.create::<Value>(&resource, &place.namespace, &object))?;
    let patch = Patch::Strategic(json!({"spec": {"size": 2}}));
    let result = place.client.patch::<Value>(&resource, &place.key("t"), &patch);
    refused("a strategic patch", result, 415, "UnsupportedMediaType").map(drop)
}

fn shaped(place: &Place<'_>) -> Outcome {
    let resource = define(place)?;
    let object = thing(&resource, &json!({"size": 1, "junk": true, "free": {"a": [1]}}));
    let created: Value = ok("create", place.client.create(&resource, &place.namespace, &object))?;
    equal("spec", &created["spec"], &json!({"size": 1, "class": "seed", "free": {"a": [1]}}))?;
    for spec in [json!({}), json!({"size": "1"})] {
        let mut wrong = thing(&resource, &spec);
        wrong["metadata"]["name"] = "u".into();
        refused(
            "a wrong spec",
            place.client.create::<Value>(&resource, &place.namespace, &wrong),
            422,
            "Invalid",
        )?;
    }
    let mut unversioned = created;
    unversioned["metadata"].as_object_mut().ok_or("no metadata")?.remove("resourceVersion");
    let put = place.client.replace_object::<Value>(&resource, &place.key("t"), &unversioned);
    refused("a PUT without resourceVersion", put, 422, "Invalid").map(drop)
}

fn generations(place: &Place<'_>) -> Outcome {
    let resource = define(place)?;
    let mut object = thing(&resource, &json!({"size": 1}));
    object["status"] = json!({"phase": "x"});
    let created: Value = ok("create", place.client.create(&resource, &place.namespace, &object))?;
    equal("at first", created["metadata"]["generation"].as_i64(), Some(1))?;
    ensure(created.get("status").is_none(), "the status was taken at creation")?;
    let key = place.key("t");
    let body = Patch::Merge(json!({"status": {"phase": "y"}, "metadata": {"labels": {"a": "b"}}}));
    let patched: Value = ok("patch", place.client.patch_status(&resource, &key, &body))?;
    equal("after the status", patched["metadata"]["generation"].as_i64(), Some(1))?;
    ensure(patched["metadata"].get("labels").is_none(), "labels came through status")?;
    let body = Patch::Merge(json!({"spec": {"size": 2}, "status": {"phase": "z"}}));
    let patched: Value = ok("patch", place.client.patch(&resource, &key, &body))?;
    equal("after the spec", patched["metadata"]["generation"].as_i64(), Some(2))?;
    equal("status", patched["status"]["phase"].as_str(), Some("y"))
}

fn removed(place: &Place<'_>) -> Outcome {
    let resource = define(place)?;
    let object = thing(&resource, &json!({"size": 1}));
    ok("create", place.client.create::<Value>(&resource, &place.namespace, &object))?;
    let key = Key::cluster(format!("things.{}", resource.group));
    ok("delete", place.client.delete(&CUSTOM_RESOURCE_DEFINITION, &key, &DeleteParams::default()))?;
    until("the definition to go", || {
        ok("find", place.client.find::<Value>(&CUSTOM_RESOURCE_DEFINITION, &key)).map(|d| d.is_none())
    })?;
    until("the kind to go", || {
        let found = place.client.get::<Value>(&resource, &place.key("t"));
        Ok(found.err().and_then(|e| e.status_code()) == Some(404))
    })
}
