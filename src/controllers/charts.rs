//! Resolves a chart reference, together with what is needed to pull it. The Secrets that it names are in the garden's
//! namespace `garden`.

use std::sync::Arc;

use crate::api::core::{SECRET, Secret};
use crate::api::gardener::OciRepository;
use crate::api::meta::Key;
use crate::api::resources::GARDEN_NAMESPACE;
use crate::base::error::chain;
use crate::format::base64;
use crate::kube::Garden;
use crate::oci::{ArtifactReference, Error, Keychain, PullOrder};
use crate::runtime::controller::ReconcileFailure;

const DOCKER_CONFIG: &str = ".dockerconfigjson";
const BUNDLE: &str = "bundle.crt";

/// The reference to pull, with the logins and CAs that the deployment names. Errors: the reference can never
/// work (terminal), or a Secret is missing or invalid.
pub(super) fn order(garden: &Garden, repository: &OciRepository) -> Result<PullOrder, ReconcileFailure> {
    let reference = ArtifactReference::parse(&repository.url())
        .map_err(|why| ReconcileFailure::terminal(Error::Reference(why)))?;
    let read = |name: &str, what: &str| {
        garden.get::<Secret>(&SECRET, &Key::new(GARDEN_NAMESPACE, name)).map_err(|e| {
            ReconcileFailure::retry(format!("failed to get {what} {GARDEN_NAMESPACE}/{name}: {}", chain(&e)))
        })
    };
    let mut ca_bundle = None;
    if let Some(secret) = &repository.ca_bundle_secret_ref {
        let found = read(&secret.name, "CA bundle secret")?;
        let pem = value(&found, BUNDLE).map_err(|why| complaint("CA bundle secret", &secret.name, &why))?;
        ca_bundle = Some(Arc::from(pem));
    }
    let mut keychain = Keychain::default();
    if let Some(secret) = &repository.pull_secret_ref {
        let found = read(&secret.name, "pull secret")?;
        keychain = value(&found, DOCKER_CONFIG)
            .and_then(|text| Keychain::parse(&text).map_err(str::to_owned))
            .map_err(|why| complaint("pull secret", &secret.name, &why))?;
    }
    Ok(PullOrder { reference, keychain, ca_bundle })
}

/// A non-empty value of a Secret.
fn value(secret: &Secret, key: &str) -> Result<Vec<u8>, String> {
    let text = secret.data.get(key).ok_or_else(|| format!("is missing the data key {key}"))?;
    match base64::decode(text.as_bytes()) {
        Ok(bytes) if bytes.is_empty() => Err(format!("has empty data for key {key}")),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(format!("has no base64 in data key {key}")),
    }
}

fn complaint(what: &str, name: &str, why: &str) -> ReconcileFailure {
    ReconcileFailure::retry(format!("{what} {GARDEN_NAMESPACE}/{name} {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn incomplete_secrets_are_reported() {
        let secret =
            |data: serde_json::Value| -> Secret { serde_json::from_value(json!({"data": data})).unwrap() };
        let table = [
            (json!({BUNDLE: "eA=="}), Ok(b"x".to_vec())),
            (json!({}), Err("is missing the data key bundle.crt")),
            (json!({BUNDLE: ""}), Err("has empty data for key bundle.crt")),
            (json!({BUNDLE: "%"}), Err("has no base64 in data key bundle.crt")),
        ];
        for (data, expected) in table {
            assert_eq!(value(&secret(data), BUNDLE), expected.map_err(str::to_owned));
        }
        let text = complaint("pull secret", "x", "is missing the data key y").text();
        assert_eq!(text, "pull secret garden/x is missing the data key y");
    }
}
