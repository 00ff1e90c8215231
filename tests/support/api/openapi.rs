//! As much of the OpenAPI documents as kubectl needs before it applies: that the server checks fields itself, and which
//! patches it takes. Without schemas `kubectl explain` has nothing to show.

use serde_json::{Map, Value, json};

use super::kinds::{Kind, Kinds};

/// `GET /openapi/v2`.
pub fn v2(version: &str) -> Value {
    json!({"swagger": "2.0", "paths": {}, "info": {"title": "Kubernetes", "version": version}})
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `GET /openapi/v3`: where the documents of the groups are.
pub fn groups(kinds: &Kinds) -> Value {
    let mut paths = Map::new();
    for (group, versions) in kinds.groups() {
        for version in versions {
            let path = path_of(&group, &version);
            paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}")}));
        }
    }
    json!({"paths": paths})
}

/// `GET /openapi/v3/apis/<group>/<version>` and `/openapi/v3/api/v1`.
pub fn group(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let served = kinds.all().filter(|kind| kind.group == group && kind.versions.iter().any(|v| v == version));
    let paths: Map<String, Value> = served.map(|kind| path(kind, version)).collect();
    let info = json!({"title": "Kubernetes", "version": version});
    (!paths.is_empty()).then(|| json!({"openapi": "3.0.0", "info": info, "paths": paths}))
}

fn path(kind: &Kind, version: &str) -> (String, Value) {
    let namespace = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
    let path = format!("/{}/{namespace}{}/{{name}}", path_of(&kind.group, version), kind.plural);
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    // kubectl calculates strategic merges with its own types: the document would have to describe all lists otherwise.
    let content = json!({"application/json-patch+json": {}, "application/merge-patch+json": {}});
    let patch = json!({
        "parameters": [parameter("dryRun"), parameter("fieldValidation")],
        "requestBody": {"content": content},
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": version, "kind": kind.kind},
    });
    (path, json!({"patch": patch}))
}

#[test]
fn each_kind_says_that_fields_are_checked() {
    let kinds = Kinds::new(super::builtin::kinds());
    let all = groups(&kinds);
    assert_eq!(all["paths"]["apis/apps/v1"]["serverRelativeURL"], "/openapi/v3/apis/apps/v1");
    assert_eq!(all["paths"]["api/v1"]["serverRelativeURL"], "/openapi/v3/api/v1");
    let apps = group(&kinds, "apps", "v1").unwrap();
    let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["parameters"][1]["name"], "fieldValidation");
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    assert!(group(&kinds, "", "v1").unwrap()["paths"]["/api/v1/namespaces/{name}"].is_object());
    assert_eq!(group(&kinds, "apps", "v2"), None);
}
