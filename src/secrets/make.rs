//! Creates the content of a Secret (Gardener's `pkg/utils/secrets`).

use std::time::Duration;

use serde_json::Value;

use super::config::{SecretConfig, TokenUser};
use super::manager::SecretPlan;
use super::stored::{SecretEntries, StoredSecret};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::base::random;
use crate::format::base64;
use crate::format::time::Civil;
use crate::format::yaml::{self, Dialect};
use crate::pki::issue::{
    Authority, CertificateIssuer, CertificateTemplate, KeyUsage, ServerNames, common_name, subject,
};
use crate::pki::{self, AnyKey, Certificate, password};

/// Length of CA keys.
const CA_KEY_BITS: usize = 3_072;
/// How long certificates are valid.
const VALIDITY_YEARS: i64 = 10;
/// Certificates are backdated slightly, for clocks that are behind.
const CLOCK_SKEW: Duration = Duration::from_secs(60);
const TOKEN_CHARS: usize = 128;
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

impl SecretConfig {
    /// The length in bits of the RSA key to generate first; keys of other kinds are fast to generate.
    pub(crate) const fn rsa_bits(&self) -> Option<usize> {
        match self {
            Self::Ca { .. } => Some(CA_KEY_BITS),
            Self::RsaKey { bits, .. } => Some(*bits as usize),
            _ => None,
        }
    }
}

impl SecretPlan {
    /// Creates the content of the Secret. `rsa` is the key that [`SecretConfig::rsa_bits`] requires. Errors: the
    /// key of a CA does not match, or the system has no random numbers.
    pub(crate) fn fill(
        &self,
        config: &SecretConfig,
        rsa: Option<&AnyKey>,
        now: Timestamp,
    ) -> Result<SecretEntries, pki::Error> {
        match &self.source {
            Some(source) => Ok(source.data.clone()),
            None => make(config, self, rsa, now),
        }
    }
}

fn make(
    config: &SecretConfig,
    plan: &SecretPlan,
    rsa: Option<&AnyKey>,
    now: Timestamp,
) -> Result<SecretEntries, pki::Error> {
    if !random::works() {
        return Err(pki::Error::Key("the system has no random numbers"));
    }
    let rsa = || rsa.ok_or(pki::Error::Key("there is no RSA key"));
    let one = |key: &str, value: String| -> SecretEntries { [(key.to_owned(), value.into_bytes())].into() };
    Ok(match config {
        SecretConfig::Ca { validity, .. } => {
            let key = rsa()?;
            let (not_before_unix_s, not_after_unix_s) = validity_of(*validity, now);
            let template = CertificateTemplate {
                subject: common_name(&plan.name),
                names: ServerNames::default(),
                not_before_unix_s,
                not_after_unix_s,
                usage: None,
                authority: Authority::CertificatesAndRevocations,
            };
            let certificate = template.sign(key, &CertificateIssuer::itself(&template, key)?)?;
            texts([("ca.crt", certificate), ("ca.key", key.to_pem())])
        }
        SecretConfig::Leaf { .. } => leaf(config, plan, now)?,
        SecretConfig::ClientKubeconfig { .. } => client_kubeconfig(config, plan, now)?,
        SecretConfig::RsaKey { for_ssh, .. } => {
            let mut data = one("id_rsa", rsa()?.to_pem());
            if *for_ssh {
                let public = rsa()?.ssh_public().ok_or(pki::Error::Key("this is not an RSA key"))?;
                data.insert("id_rsa.pub".to_owned(), public.into_bytes());
            }
            data
        }
        SecretConfig::EncryptionKey { provider, length, .. } => {
            let secret = random::vec(*length as usize);
            let mut data = texts([
                ("key", format!("key{}", now.unix())),
                ("encoding", "none".to_owned()),
                ("provider", provider.clone()),
            ]);
            data.insert("secret".to_owned(), secret);
            data
        }
        SecretConfig::StaticToken { tokens, .. } => {
            one("static_tokens.csv", tokens.values().map(token_line).collect::<Vec<_>>().join("\n"))
        }
        SecretConfig::BasicAuth { username, password_length, .. } => {
            let password = random::text(*password_length as usize, LETTERS);
            let auth = format!("{username}:{}", password::bcrypt(password.as_bytes()));
            texts([("username", username.clone()), ("password", password), ("auth", auth)])
        }
        SecretConfig::CertificateBundle { pems, .. } => [("bundle.crt".to_owned(), pems.concat())].into(),
        SecretConfig::KeyBundle { pems, .. } => [("bundle.key".to_owned(), pems.concat())].into(),
        SecretConfig::Kubeconfig { context, server, ca, token_file, namespace, .. } => {
            let user = json!({"tokenFile": token_file});
            one("kubeconfig", kubeconfig(context, namespace, server, ca, &user))
        }
    })
}

/// A kubeconfig with one context. `server` is host and port; `user` says how it logs in.
pub(crate) fn kubeconfig(name: &str, namespace: &str, server: &str, ca: &[u8], user: &Value) -> String {
    let mut of_context = json!({"cluster": name, "user": name});
    if !namespace.is_empty() {
        of_context["namespace"] = json!(namespace);
    }
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": {
            "certificate-authority-data": base64::encode(ca), "server": format!("https://{server}")}}],
        "contexts": [{"name": name, "context": of_context}],
        "users": [{"name": name, "user": user}],
    });
    yaml::emit(&kubeconfig, Dialect::V4)
}

fn client_kubeconfig(
    config: &SecretConfig,
    plan: &SecretPlan,
    now: Timestamp,
) -> Result<SecretEntries, pki::Error> {
    let SecretConfig::ClientKubeconfig { name, common_name, organizations, validity, context, server, ca } =
        config
    else {
        return Err(pki::Error::Key("this is not a kubeconfig"));
    };
    let certificate = SecretConfig::Leaf {
        name: name.clone(),
        common_name: common_name.clone(),
        organizations: organizations.clone(),
        usage: KeyUsage::Client,
        names: ServerNames::default(),
        validity: *validity,
        skip_ca: false,
        with_chain: false,
    };
    let mut data = leaf(&certificate, plan, now)?;
    let (crt, key) = (data.remove("tls.crt").unwrap_or_default(), data.remove("tls.key").unwrap_or_default());
    let user = json!({
        "client-certificate-data": base64::encode(&crt), "client-key-data": base64::encode(&key)});
    let text = kubeconfig(context, "", server, ca, &user);
    data.extend([
        ("kubeconfig".to_owned(), text.into_bytes()),
        (format!("{name}.crt"), crt),
        (format!("{name}.key"), key),
    ]);
    Ok(data)
}

fn leaf(config: &SecretConfig, plan: &SecretPlan, now: Timestamp) -> Result<SecretEntries, pki::Error> {
    let SecretConfig::Leaf {
        common_name, organizations, usage, names, validity, skip_ca, with_chain, ..
    } = config
    else {
        return Err(pki::Error::Key("this is not a certificate"));
    };
    let ca = plan.ca.as_ref().ok_or(pki::Error::Key("there is no CA"))?;
    let (not_before_unix_s, not_after_unix_s) = validity_of(*validity, now);
    let template = CertificateTemplate {
        subject: subject(common_name, organizations),
        names: names.clone(),
        not_before_unix_s,
        not_after_unix_s,
        usage: Some(*usage),
        authority: Authority::No,
    };
    let ca_key = AnyKey::from_pem(ca.get("ca.key")).map_err(pki::Error::Sign)?;
    let key = AnyKey::new_p256().map_err(pki::Error::Sign)?;
    let mut certificate =
        template.sign(&key, &CertificateIssuer::of_pem(ca.get("ca.crt"), &ca_key)?)?.into_bytes();
    if *with_chain {
        certificate.extend_from_slice(ca.get("ca.crt"));
    }
    let mut data = texts([("tls.key", key.to_pem())]);
    data.insert("tls.crt".to_owned(), certificate);
    if !skip_ca {
        data.insert("ca.crt".to_owned(), ca.get("ca.crt").to_vec());
    }
    Ok(data)
}

fn texts<const N: usize>(entries: [(&str, String); N]) -> SecretEntries {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.into_bytes())).collect()
}

/// Start and expiry, in seconds since 1970.
fn validity_of(validity: Option<Duration>, now: Timestamp) -> (i64, i64) {
    let from = now.unix() - i64::try_from(CLOCK_SKEW.as_secs()).unwrap_or(0);
    let until = match validity {
        Some(time) => now.unix().saturating_add(i64::try_from(time.as_secs()).unwrap_or(i64::MAX)),
        None => {
            let today = Civil::of_unix(now.unix(), 0, 0);
            Civil { year: today.year + VALIDITY_YEARS, ..today }.unix()
        }
    };
    (from, until)
}

/// `token,user,uid,groups`; several groups in quotes.
fn token_line(user: &TokenUser) -> String {
    let token = random::text(TOKEN_CHARS, LETTERS);
    let TokenUser { username, user_id, groups } = user;
    let groups = groups.join(",");
    let quoted = if groups.contains(',') { format!("\"{groups}\"") } else { groups };
    format!("{token},{username},{user_id},{quoted}")
}

/// Checks that the key of a CA matches its certificate.
pub(super) fn check_ca(secret: &StoredSecret) -> Result<(), String> {
    let text = str::from_utf8(secret.get("ca.crt")).map_err(|_| "ca.crt is not text".to_owned())?;
    let certificate = Certificate::parse_pem(text).map_err(|e| format!("ca.crt: {e}"))?;
    if !certificate.is_ca {
        return Err("ca.crt: the certificate does not belong to a CA".to_owned());
    }
    let key = AnyKey::from_pem(secret.get("ca.key")).map_err(|e| format!("ca.key: {e}"))?;
    if key.public_key().map_err(|e| format!("ca.key: {e}"))? != certificate.public_key {
        return Err("ca.key does not belong to ca.crt".to_owned());
    }
    Ok(())
}
