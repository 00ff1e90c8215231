//! HTTP/1.1 with a limit on everything: no redirects, no status counts as an error, and only the agent's own proxy
//! settings.

use std::fmt;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use ureq::http;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout, ShutdownHandle};

use super::dial::{Dial, DialAttempt};
use super::error::{CONNECT, Error, HANDSHAKE, TlsError};
use super::proxy::ProxyPolicy;
use super::reach::Reach;
use super::tls;
use super::traffic::Traffic;
use super::trust::{AnonymousParty, CertificateClock, SystemCas, TlsParty};
use super::tunnel;
use super::url::Url;
use super::wire::{Channel, Conduit, Timer};
use crate::base::capped;
use crate::base::clock::Clock;
use crate::limits;

/// An idle connection is kept for this long; API servers close theirs after 90 s.
const IDLE_AGE_MAX: Duration = Duration::from_secs(60);
/// A write that makes no progress for this long fails, regardless of the other limits.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// The settings of connections.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// It opens the sockets of connections.
    pub dialer: Arc<dyn Dial>,
    /// Trust and identity.
    pub party: Arc<dyn TlsParty>,
    /// The name that the peer's certificate must have instead of the URL's host.
    pub server_name: Option<String>,
    /// The proxy policy.
    pub proxy: ProxyPolicy,
    /// The location of the system's CAs; TLS to a proxy uses them, never the CAs of the cluster.
    pub system_cas: SystemCas,
    /// The clock for checking certificates.
    pub clock: Clock,
    /// A second clock, if the first one finds the peer's certificate expired or not valid yet.
    pub second_clock: Option<Clock>,
    /// The value of the header `User-Agent`.
    pub user_agent: String,
    /// Idle connections that are kept.
    pub idle_connections_max: usize,
    /// Counts bytes.
    pub traffic: Traffic,
}

/// Time limits of one request. They are measured in real time.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Name resolution, TCP, proxy and TLS together.
    pub connect: Duration,
    /// Everything, including the body.
    pub total: Option<Duration>,
    /// From the end of the request to the end of the response's headers.
    pub response: Option<Duration>,
    /// Each read.
    pub read: Option<Duration>,
}

/// A request.
#[derive(Clone, Copy)]
pub struct HttpRequest<'a> {
    /// Method in capitals.
    pub method: &'a str,
    /// Absolute URL.
    pub url: &'a str,
    /// Headers; formats without their values.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body.
    pub body: Option<&'a [u8]>,
    /// Whether the response may be compressed; reading its body decompresses it. Otherwise its bytes are kept as they come,
    /// whatever the server says about them: they may be stored in this form.
    pub gzip: bool,
}

impl<'a> HttpRequest<'a> {
    /// A GET without headers.
    pub const fn get(url: &'a str) -> Self {
        Self { method: "GET", url, headers: &[], body: None, gzip: false }
    }
}

impl fmt::Debug for HttpRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url)
    }
}

/// A response whose body has not been read yet.
#[derive(Debug)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    headers: http::HeaderMap,
    /// The body.
    pub body: Body,
}

impl HttpResponse {
    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// All headers of a name, as text.
    pub(crate) fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
    }
}

/// The body of a response. Dropping it early closes the connection.
pub struct Body {
    reader: BodyReader,
    closed: Arc<AtomicBool>,
}

enum BodyReader {
    Plain(ureq::BodyReader<'static>),
    Gzip(Box<MultiGzDecoder<ureq::BodyReader<'static>>>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = match &mut self.reader {
            BodyReader::Plain(reader) => reader.read(buffer),
            BodyReader::Gzip(reader) => reader.read(buffer),
        };
        // A shutdown by our side may look like a regular end.
        if matches!(result, Ok(0) | Err(_)) && self.closed.load(Ordering::SeqCst) {
            return Err(io::Error::other(Error::Closed));
        }
        result.map_err(|error| io::Error::other(Error::from_io("read the response", error)))
    }
}

impl Body {
    /// Reads the whole body. Errors: the errors of the connection,
    /// and [`Error::TooLarge`] beyond `bytes_max`.
    pub fn read_all(&mut self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let read =
            capped::read(self, bytes_max).map_err(|error| Error::from_io("read the response", error))?;
        read.ok_or(Error::TooLarge { what: "response", bytes_max })
    }
}

/// Sends requests over a pool of connections. Cheap to clone.
#[derive(Clone)]
pub struct Http {
    agent: ureq::Agent,
    link: Link,
    closed: Arc<AtomicBool>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

impl Http {
    /// A pool without connections.
    pub fn new(settings: ConnectionSettings) -> Self {
        Self::within(settings, Reach::anywhere())
    }

    /// The same, but restricted to addresses within `reach`.
    pub(crate) fn within(settings: ConnectionSettings, reach: Reach) -> Self {
        Self::with_link(Link(Arc::new(settings), reach))
    }

    /// Another pool with the same settings, which can be shut down separately.
    #[must_use]
    pub(crate) fn sibling(&self) -> Self {
        Self::with_link(self.link.clone())
    }

    fn with_link(link: Link) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(link.0.user_agent.as_str())
            .accept("")
            .accept_encoding("")
            .max_response_header_size(limits::RESPONSE_HEADER_BYTES_MAX)
            .max_idle_connections(link.0.idle_connections_max)
            .max_idle_connections_per_host(link.0.idle_connections_max)
            .max_idle_age(IDLE_AGE_MAX)
            .timeout_await_100(None)
            .build();
        let agent = ureq::Agent::with_parts(config, link.clone(), NoResolver);
        Self { agent, link, closed: Arc::new(AtomicBool::new(false)) }
    }

    /// Sends a request and waits for the headers of the response. A GET is retried once if the server has
    /// just closed the connection. Errors: any [`Error`]; a status is not an error.
    pub fn send(&self, request: &HttpRequest<'_>, limits: &RequestLimits) -> Result<HttpResponse, Error> {
        let clock = Clock::system();
        let mut result = self.attempt(request, limits);
        if request.method == "GET" && matches!(&result, Err(error) if error.is_hang_up()) {
            let total = limits.total.map(|total| total.saturating_sub(clock.mono()));
            if total.is_none_or(|total| !total.is_zero()) && !self.is_closed() {
                result = self.attempt(request, &RequestLimits { total, ..*limits });
            }
        }
        match result {
            Err(_) if self.is_closed() => Err(Error::Closed),
            other => other,
        }
    }

    /// Ends all requests of this pool, including running ones, and refuses new ones.
    pub(crate) fn shutdown(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.agent.clone().shutdown();
    }

    /// Whether [`Http::shutdown`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn attempt(&self, request: &HttpRequest<'_>, limits: &RequestLimits) -> Result<HttpResponse, Error> {
        let mut builder = http::Request::builder().method(request.method).uri(request.url);
        for (name, value) in request.headers {
            builder = builder.header(*name, *value);
        }
        if request.gzip {
            builder = builder.header("Accept-Encoding", "gzip");
        }
        let needs_body = matches!(request.method, "POST" | "PUT" | "PATCH");
        let result = match request.body.or(if needs_body { Some(b"") } else { None }) {
            Some(body) => self.run(builder.body(body).map_err(unsendable)?, limits),
            None => self.run(builder.body(()).map_err(unsendable)?, limits),
        };
        let (parts, body) = result.map_err(Error::from_ureq)?.into_parts();
        let packed =
            request.gzip && parts.headers.get("content-encoding").is_some_and(|value| value == "gzip");
        let reader = if packed {
            BodyReader::Gzip(Box::new(MultiGzDecoder::new(body.into_reader())))
        } else {
            BodyReader::Plain(body.into_reader())
        };
        let body = Body { reader, closed: Arc::clone(&self.closed) };
        Ok(HttpResponse { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    fn run<B: ureq::AsSendBody>(
        &self,
        request: http::Request<B>,
        limits: &RequestLimits,
    ) -> Result<http::Response<ureq::Body>, ureq::Error> {
        let request = self
            .agent
            .configure_request(request)
            .timeout_global(limits.total)
            .timeout_connect(Some(limits.connect))
            .timeout_recv_response(limits.response)
            .timeout_per_read(limits.read)
            .timeout_per_write(Some(WRITE_TIMEOUT))
            .build();
        self.agent.run(request)
    }
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn unsendable(error: http::Error) -> Error {
    Error::Request(error.to_string())
}

/// A resolver for ureq that resolves nothing: the dialer or the proxy resolves names.
#[derive(Debug)]
struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(
        &self,
        _: &http::Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

/// Creates connections: TCP, then the proxy if there is one, then TLS if the URL requires it.
#[derive(Clone, Debug)]
struct Link(Arc<ConnectionSettings>, Reach);

impl Connector for Link {
    type Out = Conduit;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Conduit>, ureq::Error> {
        let channel = self.open(details).map_err(|error| ureq::Error::Other(Box::new(error)))?;
        Ok(Some(Conduit::new(channel)))
    }
}

impl ShutdownHandle for DialAttempt {
    fn shutdown(&self) {
        self.cancel();
    }
}

impl Link {
    fn open(&self, details: &ConnectionDetails<'_>) -> Result<Channel, Error> {
        let target = Url::parse(&details.uri.to_string()).map_err(Error::Request)?;
        let timer = Timer::new(Clock::system(), details.timeout);
        let proxy = self.0.proxy.proxy_for(&target.scheme, &target.host, target.port);
        let mut channel = match proxy {
            None => self.dial(&target, timer, details, Some(&self.1))?,
            Some(proxy) => self
                .open_proxy(proxy, &target, timer, details)
                .map_err(|error| error.of_proxy(&proxy.authority()))?,
        };
        if target.scheme == "https" {
            let name = self.0.server_name.as_deref().unwrap_or(&target.host);
            channel = self.secure(channel, name, &*self.0.party)?;
        }
        Ok(channel)
    }

    fn open_proxy(
        &self,
        proxy: &Url,
        target: &Url,
        timer: Timer,
        details: &ConnectionDetails<'_>,
    ) -> Result<Channel, Error> {
        self.1.judge_text(&target.host)?;
        let mut channel = self.dial(proxy, timer, details, None)?;
        if proxy.scheme == "https" {
            let party = AnonymousParty { system_cas: self.0.system_cas.clone() };
            channel = self.secure(channel, &proxy.host, &party)?;
        }
        tunnel::open(&mut channel, proxy, &target.host, target.port, &self.0.user_agent)?;
        Ok(channel)
    }

    fn dial(
        &self,
        to: &Url,
        timer: Timer,
        details: &ConnectionDetails<'_>,
        reach: Option<&Reach>,
    ) -> Result<Channel, Error> {
        let left = timer.total_left().map_err(|error| Error::from_io("connect", error))?;
        let opening = &mut |attempt: &Arc<DialAttempt>| {
            if let (Some(reach), Some(address)) = (reach, attempt.address()) {
                reach.judge(&to.host, address).map_err(io::Error::other)?;
            }
            let shared: Weak<DialAttempt> = Arc::downgrade(attempt);
            (details.register_shutdown)(shared).map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))
        };
        let wait = left.unwrap_or(Duration::MAX);
        let socket = self.0.dialer.dial_telling(&to.host, to.port, wait, opening);
        let socket = socket.map_err(|error| match Error::from_io("connect", error) {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut => Error::Timeout(CONNECT),
            Error::Io { source, .. } => Error::Connect { address: to.authority(), source },
            sorted => sorted,
        })?;
        if let (Some(reach), Ok(peer)) = (reach, socket.peer_addr()) {
            // Not every dialer reports the address beforehand.
            reach.judge(&to.host, peer.ip())?;
            reach.note(peer.ip());
        }
        let socket = Arc::new(socket);
        self.0.dialer.opened(&socket);
        let shared: Weak<TcpStream> = Arc::downgrade(&socket);
        let handle: Weak<dyn ShutdownHandle> = shared;
        (details.register_shutdown)(handle).map_err(|_| Error::Closed)?;
        Ok(Channel::Tcp { socket, timer, traffic: self.0.traffic.clone() })
    }

    fn secure(&self, channel: Channel, name: &str, party: &dyn TlsParty) -> Result<Channel, Error> {
        let clock = CertificateClock(self.0.clock.clone());
        let connection = tls::start(name, party, clock, self.0.second_clock.clone()).map_err(Error::Tls)?;
        channel.wrap(connection).map_err(|error| match Error::from_io(HANDSHAKE, error) {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof => {
                Error::Tls(TlsError::Handshake("the peer closed the connection".to_owned()))
            }
            Error::Timeout(_) => Error::Timeout(HANDSHAKE),
            other => other,
        })
    }
}
