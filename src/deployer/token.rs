//! The bootstrap token with which a new agent requests its certificate from the garden.

use std::time::Duration;

use serde_json::Value;

use crate::api::bootstrap_token::{self, ID_CHARS, NewToken, expiration, field};
use crate::api::core::SECRET;
use crate::api::meta::Key;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::components::managed::sha256_hex;
use crate::format::time::parse_rfc3339;
use crate::kube::{Error, Garden};
use crate::runtime::write;

const VALIDITY: Duration = Duration::from_secs(24 * 3_600);
/// A token that expires sooner is renewed, because the new agent needs time to start.
const LEFT_MIN: Duration = Duration::from_secs(600);

/// The id of an object's token. The garden allows the token by this id.
pub(crate) fn id(namespace: &str, name: &str) -> String {
    sha256_hex(format!("{namespace}--{name}").as_bytes())[..ID_CHARS].to_owned()
}

/// The Secret of that token.
pub fn key(namespace: &str, name: &str) -> Key {
    bootstrap_token::key(&id(namespace, name))
}

/// The Secret of a new token for a seed, and the token. The agent of the seed may delete this Secret after use.
pub(crate) fn of_seed(seed: &str, until: Timestamp) -> (Value, String) {
    let owner = Key::new("garden", seed);
    let (id, key) = (id(&owner.namespace, seed), key(&owner.namespace, seed));
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": key.name, "namespace": key.namespace}});
    let token = fill(&mut secret, &id, &bootstrap_token::fresh(), "Gardenlet", &owner, until);
    (secret, token)
}

/// Whether the token is still valid for long enough.
fn is_valid(secret: &Value, now: Timestamp) -> bool {
    parse_rfc3339(&expiration(secret)).is_ok_and(|end| end.since(now) > LEFT_MIN)
}

/// Returns the token of a ManagedSeed, and creates it if there is no valid one.
pub(crate) fn ensure(garden: &Garden, owner: &Key, now: Timestamp) -> Result<String, Error> {
    let Key { namespace, name } = owner;
    let (id, fresh) = (id(namespace, name), bootstrap_token::fresh());
    let secret = write::ensure(garden, &SECRET, &key(namespace, name), &|secret| {
        if !is_valid(secret, now) {
            fill(secret, &id, &fresh, "ManagedSeed", owner, now.plus(VALIDITY));
        }
    })?;
    Ok(format!("{id}.{}", field(&secret, "token-secret")))
}

/// An existing token keeps its secret part, because an agent may already have it. Returns the token.
fn fill(secret: &mut Value, id: &str, fresh: &str, kind: &str, owner: &Key, until: Timestamp) -> String {
    let Key { namespace, name } = owner;
    // The garden parses this text.
    let description = format!(
        "A bootstrap token for the Gardenlet for seedmanagement.gardener.cloud/v1alpha1.{kind} resource {namespace}/{name}."
    );
    NewToken { id, fresh, description: &description, until }.fill(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

    #[test]
    fn a_token_of_a_seed_has_the_id_by_which_its_agent_may_delete_it() {
        let (secret, token) = of_seed("edge-1", NOW);
        let (id, rest) = token.split_once('.').unwrap();
        assert_eq!((id, rest.len()), (&sha256_hex(b"garden--edge-1")[..6], 16));
        assert_eq!(
            secret["metadata"],
            json!({"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"})
        );
        assert_eq!(
            (field(&secret, "token-id").as_str(), field(&secret, "token-secret").as_str()),
            (id, rest)
        );
        assert_eq!(
            (secret["type"].as_str(), expiration(&secret).as_str()),
            (Some("bootstrap.kubernetes.io/token"), "2026-01-01T00:00:00Z")
        );
        assert!(field(&secret, "description").ends_with(".Gardenlet resource garden/edge-1."));
        assert_ne!(of_seed("edge-1", NOW).1, token);
    }

    #[test]
    fn a_token_is_used_until_shortly_before_its_end() {
        assert_eq!(id("garden", "edge-1"), &sha256_hex(b"garden--edge-1")[..6]);
        let mut secret = json!({});
        let make = |secret: &mut Value, fresh: &str, now: Timestamp| {
            fill(secret, "abcdef", fresh, "ManagedSeed", &Key::new("garden", "s"), now.plus(VALIDITY));
        };
        make(&mut secret, "0123456789abcdef", NOW);
        assert_eq!(field(&secret, "expiration"), "2026-01-02T00:00:00Z");
        assert!(field(&secret, "description").ends_with(".ManagedSeed resource garden/s."));
        let later = |s| NOW.plus(Duration::from_secs(s));
        for (at, expected) in [(0, true), (86_400 - 601, true), (86_400 - 600, false), (90_000, false)] {
            assert_eq!(is_valid(&secret, later(at)), expected, "{at}");
        }
        // Its secret part stays, unless it is damaged.
        make(&mut secret, "fedcba9876543210", later(90_000));
        assert_eq!(field(&secret, "token-secret"), "0123456789abcdef");
        assert!(is_valid(&secret, later(90_000)));
        secret["data"]["token-secret"] = json!("eA==");
        make(&mut secret, "fedcba9876543210", NOW);
        assert_eq!(field(&secret, "token-secret"), "fedcba9876543210");
        assert!(!is_valid(&json!({}), NOW));
    }
}
