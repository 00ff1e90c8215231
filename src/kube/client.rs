//! The client: sends requests with a deadline and decodes what comes back.
//!
//! The generic methods are a skin: [`Client::call`] and [`Client::page`] are compiled once.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::connection::Connection;
use super::error::Error;
use super::limiter::Limiter;
use super::list::{Capped, read_page};
use super::request::{
    DeleteParams, List, ListItem, ListMeta, ListParams, Method, Patch, Request, WatchParams, page_limit,
};
use super::session::Session;
use super::skew::Skew;
use super::status;
use super::watch::{Line, Watch};
use crate::api::meta::{Resource, or_default};
use crate::base::clock::Clock;
use crate::base::metrics::Metrics;
use crate::base::random;
use crate::base::stop::Stop;
use crate::limits;
use crate::net::{self, ClockFloor, Dial, Limits, ProxyEnv, SystemDialer};

/// What a client needs besides the connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests per second in the long run; 0 or less means no limit.
    pub qps: f32,
    /// Requests that may be sent at once.
    pub burst: u32,
    /// `User-Agent`.
    pub user_agent: String,
    /// Total time of a call other than a watch.
    pub timeout: Duration,
    /// The clock of rate limit, token files and certificates. Sockets wait in real time.
    pub clock: Clock,
    /// Opens connections.
    pub dialer: Arc<dyn Dial>,
    /// The proxy variables of the environment.
    pub proxy_env: ProxyEnv,
    /// When pulled, running calls and watches end and new ones are refused.
    pub stop: Stop,
    /// Where requests are counted.
    pub metrics: Metrics,
    /// What the clock can not be before, for certificates.
    pub floor: ClockFloor,
    /// The CAs of the system, if they do not stand where distributions keep them (`SSL_CERT_FILE`).
    pub ca_file: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            qps: 50.0,
            burst: 100,
            user_agent: concat!("gardenlet/", env!("CARGO_PKG_VERSION")).to_owned(),
            timeout: Duration::from_secs(30),
            clock: Clock::system(),
            dialer: Arc::new(SystemDialer),
            proxy_env: ProxyEnv::default(),
            stop: Stop::new(),
            metrics: Metrics::new(),
            floor: ClockFloor::default(),
            ca_file: None,
        }
    }
}

/// A response of any status.
#[derive(Clone, Debug)]
pub struct Response {
    /// HTTP status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// Whether the status is 2xx.
    pub const fn is_success(&self) -> bool {
        matches!(self.status, 200..300)
    }
}

/// The answer of `/version`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerVersion {
    /// Such as `1`.
    #[serde(deserialize_with = "or_default")]
    pub major: String,
    /// Such as `34` or `34+`.
    #[serde(deserialize_with = "or_default")]
    pub minor: String,
    /// Such as `v1.34.1`.
    #[serde(deserialize_with = "or_default")]
    pub git_version: String,
}

/// Name resolution, TCP, proxy and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A watch whose server says nothing at all to the request.
const WATCH_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// What the server may be late with the end of a watch.
const WATCH_END_SLACK: Duration = Duration::from_secs(30);
/// A page of a list may take longer than other calls, as long as bytes arrive.
const PAGE_TIMEOUT_MIN: Duration = Duration::from_secs(120);
/// After so many lists whose pages expired, the next one asks for everything at once.
const RESTARTS_MAX: u32 = 2;

struct Shared {
    options: Options,
    limiter: Limiter,
    session: RwLock<Arc<Session>>,
    skew: Skew,
}

impl Shared {
    fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Until when a call may take; sockets wait in real time.
struct Deadline {
    clock: Clock,
    total: Duration,
}

impl Deadline {
    fn new(total: Duration) -> Self {
        Self { clock: Clock::system(), total }
    }

    fn left(&self) -> Duration {
        self.total.saturating_sub(self.clock.mono())
    }
}

/// A client of one API server. Cheap to clone; all clones share one connection pool, rate limit and identity.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    timeout: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.connection().server).finish_non_exhaustive()
    }
}

impl Client {
    /// A client that has not connected yet.
    ///
    /// # Errors
    /// [`Error::Request`] if the server's URL or the proxy's cannot be used.
    pub fn new(connection: Connection, options: Options) -> Result<Self, Error> {
        let timeout = options.timeout;
        let session = RwLock::new(Arc::new(Session::new(connection, &options)?));
        let limiter = Limiter::new(options.qps, options.burst, &options.clock);
        let stop = options.stop.clone();
        let shared = Arc::new(Shared { options, limiter, session, skew: Skew::default() });
        let weak: Weak<Shared> = Arc::downgrade(&shared);
        stop.on_stop(move || {
            if let Some(shared) = weak.upgrade() {
                shared.session().shutdown();
            }
        });
        Ok(Self { shared, timeout })
    }

    /// Uses another identity, trust or server from now on. Running calls finish; running watches end as if the server had
    /// ended them, so that they go on where they were over a new connection.
    ///
    /// # Errors
    /// As [`Client::new`]; the client goes on with what it had.
    pub fn replace(&self, connection: Connection) -> Result<(), Error> {
        let new = Arc::new(Session::new(connection, &self.shared.options)?);
        let old = std::mem::replace(
            &mut *self.shared.session.write().unwrap_or_else(PoisonError::into_inner),
            Arc::clone(&new),
        );
        old.end_watches();
        if self.shared.options.stop.is_stopped() {
            new.shutdown();
        }
        Ok(())
    }

    /// What the client uses now.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.shared.session().connection)
    }

    /// By how many nanoseconds the server's clock is ahead of ours, as its answers show; `None` before the first one.
    pub fn server_clock_offset(&self) -> Option<i64> {
        self.shared.skew.nanos()
    }

    /// The same client with another total deadline for calls.
    #[must_use]
    pub fn with_deadline(&self, timeout: Duration) -> Self {
        Self { shared: Arc::clone(&self.shared), timeout }
    }

    /// Reads an object.
    ///
    /// # Errors
    /// All of [`Error`]; an absent object is one with [`Error::is_not_found`].
    pub fn get<T: DeserializeOwned>(&self, r: &Resource, namespace: &str, name: &str) -> Result<T, Error> {
        self.decoded(&Request::get(r.path(namespace, name, "")))
    }

    /// Reads an object that may be absent; so may its kind.
    ///
    /// # Errors
    /// All of [`Error`] but not found.
    pub fn find<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<T>, Error> {
        match self.get(r, namespace, name) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads one page of a list. An empty namespace means all.
    ///
    /// # Errors
    /// All of [`Error`].
    pub fn list<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
    ) -> Result<List<T>, Error> {
        self.decoded(&Request::list(r, namespace, params))
    }

    /// Reads all pages of a list and hands over each object, without holding a page; returns the resourceVersion at which
    /// a watch may begin. On [`ListItem::Restart`] forget what came before: the pages expired and the list begins again.
    ///
    /// # Errors
    /// All of [`Error`].
    pub fn list_each<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(ListItem<T>),
    ) -> Result<String, Error> {
        let mut undecodable: Option<serde_json::Error> = None;
        let version = self.pages(r, namespace, params, &mut |object| match object {
            None => {
                undecodable = None;
                each(ListItem::Restart);
            }
            Some(object) => match T::deserialize(object) {
                Ok(object) => each(ListItem::Object(object)),
                Err(error) => undecodable = Some(error),
            },
        })?;
        match undecodable {
            // To leave an object out would make it look deleted.
            Some(source) => Err(Error::Decode { what: r.path(namespace, "", ""), source }),
            None => Ok(version),
        }
    }

    /// Reads all pages of a list, then hands over each object; returns the resourceVersion at which a watch may begin.
    /// Long lists are better read with [`Client::list_each`], which holds nothing.
    ///
    /// # Errors
    /// All of [`Error`]; then no object was handed over.
    pub fn list_all<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(T),
    ) -> Result<String, Error> {
        let mut all = Vec::new();
        let version = self.list_each(r, namespace, params, &mut |item| match item {
            ListItem::Object(object) => all.push(object),
            ListItem::Restart => all.clear(),
        })?;
        all.into_iter().for_each(each);
        Ok(version)
    }

    /// Creates an object and returns what the server stored.
    ///
    /// # Errors
    /// All of [`Error`].
    pub fn create<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        object: &Value,
    ) -> Result<T, Error> {
        self.decoded(&Request::create(r, namespace, "", "", object))
    }

    /// Creates a subresource of an object, such as `token`.
    ///
    /// # Errors
    /// All of [`Error`].
    pub fn create_sub<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        name: &str,
        sub: &str,
        object: &Value,
    ) -> Result<T, Error> {
        self.decoded(&Request::create(r, namespace, name, sub, object))
    }

    /// Replaces an object (empty `sub`) or a subresource such as `status`.
    ///
    /// # Errors
    /// All of [`Error`].
    pub fn replace_object<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        name: &str,
        sub: &str,
        object: &Value,
    ) -> Result<T, Error> {
        self.decoded(&Request::replace(r, namespace, name, sub, object))
    }

    /// Patches an object (empty `sub`) or a subresource such as `status`.
    ///
    /// # Errors
    /// All of [`Error`].
    pub fn patch<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        name: &str,
        sub: &str,
        patch: &Patch,
    ) -> Result<T, Error> {
        self.decoded(&Request::patch(r, namespace, name, sub, patch))
    }

    /// Deletes an object. The server may keep it for its finalizers.
    ///
    /// # Errors
    /// All of [`Error`]; an absent object is one with [`Error::is_not_found`].
    pub fn delete(
        &self,
        r: &Resource,
        namespace: &str,
        name: &str,
        params: &DeleteParams,
    ) -> Result<(), Error> {
        self.call(&Request::delete(r, namespace, name, params)).map(drop)
    }

    /// Deletes everything that a list with the selectors of `list` would return.
    ///
    /// # Errors
    /// All of [`Error`].
    pub fn delete_collection(
        &self,
        r: &Resource,
        namespace: &str,
        list: &ListParams,
        params: &DeleteParams,
    ) -> Result<(), Error> {
        self.call(&Request::delete_collection(r, namespace, list, params)).map(drop)
    }

    /// Begins a watch on a connection of its own.
    ///
    /// # Errors
    /// All of [`Error`]; a version that is too old may show here, or as the first event, as [`Error::is_gone`].
    pub fn watch<T: DeserializeOwned>(
        &self,
        r: &Resource,
        namespace: &str,
        params: &WatchParams,
    ) -> Result<Watch<T>, Error> {
        let seconds = match params.timeout_seconds {
            // Random, so that the watches of many agents do not begin anew together.
            0 => (300.0 + 300.0 * random::unit()).round(),
            seconds => f64::from(seconds),
        };
        let length = Duration::from_secs_f64(seconds);
        let whole_seconds = u32::try_from(length.as_secs()).unwrap_or(u32::MAX);
        let request = Request::watch(r, namespace, params, whole_seconds);
        let (line, name, body) = self.open_watch(&request, length)?;
        Ok(Watch::new(line, name, body))
    }

    /// Any request below the server's URL. A status of failure is a response, not an error.
    ///
    /// # Errors
    /// All of [`Error`] but [`Error::Api`].
    pub fn raw(
        &self,
        method: Method,
        path: &str,
        body: Option<&[u8]>,
        content_type: &str,
    ) -> Result<Response, Error> {
        Ok(self.exchange(&Request::raw(method, path, body, content_type))?.0)
    }

    /// The version of the server.
    ///
    /// # Errors
    /// All of [`Error`].
    pub fn version(&self) -> Result<ServerVersion, Error> {
        self.decoded(&Request::get("/version"))
    }

    fn decoded<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        let response = self.call(request)?;
        serde_json::from_slice(&response.body).map_err(|source| undecodable(request, &response.body, source))
    }

    /// Sends a request; a status of failure is an error.
    fn call(&self, request: &Request) -> Result<Response, Error> {
        let (response, retry_after) = self.exchange(request)?;
        if response.is_success() {
            return Ok(response);
        }
        Err(self.failure(
            &self.shared.session(),
            request,
            response.status,
            retry_after.as_deref(),
            &response.body,
        ))
    }

    /// Sends a request and reads the response of any status, with its `Retry-After`.
    fn exchange(&self, request: &Request) -> Result<(Response, Option<String>), Error> {
        let deadline = Deadline::new(self.timeout);
        let session = self.admitted(&deadline)?;
        let sent_at = self.shared.options.clock.now();
        let limits = Limits {
            connect: CONNECT_TIMEOUT.min(deadline.left()),
            total: Some(deadline.left()),
            response: None,
            read: None,
        };
        let mut response = self.counted(request, session.send(&session.http(), request, &limits))?;
        self.shared.skew.learn(response.header("date"), sent_at, self.shared.options.clock.now());
        let body = response
            .body
            .read_all(limits::RESPONSE_BODY_BYTES_MAX)
            .map_err(|source| self.broken(Error::Transport { request: session.name(request), source }))?;
        let retry_after = response.header("retry-after").map(str::to_owned);
        Ok((Response { status: response.status, body }, retry_after))
    }

    /// All pages of a list. `None` means that the list begins again.
    fn pages(
        &self,
        r: &Resource,
        namespace: &str,
        params: &ListParams,
        each: &mut dyn FnMut(Option<Value>),
    ) -> Result<String, Error> {
        let mut page = ListParams { limit: page_limit(params), ..params.clone() };
        let mut restarts = 0;
        for _ in 0..limits::LIST_PAGES_MAX {
            match self.page(r, &Request::list(r, namespace, &page), &mut |object| each(Some(object))) {
                Ok(meta) if meta.continue_token.is_empty() => return Ok(meta.resource_version),
                Ok(meta) => page.continue_token = meta.continue_token,
                Err(error) if error.is_gone() && !page.continue_token.is_empty() => {
                    restarts += 1;
                    each(None);
                    page.continue_token.clear();
                    page.limit = if restarts > RESTARTS_MAX { 0 } else { page.limit };
                }
                Err(error) => return Err(error),
            }
        }
        let problem = format!("the list has no end after {} pages", limits::LIST_PAGES_MAX);
        Err(Error::Response { request: r.path(namespace, "", ""), problem })
    }

    fn page(&self, r: &Resource, request: &Request, each: &mut dyn FnMut(Value)) -> Result<ListMeta, Error> {
        let deadline = Deadline::new(self.timeout.max(PAGE_TIMEOUT_MIN));
        let session = self.admitted(&deadline)?;
        let limits = Limits {
            connect: CONNECT_TIMEOUT,
            total: Some(deadline.left()),
            response: Some(self.timeout),
            read: Some(self.timeout),
        };
        let mut response = self.counted(request, session.send(&session.http(), request, &limits))?;
        if !(200..300).contains(&response.status) {
            return Err(self.refused(&session, request, &mut response));
        }
        let mut body = Capped::new(&mut response.body, limits::LIST_PAGE_BYTES_MAX);
        read_page(&mut body, r, each).map_err(|error| {
            if error.is_io() {
                let source = net::Error::from_io("read a page", io::Error::from(error));
                self.broken(Error::Transport { request: session.name(request), source })
            } else {
                Error::Response { request: session.name(request), problem: format!("no list: {error}") }
            }
        })
    }

    fn open_watch(
        &self,
        request: &Request,
        length: Duration,
    ) -> Result<(Arc<Line>, String, net::Body), Error> {
        let session = self.admitted(&Deadline::new(self.timeout))?;
        let line = Line::new(session.http().sibling());
        session.track(&line);
        let limits = Limits {
            connect: CONNECT_TIMEOUT,
            total: Some(length + 2 * WATCH_END_SLACK),
            response: Some(WATCH_RESPONSE_TIMEOUT),
            read: Some(length + WATCH_END_SLACK),
        };
        let mut response = self.counted(request, session.send(line.http(), request, &limits))?;
        if response.status != 200 {
            return Err(self.refused(&session, request, &mut response));
        }
        // Between `track` and here the session may have been replaced: then the line is shut and the first read says so.
        Ok((line, session.name(request), response.body))
    }

    /// Waits for the rate limit, then says which connection to use.
    fn admitted(&self, deadline: &Deadline) -> Result<Arc<Session>, Error> {
        let options = &self.shared.options;
        if options.stop.is_stopped() {
            return Err(Error::Stopped);
        }
        self.shared.limiter.acquire(&options.clock, &options.stop, deadline.total)?;
        Ok(self.shared.session())
    }

    /// Counts a response or its absence, as client-go does.
    fn counted(
        &self,
        request: &Request,
        result: Result<net::Response, Error>,
    ) -> Result<net::Response, Error> {
        let method = request.method.as_str();
        let code =
            result.as_ref().map_or_else(|_| "<error>".to_owned(), |response| response.status.to_string());
        log::trace!(method, path = request.bare_path(), code = code.as_str(); "Request sent");
        let labels = [("code", code.as_str()), ("method", method)];
        let help = "Requests to API servers by status code and method.";
        self.shared.options.metrics.add("rest_client_requests_total", help, &labels, 1.0);
        result.map_err(|error| self.broken(error))
    }

    /// What a broken connection means once we are stopping.
    fn broken(&self, error: Error) -> Error {
        if self.shared.options.stop.is_stopped() { Error::Stopped } else { error }
    }

    /// The failure of a response whose body is yet to be read.
    fn refused(&self, session: &Session, request: &Request, response: &mut net::Response) -> Error {
        let retry_after = response.header("retry-after").map(str::to_owned);
        // A body that breaks off takes nothing from the status.
        let body = response.body.read_all(limits::CONFIG_FILE_BYTES_MAX).unwrap_or_default();
        self.failure(session, request, response.status, retry_after.as_deref(), &body)
    }

    fn failure(
        &self,
        session: &Session,
        request: &Request,
        code: u16,
        retry_after: Option<&str>,
        body: &[u8],
    ) -> Error {
        let now = self.shared.options.clock.now();
        Error::Api(Box::new(status::failure(&session.name(request), code, retry_after, body, now)))
    }
}

/// A response that is no JSON at all was not written by the API server.
fn undecodable(request: &Request, body: &[u8], source: serde_json::Error) -> Error {
    if source.is_data() {
        return Error::Decode { what: request.bare_path().to_owned(), source };
    }
    let problem = format!("not JSON: {}", status::excerpt(body));
    Error::Response { request: format!("{} {}", request.method.as_str(), request.bare_path()), problem }
}

#[cfg(test)]
mod tests;
