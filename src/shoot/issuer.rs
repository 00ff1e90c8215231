//! The public keys of a Shoot's ServiceAccounts in the garden, whose discovery server shows them to everybody.

use serde_json::{Value, json};

use super::view::View;
use crate::api::core::SECRET;
use crate::api::meta::Key;
use crate::flow::Failed;
use crate::format::base64;
use crate::kube::{Client, Garden, Method};
use crate::runtime::write;

/// The namespace of the garden with the keys of all Shoots.
const NAMESPACE: &str = "gardener-system-shoot-issuer";
/// What the API server of a Shoot says of its keys: entries of the Secret, and paths.
const DOCUMENTS: [(&str, &str); 2] =
    [("openid-config", "/.well-known/openid-configuration"), ("jwks", "/openid/v1/jwks")];

/// Asks for the host that the garden must have if a Shoot wants its keys there.
///
/// # Errors
/// The garden has none.
pub fn check(view: &View) -> Result<(), Failed> {
    if view.wants_managed_issuer && view.issuer_host.is_empty() {
        return Err(Failed::new(
            "the Shoot's annotation asks for an issuer that the garden manages, and the garden has no host for it: its \
             operator has to create a Secret with label gardener.cloud/role=shoot-service-account-issuer and key hostname",
        ));
    }
    Ok(())
}

/// Copies what the API server of the Shoot says of its keys.
///
/// # Errors
/// The client's, and the garden's.
pub fn publish(garden: &Garden, shoot: &Client, view: &View) -> Result<(), Failed> {
    let mut data = json!({});
    for (entry, path) in DOCUMENTS {
        let answer = shoot.raw(Method::Get, path, None, "")?;
        if !answer.is_success() {
            let status = answer.status;
            return Err(Failed::new(format!(
                "the API server of the Shoot answers {path} with status {status}"
            )));
        }
        data[entry] = json!(base64::encode(&answer.body));
    }
    write::ensure(garden, &SECRET, &copy(view), |secret| set(secret, view, &data))?;
    Ok(())
}

/// Deletes the copy.
///
/// # Errors
/// The garden's; a missing copy is none.
pub fn withdraw(garden: &Garden, view: &View) -> Result<(), Failed> {
    write::delete(garden, &SECRET, &copy(view))?;
    Ok(())
}

fn copy(view: &View) -> Key {
    Key::new(NAMESPACE, format!("{}--{}", view.project, view.uid))
}

fn set(secret: &mut Value, view: &View, data: &Value) {
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
    fn a_garden_without_a_host_is_told_of() {
        let mut view = golden("s2");
        assert_eq!(check(&view), Ok(()));
        view.wants_managed_issuer = true;
        assert!(check(&view).unwrap_err().text.contains("shoot-service-account-issuer"));
        view.issuer_host = "issuers.example.org".to_owned();
        assert_eq!(check(&view), Ok(()));
    }
}
