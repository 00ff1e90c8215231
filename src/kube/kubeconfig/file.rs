//! The structure of a kubeconfig file.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::api::meta::or_default;
use crate::base::redact;
use crate::base::sorted::SortedMap;

/// A kubeconfig file, entries by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct File {
    #[serde(rename = "current-context", deserialize_with = "or_default")]
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
    #[serde(deserialize_with = "or_default")]
    pub(super) server: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) tls_server_name: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) insecure_skip_tls_verify: bool,
    #[serde(deserialize_with = "or_default")]
    pub(super) certificate_authority: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) certificate_authority_data: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) proxy_url: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) extensions: Vec<Extension>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Extension {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    pub(super) extension: Value,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct User {
    #[serde(deserialize_with = "or_default")]
    pub(super) client_certificate: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) client_certificate_data: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) client_key: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) client_key_data: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) token: String,
    #[serde(rename = "tokenFile", deserialize_with = "or_default")]
    pub(super) token_file: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) username: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) password: String,
    pub(super) auth_provider: Option<Value>,
    #[serde(rename = "as", deserialize_with = "or_default")]
    pub(super) impersonate: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) as_groups: Vec<String>,
    pub(super) exec: Option<Exec>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Exec {
    #[serde(deserialize_with = "or_default")]
    pub(super) api_version: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) command: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) args: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) env: Vec<Variable>,
    #[serde(deserialize_with = "or_default")]
    pub(super) install_hint: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) provide_cluster_info: bool,
    #[serde(deserialize_with = "or_default")]
    pub(super) interactive_mode: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) value: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    #[serde(deserialize_with = "or_default")]
    pub(super) cluster: String,
    #[serde(deserialize_with = "or_default")]
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
