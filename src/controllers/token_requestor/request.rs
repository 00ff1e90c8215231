//! A check of one Secret that needs an account's token: whether its renewal is due, and how the token is written.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::api::core::{POD, SECRET, SERVICE_ACCOUNT, token_request};
use crate::api::meta::{ALL_NAMESPACES, CLUSTER_SCOPED, Key, Metadata, Resource, annotation, is_true, text};
use crate::base::json::json;
use crate::base::random;
use crate::base::sorted::SortedSet;
use crate::format::{duration, time, view};
use crate::kube::{Client, Error, ListItem, ListParams, Patch, Seed, ServerTrust};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};
use crate::runtime::write;

use super::content;
use super::decide::{self, RenewalPlan};
use super::pace::{NamespaceUse, TokenRateLimit, TokenSecret, Urgency};

const TOKEN_REVIEW: Resource =
    Resource::new("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", false);
const NAME: &str = "serviceaccount.resources.gardener.cloud/name";
const NAMESPACE: &str = "serviceaccount.resources.gardener.cloud/namespace";
const RENEW_AT: &str = "serviceaccount.resources.gardener.cloud/token-renew-timestamp";
const EXPIRATION: &str = "serviceaccount.resources.gardener.cloud/token-expiration-duration";
const EXPIRATION_DEFAULT: Duration = Duration::from_secs(12 * 3_600);
/// The share of its lifetime after which a token is renewed.
const PERCENT: u32 = 80;
/// A token whose renewal is overdue by this much was not renewed in time, and others may be in the same state: used
/// ones are renewed first.
const LATE: Duration = Duration::from_secs(600);
/// The retry delay while another caller lists used namespaces.
const LOOKING_AGAIN: Duration = Duration::from_millis(300);

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenReview {
    status: ReviewStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReviewStatus {
    authenticated: bool,
}

/// A cluster, and the Secrets of the seed that need its tokens.
pub(super) struct Requests<'a> {
    /// The cluster.
    pub(super) target: &'a Client,
    /// The name of the cluster in the rate limit.
    pub(super) target_name: &'a str,
    pub(super) seed: &'a Seed,
    pub(super) pace: &'a TokenRateLimit,
    pub(super) class: &'static str,
    /// The namespace of all accounts; `None` if each Secret names it.
    pub(super) namespace: Option<&'a str>,
}

impl Requests<'_> {
    /// Writes a new token to a Secret if it is due, and returns when to check again.
    pub(super) fn renew(
        &self,
        key: &Key,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        let asker = TokenSecret { class: self.class, key: key.clone() };
        if let Some(wait) = self.pace.still_waits(&asker, cx.clock.mono()) {
            return Ok(ReconcileOutcome::GoOn(wait));
        }
        let found = self.seed.find::<Value>(&SECRET, key)?;
        let Some(secret) = found.filter(|secret| is_relevant(secret, self.class)) else {
            self.pace.forget(&asker);
            return Ok(ReconcileOutcome::Done);
        };
        let (begun, now) = (cx.clock.mono(), cx.clock.now());
        // A token may exist in another cluster.
        let has_token = target_of(&secret).is_some() || !content::token(&secret["data"])?.is_empty();
        let plan = decide::plan(annotation(&secret, RENEW_AT), has_token, now);
        if let Some(wait) = take_turn(self.pace, self.seed, asker, self.target_name, plan, cx)? {
            return Ok(ReconcileOutcome::GoOn(wait));
        }
        let bundle = self.bundle(&secret)?;
        if let RenewalPlan::Keep(left) = plan
            && self.is_good(&secret, bundle.as_deref(), cx)?
        {
            return Ok(ReconcileOutcome::At(begun.saturating_add(left)));
        }
        let account = self.ensure_account(key, &secret, cx)?;
        let made = &self.request(&account, &secret, cx)?["status"];
        let expires = time::parse_rfc3339(text(&made["expirationTimestamp"]))?;
        let wait = decide::renewal(expires.since(now), PERCENT, random::unit());
        self.write(key, &secret, text(&made["token"]), bundle.as_deref(), &time::rfc3339(now.plus(wait)))?;
        log::info!(account = account.to_string().as_str(), secret = key.to_string().as_str(), cluster = self.class; "Requested a token");
        Ok(ReconcileOutcome::At(begun.saturating_add(wait)))
    }

    /// The CA of the cluster, if the Secret wants it and there is one.
    fn bundle(&self, secret: &Value) -> Result<Option<Vec<u8>>, ReconcileFailure> {
        let wanted = annotation(secret, "serviceaccount.resources.gardener.cloud/inject-ca-bundle");
        match &self.target.connection().trust {
            ServerTrust::Bundle(bundle) if is_true(wanted) => Ok(Some(bundle.load()?.to_vec())),
            _ => Ok(None),
        }
    }

    /// Reports the result to the rate limit.
    fn hear<T>(&self, cx: &ReconcileContext, result: Result<T, Error>) -> Result<T, Error> {
        self.pace.hear(self.target_name, cx.clock.mono(), result)
    }

    /// Whether the token exists together with the right CA, and the cluster accepts it.
    fn is_good(
        &self,
        secret: &Value,
        bundle: Option<&[u8]>,
        cx: &ReconcileContext,
    ) -> Result<bool, ReconcileFailure> {
        let client = self.target;
        let target;
        let holder = match target_of(secret) {
            None => secret,
            Some(key) => {
                let found = client.find::<Value>(&SECRET, &key);
                let Some(found) = self.hear(cx, found)? else { return Ok(false) };
                target = found;
                &target
            }
        };
        let token = content::token(&holder["data"])?;
        if token.is_empty() || bundle.is_some_and(|bundle| !content::has_bundle(&holder["data"], bundle)) {
            return Ok(false);
        }
        let review = json!({"apiVersion": TOKEN_REVIEW.api_version(), "kind": "TokenReview", "spec": {"token": token}});
        let answer = self.hear(cx, client.create::<TokenReview>(&TOKEN_REVIEW, CLUSTER_SCOPED, &review))?;
        Ok(answer.status.authenticated)
    }

    fn ensure_account(
        &self,
        secret_key: &Key,
        secret: &Value,
        cx: &ReconcileContext,
    ) -> Result<Key, ReconcileFailure> {
        let name = annotation(secret, NAME);
        let namespace = self.namespace.unwrap_or_else(|| annotation(secret, NAMESPACE));
        for (value, missing) in [(name, NAME), (namespace, NAMESPACE)] {
            if value.is_empty() {
                let why =
                    format!("Secret {secret_key} does not name an account: set its annotation {missing}");
                return Err(refuse(why));
            }
        }
        let key = Key::new(namespace, name);
        let labels: Value = match annotation(secret, "serviceaccount.resources.gardener.cloud/labels") {
            "" => Value::Null,
            text => view::json(text.as_bytes())?,
        };
        let written = write::ensure(self.target, &SERVICE_ACCOUNT, &key, &|account| {
            account["metadata"]["labels"] = labels.clone();
            account["automountServiceAccountToken"] = json!(false);
        });
        self.hear(cx, written)?;
        Ok(key)
    }

    fn request(
        &self,
        account: &Key,
        secret: &Value,
        cx: &ReconcileContext,
    ) -> Result<Value, ReconcileFailure> {
        let lifetime = match annotation(secret, EXPIRATION) {
            "" => EXPIRATION_DEFAULT,
            text => duration::parse(text)?,
        };
        let request = token_request(lifetime.as_secs());
        let made = self.target.create_sub(&SERVICE_ACCOUNT, account, "token", &request);
        Ok(self.hear(cx, made)?)
    }

    /// With resourceVersion, because the owner of the Secret may be changing the kubeconfig around the token.
    fn write(
        &self,
        key: &Key,
        secret: &Value,
        token: &str,
        bundle: Option<&[u8]>,
        renew_at: &str,
    ) -> Result<(), ReconcileFailure> {
        let data = match target_of(secret) {
            None => content::filled(&secret["data"], token, bundle)?,
            Some(target) => {
                let client = self.target;
                let found = client.find::<Value>(&SECRET, &target)?;
                let data = content::filled(&found.unwrap_or_default()["data"], token, bundle)?;
                write::ensure(client, &SECRET, &target, &|secret| content::put(secret, &data))?;
                json!({"token": null, "bundle.crt": null, "kubeconfig": null})
            }
        };
        put(self.seed, key, secret, RENEW_AT, renew_at, &data)
    }
}

/// Writes a token and its renewal time to a Secret, unless the Secret has changed since it was read.
pub(super) fn put(
    seed: &Seed,
    key: &Key,
    secret: &Value,
    annotation: &str,
    renew_at: &str,
    data: &Value,
) -> Result<(), ReconcileFailure> {
    let version = &secret["metadata"]["resourceVersion"];
    let metadata = json!({"resourceVersion": version, "annotations": {annotation: renew_at}});
    let patch = Patch::Merge(json!({"metadata": metadata, "data": data}));
    seed.patch::<Value>(&SECRET, key, &patch)?;
    Ok(())
}

/// Requests a turn; returns how long to wait if there is none now.
pub(super) fn take_turn(
    pace: &TokenRateLimit,
    seed: &Seed,
    asker: TokenSecret,
    server: &str,
    plan: RenewalPlan,
    cx: &ReconcileContext,
) -> Result<Option<Duration>, ReconcileFailure> {
    let (now, mono) = (cx.clock.now(), cx.clock.mono());
    let (urgency, since) = match plan {
        RenewalPlan::Request => (Urgency::Missing, now),
        RenewalPlan::Keep(left) => (Urgency::Check, now.plus(left)),
        RenewalPlan::Renew(since) if now.since(since) < LATE => (Urgency::Due, since),
        RenewalPlan::Renew(since) => match pace.use_of(&asker.key.namespace, mono) {
            NamespaceUse::Used => (Urgency::Due, since),
            NamespaceUse::Unused => (Urgency::Unused, since),
            NamespaceUse::Wait => return Ok(Some(LOOKING_AGAIN)),
            NamespaceUse::Look => {
                let found = users(seed);
                pace.tell_users(found.as_ref().ok().cloned(), cx.clock.mono());
                let is_used = found?.contains(&asker.key.namespace);
                (if is_used { Urgency::Due } else { Urgency::Unused }, since)
            }
        },
    };
    Ok(pace.ask(asker, server, urgency, since, mono))
}

/// The namespaces that have pods.
fn users(seed: &Seed) -> Result<SortedSet<String>, Error> {
    let (mut all, mut lost) = (SortedSet::new(), None);
    let params = ListParams { metadata_only: true, ..ListParams::default() };
    // A pod that cannot be decoded has a namespace too.
    seed.list_each::<Metadata>(&POD, ALL_NAMESPACES, &params, &mut |item| match item {
        ListItem::Object(pod) if !all.contains(&pod.metadata.namespace) => {
            all.insert(pod.metadata.namespace);
        }
        ListItem::Undecodable(pod) if pod.key.name.is_empty() => lost = Some(pod.why),
        ListItem::Undecodable(pod) => drop(all.insert(pod.key.namespace)),
        _ => {}
    })?;
    lost.map_or(Ok(all), |source| {
        Err(Error::Decode { what: "a pod without a known namespace".to_owned(), source })
    })
}

/// A problem of a Secret that stays until somebody changes it: only the log can report it.
pub(super) fn refuse(why: String) -> ReconcileFailure {
    log::warn!(err = why.as_str(); "Cannot handle a Secret that requests a token");
    ReconcileFailure::terminal(why)
}

/// Whether a Secret requests a token of this class.
fn is_relevant(secret: &Value, class: &str) -> bool {
    let labels = &secret["metadata"]["labels"];
    labels["resources.gardener.cloud/purpose"] == "token-requestor"
        && labels["resources.gardener.cloud/class"] == class
}

/// The Secret of the other cluster that gets the token instead.
fn target_of(secret: &Value) -> Option<Key> {
    let part =
        |part| annotation(secret, &format!("token-requestor.resources.gardener.cloud/target-secret-{part}"));
    let (namespace, name) = (part("namespace"), part("name"));
    (!namespace.is_empty() && !name.is_empty()).then(|| Key::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_secrets_request_a_token() {
        let secret = |purpose: &str, class: &str| json!({"metadata": {"labels": {"resources.gardener.cloud/purpose": purpose, "resources.gardener.cloud/class": class}}});
        assert!(is_relevant(&secret("token-requestor", "garden"), "garden"));
        assert!(!is_relevant(&secret("token-requestor", "shoot"), "garden"));
        assert!(is_relevant(&secret("token-requestor", "shoot"), "shoot"));
        assert!(!is_relevant(&secret("other", "garden"), "garden"));
        assert!(!is_relevant(&json!({"metadata": {}}), "garden"));
    }

    #[test]
    fn a_target_has_name_and_namespace() {
        let secret = |namespace: &str| {
            json!({"metadata": {"annotations": {
                "token-requestor.resources.gardener.cloud/target-secret-name": "n",
                "token-requestor.resources.gardener.cloud/target-secret-namespace": namespace,
            }}})
        };
        assert_eq!(target_of(&secret("ns")), Some(Key::new("ns", "n")));
        assert_eq!(target_of(&secret("")), None);
        assert_eq!(target_of(&json!({})), None);
    }
}
