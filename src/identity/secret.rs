//! The Secret in the seed that holds the agent's kubeconfig for the garden.

use std::path::Path;

use serde_json::Value;

use crate::api::core::{SECRET, Secret};
use crate::api::gardener::OPERATION;
use crate::api::meta::Key;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::base64;
use crate::kube::{AuthorizationSource, Client, Connection, InlineOrFile, Patch, kubeconfig};

use super::Error;

/// The key in the Secret's data.
pub(crate) const KUBECONFIG_KEY: &str = "kubeconfig";
/// Requests a new certificate.
pub(crate) const OPERATION_RENEW: &str = "renew";
/// Requests a new identity from a bootstrap credential, even if the current one is valid.
pub(crate) const OPERATION_REBOOTSTRAP: &str = "rebootstrap";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KubeconfigOperation {
    /// None, or an unknown one.
    #[default]
    None,
    Renew,
    Rebootstrap,
}

/// The content of the Secret.
#[derive(Clone, Debug)]
pub(crate) struct StoredKubeconfig {
    /// The connection that its kubeconfig describes.
    pub(crate) connection: Connection,
    pub(crate) operation: KubeconfigOperation,
}

/// Reads a kubeconfig Secret; `None` if it does not exist or has no kubeconfig. Errors: if it cannot be read,
/// or its content is not a kubeconfig.
pub(crate) fn load(seed: &Client, key: &Key) -> Result<Option<StoredKubeconfig>, Error> {
    let found =
        seed.find::<Secret>(&SECRET, key).map_err(Error::kube(format!("read secret {key} in the seed")))?;
    let Some(secret) = found else { return Ok(None) };
    let encoded = secret.data.get(KUBECONFIG_KEY).map_or("", String::as_str);
    if encoded.is_empty() {
        return Ok(None);
    }
    let connection = parse(encoded, &format!("secret {key} of the seed"))?;
    let operation = match secret.metadata.annotations.get(OPERATION).map(String::as_str) {
        Some(OPERATION_RENEW) => KubeconfigOperation::Renew,
        Some(OPERATION_REBOOTSTRAP) => KubeconfigOperation::Rebootstrap,
        _ => KubeconfigOperation::None,
    };
    Ok(Some(StoredKubeconfig { connection, operation }))
}

fn parse(encoded: &str, place: &str) -> Result<Connection, Error> {
    let wrong = |source| Error::Kubeconfig { place: place.to_owned(), source };
    let text = base64::decode(encoded.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| Error::NoKubeconfig {
        place: place.to_owned(),
        remedy: "its key kubeconfig is not text; write a kubeconfig into it",
    })?;
    // Relative paths make no sense, so they start at the root of this host.
    let connection = kubeconfig::parse(&text, Path::new("/")).and_then(|config| config.current());
    connection.and_then(without_reach).map_err(wrong)
}

/// Write access to a Secret of the seed must not allow anyone to run programs on this host or to send its files
/// elsewhere. The Go gardenlet refuses the same fields.
fn without_reach(connection: Connection) -> Result<Connection, kubeconfig::Error> {
    let identity = &connection.identity;
    let is_file = |material: &InlineOrFile| matches!(material, InlineOrFile::File(_));
    let files = identity.certificate.as_ref().is_some_and(|c| is_file(&c.chain) || is_file(&c.key));
    let problem = match &identity.credentials {
        AuthorizationSource::Exec(_) => "a credential plugin (exec) is not allowed in a Secret",
        AuthorizationSource::TokenFile(_) => "a token file is not allowed in a Secret; use token",
        _ if files => "files of a client certificate are not allowed in a Secret; use the fields with -data",
        _ => return Ok(connection),
    };
    Err(kubeconfig::Error::Invalid(problem.to_owned()))
}

/// Writes `connection` into the Secret; other keys are removed. Only a new certificate answers a pending
/// `renew`: set `keep_renew` when only the CA changes. Errors: if the Secret cannot be written.
pub(crate) fn store(
    seed: &Client,
    key: &Key,
    connection: &Connection,
    keep_renew: bool,
) -> Result<(), Error> {
    let place = format!("secret {key} of the seed");
    let text = kubeconfig::render(connection)
        .map_err(|source| Error::Kubeconfig { place: place.clone(), source })?;
    let data = base64::encode(text.as_bytes());
    let write = || Error::kube(format!("write {place}"));
    let existing = seed.find::<Secret>(&SECRET, key).map_err(write())?;
    let result = match existing {
        None => seed.create::<Value>(&SECRET, &key.namespace, &new_secret(key, &data)),
        Some(secret) => {
            let patch = Patch::Merge(merge_patch(&secret.data, &data, keep_renew));
            seed.patch::<Value>(&SECRET, key, &patch)
        }
    };
    result.map(drop).map_err(write())
}

fn new_secret(key: &Key, data: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "type": "Opaque",
        "data": {KUBECONFIG_KEY: data},
    })
}

fn merge_patch(old: &SortedMap<String, String>, data: &str, keep_renew: bool) -> Value {
    let mut keys: serde_json::Map<String, Value> = old.keys().map(|k| (k.clone(), Value::Null)).collect();
    keys.insert(KUBECONFIG_KEY.to_owned(), json!(data));
    let mut patch = json!({"data": keys});
    if !keep_renew {
        patch["metadata"] = json!({"annotations": {OPERATION: null}});
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_cannot_reach_for_programs_and_files_of_this_host() {
        let with_user = |user: Value| {
            let file = json!({
                "clusters": [{"name": "g", "cluster": {"server": "https://g", "certificate-authority": "/ca.crt"}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "c", "context": {"cluster": "g", "user": "u"}}],
                "current-context": "c",
            });
            parse(&base64::encode(file.to_string().as_bytes()), "here")
        };
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh"});
        let table = [
            (json!({"exec": exec}), "plugin"),
            (json!({"tokenFile": "/etc/shadow"}), "token file"),
            (json!({"client-certificate": "/c", "client-key": "/k"}), "files"),
            (json!({"client-certificate-data": "Yw==", "client-key": "/k"}), "files"),
        ];
        for (user, word) in table {
            let error = crate::base::error::chain(&with_user(user).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
        assert!(with_user(json!({"token": "t"})).is_ok());
        assert!(with_user(json!({"client-certificate-data": "Yw==", "client-key-data": "aw=="})).is_ok());
    }

    #[test]
    fn the_data_is_replaced_and_the_request_for_renewal_answered() {
        let old = SortedMap::from([
            ("kubeconfig".to_owned(), "b2xk".to_owned()),
            ("x".to_owned(), "eA==".to_owned()),
        ]);
        assert_eq!(
            merge_patch(&old, "bmV3", false),
            json!({
                "data": {"kubeconfig": "bmV3", "x": null},
                "metadata": {"annotations": {"gardener.cloud/operation": null}},
            })
        );
    }

    #[test]
    fn a_new_ca_does_not_answer_a_request_for_renewal() {
        let patch = merge_patch(&SortedMap::new(), "bmV3", true);
        assert_eq!(patch, json!({"data": {"kubeconfig": "bmV3"}}));
    }
}
