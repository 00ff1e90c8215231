//! The token of pods whose ServiceAccount disables the automatic mount. In seeds and in Shoots, gardener-resource-manager adds
//! a projected volume to such pods when they are created (its webhook `projected-token-mount`). Here the applier adds it to the
//! pod template when it applies the workload. Charts made from Gardener's template and most components of Shoots rely on it.

use serde_json::Value;

use super::error::Error;
use super::object::text;
use crate::api::meta::ObjectMeta;
use crate::base::json::json;
use crate::components::webhooks;

const SKIP: &str = "projected-token-mount.resources.gardener.cloud/skip";
const EXPIRATION: &str = "projected-token-mount.resources.gardener.cloud/expiration-seconds";
const EXPIRATION_SECONDS: i64 = 43_200;
const VOLUME: &str = "kube-api-access-gardener";
/// The name prefix of volumes that contain a token.
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The label of namespaces that belong to Gardener.
const ROLE: &str = "gardener.cloud/role";
/// The namespaces that the webhook serves in Shoots, and does not serve in seeds.
const OF_SHOOTS: [&str; 2] = ["kube-system", "kubernetes-dashboard"];

/// The path of the pod, or of the pod template, in an object of a kind.
fn place(kind: &str) -> Option<&'static str> {
    match kind {
        "Pod" => Some(""),
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" => Some("/spec/template"),
        "CronJob" => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

fn pod(object: &Value) -> Option<&Value> {
    object.pointer(place(text(&object["kind"]))?)
}

fn has_volume(pod: &Value, is_it: impl Fn(&str) -> bool) -> bool {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.into_iter().any(|volume| is_it(text(&volume["name"])))
}

/// Whether the webhook handles a namespace of a seed.
pub(super) fn is_served(namespace: &ObjectMeta) -> bool {
    namespace.labels.contains_key(ROLE) && !is_served_in_shoot(&namespace.name)
}

/// Whether the webhook handles a namespace of a Shoot.
pub(super) fn is_served_in_shoot(namespace: &str) -> bool {
    OF_SHOOTS.contains(&namespace)
}

/// The ServiceAccount that decides whether the pods of this object get the volume.
pub(super) fn account(object: &Value) -> Option<&str> {
    let pod = pod(object)?;
    let (labels, spec) = (&pod["metadata"]["labels"], &pod["spec"]);
    let name = text(&spec["serviceAccountName"]);
    let is_excepted = labels[SKIP].is_string()
        || labels["app"] == webhooks::NAME
        || labels["static-pod"] == "true"
        || has_volume(pod, |name| name.starts_with(VOLUME_PREFIX));
    // If the pod itself enables the mount, Kubernetes mounts the token.
    let decides = spec["automountServiceAccountToken"].is_boolean();
    (!matches!(name, "" | "default") && !is_excepted && !decides).then_some(name)
}

/// Whether an existing Pod or Job has the volume; `None` for kinds that can be changed. Volumes of an
/// existing Pod or Job are immutable.
pub(super) fn decided(live: Option<&Value>) -> Option<bool> {
    let live = live.filter(|live| matches!(text(&live["kind"]), "Pod" | "Job"))?;
    Some(has_volume(pod(live)?, |name| name == VOLUME))
}

/// The lifetime of a token.
pub(super) fn expiration_seconds(object: &Value) -> Result<i64, Error> {
    let annotation = pod(object).map_or(&Value::Null, |pod| &pod["metadata"]["annotations"][EXPIRATION]);
    let Some(value) = annotation.as_str() else { return Ok(EXPIRATION_SECONDS) };
    value.parse().map_err(|_| Error::Annotation { name: EXPIRATION, value: value.to_owned() })
}

/// Adds the volume, and mounts it in all containers without a mount at its path.
pub(super) fn mount(object: &mut Value, expiration_seconds: i64) {
    let Some(pod) = place(text(&object["kind"])).and_then(|path| object.pointer_mut(path)) else { return };
    let volume = json!({"name": VOLUME, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": expiration_seconds}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}});
    let spec = &mut pod["spec"];
    push(&mut spec["volumes"], volume);
    let mount = json!({"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": true});
    for list in ["containers", "initContainers"] {
        // A missing list must stay missing.
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers {
            let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
            if !mounts.any(|mount| mount["mountPath"] == MOUNT_PATH) {
                push(&mut container["volumeMounts"], mount.clone());
            }
        }
    }
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(kind: &str, pod: &Value) -> Value {
        match kind {
            "Pod" => {
                let mut object = pod.clone();
                object["kind"] = json!(kind);
                object
            }
            "CronJob" => json!({"kind": kind, "spec": {"jobTemplate": {"spec": {"template": pod}}}}),
            _ => json!({"kind": kind, "spec": {"template": pod}}),
        }
    }

    fn plain() -> Value {
        json!({"metadata": {}, "spec": {"serviceAccountName": "ext", "containers": [{"name": "a"},
            {"name": "b", "volumeMounts": [{"name": "x"}]}], "initContainers": [{"name": "i"}]}})
    }

    #[test]
    fn which_pods_depend_on_their_account() {
        for kind in ["Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"] {
            assert_eq!(account(&workload(kind, &plain())), Some("ext"), "{kind}");
        }
        assert_eq!(account(&workload("Other", &plain())), None);
        let changes = [
            ("/spec", "serviceAccountName", json!("default")),
            ("/spec", "serviceAccountName", json!("")),
            ("/spec", "serviceAccountName", Value::Null),
            ("/spec", "automountServiceAccountToken", json!(false)),
            ("/spec", "automountServiceAccountToken", json!(true)),
            ("/spec", "volumes", json!([{"name": "kube-api-access-own"}])),
            ("/metadata", "labels", json!({SKIP: ""})),
            ("/metadata", "labels", json!({"app": "gardener-resource-manager"})),
            ("/metadata", "labels", json!({"static-pod": "true"})),
        ];
        for (pointer, key, value) in changes {
            let mut pod = plain();
            pod.pointer_mut(pointer).unwrap()[key] = value.clone();
            assert_eq!(account(&workload("Deployment", &pod)), None, "{key}: {value}");
        }
        let harmless = [
            ("/spec", "volumes", json!([{"name": "own-kube-api-access-"}])),
            ("/spec", "volumes", Value::Null),
            ("/metadata", "labels", json!({"app": "x", "static-pod": "false"})),
            ("/metadata", "annotations", json!({SKIP: "true"})),
        ];
        for (pointer, key, value) in harmless {
            let mut pod = plain();
            pod.pointer_mut(pointer).unwrap()[key] = value.clone();
            assert_eq!(account(&workload("Deployment", &pod)), Some("ext"), "{key}: {value}");
        }
    }

    #[test]
    fn which_namespaces_are_handled() {
        let served = |name: &str, labels: Value| {
            is_served(&serde_json::from_value(json!({"name": name, "labels": labels})).unwrap())
        };
        let role = || json!({"gardener.cloud/role": "extension"});
        assert!(served("extension-a", role()) && served("garden", json!({"gardener.cloud/role": ""})));
        assert!(!served("extension-a", json!({"role": "garden"})));
        for name in ["kube-system", "kubernetes-dashboard"] {
            assert!(!served(name, role()) && is_served_in_shoot(name), "{name}");
        }
        assert!(!is_served_in_shoot("default") && !is_served_in_shoot("garden"));
    }

    #[test]
    fn immutable_objects_stay() {
        for (kind, is_fixed) in [("Pod", true), ("Job", true), ("Deployment", false), ("CronJob", false)] {
            let mut live = workload(kind, &plain());
            assert_eq!(decided(Some(&live)), is_fixed.then_some(false), "{kind}");
            mount(&mut live, 600);
            assert_eq!(decided(Some(&live)), is_fixed.then_some(true), "{kind}");
        }
        assert_eq!(decided(None), None);
    }

    #[test]
    fn how_long_a_token_is_valid() {
        let of = |annotations: Value| {
            let mut pod = plain();
            pod["metadata"]["annotations"] = annotations;
            expiration_seconds(&workload("Deployment", &pod)).map_err(|error| error.text())
        };
        assert_eq!((of(Value::Null), of(json!({EXPIRATION: "600"}))), (Ok(43_200), Ok(600)));
        let text = of(json!({EXPIRATION: "soon"})).unwrap_err();
        assert!(text.contains(EXPIRATION) && text.contains("\"soon\""), "{text}");
    }

    #[test]
    fn the_volume_equals_the_webhooks() {
        let expected = json!([{"name": "kube-api-access-gardener", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 43200, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}}]);
        let mounted = json!({"name": "kube-api-access-gardener", "readOnly": true,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
        let (x, own) =
            (json!({"name": "x", "mountPath": "/x"}), json!({"name": "o", "mountPath": MOUNT_PATH}));
        for kind in ["Pod", "Deployment", "CronJob"] {
            let mut before = plain();
            before["spec"]["containers"][1]["volumeMounts"] = json!([x]);
            before["spec"]["containers"]
                .as_array_mut()
                .unwrap()
                .push(json!({"name": "c", "volumeMounts": [own]}));
            let mut object = workload(kind, &before);
            mount(&mut object, 43_200);
            let spec = &pod(&object).unwrap()["spec"];
            assert_eq!(spec["volumes"], expected, "{kind}");
            let mounts = |list: &str, index: usize| &spec[list][index]["volumeMounts"];
            assert_eq!(mounts("containers", 0), &json!([mounted]), "{kind}");
            assert_eq!(mounts("containers", 1), &json!([x, mounted]), "{kind}");
            assert_eq!(mounts("containers", 2), &json!([own]), "{kind}");
            assert_eq!(mounts("initContainers", 0), &json!([mounted]), "{kind}");
            assert_eq!(account(&object), None, "mounted once");
        }
        let mut without = plain();
        without["spec"].as_object_mut().unwrap().remove("initContainers");
        without["spec"]["volumes"] = json!([{"name": "x"}]);
        let mut object = workload("Pod", &without);
        mount(&mut object, 43_200);
        assert_eq!(object["spec"]["volumes"], json!([{"name": "x"}, expected[0]]));
        assert!(object["spec"].get("initContainers").is_none());
    }
}
