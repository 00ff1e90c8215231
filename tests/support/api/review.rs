//! Reviews: resources that are answered and not stored.

use serde_json::{Value, json};

use super::User;
use super::failure::Failure;
use super::request::Info;
use crate::json::{list, text};

/// Answers what a user may do, and to which user a token belongs.
pub trait Judge {
    /// Allowed, or the reason why not.
    fn decide(&self, user: &User, info: &Info) -> Result<(), String>;
    fn user_of(&self, token: &str) -> Option<User>;
    /// The rules of a user in a namespace, as far as they are known.
    fn rules_of(&self, user: &User, namespace: &str) -> Vec<Value>;
}

/// Whether POST to this resource is a review.
pub fn is_review(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        (
            "authorization.k8s.io",
            "selfsubjectaccessreviews" | "selfsubjectrulesreviews" | "subjectaccessreviews"
        ) | ("authentication.k8s.io", "tokenreviews" | "selfsubjectreviews")
    )
}

/// Answers a review: the object with its status.
pub fn answer(judge: &dyn Judge, resource: &str, mut review: Value, asker: &User) -> Result<Value, Failure> {
    review["status"] = match resource {
        "selfsubjectrulesreviews" => match text(&review, "/spec/namespace") {
            "" => return Err(Failure::bad_request("no namespace on request")),
            namespace => {
                let rules = rules(judge.rules_of(asker, namespace));
                review["spec"] = json!({});
                rules
            }
        },
        "selfsubjectaccessreviews" => verdict(judge, asker, &review),
        "subjectaccessreviews" => {
            let groups =
                list(&review, "/spec/groups").iter().filter_map(Value::as_str).map(str::to_owned).collect();
            let user = User { name: text(&review, "/spec/user").to_owned(), uid: String::new(), groups };
            verdict(judge, &user, &review)
        }
        "tokenreviews" => match judge.user_of(text(&review, "/spec/token")) {
            Some(user) => json!({"authenticated": true, "user": user_json(&user)}),
            None => json!({"user": {}, "error": "invalid bearer token"}),
        },
        _ => json!({"userInfo": user_json(asker)}),
    };
    Ok(review)
}

/// Authorizers other than RBAC do not tell their rules.
fn rules(all: Vec<Value>) -> Value {
    let (of_paths, of_resources): (Vec<Value>, Vec<Value>) =
        all.into_iter().partition(|rule| rule["nonResourceURLs"].is_array());
    json!({"resourceRules": of_resources, "nonResourceRules": of_paths, "incomplete": true,
        "evaluationError": "webhook authorizer does not support user rule resolution"})
}

fn verdict(judge: &dyn Judge, user: &User, review: &Value) -> Value {
    match judge.decide(user, &attributes(&review["spec"])) {
        Ok(()) => json!({"allowed": true}),
        Err(reason) if reason.is_empty() => json!({"allowed": false}),
        Err(reason) => json!({"allowed": false, "reason": reason}),
    }
}

fn user_json(user: &User) -> Value {
    json!({"username": user.name, "uid": user.uid, "groups": user.groups})
}

/// The request that an access review describes.
pub fn attributes(spec: &Value) -> Info {
    if let Some(resource) = spec.get("resourceAttributes").filter(|r| r.is_object()) {
        let get = |key: &str| resource[key].as_str().unwrap_or_default().to_owned();
        return Info {
            verb: get("verb"),
            group: get("group"),
            version: get("version"),
            resource: get("resource"),
            namespace: get("namespace"),
            name: get("name"),
            subresource: get("subresource"),
            path: String::new(),
            field_selector: requirements(&resource["fieldSelector"]),
            label_selector: requirements(&resource["labelSelector"]),
        };
    }
    let other = &spec["nonResourceAttributes"];
    Info { verb: text(other, "/verb").to_owned(), path: text(other, "/path").to_owned(), ..Info::default() }
}

/// The selector of a review as the text that a query would carry.
fn requirements(selector: &Value) -> String {
    let raw = text(selector, "/rawSelector");
    if !raw.is_empty() {
        return raw.to_owned();
    }
    let one = |requirement: &Value| {
        let key = text(requirement, "/key");
        let values: Vec<&str> = list(requirement, "/values").iter().filter_map(Value::as_str).collect();
        match (text(requirement, "/operator"), values.as_slice()) {
            ("In", [value]) => Some(format!("{key}={value}")),
            ("NotIn", [value]) => Some(format!("{key}!={value}")),
            ("In", values) => Some(format!("{key} in ({})", values.join(","))),
            ("NotIn", values) => Some(format!("{key} notin ({})", values.join(","))),
            ("Exists", _) => Some(key.to_owned()),
            ("DoesNotExist", _) => Some(format!("!{key}")),
            _ => None,
        }
    };
    list(selector, "/requirements").iter().filter_map(one).collect::<Vec<_>>().join(",")
}
