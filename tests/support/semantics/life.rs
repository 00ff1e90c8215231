//! The end of objects: preconditions, finalizers, owners, namespaces.

use gardenlet::api::core::{CONFIG_MAP, NAMESPACE};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key};
use gardenlet::kube::{DeleteParams, ListParams, Patch, Propagation};
use serde_json::{Value, json};

use super::{Named, Outcome, Place, ensure, equal, ok, refused, until};

pub(super) const CHECKS: &[Named] = &[
    ("deletion has preconditions", preconditions),
    ("finalizers hold an object", finalizers),
    ("dependents go with their owner", owners),
    ("orphans stay", orphans),
    ("the foreground waits for dependents", foreground),
    ("a collection is deleted by its labels", collection),
    ("a namespace is emptied", namespace),
];

fn delete(place: &Place<'_>, name: &str, params: &DeleteParams) -> Result<(), gardenlet::kube::Error> {
    place.client.delete(&CONFIG_MAP, &place.key(name), params)
}

fn exists(place: &Place<'_>, name: &str) -> Result<bool, String> {
    ok("find", place.client.find::<Value>(&CONFIG_MAP, &place.key(name))).map(|o| o.is_some())
}

fn preconditions(place: &Place<'_>) -> Outcome {
    let object = place.config_map("a", "1")?;
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let other = DeleteParams {
        uid: Some("00000000-0000-4000-8000-000000000000".to_owned()),
        ..DeleteParams::default()
    };
    refused("another uid", delete(place, "a", &other), 409, "Conflict")?;
    let old = DeleteParams { resource_version: Some("1".to_owned()), ..DeleteParams::default() };
    refused("an old version", delete(place, "a", &old), 409, "Conflict")?;
    ok("the right uid", delete(place, "a", &DeleteParams { uid: Some(uid), ..DeleteParams::default() }))
}

fn finalizers(place: &Place<'_>) -> Outcome {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a",
        "finalizers": ["example.org/hold", "example.org/also"]}});
    ok("create", place.client.create::<Value>(&CONFIG_MAP, &place.namespace, &object))?;
    ok("delete", delete(place, "a", &DeleteParams::default()))?;
    ok("delete again", delete(place, "a", &DeleteParams::default()))?;
    let held: Value = ok("get", place.client.get(&CONFIG_MAP, &place.key("a")))?;
    ensure(held["metadata"]["deletionTimestamp"].is_string(), "no deletionTimestamp")?;
    equal("grace period", held["metadata"]["deletionGracePeriodSeconds"].as_i64(), Some(0))?;
    let patch = |finalizers: Value| {
        let body = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        place.client.patch::<Value>(&CONFIG_MAP, &place.key("a"), &body)
    };
    refused("one more", patch(json!(["example.org/hold", "example.org/new"])), 422, "Invalid")?;
    ok("one less", patch(json!(["example.org/hold"])))?;
    ensure(exists(place, "a")?, "gone too early")?;
    ok("none", patch(json!(null)))?;
    ensure(!exists(place, "a")?, "still there")
}

fn dependent(place: &Place<'_>, name: &str, owner: &Value) -> Outcome {
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [reference]}});
    ok("create", place.client.create::<Value>(&CONFIG_MAP, &place.namespace, &object)).map(drop)
}

fn with(propagation: Propagation) -> DeleteParams {
    DeleteParams { propagation: Some(propagation), ..DeleteParams::default() }
}

fn owners(place: &Place<'_>) -> Outcome {
    let owner = place.config_map("owner", "1")?;
    dependent(place, "dependent", &owner)?;
    ok("delete", delete(place, "owner", &with(Propagation::Background)))?;
    ensure(!exists(place, "owner")?, "the owner waits")?;
    until("the dependent to go", || exists(place, "dependent").map(|e| !e))
}

fn orphans(place: &Place<'_>) -> Outcome {
    let owner = place.config_map("owner", "1")?;
    dependent(place, "dependent", &owner)?;
    ok("delete", delete(place, "owner", &with(Propagation::Orphan)))?;
    until("the owner to go", || exists(place, "owner").map(|e| !e))?;
    let left: Value = ok("get", place.client.get(&CONFIG_MAP, &place.key("dependent")))?;
    ensure(left["metadata"].get("ownerReferences").is_none(), "it still names its owner")
}

fn foreground(place: &Place<'_>) -> Outcome {
    let owner = place.config_map("owner", "1")?;
    dependent(place, "dependent", &owner)?;
    let hold = |finalizers: Value| {
        let body = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        ok("patch", place.client.patch::<Value>(&CONFIG_MAP, &place.key("dependent"), &body))
    };
    hold(json!(["example.org/hold"]))?;
    ok("delete", delete(place, "owner", &with(Propagation::Foreground)))?;
    let waiting: Value = ok("get", place.client.get(&CONFIG_MAP, &place.key("owner")))?;
    equal("finalizers", &waiting["metadata"]["finalizers"], &json!(["foregroundDeletion"]))?;
    until("the dependent to be deleted", || {
        let left: Value = ok("get", place.client.get(&CONFIG_MAP, &place.key("dependent")))?;
        Ok(left["metadata"]["deletionTimestamp"].is_string())
    })?;
    ensure(exists(place, "owner")?, "the owner did not wait")?;
    hold(json!(null))?;
    until("the owner to go", || exists(place, "owner").map(|e| !e))
}

fn collection(place: &Place<'_>) -> Outcome {
    for (name, label) in [("a", "1"), ("b", "1"), ("c", "2")] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"x": label}}});
        ok("create", place.client.create::<Value>(&CONFIG_MAP, &place.namespace, &object))?;
    }
    let list = ListParams { label_selector: "x=1".to_owned(), ..ListParams::default() };
    let result =
        place.client.delete_collection(&CONFIG_MAP, &place.namespace, &list, &DeleteParams::default());
    ok("delete", result)?;
    let left = [exists(place, "a")?, exists(place, "b")?, exists(place, "c")?];
    equal("what is left", left, [false, false, true])
}

fn namespace(place: &Place<'_>) -> Outcome {
    let name = format!("{}-more", place.namespace);
    let key = Key::cluster(&name);
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let created: Value = ok("create", place.client.create(&NAMESPACE, CLUSTER_SCOPED, &object))?;
    let label = &created["metadata"]["labels"]["kubernetes.io/metadata.name"];
    equal("label", label.as_str(), Some(name.as_str()))?;
    equal("finalizers", &created["spec"]["finalizers"], &json!(["kubernetes"]))?;
    let inner = Place { client: place.client, namespace: name.clone() };
    until("the root CA", || exists(&inner, "kube-root-ca.crt"))?;
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["example.org/hold"]}});
    ok("create", place.client.create::<Value>(&CONFIG_MAP, &name, &held))?;
    ok("delete", place.client.delete(&NAMESPACE, &key, &DeleteParams::default()))?;
    let ending: Value = ok("get", place.client.get(&NAMESPACE, &key))?;
    equal("phase", ending["status"]["phase"].as_str(), Some("Terminating"))?;
    let late = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    refused("something new", place.client.create::<Value>(&CONFIG_MAP, &name, &late), 403, "Forbidden")?;
    // A second deletion, while a finalizer keeps it, does no harm.
    ok("delete again", place.client.delete(&NAMESPACE, &key, &DeleteParams::default()))?;
    until("the content to be deleted", || {
        let left: Value = ok("get", place.client.get(&CONFIG_MAP, &inner.key("held")))?;
        Ok(left["metadata"]["deletionTimestamp"].is_string())
    })?;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    ok("patch", place.client.patch::<Value>(&CONFIG_MAP, &inner.key("held"), &free))?;
    until("the namespace to go", || {
        ok("find", place.client.find::<Value>(&NAMESPACE, &key)).map(|n| n.is_none())
    })
}
