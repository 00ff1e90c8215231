//! What the agent must be allowed to do, as SelfSubjectAccessReviews ask it. They are answered and not stored.

use serde_json::{Value, json};

use crate::api::meta::Resource;
use crate::kube::{Client, Error};

const REVIEW: Resource =
    Resource::new("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false);

/// Verb, group, resource (with its subresource), namespace, name.
pub(super) type Access<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

/// In the seed, as `packaging/rbac.yaml` grants it: one of each group that is used, and what is granted by name.
pub(super) const SEED: [Access<'static>; 13] = [
    ("get", "", "secrets", "garden", "gardenlet-kubeconfig"),
    ("patch", "", "secrets", "garden", "gardenlet-kubeconfig"),
    ("create", "", "namespaces", "", ""),
    ("create", "", "secrets", "garden", ""),
    ("list", "", "nodes", "", ""),
    ("create", "", "events", "garden", ""),
    ("create", "coordination.k8s.io", "leases", "garden", ""),
    ("update", "coordination.k8s.io", "leases", "garden", "gardenlet-leader-election"),
    ("create", "apiextensions.k8s.io", "customresourcedefinitions", "", ""),
    ("watch", "resources.gardener.cloud", "managedresources", "", ""),
    ("patch", "resources.gardener.cloud", "managedresources/status", "garden", ""),
    ("list", "extensions.gardener.cloud", "extensions", "", ""),
    ("list", "operator.gardener.cloud", "gardens", "", ""),
];

/// In the seed, for the embedded applier.
pub(super) const APPLIER: Access<'static> =
    ("create", "", "serviceaccounts/token", "garden", "gardener-resource-manager");

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
    for access in wanted {
        let answer = client.create::<Value>(&REVIEW, "", &review(*access))?;
        if answer["status"]["allowed"] != true {
            missing.push(words(*access));
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
    use super::*;
    use crate::format::yaml;

    #[test]
    fn access_is_named_as_it_is_granted() {
        let table = [
            (SEED[0], "get secrets named gardenlet-kubeconfig in namespace garden"),
            (SEED[10], "patch managedresources/status.resources.gardener.cloud in namespace garden"),
            (garden("s")[0], "get seeds.core.gardener.cloud named s"),
        ];
        for (access, expected) in table {
            assert_eq!(words(access), expected);
        }
        let spec = &review(APPLIER)["spec"]["resourceAttributes"];
        assert_eq!((&spec["resource"], &spec["subresource"]), (&json!("serviceaccounts"), &json!("token")));
    }

    /// What is asked for is what the packaged role grants.
    #[test]
    fn the_packaged_role_grants_what_is_asked() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/rbac.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let role = text.split("\n---\n").find(|part| part.contains("\nrules:")).unwrap();
        let role = yaml::parse(role).unwrap();
        let has = |rule: &Value, key: &str, word: &str| {
            rule[key].as_array().is_some_and(|all| all.iter().any(|one| one == word || one == "*"))
        };
        for access in SEED.into_iter().chain([APPLIER]) {
            let (verb, group, resource, _, name) = access;
            let granted = role["rules"].as_array().unwrap().iter().any(|rule| {
                has(rule, "apiGroups", group)
                    && has(rule, "resources", resource)
                    && has(rule, "verbs", verb)
                    && (rule["resourceNames"].is_null() || has(rule, "resourceNames", name))
            });
            assert!(granted, "{}", words(access));
        }
    }
}
