use super::*;
use crate::components::apply::{self, Keep};
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
    fill(&input(kubernetes, version, &secrets, &["100.64.0.0/13".to_owned()])).unwrap()
}

fn input<'a>(
    kubernetes: &'a Value,
    version: &'a str,
    secrets: &'a SortedMap<&'static str, String>,
    services: &'a [String],
) -> Input<'a> {
    Input {
        namespace: "shoot--p--s2",
        kubernetes,
        version,
        image: "registry.k8s.io/kube-controller-manager:v1.34.3",
        replicas: 1,
        services,
        secrets,
        generic_kubeconfig: "generic-token-kubeconfig-05fbfdb5",
        pods: None,
    }
}

fn command(deployment: &Value) -> SortedSet<String> {
    let list = deployment.pointer("/spec/template/spec/containers/0/command").unwrap().as_array().unwrap();
    list.iter().map(|argument| argument.as_str().unwrap().to_owned()).collect()
}

fn assert_golden(mut golden: Value, mut ours: Value) {
    let path = "/spec/template/spec/containers/0/command";
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
fn the_deployment_is_the_golden_one() {
    let golden = golden(include_str!(
        "../../../../tests/fixtures/control-plane/deployment-kube-controller-manager.yaml"
    ));
    assert_golden(golden, deployment(&json!({}), "1.34.3"));
}

#[test]
fn with_workers_it_is_the_golden_one_too() {
    let golden = golden(include_str!(
        "../../../../tests/fixtures/control-plane/workers/deployment-kube-controller-manager.yaml"
    ));
    let secret = |volume: &str| {
        let volumes = golden.pointer("/spec/template/spec/volumes").unwrap().as_array().unwrap();
        let found = volumes.iter().find(|entry| entry["name"] == volume).unwrap();
        found["secret"]["secretName"].as_str().unwrap().to_owned()
    };
    let volumes = ["ca", CA_CLIENT, CA_KUBELET, SERVICE_ACCOUNT_KEY, "server"];
    let secrets: SortedMap<_, _> = volumes.map(|volume| (volume, secret(volume))).into();
    let (pods, services) = (["100.96.0.0/11".to_owned()], ["100.64.0.0/13".to_owned()]);
    let kubernetes =
        json!({"kubeControllerManager": {"nodeCIDRMaskSize": 24, "nodeMonitorGracePeriod": "40s"}});
    let kubeconfig = golden.pointer("/spec/template/spec/volumes").unwrap().as_array().unwrap();
    let kubeconfig = kubeconfig.iter().find(|entry| entry["name"] == "kubeconfig").unwrap();
    let kubeconfig = kubeconfig["projected"]["sources"][0]["secret"]["name"].as_str().unwrap();
    let ours = fill(&Input {
        namespace: "shoot--p--w4",
        pods: Some(&pods),
        generic_kubeconfig: kubeconfig,
        ..input(&kubernetes, "1.34.3", &secrets, &services)
    });
    assert_golden(golden.clone(), ours.unwrap());
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
    let of =
        |version: &str, kubernetes: &Value| controllers(&input(kubernetes, version, &SortedMap::new(), &[]));
    for (version, name, is_off) in table {
        let all = of(version, &Value::Null).unwrap();
        assert_eq!(all.split(',').any(|found| found == format!("-{name}")), is_off, "{version} {name}");
    }
    let on = json!({"kubeAPIServer": {"runtimeConfig": {"apps/v1": true}}});
    assert!(!of("1.34.3", &on).unwrap().contains("-deployment"));
    assert!(of("x", &on).is_err());
    let gates = json!({"kubeControllerManager": {"featureGates": {"A": true}}});
    assert!(command(&deployment(&gates, "1.34.3")).contains("--feature-gates=A=true"));
}
