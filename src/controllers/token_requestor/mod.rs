//! Tokens of other clusters for components and extensions in the seed (Gardener's `token-requestor`).
//!
//! A labelled Secret of the seed names an account; it is made in another cluster, and its token is written into the Secret and
//! renewed there. Woken by such Secrets, and by the time of renewal. For class `garden` the other cluster is the garden, and
//! the account is in the seed's namespace. Class `shoot` is what gardener-resource-manager does: see [`shoot`].

mod content;
pub mod shoot;

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::core::{SECRET, SERVICE_ACCOUNT, token_request};
use crate::api::gardener::seed_namespace;
use crate::api::meta::{Key, Resource, annotation, is_true, or_default, text};
use crate::base::clock::Timestamp;
use crate::base::random;
use crate::format::{duration, time};
use crate::kube::{Client, Garden, Patch, Seed, Trust};
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
const NAME: &str = "serviceaccount.resources.gardener.cloud/name";
const NAMESPACE: &str = "serviceaccount.resources.gardener.cloud/namespace";
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
        let requests = Requests {
            target: &self.garden,
            seed: &self.seed,
            class: "garden",
            namespace: Some(&self.namespace),
        };
        requests.renew(key, cx)
    }
}

/// A cluster, and the Secrets of the seed that ask for its tokens.
struct Requests<'a> {
    target: &'a Client,
    seed: &'a Seed,
    class: &'static str,
    /// The namespace of all accounts; `None`: each Secret names it.
    namespace: Option<&'a str>,
}

impl Requests<'_> {
    /// Brings a new token into a Secret if one is due; says when to come again.
    fn renew(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        let Some(secret) = self.seed.find::<Value>(&SECRET, &key.namespace, &key.name)? else {
            return Ok(Outcome::Done);
        };
        if !is_relevant(&secret, self.class) {
            return Ok(Outcome::Done);
        }
        let (begun, now) = (cx.clock.mono(), cx.clock.now());
        let bundle = self.bundle(&secret)?;
        if let Some(wait) = self.until_renewal(&secret, bundle.as_deref(), now)? {
            return Ok(Outcome::At(begun.saturating_add(wait)));
        }
        let account = self.ensure_account(key, &secret)?;
        let made = &self.request(&account, &secret)?["status"];
        let expires = time::parse_rfc3339(text(&made["expirationTimestamp"]))?;
        let wait = renewal(expires.since(now), random::unit());
        self.write(key, &secret, (text(&made["token"]), bundle.as_deref()), now.plus(wait))?;
        log::info!(account = account.to_string().as_str(), secret = key.to_string().as_str(), cluster = self.class; "Requested a token");
        Ok(Outcome::At(begun.saturating_add(wait)))
    }

    /// The CA of the cluster, if the Secret wants it and there is one.
    fn bundle(&self, secret: &Value) -> Result<Option<Vec<u8>>, Failure> {
        let wanted = annotation(secret, "serviceaccount.resources.gardener.cloud/inject-ca-bundle");
        match &self.target.connection().trust {
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
                let Some(found) = self.target.find::<Value>(&SECRET, &key.namespace, &key.name)? else {
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
        if !self.target.create::<TokenReview>(&TOKEN_REVIEW, "", &review)?.status.authenticated {
            return Ok(None);
        }
        let left = time::parse_rfc3339(renew_at)?.since(now);
        Ok(Some(left).filter(|left| !left.is_zero()))
    }

    fn ensure_account(&self, secret_key: &Key, secret: &Value) -> Result<Key, Failure> {
        let name = annotation(secret, NAME);
        let namespace = self.namespace.unwrap_or_else(|| annotation(secret, NAMESPACE));
        for (value, missing) in [(name, NAME), (namespace, NAMESPACE)] {
            if value.is_empty() {
                let why =
                    format!("Secret {secret_key} does not name an account: set its annotation {missing}");
                return Err(Failure::terminal(why));
            }
        }
        let key = Key::new(namespace, name);
        let labels: Value = match annotation(secret, "serviceaccount.resources.gardener.cloud/labels") {
            "" => Value::Null,
            text => serde_json::from_str(text)?,
        };
        write::ensure(self.target, &SERVICE_ACCOUNT, &key, |account| {
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
        Ok(self.target.create_sub(&SERVICE_ACCOUNT, namespace, name, "token", &request)?)
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
                let found = self.target.find::<Value>(&SECRET, &target.namespace, &target.name)?;
                let data = content::filled(&found.unwrap_or_default()["data"], token, bundle)?;
                write::ensure(self.target, &SECRET, &target, |secret| content::put(secret, &data))?;
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

/// Whether a Secret asks for a token of this class.
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
