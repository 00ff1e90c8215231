//! Tokens of WorkloadIdentities (Gardener's `token-requestor-workload-identity`).
//!
//! A labelled Secret of the seed names a WorkloadIdentity of the garden, and the object on whose behalf its token is
//! used. The garden issues the token. The controller writes it to the Secret and renews it. Woken by such Secrets, and
//! at the time of renewal.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::gardener::{BACKUP_BUCKET, BACKUP_ENTRY, SEED, SHOOT, WORKLOAD_IDENTITY};
use crate::api::meta::{Key, annotation, text};
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::random;
use crate::extension::credentials::IDENTITY;
use crate::format::{base64, time, view};
use crate::kube::{Error, ErrorVerdict, Garden};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::events::{Event, InvolvedObject};
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::Options;
use crate::runtime::marks::Marks;
use crate::runtime::queue::Retry;

use super::decide::{self, RenewalPlan};
use super::pace::TokenSecret;
use super::request::{put, refuse, take_turn};
use super::{GARDEN, Site};

const NAME: &str = "token-requestor-workload-identity";
const SELECTOR: &str = "security.gardener.cloud/purpose=workload-identity-token-requestor";
/// The share of its lifetime after which a token is renewed.
const PERCENT: u32 = 50;
/// The first and the longest delay after a failure, for example for a missing or refused identity.
const RETRY: Retry = Retry { first: Duration::from_secs(5), max: Duration::from_secs(300) };

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let settings = &site.settings.controllers.workload_identity_tokens;
    let lane = group.lane(NAME, settings.workers, RETRY);
    let secrets = Marks::default();
    group.wake_seen(&lane, &secrets, |secret| vec![secret.key.clone()]);
    let labelled = Options {
        label_selector: SELECTOR.to_owned(),
        metadata_only: true,
        ..Options::all("seed/workload-identity-secrets", SECRET)
    };
    group.watch(&site.seed, labelled, &secrets);
    group.run(lane, Requestor { site: Arc::clone(site) });
}

struct Requestor {
    site: Arc<Site>,
}

impl Reconciler for Requestor {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let (seed, pace) = (&self.site.seed, &self.site.tokens.pace);
        let asker = TokenSecret { class: "identity", key: key.clone() };
        if let Some(wait) = pace.still_waits(&asker, cx.clock.mono()) {
            return Ok(ReconcileOutcome::GoOn(wait));
        }
        let found = seed.find::<Value>(&SECRET, key)?;
        let Some(secret) = found.filter(is_relevant) else {
            pace.forget(&asker);
            return Ok(ReconcileOutcome::Done);
        };
        let (begun, now) = (cx.clock.mono(), cx.clock.now());
        let has_token = !text(&secret["data"]["token"]).is_empty();
        let plan = decide::plan(of(&secret, "token-renew-timestamp"), has_token, now);
        if let RenewalPlan::Keep(left) = plan {
            // The garden cannot review tokens of identities.
            pace.forget(&asker);
            return Ok(ReconcileOutcome::At(begun.saturating_add(left)));
        }
        let token_request = IdentityTokenRequest::read(key, &secret)?;
        if let Some(wait) = take_turn(pace, seed, asker, GARDEN, plan, cx)? {
            return Ok(ReconcileOutcome::GoOn(wait));
        }
        let made = &self.request(&token_request, cx)?["status"];
        let expires = time::parse_rfc3339(text(&made["expirationTimestamp"]))?;
        let wait = decide::renewal(expires.since(now), PERCENT, random::unit());
        let renew_at = time::rfc3339(now.plus(wait));
        let token = base64::encode(text(&made["token"]).as_bytes());
        let renewed = format!("{IDENTITY}token-renew-timestamp");
        put(seed, key, &secret, &renewed, &renew_at, &json!({"token": token}))?;
        log::info!(identity = token_request.identity.to_string().as_str(), secret = key.to_string().as_str(); "Requested a token");
        Ok(ReconcileOutcome::At(begun.saturating_add(wait)))
    }
}

impl Requestor {
    fn request(
        &self,
        token_request: &IdentityTokenRequest<'_>,
        cx: &ReconcileContext,
    ) -> Result<Value, ReconcileFailure> {
        let body = token_request.body(self.site.settings.controllers.workload_identity_tokens.lifetime);
        let made = self.site.garden.create_sub(&WORKLOAD_IDENTITY, &token_request.identity, "token", &body);
        let error = match self.site.tokens.pace.hear(GARDEN, cx.clock.mono(), made) {
            Ok(made) => return Ok(made),
            Err(error) => error,
        };
        let Some(why) = token_request.explain(&error) else { return Err(error.into()) };
        token_request.tell(&self.site.garden, &why, cx);
        Err(ReconcileFailure::retry(why))
    }
}

fn is_relevant(secret: &Value) -> bool {
    secret["metadata"]["labels"]["security.gardener.cloud/purpose"] == "workload-identity-token-requestor"
}

/// An annotation about the identity.
fn of<'a>(secret: &'a Value, name: &str) -> &'a str {
    annotation(secret, &format!("{IDENTITY}{name}"))
}

/// The request of a Secret.
#[derive(Debug)]
struct IdentityTokenRequest<'a> {
    secret: &'a Key,
    identity: Key,
    /// The object on whose behalf the token is used.
    context: Value,
}

impl<'a> IdentityTokenRequest<'a> {
    fn read(secret_key: &'a Key, secret: &Value) -> Result<Self, ReconcileFailure> {
        let identity = Key::new(of(secret, "namespace"), of(secret, "name"));
        for (part, value) in [("namespace", &identity.namespace), ("name", &identity.name)] {
            if value.is_empty() {
                return Err(refuse(format!(
                    "Secret {secret_key} does not name a WorkloadIdentity: set its annotation {IDENTITY}{part}"
                )));
            }
        }
        let context = match of(secret, "context-object") {
            "" => Value::Null,
            text => view::json(text.as_bytes()).map_err(|error| {
                refuse(format!(
                    "annotation {IDENTITY}context-object of Secret {secret_key} is not JSON ({error}): write it as \
                     {{\"kind\":...,\"apiVersion\":...,\"name\":...,\"uid\":...}}, or remove it"
                ))
            })?,
        };
        Ok(Self { secret: secret_key, identity, context })
    }

    fn body(&self, lifetime: Duration) -> Value {
        let mut body = json!({"apiVersion": WORKLOAD_IDENTITY.api_version(), "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime.as_secs()}});
        if !self.context.is_null() {
            body["spec"]["contextObject"] = self.context.clone();
        }
        body
    }

    /// What is wrong with the identity, if the garden's answer shows it.
    fn explain(&self, error: &Error) -> Option<String> {
        let Self { secret, identity, .. } = self;
        let remedy = match (error.status_code()?, error.verdict()) {
            (_, ErrorVerdict::NotFound) => {
                "create it, or change the reference to it in the object that uses the token".to_owned()
            }
            (500, _) => format!(
                "check that the object in annotation {IDENTITY}context-object exists and has that uid; the log of \
                 gardener-apiserver may say more"
            ),
            (_, ErrorVerdict::Denied | ErrorVerdict::Invalid) => format!(
                "check spec.audiences and spec.targetSystem of the WorkloadIdentity, that the object in annotation \
                 {IDENTITY}context-object refers to it, and controllers.tokenRequestorWorkloadIdentity.tokenExpirationDuration"
            ),
            _ => return None,
        };
        Some(format!(
            "the garden issues no token of WorkloadIdentity {identity} for Secret {secret} of the seed: {}: {remedy}",
            chain(error)
        ))
    }

    /// Emits an event of the object that uses the token.
    fn tell(&self, garden: &Garden, note: &str, cx: &ReconcileContext) {
        let (kind, version) = (text(&self.context["kind"]), text(&self.context["apiVersion"]));
        let kinds = [&BACKUP_BUCKET, &BACKUP_ENTRY, &SEED, &SHOOT];
        let Some(resource) = kinds.into_iter().find(|r| r.kind == kind && r.api_version() == version) else {
            return;
        };
        let field = |name: &str| text(&self.context[name]);
        let (namespace, name, uid) = (field("namespace"), field("name"), field("uid"));
        let (reason, action) = ("WorkloadIdentityTokenFailed", "RequestToken");
        let news = Event { controller: NAME, warning: true, reason, action, note };
        cx.events.tell(garden, &cx.clock, InvolvedObject { resource, namespace, name, uid }, news);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube;

    fn secret(annotations: &[(&str, &str)]) -> Value {
        let mut secret = json!({"metadata": {"annotations": {}}});
        for (name, value) in annotations {
            secret["metadata"]["annotations"][format!("{IDENTITY}{name}")] = json!(value);
        }
        secret
    }

    #[test]
    fn requests_of_a_secret() {
        let key = Key::new("garden", "bucket-x");
        let context =
            r#"{"kind":"BackupBucket","apiVersion":"core.gardener.cloud/v1beta1","name":"x","uid":"u"}"#;
        let table: [(&[(&str, &str)], &str); 4] = [
            (&[("name", "w")], "set its annotation workloadidentity.security.gardener.cloud/namespace"),
            (&[("namespace", "n")], "set its annotation workloadidentity.security.gardener.cloud/name"),
            (&[("namespace", "n"), ("name", "w"), ("context-object", "{")], "is not JSON"),
            (&[("namespace", "n"), ("name", "w"), ("context-object", context)], ""),
        ];
        for (annotations, expected) in table {
            let found = IdentityTokenRequest::read(&key, &secret(annotations));
            let error = found.err().map(|error| error.text()).unwrap_or_default();
            assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{error}");
        }
        let all = [("namespace", "n"), ("name", "w"), ("context-object", context)];
        let with = secret(&all);
        let body = IdentityTokenRequest::read(&key, &with).unwrap().body(Duration::from_secs(21_600));
        let expected = json!({"apiVersion": "security.gardener.cloud/v1alpha1", "kind": "TokenRequest", "spec": {
            "expirationSeconds": 21_600, "contextObject": {"kind": "BackupBucket",
            "apiVersion": "core.gardener.cloud/v1beta1", "name": "x", "uid": "u"}}});
        assert_eq!(body, expected);
        let without = secret(&all[..2]);
        assert!(
            IdentityTokenRequest::read(&key, &without).unwrap().body(Duration::ZERO)["spec"]
                .get("contextObject")
                .is_none()
        );
    }

    #[test]
    fn answers_about_the_identity_are_explained() {
        let key = Key::new("garden", "bucket-x");
        let named = secret(&[("namespace", "n"), ("name", "w")]);
        let token_request = IdentityTokenRequest::read(&key, &named).unwrap();
        let table = [
            (404, Some("create it")),
            (403, Some("refers to it")),
            (422, Some("spec.audiences")),
            (503, None),
            (500, Some("has that uid")),
            (429, None),
            (409, None),
        ];
        for (code, expected) in table {
            let failure =
                kube::StatusFailure { code, message: "words".to_owned(), ..kube::StatusFailure::default() };
            let found = token_request.explain(&Error::Api(Box::new(failure)));
            assert_eq!(found.is_some(), expected.is_some(), "{code}");
            if let (Some(found), Some(expected)) = (found, expected) {
                let parts = ["WorkloadIdentity n/w", "Secret garden/bucket-x", "words", expected];
                assert!(parts.iter().all(|part| found.contains(part)), "{found}");
            }
        }
    }
}
