//! Copies parts of a Shoot's Secrets to its namespace of the garden, where the garden uses them to issue kubeconfigs.
//! The copies belong to the Shoot and are deleted with it.

use serde_json::Value;

use super::rotation::{CA_CLIENT, CA_KUBELET, SSH_KEYPAIR};
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
use crate::secrets::SecretEntries;

const ROLE: &str = "gardener.cloud/role";
const CA_CLUSTER: &str = "ca-cluster";

/// The previous SSH key, which nodes accept as well.
const OLD_SSH_KEYPAIR: &str = "ssh-keypair.old";

/// An object of the garden.
struct Copy {
    resource: Resource,
    name: &'static str,
    labels: Value,
    data: Value,
}

/// What the copies in the garden contain.
#[derive(Default)]
struct CopySources<'a> {
    /// The CAs of the API server.
    ca: &'a [u8],
    /// The CA of clients, and its key.
    client: Option<&'a SecretEntries>,
    /// The CAs of kubelets; only with workers.
    kubelet: Option<&'a [u8]>,
    ssh: Option<&'a SecretEntries>,
    old_ssh: Option<&'a SecretEntries>,
}

/// Writes the copies that differ. Deletes those of SSH keys if the Shoot with workers has none.
pub(crate) fn ensure(garden: &Garden, view: &ShootView, made: &ShootSecrets) -> Result<TaskStep, Failed> {
    let client = made.data(CA_CLIENT).ok_or_else(|| Failed::new("there is no client CA yet"))?;
    let sources = CopySources {
        ca: made.ca_bundle(),
        client: Some(client),
        kubelet: view.has_workers.then(|| made.bundle_of(CA_KUBELET)),
        ssh: made.data(SSH_KEYPAIR),
        old_ssh: made.old_data(SSH_KEYPAIR),
    };
    let key = |name: &str| Key::new(view.namespace.as_str(), format!("{}.{name}", view.name));
    for copy in copies(view, &sources) {
        write::ensure(garden, &copy.resource, &key(copy.name), &|object| set(object, view, &copy))?;
    }
    if view.has_workers && !view.has_ssh {
        for name in [SSH_KEYPAIR, OLD_SSH_KEYPAIR] {
            write::delete(garden, &SECRET, &key(name))?;
        }
    }
    Ok(TaskStep::Done)
}

fn copies(view: &ShootView, sources: &CopySources<'_>) -> Vec<Copy> {
    let readable = |role: &str, ca: &[u8]| {
        let labels = json!({
            ROLE: role,
            "shoot.gardener.cloud/name": view.name,
            "shoot.gardener.cloud/uid": view.uid,
            "gardener.cloud/update-restriction": "true",
        });
        (labels, json!({"ca.crt": String::from_utf8_lossy(ca)}))
    };
    let (mut labels, data) = readable(CA_CLUSTER, sources.ca);
    labels["discovery.gardener.cloud/public"] = json!("shoot-ca");
    let mut all = vec![
        Copy { resource: CONFIG_MAP, name: CA_CLUSTER, labels, data },
        // Upstream calls it deprecated, but still writes it.
        Copy {
            resource: SECRET,
            name: CA_CLUSTER,
            labels: json!({ROLE: CA_CLUSTER}),
            data: json!({"ca.crt": base64::encode(sources.ca)}),
        },
    ];
    if let Some(ca) = sources.kubelet {
        let (labels, data) = readable(CA_KUBELET, ca);
        all.push(Copy { resource: CONFIG_MAP, name: CA_KUBELET, labels, data });
    }
    let whole = [
        (INTERNAL_SECRET, CA_CLIENT, CA_CLIENT, sources.client),
        (SECRET, SSH_KEYPAIR, SSH_KEYPAIR, sources.ssh),
        (SECRET, OLD_SSH_KEYPAIR, SSH_KEYPAIR, sources.old_ssh),
    ];
    for (resource, name, role, source) in whole {
        if let Some(source) = source {
            let encoded = source.iter().map(|(key, value)| (key.clone(), json!(base64::encode(value))));
            all.push(Copy {
                resource,
                name,
                labels: json!({ROLE: role}),
                data: Value::Object(encoded.collect()),
            });
        }
    }
    all
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

    fn entries(all: &[(&str, &str)]) -> SecretEntries {
        all.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    /// Kind, name and content of new copies.
    fn made(view: &ShootView, sources: &CopySources<'_>) -> Vec<(String, &'static str, Value)> {
        let of = |copy: Copy| {
            let mut object = json!({});
            set(&mut object, view, &copy);
            (copy.resource.kind.to_string(), copy.name, object)
        };
        copies(view, sources).into_iter().map(of).collect()
    }

    #[test]
    fn with_workers_there_are_copies_for_users_of_nodes() {
        let view = golden("w4");
        let [client, ssh, old] =
            [("ca.crt", "c"), ("id_rsa", "new"), ("id_rsa", "old")].map(|entry| entries(&[entry]));
        let sources = CopySources {
            ca: b"PEM",
            client: Some(&client),
            kubelet: Some(b"CA"),
            ssh: Some(&ssh),
            old_ssh: Some(&old),
        };
        let all = made(&view, &sources);
        let find = |name: &str| all.iter().find(|(_, own, _)| *own == name).unwrap();
        let (kind, _, kubelet) = find("ca-kubelet");
        assert_eq!((kind.as_str(), &kubelet["data"]), ("ConfigMap", &json!({"ca.crt": "CA"})));
        assert_eq!(
            kubelet["metadata"]["labels"],
            json!({"gardener.cloud/role": "ca-kubelet", "gardener.cloud/update-restriction": "true",
                "shoot.gardener.cloud/name": "w4", "shoot.gardener.cloud/uid": view.uid})
        );
        for (name, content) in [("ssh-keypair", "new"), ("ssh-keypair.old", "old")] {
            let (kind, _, secret) = find(name);
            assert_eq!((kind.as_str(), &secret["type"]), ("Secret", &json!("Opaque")));
            assert_eq!(secret["metadata"]["labels"], json!({"gardener.cloud/role": "ssh-keypair"}));
            assert_eq!(secret["data"]["id_rsa"], base64::encode(content.as_bytes()));
        }
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn copies_are_those_of_a_go_gardenlet() {
        let view = golden("s2");
        let client = entries(&[("ca.crt", "c"), ("ca.key", "k")]);
        let owner = json!([{"apiVersion": "core.gardener.cloud/v1beta1", "blockOwnerDeletion": true,
            "controller": true, "kind": "Shoot", "name": "s2", "uid": view.uid}]);
        let sources = CopySources { ca: b"PEM", client: Some(&client), ..CopySources::default() };
        let made = made(&view, &sources);
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
        let client = entries(&[("ca.crt", "c")]);
        let sources = CopySources { ca: b"PEM", client: Some(&client), ..CopySources::default() };
        for copy in copies(&view, &sources) {
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
