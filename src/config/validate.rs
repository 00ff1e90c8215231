//! Rules across fields, and defaults that depend on other fields. They run on a document with correct types and all
//! defaults.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::base::sorted::SortedMap;
use crate::format::address::flaw;
use crate::format::yaml::Repeated;

use super::read::FieldReader;
use super::schema::{API_VERSION, KIND};
use super::shown::{quoted, shown};
use super::{ConfigProblem, ConfigProblems, scalar};

/// Defaults that depend on other fields.
pub(super) fn derive_defaults(document: &mut Value) {
    let enabled = Value::Bool(FieldReader::new(document).flag("logging.enabled"));
    for backend in ["vali", "victoriaLogs", "shootEventLogging"] {
        set_absent(document, &["logging", backend, "enabled"], enabled.clone());
    }
    for handler in
        document.get_mut("exposureClassHandlers").and_then(Value::as_array_mut).into_iter().flatten()
    {
        let name = FieldReader::new(handler).str("name").to_owned();
        set_absent(handler, &["sni", "ingress", "namespace"], format!("istio-ingress-handler-{name}").into());
    }
}

fn set_absent(value: &mut Value, path: &[&str], to: Value) {
    let Some(map) = value.as_object_mut() else { return };
    match path {
        [] => {}
        [key] => {
            map.entry(*key).or_insert(to);
        }
        [key, rest @ ..] => {
            set_absent(map.entry(*key).or_insert_with(|| Value::Object(Default::default())), rest, to);
        }
    }
}

/// Checks what the defaults would hide: apiVersion and kind, and keys that occur twice, of which all but the
/// last value are lost.
pub(super) fn check_text(document: &Value, repeated: &[Repeated], problems: &mut ConfigProblems) {
    for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let value = document.get(key).unwrap_or_default();
        if value.is_null() || value == "" {
            problems.error(key, format!("must be given: {expected}"));
        }
    }
    for Repeated { key, lines: (first, second) } in repeated {
        let message =
            format!("is written twice, in lines {first} and {second}: the first would be lost. Make it one");
        problems.error(&shown(key), message);
    }
}

/// Checks everything except the Seed.
pub(super) fn check(document: &Value, problems: &mut ConfigProblems) {
    let r = FieldReader::new(document);
    rotation(r, problems);
    bootstrap(r.at("gardenClientConnection"), r.at("edge"), problems);
    leader_election(r.at("leaderElection"), problems);
    backup_entry(r.at("controllers.backupEntry"), problems);
    resources(r.at("resources"), problems);
    listeners(r.at("server"), problems);
    registries(r.at("edge"), problems);
    if r.str("edge.components.profile") == "full" {
        let message =
            "full is not available yet: this version installs what the applier and Shoots need; write core";
        problems.error("edge.components.profile", message);
    }
    heartbeat(r, problems);
    exposure(r.at("edge.exposure"), problems);
    snapshots(r, problems);
}

fn rotation(r: FieldReader<'_>, problems: &mut ConfigProblems) {
    let path = "gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMin";
    let (min, max) =
        (r.count(path), r.count("gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMax"));
    if min >= max {
        problems.error(path, format!("must be less than autoRotationJitterPercentageMax: {min} and {max}"));
    }
}

fn bootstrap(r: FieldReader<'_>, edge: FieldReader<'_>, problems: &mut ConfigProblems) {
    if !r.at("bootstrapKubeconfig").is_absent() && r.at("kubeconfigSecret").is_absent() {
        let message =
            "has no effect without kubeconfigSecret, which is where the agent's own kubeconfig is kept";
        problems.warning("gardenClientConnection.bootstrapKubeconfig", message);
    }
    if !edge.at("bootstrap.kubeconfig").is_absent() && r.at("kubeconfigSecret").is_absent() {
        let message = "has no effect without gardenClientConnection.kubeconfigSecret";
        problems.warning("edge.bootstrap.kubeconfig", message);
    }
}

fn leader_election(r: FieldReader<'_>, problems: &mut ConfigProblems) {
    if !r.flag("leaderElect") {
        return;
    }
    let (lease, renew, retry) =
        (r.duration("leaseDuration"), r.duration("renewDeadline"), r.duration("retryPeriod"));
    if lease <= renew {
        let [lease, renew] = ["leaseDuration", "renewDeadline"].map(|field| shown(r.str(field)));
        problems
            .error("leaderElection.leaseDuration", format!("must exceed renewDeadline: {lease} and {renew}"));
    }
    // The Go library refuses smaller values: attempts are spread by a factor of 1.2.
    if renew <= retry.mul_f64(1.2) {
        let [renew, retry] = ["renewDeadline", "retryPeriod"].map(|field| shown(r.str(field)));
        problems.error(
            "leaderElection.renewDeadline",
            format!("must exceed 1.2 times retryPeriod: {renew} and {retry}"),
        );
    }
}

fn backup_entry(r: FieldReader<'_>, problems: &mut ConfigProblems) {
    if r.items("deletionGracePeriodShootPurposes").next().is_some()
        && r.count("deletionGracePeriodHours") == 0
    {
        let path = "controllers.backupEntry.deletionGracePeriodShootPurposes";
        problems.error(path, "needs deletionGracePeriodHours above 0");
    }
}

fn resources(r: FieldReader<'_>, problems: &mut ConfigProblems) {
    let empty = serde_json::Map::new();
    let map = |key: &str| r.at(key).value().as_object().unwrap_or(&empty).iter().collect::<SortedMap<_, _>>();
    let capacity = map("capacity");
    for (name, reserved) in map("reserved") {
        let name_shown = shown(name);
        let path = format!("resources.reserved.{name_shown}");
        match capacity.get(name) {
            None => problems.error(&path, format!("needs resources.capacity.{name_shown}")),
            Some(capacity) if exceeds(reserved, capacity) => {
                let amount = |value: &Value| value.as_str().map_or_else(|| value.to_string(), quoted);
                let (reserved, capacity) = (amount(reserved), amount(capacity));
                problems.error(&path, format!("must not exceed the capacity: {reserved} and {capacity}"));
            }
            Some(_) => {}
        }
    }
}

/// Whether both are quantities, and the first is the larger one.
fn exceeds(reserved: &Value, capacity: &Value) -> bool {
    let capacity = scalar::quantity_value(capacity);
    capacity.is_some_and(|capacity| scalar::quantity_value(reserved) > Some(capacity))
}

fn heartbeat(r: FieldReader<'_>, problems: &mut ConfigProblems) {
    let path = "edge.heartbeat.intervalMax";
    let Some(max) = r.optional_duration(path) else { return };
    let resync_s = r.count("controllers.seed.leaseResyncSeconds");
    if max < Duration::from_secs(resync_s.into()) {
        let message = format!("must not be less than controllers.seed.leaseResyncSeconds ({resync_s})");
        problems.error(path, message);
    }
}

fn listeners(server: FieldReader<'_>, problems: &mut ConfigProblems) {
    let [probes, metrics] = ["healthProbes", "metrics"].map(|name| server.at(name));
    let address = |r: FieldReader<'_>| r.str("bindAddress").parse::<IpAddr>().ok();
    let takes_all = |r: FieldReader<'_>| address(r).is_none_or(|address| address.is_unspecified());
    let overlap = takes_all(probes) || takes_all(metrics) || address(probes) == address(metrics);
    let port = probes.count("port");
    if overlap && port == metrics.count("port") {
        let message =
            format!("must differ from server.healthProbes.port: only one of them can listen on {port}");
        problems.error("server.metrics.port", message);
    }
}

fn registries(edge: FieldReader<'_>, problems: &mut ConfigProblems) {
    let mut hosts = crate::base::sorted::SortedSet::new();
    for (index, r) in edge.items("registries").enumerate() {
        let path = |field: &str| format!("edge.registries[{index}].{field}");
        let host = r.str("host");
        if host.contains("://") || host.contains(['/', '@', ' ']) {
            problems.error(&path("host"), "must be a host, with a port if it is not 443: no scheme, no path");
        }
        if !hosts.insert(host.to_ascii_lowercase()) {
            problems.error(&path("host"), "occurs twice; put everything about a host into one item");
        }
        for (at, mirror) in r.items("mirrors").enumerate() {
            if !mirror.value().as_str().is_some_and(is_mirror) {
                let message =
                    "must be a URL such as https://mirror.example.org:5000/path, without user and query";
                problems.error(&path(&format!("mirrors[{at}]")), message);
            }
        }
        if r.str("certificateFile").is_empty() != r.str("keyFile").is_empty() {
            problems.error(&path("certificateFile"), "needs keyFile, and keyFile needs certificateFile");
        }
        if r.items("rewrites").next().is_some() && r.items("mirrors").next().is_none() {
            problems.warning(&path("rewrites"), "has no effect without mirrors");
        }
    }
}

fn exposure(r: FieldReader<'_>, problems: &mut ConfigProblems) {
    let (address, kind) = (r.str("address"), r.str("type"));
    if !address.is_empty()
        && address.parse::<IpAddr>().is_err()
        && let Some(complaint) = scalar::dns_name_complaint(address)
    {
        let message = format!("must be an IP address or a DNS name without scheme and port: {complaint}");
        problems.error("edge.exposure.address", message);
    }
    if let Some(flaw) = address.parse().ok().and_then(flaw) {
        let message = format!(
            "{address} {flaw}: clients do not reach Shoots there; write an address that leads to the nodes, or leave it out"
        );
        problems.warning("edge.exposure.address", message);
    }
    if !address.is_empty() && kind != "NodePort" {
        let message =
            format!("has no effect with type {}, whose address is that of the Service", shown(kind));
        problems.warning("edge.exposure.address", message);
    }
}

fn snapshots(document: FieldReader<'_>, problems: &mut ConfigProblems) {
    let r = document.at("edge.etcd.snapshots");
    let (store, has_directory) = (r.str("store"), !r.str("directory").is_empty());
    let mut error =
        |field: &str, message: &str| problems.error(&format!("edge.etcd.snapshots.{field}"), message);
    if store != "None" && document.str("edge.etcd.mode") == "Druid" {
        error("store", "must be None with edge.etcd.mode Druid: etcd-druid takes its own snapshots");
    }
    match store {
        "Directory" if !has_directory => {
            error("directory", "must name a directory of the node with store Directory");
        }
        "S3" if document.at("seedConfig.spec.backup").is_absent() => {
            error("store", "S3 is the bucket of the Seed: add seedConfig.spec.backup, or write Directory");
        }
        _ => {}
    }
    if store != "Directory" && has_directory {
        let message = format!("has no effect with store {}: write store: Directory", shown(store));
        problems.warning("edge.etcd.snapshots.directory", message);
    }
}

fn is_mirror(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")) else {
        return false;
    };
    let is_odd = rest.contains("://") || rest.contains(['@', '?', '#', ' ', '\\']);
    !rest.is_empty() && !rest.starts_with('/') && !is_odd
}

impl ConfigProblems {
    pub(super) fn error(&mut self, path: &str, message: impl Into<String>) {
        self.errors.push(ConfigProblem::new(path, message));
    }

    pub(super) fn warning(&mut self, path: &str, message: impl Into<String>) {
        self.warnings.push(ConfigProblem::new(path, message));
    }
}
