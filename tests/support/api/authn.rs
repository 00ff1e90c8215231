//! Who asks: client certificates, bearer tokens, a trusted front proxy.

use gardenlet::base::clock::Timestamp;
use ring::signature::{self, KeyPair, RsaKeyPair, UnparsedPublicKey};
use ring::{hmac, rand};
use serde_json::{Value, json};

use super::User;
use super::store::State;
use crate::encoding::{base64_url, from_base64, from_pem, from_rfc3339, sha256_hex};
use crate::json::{list, text};

/// Tokens that the server knows without looking into its storage, and the key of those that it issues.
pub struct Tokens {
    key: hmac::Key,
    fixed: Vec<(String, User)>,
    accounts: Option<Accounts>,
}

const ISSUER: &str = "https://kubernetes.default.svc";

impl Default for Tokens {
    fn default() -> Self {
        let key = gardenlet::base::random::bytes::<32>();
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), fixed: Vec::new(), accounts: None }
    }
}

impl Tokens {
    /// Makes a token valid for a user, without expiry.
    pub fn add(&mut self, token: &str, user: User) {
        self.fixed.push((token.to_owned(), user));
    }

    /// Replaces the fixed tokens with those of a token file.
    pub fn set_fixed(&mut self, fixed: Vec<(String, User)>) {
        self.fixed = fixed;
    }

    /// Uses these keys for tokens of ServiceAccounts, instead of a key of its own.
    pub fn set_accounts(&mut self, accounts: Accounts) {
        self.accounts = Some(accounts);
    }

    /// The audiences of a token that names none.
    pub fn audiences(&self) -> Vec<String> {
        self.accounts.as_ref().map_or_else(|| vec![ISSUER.to_owned()], |accounts| accounts.audiences.clone())
    }

    /// A token for a ServiceAccount: claims and a signature, as a JSON web token.
    pub fn issue(&self, account: &Value, audiences: &[String], now: Timestamp, lifetime_s: i64) -> String {
        let (namespace, name) = (text(account, "/metadata/namespace"), text(account, "/metadata/name"));
        let issuer = self.accounts.as_ref().map_or(ISSUER, |accounts| accounts.issuer.as_str());
        let claims = json!({"iss": issuer, "aud": audiences, "iat": now.unix(),
            "nbf": now.unix(), "exp": now.unix() + lifetime_s, "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "jti": super::write::uid(), "kubernetes.io": {"namespace": namespace,
                "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]}}});
        if let Some(accounts) = &self.accounts {
            return accounts.sign(&claims);
        }
        let head = base64_url(json!({"alg": "HS256", "typ": "JWT"}).to_string().as_bytes());
        let signed = format!("{head}.{}", base64_url(claims.to_string().as_bytes()));
        let signature = hmac::sign(&self.key, signed.as_bytes());
        format!("{signed}.{}", base64_url(signature.as_ref()))
    }

    /// The user of a token; none if it is unknown or expired, or if its account is deleted.
    pub fn user(&self, state: &State, token: &str, now: Timestamp) -> Option<User> {
        let fixed = self.fixed.iter().find(|(known, _)| known == token).map(|(_, user)| user.clone());
        let found = fixed
            .or_else(|| bootstrap_user(state, token, now))
            .or_else(|| self.account(state, token, now))?;
        Some(authenticated(found))
    }

    fn account(&self, state: &State, token: &str, now: Timestamp) -> Option<User> {
        let claims = match &self.accounts {
            Some(accounts) => accounts.claims(token)?,
            None => {
                let (signed, signature) = token.rsplit_once('.')?;
                hmac::verify(&self.key, signed.as_bytes(), &from_base64(signature)?).ok()?;
                claims_of(signed)?
            }
        };
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

/// The claims of a JSON web token without its signature.
fn claims_of(signed: &str) -> Option<Value> {
    serde_json::from_slice(&from_base64(signed.split_once('.')?.1)?).ok()
}

/// The settings with which kube-apiserver issues (RS256) and accepts tokens.
pub struct Accounts {
    signing: RsaKeyPair,
    /// PKCS #1 of the public keys, of tokens of the past as well.
    known: Vec<Vec<u8>>,
    pub issuer: String,
    pub audiences: Vec<String>,
}

impl Accounts {
    /// `signing` is the PEM text of an RSA key, `known` are those of one or more.
    pub fn new(signing: &str, known: &str, issuer: &str, audiences: &[String]) -> Result<Self, String> {
        let known =
            known.split_inclusive("-----END RSA PRIVATE KEY-----").filter(|pem| !pem.trim().is_empty());
        let known: Vec<Vec<u8>> =
            known.map(|pem| Ok(rsa(pem)?.public_key().as_ref().to_vec())).collect::<Result<_, String>>()?;
        let signing = rsa(signing)?;
        if !known.iter().any(|key| key == signing.public_key().as_ref()) {
            return Err("the key that signs tokens is not among those that are believed".to_owned());
        }
        Ok(Self { signing, known, issuer: issuer.to_owned(), audiences: audiences.to_vec() })
    }

    fn sign(&self, claims: &Value) -> String {
        let id = sha256_hex(self.signing.public_key().as_ref());
        let head = base64_url(json!({"alg": "RS256", "kid": id}).to_string().as_bytes());
        let signed = format!("{head}.{}", base64_url(claims.to_string().as_bytes()));
        let mut signature = vec![0; self.signing.public().modulus_len()];
        let random = rand::SystemRandom::new();
        self.signing.sign(&signature::RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", base64_url(&signature))
    }

    /// The claims of a token, if it is valid for this server.
    fn claims(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = from_base64(signature)?;
        let fits = |key: &&Vec<u8>| {
            let key = UnparsedPublicKey::new(&signature::RSA_PKCS1_2048_8192_SHA256, key);
            key.verify(signed.as_bytes(), &signature).is_ok()
        };
        self.known.iter().find(fits)?;
        let claims = claims_of(signed)?;
        let for_us = list(&claims, "/aud").iter().filter_map(Value::as_str);
        let is_for_us = for_us.into_iter().any(|audience| self.audiences.iter().any(|ours| ours == audience));
        (is_for_us && claims["iss"] == *self.issuer).then_some(claims)
    }
}

/// An RSA key as Gardener writes it: PKCS #1.
fn rsa(pem: &str) -> Result<RsaKeyPair, String> {
    let start = pem.trim_start();
    if !start.starts_with("-----BEGIN RSA PRIVATE KEY-----") {
        return Err(format!("not an RSA key in PKCS #1: {:?}", start.lines().next().unwrap_or_default()));
    }
    let der = from_pem(pem).ok_or("no PEM data")?;
    RsaKeyPair::from_der(&der).map_err(|why| format!("not an RSA key: {why}"))
}

/// The user of a ServiceAccount.
pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        uid: uid.to_owned(),
        groups: groups.to_vec(),
    }
}

/// A user in whose name a request is made.
pub fn impersonated(name: &str, groups: Vec<String>) -> User {
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account.filter(|_| groups.is_empty()) {
        Some((namespace, name)) => authenticated(service_account(namespace, name, "")),
        None => authenticated(User { name: name.to_owned(), uid: String::new(), groups }),
    }
}

/// Adds the group of all authenticated users.
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
