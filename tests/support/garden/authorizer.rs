//! The SeedAuthorizer: what an agent may do in the garden. It allows a request or has no opinion; then RBAC decides.

use super::graph::Graph;
use crate::api::User;
use crate::api::rbac;
use crate::api::request::Info;
use crate::api::selector::{Requirement, parse_fields, parse_labels};
use crate::api::store::State;
use crate::http::server::Authorizer;

/// The group of all agents.
pub const SEEDS: &str = "gardener.cloud:system:seeds";
const USER_PREFIX: &str = "gardener.cloud:system:seed:";

/// The authorizers of a garden: SeedAuthorizer, then RBAC.
pub struct Garden;

impl Authorizer for Garden {
    fn allows(&self, state: &State, user: &User, info: &Info) -> bool {
        seed_of(user).is_some_and(|seed| decide(&Graph::of(state), &seed, user, info))
            || rbac::allows(state, user, info)
    }

    fn reason(&self, user: &User, info: &Info) -> &'static str {
        reason(user, info)
    }
}

/// Behind a real API server that has already authorized: only what the real gardener-apiserver's front would have
/// refused with the SeedAuthorizer is refused.
pub struct Behind;

impl Authorizer for Behind {
    fn allows(&self, state: &State, user: &User, info: &Info) -> bool {
        match seed_of(user).filter(|_| info.group.ends_with(".gardener.cloud") && !info.resource.is_empty()) {
            Some(seed) => decide(&Graph::of(state), &seed, user, info) || public(info),
            None => !user.is_in("system:unauthenticated"),
        }
    }

    fn reason(&self, user: &User, info: &Info) -> &'static str {
        reason(user, info)
    }
}

/// The reason of the SeedAuthorizer if it has looked for a path to the Seed.
fn reason(user: &User, info: &Info) -> &'static str {
    let has_looked = seed_of(user).is_some() && !info.name.is_empty();
    let row = row_of(info).filter(|_| has_looked && info.subresource.is_empty());
    let is_unrelated = row.is_some_and(|row| row.with_path.contains(&info.verb.as_str()));
    if is_unrelated { "no relationship found" } else { "" }
}

/// The permissions that RBAC gives to all authenticated users.
fn public(info: &Info) -> bool {
    let open = ["cloudprofiles", "controllerregistrations", "exposureclasses", "seeds"];
    ["get", "list", "watch"].contains(&info.verb.as_str())
        && info.subresource.is_empty()
        && open.contains(&info.resource.as_str())
}

/// The seed of an agent, or of an extension that runs on it.
pub fn seed_of(user: &User) -> Option<String> {
    if user.is_in(SEEDS) {
        return user.name.strip_prefix(USER_PREFIX).map(str::to_owned);
    }
    let (namespace, name) = user.name.strip_prefix("system:serviceaccount:seed-")?.split_once(':')?;
    name.starts_with("extension-").then(|| namespace.to_owned())
}

/// What a list or watch without a name must be limited to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// Nothing.
    No,
    /// The name of one object.
    Name,
    /// This field, naming the seed.
    Field(&'static str),
    /// The label of the seed.
    Label,
}

/// One row of the table of resources.
struct Row {
    always: &'static [&'static str],
    with_path: &'static [&'static str],
    subresources: &'static [&'static str],
    limit: Limit,
}

const READ: &[&str] = &["get", "list", "watch"];
const CHANGE: &[&str] = &["get", "list", "watch", "update", "patch"];
const ALL: &[&str] = &["get", "list", "watch", "update", "patch", "delete"];
const NONE: &[&str] = &[];

const fn row(
    always: &'static [&'static str],
    with_path: &'static [&'static str],
    subresources: &'static [&'static str],
    limit: Limit,
) -> Row {
    Row { always, with_path, subresources, limit }
}

fn row_of(info: &Info) -> Option<Row> {
    let create: &[&str] = &["create"];
    Some(match (info.group.as_str(), info.resource.as_str()) {
        ("core.gardener.cloud", resource) => match resource {
            "seeds" => row(create, ALL, &["status"], Limit::Label),
            "shoots" => row(NONE, CHANGE, &["status", "finalizers"], Limit::Label),
            "controllerinstallations" => row(NONE, CHANGE, &["status"], Limit::Field("spec.seedRef.name")),
            "controllerregistrations" => row(READ, NONE, NONE, Limit::No),
            "backupbuckets" => row(
                &["create", "get", "list", "watch"],
                &["update", "patch", "delete"],
                &["status", "finalizers"],
                Limit::No,
            ),
            "backupentries" => row(
                &["create", "get", "list", "watch"],
                &["update", "patch", "delete"],
                &["status"],
                Limit::No,
            ),
            "shootstates" | "internalsecrets" => row(create, ALL, NONE, Limit::Name),
            "controllerdeployments"
            | "cloudprofiles"
            | "exposureclasses"
            | "namespacedcloudprofiles"
            | "projects"
            | "secretbindings" => row(NONE, READ, NONE, Limit::Name),
            _ => return None,
        },
        ("security.gardener.cloud", "credentialsbindings") => row(NONE, READ, NONE, Limit::Name),
        ("security.gardener.cloud", "workloadidentities") => {
            row(NONE, &["get", "list", "watch", "patch", "create"], &["token"], Limit::Name)
        }
        ("operations.gardener.cloud", "bastions") => {
            row(create, CHANGE, &["status"], Limit::Field("spec.seedName"))
        }
        ("seedmanagement.gardener.cloud", "managedseeds") => row(NONE, CHANGE, &["status"], Limit::Label),
        ("seedmanagement.gardener.cloud", "gardenlets") => row(create, CHANGE, &["status"], Limit::Name),
        ("", "secrets") => row(create, &["get", "update", "patch", "delete"], NONE, Limit::Name),
        ("", "configmaps") => row(create, ALL, NONE, Limit::Name),
        ("", "serviceaccounts") => row(create, &["get", "update", "patch"], NONE, Limit::Name),
        ("", "namespaces") => row(NONE, READ, NONE, Limit::Name),
        ("coordination.k8s.io", "leases") => row(create, CHANGE, NONE, Limit::Name),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            row(create, READ, &["seedclient"], Limit::Name)
        }
        ("rbac.authorization.k8s.io", "clusterrolebindings") => {
            row(create, &["get", "update", "patch"], NONE, Limit::Name)
        }
        ("" | "events.k8s.io", "events") => row(&["create", "patch"], NONE, NONE, Limit::No),
        _ => return None,
    })
}

/// Whether an agent (or extension) of the seed is allowed; false means no opinion.
pub fn decide(graph: &Graph<'_>, seed: &str, user: &User, info: &Info) -> bool {
    let is_agent = user.is_in(SEEDS);
    if info.resource.is_empty() {
        return false;
    }
    if special(seed, info, is_agent) {
        return true;
    }
    let Some(row) = row_of(info) else { return false };
    let verb = info.verb.as_str();
    if !info.subresource.is_empty() && !row.subresources.contains(&info.subresource.as_str()) {
        return false;
    }
    if info.resource == "gardenlets" && info.namespace != "garden" {
        return false;
    }
    let reads_only = ["certificatesigningrequests", "clusterrolebindings", "serviceaccounts"];
    if !is_agent && reads_only.contains(&info.resource.as_str()) && !READ.contains(&verb) {
        return false;
    }
    if row.always.contains(&verb) {
        return true;
    }
    if !row.with_path.contains(&verb) {
        return false;
    }
    named_or_limited(graph, seed, info, row.limit)
}

/// What is allowed by name or namespace alone.
fn special(seed: &str, info: &Info, is_agent: bool) -> bool {
    let own_namespace = info.namespace == format!("seed-{seed}");
    let at = (info.group.as_str(), info.resource.as_str(), info.namespace.as_str(), info.name.as_str());
    match (info.verb.as_str(), at) {
        ("get", ("core.gardener.cloud", "shoots", "garden", name)) => name == seed,
        ("get" | "list" | "watch", ("", "secrets", _, _)) if own_namespace => true,
        (_, ("", "serviceaccounts", _, _)) if own_namespace && is_agent => true,
        ("get", ("", "configmaps", "gardener-system-public", "gardener-info")) => true,
        ("delete", ("", "secrets", "kube-system", name)) => {
            name == format!("bootstrap-token-{}", bootstrap_token_id("garden", seed))
        }
        ("delete", ("", "serviceaccounts", "garden", name)) => name == format!("gardenlet-bootstrap-{seed}"),
        ("delete", ("rbac.authorization.k8s.io", "clusterrolebindings", _, name)) => {
            name == format!("gardener.cloud:system:seed-bootstrapper:garden:gardenlet-bootstrap-{seed}")
        }
        _ => false,
    }
}

/// The id of the token that belongs to a ManagedSeed or Gardenlet.
pub fn bootstrap_token_id(namespace: &str, name: &str) -> String {
    crate::encoding::sha256_hex(format!("{namespace}--{name}").as_bytes())[..6].to_owned()
}

/// Whether the requirement with this key names exactly this value.
fn names(requirements: &[Requirement], key: &str, value: &str) -> bool {
    requirements.iter().any(
        |r| matches!(r, Requirement::In(k, values) if k == key && values.len() == 1 && values[0] == value),
    )
}

fn named_or_limited(graph: &Graph<'_>, seed: &str, info: &Info, limit: Limit) -> bool {
    let mut name = info.name.clone();
    if name.is_empty() && ["list", "watch"].contains(&info.verb.as_str()) {
        let fields = parse_fields(&info.field_selector).unwrap_or_default();
        let labels = parse_labels(&info.label_selector).unwrap_or_default();
        let limited = match limit {
            Limit::No => true,
            Limit::Field(field) => names(&fields, field, seed),
            Limit::Label => names(&labels, &format!("name.seed.gardener.cloud/{seed}"), "true"),
            Limit::Name => false,
        };
        if limited {
            return true;
        }
        name = fields
            .iter()
            .find_map(|r| match r {
                Requirement::In(key, values) if key == "metadata.name" && values.len() == 1 => {
                    Some(values[0].clone())
                }
                _ => None,
            })
            .unwrap_or_default();
    }
    if name.is_empty() {
        return false;
    }
    let place = (info.group.as_str(), info.resource.as_str(), info.namespace.as_str(), name.as_str());
    (info.verb == "delete" && !graph.knows(place)) || graph.reaches(place, seed)
}
