//! The permissions that the agent needs, checked with SelfSubjectAccessReviews. The server answers these without
//! storing them.

use std::sync::OnceLock;

use serde_json::Value;

use crate::api::meta::{CLUSTER_SCOPED, Resource};
use crate::base::json::json;
use crate::components::archive::packed_text;
use crate::config::settings::Settings;
use crate::kube::{Client, Error};

const REVIEW: Resource =
    Resource::new("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false);

/// A permission.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Access<'a> {
    /// Verbs, separated by commas.
    verbs: &'a str,
    group: &'a str,
    /// The resource, with its subresource.
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Access<'a> {
    const fn new(
        verbs: &'a str,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> Self {
        Self { verbs, group, resource, namespace, name }
    }
}

/// The permissions of the packaged roles in the seed.
fn roles() -> &'static str {
    static ROLES: OnceLock<String> = OnceLock::new();
    ROLES.get_or_init(|| packed_text("roles.txt"))
}

/// A line of [`roles`].
struct PermissionRule<'a> {
    place: &'a str,
    /// The purpose, such as `applier` or `shoots`; empty if every agent needs it.
    purpose: &'a str,
    words: [&'a str; 4],
}

fn rules(table: &str) -> impl Iterator<Item = PermissionRule<'_>> {
    let (mut place, mut purpose) = ("", "");
    table.lines().filter_map(move |line| {
        if let Some(head) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            (place, purpose) = head.split_once(' ').unwrap_or((head, ""));
            return None;
        }
        // Further objects in the same line belong to the same rule.
        if line.is_empty() || line.starts_with(['#', ' ']) {
            return None;
        }
        let mut words = line.split_whitespace();
        let words = std::array::from_fn(|_| words.next().unwrap_or_default());
        Some(PermissionRule { place, purpose, words })
    })
}

fn first(list: &str) -> &str {
    list.split(',').next().unwrap_or_default()
}

/// The permissions in the seed with these settings: the first object of each rule.
pub(super) fn seed(settings: &Settings) -> Vec<Access<'_>> {
    let has_applier = settings.edge.resource_manager.is_here();
    of(settings, |purpose| purpose.is_empty() || purpose == "applier" && has_applier)
}

/// The permissions in the seed for control planes of Shoots: the first object of each rule.
pub(super) fn shoots(settings: &Settings) -> Vec<Access<'_>> {
    of(settings, |purpose| purpose == "shoots")
}

fn of(settings: &Settings, is_wanted: impl Fn(&str) -> bool) -> Vec<Access<'_>> {
    let election = &settings.leader_election;
    let asked = |PermissionRule { place, purpose, words: [verbs, group, resources, names] }| {
        // Another check shows whether /version is readable.
        if group == "path" || !is_wanted(purpose) {
            return None;
        }
        let group = if group == "core" { "" } else { group };
        let (namespace, name) = match place {
            "*" => ("", first(names)),
            "lease" if names.is_empty() => (election.resource_namespace.as_str(), ""),
            "lease" => (election.resource_namespace.as_str(), election.resource_name.as_str()),
            namespace => (namespace, first(names)),
        };
        Some(Access::new(verbs, group, first(resources), namespace, name))
    };
    rules(roles()).filter_map(asked).collect()
}

/// The permissions in the garden without an identity.
pub(super) const BOOTSTRAP: [Access<'static>; 1] =
    [Access::new("create", "certificates.k8s.io", "certificatesigningrequests", "", "")];

/// The permissions in the garden for a seed.
pub(super) fn garden(seed: &str) -> [Access<'_>; 5] {
    let core = "core.gardener.cloud";
    [
        Access::new("get", core, "seeds", "", seed),
        Access::new("patch", core, "seeds/status", "", seed),
        Access::new("list", core, "controllerregistrations", "", ""),
        Access::new("patch", "coordination.k8s.io", "leases", "gardener-system-seed-lease", seed),
        Access::new("create", "certificates.k8s.io", "certificatesigningrequests", "", ""),
    ]
}

fn review(access: Access<'_>) -> Value {
    let Access { verbs: verb, group, resource, namespace, name } = access;
    let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {
        "verb": verb, "group": group, "resource": resource, "subresource": sub, "namespace": namespace, "name": name,
    }}})
}

/// Describes a missing permission.
pub(super) fn missing(client: &Client, wanted: &[Access<'_>]) -> Result<Vec<String>, Error> {
    let mut missing = Vec::new();
    for each in wanted {
        for verbs in each.verbs.split(',') {
            let access = Access { verbs, ..*each };
            let answer = client.create::<Value>(&REVIEW, CLUSTER_SCOPED, &review(access))?;
            if answer["status"]["allowed"] != true {
                missing.push(words(access));
            }
        }
    }
    Ok(missing)
}

fn words(access: Access<'_>) -> String {
    let Access { verbs: verb, group, resource, namespace, name } = access;
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
    use crate::base::sorted::SortedSet;

    use super::*;
    use crate::config;
    use crate::config::settings::ResourceManager;
    use crate::format::yaml;

    #[test]
    fn access_is_named_as_it_is_granted() {
        let table = [
            (Access::new("get", "", "secrets", "garden", "a"), "get secrets named a in namespace garden"),
            (Access::new("patch", "g", "seeds/status", "", "s"), "patch seeds/status.g named s"),
            (Access::new("list", "", "nodes", "", ""), "list nodes"),
        ];
        for (access, expected) in table {
            assert_eq!(words(access), expected);
        }
        let token = Access::new("create", "", "serviceaccounts/token", "garden", "gardener-resource-manager");
        let spec = &review(token)["spec"]["resourceAttributes"];
        assert_eq!((&spec["resource"], &spec["subresource"]), (&json!("serviceaccounts"), &json!("token")));
    }

    /// Every permission of a rule: verb, group, resource or path, namespace, name.
    type Granted = SortedSet<[String; 5]>;

    fn grant(granted: &mut Granted, namespace: &str, group: &str, lists: [Vec<&str>; 3]) {
        let [verbs, resources, names] = lists;
        let names = if names.is_empty() { vec![""] } else { names };
        for verb in verbs {
            for resource in &resources {
                for name in &names {
                    granted.insert([verb, group, *resource, namespace, *name].map(str::to_owned));
                }
            }
        }
    }

    fn list<'a>(rule: &'a Value, key: &str) -> Vec<&'a str> {
        rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn split(list: &str) -> Vec<&str> {
        list.split(',').filter(|word| !word.is_empty()).collect()
    }

    /// The manifest contains exactly the permissions of the table. `packaging/roles` has written it.
    #[test]
    fn the_packaged_roles_are_those_of_the_table() {
        let mut granted = Granted::new();
        for role in yaml::parse_all(include_str!("../../../packaging/rbac.yaml")) {
            let role = role.value.unwrap();
            let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
            for rule in role["rules"].as_array().into_iter().flatten() {
                let things = [list(rule, "resources"), list(rule, "nonResourceURLs")].concat();
                let group = list(rule, "apiGroups").first().copied().unwrap_or("path");
                let lists = [list(rule, "verbs"), things, list(rule, "resourceNames")];
                grant(&mut granted, namespace, group, lists);
            }
        }
        let (mut listed, table) = (Granted::new(), roles().replace(",\n    ", ","));
        for PermissionRule { place, words: [verbs, group, resources, names], .. } in rules(&table) {
            let namespace = match place {
                "*" => "",
                "lease" => "garden",
                namespace => namespace,
            };
            let group = if group == "core" { "" } else { group };
            grant(&mut listed, namespace, group, [split(verbs), split(resources), split(names)]);
        }
        assert!(listed.len() > 50, "{}", listed.len());
        assert_eq!(listed, granted);
    }

    #[test]
    fn doctor_asks_for_one_object_of_each_rule() {
        let text = include_str!("../../../packaging/systemd/config.yaml");
        let mut settings = config::load(text, "config.yaml").unwrap().settings;
        settings.leader_election.resource_namespace = "elsewhere".to_owned();
        settings.leader_election.resource_name = "mine".to_owned();
        let asked = seed(&settings);
        let shoots = shoots(&settings);
        // For an agent that upgrades itself, and for people.
        let others = rules(roles()).filter(|rule| ["upgrade", "rebootstrap"].contains(&rule.purpose)).count();
        assert_eq!(asked.len() + shoots.len() + others, rules(roles()).count() - 1, "all but the paths");
        for access in [
            Access::new("create,delete,get,list,patch,watch", "", "secrets", "", ""),
            Access::new("list", "", "nodes", "", ""),
            Access::new(
                "patch",
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "",
                "backupbuckets.extensions.gardener.cloud",
            ),
            Access::new("create", "coordination.k8s.io", "leases", "elsewhere", ""),
            Access::new("get,update", "coordination.k8s.io", "leases", "elsewhere", "mine"),
            Access::new("get", "", "configmaps", "kube-system", "cluster-identity"),
            Access::new("patch", "apps", "deployments", "garden", "gardener-resource-manager"),
        ] {
            assert!(asked.contains(&access), "{access:?} is not in {asked:#?}");
        }
        let deployments = Access::new("create,delete,get,patch", "apps", "deployments", "", "");
        assert!(shoots.contains(&deployments) && !asked.contains(&deployments), "{shoots:#?}");
        let is_appliers = |access: &Access<'_>| {
            access.resource == "serviceaccounts/token"
                || access.verbs == "patch" && access.resource == "deployments"
        };
        assert!(asked.iter().any(is_appliers));
        settings.edge.resource_manager = ResourceManager::External;
        // The remaining permissions for it are for its deletion with the Seed.
        assert!(!seed(&settings).iter().any(is_appliers));
    }
}
