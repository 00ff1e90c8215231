//! The addresses of the seed's API server, for pods that connect to it. They are checked periodically.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use super::central;
use crate::api::core::ENDPOINTS;
use crate::api::meta::Key;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::controllers::site::is_garden;
use crate::kube::Seed;
use crate::net::{Dial, Url};
use crate::runtime::controller::ReconcileFailure;

/// How often to check whether the seed runs a garden.
const GARDEN_PERIOD: Duration = Duration::from_secs(600);
/// How long a lookup may hold a worker.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(5);

/// The known facts about the seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct KnownApiServer {
    /// It runs a garden, whose operator writes the central policies.
    pub(super) is_garden: bool,
    /// Rules to its API server; `None` while its name has no address.
    pub(super) rules: Option<Arc<Vec<Value>>>,
}

#[derive(Debug, Default)]
struct ApiServerCheckState {
    known: Option<KnownApiServer>,
    looked_for_garden: Option<Mono>,
    addresses: Vec<IpAddr>,
}

/// The API server as clients name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiServerName {
    host: String,
    port: u16,
}

/// The periodic check.
#[derive(Debug)]
pub(crate) struct ApiServerCheck {
    seed: Seed,
    dialer: Arc<dyn Dial>,
    name: Option<ApiServerName>,
    inner: Mutex<ApiServerCheckState>,
}

impl ApiServerCheck {
    /// `name` is `None` if the URL of the API server contains an address.
    pub(crate) fn new(seed: Seed, dialer: Arc<dyn Dial>, name: Option<ApiServerName>) -> Self {
        Self { seed, dialer, name, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ApiServerCheckState> {
        // Single assignments change it.
        self.inner.lock().ignore_poison()
    }

    pub(super) fn known(&self) -> Option<KnownApiServer> {
        self.lock().known.clone()
    }

    /// Checks again. Returns true if something has changed.
    pub(super) fn look(&self, now: Mono) -> Result<bool, ReconcileFailure> {
        let is_garden = self.is_garden(now)?;
        let endpoints =
            self.seed.find::<Value>(&ENDPOINTS, &Key::new("default", "kubernetes"))?.unwrap_or_default();
        let resolved = self.resolve();
        let addresses = self.lock().addresses.clone();
        let rules = match &self.name {
            Some(_) if addresses.is_empty() => None,
            Some(name) => Some(central::to_api_server(&endpoints, &addresses, name.port)),
            None => Some(central::to_api_server(&endpoints, &[], 0)),
        };
        let rules = match rules {
            Some(None) => {
                return Err(ReconcileFailure::retry(
                    "Endpoints default/kubernetes of the seed have no address: pods cannot be allowed to reach the API \
                     server",
                ));
            }
            Some(Some(rules)) => Some(Arc::new(rules)),
            None => None,
        };
        let known = Some(KnownApiServer { is_garden, rules });
        let is_new = {
            let mut inner = self.lock();
            let is_new = inner.known != known;
            inner.known = known;
            is_new
        };
        match resolved {
            // Pass known facts on first.
            Err(error) if !is_new => Err(error),
            _ => Ok(is_new),
        }
    }

    fn is_garden(&self, now: Mono) -> Result<bool, ReconcileFailure> {
        let (known, at) = {
            let inner = self.lock();
            (inner.known.as_ref().map(|known| known.is_garden), inner.looked_for_garden)
        };
        match (known, at) {
            (Some(known), Some(at)) if now.saturating_sub(at) < GARDEN_PERIOD => Ok(known),
            _ => {
                let found = is_garden(&self.seed)?;
                self.lock().looked_for_garden = Some(now);
                Ok(found)
            }
        }
    }

    /// Keeps the known addresses if the name cannot be looked up.
    fn resolve(&self) -> Result<(), ReconcileFailure> {
        let Some(name) = &self.name else { return Ok(()) };
        let mut found = self.dialer.lookup(&name.host, LOOKUP_TIME_MAX)?;
        found.sort_unstable();
        found.dedup();
        if !found.is_empty() {
            self.lock().addresses = found;
        }
        Ok(())
    }
}

/// The host name of the API server from its URL or, if that contains an address, from the environment of
/// pods (`KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`).
pub(crate) fn name(server: &str, host: Option<&str>, port: Option<&str>) -> Option<ApiServerName> {
    let is_name = |name: &ApiServerName| !name.host.is_empty() && name.host.parse::<IpAddr>().is_err();
    let url = Url::parse(server).ok().map(|url| ApiServerName { host: url.host, port: url.port });
    let variables = || Some(ApiServerName { host: host?.to_owned(), port: port?.parse().ok()? });
    url.filter(is_name).or_else(variables).filter(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_may_have_a_name() {
        let named = |host: &str, port| Some(ApiServerName { host: host.to_owned(), port });
        let table = [
            ("https://api.example.org", None, None, named("api.example.org", 443)),
            (
                "https://api.example.org:6443",
                Some("other.example.org"),
                Some("443"),
                named("api.example.org", 6443),
            ),
            ("https://10.0.0.1:6443", None, None, None),
            ("https://[fd00::1]:6443", Some("10.0.0.1"), Some("443"), None),
            ("https://10.0.0.1:6443", Some("api.example.org"), Some("443"), named("api.example.org", 443)),
            ("https://10.0.0.1:6443", Some("api.example.org"), None, None),
        ];
        for (server, host, port, expected) in table {
            assert_eq!(name(server, host, port), expected, "{server} {host:?} {port:?}");
        }
    }
}
