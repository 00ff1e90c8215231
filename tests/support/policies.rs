//! Namespaces, Services and pods for which NetworkPolicies are written, and their names.

use serde_json::{Value, json};

pub const SHOOT: &str = "shoot--p--s1";
pub const EXTENSION: &str = "extension-lab";
pub const CENTRAL: [&str; 6] = [
    "allow-to-blocked-cidrs",
    "allow-to-dns",
    "allow-to-private-networks",
    "allow-to-public-networks",
    "allow-to-runtime-apiserver",
    "deny-all",
];
/// What the objects of [`plane`] request besides, in the namespace of the Shoot and in that of the extension.
pub const OF_SHOOT: [&str; 5] = [
    "egress-to-extension-lab-webhook-tcp-10250-via-all-webhook-targets",
    "egress-to-kube-apiserver-tcp-443",
    "ingress-to-kube-apiserver-exposure-from-world",
    "ingress-to-kube-apiserver-tcp-443",
    "ingress-to-kube-apiserver-tcp-443-from-extension-lab",
];
pub const OF_EXTENSION: [&str; 2] = [
    "egress-to-shoot--p--s1-kube-apiserver-tcp-443",
    "ingress-to-webhook-tcp-10250-via-all-webhook-targets-from-shoot--p--s1",
];

pub fn namespace(name: &str, role: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"gardener.cloud/role": role}}})
}

pub fn cluster(services: &str) -> Value {
    let part = |kind: &str| json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": kind, "metadata": {"name": "x"}});
    let mut shoot = part("Shoot");
    shoot["spec"] = json!({"networking": {"services": services}});
    json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster", "metadata": {"name": SHOOT},
        "spec": {"cloudProfile": part("CloudProfile"), "seed": part("Seed"), "shoot": shoot}})
}

pub fn service(namespace: &str, name: &str, app: &str, target: u16, annotations: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
        "spec": {"selector": {"app": app}, "ports": [{"port": 443, "protocol": "TCP", "targetPort": target}]}})
}

/// A pod that carries labels `networking.resources.gardener.cloud/to-...`.
pub fn pod(namespace: &str, name: &str, asked: &[&str]) -> Value {
    let mut labels = json!({"app": name});
    for label in asked {
        labels[format!("networking.resources.gardener.cloud/to-{label}")] = json!("allowed");
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}})
}

/// A control plane and an extension that connect to each other.
pub fn plane() -> Vec<Value> {
    let annotation = |name: &str| format!("networking.resources.gardener.cloud/{name}");
    let mut server = json!({});
    server[annotation("namespace-selectors")] =
        json!(r#"[{"matchLabels":{"gardener.cloud/role":"extension"}}]"#);
    server[annotation("pod-label-selector-namespace-alias")] = json!("all-shoots");
    let mut exposure = json!({});
    exposure[annotation("from-world-to-ports")] = json!(r#"[{"protocol":"TCP","port":443}]"#);
    let mut webhook = json!({});
    webhook[annotation("namespace-selectors")] =
        json!(r#"[{"matchLabels":{"gardener.cloud/role":"shoot"}}]"#);
    webhook[annotation("pod-label-selector-namespace-alias")] = json!("extensions");
    webhook[annotation("from-all-webhook-targets-allowed-ports")] =
        json!(r#"[{"protocol":"TCP","port":10250}]"#);
    vec![
        namespace(SHOOT, "shoot"),
        namespace(EXTENSION, "extension"),
        service(SHOOT, "kube-apiserver", "server", 443, &server),
        service(SHOOT, "kube-apiserver-exposure", "server", 443, &exposure),
        service(EXTENSION, "webhook", "extension", 10250, &webhook),
        pod(SHOOT, "server", &["extensions-all-webhook-targets"]),
        pod(SHOOT, "manager", &["kube-apiserver-tcp-443"]),
        pod(EXTENSION, "extension", &["all-shoots-kube-apiserver-tcp-443"]),
    ]
}
