//! Tokens of the garden for components and extensions in the seed (Gardener's `token-requestor` of class `garden`).
//!
//! A labelled Secret of the seed names an account; it is made in the seed's namespace of the garden, and its token is
//! written into the Secret and renewed there. Woken by such Secrets, and by the time of renewal. The class `shoot`
//! belongs to gardener-resource-manager.

mod content;

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::core::{SECRET, SERVICE_ACCOUNT, token_request};
use crate::api::gardener::seed_namespace;
use crate::api::meta::{Key, Resource, annotation, is_true, or_default, text};
use crate::base::clock::Timestamp;
use crate::base::random;
use crate::format::{duration, time};
use crate::kube::{Garden, Patch, Seed, Trust};
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::group::Group;
use crate::runtime::informer::Options;
use crate::runtime::marks::Marks;
use crate::runtime::queue::RETRY_DEFAULT;
use crate::runtime::write;

use super::Site;

/// Which Secrets are watched.
const SELECTOR: &str =
    "resources.gardener.cloud/purpose=token-requestor,resources.gardener.cloud/class=garden";

const TOKEN_REVIEW: Resource =
    Resource::new("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", false);
const RENEW_AT: &str = "serviceaccount.resources.gardener.cloud/token-renew-timestamp";
const EXPIRATION: &str = "serviceaccount.resources.gardener.cloud/token-expiration-duration";
const EXPIRATION_DEFAULT: Duration = Duration::from_secs(12 * 3_600);
/// Of a token that lives longer, only this much counts.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Adds the controller.
pub fn add(site: &Site, group: &mut Group) {
    let workers = site.settings.controllers.token_requestor_workers;
    let lane = group.lane("token-requestor", workers, RETRY_DEFAULT);
    let secrets = Marks::default();
    group.wake_seen(&lane, &secrets, |secret| vec![secret.key.clone()]);
    let labelled = Options {
        label_selector: SELECTOR.to_owned(),
        metadata_only: true,
        ..Options::all("seed/token-secrets", SECRET)
    };
    group.watch(&site.seed, labelled, &secrets);
    let requestor = TokenRequestor {
        garden: site.garden.clone(),
        seed: site.seed.clone(),
        namespace: seed_namespace(site.seed_name()),
    };
    group.run(lane, requestor);
}

struct TokenRequestor {
    garden: Garden,
    seed: Seed,
    /// The namespace of the accounts in the garden.
    namespace: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenReview {
    status: ReviewStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReviewStatus {
    #[serde(deserialize_with = "or_default")]
    authenticated: bool,
}

impl Reconciler for TokenRequestor {
    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        let Some(secret) = self.seed.find::<Value>(&SECRET, &key.namespace, &key.name)? else {
            return Ok(Outcome::Done);
        };
        if !is_relevant(&secret) {
            return Ok(Outcome::Done);
        }
        let bundle = self.bundle(&secret)?;
        if let Some(wait) = self.until_renewal(&secret, bundle.as_deref(), cx.clock.now())? {
            return Ok(Outcome::After(wait));
        }
        let account = self.ensure_account(&secret)?;
        let made = &self.request(&account, &secret)?["status"];
        let now = cx.clock.now();
        let expires = time::parse_rfc3339(text(&made["expirationTimestamp"]))?;
        let wait = renewal(expires.since(now), random::unit());
        self.write(key, &secret, (text(&made["token"]), bundle.as_deref()), now.plus(wait))?;
        log::info!(account = account.to_string().as_str(); "Requested a token of the garden");
        Ok(Outcome::After(wait))
    }
}

impl TokenRequestor {
    /// The CA of the garden, if the Secret wants it and there is one.
    fn bundle(&self, secret: &Value) -> Result<Option<Vec<u8>>, Failure> {
        let wanted = annotation(secret, "serviceaccount.resources.gardener.cloud/inject-ca-bundle");
        match &self.garden.connection().trust {
            Trust::Bundle(bundle) if is_true(wanted) => Ok(Some(bundle.load()?.to_vec())),
            _ => Ok(None),
        }
    }

    /// How long the present token is good; `None` if a new one is due.
    fn until_renewal(
        &self,
        secret: &Value,
        bundle: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<Option<Duration>, Failure> {
        let renew_at = annotation(secret, RENEW_AT);
        if renew_at.is_empty() {
            return Ok(None);
        }
        let target;
        let holder = match target_of(secret) {
            None => secret,
            Some(key) => {
                let Some(found) = self.garden.find::<Value>(&SECRET, &key.namespace, &key.name)? else {
                    return Ok(None);
                };
                target = found;
                &target
            }
        };
        let token = content::token(&holder["data"])?;
        if token.is_empty() || bundle.is_some_and(|bundle| !content::has_bundle(&holder["data"], bundle)) {
            return Ok(None);
        }
        let review = json!({"apiVersion": TOKEN_REVIEW.api_version(), "kind": "TokenReview", "spec": {"token": token}});
        if !self.garden.create::<TokenReview>(&TOKEN_REVIEW, "", &review)?.status.authenticated {
            return Ok(None);
        }
        let left = time::parse_rfc3339(renew_at)?.since(now);
        Ok(Some(left).filter(|left| !left.is_zero()))
    }

    fn ensure_account(&self, secret: &Value) -> Result<Key, Failure> {
        let name = annotation(secret, "serviceaccount.resources.gardener.cloud/name");
        if name.is_empty() {
            return Err(Failure::terminal("the Secret does not name an account"));
        }
        let key = Key::new(self.namespace.as_str(), name);
        let labels: Value = match annotation(secret, "serviceaccount.resources.gardener.cloud/labels") {
            "" => Value::Null,
            text => serde_json::from_str(text)?,
        };
        write::ensure(&self.garden, &SERVICE_ACCOUNT, &key, |account| {
            account["metadata"]["labels"] = labels.clone();
            account["automountServiceAccountToken"] = json!(false);
        })?;
        Ok(key)
    }

    fn request(&self, account: &Key, secret: &Value) -> Result<Value, Failure> {
        let lifetime = match annotation(secret, EXPIRATION) {
            "" => EXPIRATION_DEFAULT,
            text => duration::parse(text)?,
        };
        let request = token_request(lifetime.as_secs());
        let (namespace, name) = (account.namespace.as_str(), account.name.as_str());
        Ok(self.garden.create_sub(&SERVICE_ACCOUNT, namespace, name, "token", &request)?)
    }

    /// With resourceVersion: whoever asks for the token may be changing the kubeconfig around it.
    fn write(
        &self,
        key: &Key,
        secret: &Value,
        (token, bundle): (&str, Option<&[u8]>),
        renew_at: Timestamp,
    ) -> Result<(), Failure> {
        let data = match target_of(secret) {
            None => content::filled(&secret["data"], token, bundle)?,
            Some(target) => {
                let found = self.garden.find::<Value>(&SECRET, &target.namespace, &target.name)?;
                let data = content::filled(&found.unwrap_or_default()["data"], token, bundle)?;
                write::ensure(&self.garden, &SECRET, &target, |secret| content::put(secret, &data))?;
                json!({"token": null, "bundle.crt": null, "kubeconfig": null})
            }
        };
        let metadata = json!({
            "resourceVersion": secret["metadata"]["resourceVersion"],
            "annotations": {RENEW_AT: time::rfc3339(renew_at)},
        });
        let patch = Patch::Merge(json!({"metadata": metadata, "data": data}));
        self.seed.patch::<Value>(&SECRET, &key.namespace, &key.name, "", &patch)?;
        Ok(())
    }
}

/// Whether a Secret asks for a token of the garden.
fn is_relevant(secret: &Value) -> bool {
    let labels = &secret["metadata"]["labels"];
    labels["resources.gardener.cloud/purpose"] == "token-requestor"
        && labels["resources.gardener.cloud/class"] == "garden"
}

/// The Secret of the garden that gets the token instead.
fn target_of(secret: &Value) -> Option<Key> {
    let part =
        |part| annotation(secret, &format!("token-requestor.resources.gardener.cloud/target-secret-{part}"));
    let (namespace, name) = (part("namespace"), part("name"));
    (!namespace.is_empty() && !name.is_empty()).then(|| Key::new(namespace, name))
}

/// When to renew a token that lives for `lifetime`: after 80 % of it, up to a twentieth later by chance (0 to 1).
fn renewal(lifetime: Duration, chance: f64) -> Duration {
    let share = lifetime.min(LIFETIME_MAX) * 4 / 5;
    share + share.mul_f64(0.05 * chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_comes_after_four_fifths() {
        let h = |hours: u64| Duration::from_secs(hours * 3_600);
        assert_eq!(renewal(h(10), 0.0), h(8));
        assert_eq!(renewal(h(10), 1.0), Duration::from_secs(8 * 3_600 + 1_440));
        assert_eq!(renewal(h(100), 0.0), Duration::from_secs(69_120));
        assert_eq!(renewal(Duration::ZERO, 1.0), Duration::ZERO);
    }

    #[test]
    fn who_asks_for_a_token() {
        let secret = |purpose: &str, class: &str| json!({"metadata": {"labels": {"resources.gardener.cloud/purpose": purpose, "resources.gardener.cloud/class": class}}});
        assert!(is_relevant(&secret("token-requestor", "garden")));
        assert!(!is_relevant(&secret("token-requestor", "shoot")));
        assert!(!is_relevant(&secret("other", "garden")));
        assert!(!is_relevant(&json!({"metadata": {}})));
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
