//! Bootstrap tokens: Secrets in `kube-system` with which a program that has no credentials yet requests its first certificate.

use serde_json::Value;

use super::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::base::random;
use crate::format::base64;
use crate::format::time::rfc3339;

/// The length of an id. Whoever makes a token chooses its id.
pub(crate) const ID_CHARS: usize = 6;
const SECRET_CHARS: usize = 16;
const ALPHABET: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const SECRET: &str = "token-secret";

/// The Secret of the token with an id.
pub(crate) fn key(id: &str) -> Key {
    Key::new("kube-system", format!("bootstrap-token-{id}"))
}

/// An entry of the Secret; empty if it is missing.
pub(crate) fn field(secret: &Value, name: &str) -> String {
    let decoded = base64::decode(text(&secret["data"][name]).as_bytes()).unwrap_or_default();
    String::from_utf8_lossy(&decoded).into_owned()
}

/// When the token expires, in RFC 3339; empty if it never does.
pub(crate) fn expiration(secret: &Value) -> String {
    field(secret, "expiration")
}

/// What a token is made of.
pub(crate) struct NewToken<'a> {
    pub(crate) id: &'a str,
    /// The secret part, from [`fresh`].
    pub(crate) fresh: &'a str,
    pub(crate) description: &'a str,
    pub(crate) until: Timestamp,
}

/// The secret part of a new token.
pub(crate) fn fresh() -> String {
    random::text(SECRET_CHARS, ALPHABET)
}

impl NewToken<'_> {
    /// Fills the Secret. An existing token keeps its secret part, because somebody may already have it. Returns the token.
    pub(crate) fn fill(&self, secret: &mut Value) -> String {
        let known = field(secret, SECRET);
        let part = if known.len() == SECRET_CHARS { known.as_str() } else { self.fresh };
        secret["type"] = json!("bootstrap.kubernetes.io/token");
        let end = rfc3339(self.until);
        for (name, value) in [
            ("description", self.description),
            ("token-id", self.id),
            (SECRET, part),
            ("expiration", &end),
            ("usage-bootstrap-authentication", "true"),
            ("usage-bootstrap-signing", "true"),
        ] {
            secret["data"][name] = json!(base64::encode(value.as_bytes()));
        }
        format!("{}.{part}", self.id)
    }
}
