//! Publishes the public keys of a Shoot's ServiceAccounts in the garden, whose discovery server serves them to
//! everyone.

use serde_json::Value;

use super::view::ShootView;
use crate::api::core::SECRET;
use crate::api::meta::Key;
use crate::base::json::json;
use crate::flow::Failed;
use crate::format::base64;
use crate::kube::{Client, Garden};
use crate::runtime::write;

/// The namespace of the garden with the keys of all Shoots.
const NAMESPACE: &str = "gardener-system-shoot-issuer";
/// The documents about the API server's keys: entries of the Secret, and paths.
const DOCUMENTS: [(&str, &str); 2] =
    [("openid-config", "/.well-known/openid-configuration"), ("jwks", "/openid/v1/jwks")];

/// Checks that the garden has a host for the keys, if a Shoot wants it to publish them. Errors:
/// the garden has none.
pub(crate) fn check(view: &ShootView) -> Result<(), Failed> {
    if view.wants_managed_issuer && view.issuer_host.is_empty() {
        return Err(Failed::new(
            "the Shoot's annotation asks for an issuer that the garden manages, but the garden has no host for it: its \
             operator has to create a Secret with label gardener.cloud/role=shoot-service-account-issuer and key hostname",
        ));
    }
    Ok(())
}

/// Copies the documents about its keys from the Shoot's API server. Errors: a request to the Shoot
/// or the garden fails.
pub(crate) fn publish(garden: &Garden, shoot: &Client, view: &ShootView) -> Result<(), Failed> {
    let mut data = json!({});
    for (entry, path) in DOCUMENTS {
        let answer = shoot.get_raw(path)?;
        if !answer.is_success() {
            let status = answer.status;
            return Err(Failed::new(format!(
                "the API server of the Shoot answers {path} with status {status}"
            )));
        }
        data[entry] = json!(base64::encode(&answer.body));
    }
    write::ensure(garden, &SECRET, &copy(view), &|secret| set(secret, view, &data))?;
    Ok(())
}

/// Deletes the copy. Errors: a request to the garden fails. A missing copy is no error.
pub(crate) fn withdraw(garden: &Garden, view: &ShootView) -> Result<(), Failed> {
    write::delete(garden, &SECRET, &copy(view))?;
    Ok(())
}

fn copy(view: &ShootView) -> Key {
    Key::new(NAMESPACE, format!("{}--{}", view.project, view.uid))
}

fn set(secret: &mut Value, view: &ShootView, data: &Value) {
    secret["metadata"]["labels"] = json!({
        "discovery.gardener.cloud/public": "serviceaccount",
        "project.gardener.cloud/name": view.project,
        "shoot.gardener.cloud/name": view.name,
        "shoot.gardener.cloud/namespace": view.namespace,
    });
    secret["data"] = data.clone();
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::golden;
    use super::*;

    #[test]
    fn a_garden_without_a_host_is_reported() {
        let mut view = golden("s2");
        assert_eq!(check(&view), Ok(()));
        view.wants_managed_issuer = true;
        assert!(check(&view).unwrap_err().text.contains("shoot-service-account-issuer"));
        view.issuer_host = "issuers.example.org".to_owned();
        assert_eq!(check(&view), Ok(()));
    }
}
