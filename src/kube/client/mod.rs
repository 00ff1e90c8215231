//! The client: sends requests with a deadline and decodes the responses.
//!
//! The generic methods are thin wrappers around [`super::send`], which is compiled once.

mod collections;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::bounds::{Bounds, HeldPermit};
use super::connection::Connection;
use super::error::{Error, unless_absent};
use super::gate::RequestGate;
use super::request::{ApiRequest, DeleteParams, ListParams, Method, Patch, ServerVersion};
use super::send::{Sender, Terms};
use super::status;
use super::value::short;
use super::warm::WarmConnections;
use crate::api::meta::{Key, Resource};
use crate::base::clock::{Clock, Mono};
use crate::base::garden_time::GardenTime;
use crate::base::metrics::Metrics;
use crate::base::redact;
use crate::base::stop::Stop;
use crate::format::view;
use crate::limits;
use crate::net::{DailyTraffic, Dial, ProxyEnv, SystemCas, SystemDialer};

/// The subresource that a controller writes.
const STATUS: &str = "status";

/// Decides whether a write may begin now, based on the lease that protects it.
pub trait WritePermit: Send + Sync + fmt::Debug {
    /// Called before each request that may change something. Errors: the reason for a refusal.
    fn may_write(&self) -> Result<(), String>;
}

/// The settings of a client besides the connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// Average requests per second; 0 or less means no limit.
    pub qps: f32,
    /// Requests that may be sent at once.
    pub burst: u32,
    /// The value of the header `User-Agent`.
    pub user_agent: String,
    /// The label of this server in metrics: `garden` or `seed`, never an address.
    pub peer: &'static str,
    /// Total time of a call other than a watch.
    pub timeout: Duration,
    /// Total time of a call that may change something, if shorter: as long as its lease remains valid.
    pub write_timeout: Duration,
    /// The permit that is checked before each write; none by default.
    pub permit: Option<Arc<dyn WritePermit>>,
    /// The gate that requests of workers pass, shared by all clients of the server.
    pub gate: Option<RequestGate>,
    /// Shared by the clients of many servers, so that few of them keep idle connections; without it,
    /// each keeps its own.
    pub warm: Option<WarmConnections>,
    /// The limits of answers. Clients with clones of it share the memory for long answers.
    pub bounds: Bounds,
    /// Woken by each 401 response, so that the owner of the credentials can renew them.
    pub unauthorized: Option<Stop>,
    /// The clock of rate limit, token files and certificates. Sockets wait in real time.
    pub clock: Clock,
    /// It opens the sockets of connections.
    pub dialer: Arc<dyn Dial>,
    /// The proxy variables of the environment.
    pub proxy_env: ProxyEnv,
    /// When pulled, running calls and watches end, and new ones are refused.
    pub stop: Stop,
    /// The metrics that count requests.
    pub metrics: Metrics,
    /// Checks certificates, and learns from the answers of the garden.
    pub time: Option<GardenTime>,
    /// Whether the server is the garden, whose answers carry the time.
    pub tells_time: bool,
    /// Shared by clients of the garden: a metric shows their bytes per day.
    pub daily: Option<DailyTraffic>,
    /// The location of the system's CAs.
    pub system_cas: SystemCas,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            qps: 50.0,
            burst: 100,
            peer: "",
            user_agent: concat!("gardenlet/", env!("CARGO_PKG_VERSION")).to_owned(),
            timeout: Duration::from_secs(30),
            write_timeout: Duration::MAX,
            permit: None,
            gate: None,
            warm: None,
            bounds: Bounds::default(),
            unauthorized: None,
            clock: Clock::system(),
            dialer: Arc::new(SystemDialer),
            proxy_env: ProxyEnv::default(),
            stop: Stop::new(),
            metrics: Metrics::new(),
            time: None,
            tells_time: false,
            daily: None,
            system_cas: SystemCas::default(),
        }
    }
}

/// A response of any status.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code of the response.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// The permit for a long body.
    pub(super) _held: Option<Arc<HeldPermit>>,
}

impl Response {
    /// Whether the status is 2xx.
    pub const fn is_success(&self) -> bool {
        matches!(self.status, 200..300)
    }
}

/// A client of one API server. Cheap to clone; all clones share one connection pool, rate limit and identity.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Sender>,
    terms: Terms,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &redact::url(&self.connection().server))
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client that has not connected yet. Errors: [`Error::Request`] if the URL of the server or of
    /// the proxy is unusable.
    pub fn new(connection: Connection, options: Options) -> Result<Self, Error> {
        let terms = Terms { timeout: options.timeout, is_gated: options.gate.is_some() };
        let stop = options.stop.clone();
        let shared = Arc::new(Sender::new(connection, options)?);
        let weak: Weak<Sender> = Arc::downgrade(&shared);
        stop.on_stop(move || {
            if let Some(shared) = weak.upgrade() {
                shared.session().shutdown();
            }
        });
        Ok(Self { shared, terms })
    }

    /// Switches to another identity, trust or server. Running calls finish. Running watches end as if the
    /// server had ended them, so that they continue over a new connection. Errors: as [`Client::new`]; the
    /// client keeps its old settings.
    pub fn replace(&self, connection: Connection) -> Result<(), Error> {
        self.shared.replace(connection)
    }

    /// Ends running calls and watches with an error; later ones use new connections.
    pub(crate) fn cut_off(&self) {
        self.shared.cut_off();
    }

    /// The caller knows that the server's storage was restored to an older state: previous results are
    /// invalid, and watches restart from a new list. Errors: as [`Client::replace`].
    pub(crate) fn begin_anew(&self) -> Result<(), Error> {
        self.shared.past.fetch_add(1, Ordering::SeqCst);
        self.replace((*self.connection()).clone())
    }

    /// The number of calls of [`Client::begin_anew`].
    pub(crate) fn past(&self) -> usize {
        self.shared.past.load(Ordering::SeqCst)
    }

    /// The current connection.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.shared.session().connection)
    }

    /// The same client with another total deadline for calls.
    #[must_use]
    pub fn with_deadline(&self, timeout: Duration) -> Self {
        Self { shared: Arc::clone(&self.shared), terms: Terms { timeout, ..self.terms } }
    }

    /// The same client for threads with no other task: its requests skip the gate.
    #[must_use]
    pub(crate) fn ungated(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), terms: Terms { is_gated: false, ..self.terms } }
    }

    /// Blocks the requests of other clients until `until`: the caller's request is more important, and probes the
    /// server for all. `None` ends it.
    pub(crate) fn go_first(&self, until: Option<Mono>) {
        if let Some(gate) = &self.shared.options.gate {
            gate.hold(until);
        }
    }

    /// Reads an object. Errors: any [`Error`]; an absent object is one with [`Error::is_not_found`].
    pub fn get<T: DeserializeOwned>(&self, r: &Resource, key: &Key) -> Result<T, Error> {
        self.fetch_within(&ApiRequest::get(r.object_path(key)), limits::OBJECT_NODES_MAX)
    }

    /// Reads an object that may be absent, and decodes only the fields of `T`. Errors: any
    /// [`Error`] except not found.
    pub(crate) fn find_plain<T: DeserializeOwned>(
        &self,
        r: &Resource,
        key: &Key,
    ) -> Result<Option<T>, Error> {
        self.find_with(r, key, &mut |body| serde_json::from_slice(body))
    }

    /// The same; `read` decodes the text. Errors: any [`Error`] except not found.
    pub(crate) fn find_with<T>(
        &self,
        r: &Resource,
        key: &Key,
        read: &mut dyn FnMut(&[u8]) -> serde_json::Result<T>,
    ) -> Result<Option<T>, Error> {
        let request = ApiRequest::get(r.object_path(key));
        unless_absent(self.call(&request).and_then(|response| {
            read(&response.body).map_err(|source| status::undecodable(&request, &response.body, source))
        }))
    }

    /// Reads an object. The object, or even its kind, may be absent. An empty name, or an empty namespace of
    /// a namespaced kind, counts as absent without a request, because the server would answer with a list.
    /// Errors: any [`Error`] except not found.
    pub fn find<T: DeserializeOwned>(&self, r: &Resource, key: &Key) -> Result<Option<T>, Error> {
        if key.name.is_empty() || r.namespaced && key.namespace.is_empty() {
            return Ok(None);
        }
        unless_absent(self.get(r, key))
    }

    /// Creates an object and returns the stored one.
    pub fn create<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        object: &Value,
    ) -> Result<T, Error> {
        self.fetch(&ApiRequest::create(r.collection_path(namespace), object))
    }

    /// Creates a subresource of an object, such as `token`.
    pub fn create_sub<T: DeserializeOwned>(
        &self,
        r: &Resource,
        key: &Key,
        sub: &str,
        object: &Value,
    ) -> Result<T, Error> {
        self.fetch(&ApiRequest::create(r.subresource_path(key, sub), object))
    }

    /// Replaces an object.
    pub fn replace_object<T: DeserializeOwned>(
        &self,
        r: &Resource,
        key: &Key,
        object: &Value,
    ) -> Result<T, Error> {
        self.fetch(&ApiRequest::replace(r.object_path(key), object))
    }

    /// Replaces the status of an object.
    pub fn replace_status<T: DeserializeOwned>(
        &self,
        r: &Resource,
        key: &Key,
        object: &Value,
    ) -> Result<T, Error> {
        self.replace_subresource(r, key, STATUS, object)
    }

    /// Replaces a subresource of an object, such as `finalize`.
    pub(crate) fn replace_subresource<T: DeserializeOwned>(
        &self,
        r: &Resource,
        key: &Key,
        sub: &str,
        object: &Value,
    ) -> Result<T, Error> {
        self.fetch(&ApiRequest::replace(r.subresource_path(key, sub), object))
    }

    /// Patches an object.
    pub fn patch<T: DeserializeOwned>(&self, r: &Resource, key: &Key, patch: &Patch) -> Result<T, Error> {
        self.fetch(&ApiRequest::patch(r.object_path(key), patch))
    }

    /// Patches the status of an object.
    pub fn patch_status<T: DeserializeOwned>(
        &self,
        r: &Resource,
        key: &Key,
        patch: &Patch,
    ) -> Result<T, Error> {
        self.fetch(&ApiRequest::patch(r.subresource_path(key, STATUS), patch))
    }

    /// Patches an object, and ignores the object in the response.
    pub fn patch_blindly(&self, r: &Resource, key: &Key, patch: &Patch) -> Result<(), Error> {
        self.shared.call_blindly(&ApiRequest::patch(r.object_path(key), patch), self.terms)
    }

    /// Patches the status of an object, and ignores the object in the response.
    pub fn patch_status_blindly(&self, r: &Resource, key: &Key, patch: &Patch) -> Result<(), Error> {
        self.shared.call_blindly(&ApiRequest::patch(r.subresource_path(key, STATUS), patch), self.terms)
    }

    /// Deletes an object. The server may keep it until its finalizers are removed. Errors: any [`Error`]; an
    /// absent object is one with [`Error::is_not_found`].
    pub fn delete(&self, r: &Resource, key: &Key, params: &DeleteParams) -> Result<(), Error> {
        self.shared.call_blindly(&ApiRequest::delete(r.object_path(key), params), self.terms)
    }

    /// Deletes everything that a list with the selectors of `list` would return.
    pub fn delete_collection(
        &self,
        r: &Resource,
        namespace: &str,
        list: &ListParams,
        params: &DeleteParams,
    ) -> Result<(), Error> {
        self.shared.call_blindly(&ApiRequest::delete_collection(r, namespace, list, params), self.terms)
    }

    /// The answer to a read of any path, whatever its status is. Errors: there is no answer.
    pub(crate) fn get_raw(&self, path: &str) -> Result<Response, Error> {
        Ok(self.shared.exchange(&ApiRequest::get_raw(path), self.terms)?.0)
    }

    /// Sends any request below the server's URL. A failure status is a response, not an error. Errors:
    /// any [`Error`] except [`Error::Api`].
    pub fn raw(
        &self,
        method: Method,
        path: &str,
        body: Option<&[u8]>,
        content_type: &str,
    ) -> Result<Response, Error> {
        Ok(self.shared.exchange(&ApiRequest::raw(method, path, body, content_type), self.terms)?.0)
    }

    /// The version of the server.
    pub fn version(&self) -> Result<ServerVersion, Error> {
        self.fetch(&ApiRequest::get("/version"))
    }

    /// The clock of the client.
    pub fn clock(&self) -> &Clock {
        &self.shared.options.clock
    }

    /// Sends a request and decodes the answer.
    pub fn fetch<T: DeserializeOwned>(&self, request: &ApiRequest) -> Result<T, Error> {
        self.fetch_within(request, limits::ANSWER_NODES_MAX)
    }

    /// The same, for a response of at most this many values.
    fn fetch_within<T: DeserializeOwned>(&self, request: &ApiRequest, nodes_max: usize) -> Result<T, Error> {
        view::read(self.fetch_value(request, nodes_max)?)
            .map_err(|source| Error::Decode { what: request.bare_path().to_owned(), source: short(source) })
    }

    fn fetch_value(&self, request: &ApiRequest, nodes_max: usize) -> Result<Value, Error> {
        let response = self.call(request)?;
        let _held = self.shared.values_permit(request, &response.body, self.terms)?;
        super::value::read_within(&response.body, nodes_max)
            .map_err(|source| status::undecodable(request, &response.body, source))
    }

    fn call(&self, request: &ApiRequest) -> Result<Response, Error> {
        self.shared.call(request, self.terms)
    }
}

#[cfg(test)]
mod tests;
