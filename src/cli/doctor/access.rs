//! What the agent must be allowed to do, as SelfSubjectAccessReviews ask it. They are answered and not stored.

use serde_json::{Value, json};

use crate::api::meta::Resource;
use crate::config::settings::Settings;
use crate::kube::{Client, Error};

const REVIEW: Resource =
    Resource::new("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false);

/// Verbs, group, resource (with its subresource), namespace, name.
pub(super) type Access<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

const RESOURCES: &str = "resources.gardener.cloud";
const LEASES: &str = "coordination.k8s.io";
const DEFINITIONS: &str = "apiextensions.k8s.io";

/// In the seed, as `packaging/rbac.yaml` grants it: the first object of each rule.
const SEED: [Access<'static>; 12] = [
    ("create delete get list patch watch", "", "secrets", "", ""),
    ("create delete get patch", "", "namespaces", "", ""),
    ("list", "", "nodes", "", ""),
    ("list watch", RESOURCES, "managedresources", "", ""),
    ("list", "extensions.gardener.cloud", "backupbuckets", "", ""),
    ("create", DEFINITIONS, "customresourcedefinitions", "", ""),
    ("get patch", DEFINITIONS, "customresourcedefinitions", "", "backupbuckets.extensions.gardener.cloud"),
    ("list", "operator.gardener.cloud", "gardens", "", ""),
    ("create delete get patch", RESOURCES, "managedresources", "garden", ""),
    ("get", "", "services", "garden", "virtual-garden-kube-apiserver"),
    ("list", "", "events", "garden", ""),
    ("get", "", "configmaps", "kube-system", "cluster-identity"),
];

/// In the seed, for the embedded applier.
const APPLIER: [Access<'static>; 2] = [
    ("create", "", "serviceaccounts/token", "garden", "gardener-resource-manager"),
    ("get patch", "apps", "deployments", "garden", "gardener-resource-manager"),
];

/// In the seed, with these settings.
pub(super) fn seed(settings: &Settings) -> Vec<Access<'_>> {
    let election = &settings.leader_election;
    let (namespace, name) = (election.resource_namespace.as_str(), election.resource_name.as_str());
    let mut all = SEED.to_vec();
    all.push(("create", LEASES, "leases", namespace, ""));
    all.push(("get update", LEASES, "leases", namespace, name));
    if settings.edge.resource_manager.is_here() {
        all.extend(APPLIER);
    }
    all
}

/// In the garden, before there is an identity.
pub(super) const BOOTSTRAP: [Access<'static>; 1] =
    [("create", "certificates.k8s.io", "certificatesigningrequests", "", "")];

/// In the garden, for a seed.
pub(super) fn garden(seed: &str) -> [Access<'_>; 5] {
    let core = "core.gardener.cloud";
    [
        ("get", core, "seeds", "", seed),
        ("patch", core, "seeds/status", "", seed),
        ("list", core, "controllerregistrations", "", ""),
        ("patch", "coordination.k8s.io", "leases", "gardener-system-seed-lease", seed),
        ("create", "certificates.k8s.io", "certificatesigningrequests", "", ""),
    ]
}

fn review((verb, group, resource, namespace, name): Access<'_>) -> Value {
    let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {
        "verb": verb, "group": group, "resource": resource, "subresource": sub, "namespace": namespace, "name": name,
    }}})
}

/// The access that is missing, in words.
pub(super) fn missing(client: &Client, wanted: &[Access<'_>]) -> Result<Vec<String>, Error> {
    let mut missing = Vec::new();
    for (verbs, group, resource, namespace, name) in wanted {
        for verb in verbs.split(' ') {
            let access = (verb, *group, *resource, *namespace, *name);
            let answer = client.create::<Value>(&REVIEW, "", &review(access))?;
            if answer["status"]["allowed"] != true {
                missing.push(words(access));
            }
        }
    }
    Ok(missing)
}

fn words((verb, group, resource, namespace, name): Access<'_>) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    let mut text = format!("{verb} {resource}{dot}{group}");
    for (word, value) in [("named", name), ("in namespace", namespace)] {
        if !value.is_empty() {
            text.push_str(&format!(" {word} {value}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config;
    use crate::format::yaml;

    #[test]
    fn access_is_named_as_it_is_granted() {
        let table = [
            (("get", "", "secrets", "garden", "a"), "get secrets named a in namespace garden"),
            (("patch", "g", "seeds/status", "", "s"), "patch seeds/status.g named s"),
            (("list", "", "nodes", "", ""), "list nodes"),
        ];
        for (access, expected) in table {
            assert_eq!(words(access), expected);
        }
        let spec = &review(APPLIER[0])["spec"]["resourceAttributes"];
        assert_eq!((&spec["resource"], &spec["subresource"]), (&json!("serviceaccounts"), &json!("token")));
    }

    fn first(rule: &Value, key: &str) -> String {
        rule[key][0].as_str().unwrap_or_default().to_owned()
    }

    /// What is asked for is what the packaged roles grant, verb by verb, neither more nor less.
    #[test]
    fn every_rule_of_the_packaged_roles_is_asked_for() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/rbac.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let mut granted = BTreeSet::new();
        for role in yaml::parse_all(&text).into_iter().map(|document| document.value.unwrap()) {
            let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
            let rules = role["rules"].as_array().into_iter().flatten();
            // Whether /version may be asked is known when the seed has answered.
            for rule in rules.filter(|rule| rule["nonResourceURLs"].is_null()) {
                for verb in rule["verbs"].as_array().unwrap() {
                    let [group, resource, name] =
                        ["apiGroups", "resources", "resourceNames"].map(|key| first(rule, key));
                    granted.insert((
                        verb.as_str().unwrap().to_owned(),
                        group,
                        resource,
                        namespace.to_owned(),
                        name,
                    ));
                }
            }
        }
        let text = include_str!("../../../packaging/systemd/config.yaml");
        let loaded = config::load(text, "config.yaml").unwrap();
        let mut asked = BTreeSet::new();
        for (verbs, group, resource, namespace, name) in seed(&loaded.settings) {
            for verb in verbs.split(' ') {
                asked.insert((verb.into(), group.into(), resource.into(), namespace.into(), name.into()));
            }
        }
        assert_eq!(asked, granted);
    }
}
