//! SeedAuthorizer and SeedRestriction as webhooks of a real kube-apiserver, for a garden behind it.

use std::sync::{Arc, OnceLock};

use gardenlet::api::meta::{Key, Resource};
use gardenlet::base::clock::Clock;
use gardenlet::kube::Client;
use serde_json::{Value, json};

use super::authorizer::{decide, seed_of};
use super::graph::Graph;
use super::{requests, restriction};
use crate::api::kinds::Kind;
use crate::api::request::Info;
use crate::api::review::attributes;
use crate::api::store::Store;
use crate::api::{Operation, Review, Target, User};
use crate::encoding::rfc3339;
use crate::http::message::Response;
use crate::http::server::{Decision, Webhook};
use crate::json::text;

/// The path of the authorizer.
pub const AUTHORIZER: &str = "/webhooks/auth/seed";
/// The path of the restriction.
pub const RESTRICTION: &str = "/webhooks/admission/seedrestriction";

/// What the webhooks look at: the objects of gardener.cloud, and the others at the real server.
pub struct Guards {
    pub store: OnceLock<Store>,
    pub client: Client,
    pub clock: Clock,
}

/// Answers both paths.
pub fn webhook(guards: Arc<Guards>) -> Webhook {
    Box::new(move |request, _| {
        let store = guards.store.get()?;
        let mut review: Value = serde_json::from_slice(&request.body).ok()?;
        match request.path.as_str() {
            AUTHORIZER => {
                review["status"] = match guards.authorize(store, &review["spec"]) {
                    Ok(()) => json!({"allowed": true}),
                    Err(reason) => json!({"allowed": false, "reason": reason}),
                };
            }
            RESTRICTION => {
                let mut answer = json!({"uid": review["request"]["uid"], "allowed": true});
                if let Err((code, message)) = guards.admit(store, &review["request"]) {
                    answer["allowed"] = json!(false);
                    answer["status"] = json!({"code": code, "message": message});
                }
                review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer});
            }
            _ => return None,
        }
        Some(Response::json(200, &review))
    })
}

fn user(name: &Value, groups: &Value) -> User {
    let groups =
        groups.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    User { name: name.as_str().unwrap_or_default().to_owned(), uid: String::new(), groups }
}

impl Guards {
    fn authorize(&self, store: &Store, spec: &Value) -> Decision {
        let (user, info) = (user(&spec["user"], &spec["groups"]), attributes(spec));
        let Some(seed) = seed_of(&user) else { return Err(String::new()) };
        let decision = decide(&Graph::of(&store.read()), &seed, &user, &info);
        match decision {
            Err(_) if self.is_own_request(&seed, &info) => Ok(()),
            decision => decision,
        }
    }

    /// Requests for certificates are at the real server.
    fn is_own_request(&self, seed: &str, info: &Info) -> bool {
        let reads = ["get", "list", "watch"].contains(&info.verb.as_str());
        if info.resource != "certificatesigningrequests" || !reads || info.object_name().is_empty() {
            return false;
        }
        let kind = &gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
        let found = self.client.find::<Value>(kind, &Key::cluster(info.object_name()));
        found.ok().flatten().is_some_and(|request| requests::seed_of(&request).as_deref() == Ok(seed))
    }

    fn admit(&self, store: &Store, request: &Value) -> Result<(), (u16, String)> {
        let at = |pointer: &str| text(request, pointer).to_owned();
        let (namespace, name) = (at("/namespace"), at("/name"));
        let operation = match text(request, "/operation") {
            "CREATE" => Operation::Create,
            "DELETE" => Operation::Delete,
            _ => Operation::Update,
        };
        let (group, version, kind, plural) =
            (at("/kind/group"), at("/kind/version"), at("/kind/kind"), at("/resource/resource"));
        let resource = Resource {
            group: group.clone().into(),
            version: version.clone().into(),
            kind: kind.clone().into(),
            plural: plural.clone().into(),
            namespaced: !namespace.is_empty(),
        };
        let exists =
            || self.client.find::<Value>(&resource, &Key::new(&namespace, &name)).is_ok_and(|o| o.is_some());
        if operation == Operation::Create && !name.is_empty() && exists() {
            return Ok(());
        }
        let kind = Kind::new(&group, &version, &kind, &plural, !namespace.is_empty());
        let object = if request["object"].is_null() { &request["oldObject"] } else { &request["object"] };
        let mut object = object.clone();
        object["metadata"]["namespace"] = namespace.clone().into();
        object["metadata"]["name"] = name.clone().into();
        restriction::judge(&Review {
            state: &store.read(),
            target: &Target::new(Arc::new(kind), &namespace, &name),
            object: &object,
            user: &user(&request["userInfo"]["username"], &request["userInfo"]["groups"]),
            operation,
            now: &rfc3339(self.clock.now()),
        })
    }
}
