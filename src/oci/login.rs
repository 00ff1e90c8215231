//! Pull secrets (`.dockerconfigjson`): selects the entry for a registry as Gardener does (`pkg/utils/oci` with
//! docker/cli). No IO.

use std::fmt;

use serde::Deserialize;

use crate::base::redact::Secret;
use crate::base::sorted::SortedMap;
use crate::format::{base64, view};

/// The key of Docker Hub in configuration files, for historical reasons.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

/// Credentials for a registry. Their debug format omits them.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    Basic(String, Secret<String>),
    /// A refresh token for the token service.
    Identity(Secret<String>),
    /// A token for the registry itself.
    Registry(Secret<String>),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// The logins of a pull secret. Their debug format omits them.
#[derive(Clone, Default)]
pub struct Keychain(SortedMap<String, Login>);

impl fmt::Debug for Keychain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keychain({} logins)", self.0.len())
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: Option<SortedMap<String, Option<Entry>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl Keychain {
    /// Parses the value of `.dockerconfigjson`. Credential helpers are ignored: there are none here. Errors:
    /// what is wrong with it, without its content. As upstream, one bad entry makes the whole unusable.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let document: DockerConfig = view::parse(text).map_err(|_| "is not a docker configuration")?;
        let mut logins = SortedMap::new();
        for (key, entry) in document.auths.unwrap_or_default() {
            if let Some(login) = login(entry.unwrap_or_default())? {
                logins.insert(key, login);
            }
        }
        Ok(Self(logins))
    }

    /// The login for a repository: an entry for `registry/repository`, or one for the registry, which may be
    /// written as a URL.
    pub(super) fn find(&self, registry: &str, repository: &str) -> Option<&Login> {
        if let Some(login) = self.0.get(&format!("{registry}/{repository}")) {
            return Some(login);
        }
        if registry == "index.docker.io"
            && let Some(login) = self.0.get(DOCKER_HUB_KEY)
        {
            return Some(login);
        }
        let by_host = || self.0.iter().find(|(key, _)| host_of(key) == registry).map(|(_, login)| login);
        self.0.get(registry).or_else(by_host)
    }
}

fn login(entry: Entry) -> Result<Option<Login>, &'static str> {
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    if let Some(token) = filled(entry.registrytoken) {
        return Ok(Some(Login::Registry(token.into())));
    }
    if let Some(token) = filled(entry.identitytoken) {
        return Ok(Some(Login::Identity(token.into())));
    }
    if let Some(auth) = filled(entry.auth) {
        let bad = "has an entry whose auth is not the base64 of user:password";
        let plain = base64::decode(auth.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let plain = plain.ok_or(bad)?;
        let (user, password) = plain.split_once(':').filter(|(user, _)| !user.is_empty()).ok_or(bad)?;
        let password = password.trim_matches('\0').to_owned();
        return Ok(Some(Login::Basic(user.to_owned(), password.into())));
    }
    let (user, password) = (filled(entry.username), entry.password.unwrap_or_default());
    Ok(user.map(|user| Login::Basic(user, password.into())))
}

/// Host and port of a key: `https://host/v1/`, `host/path`, `host`.
fn host_of(key: &str) -> &str {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default().trim_end_matches(":443")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_entry_of_the_repository_counts_before_that_of_the_registry() {
        let config = json!({"auths": {
            "reg.example.org": {"username": "host", "password": "a"},
            "reg.example.org/team/x": {"auth": base64::encode(b"path:b:c")},
            "https://url.example.org/v1/": {"username": "url", "password": "d"},
            "port.example.org:5000": {"username": "port", "password": "e"},
            "https://index.docker.io/v1/": {"username": "hub", "password": "f"},
            "identity.example.org": {"auth": base64::encode(b"00000000:"), "identitytoken": "g"},
            "token.example.org": {"registrytoken": "h"},
            "only-path.example.org/x": {"username": "quirk", "password": "i"},
            "empty.example.org": {}, "null.example.org": null,
        }, "credsStore": "desktop", "HttpHeaders": {}});
        let keychain = Keychain::parse(config.to_string().as_bytes()).unwrap();
        let basic = |user: &str, password: &str| {
            Some(Login::Basic(user.to_owned(), Secret::new(password.to_owned())))
        };
        let table = [
            ("reg.example.org", "team/x", basic("path", "b:c")),
            ("reg.example.org", "team/xy", basic("host", "a")),
            ("reg.example.org:5000", "team/x", None),
            ("url.example.org", "x", basic("url", "d")),
            ("port.example.org:5000", "x", basic("port", "e")),
            ("port.example.org", "x", None),
            ("index.docker.io", "library/x", basic("hub", "f")),
            ("identity.example.org", "x", Some(Login::Identity("g".to_owned().into()))),
            ("token.example.org", "x", Some(Login::Registry("h".to_owned().into()))),
            ("only-path.example.org", "y", basic("quirk", "i")),
            ("empty.example.org", "x", None),
            ("null.example.org", "x", None),
            ("other.example.org", "x", None),
        ];
        for (registry, repository, expected) in table {
            let found = keychain.find(registry, repository).cloned();
            assert!(found == expected, "{registry}/{repository}: other than expected");
        }
        let login = Login::Registry("t".to_owned().into());
        assert_eq!(format!("{keychain:?} {login:?}"), "Keychain(8 logins) Login");
    }

    #[test]
    fn invalid_docker_configurations_are_refused() {
        assert!(Keychain::parse(b"{}").unwrap().0.is_empty());
        let auth = |plain: &[u8]| json!({"auths": {"r": {"auth": base64::encode(plain)}}}).to_string();
        for text in ["", "[1]", "{\"auths\": []}", "{\"auths\": {\"r\": {\"auth\": \"%\"}}}"] {
            assert!(Keychain::parse(text.as_bytes()).is_err(), "{text}");
        }
        for plain in [b"nocolon".as_slice(), b":password", b"\xff:x"] {
            assert!(Keychain::parse(auth(plain).as_bytes()).is_err(), "{plain:?}");
        }
    }
}
