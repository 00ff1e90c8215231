//! Maps `apiVersion` and kind to an API path.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;

use super::client::Client;
use super::error::Error;
use super::request::ApiRequest;
use crate::api::meta::Resource;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::limits;

/// The minimum interval between two discovery requests for a missing kind, per API version.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// Cached results expire after this time: a re-created CRD may have another scope or plural.
const AGE_MAX: Duration = Duration::from_secs(600);

/// Discovery of an API server; cached per API version, and refreshed when a kind is missing. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Discovery {
    client: Client,
    cache: Arc<Mutex<SortedMap<String, Entry>>>,
}

#[derive(Clone, Debug)]
struct Entry {
    asked_at: Mono,
    /// By kind; empty if the API version is not served.
    kinds: Arc<SortedMap<String, Resource>>,
}

impl Discovery {
    /// An empty cache.
    pub fn new(client: Client) -> Self {
        Self { client, cache: Arc::default() }
    }

    /// The API path of a kind; `None` if the server does not serve it. Errors: the
    /// client's, if discovery fails.
    pub fn resource_for(&self, api_version: &str, kind: &str) -> Result<Option<Resource>, Error> {
        let now = self.client.clock().mono();
        if let Some(entry) = self.lock().get(api_version) {
            let age = now.saturating_sub(entry.asked_at);
            let found = entry.kinds.get(kind).cloned();
            if age < if found.is_some() { AGE_MAX } else { REFRESH_INTERVAL } {
                return Ok(found);
            }
        }
        let kinds = Arc::new(self.ask(api_version)?);
        let found = kinds.get(kind).cloned();
        let mut cache = self.lock();
        if cache.len() < limits::DISCOVERY_VERSIONS_MAX || cache.contains_key(api_version) {
            cache.insert(api_version.to_owned(), Entry { asked_at: now, kinds });
        }
        Ok(found)
    }

    /// Drops the cached API version, because its CRD was just created or removed.
    pub(crate) fn forget(&self, api_version: &str) {
        self.lock().remove(api_version);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SortedMap<String, Entry>> {
        self.cache.lock().ignore_poison()
    }

    fn ask(&self, api_version: &str) -> Result<SortedMap<String, Resource>, Error> {
        let path =
            path(api_version).ok_or_else(|| Error::Request(format!("bad apiVersion {api_version:?}")))?;
        match self.client.fetch::<ApiResourceList>(&ApiRequest::get_raw(&path)) {
            Ok(list) => Ok(list.index(api_version)),
            Err(error) if error.is_not_found() => Ok(SortedMap::new()),
            Err(error) => Err(error),
        }
    }
}

/// The path of an API version, which is a group and a version or only a version, of plain characters.
fn path(api_version: &str) -> Option<String> {
    let plain = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
            && text.bytes().any(|b| b != b'.')
    };
    match api_version.split_once('/') {
        None => plain(api_version).then(|| format!("/api/{api_version}")),
        Some((group, version)) => {
            (plain(group) && plain(version)).then(|| format!("/apis/{group}/{version}"))
        }
    }
}

/// The groups of an API server, without the oldest one.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ApiGroupList {
    pub(crate) groups: Vec<ApiGroup>,
}

#[derive(Deserialize)]
pub(crate) struct ApiGroup {
    pub(crate) name: String,
    /// In the server's order of preference.
    #[serde(default)]
    pub(crate) versions: Vec<ApiGroupVersion>,
}

#[derive(Deserialize)]
pub(crate) struct ApiGroupVersion {
    /// Such as `apps/v1`.
    #[serde(rename = "groupVersion")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: String,
}

/// What an API version serves.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ApiResourceList {
    pub(crate) resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
pub(crate) struct ApiResource {
    pub(crate) name: String,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) namespaced: bool,
    /// Set if it differs from the list's.
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    pub(crate) verbs: Vec<String>,
}

impl ApiResource {
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }
}

impl ApiResourceList {
    fn index(self, api_version: &str) -> SortedMap<String, Resource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut kinds = SortedMap::new();
        // A subresource may have a kind of its own (`deployments/scale` is a Scale), even of another group.
        let own = |served: &ApiResource| {
            !served.name.contains('/')
                && (served.group.is_empty() || served.group == group)
                && (served.version.is_empty() || served.version == version)
        };
        for served in self.resources.into_iter().filter(own) {
            let resource = Resource {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                kind: served.kind.clone().into(),
                plural: served.name.into(),
                namespaced: served.namespaced,
            };
            kinds.entry(served.kind).or_insert(resource);
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::*;
    use crate::api::meta::Key;
    use crate::base::clock::{Clock, Simulated, Timestamp};
    use crate::kube::{Connection, Options};
    use crate::net::testing::{Act, TestServer};

    const APPS: &str = r#"{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[
        {"name":"deployments/scale","kind":"Scale","group":"autoscaling","version":"v1","namespaced":true},
        {"name":"deployments/status","kind":"Deployment","namespaced":true},
        {"name":"deployments","kind":"Deployment","namespaced":true,"verbs":["get"]},
        {"name":"clusterthings","kind":"ClusterThing","namespaced":false}]}"#;

    #[test]
    fn kinds_are_cached_and_asked_for_again_when_they_are_missing() {
        let status = Arc::new(AtomicU16::new(200));
        let answer = Arc::clone(&status);
        let server = TestServer::plain(move |_| Act::json(answer.load(Ordering::SeqCst), APPS));
        let sim = Simulated::new(Timestamp::from_unix(0), 1);
        let options = Options { clock: Clock::new(sim.clone()), ..Options::default() };
        let discovery = Discovery::new(Client::new(Connection::new(server.url()), options).unwrap());
        let find = |kind: &str| discovery.resource_for("apps/v1", kind).unwrap();
        let deployment = find("Deployment").unwrap();
        assert_eq!(deployment.object_path(&Key::new("n", "x")), "/apis/apps/v1/namespaces/n/deployments/x");
        assert!(!find("ClusterThing").unwrap().namespaced);
        assert_eq!((find("Scale"), find("Other")), (None, None));
        assert_eq!(server.seen().len(), 1);
        sim.advance(Duration::from_secs(6));
        assert!(find("Deployment").is_some());
        assert_eq!(server.seen().len(), 1);
        assert_eq!(find("Other"), None);
        assert_eq!(server.seen().len(), 2);
        // An API version that no longer exists is not an error; an unreachable server is.
        sim.advance(Duration::from_secs(601));
        status.store(503, Ordering::SeqCst);
        assert!(discovery.resource_for("apps/v1", "Deployment").is_err());
        status.store(404, Ordering::SeqCst);
        assert_eq!(find("Deployment"), None);
        discovery.forget("apps/v1");
        status.store(200, Ordering::SeqCst);
        assert!(find("Deployment").is_some());
    }

    #[test]
    fn api_versions_become_paths() {
        let table = [
            ("v1", Some("/api/v1")),
            ("apps/v1", Some("/apis/apps/v1")),
            ("core.gardener.cloud/v1beta1", Some("/apis/core.gardener.cloud/v1beta1")),
            ("", None),
            ("a/b/c", None),
            ("../v1", None),
            ("apps/", None),
            ("apps/v1?x", None),
        ];
        for (api_version, expected) in table {
            assert_eq!(path(api_version).as_deref(), expected, "{api_version:?}");
        }
    }
}
