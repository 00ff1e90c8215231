//! The bootstrap token of one host: a Secret in the cluster of a Shoot.

use serde_json::Value;

use crate::api::bootstrap_token::{self, ID_CHARS};
use crate::api::meta::{Key, annotation, text};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::components::managed::sha256_hex;
use crate::format::time::parse_rfc3339;

use super::approval::JoinToken;

/// The label of the Secret with the name of the host.
pub(crate) const HOST: &str = "edge.gardenlet/host";
/// The annotation of the Secret with the uid of the Node whose place the host takes.
const REPLACES: &str = "edge.gardenlet/replaces-node";
/// The annotation of a Secret whose host takes the place of a Node: when the kubelet's request was approved, which uses the token last.
pub(crate) const USED: &str = "edge.gardenlet/used";
/// The annotation of a control plane's namespace that says until when hosts may join. Approvals are frequent until then.
pub(crate) const JOINING: &str = "edge.gardenlet/hosts-join-until";

/// The token of a host that joins.
pub(crate) struct HostToken<'a> {
    pub(crate) host: &'a str,
    pub(crate) pool: &'a str,
    /// The uid of the Node whose place the host takes; empty if there is none.
    pub(crate) replaces: &'a str,
    pub(crate) until: Timestamp,
}

/// The id of a host's token: printing a script again replaces its token.
fn id(host: &str) -> String {
    sha256_hex(host.as_bytes())[..ID_CHARS].to_owned()
}

/// The Secret with the token of a host.
pub(crate) fn key(host: &str) -> Key {
    bootstrap_token::key(&id(host))
}

/// The host for which the Secret has a token; empty if it is that of another program.
pub(crate) fn host_of(secret: &Value) -> &str {
    text(&secret["metadata"]["labels"][HOST])
}

/// What a Secret says about a token.
pub(crate) fn read(secret: &Value) -> Option<JoinToken> {
    let host = host_of(secret);
    let token = || JoinToken {
        host: host.to_owned(),
        replaces: annotation(secret, REPLACES).to_owned(),
        made: parse_rfc3339(text(&secret["metadata"]["creationTimestamp"])).ok(),
        used: parse_rfc3339(annotation(secret, USED)).ok(),
    };
    (!host.is_empty()).then(token)
}

/// When the token of a Secret expires.
pub(crate) fn expiration(secret: &Value) -> Option<Timestamp> {
    parse_rfc3339(&bootstrap_token::expiration(secret)).ok()
}

impl HostToken<'_> {
    /// The Secret, and the token.
    pub(crate) fn secret(&self) -> (Value, String) {
        let (id, key) = (id(self.host), key(self.host));
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": key.name, "namespace": key.namespace, "labels": {HOST: self.host},
                "annotations": {REPLACES: self.replaces}},
        });
        let description = format!("Host {} joins pool {}.", self.host, self.pool);
        let fresh = bootstrap_token::fresh();
        let new = bootstrap_token::NewToken {
            id: &id,
            fresh: &fresh,
            description: &description,
            until: self.until,
        };
        let token = new.fill(&mut secret);
        (secret, token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::base64;

    #[test]
    fn a_token_belongs_to_a_host() {
        let new =
            HostToken { host: "h1", pool: "a", replaces: "7", until: Timestamp::from_unix(1_767_225_600) };
        let (secret, token) = new.secret();
        let (id, rest) = token.split_once('.').unwrap();
        assert_eq!((id.len(), rest.len()), (6, 16));
        assert_eq!(secret["metadata"]["name"], format!("bootstrap-token-{id}"));
        assert_eq!(
            read(&secret),
            Some(JoinToken { host: "h1".to_owned(), replaces: "7".to_owned(), made: None, used: None })
        );
        let again = new.secret();
        assert_eq!(
            again.0["metadata"]["name"], secret["metadata"]["name"],
            "it takes the place of the first one"
        );
        assert_ne!(again.1, token);
        assert_eq!(secret["data"]["expiration"], base64::encode(b"2026-01-01T00:00:00Z"));
        assert_eq!(expiration(&secret), Some(new.until));
        assert_eq!(read(&json!({"metadata": {"name": "bootstrap-token-abcdef"}})), None);
    }
}
