//! What messages repeat of a document.

use serde_json::{Value, json};

use super::super::load;
use super::{texts, with};

/// The end of each refused text.
const END: &str = "hunter2";

/// A long text that no rule accepts, with control characters at its start.
fn odd() -> String {
    format!("\u{1b}[2J\u{202e}{}{END}", "-x_".repeat(40))
}

/// An amount that is written with more digits than necessary.
fn long(sign: &str, end: &str) -> String {
    format!("{sign}{}{end}", "0".repeat(60))
}

/// All problems of a refused configuration, warnings included.
fn problems(changes: &[(&str, Value)]) -> String {
    texts(&load(&with(changes), "c.yaml").unwrap_err()).join("\n")
}

#[test]
fn no_message_repeats_a_long_text_or_obeys_its_control_characters() {
    let (at, configs) = ("seedConfig.spec", "settings.excessCapacityReservation.configs");
    let tolerate = |field: &str, value: &str| {
        let mut toleration = json!({"key": "a", "operator": "Equal", "value": "b"});
        toleration[field] = json!(value);
        json!([{"resources": {"cpu": "1"}, "tolerations": [toleration]}])
    };
    let zone = json!([{"name": odd()}]);
    let selector = |value: Value| json!([{ "matchLabels": value }]);
    let operator = json!([{"matchExpressions": [{"key": "a", "operator": odd()}]}]);
    let reference = json!({"apiVersion": odd(), "kind": odd(), "namespace": odd(), "name": odd()});
    let named = |value: Value| json!({ (odd()): value });
    let selectors = "controllers.networkPolicy.additionalNamespaceSelectors".to_owned();
    let spec = |field: &str| format!("{at}.{field}");
    let table = [
        ("logLevel".to_owned(), json!(odd())),
        ("apiVersion".to_owned(), json!(odd())),
        ("edge.stateDir".to_owned(), json!(odd())),
        ("edge.workers".to_owned(), json!(odd())),
        ("edge".to_owned(), named(json!(1))),
        ("edge.etcd.snapshots.schedule".to_owned(), json!(odd())),
        ("edge.etcd.snapshots".to_owned(), json!({"store": odd(), "directory": "/a"})),
        ("edge.etcd.main.storageClass".to_owned(), json!(odd())),
        ("edge.exposure".to_owned(), json!({"type": odd(), "address": "10.0.0.7"})),
        ("edge.exposure.address".to_owned(), json!(odd())),
        ("edge.exposure.annotations".to_owned(), named(json!("a"))),
        ("sni.ingress.serviceExternalIP".to_owned(), json!(odd())),
        ("leaderElection.leaseDuration".to_owned(), json!(odd())),
        ("leaderElection.retryPeriod".to_owned(), json!(odd())),
        ("featureGates".to_owned(), named(json!(true))),
        ("resources.reserved".to_owned(), named(json!("1"))),
        ("resources".to_owned(), json!({"reserved": {"a": "1"}, "capacity": {"a": odd()}})),
        ("resources".to_owned(), json!({"reserved": {"a": "1"}, "capacity": {"a": [odd()]}})),
        ("resources.capacity".to_owned(), named(json!("-1"))),
        (selectors.clone(), selector(named(json!("a")))),
        (selectors.clone(), selector(json!({"a": odd()}))),
        (selectors, operator),
        ("seedConfig.metadata.name".to_owned(), json!(odd())),
        ("seedConfig.metadata.labels".to_owned(), json!({"a": odd()})),
        (spec("provider.zones"), json!([odd(), odd()])),
        (spec("taints"), json!([{"key": odd()}, {"key": odd()}])),
        (spec("networks.pods"), json!(odd())),
        (spec("networks.ipFamilies"), json!([odd(), odd()])),
        (spec("dns.internal.domain"), json!(odd())),
        (spec("dns.internal.credentialsRef"), reference.clone()),
        (spec("extensions"), json!([{"type": odd()}])),
        (spec("resources"), json!([{"name": "a", "resourceRef": reference}])),
        (spec("settings.loadBalancerServices.zones"), zone),
        (spec("settings.verticalPodAutoscaler.featureGates"), named(json!(true))),
        (spec("settings.verticalPodAutoscaler.maxAllowed"), named(json!("1"))),
        (spec(configs), tolerate("key", &odd())),
        (spec(configs), tolerate("operator", &odd())),
        (spec(configs), tolerate("value", &odd())),
        (spec(configs), tolerate("effect", &odd())),
    ];
    for (path, value) in table {
        let found = problems(&[(&path, value)]);
        assert!(!found.contains(END), "{path}: {found}");
        let is_escaped = !found.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}');
        assert!(is_escaped, "{path}: {found:?}");
    }
    let key = json!(odd());
    let twice = format!("{{\"logLevel\": \"info\", {key}: 1, {key}: 2}}");
    let found = texts(&load(&twice, "c.yaml").unwrap_err()).join("\n");
    assert!(found.contains("is written twice") && !found.contains(END), "{found}");
}

#[test]
fn no_message_repeats_an_amount_with_endless_digits() {
    let lease = |field: &str| format!("leaderElection.{field}");
    let resources = json!({"reserved": {"a": long("", "7654321")}, "capacity": {"a": long("", "1")}});
    let table = [
        ("controllers.shoot.syncPeriod".to_owned(), json!(long("-", "7654321s"))),
        ("controllers.seed.syncPeriod".to_owned(), json!(long("", "7654321s"))),
        (lease("leaseDuration"), json!(long("", "1.7654321s"))),
        (lease("renewDeadline"), json!(long("", "1.7654321s"))),
        ("edge.chartCache.maxSize".to_owned(), json!(long("-", "7654321"))),
        ("resources".to_owned(), resources),
        (
            "seedConfig.spec.settings.excessCapacityReservation.configs".to_owned(),
            json!([{"resources": {"pods": long("", "1.7654321")}}]),
        ),
    ];
    for (path, value) in table {
        let found = problems(&[(&path, value)]);
        assert!(!found.contains("7654321"), "{path}: {found}");
    }
}

#[test]
fn no_message_repeats_a_name_of_a_broken_text() {
    for text in ["edge: *hunter2", "? {password: hunter2}\n: 1", "edge: !!int hunter2"] {
        let found = texts(&load(text, "c.yaml").unwrap_err());
        assert!(found.len() == 1 && found[0].starts_with("c.yaml: line 1"), "{found:?}");
        assert!(!found[0].contains(END), "{found:?}");
    }
}
