//! The Secrets that the garden keeps for a seed in namespace `seed-<seed>`: domains, and the garden's monitoring. They
//! are checked before a Shoot needs them, and the monitoring Secret is copied to the seed.
//!
//! Source: `pkg/utils/gardener/secrets.go` (`ReadGardenSecrets`). Upstream logs a malformed domain and continues
//! without it; here the Seed reports the problem.

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::gardener::seed_namespace;
use crate::api::meta::{Key, text};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::base::json::json;
use crate::flow::Failed;
use crate::format::base64;
use crate::kube::{Garden, ListParams, Seed};
use crate::pki::password;
use crate::runtime::write;

const ROLE: &str = "gardener.cloud/role";
const MONITORING: &str = "global-monitoring";
const INTERNAL_DOMAIN: &str = "internal-domain";
const DEFAULT_DOMAIN: &str = "default-domain";

/// Checks all Secrets and copies the one for monitoring.
pub(super) fn reconcile(garden: &Garden, seed: &Seed, name: &str) -> Result<(), Failed> {
    let params = ListParams { label_selector: ROLE.to_owned(), ..ListParams::default() };
    let mut all: Vec<Value> = Vec::new();
    garden.list_all::<Value>(&SECRET, &seed_namespace(name), &params, &mut |secret| all.push(secret))?;
    let problems = problems(&all);
    if !problems.is_empty() {
        return Err(Failed::new(problems.join("; ")));
    }
    // A garden without monitoring has none, and this agent installs no monitoring that needs it.
    if let Some(source) = all.iter().find(|secret| role(secret) == MONITORING) {
        let key = Key::new(GARDEN_NAMESPACE, format!("seed-{}", text(&source["metadata"]["name"])));
        write::ensure(seed, &SECRET, &key, &|replica| set_replica(replica, source))?;
    }
    Ok(())
}

fn role(secret: &Value) -> &str {
    text(&secret["metadata"]["labels"][ROLE])
}

/// The problems, with the object and the remedy.
fn problems(secrets: &[Value]) -> Vec<String> {
    let key = |secret: &Value| {
        format!("{}/{}", text(&secret["metadata"]["namespace"]), text(&secret["metadata"]["name"]))
    };
    let mut problems = Vec::new();
    for secret in secrets.iter().filter(|s| [INTERNAL_DOMAIN, DEFAULT_DOMAIN].contains(&role(s))) {
        for annotation in ["dns.gardener.cloud/provider", "dns.gardener.cloud/domain"] {
            if text(&secret["metadata"]["annotations"][annotation]).is_empty() {
                problems.push(format!(
                    "Secret {} of the garden has role {} and no annotation {annotation}: add it",
                    key(secret),
                    role(secret)
                ));
            }
        }
    }
    for unique in [INTERNAL_DOMAIN, MONITORING, "alerting", "shoot-service-account-issuer"] {
        let names: Vec<String> = secrets.iter().filter(|s| role(s) == unique).map(key).collect();
        if names.len() > 1 {
            problems.push(format!(
                "the garden has {} Secrets of role {unique} where one is allowed: {}",
                names.len(),
                names.join(", ")
            ));
        }
    }
    problems
}

/// Name and password as in the garden, and a line for `htpasswd`, which is generated once per password.
fn set_replica(replica: &mut Value, source: &Value) {
    let same = ["username", "password"].iter().all(|key| replica["data"][key] == source["data"][key]);
    let known = replica["data"]["auth"].clone();
    replica["metadata"]["labels"][ROLE] = json!(MONITORING);
    replica["metadata"]["labels"]["gardener.cloud/purpose"] = json!("global-monitoring-secret-replica");
    replica["type"] = source["type"].clone();
    replica["data"] = source["data"].clone();
    if source["data"]["auth"].is_null() {
        replica["data"]["auth"] = if same && !known.is_null() { known } else { htpasswd(&source["data"]) };
    }
}

fn htpasswd(data: &Value) -> Value {
    let read = |key: &str| base64::decode(text(&data[key]).as_bytes()).unwrap_or_default();
    let mut line = read("username");
    line.push(b':');
    line.extend(password::bcrypt(&read("password")).into_bytes());
    json!(base64::encode(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, role: &str, annotations: &Value) -> Value {
        json!({"metadata": {"namespace": "seed-a", "name": name, "labels": {ROLE: role}, "annotations": annotations}})
    }

    #[test]
    fn malformed_secrets_are_named() {
        let domain =
            json!({"dns.gardener.cloud/provider": "lab", "dns.gardener.cloud/domain": "example.org"});
        let half = json!({"dns.gardener.cloud/provider": "lab"});
        let table = [
            (vec![secret("i", INTERNAL_DOMAIN, &domain), secret("d", DEFAULT_DOMAIN, &domain)], ""),
            (
                vec![secret("i", INTERNAL_DOMAIN, &half)],
                "Secret seed-a/i of the garden has role internal-domain and no annotation dns.gardener.cloud/domain: \
                 add it",
            ),
            (
                vec![secret("i", INTERNAL_DOMAIN, &domain), secret("j", INTERNAL_DOMAIN, &domain)],
                "the garden has 2 Secrets of role internal-domain where one is allowed: seed-a/i, seed-a/j",
            ),
            (vec![secret("d", DEFAULT_DOMAIN, &domain), secret("e", DEFAULT_DOMAIN, &domain)], ""),
            (vec![secret("x", "openvpn-diffie-hellman", &json!({}))], ""),
        ];
        for (secrets, expected) in table {
            assert_eq!(problems(&secrets).join("; "), expected);
        }
    }

    #[test]
    fn the_password_line_changes_with_the_password_only() {
        let source = json!({"type": "Opaque", "data": {"username": "YWRtaW4=", "password": "c2VjcmV0"}});
        let mut replica = json!({"metadata": {"name": "seed-m"}});
        set_replica(&mut replica, &source);
        let first = replica["data"]["auth"].clone();
        let line = String::from_utf8(base64::decode(text(&first).as_bytes()).unwrap()).unwrap();
        assert!(line.starts_with("admin:$2a$"), "{line}");
        set_replica(&mut replica, &source);
        assert_eq!(replica["data"]["auth"], first);
        let other = json!({"type": "Opaque", "data": {"username": "YWRtaW4=", "password": "b3RoZXI="}});
        set_replica(&mut replica, &other);
        assert_ne!(replica["data"]["auth"], first);
        let given =
            json!({"type": "Opaque", "data": {"username": "YQ==", "password": "Yg==", "auth": "Yzpk"}});
        set_replica(&mut replica, &given);
        assert_eq!(replica["data"]["auth"], "Yzpk");
    }
}
