//! Secrets with non-expiring tokens of ServiceAccounts in the Shoot: those that a ServiceAccount lists in `.secrets`.
//! When the signing key is replaced, each such ServiceAccount gets a Secret with a token of the new key, and later
//! loses those of the old key. Clients must switch to the new tokens in between.

use serde_json::Value;

use super::refused::Refused;
use super::rounds::Rounds;
use super::walk::{Item, Walk};
use super::{Connect, KEY_NAME};
use crate::api::core::{SECRET, SERVICE_ACCOUNT, Secret};
use crate::api::meta::{Key, Metadata, text};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::components::managed;
use crate::flow::{Failed, TaskStep};
use crate::kube::{Client, Error, Patch};
use crate::runtime::write;
use crate::secrets::SecretEntries;

/// The type of Secrets with tokens.
const TOKEN: &str = "kubernetes.io/service-account-token";

/// The Secret of the key that signs tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SigningKey<'a> {
    pub(crate) name: &'a str,
    pub(crate) data: &'a SecretEntries,
}

impl SigningKey<'_> {
    /// The name of the Secret with a token of this key.
    fn token_of(&self, account: &str) -> String {
        let sum = managed::checksum(self.data);
        format!("{account}-token-{}", sum.get(..6).unwrap_or(&sum))
    }
}

/// The work of one flow, over many turns.
#[derive(Debug, Default)]
pub(crate) struct AccountSecretsRotation(Rounds);

impl AccountSecretsRotation {
    /// Creates the new Secrets. Errors: what could not be written, and what the owner of the Shoot can do.
    pub(crate) fn renew(&mut self, connect: Connect<'_>, key: SigningKey<'_>) -> Result<TaskStep, Failed> {
        let selector = format!("{KEY_NAME}!={}", key.name);
        self.go_on(connect, &selector, &|shoot, item| renew(shoot, item, key))
    }

    /// Deletes Secrets that were created before `prepared`, the time at which the new ones were
    /// complete. Errors: like [`AccountSecretsRotation::renew`].
    pub(crate) fn clean(
        &mut self,
        connect: Connect<'_>,
        key: SigningKey<'_>,
        prepared: Timestamp,
    ) -> Result<TaskStep, Failed> {
        self.go_on(connect, "", &|shoot, item| clean(shoot, item, key, prepared))
    }

    fn go_on(
        &mut self,
        connect: Connect<'_>,
        selector: &str,
        write: &dyn Fn(&Client, &Item) -> Result<bool, Error>,
    ) -> Result<TaskStep, Failed> {
        let begin = |_: &Client| Ok(Walk::new(vec![SERVICE_ACCOUNT], selector, Vec::new()).whole());
        self.0.go_on(connect, &begin, write, Refused::failed_accounts)
    }
}

fn renew(shoot: &Client, item: &Item, key: SigningKey<'_>) -> Result<bool, Error> {
    let Key { namespace, name } = &item.key;
    let token = key.token_of(name);
    if item.secrets.is_empty() || item.secrets.contains(&token) {
        return Ok(false);
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": TOKEN,
        "metadata": {"name": token, "namespace": namespace, "annotations": {"kubernetes.io/service-account.name": name}},
    });
    match shoot.create::<Metadata>(&SECRET, namespace, &secret) {
        Err(error) if !error.is_already_exists() => return Err(error),
        _ => {}
    }
    change(shoot, &item.key, |account| {
        account["metadata"]["labels"][KEY_NAME] = json!(key.name);
        let names = account["secrets"].as_array().cloned().unwrap_or_default();
        let others = names.into_iter().filter(|reference| reference["name"] != json!(token));
        account["secrets"] = std::iter::once(json!({"name": token})).chain(others).collect();
    })
}

/// `.secrets` may list others too, such as credentials for a registry: those stay.
fn is_old_token(secret: &Secret, prepared: Timestamp) -> bool {
    secret.kind == TOKEN && secret.metadata.creation_timestamp.is_some_and(|made| made < prepared)
}

fn clean(shoot: &Client, item: &Item, key: SigningKey<'_>, prepared: Timestamp) -> Result<bool, Error> {
    let Key { namespace, name } = &item.key;
    let new = key.token_of(name);
    let mut deleted = Vec::new();
    for secret in item.secrets.iter().filter(|secret| **secret != new) {
        let old = Key::new(namespace, secret);
        let found = shoot.find::<Secret>(&SECRET, &old)?;
        if found.is_some_and(|found| is_old_token(&found, prepared)) {
            write::delete(shoot, &SECRET, &old)?;
            deleted.push(secret.clone());
        }
    }
    if deleted.is_empty() && !item.is_labelled {
        return Ok(!item.secrets.is_empty());
    }
    change(shoot, &item.key, |account| {
        account["metadata"]["labels"][KEY_NAME] = Value::Null;
        if let Some(references) = account["secrets"].as_array_mut() {
            references.retain(|reference| !deleted.iter().any(|name| reference["name"] == json!(name)));
        }
    })
}

/// Patches a ServiceAccount, unless another client has changed it meanwhile.
fn change(shoot: &Client, key: &Key, change: impl Fn(&mut Value)) -> Result<bool, Error> {
    let Some(mut account) = shoot.find::<Value>(&SERVICE_ACCOUNT, key)? else {
        return Ok(false);
    };
    change(&mut account);
    let patch = json!({
        "metadata": {
            "resourceVersion": text(&account["metadata"]["resourceVersion"]),
            "labels": account["metadata"]["labels"],
        },
        "secrets": account["secrets"],
    });
    shoot.patch_blindly(&SERVICE_ACCOUNT, key, &Patch::Merge(patch))?;
    Ok(true)
}
