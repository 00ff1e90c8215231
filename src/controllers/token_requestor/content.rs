//! The place of a token and a CA in the data of a Secret: under separate keys, or within the kubeconfig if there is
//! one.

use std::fmt;

use serde_json::Value;

use crate::base::json::json;
use crate::format::{base64, yaml};

const KUBECONFIG: &str = "kubeconfig";

/// Why a kubeconfig cannot contain a token.
#[derive(Debug)]
pub(super) enum Error {
    /// It is not base64, not text, or not YAML.
    Unreadable,
    /// The current context, or its user or cluster, is missing.
    Missing(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("the kubeconfig of the Secret cannot be read"),
            Self::Missing(what) => {
                write!(f, "the kubeconfig of the Secret has no {what} for its current context")
            }
        }
    }
}

impl std::error::Error for Error {}

/// The token; empty if there is none.
pub(super) fn token(data: &Value) -> Result<String, Error> {
    match kubeconfig(data)? {
        Some(mut config) => {
            let user = current(&mut config, "users", "user")?;
            Ok(user["token"].as_str().unwrap_or_default().to_owned())
        }
        None => Ok(decoded(&data["token"]).unwrap_or_default()),
    }
}

/// Whether the data contains this CA.
pub(super) fn has_bundle(data: &Value, bundle: &[u8]) -> bool {
    let wanted = base64::encode(bundle);
    match kubeconfig(data) {
        Ok(Some(mut config)) => current(&mut config, "clusters", "cluster")
            .is_ok_and(|cluster| cluster["certificate-authority-data"] == wanted.as_str()),
        Ok(None) => data["bundle.crt"] == wanted.as_str(),
        Err(_) => false,
    }
}

/// The keys to write, as a merge patch of the data.
pub(super) fn filled(data: &Value, token: &str, bundle: Option<&[u8]>) -> Result<Value, Error> {
    let Some(mut config) = kubeconfig(data)? else {
        let bundle = bundle.map(base64::encode);
        return Ok(json!({"token": base64::encode(token.as_bytes()), "bundle.crt": bundle}));
    };
    current(&mut config, "users", "user")?["token"] = json!(token);
    if let Some(bundle) = bundle {
        current(&mut config, "clusters", "cluster")?["certificate-authority-data"] =
            json!(base64::encode(bundle));
    }
    let text = yaml::emit(&config, yaml::Dialect::V4);
    Ok(json!({KUBECONFIG: base64::encode(text.as_bytes())}))
}

/// Writes the result of [`filled`] to a Secret.
pub(super) fn put(secret: &mut Value, data: &Value) {
    for (key, value) in data.as_object().into_iter().flatten() {
        if !value.is_null() {
            secret["data"][key] = value.clone();
        } else if let Some(data) = secret.get_mut("data").and_then(Value::as_object_mut) {
            data.remove(key);
        }
    }
}

fn decoded(value: &Value) -> Option<String> {
    String::from_utf8(base64::decode(value.as_str()?.as_bytes()).ok()?).ok()
}

fn kubeconfig(data: &Value) -> Result<Option<Value>, Error> {
    if data.get(KUBECONFIG).is_none() {
        return Ok(None);
    }
    let text = decoded(&data[KUBECONFIG]).ok_or(Error::Unreadable)?;
    yaml::parse(&text).map(Some).map_err(|_| Error::Unreadable)
}

/// The user or the cluster of the current context.
fn current<'a>(config: &'a mut Value, list: &str, kind: &'static str) -> Result<&'a mut Value, Error> {
    let name = config["current-context"].clone();
    let contexts = config["contexts"].as_array().into_iter().flatten();
    let context = contexts.into_iter().find(|c| c["name"] == name).ok_or(Error::Missing("context"))?;
    let name = context["context"][kind].clone();
    let items = config.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
    let item = items.into_iter().find(|item| item["name"] == name);
    item.and_then(|item| item.get_mut(kind)).filter(|found| found.is_object()).ok_or(Error::Missing(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {cluster: k, user: u}\n\
        clusters:\n- name: k\n  cluster: {server: https://s}\nusers:\n- name: other\n  user: {token: wrong}\n- name: u\n  user: {}\n";

    #[test]
    fn a_token_under_its_own_key() {
        let data = json!({"token": "b2xk", "bundle.crt": "Q0E=", "foreign": "eA=="});
        assert_eq!(token(&data).unwrap(), "old");
        assert!(has_bundle(&data, b"CA") && !has_bundle(&data, b"other"));
        assert_eq!(filled(&data, "new", None).unwrap(), json!({"token": "bmV3", "bundle.crt": null}));
        assert_eq!(filled(&data, "new", Some(b"C")).unwrap(), json!({"token": "bmV3", "bundle.crt": "Qw=="}));
        assert_eq!(token(&Value::Null).unwrap(), "");
    }

    #[test]
    fn a_token_within_the_kubeconfig() {
        let data = json!({"kubeconfig": base64::encode(CONFIG.as_bytes())});
        assert_eq!(token(&data).unwrap(), "");
        let data = filled(&data, "new", Some(b"CA")).unwrap();
        assert_eq!(data.as_object().unwrap().len(), 1);
        assert_eq!(token(&data).unwrap(), "new");
        assert!(has_bundle(&data, b"CA"));
        let config = kubeconfig(&data).unwrap().unwrap();
        assert_eq!(config["users"][0]["user"], json!({"token": "wrong"}));
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://s");
    }

    #[test]
    fn a_kubeconfig_without_a_user_is_an_error() {
        let table = [
            ("x: [", "cannot be read"),
            ("contexts: []", "no context"),
            ("current-context: c\ncontexts: [{name: c, context: {user: u}}]", "no user"),
        ];
        for (text, expected) in table {
            let data = json!({"kubeconfig": base64::encode(text.as_bytes())});
            let error = filled(&data, "t", None).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(token(&json!({"kubeconfig": "%"})).is_err());
    }
}
