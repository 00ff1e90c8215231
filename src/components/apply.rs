//! Creates or patches an object of a control plane so that it matches its desired state. It writes nothing if nothing
//! differs.
//!
//! A server adds defaults to what it stores. A live field that is not desired is left alone if it has such a default,
//! and removed otherwise: it comes from an older manifest or from somebody's change. Labels and annotations of other
//! writers stay.

use serde_json::{Map, Value};

use crate::api::meta::{Key, Resource, text};
use crate::api::patch::difference;
use crate::api::resources::REFERENCE_PREFIX;
use crate::base::json::json;
use crate::kube::{Error, Patch, Seed};

/// The fields that others own once the object exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Keep {
    /// The resource requests and limits of the containers (`resources`), by container name.
    pub(crate) resources: bool,
}

/// Creates the object, or patches what differs. Returns the resulting object.
pub(crate) fn apply(seed: &Seed, resource: &Resource, desired: &Value) -> Result<Value, Error> {
    apply_keeping(seed, resource, desired, Keep::default())
}

/// The same, but does not change the fields in `keep`.
pub(crate) fn apply_keeping(
    seed: &Seed,
    resource: &Resource,
    desired: &Value,
    keep: Keep,
) -> Result<Value, Error> {
    let namespace = if resource.namespaced { text(&desired["metadata"]["namespace"]) } else { "" };
    let key = Key::new(namespace, text(&desired["metadata"]["name"]));
    let Some(live) = seed.find::<Value>(resource, &key)? else {
        return seed.create(resource, namespace, desired);
    };
    match patch(&live, desired, keep) {
        None => Ok(live),
        Some(patch) => seed.patch(resource, &key, &Patch::Merge(patch)),
    }
}

/// The patch from the live object to the desired one; `None` if nothing differs.
pub(crate) fn patch(live: &Value, desired: &Value, keep: Keep) -> Option<Value> {
    let mut desired = desired.clone();
    fill(live, &mut desired, keep);
    let (mut wanted, Some(fields)) = (live.clone(), desired.as_object()) else { return None };
    for (field, value) in fields {
        match field.as_str() {
            "apiVersion" | "kind" | "status" => {}
            "metadata" => set_metadata(&mut wanted["metadata"], value),
            _ => wanted[field] = merge(&live[field], value),
        }
    }
    let rest = wanted.as_object_mut().into_iter().flatten();
    for (field, value) in rest.filter(|(field, _)| !fields.contains_key(*field)) {
        let is_own = matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status");
        if !is_own && !is_default(field, value) {
            *value = Value::Null;
        }
    }
    difference(live, &wanted)
}

/// Labels and annotations of other writers stay. Reference annotations to Secrets and ConfigMaps do not, because they
/// would protect unused objects from garbage collection.
fn set_metadata(live: &mut Value, desired: &Value) {
    for field in ["labels", "annotations"] {
        let mut all = live[field].as_object().cloned().unwrap_or_default();
        all.retain(|key, _| !key.starts_with(REFERENCE_PREFIX));
        all.extend(desired[field].as_object().cloned().unwrap_or_default());
        live[field] = if all.is_empty() { Value::Null } else { Value::Object(all) };
    }
    for field in ["ownerReferences", "finalizers"] {
        if let Some(value) = desired.get(field) {
            live[field] = merge(&live[field], value);
        }
    }
}

/// Copies fields that the server or other writers own.
fn fill(live: &Value, desired: &mut Value, keep: Keep) {
    match text(&live["kind"]) {
        "Service" => fill_service(&live["spec"], &mut desired["spec"]),
        "Deployment" | "StatefulSet" => fill_workload(&live["spec"], &mut desired["spec"], keep),
        "ServiceAccount" => take(live, desired, &["secrets", "imagePullSecrets"]),
        _ => {}
    }
}

fn fill_workload(live: &Value, desired: &mut Value, keep: Keep) {
    if desired["replicas"].is_null() {
        desired["replicas"] = live["replicas"].clone();
    }
    // The server refuses other values.
    if !live["volumeClaimTemplates"].is_null() {
        desired["volumeClaimTemplates"] = live["volumeClaimTemplates"].clone();
    }
    let (old, template) = (&live["template"], &mut desired["template"]);
    if let Some(restarted) = old["metadata"]["annotations"].get(RESTARTED_AT) {
        template["metadata"]["annotations"][RESTARTED_AT] = restarted.clone();
    }
    // Gardener's webhook for high availability writes these.
    take(&old["spec"], &mut template["spec"], &["affinity", "topologySpreadConstraints"]);
    for container in template["spec"]["containers"].as_array_mut().into_iter().flatten() {
        let found = old["spec"]["containers"].as_array().into_iter().flatten();
        let found = found.into_iter().find(|old| old["name"] == container["name"]);
        if keep.resources
            && let Some(found) = found
        {
            container["resources"] = found["resources"].clone();
        }
    }
}

const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

fn fill_service(live: &Value, desired: &mut Value) {
    let kind = match text(&desired["type"]) {
        "" => "ClusterIP",
        kind => kind,
    }
    .to_owned();
    if kind == "ExternalName" || live["type"] == "ExternalName" {
        return;
    }
    desired["type"] = json!(kind);
    if (desired["clusterIP"] == "None") == (live["clusterIP"] == "None") {
        take(live, desired, &["clusterIP", "clusterIPs"]);
        take(live, desired, &["ipFamilies", "ipFamilyPolicy"]);
    }
    let old = live["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    for port in desired["ports"].as_array_mut().into_iter().flatten() {
        if port["targetPort"].is_null() {
            port["targetPort"] = port["port"].clone();
        }
        if port["nodePort"].is_null() && kind != "ClusterIP" {
            let same = |old: &&Value| text(&old["name"]) == text(&port["name"]);
            let kept = old.iter().find(same).map_or(Value::Null, |old| old["nodePort"].clone());
            port["nodePort"] = kept;
        }
    }
    if kind == "LoadBalancer" && live["type"] == kind.as_str() {
        // The server refuses another class. A controller or an administrator may have set the other fields.
        let fields =
            ["loadBalancerClass", "loadBalancerIP", "loadBalancerSourceRanges", "externalTrafficPolicy"];
        take(live, desired, &fields);
    }
    let is_local = |spec: &Value| spec["externalTrafficPolicy"] == "Local" && spec["type"] == "LoadBalancer";
    if is_local(live) && is_local(desired) {
        take(live, desired, &["healthCheckNodePort"]);
    }
}

/// Copies fields that are not desired.
fn take(live: &Value, desired: &mut Value, fields: &[&str]) {
    for field in fields {
        if desired[*field].is_null() && !live[*field].is_null() {
            desired[*field] = live[*field].clone();
        }
    }
}

/// The desired value, completed with the live value's defaults. A list is taken as a whole.
fn merge(live: &Value, desired: &Value) -> Value {
    if same(live, desired) {
        return live.clone();
    }
    let (Value::Object(live), Value::Object(desired)) = (live, desired) else { return desired.clone() };
    // Fields of one type do not fit another type.
    let is_other_type = desired.get("type").is_some_and(|new| live.get("type").is_some_and(|old| old != new));
    let mut merged = Map::new();
    for (key, value) in desired {
        merged.insert(key.clone(), merge(live.get(key).unwrap_or(&Value::Null), value));
    }
    for (key, value) in live {
        if !desired.contains_key(key) && !is_other_type && is_default(key, value) {
            merged.insert(key.clone(), value.clone());
        }
    }
    Value::Object(merged)
}

/// Whether a live value equals the desired one, ignoring defaults.
fn same(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            let null = &Value::Null;
            desired.iter().all(|(key, value)| same(live.get(key).unwrap_or(null), value))
                && live.iter().all(|(key, value)| desired.contains_key(key) || is_default(key, value))
        }
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len() && live.iter().zip(desired).all(|(live, desired)| same(live, desired))
        }
        _ => live == desired || (is_nothing(live) && is_nothing(desired)),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether a server defaults the field to this value if a manifest omits it. In the objects of a control plane, a field
/// name has the same meaning everywhere.
fn is_default(field: &str, value: &Value) -> bool {
    if is_nothing(value) {
        return true;
    }
    let is = |default: Value| same(value, &default);
    match field {
        "apiVersion" => is(json!("v1")),
        "allocateLoadBalancerNodePorts" | "enableServiceLinks" => is(json!(true)),
        "optional" | "immutable" | "publishNotReadyAddresses" => is(json!(false)),
        "defaultMode" => is(json!(420)),
        "dnsPolicy" => is(json!("ClusterFirst")),
        "expirationSeconds" => is(json!(3_600)),
        "externalTrafficPolicy" | "internalTrafficPolicy" => is(json!("Cluster")),
        "failureThreshold" => is(json!(3)),
        "imagePullPolicy" => is(json!("IfNotPresent")),
        "maxSurge" | "maxUnavailable" => is(json!("25%")),
        "path" => is(json!("/")),
        "partition" => is(json!(0)),
        "periodSeconds" | "revisionHistoryLimit" => is(json!(10)),
        "persistentVolumeClaimRetentionPolicy" => {
            is(json!({"whenDeleted": "Retain", "whenScaled": "Retain"}))
        }
        "podManagementPolicy" => is(json!("OrderedReady")),
        "progressDeadlineSeconds" => is(json!(600)),
        "protocol" => is(json!("TCP")),
        "replicas" | "timeoutSeconds" | "successThreshold" => is(json!(1)),
        "restartPolicy" => is(json!("Always")),
        "rollingUpdate" => is(json!({})),
        "schedulerName" => is(json!("default-scheduler")),
        "scheme" => is(json!("HTTP")),
        "sessionAffinity" => is(json!("None")),
        "strategy" | "updateStrategy" => is(json!({"type": "RollingUpdate"})),
        "terminationGracePeriodSeconds" => is(json!(30)),
        "terminationMessagePath" => is(json!("/dev/termination-log")),
        "terminationMessagePolicy" => is(json!("File")),
        "type" => is(json!("Opaque")) || is(json!("ClusterIP")) || is(json!("RollingUpdate")),
        "volumeMode" => is(json!("Filesystem")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "labels": {"app": "a", "foreign": "x"},
                "annotations": {"deployment.kubernetes.io/revision": "1", "own": "1",
                    "reference.resources.gardener.cloud/secret-1": "s-1"},
            },
            "spec": {
                "progressDeadlineSeconds": 600, "replicas": 3, "revisionHistoryLimit": 2,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                "selector": {"matchLabels": {"app": "a"}},
                "template": {
                    "metadata": {"creationTimestamp": null, "labels": {"app": "a"}},
                    "spec": {
                        "containers": [{
                            "name": "a", "image": "i:1", "args": ["--x"], "imagePullPolicy": "IfNotPresent",
                            "resources": {"requests": {"cpu": "1"}},
                            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                            "ports": [{"containerPort": 1, "protocol": "TCP"}],
                            "livenessProbe": {"httpGet": {"path": "/livez", "port": 1, "scheme": "HTTPS"},
                                "failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 15},
                        }],
                        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                        "securityContext": {}, "terminationGracePeriodSeconds": 30,
                        "volumes": [{"name": "v", "secret": {"secretName": "s-1", "defaultMode": 420}}],
                    },
                },
            },
            "status": {"replicas": 3},
        })
    }

    fn desired() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "a", "namespace": "n", "labels": {"app": "a"},
                "annotations": {"own": "1", "reference.resources.gardener.cloud/secret-1": "s-1"},
            },
            "spec": {
                "replicas": 3, "revisionHistoryLimit": 2, "selector": {"matchLabels": {"app": "a"}},
                "template": {
                    "metadata": {"labels": {"app": "a"}},
                    "spec": {
                        "containers": [{
                            "name": "a", "image": "i:1", "args": ["--x"], "env": [],
                            "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 1}],
                            "livenessProbe": {"httpGet": {"path": "/livez", "port": 1, "scheme": "HTTPS"},
                                "timeoutSeconds": 15},
                        }],
                        "volumes": [{"name": "v", "secret": {"secretName": "s-1"}}],
                    },
                },
            },
        })
    }

    fn with(mut object: Value, pointer: &str, value: Value) -> Value {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key] = value;
        object
    }

    #[test]
    fn an_equal_object_is_not_written() {
        assert_eq!(patch(&live(), &desired(), Keep::default()), None);
        let unsaid = with(desired(), "/spec/replicas", Value::Null);
        assert_eq!(patch(&live(), &unsaid, Keep::default()), None);
        let restarted = json!({"kubectl.kubernetes.io/restartedAt": "t"});
        let live = with(live(), "/spec/template/metadata/annotations", restarted);
        assert_eq!(patch(&live, &desired(), Keep::default()), None);
    }

    #[test]
    fn only_differences_are_written() {
        let none = Keep::default();
        let resources_stay = Keep { resources: true };
        let reference = json!({"reference.resources.gardener.cloud/secret-2": "s-2", "own": "1"});
        let reference_patch = json!({"metadata": {"annotations": {"reference.resources.gardener.cloud/secret-1": null,
            "reference.resources.gardener.cloud/secret-2": "s-2"}}});
        let resources = "/spec/template/spec/containers/0/resources";
        let table = [
            (
                live(),
                with(desired(), "/spec/replicas", json!(1)),
                none,
                Some(json!({"spec": {"replicas": 1}})),
            ),
            (live(), with(desired(), resources, json!({"requests": {"cpu": "2"}})), resources_stay, None),
            (live(), with(desired(), "/metadata/annotations", reference), none, Some(reference_patch)),
            // A field from an older manifest is removed.
            (
                with(live(), "/spec/template/spec/hostNetwork", json!(true)),
                desired(),
                none,
                Some(json!({"spec": {"template": {"spec": {"hostNetwork": null}}}})),
            ),
            (
                live(),
                with(desired(), "/spec/strategy", json!({"type": "Recreate"})),
                none,
                Some(json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}})),
            ),
            (
                with(live(), "/spec/template/spec/affinity", json!({"nodeAffinity": {"x": 1}})),
                desired(),
                none,
                None,
            ),
        ];
        for (live, desired, keep, expected) in table {
            assert_eq!(patch(&live, &desired, keep), expected);
        }
    }

    #[test]
    fn a_list_is_replaced_whole() {
        let changed = with(desired(), "/spec/template/spec/containers/0/args", json!(["--y"]));
        let patch = patch(&live(), &changed, Keep::default()).unwrap();
        assert_eq!(
            patch.pointer("/spec/template/spec/containers"),
            changed.pointer("/spec/template/spec/containers")
        );
        assert_eq!(patch.pointer("/spec/template/spec").unwrap().as_object().unwrap().len(), 1);
    }

    #[test]
    fn a_service_keeps_what_it_was_given() {
        let live = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n"},
            "spec": {
                "type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
                "sessionAffinity": "None",
                "ports": [{"name": "p", "port": 443, "targetPort": 443, "protocol": "TCP", "nodePort": 30001}],
            },
        });
        let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
        let ports = json!([{"name": "p", "port": 443}]);
        assert_eq!(
            patch(&live, &service(json!({"type": "NodePort", "ports": ports})), Keep::default()),
            None
        );
        let inner = patch(&live, &service(json!({"ports": ports})), Keep::default()).unwrap();
        assert_eq!(
            inner,
            json!({"spec": {"type": "ClusterIP", "externalTrafficPolicy": null, "internalTrafficPolicy": null,
                "sessionAffinity": null, "ports": [{"name": "p", "port": 443, "targetPort": 443}]}})
        );
    }

    #[test]
    fn a_load_balancer_keeps_fields_of_others() {
        let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
        let live = |kind: &str| {
            service(json!({"type": kind, "clusterIP": "10.0.0.1", "loadBalancerClass": "example.org/lb",
                "loadBalancerIP": "192.0.2.1", "loadBalancerSourceRanges": ["192.0.2.0/24"],
                "externalTrafficPolicy": "Local", "healthCheckNodePort": 30_002}))
        };
        let desired = |kind: &str| service(json!({"type": kind}));
        let balancer = "LoadBalancer";
        assert_eq!(patch(&live(balancer), &desired(balancer), Keep::default()), None);
        let other = service(json!({"type": balancer, "externalTrafficPolicy": "Cluster"}));
        let changed = json!({"spec": {"externalTrafficPolicy": "Cluster", "healthCheckNodePort": null}});
        assert_eq!(patch(&live(balancer), &other, Keep::default()), Some(changed));
        let inner = patch(&live(balancer), &desired("ClusterIP"), Keep::default()).unwrap();
        let gone = json!({"type": "ClusterIP", "loadBalancerClass": null, "loadBalancerIP": null,
            "loadBalancerSourceRanges": null, "externalTrafficPolicy": null, "healthCheckNodePort": null});
        assert_eq!(inner, json!({"spec": gone}));
    }

    #[test]
    fn data_is_exact() {
        let live = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "Opaque",
            "data": {"token": "eA==", "a": "eQ=="}});
        let desired =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"a": "eQ=="}});
        assert_eq!(patch(&live, &desired, Keep::default()), Some(json!({"data": {"token": null}})));
        // The server stores no empty map.
        let empty = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {}});
        let live = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "Opaque"});
        assert_eq!(patch(&live, &empty, Keep::default()), None);
    }
}
