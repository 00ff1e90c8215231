//! Reads a ShootState back on the seed to which a Shoot has moved.

use serde_json::Value;

use super::collect::referable;
use super::stored::ShootState;
use crate::api::core::SECRET;
use crate::api::meta::{Key, Resource, text};
use crate::base::json::json;
use crate::extension::ExtensionResourceState;
use crate::flow::Failed;
use crate::kube::Seed;
use crate::secrets::labels;

/// The type of an entry with a Secret.
const SECRET_ENTRY: &str = "secret";

/// Creates the Secrets of a ShootState in the namespace of the control plane. This must happen before any of them is asked of
/// the secrets manager, which then finds them instead of making others. Secrets that exist stay.
///
/// # Errors
/// A request fails; an entry cannot be read, and then nothing was created; or the namespace has such a Secret with other
/// data.
pub fn create_secrets(seed: &Seed, namespace: &str, state: &ShootState) -> Result<(), Failed> {
    for secret in secrets(state, namespace)? {
        match seed.create::<Value>(&SECRET, namespace, &secret) {
            Err(e) if e.is_already_exists() => same_data(seed, &secret)?,
            other => drop(other?),
        }
    }
    Ok(())
}

/// The Secrets of a ShootState. The newest of several with one configuration comes last, as when they were made: the secrets
/// manager looks at the time of their creation.
fn secrets(state: &ShootState, namespace: &str) -> Result<Vec<Value>, Failed> {
    let entries = state.entries("gardener").iter().filter(|entry| entry["type"] == SECRET_ENTRY);
    let secrets: Result<Vec<Value>, Failed> = entries.map(|entry| secret(state, entry, namespace)).collect();
    let mut secrets = secrets?;
    secrets.sort_by_cached_key(|secret| {
        let rotated = text(&secret["metadata"]["labels"][labels::LAST_ROTATION]);
        (rotated.parse::<i64>().unwrap_or_default(), text(&secret["metadata"]["name"]).to_owned())
    });
    Ok(secrets)
}

fn secret(state: &ShootState, entry: &Value, namespace: &str) -> Result<Value, Failed> {
    let (name, stored) = (text(&entry["name"]), &entry["data"]);
    let has_entries = |data: &Value| data.as_object().is_some_and(|all| all.values().all(Value::is_string));
    if name.is_empty() || !has_entries(&stored["data"]) {
        return Err(Failed::new(format!(
            "Secret {name:?} of ShootState {} has no map `data.data`, as older versions of Gardener wrote it: move the content \
             of `data` to `data.data`, and check that every entry of it is base64",
            state.key()
        )));
    }
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": entry["labels"]}, "data": stored["data"]});
    for field in ["immutable", "type"] {
        if !stored[field].is_null() {
            secret[field] = stored[field].clone();
        }
    }
    Ok(secret)
}

/// Errors: a Secret that exists has other data than the stored one.
fn same_data(seed: &Seed, secret: &Value) -> Result<(), Failed> {
    let key = Key::of(secret);
    let live = seed.find::<Value>(&SECRET, &key)?;
    // One that has gone meanwhile is created by the next try.
    let Some(live) = live else { return Err(Failed::new(format!("Secret {key} was deleted a moment ago"))) };
    let entries = |secret: &Value| secret["data"].as_object().cloned().unwrap_or_default();
    if entries(&live) == entries(secret) {
        return Ok(());
    }
    Err(Failed::new(format!(
        "Secret {key} of the seed has other data than the ShootState, with which the Shoot has worked so far: delete it, so \
         that it is restored"
    )))
}

/// The state of an extension object in a ShootState; empty if it has none.
pub fn extension_state(
    state: &ShootState,
    kind: &str,
    name: &str,
    purpose: Option<&str>,
) -> ExtensionResourceState {
    let is_it = |entry: &&Value| {
        entry["kind"] == kind
            && entry["name"] == name
            && text(&entry["purpose"]) == purpose.unwrap_or_default()
    };
    let known = state.entries("extensions").iter().find(is_it).unwrap_or(&Value::Null);
    ExtensionResourceState { state: known["state"].clone(), resources: known["resources"].clone() }
}

/// Creates the objects to which the state of an extension object refers, in the namespace of the control plane. This must
/// happen before the extension is triggered. Objects that exist stay: the extension may have changed them.
///
/// # Errors
/// A request fails; or the ShootState lacks an object, and then nothing was created.
pub fn create_resources(
    seed: &Seed,
    namespace: &str,
    state: &ShootState,
    memory: &ExtensionResourceState,
) -> Result<(), Failed> {
    for referred in referred(state, namespace, memory)? {
        match seed.create::<Value>(&referred.resource, namespace, &referred.object) {
            Err(e) if e.is_already_exists() => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// An object to which a state refers.
struct ReferredObject {
    resource: Resource,
    object: Value,
}

fn referred(
    state: &ShootState,
    namespace: &str,
    memory: &ExtensionResourceState,
) -> Result<Vec<ReferredObject>, Failed> {
    let named = memory.resources.as_array().into_iter().flatten();
    named.map(|named| object(state, namespace, &named["resourceRef"])).collect()
}

fn object(state: &ShootState, namespace: &str, reference: &Value) -> Result<ReferredObject, Failed> {
    let (kind, name) = (text(&reference["kind"]), text(&reference["name"]));
    let title = format!("{kind} {name} of ShootState {}", state.key());
    let Some(resource) = referable(reference) else {
        return Err(Failed::new(format!(
            "{title} cannot be created: only Secrets and ConfigMaps of version v1 can be; create it in namespace {namespace} \
             and remove the reference from the ShootState"
        )));
    };
    let is_it =
        |entry: &&Value| ["apiVersion", "kind", "name"].iter().all(|field| entry[field] == reference[field]);
    let Some(entry) = state.entries("resources").iter().find(is_it) else {
        return Err(Failed::new(format!(
            "{title} is missing in its list `spec.resources`, although the state of an extension refers to it: add it there"
        )));
    };
    let Value::Object(mut object) = entry["data"].clone() else {
        return Err(Failed::new(format!("{title} has no object in its field `data`: add it there")));
    };
    // Only what another cluster can take: the rest belongs to the former one.
    let old = object.remove("metadata").unwrap_or_default();
    let mut metadata = json!({"name": name, "namespace": namespace});
    for field in ["labels", "annotations"] {
        if !old[field].is_null() {
            metadata[field] = old[field].clone();
        }
    }
    object.insert("apiVersion".to_owned(), json!(resource.api_version()));
    object.insert("kind".to_owned(), json!(kind));
    object.insert("metadata".to_owned(), metadata);
    Ok(ReferredObject { resource, object: Value::Object(object) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(spec: &Value) -> ShootState {
        ShootState(json!({"metadata": {"namespace": "garden-p", "name": "s1"}, "spec": spec}))
    }

    fn error<T>(result: Result<T, Failed>) -> String {
        result.map(drop).unwrap_err().text
    }

    #[test]
    fn secrets_are_created_as_stored() {
        let entry = |name: &str, rotated: &str| {
            json!({"name": name, "type": "secret", "labels": {"last-rotation-initiation-time": rotated, "persist": "true"},
                "data": {"data": {"k": "dg=="}, "immutable": true, "type": "Opaque"}})
        };
        let machines = json!({"name": "machine-state", "type": "machine-state", "data": {"state": "eA=="}});
        let all = [entry("ca-new", "1795353089"), entry("token", ""), machines, entry("ca", "99")];
        let found = secrets(&state(&json!({"gardener": all})), "shoot--p--s1").unwrap();
        let names: Vec<&str> = found.iter().map(|secret| text(&secret["metadata"]["name"])).collect();
        assert_eq!(names, ["token", "ca", "ca-new"]);
        let labels = json!({"last-rotation-initiation-time": "99", "persist": "true"});
        let expected = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "ca", "namespace": "shoot--p--s1", "labels": labels},
            "data": {"k": "dg=="}, "immutable": true, "type": "Opaque"});
        assert_eq!(found[1], expected);
        assert!(secrets(&state(&Value::Null), "n").unwrap().is_empty());
    }

    #[test]
    fn older_forms_are_refused() {
        let of = |data: Value| {
            let entry = json!({"name": "ca", "type": "secret", "labels": {}, "data": data});
            secrets(&state(&json!({"gardener": [entry]})), "n").map(|all| all.len())
        };
        assert_eq!(of(json!({"data": {}})).unwrap(), 1);
        let older = [
            json!({"ca.crt": "YQ==", "ca.key": "YQ=="}),
            // A map with an entry of that name.
            json!({"data": "YQ=="}),
            json!({"data": {"ca.crt": {}}}),
            json!({"immutable": true}),
            Value::Null,
        ];
        for data in older {
            let text = error(of(data));
            let parts = ["Secret \"ca\" of ShootState garden-p/s1", "older versions", "data.data"];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn a_state_is_found_by_kind_name_and_purpose() {
        let state = state(&json!({"extensions": [
            {"kind": "Extension", "name": "e", "state": 1},
            {"kind": "BackupEntry", "name": "e", "state": {"x": 1}, "resources": [2]},
            {"kind": "ControlPlane", "name": "c", "purpose": "exposure", "state": 3},
            {"kind": "ControlPlane", "name": "c", "purpose": "normal", "state": 4},
            {"kind": "BackupEntry", "name": "f"}]}));
        let found = |kind: &str, name: &str, purpose| extension_state(&state, kind, name, purpose);
        let memory = |state: Value, resources: Value| ExtensionResourceState { state, resources };
        assert_eq!(found("BackupEntry", "e", None), memory(json!({"x": 1}), json!([2])));
        assert_eq!(found("Extension", "e", None), memory(json!(1), Value::Null));
        assert_eq!(found("ControlPlane", "c", Some("normal")), memory(json!(4), Value::Null));
        let none = [
            ("ControlPlane", "c", None),
            ("BackupEntry", "f", None),
            ("Extension", "e", Some("x")),
            ("Worker", "e", None),
        ];
        for (kind, name, purpose) in none {
            assert_eq!(found(kind, name, purpose), ExtensionResourceState::default(), "{kind} {name}");
        }
    }

    #[test]
    fn objects_of_states_get_the_namespace_and_lose_what_belongs_to_the_former_cluster() {
        let stored = json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "dg=="}, "type": "Opaque",
            "metadata": {"name": "own", "namespace": "old", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "ownerReferences": [{"uid": "x"}], "managedFields": [{}]}});
        let entry = json!({"apiVersion": "v1", "kind": "Secret", "name": "own", "data": stored});
        let state =
            state(&json!({"resources": [entry, {"apiVersion": "v1", "kind": "ConfigMap", "name": "empty"}]}));
        let of = |version: &str, kind: &str, name: &str| {
            let reference = json!({"apiVersion": version, "kind": kind, "name": name});
            let resources = json!([{"name": "r", "resourceRef": reference}]);
            referred(&state, "new", &ExtensionResourceState { state: Value::Null, resources })
        };
        let found = of("v1", "Secret", "own").unwrap();
        let expected = json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "dg=="}, "type": "Opaque",
            "metadata": {"name": "own", "namespace": "new", "labels": {"a": "b"}}});
        assert_eq!((found.len(), &found[0].object), (1, &expected));
        assert!(referred(&state, "new", &ExtensionResourceState::default()).unwrap().is_empty());
        let table = [
            (of("v1", "Secret", "other"), "is missing in its list `spec.resources`"),
            (of("v1", "Pod", "own"), "only Secrets and ConfigMaps"),
            (of("v1", "ConfigMap", "empty"), "has no object in its field `data`"),
        ];
        for (found, expected) in table {
            let text = error(found);
            assert!(text.contains(expected) && text.contains("garden-p/s1"), "{text}");
        }
    }
}
