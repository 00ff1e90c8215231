//! The arguments that depend on the Shoot.

use serde_json::Value;

use super::super::apis;
use super::super::server_addition::ServerAddition;
use super::{CA_KUBELET_PATH, Input, KUBELET_CLIENT_PATH, WILDCARD_PATH, settings};
use crate::api::meta::text;
use crate::components::content::{CIPHER_SUITES, switches};
use crate::format::duration;

/// Fields of `spec.kubernetes.kubeAPIServer` that map to arguments unchanged.
const PLAIN: [(&str, &str); 8] = [
    ("/defaultNotReadyTolerationSeconds", "default-not-ready-toleration-seconds"),
    ("/defaultUnreachableTolerationSeconds", "default-unreachable-toleration-seconds"),
    ("/serviceAccountConfig/extendTokenExpiration", "service-account-extend-token-expiration"),
    ("/requests/maxNonMutatingInflight", "max-requests-inflight"),
    ("/requests/maxMutatingInflight", "max-mutating-requests-inflight"),
    ("/logging/httpAccessVerbosity", "vmodule=httplog"),
    ("/logging/verbosity", "v"),
    ("/watchCacheSizes/default", "default-watch-cache-size"),
];

/// Fields that are durations.
const DURATIONS: [(&str, &str); 2] = [
    ("/eventTTL", "event-ttl"),
    ("/serviceAccountConfig/maxTokenExpiration", "service-account-max-token-expiration"),
];

/// The arguments that the skeleton does not contain.
pub(super) fn of(input: &Input<'_>) -> Vec<String> {
    let server = &input.kubernetes["kubeAPIServer"];
    let mut all = vec![
        CIPHER_SUITES.to_owned(),
        format!("--external-hostname={}", input.external_hostname),
        format!("--service-cluster-ip-range={}", input.services.join(",")),
        format!("--api-audiences={}", audiences(server).join(",")),
    ];
    let usual = format!("https://{}", input.external_hostname);
    let issuers = issuers(server, input.managed_issuer, &usual);
    all.extend(issuers.into_iter().map(|issuer| format!("--service-account-issuer={issuer}")));
    all.extend(input.managed_issuer.map(|issuer| format!("--service-account-jwks-uri={issuer}/jwks")));
    all.extend(input.wildcard.map(|wildcard| {
        format!("--tls-sni-cert-key={WILDCARD_PATH}/tls.crt,{WILDCARD_PATH}/tls.key:{}", wildcard.host)
    }));
    all.extend(input.advertise_address.map(|address| format!("--advertise-address={address}")));
    all.extend((!input.writes_endpoints).then(|| "--endpoint-reconciler-type=none".to_owned()));
    all.extend(switches("runtime-config", &apis::switched(server, input.nodes.is_some())));
    all.extend(switches("feature-gates", &server["featureGates"]));
    for (pointer, flag) in PLAIN {
        all.extend(plain(server.pointer(pointer)).map(|value| format!("--{flag}={value}")));
    }
    if server.pointer("/logging/verbosity").is_none_or(Value::is_null) {
        all.push("--v=2".to_owned());
    }
    for (pointer, flag) in DURATIONS {
        let value = server.pointer(pointer).and_then(Value::as_str);
        // The garden rejects invalid durations.
        all.extend(value.map(|value| {
            let value = duration::parse_nanos(value).map_or(value.to_owned(), duration::format_nanos);
            format!("--{flag}={value}")
        }));
    }
    let tls = server["tlsMinVersion"].as_str();
    all.extend(tls.map(|version| format!("--tls-min-version={version}")));
    all.extend(watch_cache(server));
    let (enabled, disabled) = settings::plugins(server);
    let names = |plugins: &[&Value]| plugins.iter().map(|p| text(&p["name"])).collect::<Vec<_>>().join(",");
    let enabled: Vec<&Value> = enabled.iter().collect();
    all.push(format!("--enable-admission-plugins={}", names(&enabled)));
    if !disabled.is_empty() {
        let disabled: Vec<&Value> = disabled.iter().collect();
        all.push(format!("--disable-admission-plugins={}", names(&disabled)));
    }
    all.extend(input.nodes.into_iter().flat_map(of_nodes));
    all
}

/// The arguments for kubelets, and those of other components.
fn of_nodes(additions: &[ServerAddition]) -> Vec<String> {
    let mut all = vec![
        "--allow-privileged=true".to_owned(),
        "--kubelet-preferred-address-types=InternalIP,Hostname,ExternalIP".to_owned(),
        format!("--kubelet-certificate-authority={CA_KUBELET_PATH}/bundle.crt"),
        format!("--kubelet-client-certificate={KUBELET_CLIENT_PATH}/tls.crt"),
        format!("--kubelet-client-key={KUBELET_CLIENT_PATH}/tls.key"),
    ];
    all.extend(additions.iter().flat_map(|addition| addition.arguments.clone()));
    all
}

/// A number or a boolean.
fn plain(value: Option<&Value>) -> Option<String> {
    value.filter(|value| value.is_number() || value.is_boolean()).map(Value::to_string)
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn audiences(server: &Value) -> Vec<&str> {
    let mut all = texts(&server["apiAudiences"]);
    if all.is_empty() {
        all.push("kubernetes");
    }
    if !all.contains(&"gardener") {
        all.push("gardener");
    }
    all
}

/// The first issuer signs; tokens of the others are accepted. The default issuer stays accepted when the
/// Shoot names another one.
fn issuers<'a>(server: &'a Value, managed: Option<&'a str>, usual: &'a str) -> Vec<&'a str> {
    let account = &server["serviceAccountConfig"];
    let mut all = vec![managed.or(account["issuer"].as_str()).unwrap_or(usual)];
    for other in texts(&account["acceptedIssuers"]).into_iter().chain([usual]) {
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

fn watch_cache(server: &Value) -> Option<String> {
    let sizes = server["watchCacheSizes"]["resources"].as_array().filter(|list| !list.is_empty())?;
    let one = |entry: &Value| {
        let (resource, group) = (text(&entry["resource"]), text(&entry["apiGroup"]));
        let dot = if group.is_empty() { "" } else { "." };
        format!("{resource}{dot}{group}#{}", entry["size"])
    };
    Some(format!("--watch-cache-sizes={}", sizes.iter().map(one).collect::<Vec<_>>().join(",")))
}
