//! Discovery documents, and the version of the server.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::{Kind, Kinds};

/// `GET /version`.
pub fn version(git: &str) -> Value {
    let mut numbers = git.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
    json!({"major": major, "minor": minor, "gitVersion": git, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2025-01-01T00:00:00Z", "goVersion": "go1.24", "compiler": "gc", "platform": "linux/amd64"})
}

/// `GET /api`.
pub fn core_versions(address: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]})
}

fn group(name: &str, versions: &[String]) -> Value {
    let version = |v: &String| json!({"groupVersion": format!("{name}/{v}"), "version": v});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions[0]})
}

/// `GET /apis`; an aggregated server has no groups of reviews.
pub fn groups(kinds: &Kinds, with_reviews: bool) -> Value {
    let all = kinds.groups();
    let mut groups: Vec<Value> =
        all.iter().filter(|(g, _)| !g.is_empty()).map(|(g, v)| group(g, v)).collect();
    let reviews = if with_reviews { &["authorization.k8s.io", "authentication.k8s.io"][..] } else { &[] };
    groups.extend(reviews.iter().map(|g| group(g, &["v1".to_owned()])));
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `GET /apis/<group>`.
pub fn one_group(kinds: &Kinds, name: &str) -> Option<Value> {
    let mut found = group(name, kinds.groups().get(name)?);
    found["kind"] = "APIGroup".into();
    found["apiVersion"] = "v1".into();
    Some(found)
}

fn kinds_of<'a>(kinds: &'a Kinds, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Kind>> {
    kinds.all().filter(move |k| k.group == group && k.versions.iter().any(|v| v == version))
}

/// `GET /apis/<group>/<version>` and `GET /api/v1`.
pub fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in kinds_of(kinds, group, version) {
        let mut resource = json!({"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": kind.verbs()});
        if kind.is_in_all {
            resource["categories"] = json!(["all"]);
        }
        if !kind.short.is_empty() {
            resource["shortNames"] = json!(kind.short);
        }
        resources.push(resource);
        for (sub, name, verbs) in subresources(kind) {
            let mut resource = json!({"name": format!("{}/{sub}", kind.plural), "singularName": "",
                "namespaced": kind.namespaced, "kind": name, "verbs": verbs});
            if let Some((group, version)) = home_of(&name, kind) {
                (resource["group"], resource["version"]) = (group.into(), version.into());
            }
            resources.push(resource);
        }
    }
    for (name, kind) in reviews(group) {
        resources.push(
            json!({"name": name, "singularName": kind.to_lowercase(), "namespaced": false, "kind": kind,
            "verbs": ["create"]}),
        );
    }
    resources.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!resources.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
    })
}

fn reviews(group: &str) -> &'static [(&'static str, &'static str)] {
    match group {
        "authorization.k8s.io" => &[
            ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
            ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
            ("subjectaccessreviews", "SubjectAccessReview"),
        ],
        "authentication.k8s.io" => {
            &[("tokenreviews", "TokenReview"), ("selfsubjectreviews", "SelfSubjectReview")]
        }
        _ => &[],
    }
}

/// Name, kind and verbs of each subresource.
fn subresources(kind: &Kind) -> Vec<(&'static str, String, &'static [&'static str])> {
    const CHANGE: &[&str] = &["get", "patch", "update"];
    const CREATE: &[&str] = &["create"];
    let own = || kind.kind.clone();
    let mut all = Vec::new();
    if kind.status {
        all.push(("status", own(), CHANGE));
    }
    if kind.scale {
        all.push(("scale", "Scale".to_owned(), CHANGE));
    }
    if kind.binding {
        all.push(("binding", own(), CHANGE));
    }
    match kind.kind.as_str() {
        "ServiceAccount" => all.push(("token", "TokenRequest".to_owned(), CREATE)),
        "CertificateSigningRequest" => all.push(("approval", own(), CHANGE)),
        "Namespace" => all.push(("finalize", own(), &["update"])),
        "Pod" => all.extend([("eviction", "Eviction".to_owned(), CREATE), ("log", own(), &["get"])]),
        _ => {}
    }
    all.extend(kind.connects.iter().map(|(name, kind)| (*name, (*kind).to_owned(), CREATE)));
    all
}

/// Group and version of the body of a subresource, if it has those of another group.
fn home_of(body: &str, kind: &Kind) -> Option<(&'static str, &'static str)> {
    match body {
        "Scale" => Some(("autoscaling", "v1")),
        "Eviction" => Some(("policy", "v1")),
        "TokenRequest" if kind.group.is_empty() => Some(("authentication.k8s.io", "v1")),
        "TokenRequest" => Some(("security.gardener.cloud", "v1alpha1")),
        "AdminKubeconfigRequest" | "ViewerKubeconfigRequest" => {
            Some(("authentication.gardener.cloud", "v1alpha1"))
        }
        _ => None,
    }
}

/// `/api` and `/apis` in the aggregated form (`apidiscovery.k8s.io/v2`).
pub fn aggregated(kinds: &Kinds, core: bool) -> Value {
    let groups = kinds.groups();
    let chosen = groups.iter().filter(|(name, _)| name.is_empty() == core);
    let items: Vec<Value> = chosen
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|v| json!({"version": v, "freshness": "Current", "resources": aggregated_resources(kinds, name, v)}))
                .collect();
            json!({"metadata": {"name": name, "creationTimestamp": null}, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resources(kinds: &Kinds, group: &str, version: &str) -> Vec<Value> {
    let one = |kind: &Arc<Kind>| {
        let gvk = |name: &str| json!({"group": group, "version": version, "kind": name});
        let subresources: Vec<Value> = subresources(kind)
            .iter()
            .map(|(sub, name, verbs)| {
                let (group, version) = home_of(name, kind).unwrap_or((group, version));
                let kind = json!({"group": group, "version": version, "kind": name});
                json!({"subresource": sub, "responseKind": kind, "verbs": verbs})
            })
            .collect();
        json!({"resource": kind.plural, "responseKind": gvk(&kind.kind), "singularResource": kind.singular,
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "verbs": kind.verbs(),
            "shortNames": kind.short, "categories": if kind.is_in_all { &["all"][..] } else { &[] },
            "subresources": subresources})
    };
    kinds_of(kinds, group, version).map(one).collect()
}
