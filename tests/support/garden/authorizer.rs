//! The SeedAuthorizer: what an agent may do in the garden. It allows a request or has no opinion; then RBAC decides.

use super::graph::{Graph, Vertex};
use crate::api::User;
use crate::api::rbac;
use crate::api::request::Info;
use crate::api::selector::{Requirement, parse_fields, parse_labels};
use crate::api::store::State;
use crate::http::server::{Authorizer, Decision};

/// The group of all agents.
pub const SEEDS: &str = "gardener.cloud:system:seeds";
/// The names of their users begin so.
pub const USER_PREFIX: &str = "gardener.cloud:system:seed:";

/// The authorizers of a garden: SeedAuthorizer, then RBAC.
pub struct Garden;

impl Authorizer for Garden {
    fn decide(&self, state: &State, user: &User, info: &Info) -> Decision {
        if rbac::allows(state, user, info) {
            return Ok(());
        }
        seed_of(user).map_or(Err(String::new()), |seed| decide(&Graph::of(state), &seed, user, info))
    }
}

/// Behind a real API server that has already authorized: only what the real gardener-apiserver's front would have
/// refused with the SeedAuthorizer is refused.
pub struct Behind;

impl Authorizer for Behind {
    fn decide(&self, state: &State, user: &User, info: &Info) -> Decision {
        match seed_of(user).filter(|_| info.group.ends_with(".gardener.cloud") && !info.resource.is_empty()) {
            Some(_) if public(info) => Ok(()),
            Some(seed) => decide(&Graph::of(state), &seed, user, info),
            None if user.is_in("system:unauthenticated") => Err(String::new()),
            None => Ok(()),
        }
    }
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
    /// The name of one object.
    Name,
    /// This field, naming the seed.
    Field(&'static str),
    /// The label of the seed.
    Label,
}

/// What is allowed for a resource.
struct Row {
    plural: &'static str,
    always: &'static [&'static str],
    with_path: &'static [&'static str],
    subresources: &'static [&'static str],
    limit: Limit,
}

const READ: &[&str] = &["get", "list", "watch"];
const CHANGE: &[&str] = &["get", "list", "watch", "update", "patch"];
const ALL: &[&str] = &["get", "list", "watch", "update", "patch", "delete"];
const FEW: &[&str] = &["get", "update", "patch"];
const CREATE: &[&str] = &["create"];
const GET: &[&str] = &["get"];
const NONE: &[&str] = &[];

const fn row(
    plural: &'static str,
    always: &'static [&'static str],
    with_path: &'static [&'static str],
    subresources: &'static [&'static str],
    limit: Limit,
) -> Row {
    Row { plural, always, with_path, subresources, limit }
}

/// The row of a resource of gardener.cloud.
fn row_of_gardener(group: &str, resource: &str) -> Option<Row> {
    const KEEP: &[&str] = &["create", "get", "list", "watch"];
    const END: &[&str] = &["update", "patch", "delete"];
    const STATUS: &[&str] = &["status"];
    const BOTH: &[&str] = &["status", "finalizers"];
    let readable = |plural| row(plural, NONE, READ, NONE, Limit::Name);
    Some(match (group.strip_suffix(".gardener.cloud")?, resource) {
        ("core", "seeds") => row("seeds", CREATE, ALL, STATUS, Limit::Label),
        ("core", "shoots") => row("shoots", NONE, CHANGE, BOTH, Limit::Label),
        ("core", "controllerinstallations") => {
            row("controllerinstallations", NONE, CHANGE, STATUS, Limit::Field("spec.seedRef.name"))
        }
        ("core", "controllerregistrations") => row("controllerregistrations", READ, NONE, NONE, Limit::Name),
        ("core", "backupbuckets") => row("backupbuckets", KEEP, END, BOTH, Limit::Name),
        ("core", "backupentries") => row("backupentries", KEEP, END, STATUS, Limit::Name),
        ("core", "shootstates") => row("shootstates", CREATE, ALL, NONE, Limit::Name),
        ("core", "internalsecrets") => row("internalsecrets", CREATE, ALL, NONE, Limit::Name),
        ("core", "controllerdeployments") => readable("controllerdeployments"),
        ("core", "cloudprofiles") => readable("cloudprofiles"),
        ("core", "namespacedcloudprofiles") => readable("namespacedcloudprofiles"),
        ("core", "exposureclasses") => readable("exposureclasses"),
        ("core", "projects") => readable("projects"),
        ("core", "secretbindings") => readable("secretbindings"),
        ("security", "credentialsbindings") => readable("credentialsbindings"),
        ("security", "workloadidentities") => {
            let verbs = &["get", "list", "watch", "patch", "create"];
            row("workloadidentities", NONE, verbs, &["token"], Limit::Name)
        }
        ("operations", "bastions") => row("bastions", CREATE, CHANGE, STATUS, Limit::Field("spec.seedName")),
        ("seedmanagement", "managedseeds") => row("managedseeds", NONE, CHANGE, STATUS, Limit::Label),
        ("seedmanagement", "gardenlets") => {
            row("gardenlets", CREATE, CHANGE, STATUS, Limit::Field("metadata.name"))
        }
        _ => return None,
    })
}

/// The row of another resource. Extensions get less.
fn row_of_others(group: &str, resource: &str, is_agent: bool) -> Option<Row> {
    Some(match (group, resource) {
        ("", "secrets") => row("secrets", CREATE, &["get", "update", "patch", "delete"], NONE, Limit::Name),
        ("", "configmaps") => row("configmaps", CREATE, ALL, NONE, Limit::Name),
        ("", "namespaces") => row("namespaces", NONE, READ, NONE, Limit::Name),
        ("", "serviceaccounts") if is_agent => row("serviceaccounts", CREATE, FEW, NONE, Limit::Name),
        ("", "serviceaccounts") => row("serviceaccounts", NONE, GET, NONE, Limit::Name),
        ("coordination.k8s.io", "leases") => row("leases", CREATE, CHANGE, NONE, Limit::Name),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            let (always, subresources): (&[_], &[_]) =
                if is_agent { (CREATE, &["seedclient"]) } else { (NONE, NONE) };
            row("certificatesigningrequests", always, READ, subresources, Limit::Name)
        }
        ("rbac.authorization.k8s.io", "clusterrolebindings") => {
            let (always, with_path) = if is_agent { (CREATE, FEW) } else { (NONE, GET) };
            row("clusterrolebindings", always, with_path, NONE, Limit::Name)
        }
        _ => return None,
    })
}

fn only(what: &str, allowed: &[&str]) -> String {
    format!("only the following {what} are allowed for this resource type: [{}]", allowed.join(" "))
}

/// Whether an agent (or extension) of the seed is allowed. Otherwise there is no opinion, with a reason.
pub fn decide(graph: &Graph<'_>, seed: &str, user: &User, info: &Info) -> Decision {
    let is_agent = user.is_in(SEEDS);
    let resource = (info.group.as_str(), info.resource.as_str());
    if special(seed, info, is_agent) {
        return Ok(());
    }
    if let ("" | "events.k8s.io", "events") = resource {
        return of_event(info);
    }
    if resource == ("coordination.k8s.io", "leases") && !is_agent {
        return of_extension_lease(seed, info);
    }
    let row = row_of_gardener(resource.0, resource.1);
    let Some(row) = row.or_else(|| row_of_others(resource.0, resource.1, is_agent)) else {
        return Err(String::new());
    };
    if row.plural == "gardenlets" && info.namespace != "garden" {
        return Err(only("namespaces", &["garden"]));
    }
    let mut subresources = row.subresources.to_vec();
    subresources.sort_unstable();
    if !info.subresource.is_empty() && !subresources.contains(&info.subresource.as_str()) {
        return Err(only("subresources", &subresources));
    }
    let verb = info.verb.as_str();
    if row.always.contains(&verb) {
        return Ok(());
    }
    if !row.with_path.contains(&verb) {
        let mut verbs: Vec<&str> = row.always.iter().chain(row.with_path).copied().collect();
        verbs.sort_unstable();
        return Err(only("verbs", &verbs));
    }
    named_or_limited(graph, seed, info, &row)
}

fn of_event(info: &Info) -> Decision {
    let allowed = ["create", "patch"];
    if !allowed.contains(&info.verb.as_str()) {
        return Err(only("verbs", &allowed));
    }
    if info.subresource.is_empty() { Ok(()) } else { Err(only("subresources", &[])) }
}

/// Extensions have their Leases in the namespace of their seed.
fn of_extension_lease(seed: &str, info: &Info) -> Decision {
    let allowed = ["create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"];
    if info.namespace != format!("seed-{seed}") {
        return Err("lease object is not in seed namespace".to_owned());
    }
    if allowed.contains(&info.verb.as_str()) { Ok(()) } else { Err(only("verbs", &allowed)) }
}

/// What is allowed by name or namespace alone.
fn special(seed: &str, info: &Info, is_agent: bool) -> bool {
    let own_namespace = info.namespace == format!("seed-{seed}");
    let name = info.object_name();
    let at = (info.group.as_str(), info.resource.as_str(), info.namespace.as_str(), name.as_str());
    match (info.verb.as_str(), at) {
        ("get", ("core.gardener.cloud", "shoots", "garden", name)) => name == seed,
        ("get" | "list" | "watch", ("", "secrets", _, _)) if own_namespace => true,
        (_, ("", "serviceaccounts", _, _)) if own_namespace && is_agent => true,
        ("get", ("", "configmaps", "gardener-system-public", "gardener-info")) => true,
        ("delete", ("", "secrets", "kube-system", name)) => {
            name == format!("bootstrap-token-{}", bootstrap_token_id("garden", seed))
        }
        ("delete", ("", "serviceaccounts", "garden", name)) if is_agent => {
            name == format!("{ACCOUNT_PREFIX}{seed}")
        }
        ("delete", ("rbac.authorization.k8s.io", "clusterrolebindings", _, name)) if is_agent => name
            .strip_prefix(BINDING_PREFIX)
            .is_some_and(|of| managed_seed_of(of) == ("garden".to_owned(), seed.to_owned())),
        _ => false,
    }
}

/// The names of bindings that let a gardenlet bootstrap itself begin so.
pub const BINDING_PREFIX: &str = "gardener.cloud:system:seed-bootstrapper:";
/// The names of their accounts.
pub const ACCOUNT_PREFIX: &str = "gardenlet-bootstrap-";

/// Namespace and name of the ManagedSeed in the rest of a binding's name.
pub fn managed_seed_of(rest: &str) -> (String, String) {
    let mut parts = rest.split(':');
    let first = parts.next().unwrap_or_default();
    let (namespace, account) = parts.next().map_or(("", first), |second| (first, second));
    let name = account.strip_prefix(ACCOUNT_PREFIX).unwrap_or(account);
    (namespace.to_owned(), name.to_owned())
}

/// The id of the token that belongs to a ManagedSeed or Gardenlet.
pub fn bootstrap_token_id(namespace: &str, name: &str) -> String {
    crate::encoding::sha256_hex(format!("{namespace}--{name}").as_bytes())[..6].to_owned()
}

/// Whether a list or watch is limited to the objects of the seed.
fn is_limited(seed: &str, info: &Info, limit: Limit) -> bool {
    let is_one = |field: &str| {
        let fields = parse_fields(&info.field_selector).unwrap_or_default();
        fields.iter().any(
            |r| matches!(r, Requirement::In(key, values) if key == field && values.len() == 1 && values[0] == seed),
        )
    };
    match limit {
        Limit::Name => false,
        Limit::Field(field) => is_one(field),
        // Upstream asks whether the label of the seed satisfies one of the requirements.
        Limit::Label => {
            let own = format!("name.seed.gardener.cloud/{seed}");
            let labels = parse_labels(&info.label_selector).unwrap_or_default();
            labels.iter().any(|r| r.passes(|key| (key == own).then(|| "true".to_owned())))
        }
    }
}

fn named_or_limited(graph: &Graph<'_>, seed: &str, info: &Info, row: &Row) -> Decision {
    let name = info.object_name();
    let lists = ["list", "watch"].contains(&info.verb.as_str());
    if lists && (name.is_empty() || row.limit == Limit::Field("metadata.name")) {
        let limited = is_limited(seed, info, row.limit);
        return if limited {
            Ok(())
        } else {
            Err(format!("must specify field or label selector for name {seed}"))
        };
    }
    if name.is_empty() {
        return Err("No Object name found".to_owned());
    }
    let namespace = if row.plural == "namespaces" { "" } else { info.namespace.as_str() };
    let vertex = Vertex::new(row.plural, namespace, &name);
    if info.verb == "delete" && !graph.knows(&vertex) || graph.reaches(vertex, seed) {
        return Ok(());
    }
    Err("no relationship found".to_owned())
}
