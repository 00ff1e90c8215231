//! The SeedRestriction webhook: which objects an agent may create. Objects that exist already pass, so that the request
//! ends with AlreadyExists.

use serde_json::Value;

use super::authorizer::{self, SEEDS, bootstrap_token_id, seed_of};
use super::kinds::CORE;
use crate::api::failure::Failure;
use crate::api::request::Info;
use crate::api::store::State;
use crate::api::{Target, User};
use crate::encoding::from_base64;
use crate::http::server::Authorizer as _;
use crate::json::text;
use crate::pki;

/// Judges an object about to be created.
pub fn admit(state: &State, target: &Target, object: &Value, user: &User) -> Result<(), Failure> {
    let Some(seed) = seed_of(user).filter(|_| user.is_in(SEEDS)) else { return Ok(()) };
    if may_create(state, target, object, &seed) {
        return Ok(());
    }
    let why = format!(
        "admission webhook \"seed-restriction.gardener.cloud\" denied the request: object does not belong to seed {seed:?}"
    );
    Err(Failure::new(403, "Forbidden", why))
}

/// A Shoot that is created with the name of its Seed: only for users who may bind Shoots.
pub fn may_bind(state: &State, target: &Target, object: &Value, user: &User) -> Result<(), Failure> {
    if target.kind.kind != "Shoot" || text(object, "/spec/seedName").is_empty() {
        return Ok(());
    }
    let own = str::to_owned;
    let info = Info {
        verb: own("update"),
        group: own(CORE),
        resource: own("shoots"),
        subresource: own("binding"),
        namespace: target.namespace.clone(),
        name: text(object, "/metadata/name").to_owned(),
        ..Info::default()
    };
    if authorizer::Garden.allows(state, user, &info) {
        return Ok(());
    }
    let why = "user is not allowed to set .spec.seedName";
    Err(Failure::forbidden(CORE, "shoots", &info.name, why))
}

fn may_create(state: &State, target: &Target, object: &Value, seed: &str) -> bool {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let own = |pointer: &str| text(object, pointer) == seed;
    match (target.kind.group.as_str(), target.kind.plural.as_str()) {
        (CORE, "seeds") => name == seed,
        (CORE, "backupbuckets") | ("operations.gardener.cloud", "bastions") => own("/spec/seedName"),
        (CORE, "backupentries") => {
            own("/spec/seedName") && is_own_bucket(state, text(object, "/spec/bucketName"), seed)
        }
        (CORE, "shootstates") => shoot_of(state, namespace, name, seed),
        ("", "secrets") => is_secret_of(state, namespace, name, seed),
        ("", "configmaps") | (CORE, "internalsecrets") => is_of_shoot(state, namespace, name, seed),
        ("", "serviceaccounts") => {
            namespace == format!("seed-{seed}") || name.starts_with("gardenlet-bootstrap-")
        }
        ("coordination.k8s.io", "leases") => {
            name == "gardenlet-leader-election" || (namespace, name) == ("gardener-system-seed-lease", seed)
        }
        ("certificates.k8s.io", "certificatesigningrequests") => {
            let pem = from_base64(text(object, "/spec/request")).unwrap_or_default();
            let subject = pki::request_subject(&String::from_utf8_lossy(&pem));
            subject.is_some_and(|(s, _)| s.common_name == format!("gardener.cloud:system:seed:{seed}"))
        }
        ("rbac.authorization.k8s.io", "clusterrolebindings") => {
            name.starts_with("gardener.cloud:system:seed-bootstrapper:")
                && text(object, "/roleRef/name") == "gardener.cloud:system:seed-bootstrapper"
        }
        _ => true,
    }
}

fn is_own_bucket(state: &State, bucket: &str, seed: &str) -> bool {
    state.get(CORE, "backupbuckets", "", bucket).is_some_and(|b| text(b, "/spec/seedName") == seed)
}

fn shoot_of(state: &State, namespace: &str, name: &str, seed: &str) -> bool {
    let shoot = state.get(CORE, "shoots", namespace, name);
    shoot.is_some_and(|s| text(s, "/spec/seedName") == seed || text(s, "/status/seedName") == seed)
}

/// `<shoot>.<suffix>`, of a shoot on the seed.
fn is_of_shoot(state: &State, namespace: &str, name: &str, seed: &str) -> bool {
    let suffixes =
        [".ca-cluster", ".ssh-keypair", ".ssh-keypair.old", ".monitoring", ".ca-kubelet", ".ca-client"];
    let mut shoots = suffixes.into_iter().filter_map(|suffix| name.strip_suffix(suffix));
    shoots.any(|shoot| {
        state.get(CORE, "shoots", namespace, shoot).is_some_and(|s| text(s, "/spec/seedName") == seed)
    })
}

fn is_secret_of(state: &State, namespace: &str, name: &str, seed: &str) -> bool {
    let generated =
        name.strip_prefix("generated-bucket-").is_some_and(|bucket| is_own_bucket(state, bucket, seed));
    let issuer = namespace == "gardener-system-shoot-issuer"
        && state
            .of(CORE, "shoots", "")
            .any(|(_, s)| text(s, "/spec/seedName") == seed && name.ends_with(text(s, "/metadata/uid")));
    let managed = state.of("seedmanagement.gardener.cloud", "managedseeds", "").map(|(_, o)| o);
    let token = managed
        .filter(|m| shoot_of(state, text(m, "/metadata/namespace"), text(m, "/spec/shoot/name"), seed))
        .map(|m| bootstrap_token_id(text(m, "/metadata/namespace"), text(m, "/metadata/name")))
        .chain([bootstrap_token_id("garden", seed)])
        .any(|id| namespace == "kube-system" && name == format!("bootstrap-token-{id}"));
    generated || issuer || token || is_of_shoot(state, namespace, name, seed)
}
