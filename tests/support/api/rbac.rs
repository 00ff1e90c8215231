//! The RBAC authorizer, over the roles and bindings in the storage.

use serde_json::{Value, json};

use super::User;
use super::request::Info;
use super::store::State;
use crate::json::{list, text};

const GROUP: &str = "rbac.authorization.k8s.io";
/// What nobody needs a role for.
const OPEN: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// Whether some role that is bound to the user allows the request.
pub fn allows(state: &State, user: &User, info: &Info) -> bool {
    user.is_in("system:masters")
        || always(user, info)
        || bound(state, user, &info.namespace).any(|rule| covers(rule, info))
}

/// The rules of the roles that are bound to a user.
fn bound<'a>(state: &'a State, user: &'a User, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
    let cluster_wide = state.of(GROUP, "clusterrolebindings", "");
    let within = state.of(GROUP, "rolebindings", namespace).filter(|_| !namespace.is_empty());
    cluster_wide.chain(within).flat_map(|(id, binding)| {
        let is_bound =
            list(binding, "/subjects").iter().any(|subject| is_subject(subject, user, &id.namespace));
        if is_bound { role_rules(state, binding, &id.namespace) } else { &[] }
    })
}

/// What a user may do in a namespace.
pub fn rules(state: &State, user: &User, namespace: &str) -> Vec<Value> {
    let mut all = Vec::new();
    if user.is_in("system:masters") {
        all.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        all.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    if user.is_in("system:authenticated") {
        let reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
        all.push(json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": reviews}));
        let own = ["selfsubjectreviews"];
        all.push(json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": own}));
        let paths = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"];
        all.push(json!({"verbs": ["get"], "nonResourceURLs": paths}));
    }
    all.push(json!({"verbs": ["get"], "nonResourceURLs": OPEN}));
    all.extend(bound(state, user, namespace).cloned());
    all
}

/// The permissions that the default cluster roles give to all authenticated users: discovery, health, own access reviews.
fn always(user: &User, info: &Info) -> bool {
    let is_open =
        info.resource.is_empty() && info.verb == "get" && OPEN.iter().any(|p| info.path.starts_with(p));
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
