//! What a path means: verb, resource, namespace, name, subresource.

use super::selector::{Requirement, parse_fields};
use crate::encoding::unescape;

/// The attributes of a request that the API server authorizes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the method.
    pub verb: String,
    pub group: String,
    pub version: String,
    /// Empty: not a resource (`/healthz`, discovery).
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    pub path: String,
    /// Text of the selectors, for authorizers that look at them.
    pub field_selector: String,
    pub label_selector: String,
}

impl Info {
    /// The name of the object, also of one that a list or watch is limited to.
    pub fn object_name(&self) -> String {
        let lists = ["list", "watch", "deletecollection"].contains(&self.verb.as_str());
        if !self.name.is_empty() || !lists {
            return self.name.clone();
        }
        let fields = parse_fields(&self.field_selector).unwrap_or_default();
        let named = fields.into_iter().find_map(|r| match r {
            Requirement::In(key, mut values) if key == "metadata.name" && values.len() == 1 => values.pop(),
            _ => None,
        });
        named.unwrap_or_default()
    }

    /// Reads the attributes of a request. `query` answers with a parameter of the query.
    pub fn parse(method: &str, path: &str, query: impl Fn(&str) -> Option<String>) -> Self {
        let parts: Vec<String> =
            path.split('/').filter(|p| !p.is_empty()).map(|p| unescape(p, false)).collect();
        let other = Self { verb: method.to_lowercase(), path: path.to_owned(), ..Self::default() };
        let (group, version, rest) = match parts.as_slice() {
            [api, version, rest @ ..] if api == "api" => (String::new(), version.clone(), rest),
            [apis, group, version, rest @ ..] if apis == "apis" => (group.clone(), version.clone(), rest),
            _ => return other,
        };
        let mut info = Self { group, version, path: path.to_owned(), ..Self::default() };
        let text = |at: Option<&String>| at.cloned().unwrap_or_default();
        let rest = match rest {
            [] => return other,
            [ns, name] if ns == "namespaces" => {
                info.resource.clone_from(ns);
                // A namespace is also its own namespace, for the authorizer.
                info.name.clone_from(name);
                &[]
            }
            [ns, name, sub] if ns == "namespaces" && ["status", "finalize"].contains(&sub.as_str()) => {
                info.resource.clone_from(ns);
                info.name.clone_from(name);
                info.subresource.clone_from(sub);
                &[]
            }
            [ns, namespace, rest @ ..] if ns == "namespaces" => {
                info.namespace.clone_from(namespace);
                rest
            }
            rest => rest,
        };
        if !rest.is_empty() {
            info.resource = text(rest.first());
            info.name = text(rest.get(1));
            info.subresource = text(rest.get(2));
        }
        info.field_selector = query("fieldSelector").unwrap_or_default();
        info.label_selector = query("labelSelector").unwrap_or_default();
        info.verb = verb(method, &info, query("watch").as_deref());
        info
    }
}

fn verb(method: &str, info: &Info, watch: Option<&str>) -> String {
    let collection = info.name.is_empty();
    let verb = match method {
        "GET" | "HEAD" if collection && matches!(watch, Some("true" | "1")) => "watch",
        "GET" | "HEAD" if collection => "list",
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if collection => "deletecollection",
        "DELETE" => "delete",
        other => return other.to_lowercase(),
    };
    verb.to_owned()
}

#[test]
fn paths_are_sorted() {
    let parse = |method: &str, path: &str, watch: bool| {
        let info = Info::parse(method, path, |p| (p == "watch" && watch).then(|| "true".to_owned()));
        [info.verb, info.group, info.resource, info.namespace, info.name, info.subresource].join(" ")
    };
    let table = [
        ("GET", "/api/v1/secrets", true, "watch  secrets   "),
        ("GET", "/api/v1/namespaces/a/secrets", false, "list  secrets a  "),
        ("DELETE", "/api/v1/namespaces/a/secrets/b", false, "delete  secrets a b "),
        ("GET", "/api/v1/namespaces/a", false, "get  namespaces  a "),
        ("PUT", "/api/v1/namespaces/a/finalize", false, "update  namespaces  a finalize"),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/b/status",
            false,
            "patch apps deployments a b status",
        ),
        ("GET", "/apis/apps/v1", false, "get     "),
        ("GET", "/healthz", false, "get     "),
    ];
    for (method, path, watch, expected) in table {
        assert_eq!(parse(method, path, watch), expected, "{method} {path}");
    }
}
