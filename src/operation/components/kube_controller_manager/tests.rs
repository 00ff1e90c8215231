use super::*;
use crate::components::apply;
use crate::format::yaml;

fn golden(text: &str) -> Value {
    yaml::parse(text).unwrap()
}

fn deployment(kubernetes: &Value, version: &str) -> Value {
    let secrets = SortedMap::from([
        ("ca", "ca-bundle-a90a5ae1".to_owned()),
        ("ca-client", "ca-client-58f8e9ac".to_owned()),
        ("service-account-key", "service-account-key-c37a87f6".to_owned()),
        ("server", "kube-controller-manager-server-52ceeefd".to_owned()),
    ]);
    fill(&Input {
        namespace: "shoot--p--s2",
        kubernetes,
        version,
        image: "registry.k8s.io/kube-controller-manager:v1.34.3",
        replicas: 1,
        services: &["100.64.0.0/13".to_owned()],
        secrets: &secrets,
        generic_kubeconfig: "generic-token-kubeconfig-05fbfdb5",
    })
    .unwrap()
}

fn command(deployment: &Value) -> SortedSet<String> {
    let list = deployment.pointer("/spec/template/spec/containers/0/command").unwrap().as_array().unwrap();
    list.iter().map(|argument| argument.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_deployment_is_the_golden_one() {
    let path = "/spec/template/spec/containers/0/command";
    let mut golden = golden(include_str!(
        "../../../../tests/fixtures/control-plane/deployment-kube-controller-manager.yaml"
    ));
    let mut ours = deployment(&json!({}), "1.34.3");
    assert_eq!(command(&ours), command(&golden));
    // The program ignores the order of arguments.
    *golden.pointer_mut(path).unwrap() = Value::Null;
    *ours.pointer_mut(path).unwrap() = Value::Null;
    assert_eq!(apply::patch(&golden, &ours, Keep::default()), None);
    // Labels and annotations of other writers would stay, so they are compared separately. The server writes the
    // revision.
    assert_eq!(ours["metadata"]["labels"], golden["metadata"]["labels"]);
    assert_eq!(ours["metadata"]["annotations"], Value::Null);
}

#[test]
fn service_and_budget_are_the_golden_ones() {
    let goldens = [
        include_str!("../../../../tests/fixtures/control-plane/service-kube-controller-manager.yaml"),
        include_str!(
            "../../../../tests/fixtures/control-plane/poddisruptionbudget-kube-controller-manager.yaml"
        ),
    ];
    for (ours, text) in others("shoot--p--s2").iter().zip(goldens) {
        let golden = golden(text);
        assert_eq!(apply::patch(&golden, ours, Keep::default()), None);
        assert_eq!(ours["metadata"], golden["metadata"]);
    }
}

#[test]
fn controllers_follow_the_version_and_the_apis() {
    let table = [
        ("1.32.13", "device-taint-eviction-controller", false),
        ("1.33.7", "device-taint-eviction-controller", true),
        ("1.33.7", "podcertificaterequest-cleaner-controller", false),
        ("1.34.3", "podcertificaterequest-cleaner-controller", true),
        ("1.35.4", "podgroup-protection-controller", false),
        ("1.36.1", "podgroup-protection-controller", true),
        ("1.36.1", "resourcepoolstatusrequest-controller", true),
        ("1.32.13", "deployment", true),
    ];
    for (version, name, is_off) in table {
        let all = controllers(version, &Value::Null).unwrap();
        assert_eq!(all.split(',').any(|found| found == format!("-{name}")), is_off, "{version} {name}");
    }
    let on = json!({"kubeAPIServer": {"runtimeConfig": {"apps/v1": true}}});
    assert!(!controllers("1.34.3", &on).unwrap().contains("-deployment"));
    assert!(controllers("x", &on).is_err());
    let gates = json!({"kubeControllerManager": {"featureGates": {"A": true}}});
    assert!(command(&deployment(&gates, "1.34.3")).contains("--feature-gates=A=true"));
}
