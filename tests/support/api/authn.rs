//! Who asks: client certificates, bearer tokens, a trusted front proxy.

use gardenlet::base::clock::Timestamp;
use ring::hmac;
use serde_json::{Value, json};

use super::User;
use super::store::State;
use crate::support::encoding::{base64_url, from_base64, from_rfc3339};
use crate::support::json::text;

/// Tokens that the server knows without looking into its storage, and the key of those that it issues.
pub struct Tokens {
    key: hmac::Key,
    fixed: Vec<(String, User)>,
}

impl Default for Tokens {
    fn default() -> Self {
        let key = gardenlet::base::random::bytes::<32>();
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), fixed: Vec::new() }
    }
}

impl Tokens {
    /// Makes a token valid for a user, without an end.
    pub fn add(&mut self, token: &str, user: User) {
        self.fixed.push((token.to_owned(), user));
    }

    /// A token for a ServiceAccount: claims and a signature, in the outer form of a JSON web token.
    pub fn issue(&self, account: &Value, audiences: &[String], now: Timestamp, lifetime_s: i64) -> String {
        let (namespace, name) = (text(account, "/metadata/namespace"), text(account, "/metadata/name"));
        let claims = json!({"iss": "https://kubernetes.default.svc", "aud": audiences, "iat": now.unix(),
            "nbf": now.unix(), "exp": now.unix() + lifetime_s, "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "jti": super::write::uid(), "kubernetes.io": {"namespace": namespace,
                "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]}}});
        let head = base64_url(json!({"alg": "HS256", "typ": "JWT"}).to_string().as_bytes());
        let signed = format!("{head}.{}", base64_url(claims.to_string().as_bytes()));
        let signature = hmac::sign(&self.key, signed.as_bytes());
        format!("{signed}.{}", base64_url(signature.as_ref()))
    }

    /// Whose token it is; none if it is unknown, expired, or its owner is gone.
    pub fn user(&self, state: &State, token: &str, now: Timestamp) -> Option<User> {
        let fixed = self.fixed.iter().find(|(known, _)| known == token).map(|(_, user)| user.clone());
        let found = fixed
            .or_else(|| bootstrap_user(state, token, now))
            .or_else(|| self.account(state, token, now))?;
        Some(authenticated(found))
    }

    fn account(&self, state: &State, token: &str, now: Timestamp) -> Option<User> {
        let (signed, signature) = token.rsplit_once('.')?;
        hmac::verify(&self.key, signed.as_bytes(), &from_base64(signature)?).ok()?;
        let claims: Value = serde_json::from_slice(&from_base64(signed.split_once('.')?.1)?).ok()?;
        if claims["exp"].as_i64()? <= now.unix() {
            return None;
        }
        let bound = &claims["kubernetes.io"];
        let (namespace, name) = (text(bound, "/namespace"), text(bound, "/serviceaccount/name"));
        let account = state.get("", "serviceaccounts", namespace, name)?;
        let uid = text(bound, "/serviceaccount/uid");
        (text(account, "/metadata/uid") == uid).then(|| service_account(namespace, name, uid))
    }
}

/// The user that a ServiceAccount is.
pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        uid: uid.to_owned(),
        groups: groups.to_vec(),
    }
}

/// Adds the group of everybody who is known, to those who are.
pub fn authenticated(mut user: User) -> User {
    if !user.is_in("system:authenticated") && !user.is_in("system:unauthenticated") {
        user.groups.push("system:authenticated".to_owned());
    }
    user
}

fn bootstrap_user(state: &State, token: &str, now: Timestamp) -> Option<User> {
    let (id, secret) = token.split_once('.')?;
    let found = state.get("", "secrets", "kube-system", &format!("bootstrap-token-{id}"))?;
    let get = |key: &str| {
        let bytes = from_base64(found["data"][key].as_str()?)?;
        String::from_utf8(bytes).ok()
    };
    let expired = get("expiration").is_some_and(|at| from_rfc3339(&at).is_none_or(|at| at <= now));
    let usable = found["type"] == "bootstrap.kubernetes.io/token"
        && text(found, "/metadata/deletionTimestamp").is_empty()
        && get("token-id").as_deref() == Some(id)
        && get("token-secret").as_deref() == Some(secret)
        && get("usage-bootstrap-authentication").as_deref() == Some("true")
        && !expired;
    usable.then(|| {
        let mut user = User::new(&format!("system:bootstrap:{id}"), &["system:bootstrappers"]);
        let more = get("auth-extra-groups").unwrap_or_default();
        user.groups.extend(more.split(',').filter(|g| !g.is_empty()).map(str::to_owned));
        user
    })
}
