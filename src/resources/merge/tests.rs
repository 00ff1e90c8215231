use serde_json::json;

use super::super::object::texts;
use super::*;

const TERMS: Terms<'_> = Terms {
    origin: "garden/mr",
    recorded: None,
    force_labels: false,
    force_annotations: false,
    autoscaled: false,
};

fn merge(want: &Value, live: Option<&Value>) -> Value {
    super::merge(want.clone(), TERMS, live)
}

/// Merges specs of one kind; the metadata does not matter.
#[allow(clippy::needless_pass_by_value)] // tables of literals
fn spec(api_version: &str, kind: &str, annotation: &str, want: Value, live: Value) -> Value {
    let annotations = if annotation.is_empty() { json!({}) } else { json!({annotation: "true"}) };
    let metadata = json!({"name": "x", "annotations": annotations});
    let want = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": want});
    let live =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "uid": "u"}, "spec": live});
    merge(&want, Some(&live))["spec"].clone()
}

#[test]
fn labels_go_on_templates_too() {
    let mut object = json!({"metadata": {"name": "x"}, "spec": {
        "template": {"metadata": {"labels": {"a": "1"}}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}});
    inject_labels(&mut object, &SortedMap::from([("a".to_owned(), "2".to_owned())]));
    let all = json!({"a": "2", "resources.gardener.cloud/managed-by": "gardener"});
    assert_eq!(object["metadata"]["labels"], all);
    assert_eq!(object["spec"]["template"]["metadata"]["labels"], all);
    assert_eq!(object["spec"]["volumeClaimTemplates"][0]["metadata"]["labels"], all);
    let mut bare = json!({"metadata": {"name": "x"}, "spec": {"template": "text"}});
    inject_labels(&mut bare, &SortedMap::new());
    assert_eq!(bare["spec"], json!({"template": "text"}));
}

#[test]
fn a_new_object_is_the_desired_one_with_origin() {
    let want = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "finalizers": ["f"]},
        "data": {"a": "1"}, "status": {"x": 1}});
    let merged = merge(&want, None);
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "metadata": {
        "name": "x", "finalizers": ["f"], "annotations": {
            "resources.gardener.cloud/origin": "garden/mr",
            "resources.gardener.cloud/description": "DO NOT EDIT - This resource is managed by gardener-resource-manager.\nAny modifications are discarded and the resource is returned to the original state."}}});
    assert_eq!(merged, expected);
}

#[test]
fn metadata_and_status_are_live_and_the_rest_is_desired() {
    let want = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "metadata": {
        "name": "x", "finalizers": ["mine"], "ownerReferences": [{"name": "new"}]}});
    let live = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "0", "b": "0"}, "extra": true,
        "status": {"phase": "P"}, "metadata": {"name": "x", "uid": "u", "resourceVersion": "7",
            "finalizers": ["theirs"], "ownerReferences": [{"name": "old"}]}});
    let merged = merge(&want, Some(&live));
    assert_eq!(merged["data"], json!({"a": "1"}));
    assert_eq!(merged.get("extra"), None);
    assert_eq!(merged["status"], json!({"phase": "P"}));
    let metadata = &merged["metadata"];
    assert_eq!((&metadata["uid"], &metadata["resourceVersion"]), (&json!("u"), &json!("7")));
    assert_eq!(metadata["finalizers"], json!(["theirs"]));
    assert_eq!(metadata["ownerReferences"], json!([{"name": "new"}]));
    let mut without = want.clone();
    without["metadata"]["ownerReferences"] = Value::Null;
    assert!(merge(&without, Some(&live))["metadata"].get("ownerReferences").is_none());
    let mut empty = live.clone();
    empty["status"] = json!({});
    assert!(merge(&want, Some(&empty)).get("status").is_none());
}

#[test]
fn labels_of_others_stay_unless_forced() {
    // Desired, live, recorded, forced, result.
    let table = [
        (json!({"a": "1"}), json!({"b": "2"}), json!({}), false, json!({"a": "1", "b": "2"})),
        (json!({"a": "1"}), json!({"a": "2"}), json!({}), false, json!({"a": "1"})),
        (json!({}), json!({"a": "1"}), json!({"a": "1"}), false, json!({})),
        (json!({}), json!({"a": "2"}), json!({"a": "1"}), false, json!({"a": "2"})),
        (json!({"a": "1"}), json!({"a": "1"}), json!({"a": "1"}), false, json!({"a": "1"})),
        (json!({"a": "1"}), json!({"b": "2"}), json!({}), true, json!({"a": "1"})),
    ];
    for (want, live, recorded, forced, expected) in table {
        let object = json!({"kind": "K", "metadata": {"labels": want, "annotations": want}});
        let current = json!({"kind": "K", "metadata": {"uid": "u", "labels": live, "annotations": live}});
        let record = ObjectReference {
            labels: texts(&recorded),
            annotations: texts(&recorded),
            ..ObjectReference::default()
        };
        let terms =
            Terms { recorded: Some(&record), force_labels: forced, force_annotations: forced, ..TERMS };
        let merged = super::merge(object, terms, Some(&current));
        assert_eq!(labels(&merged), texts(&expected), "labels {want} {live}");
        let mut annotations = annotations(&merged);
        assert_eq!(annotations.remove("resources.gardener.cloud/origin").unwrap(), "garden/mr");
        assert!(annotations.remove("resources.gardener.cloud/description").is_some());
        assert_eq!(annotations, texts(&expected), "annotations {want} {live}");
    }
}

#[test]
fn live_references_are_always_dropped() {
    let key = "reference.resources.gardener.cloud/secret-12345678";
    let live = json!({"metadata": {"uid": "u", "annotations": {key: "old", "other": "1"}}});
    for (want, expected) in [(json!({}), None), (json!({key: "new"}), Some("new"))] {
        let object = json!({"metadata": {"annotations": want}});
        let merged = merge(&object, Some(&live));
        assert_eq!(merged["metadata"]["annotations"].get(key).and_then(Value::as_str), expected);
        assert_eq!(merged["metadata"]["annotations"]["other"], "1");
    }
}

#[test]
fn replicas() {
    let preserve = "resources.gardener.cloud/preserve-replicas";
    let (one, five) = (json!({"replicas": 1}), json!({"replicas": 5}));
    let table = [
        ("apps/v1", "Deployment", "", json!({}), five.clone()),
        ("apps/v1", "Deployment", "", one.clone(), one.clone()),
        ("apps/v1", "Deployment", preserve, one.clone(), five.clone()),
        ("extensions/v1beta1", "Deployment", "", json!({}), five.clone()),
        ("apps/v1", "StatefulSet", "", json!({}), five.clone()),
        ("apps/v1", "StatefulSet", preserve, one.clone(), five.clone()),
        ("apps/v1", "ReplicaSet", "", json!({}), json!({})),
        ("other/v1", "Deployment", preserve, one.clone(), one.clone()),
    ];
    for (api_version, kind, annotation, want, expected) in table {
        let got = spec(api_version, kind, annotation, want.clone(), five.clone());
        assert_eq!(got, expected, "{api_version} {kind} {annotation} {want}");
    }
    let want = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1}});
    let live = json!({"metadata": {"uid": "u"}, "spec": {"replicas": 5}});
    let merged = super::merge(want.clone(), Terms { autoscaled: true, ..TERMS }, Some(&live));
    assert_eq!(merged["spec"]["replicas"], 5);
    assert_eq!(super::merge(want.clone(), Terms { autoscaled: true, ..TERMS }, None)["spec"]["replicas"], 1);
}

#[test]
fn volume_claim_templates_stay() {
    let (a, b) = (json!({"volumeClaimTemplates": [{"a": 1}]}), json!({"volumeClaimTemplates": [{"b": 1}]}));
    assert_eq!(spec("apps/v1", "StatefulSet", "", a.clone(), b.clone()), b);
    assert_eq!(spec("apps/v1", "StatefulSet", "", a.clone(), json!({})), json!({}));
}

#[test]
fn restarts_and_sizes_of_pod_templates() {
    let preserve = "resources.gardener.cloud/preserve-resources";
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": "now", "other": "1"});
    let live = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [
        {"name": "a", "resources": {"requests": {"cpu": "2", "memory": "2Gi", "gpu": "2"}, "limits": {"memory": "4Gi"}}}]}});
    let want = json!({"spec": {"containers": [
        {"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "9"}}}, {"name": "b"}]}});
    let kept = json!([{"name": "a", "resources": {
        "requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "9", "memory": "4Gi"}}}, {"name": "b"}]);
    for (api_version, kind) in [
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("extensions/v1beta1", "DaemonSet"),
        ("batch/v1", "Job"),
    ] {
        let wrap = |t: &Value| json!({"template": t});
        let got = spec(api_version, kind, "", wrap(&want), wrap(&live))["template"].clone();
        let restarted = &got["metadata"]["annotations"];
        assert_eq!(*restarted, json!({"kubectl.kubernetes.io/restartedAt": "now"}), "{kind}");
        assert_eq!(got["spec"], want["spec"], "{kind}");
        let got = spec(api_version, kind, preserve, wrap(&want), wrap(&live))["template"].clone();
        assert_eq!(got["spec"]["containers"], kept, "{kind}");
    }
    let wrap = |t: &Value| json!({"jobTemplate": {"spec": {"template": t}}});
    let got = spec("batch/v1", "CronJob", preserve, wrap(&want), wrap(&live));
    assert_eq!(got["jobTemplate"]["spec"]["template"]["spec"]["containers"], kept);
    assert_eq!(spec("apps/v1", "Deployment", preserve, json!({}), json!({})), json!({}));
}

#[test]
fn jobs_keep_selector_and_labels() {
    let live = json!({"selector": {"s": 1}, "template": {"metadata": {"labels": {"uid": "1", "a": "0"}}}});
    let want = json!({"template": {"metadata": {"labels": {"a": "1"}}}});
    let expected =
        json!({"selector": {"s": 1}, "template": {"metadata": {"labels": {"uid": "1", "a": "1"}}}});
    assert_eq!(spec("batch/v1", "Job", "", want, live), expected);
}

#[test]
fn services() {
    let ip = "10.0.0.1";
    let table = [
        ("type defaults", json!({}), json!({"clusterIP": ip}), json!({"type": "ClusterIP", "clusterIP": ip})),
        (
            "headless on purpose",
            json!({"clusterIP": "None"}),
            json!({"clusterIP": ip}),
            json!({"type": "ClusterIP", "clusterIP": "None"}),
        ),
        (
            "from ExternalName",
            json!({"type": "ClusterIP"}),
            json!({"type": "ExternalName", "clusterIP": ip}),
            json!({"type": "ClusterIP"}),
        ),
        (
            "to ExternalName",
            json!({"type": "ExternalName", "externalName": "e"}),
            json!({"clusterIP": ip}),
            json!({"type": "ExternalName", "externalName": "e"}),
        ),
        (
            "no node ports",
            json!({"ports": [{"port": 80}]}),
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}),
            json!({"type": "ClusterIP", "ports": [{"port": 80}]}),
        ),
        (
            "node ports by number, by name, or desired",
            json!({"type": "NodePort", "ports": [{"port": 80, "name": "x"}, {"port": 444, "name": "https"},
                {"port": 22, "name": "ssh", "nodePort": 30000}, {"port": 1, "name": "new"}]}),
            json!({"ports": [{"port": 80, "name": "http", "nodePort": 30080},
                {"port": 443, "name": "https", "nodePort": 30443}, {"port": 22, "name": "ssh", "nodePort": 30022}]}),
            json!({"type": "NodePort", "ports": [{"port": 80, "name": "x", "nodePort": 30080},
                {"port": 444, "name": "https", "nodePort": 30443}, {"port": 22, "name": "ssh", "nodePort": 30000},
                {"port": 1, "name": "new"}]}),
        ),
        (
            "same number twice",
            json!({"type": "NodePort", "ports": [{"port": 53, "name": "tcp"}, {"port": 53, "name": "udp"}]}),
            json!({"ports": [{"port": 53, "name": "tcp", "nodePort": 1}, {"port": 53, "name": "udp", "nodePort": 2}]}),
            json!({"type": "NodePort", "ports": [
                {"port": 53, "name": "tcp", "nodePort": 1}, {"port": 53, "name": "udp", "nodePort": 2}]}),
        ),
        (
            "load balancer",
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}),
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerIP": "1.2.3.4",
                "healthCheckNodePort": 7, "clusterIP": ip}),
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerIP": "1.2.3.4",
                "healthCheckNodePort": 7, "clusterIP": ip}),
        ),
        (
            "load balancer that was not local",
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}),
            json!({"type": "LoadBalancer", "healthCheckNodePort": 7}),
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}),
        ),
        (
            "load balancer with a port of its own",
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 8}),
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 7}),
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 8}),
        ),
        (
            "load balancer, own address",
            json!({"type": "LoadBalancer", "loadBalancerIP": "5.6.7.8", "healthCheckNodePort": 1}),
            json!({"loadBalancerIP": "1.2.3.4", "healthCheckNodePort": 7}),
            json!({"type": "LoadBalancer", "loadBalancerIP": "5.6.7.8", "healthCheckNodePort": 1}),
        ),
    ];
    for (name, want, live, expected) in table {
        assert_eq!(spec("v1", "Service", "", want, live), expected, "{name}");
    }
    let new = json!({"apiVersion": "v1", "kind": "Service", "spec": {}});
    assert_eq!(merge(&new, None)["spec"], json!({"type": "ClusterIP"}));
}

#[test]
fn annotations_of_load_balancers_stay_even_if_forced() {
    let want = json!({"apiVersion": "v1", "kind": "Service"});
    let key = "loadbalancer.openstack.org/load-balancer-id";
    let live = json!({"metadata": {"uid": "u", "annotations": {key: "7", "other": "1"}}});
    let merged = super::merge(want.clone(), Terms { force_annotations: true, ..TERMS }, Some(&live));
    assert_eq!(merged["metadata"]["annotations"][key], "7");
    assert!(merged["metadata"]["annotations"].get("other").is_none());
    let want = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"annotations": {key: "8"}}});
    assert_eq!(merge(&want, Some(&live))["metadata"]["annotations"][key], "8");
}

#[test]
fn service_accounts_keep_secrets() {
    let want = json!({"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": [{"name": "mine"}]});
    let live = json!({"metadata": {"uid": "u"}, "secrets": [{"name": "token"}]});
    let merged = merge(&want, Some(&live));
    assert_eq!(merged["secrets"], json!([{"name": "token"}]));
    assert!(merged.get("imagePullSecrets").is_none());
    assert_eq!(merge(&want, None)["imagePullSecrets"], json!([{"name": "mine"}]));
}
