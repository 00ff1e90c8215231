//! Objects: what the server adds, how they are listed and selected.

use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::{CONFIG_MAP, SECRET};
use gardenlet::api::meta::Metadata;
use gardenlet::kube::{List, ListParams, Method};
use serde_json::{Value, json};

use super::{Named, Outcome, Place, ensure, equal, ok, refused};

pub(super) const CHECKS: &[Named] = &[
    ("the server completes metadata", metadata),
    ("generateName ends in five characters", generate_name),
    ("stringData becomes data", string_data),
    ("lists come in pages", pages),
    ("labels select", labels),
    ("fields select", fields),
    ("an item of a list does not say its kind", list_items),
    ("metadata alone", metadata_only),
    ("PUT needs the newest resourceVersion", put),
    ("a PUT that changes nothing leaves no trace", unchanged),
    ("a Lease needs a resourceVersion in PUT", lease),
    ("a dry run leaves no trace", dry_run),
];

fn metadata(place: &Place<'_>) -> Outcome {
    let created = place.config_map("a", "1")?;
    let metadata = &created["metadata"];
    ensure(metadata["uid"].as_str().is_some_and(|u| u.len() == 36), "no uid")?;
    ensure(metadata["creationTimestamp"].as_str().is_some_and(|t| t.ends_with('Z')), "no creationTimestamp")?;
    ensure(
        metadata["resourceVersion"].as_str().is_some_and(|v| v.parse::<u64>().is_ok()),
        "no resourceVersion",
    )?;
    ensure(metadata.get("generation").is_none(), "ConfigMaps have no generation")?;
    equal("kind", created["kind"].as_str(), Some("ConfigMap"))?;
    let read: Value = ok("get", place.client.get(&CONFIG_MAP, &place.key("a")))?;
    equal("namespace", read["metadata"]["namespace"].as_str(), Some(place.namespace.as_str()))
}

fn generate_name(place: &Place<'_>) -> Outcome {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}});
    let created: Metadata = ok("create", place.client.create(&CONFIG_MAP, &place.namespace, &object))?;
    let name = created.metadata.name;
    ensure(name.len() == 7 && name.starts_with("x-"), format!("name {name:?}"))
}

fn string_data(place: &Place<'_>) -> Outcome {
    let object =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}});
    let created: Value = ok("create", place.client.create(&SECRET, &place.namespace, &object))?;
    equal("data", &created["data"], &json!({"a": "Yg=="}))?;
    equal("type", created["type"].as_str(), Some("Opaque"))?;
    ensure(created.get("stringData").is_none(), "stringData is kept")
}

fn pages(place: &Place<'_>) -> Outcome {
    for n in 0..5 {
        place.config_map(&format!("p-{n}"), "x")?;
    }
    let mut params = ListParams { limit: 2, ..ListParams::default() };
    let (mut names, mut sizes) = (Vec::new(), Vec::new());
    loop {
        let page: List<Metadata> = ok("list", place.client.list(&CONFIG_MAP, &place.namespace, &params))?;
        sizes.push(page.items.len());
        names.extend(page.items.into_iter().map(|i| i.metadata.name));
        if page.metadata.continue_token.is_empty() {
            break;
        }
        params.continue_token = page.metadata.continue_token;
        // Later objects are not in a list that has begun.
        if sizes.len() == 1 {
            place.config_map("p-9", "x")?;
        }
    }
    names.retain(|n| n.starts_with("p-"));
    equal("names", names, (0..5).map(|n| format!("p-{n}")).collect())?;
    ensure(sizes.iter().all(|s| *s <= 2), format!("sizes {sizes:?}"))
}

fn labels(place: &Place<'_>) -> Outcome {
    for (name, labels) in [("a", json!({"x": "1"})), ("b", json!({"x": "2", "y/z": ""})), ("c", json!({}))] {
        let object =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}});
        ok("create", place.client.create::<Value>(&SECRET, &place.namespace, &object))?;
    }
    let table = [
        ("x=1", "a"),
        ("x==2", "b"),
        ("x!=1", "b c"),
        ("x in (1,2)", "a b"),
        ("x notin (2)", "a c"),
        ("x", "a b"),
        ("!x", "c"),
        ("y/z=", "b"),
        ("x=1,y/z", ""),
    ];
    for (selector, expected) in table {
        let params = ListParams { label_selector: selector.to_owned(), ..ListParams::default() };
        let list: List<Metadata> = ok(selector, place.client.list(&SECRET, &place.namespace, &params))?;
        let names: Vec<&str> = list.items.iter().map(|i| i.metadata.name.as_str()).collect();
        equal(selector, names.join(" ").as_str(), expected)?;
    }
    Ok(())
}

fn fields(place: &Place<'_>) -> Outcome {
    place.config_map("a", "1")?;
    place.config_map("b", "1")?;
    for (selector, expected) in [("metadata.name=b", 1), ("metadata.name!=b", 2), ("metadata.name=z", 0)] {
        let params = ListParams { field_selector: selector.to_owned(), ..ListParams::default() };
        let list: List<Metadata> = ok(selector, place.client.list(&CONFIG_MAP, &place.namespace, &params))?;
        let found = list.items.iter().filter(|i| i.metadata.name != "kube-root-ca.crt").count();
        let expected = if selector.contains('!') { expected - 1 } else { expected };
        equal(selector, found, expected)?;
    }
    let params = ListParams { field_selector: "data.key=1".to_owned(), ..ListParams::default() };
    let result = place.client.list::<Value>(&CONFIG_MAP, &place.namespace, &params);
    refused("an unknown field", result, 400, "BadRequest").map(drop)
}

fn list_items(place: &Place<'_>) -> Outcome {
    place.config_map("a", "1")?;
    let path = CONFIG_MAP.collection_path(&place.namespace);
    let response = ok("list", place.client.raw(Method::Get, &path, None, ""))?;
    let list: Value = serde_json::from_slice(&response.body).map_err(|e| e.to_string())?;
    equal("kind", list["kind"].as_str(), Some("ConfigMapList"))?;
    ensure(list["items"][0].get("kind").is_none(), "an item says its kind")
}

fn metadata_only(place: &Place<'_>) -> Outcome {
    place.config_map("a", "1")?;
    let params = ListParams { metadata_only: true, ..ListParams::default() };
    let list: List<Value> = ok("list", place.client.list(&CONFIG_MAP, &place.namespace, &params))?;
    let item = list.items.iter().find(|i| i["metadata"]["name"] == "a").ok_or("the object is missing")?;
    equal("kind", item["kind"].as_str(), Some("PartialObjectMetadata"))?;
    ensure(item.get("data").is_none(), "data came along")
}

fn put(place: &Place<'_>) -> Outcome {
    let mut object = place.config_map("a", "1")?;
    object["data"]["key"] = "2".into();
    let put = |object: &Value| place.client.replace_object::<Value>(&CONFIG_MAP, &place.key("a"), object);
    let changed = ok("put", put(&object))?;
    ensure(
        changed["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"],
        "same resourceVersion",
    )?;
    object["data"]["key"] = "3".into();
    refused("an old version", put(&object), 409, "Conflict")?;
    object["metadata"].as_object_mut().ok_or("no metadata")?.remove("resourceVersion");
    ok("an unconditional put", put(&object))?;
    object["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into();
    refused("a wrong uid", put(&object), 409, "Conflict")?;
    let absent = place.client.replace_object::<Value>(
        &CONFIG_MAP,
        &place.key("z"),
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "z"}}),
    );
    refused("an absent object", absent, 404, "NotFound").map(drop)
}

fn unchanged(place: &Place<'_>) -> Outcome {
    let object = place.config_map("a", "1")?;
    let again: Value = ok("put", place.client.replace_object(&CONFIG_MAP, &place.key("a"), &object))?;
    equal("resourceVersion", &again["metadata"]["resourceVersion"], &object["metadata"]["resourceVersion"])
}

fn lease(place: &Place<'_>) -> Outcome {
    let mut lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 2, "renewTime": "2025-01-02T03:04:05.678901Z"}});
    let created: Value = ok("create", place.client.create(&LEASE, &place.namespace, &lease))?;
    equal("renewTime", created["spec"]["renewTime"].as_str(), Some("2025-01-02T03:04:05.678901Z"))?;
    lease["spec"]["holderIdentity"] = "y".into();
    let put = place.client.replace_object::<Value>(&LEASE, &place.key("l"), &lease);
    refused("without resourceVersion", put, 422, "Invalid").map(drop)
}

fn dry_run(place: &Place<'_>) -> Outcome {
    let path = format!("/api/v1/namespaces/{}/configmaps", place.namespace);
    let send = |method, rest: &str, body: &Value, content_type: &str| {
        let path = format!("{path}{rest}?dryRun=All");
        let answer =
            ok(&path, place.client.raw(method, &path, Some(body.to_string().as_bytes()), content_type))?;
        ensure(answer.is_success(), format!("{path}: status {}", answer.status))?;
        serde_json::from_slice::<Value>(&answer.body).map_err(|error| error.to_string())
    };
    let get = |name: &str| place.client.get::<Value>(&CONFIG_MAP, &place.key(name));
    let object = json!({"metadata": {"name": "a"}, "data": {"key": "1"}});
    let created = send(Method::Post, "", &object, "application/json")?;
    ensure(created["metadata"]["uid"].is_string(), "an object that was only tried has no uid")?;
    refused("get", get("a"), 404, "NotFound")?;
    let before = place.config_map("b", "1")?;
    let patch = json!({"data": {"key": "2"}});
    let patched = send(Method::Patch, "/b", &patch, "application/merge-patch+json")?;
    equal("patched", patched["data"]["key"].as_str(), Some("2"))?;
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]});
    send(Method::Delete, "/b", &options, "application/json")?;
    equal("after all", ok("get", get("b"))?, before)
}
