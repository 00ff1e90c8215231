//! Copies parts of a Shoot's Secrets to its namespace of the garden, where the garden uses them to issue kubeconfigs.
//! The copies belong to the Shoot and are deleted with it.

use serde_json::Value;

use super::rotation::CA_CLIENT;
use super::secrets::ShootSecrets;
use super::view::ShootView;
use crate::api::core::{CONFIG_MAP, SECRET};
use crate::api::gardener::{INTERNAL_SECRET, SHOOT};
use crate::api::meta::{Key, Resource};
use crate::base::json::json;
use crate::flow::{Failed, TaskStep};
use crate::format::base64;
use crate::kube::Garden;
use crate::runtime::write;

const ROLE: &str = "gardener.cloud/role";
const CA_CLUSTER: &str = "ca-cluster";

/// An object of the garden.
struct Copy {
    resource: Resource,
    name: &'static str,
    labels: Value,
    data: Value,
}

/// Writes the CA of the API server and the CA of clients, if they differ.
pub(crate) fn ensure(garden: &Garden, view: &ShootView, made: &ShootSecrets) -> Result<TaskStep, Failed> {
    let client = made.data(CA_CLIENT).ok_or_else(|| Failed::new("there is no client CA yet"))?;
    let client: serde_json::Map<String, Value> =
        client.iter().map(|(key, value)| (key.clone(), json!(base64::encode(value)))).collect();
    for copy in copies(view, made.ca_bundle(), Value::Object(client)) {
        let key = Key::new(view.namespace.as_str(), format!("{}.{}", view.name, copy.name));
        write::ensure(garden, &copy.resource, &key, &|object| set(object, view, &copy))?;
    }
    Ok(TaskStep::Done)
}

fn copies(view: &ShootView, ca: &[u8], client: Value) -> [Copy; 3] {
    [
        Copy {
            resource: CONFIG_MAP,
            name: CA_CLUSTER,
            labels: json!({
                ROLE: CA_CLUSTER,
                "discovery.gardener.cloud/public": "shoot-ca",
                "shoot.gardener.cloud/name": view.name,
                "shoot.gardener.cloud/uid": view.uid,
                "gardener.cloud/update-restriction": "true",
            }),
            data: json!({"ca.crt": String::from_utf8_lossy(ca)}),
        },
        // Upstream calls it deprecated, but still writes it.
        Copy {
            resource: SECRET,
            name: CA_CLUSTER,
            labels: json!({ROLE: CA_CLUSTER}),
            data: json!({"ca.crt": base64::encode(ca)}),
        },
        Copy { resource: INTERNAL_SECRET, name: CA_CLIENT, labels: json!({ROLE: CA_CLIENT}), data: client },
    ]
}

fn set(object: &mut Value, view: &ShootView, copy: &Copy) {
    let metadata = &mut object["metadata"];
    for (key, value) in copy.labels.as_object().into_iter().flatten() {
        metadata["labels"][key] = value.clone();
    }
    let owner = json!({
        "apiVersion": SHOOT.api_version(), "kind": SHOOT.kind, "name": view.name, "uid": view.uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    let others = metadata["ownerReferences"].as_array().into_iter().flatten();
    let mut owners: Vec<Value> = others.filter(|other| other["kind"] != owner["kind"]).cloned().collect();
    owners.push(owner);
    metadata["ownerReferences"] = json!(owners);
    // An existing object keeps its type; only new ones need it.
    if *copy.resource.kind != *CONFIG_MAP.kind && object["type"].is_null() {
        object["type"] = json!("Opaque");
    }
    object["data"] = copy.data.clone();
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::golden;
    use super::*;

    #[test]
    fn copies_are_those_of_a_go_gardenlet() {
        let view = golden("s2");
        let client = json!({"ca.crt": "Yw==", "ca.key": "aw=="});
        let owner = json!([{"apiVersion": "core.gardener.cloud/v1beta1", "blockOwnerDeletion": true,
            "controller": true, "kind": "Shoot", "name": "s2", "uid": view.uid}]);
        let made = copies(&view, b"PEM", client).map(|copy| {
            let mut object = json!({});
            set(&mut object, &view, &copy);
            (copy.resource.kind.to_string(), copy.name, object)
        });
        let expected = [
            (
                "ConfigMap".to_owned(),
                "ca-cluster",
                json!({
                    "metadata": {"labels": {
                        "discovery.gardener.cloud/public": "shoot-ca",
                        "gardener.cloud/role": "ca-cluster",
                        "gardener.cloud/update-restriction": "true",
                        "shoot.gardener.cloud/name": "s2",
                        "shoot.gardener.cloud/uid": "6fedff37-803d-40b4-80ba-66e284a593e8",
                    }, "ownerReferences": owner},
                    "data": {"ca.crt": "PEM"},
                }),
            ),
            (
                "Secret".to_owned(),
                "ca-cluster",
                json!({
                    "metadata": {"labels": {"gardener.cloud/role": "ca-cluster"}, "ownerReferences": owner},
                    "type": "Opaque", "data": {"ca.crt": "UEVN"},
                }),
            ),
            (
                "InternalSecret".to_owned(),
                "ca-client",
                json!({
                    "metadata": {"labels": {"gardener.cloud/role": "ca-client"}, "ownerReferences": owner},
                    "type": "Opaque", "data": {"ca.crt": "Yw==", "ca.key": "aw=="},
                }),
            ),
        ];
        assert_eq!(made, expected);
    }

    #[test]
    fn a_correct_copy_stays() {
        let view = golden("s2");
        for copy in copies(&view, b"PEM", json!({"ca.crt": "Yw=="})) {
            let mut object = json!({"metadata": {"labels": {"mine": "x"}, "annotations": {"mine": "y"},
                "ownerReferences": [{"kind": "Other"}]}});
            set(&mut object, &view, &copy);
            assert_eq!(
                (&object["metadata"]["labels"]["mine"], &object["metadata"]["annotations"]["mine"]),
                (&json!("x"), &json!("y"))
            );
            assert_eq!(object["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
            let before = object.clone();
            set(&mut object, &view, &copy);
            assert_eq!(object, before);
        }
    }
}
