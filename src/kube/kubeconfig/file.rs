//! The structure of a kubeconfig file.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::base::redact;
use crate::base::sorted::SortedMap;

/// A kubeconfig file, entries by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct File {
    #[serde(rename = "current-context")]
    pub(super) current_context: String,
    #[serde(deserialize_with = "named")]
    pub(super) clusters: SortedMap<String, Cluster>,
    #[serde(deserialize_with = "named")]
    pub(super) users: SortedMap<String, User>,
    #[serde(deserialize_with = "named")]
    pub(super) contexts: SortedMap<String, Context>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Cluster {
    pub(super) server: String,
    pub(super) tls_server_name: String,
    pub(super) insecure_skip_tls_verify: bool,
    pub(super) certificate_authority: String,
    pub(super) certificate_authority_data: String,
    pub(super) proxy_url: String,
    pub(super) extensions: Vec<Extension>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) extension: Value,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct User {
    pub(super) client_certificate: String,
    pub(super) client_certificate_data: String,
    pub(super) client_key: String,
    pub(super) client_key_data: String,
    pub(super) token: String,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: String,
    pub(super) username: String,
    pub(super) password: String,
    pub(super) auth_provider: Option<Value>,
    #[serde(rename = "as")]
    pub(super) impersonate: String,
    pub(super) as_groups: Vec<String>,
    pub(super) exec: Option<Exec>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Exec {
    pub(super) api_version: String,
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<Variable>,
    pub(super) install_hint: String,
    pub(super) provide_cluster_info: bool,
    pub(super) interactive_mode: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    pub(super) cluster: String,
    pub(super) user: String,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("server", &redact::url(&self.server)).finish_non_exhaustive()
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User")
    }
}

/// Reads `[{name, cluster|user|context}]`. As in client-go, a name that occurs twice in one file is an error.
fn named<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<SortedMap<String, T>, D::Error> {
    #[derive(Deserialize)]
    struct Entry<T> {
        #[serde(default)]
        name: String,
        #[serde(alias = "cluster", alias = "user", alias = "context", default = "Option::default")]
        entry: Option<T>,
    }
    let mut map = SortedMap::new();
    for Entry { name, entry } in Option::<Vec<Entry<T>>>::deserialize(d)?.unwrap_or_default() {
        if map.contains_key(&name) {
            return Err(serde::de::Error::custom(format!("duplicate name {name:?} in list")));
        }
        map.insert(name, entry.unwrap_or_default());
    }
    Ok(map)
}
