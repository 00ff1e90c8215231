//! Connections to the hosts of one pull: registry, token service, targets of redirects. Each host has a pool of its
//! own, so that a client certificate is shown only to its host.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::error::Error;
use super::source::{entry, host_key};
use crate::base::capped;
use crate::base::clock::Clock;
use crate::base::lock::IgnorePoison;
use crate::base::stop::Stop;
use crate::config::settings::Registry;
use crate::limits;
use crate::net::{
    self, AddressZone, CertificatePair, Dial, Http, ProxyPolicy, Reach, RequestLimits, SystemCas, TlsError,
    TlsParty, Traffic, TrustedRoots, Url,
};

/// The network settings of the machine.
#[derive(Clone, Debug)]
pub struct RegistryNetwork {
    /// It opens the sockets of connections.
    pub dialer: Arc<dyn Dial>,
    /// The proxy policy; an unusable variable fails each pull.
    pub proxy: Result<ProxyPolicy, String>,
    /// The location of the system's CAs.
    pub system_cas: SystemCas,
    /// The clock for checking certificates.
    pub clock: Clock,
    /// The longest silence of a registry within a response, in real time.
    pub silence: Duration,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// The default of the longest silence of a registry within a response.
pub const SILENCE: Duration = Duration::from_secs(15);

/// Pools that a stop ends, and the traffic of all of them.
#[derive(Clone, Debug, Default)]
pub(super) struct RunningPools {
    pools: Arc<Mutex<Pools>>,
    pub(super) traffic: Traffic,
}

#[derive(Debug, Default)]
struct Pools {
    next: u64,
    open: Vec<(u64, Http)>,
    ended: bool,
}

impl RunningPools {
    /// Pools that end when `stop` is pulled.
    pub(super) fn until(stop: &Stop) -> Self {
        let running = Self::default();
        let pools = Arc::downgrade(&running.pools);
        stop.on_stop(move || {
            let Some(pools) = pools.upgrade() else { return };
            let open = {
                let mut pools = pools.lock().ignore_poison();
                pools.ended = true;
                std::mem::take(&mut pools.open)
            };
            open.iter().for_each(|(_, http)| http.shutdown());
        });
        running
    }

    fn add(&self, http: &Http) -> u64 {
        let mut pools = self.pools.lock().ignore_poison();
        if pools.ended {
            http.shutdown();
        }
        pools.next += 1;
        let number = pools.next;
        pools.open.push((number, http.clone()));
        number
    }

    fn remove(&self, number: u64) {
        let mut pools = self.pools.lock().ignore_poison();
        pools.open.retain(|(other, _)| *other != number);
    }
}

pub(super) struct Wire<'a> {
    network: &'a RegistryNetwork,
    registries: &'a [Registry],
    /// CAs of the order. They replace all others, except those that are configured for another host.
    bundle: Option<Arc<[u8]>>,
    /// The host of the order.
    host: String,
    running: RunningPools,
    pools: Vec<(String, u64, Http)>,
    /// The reach of that host.
    registry: Reach,
}

impl Drop for Wire<'_> {
    fn drop(&mut self) {
        self.pools.iter().for_each(|(_, number, _)| self.running.remove(*number));
    }
}

impl<'a> Wire<'a> {
    pub(super) fn new(
        network: &'a RegistryNetwork,
        registries: &'a [Registry],
        running: RunningPools,
        host: String,
        bundle: Option<Arc<[u8]>>,
    ) -> Self {
        Self { network, registries, bundle, host, running, pools: Vec::new(), registry: Reach::anywhere() }
    }

    /// The timeouts of a request within `total`.
    pub(super) const fn limits(&self, total: Duration) -> RequestLimits {
        RequestLimits {
            connect: CONNECT_TIMEOUT,
            total: Some(total),
            response: Some(RESPONSE_TIMEOUT),
            read: Some(self.network.silence),
        }
    }

    /// The pool for the host of a URL.
    pub(super) fn http(&mut self, url: &Url) -> Result<Http, Error> {
        let origin = format!("{}://{}", url.scheme, url.authority());
        if let Some((_, _, http)) = self.pools.iter().find(|(known, _, _)| *known == origin) {
            return Ok(http.clone());
        }
        let host = host_key(url);
        let proxy = self
            .network
            .proxy
            .clone()
            .map_err(|problem| Error::Net { host: host.clone(), source: net::Error::Proxy(problem) })?;
        let settings = net::ConnectionSettings {
            dialer: Arc::clone(&self.network.dialer),
            party: Arc::new(self.party(&host)),
            server_name: None,
            proxy,
            system_cas: self.network.system_cas.clone(),
            clock: self.network.clock.clone(),
            second_clock: None,
            user_agent: concat!("gardenlet/", env!("CARGO_PKG_VERSION")).to_owned(),
            idle_connections_max: 1,
            traffic: self.running.traffic.clone(),
        };
        let http = Http::within(settings, self.reach(url));
        let number = self.running.add(&http);
        self.pools.push((origin, number, http.clone()));
        Ok(http)
    }

    /// Whether the configuration names the host.
    pub(super) fn is_named(&self, url: &Url) -> bool {
        entry(self.registries, &host_key(url)).is_some()
    }

    /// The registry and configured hosts may be anywhere. A host that a registry names, a token service or the target
    /// of a redirect, may be at its site if the registry is there too, but not on this machine.
    fn reach(&self, url: &Url) -> Reach {
        if Url::parse(&format!("https://{}", self.host)).is_ok_and(|own| own.host == url.host) {
            return self.registry.clone();
        }
        if self.is_named(url) {
            return Reach::anywhere();
        }
        let is_inside = self.registry.seen().is_some_and(|zone| zone >= AddressZone::Site);
        Reach::up_to(if is_inside { AddressZone::Site } else { AddressZone::World })
    }

    fn party(&self, host: &str) -> HostParty {
        let entry = entry(self.registries, host);
        let file = entry.and_then(|entry| entry.ca_file.clone());
        let trust = match (&self.bundle, file) {
            (Some(bundle), None) => Trust::Bundle(Arc::clone(bundle)),
            (Some(bundle), Some(_)) if host == self.host => Trust::Bundle(Arc::clone(bundle)),
            (_, Some(file)) => Trust::File(file),
            (None, None) => Trust::System(self.network.system_cas.clone()),
        };
        let pair = entry.and_then(|entry| Some((entry.certificate_file.clone()?, entry.key_file.clone()?)));
        HostParty { trust, pair }
    }
}

#[derive(Clone, Debug)]
enum Trust {
    System(SystemCas),
    File(PathBuf),
    Bundle(Arc<[u8]>),
}

/// Trust and identity at one host. Files are read again for each handshake, because they may have been renewed.
#[derive(Debug)]
struct HostParty {
    trust: Trust,
    pair: Option<(PathBuf, PathBuf)>,
}

impl TlsParty for HostParty {
    fn roots(&self) -> Result<TrustedRoots, TlsError> {
        Ok(match &self.trust {
            Trust::System(cas) => TrustedRoots::System(cas.clone()),
            Trust::File(path) => TrustedRoots::Pem(read_pem(path)?),
            Trust::Bundle(pem) => TrustedRoots::Pem(Arc::clone(pem)),
        })
    }

    fn certificate(&self) -> Result<Option<CertificatePair>, TlsError> {
        let Some((certificate, key)) = &self.pair else { return Ok(None) };
        Ok(Some(CertificatePair { chain_pem: read_pem(certificate)?, key_pem: read_pem(key)? }))
    }
}

fn read_pem(path: &Path) -> Result<Arc<[u8]>, TlsError> {
    match capped::read_file(path, limits::OCI_PEM_BYTES_MAX) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(TlsError::Material(format!("{}: {error}", path.display()))),
    }
}
