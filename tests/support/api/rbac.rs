//! The RBAC authorizer, over the roles and bindings in the storage.

use serde_json::Value;

use super::User;
use super::request::Info;
use super::store::State;
use crate::json::{list, text};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Whether some role that is bound to the user allows the request.
pub fn allows(state: &State, user: &User, info: &Info) -> bool {
    if user.is_in("system:masters") || always(user, info) {
        return true;
    }
    let cluster_wide = state.of(GROUP, "clusterrolebindings", "");
    let within = state.of(GROUP, "rolebindings", &info.namespace).filter(|_| !info.namespace.is_empty());
    cluster_wide.chain(within).any(|(id, binding)| {
        let bound = list(binding, "/subjects").iter().any(|subject| is_subject(subject, user, &id.namespace));
        bound && role_rules(state, binding, &id.namespace).iter().any(|rule| covers(rule, info))
    })
}

/// The permissions that the default cluster roles give to all authenticated users: discovery, health, own access reviews.
fn always(user: &User, info: &Info) -> bool {
    let open = ["/healthz", "/livez", "/readyz", "/version"];
    let is_open =
        info.resource.is_empty() && info.verb == "get" && open.iter().any(|p| info.path.starts_with(p));
    is_open || user.is_in("system:authenticated") && is_everybodys(info)
}

/// The permissions that the default cluster roles give to all authenticated users.
pub fn is_everybodys(info: &Info) -> bool {
    if info.resource.is_empty() {
        let discovery = ["/api", "/openapi"].iter().any(|p| info.path.starts_with(p));
        return info.verb == "get" && discovery;
    }
    info.verb == "create"
        && matches!(info.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io")
        && info.resource.starts_with("selfsubject")
}

fn is_subject(subject: &Value, user: &User, namespace: &str) -> bool {
    let name = text(subject, "/name");
    match text(subject, "/kind") {
        "User" => user.name == name,
        "Group" => user.is_in(name),
        "ServiceAccount" => {
            let of = text(subject, "/namespace");
            let of = if of.is_empty() { namespace } else { of };
            user.name == format!("system:serviceaccount:{of}:{name}")
        }
        _ => false,
    }
}

fn role_rules<'a>(state: &'a State, binding: &Value, namespace: &str) -> &'a [Value] {
    let name = text(binding, "/roleRef/name");
    let role = match text(binding, "/roleRef/kind") {
        "Role" => state.get(GROUP, "roles", namespace, name),
        _ => state.get(GROUP, "clusterroles", "", name),
    };
    role.map_or(&[], |role| list(role, "/rules"))
}

/// Whether a rule of a role allows the request.
pub fn covers(rule: &Value, info: &Info) -> bool {
    let any = |pointer: &str, wanted: &str| list(rule, pointer).iter().any(|v| v == "*" || v == wanted);
    if !any("/verbs", &info.verb) {
        return false;
    }
    if info.resource.is_empty() {
        return list(rule, "/nonResourceURLs").iter().filter_map(Value::as_str).any(|url| {
            match url.strip_suffix('*') {
                Some(prefix) => info.path.starts_with(prefix),
                None => url == info.path,
            }
        });
    }
    let resource = match info.subresource.as_str() {
        "" => info.resource.clone(),
        sub => format!("{}/{sub}", info.resource),
    };
    let all_of_sub = format!("*/{}", info.subresource);
    let names = list(rule, "/resourceNames");
    any("/apiGroups", &info.group)
        && (any("/resources", &resource) || list(rule, "/resources").iter().any(|r| *r == all_of_sub))
        && (names.is_empty() || names.iter().any(|n| *n == info.object_name()))
}
