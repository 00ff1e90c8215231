//! Refusals: codes and reasons.

use gardenlet::api::core::{CONFIG_MAP, DEPLOYMENT, POD, SERVICE_ACCOUNT};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Resource};
use gardenlet::kube::{DeleteParams, Method, Patch, WatchParams};
use serde_json::{Value, json};

use super::patches::deployment;
use super::{Named, Outcome, Place, ensure, equal, ok, refused, until};

pub(super) const CHECKS: &[Named] = &[
    ("absent and taken names", names),
    ("a namespace that is missing", missing_namespace),
    ("names, labels and bodies that are wrong", wrong_objects),
    ("a workload whose selector does not fit", selector),
    ("another value for a PriorityClass", priority),
    ("methods and media types that are not served", methods),
    ("kinds and subresources that do not exist", unknown),
    ("a resourceVersion of the future", future),
    ("tokens of accounts", tokens),
    ("evictions and budgets", evictions),
];

/// A budget whose pods are too few refuses, two budgets are an error, and a pod without one is deleted.
fn evictions(place: &Place<'_>) -> Outcome {
    let budgets = Resource::new("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true);
    let mut uids = Vec::new();
    for name in ["none", "one", "two"] {
        let containers = json!([{"name": "c", "image": "registry.invalid/i"}]);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"schedulerName": "nobody", "automountServiceAccountToken": false, "containers": containers}});
        // A server with controllers needs a moment to make the account of a new namespace.
        let mut uid = Value::Null;
        until("a pod", || {
            let made = place.client.create::<Value>(&POD, &place.namespace, &pod);
            uid = made.map(|made| made["metadata"]["uid"].clone()).unwrap_or_default();
            Ok(uid.is_string())
        })?;
        uids.push(uid);
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let patch = Patch::Merge(json!({"status": ready}));
        ok("status of a pod", place.client.patch_status_blindly(&POD, &place.key(name), &patch))?;
    }
    for (name, app) in [("a", "one"), ("b", "two"), ("c", "two")] {
        let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": app}}});
        let object = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec});
        let made: Result<Value, _> = place.client.create(&budgets, &place.namespace, &object);
        ok("create a budget", made)?;
        // A controller counts the same, where there is one.
        let status = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1});
        let patch = Patch::Merge(json!({"status": status}));
        let counted = place.client.patch_status_blindly(&budgets, &place.key(name), &patch);
        ok("status of a budget", counted)?;
    }
    let evict = |name: &str, uid: &Value| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": place.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}}});
        place.client.create_sub::<Value>(&POD, &place.key(name), "eviction", &eviction)
    };
    let message = refused("evict one", evict("one", &uids[1]), 429, "TooManyRequests")?;
    let held = "Cannot evict pod as it would violate the pod's disruption budget.";
    equal("message", message.as_str(), held)?;
    let message = refused("evict two", evict("two", &uids[2]), 500, "")?;
    ensure(message.starts_with("This pod has more than one PodDisruptionBudget"), message)?;
    refused("evict another", evict("none", &json!("other")), 409, "Conflict")?;
    let begun = ok("evict", evict("none", &uids[0]))?;
    equal("status", begun["status"].as_str().unwrap_or_default(), "Success")?;
    refused("evict again", evict("none", &uids[0]), 404, "NotFound").map(drop)
}

fn names(place: &Place<'_>) -> Outcome {
    let missing = place.client.get::<Value>(&CONFIG_MAP, &place.key("z"));
    equal("message", refused("get", missing, 404, "NotFound")?.as_str(), "configmaps \"z\" not found")?;
    place.config_map("a", "1")?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let taken = place.client.create::<Value>(&CONFIG_MAP, &place.namespace, &object);
    equal(
        "message",
        refused("create", taken, 409, "AlreadyExists")?.as_str(),
        "configmaps \"a\" already exists",
    )?;
    let gone = place.client.delete(&CONFIG_MAP, &place.key("z"), &DeleteParams::default());
    refused("delete", gone, 404, "NotFound").map(drop)
}

fn priority(place: &Place<'_>) -> Outcome {
    let classes = Resource::new("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false);
    // Kinds without a namespace share their names with other checks.
    let name = format!("{}-high", place.namespace);
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 5});
    let made: Value = ok("create", place.client.create(&classes, CLUSTER_SCOPED, &class))?;
    equal("preemptionPolicy", made["preemptionPolicy"].as_str().unwrap_or_default(), "PreemptLowerPriority")?;
    let (key, other) = (Key::cluster(&name), Patch::Merge(json!({"value": 6})));
    let changed = place.client.patch::<Value>(&classes, &key, &other);
    let message = refused("change", changed, 422, "Invalid")?;
    ok("delete", place.client.delete(&classes, &key, &DeleteParams::default()))?;
    ensure(message.contains("value: Forbidden: may not be changed in an update."), message)
}

fn missing_namespace(place: &Place<'_>) -> Outcome {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let result = place.client.create::<Value>(&CONFIG_MAP, "no-such-namespace", &object);
    let message = refused("create", result, 404, "NotFound")?;
    equal("message", message.as_str(), "namespaces \"no-such-namespace\" not found")
}

fn wrong_objects(place: &Place<'_>) -> Outcome {
    let create = |metadata: Value| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        place.client.create::<Value>(&CONFIG_MAP, &place.namespace, &object)
    };
    refused("a name", create(json!({"name": "A_b"})), 422, "Invalid")?;
    refused("no name", create(json!({})), 422, "Invalid")?;
    refused("a label", create(json!({"name": "a", "labels": {"x": "not a label"}})), 422, "Invalid")?;
    refused("another namespace", create(json!({"name": "a", "namespace": "default"})), 400, "BadRequest")?;
    refused("a resourceVersion", create(json!({"name": "a", "resourceVersion": "1"})), 500, "")?;
    let wrong = json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let result = place.client.create::<Value>(&CONFIG_MAP, &place.namespace, &wrong);
    refused("another version", result, 400, "BadRequest")?;
    let path = CONFIG_MAP.collection_path(&place.namespace);
    let response = ok("no JSON", place.client.raw(Method::Post, &path, Some(b"{"), "application/json"))?;
    equal("no JSON", response.status, 400)
}

fn selector(place: &Place<'_>) -> Outcome {
    let mut object = deployment("d");
    object["spec"]["selector"]["matchLabels"] = json!({"a": "c"});
    let create = |object: &Value| place.client.create::<Value>(&DEPLOYMENT, &place.namespace, object);
    refused("another label", create(&object), 422, "Invalid")?;
    ok("create", create(&deployment("d")))?;
    let labels = json!({"a": "c"});
    let change =
        json!({"spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}});
    let result = place.client.patch::<Value>(&DEPLOYMENT, &place.key("d"), &Patch::Merge(change));
    refused("a change", result, 422, "Invalid").map(drop)
}

fn methods(place: &Place<'_>) -> Outcome {
    place.config_map("a", "1")?;
    let raw = |method, path: &str, media_type: &str| {
        ok(path, place.client.raw(method, path, Some(b"{}"), media_type)).map(|r| r.status)
    };
    let one = CONFIG_MAP.object_path(&place.key("a"));
    equal("POST to an object", raw(Method::Post, &one, "application/json")?, 405)?;
    equal("POST to all namespaces", raw(Method::Post, "/api/v1/configmaps", "application/json")?, 405)?;
    equal("a patch without a kind", raw(Method::Patch, &one, "application/json")?, 415)?;
    equal(
        "a body of another type",
        raw(Method::Post, &CONFIG_MAP.collection_path(&place.namespace), "text/plain")?,
        415,
    )
}

fn unknown(place: &Place<'_>) -> Outcome {
    const NOTHING: Resource = Resource::new("nothing.example.org", "v1", "Nothing", "nothings", true);
    const NEITHER: Resource = Resource::new("", "v1", "Neither", "neithers", true);
    for resource in [&NOTHING, &NEITHER] {
        let result = place.client.get::<Value>(resource, &place.key("a"));
        let code = result.err().and_then(|e| e.status_code());
        equal(&resource.plural, code, Some(404))?;
    }
    place.config_map("a", "1")?;
    let path = CONFIG_MAP.subresource_path(&place.key("a"), "status");
    let response = ok("status", place.client.raw(Method::Get, &path, None, ""))?;
    equal("a subresource", response.status, 404)
}

fn future(place: &Place<'_>) -> Outcome {
    let params =
        gardenlet::kube::ListParams { resource_version: "999999999".to_owned(), ..Default::default() };
    let result = place.client.list::<Value>(&CONFIG_MAP, &place.namespace, &params);
    refused("list", result, 504, "Timeout")?;
    let params = WatchParams { resource_version: "x".to_owned(), ..WatchParams::default() };
    let result = place.client.watch::<Value>(&CONFIG_MAP, &place.namespace, &params);
    ensure(result.is_err(), "a watch from no number was served")
}

fn tokens(place: &Place<'_>) -> Outcome {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    ok("create", place.client.create::<Value>(&SERVICE_ACCOUNT, &place.namespace, &account))?;
    let request = |seconds: i64| {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds}});
        place.client.create_sub::<Value>(&SERVICE_ACCOUNT, &place.key("robot"), "token", &request)
    };
    refused("ten seconds", request(10), 422, "Invalid")?;
    let granted = ok("an hour", request(3_600))?;
    ensure(granted["status"]["token"].as_str().is_some_and(|t| t.split('.').count() == 3), "no token")?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": granted["status"]["token"]}});
    const REVIEW: Resource =
        Resource::new("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", false);
    let answer: Value = ok("review", place.client.create(&REVIEW, CLUSTER_SCOPED, &review))?;
    let expected = format!("system:serviceaccount:{}:robot", place.namespace);
    equal("user", answer["status"]["user"]["username"].as_str(), Some(expected.as_str()))
}
