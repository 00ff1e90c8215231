//! Patches, subresources, generations.

use gardenlet::api::core::{CONFIG_MAP, DEPLOYMENT, EVENT, SECRET};
use gardenlet::api::meta::Resource;
use gardenlet::kube::request::ApiRequest;
use gardenlet::kube::{DeleteParams, List, ListParams, Patch};
use serde_json::{Value, json};

use super::{Named, Outcome, Place, ensure, equal, ok, refused};

pub(super) const CHECKS: &[Named] = &[
    ("a merge patch deletes with null", merge),
    ("a merge patch with a resourceVersion is conditional", conditional),
    ("a strategic patch merges lists by their keys", strategic),
    ("a JSON patch tests", json_patch),
    ("an empty patch leaves no trace", empty),
    ("a change of the spec moves the generation, one of the status does not", generations),
    ("the status is written through its subresource only", status),
    ("scale changes the replicas", scale),
    ("immutable Secrets stay as they are", immutable),
    ("writes of the status are conditional, too", conditional_status),
    ("a patch creates nothing and moves nothing", misdirected),
    ("an event is written once and counted up", events),
];

fn patch(place: &Place<'_>, patch: &Patch) -> Result<Value, gardenlet::kube::Error> {
    place.client.patch(&CONFIG_MAP, &place.key("a"), patch)
}

fn merge(place: &Place<'_>) -> Outcome {
    place.config_map("a", "1")?;
    let body = json!({"data": {"key": null, "other": "2"}, "metadata": {"labels": {"x": "y"}}});
    let patched = ok("patch", patch(place, &Patch::Merge(body)))?;
    equal("data", &patched["data"], &json!({"other": "2"}))?;
    equal("labels", &patched["metadata"]["labels"], &json!({"x": "y"}))
}

fn conditional(place: &Place<'_>) -> Outcome {
    let object = place.config_map("a", "1")?;
    let version = object["metadata"]["resourceVersion"].clone();
    let body =
        |value: &str| Patch::Merge(json!({"metadata": {"resourceVersion": version}, "data": {"key": value}}));
    ok("the newest version", patch(place, &body("2")))?;
    refused("an old version", patch(place, &body("3")), 409, "Conflict").map(drop)
}

pub(super) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "one", "image": "one:1", "env": [{"name": "A", "value": "1"}]},
                {"name": "two", "image": "two:1"}]}}}})
}

fn strategic(place: &Place<'_>) -> Outcome {
    ok("create", place.client.create::<Value>(&DEPLOYMENT, &place.namespace, &deployment("d")))?;
    let body = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "one", "env": [{"name": "B", "value": "2"}]}, {"name": "two", "$patch": "delete"}]}}}});
    let patched: Value =
        ok("patch", place.client.patch(&DEPLOYMENT, &place.key("d"), &Patch::Strategic(body)))?;
    let containers = &patched["spec"]["template"]["spec"]["containers"];
    equal("containers", containers.as_array().map(Vec::len), Some(1))?;
    let mut names: Vec<&str> =
        containers[0]["env"].as_array().into_iter().flatten().filter_map(|e| e["name"].as_str()).collect();
    names.sort_unstable();
    equal("env", names, vec!["A", "B"])?;
    equal("image", containers[0]["image"].as_str(), Some("one:1"))
}

fn json_patch(place: &Place<'_>) -> Outcome {
    place.config_map("a", "1")?;
    let body = |expected: &str| {
        Patch::Json(json!([{"op": "test", "path": "/data/key", "value": expected},
            {"op": "replace", "path": "/data/key", "value": "2"}]))
    };
    let patched = ok("patch", patch(place, &body("1")))?;
    equal("data", patched["data"]["key"].as_str(), Some("2"))?;
    refused("a failing test", patch(place, &body("1")), 422, "Invalid").map(drop)
}

fn empty(place: &Place<'_>) -> Outcome {
    let object = place.config_map("a", "1")?;
    let patched = ok("patch", patch(place, &Patch::Merge(json!({}))))?;
    equal("resourceVersion", &patched["metadata"]["resourceVersion"], &object["metadata"]["resourceVersion"])
}

fn generations(place: &Place<'_>) -> Outcome {
    let created: Value = ok("create", place.client.create(&DEPLOYMENT, &place.namespace, &deployment("d")))?;
    equal("at first", created["metadata"]["generation"].as_i64(), Some(1))?;
    let key = place.key("d");
    let patch = |body: Value| {
        let patched: Value = ok("patch", place.client.patch(&DEPLOYMENT, &key, &Patch::Merge(body)))?;
        Ok::<_, String>(patched["metadata"]["generation"].as_i64())
    };
    equal("metadata", patch(json!({"metadata": {"labels": {"l": "1"}}}))?, Some(1))?;
    equal("spec", patch(json!({"spec": {"minReadySeconds": 1}}))?, Some(2))?;
    let body = Patch::Merge(json!({"status": {"collisionCount": 1}}));
    let patched: Value = ok("patch", place.client.patch_status(&DEPLOYMENT, &key, &body))?;
    equal("status", patched["metadata"]["generation"].as_i64(), Some(2))
}

fn status(place: &Place<'_>) -> Outcome {
    let mut object = deployment("d");
    object["status"] = json!({"collisionCount": 7});
    let created: Value = ok("create", place.client.create(&DEPLOYMENT, &place.namespace, &object))?;
    ensure(created["status"]["collisionCount"].is_null(), "the status was taken at creation")?;
    let key = place.key("d");
    let body = Patch::Merge(json!({"status": {"collisionCount": 7}, "spec": {"minReadySeconds": 9}}));
    let patched: Value = ok("patch", place.client.patch_status(&DEPLOYMENT, &key, &body))?;
    equal("through status", patched["status"]["collisionCount"].as_i64(), Some(7))?;
    ensure(patched["spec"]["minReadySeconds"] != 9, "the spec was changed through status")?;
    let body = Patch::Merge(json!({"status": {"collisionCount": 8}}));
    let patched: Value = ok("patch", place.client.patch(&DEPLOYMENT, &key, &body))?;
    equal("past status", patched["status"]["collisionCount"].as_i64(), Some(7))
}

fn scale(place: &Place<'_>) -> Outcome {
    ok("create", place.client.create::<Value>(&DEPLOYMENT, &place.namespace, &deployment("d")))?;
    let body = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let key = place.key("d");
    let request = ApiRequest::patch(DEPLOYMENT.subresource_path(&key, "scale"), &body);
    let scaled: Value = ok("patch", place.client.fetch(&request))?;
    equal("kind", scaled["kind"].as_str(), Some("Scale"))?;
    let read: Value = ok("get", place.client.get(&DEPLOYMENT, &key))?;
    equal("replicas", read["spec"]["replicas"].as_i64(), Some(3))
}

fn immutable(place: &Place<'_>) -> Outcome {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "immutable": true,
        "stringData": {"a": "b"}});
    ok("create", place.client.create::<Value>(&SECRET, &place.namespace, &object))?;
    let patch = |body: Value| place.client.patch::<Value>(&SECRET, &place.key("s"), &Patch::Merge(body));
    ok("labels", patch(json!({"metadata": {"labels": {"x": "y"}}})))?;
    refused("data", patch(json!({"data": {"a": "Yw=="}})), 422, "Invalid")?;
    refused("immutable", patch(json!({"immutable": false})), 422, "Invalid")?;
    refused("the type", patch(json!({"type": "other"})), 422, "Invalid")?;
    let nothing = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "empty"}, "immutable": true, "data": {}});
    let created: Value = ok("create nothing", place.client.create(&SECRET, &place.namespace, &nothing))?;
    equal("an empty map", created.get("data"), None)?;
    let body = Patch::Merge(json!({"data": {}}));
    let result = place.client.patch::<Value>(&SECRET, &place.key("empty"), &body);
    refused("an empty map for none", result, 422, "Invalid").map(drop)
}

fn conditional_status(place: &Place<'_>) -> Outcome {
    let created: Value = ok("create", place.client.create(&DEPLOYMENT, &place.namespace, &deployment("d")))?;
    let label = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    ok("label", place.client.patch::<Value>(&DEPLOYMENT, &place.key("d"), &label))?;
    let version = &created["metadata"]["resourceVersion"];
    let body = json!({"metadata": {"resourceVersion": version}, "status": {"collisionCount": 1}});
    let result = place.client.patch_status::<Value>(&DEPLOYMENT, &place.key("d"), &Patch::Merge(body));
    refused("a patch", result, 409, "Conflict")?;
    let result = place.client.replace_status::<Value>(&DEPLOYMENT, &place.key("d"), &created);
    refused("a PUT", result, 409, "Conflict").map(drop)
}

fn misdirected(place: &Place<'_>) -> Outcome {
    let empty = Patch::Merge(json!({"data": {"a": "b"}}));
    refused("an absent object", patch(place, &empty), 404, "NotFound")?;
    let object = place.config_map("a", "1")?;
    let other = json!({"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}});
    refused("another uid", patch(place, &Patch::Merge(other)), 422, "Invalid")?;
    refused(
        "another name",
        patch(place, &Patch::Merge(json!({"metadata": {"name": "b"}}))),
        400,
        "BadRequest",
    )?;
    let null = patch(place, &Patch::Merge(json!({"metadata": {"creationTimestamp": null}})));
    let kept = ok("a null", null)?;
    equal("created", &kept["metadata"]["creationTimestamp"], &object["metadata"]["creationTimestamp"])
}

fn events(place: &Place<'_>) -> Outcome {
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "eventTime": "2025-01-02T03:04:05.000006Z", "reportingController": "seed-controller",
        "reportingInstance": "seed-controller-host", "action": "Reconcile", "reason": "Reconciled", "type": "Normal",
        "note": "A note.", "regarding": {"kind": "ConfigMap", "namespace": place.namespace, "name": "a"}});
    ok("create", place.client.create::<Value>(&EVENT, &place.namespace, &event))?;
    let series = json!({"series": {"count": 2, "lastObservedTime": "2025-01-02T03:05:05.000006Z"}});
    let patched: Value = ok("patch", place.client.patch(&EVENT, &place.key("e"), &Patch::Merge(series)))?;
    equal("count", patched["series"]["count"].as_i64(), Some(2))?;
    // The core group has the same events under other names of fields.
    let core = Resource::new("", "v1", "Event", "events", true);
    let selected = ListParams {
        field_selector: "involvedObject.name=a,type=Normal".to_owned(),
        ..ListParams::default()
    };
    let list: List<Value> = ok("list", place.client.list(&core, &place.namespace, &selected))?;
    let [found] = &list.items[..] else { return Err(format!("{} events are selected", list.items.len())) };
    equal("message", found["message"].as_str(), Some("A note."))?;
    equal("component", found["reportingComponent"].as_str(), Some("seed-controller"))?;
    equal("regarding", &found["regarding"], &Value::Null)?;
    let message = Patch::Merge(json!({"message": "Another note."}));
    let patched: Value = ok("patch", place.client.patch(&core, &place.key("e"), &message))?;
    equal("version", patched["apiVersion"].as_str(), Some("v1"))?;
    let found: Value = ok("get", place.client.get(&EVENT, &place.key("e")))?;
    equal("note", found["note"].as_str(), Some("Another note."))?;
    ok("delete", place.client.delete(&core, &place.key("e"), &DeleteParams::default()))?;
    refused("get", place.client.get::<Value>(&EVENT, &place.key("e")), 404, "NotFound").map(drop)
}
