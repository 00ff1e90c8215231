//! A proxy between an agent and a real API server, which changes connections and requests as a story orders.
//!
//! Two layers: a TCP proxy that slows, holds, resets and cuts (`support/proxy.rs`), and behind it the end of the
//! agent's TLS, where requests can be refused, answered wrongly and recorded ([`Faults`]). The gate passes the user on
//! to the server as any front proxy does; tokens are passed on unchanged.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::thread;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

use crate::cluster::Cluster;
use crate::failure::{Doing, Failure, Result};
use crate::wait;
use support::api::read::event;
use support::api::request::Info;
use support::encoding::http_date;
use support::http::faults::{Action, Faults, Seen};
use support::http::message::{Request, Response, stream_head, write_chunk};
use support::http::route::Reply;
use support::http::tls::{Stream, Traffic, Trust, server_config};
use support::pki::Identity;
use support::proxy::Proxy;

const STACK_BYTES: usize = 512 << 10;
/// How often a connection that waits for the server checks whether the agent is still connected.
const LOOK: Duration = Duration::from_millis(100);

/// A request that was passed on, with its time.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    pub(crate) at: Mono,
    pub(crate) method: String,
    pub(crate) path: String,
}

impl Passed {
    /// Whether it could change something other than a Lease of a leader.
    pub(crate) fn is_work(&self) -> bool {
        let election = self.path.contains("/namespaces/garden/leases/");
        self.method != "GET" && !election
    }
}

struct Shared {
    server: SocketAddr,
    clock: Clock,
    tls: Mutex<Arc<ServerConfig>>,
    trust: Trust,
    /// With the front proxy's certificate, and without one.
    upstream: [Arc<ClientConfig>; 2],
    faults: Faults,
    passed: Mutex<Vec<Passed>>,
}

/// A gate. It ends when dropped.
pub(crate) struct Gate {
    shared: Arc<Shared>,
    listener: TcpListener,
    pub(crate) proxy: Proxy,
    pub(crate) faults: Faults,
}

impl Gate {
    /// Opens a gate to the API server of a cluster.
    pub(crate) fn open(cluster: &Cluster) -> Result<Self> {
        let clock = Clock::system();
        let faults = Faults::default();
        let shared = Arc::new(Shared {
            server: cluster.address(),
            clock: clock.clone(),
            tls: Mutex::new(server_config(&cluster.server_identity(), &clock)),
            trust: Trust::new(&[cluster.authority.certificate()]),
            upstream: [
                client_config(&cluster.authority.certificate(), Some(&cluster.front_proxy_identity()))?,
                client_config(&cluster.authority.certificate(), None)?,
            ],
            faults: faults.clone(),
            passed: Mutex::default(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let proxy = Proxy::start(listener.local_addr()?)?;
        let (taking, taken) = (Arc::clone(&shared), listener.try_clone()?);
        drop(thread::spawn("gate-accept", STACK_BYTES, move || {
            while let Ok((tcp, _)) = taken.accept() {
                let shared = Arc::clone(&taking);
                // A connection that cannot be served ends, like one to a broken server.
                let _ = thread::spawn("gate", STACK_BYTES, move || serve(&shared, tcp));
            }
        })?);
        Ok(Self { shared, listener, proxy, faults })
    }

    /// The address for an agent.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.proxy.address())
    }

    /// Another route to it, on the same port of another loopback address.
    pub(crate) fn beside(&self, address: Ipv4Addr) -> Result<Proxy> {
        let port = self.proxy.address().port();
        Ok(Proxy::at((address, port).into(), self.listener.local_addr()?)?)
    }

    /// Shows another certificate from now on, and ends open connections.
    pub(crate) fn show(&self, identity: &Identity) {
        *lock(&self.shared.tls) = server_config(identity, &self.shared.clock);
        self.proxy.cut();
    }

    /// The requests that were passed on since a time.
    pub(crate) fn passed_since(&self, since: Mono) -> Vec<Passed> {
        lock(&self.shared.passed).iter().filter(|passed| passed.at > since).cloned().collect()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.proxy.cut();
        // Linux: wakes the thread that waits in accept.
        let _ = socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn client_config(authority: &str, identity: Option<&Identity>) -> Result<Arc<ClientConfig>> {
    let certificates = |pem: &str| {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<std::result::Result<Vec<_>, _>>()
    };
    let bad = |err: rustls::pki_types::pem::Error| Failure::new(format!("a certificate of the gate: {err}"));
    let mut roots = RootCertStore::empty();
    certificates(authority)
        .map_err(bad)?
        .into_iter()
        .try_for_each(|one| roots.add(one))
        .doing(|| "make the gate's TLS".to_owned())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .doing(|| "make the gate's TLS".to_owned())?
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(bad)?;
            builder
                .with_client_auth_cert(certificates(&identity.certificate).map_err(bad)?, key)
                .doing(|| "make the gate's TLS".to_owned())?
        }
    };
    Ok(Arc::new(config))
}

type Upstream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// One connection of an agent, with one to the server.
struct Connection<'a> {
    shared: &'a Shared,
    agent: BufReader<Stream>,
    /// Name and groups in the agent's certificate.
    user: Option<(String, Vec<String>)>,
    server: Option<Upstream>,
}

fn serve(shared: &Shared, tcp: TcpStream) {
    let config = Arc::clone(&lock(&shared.tls));
    let Ok(stream) = Stream::accept(config, tcp, Arc::new(Traffic::default())) else { return };
    let subject = shared.trust.subject(&stream.peer(), &shared.clock);
    let user = subject.map(|subject| (subject.common_name, subject.organizations));
    let mut connection = Connection { shared, agent: BufReader::new(stream), user, server: None };
    while let Ok(Some(request)) = Request::read(&mut connection.agent) {
        if !connection.exchange(&request).unwrap_or(false) {
            break;
        }
    }
    connection.agent.get_mut().close();
}

impl Connection<'_> {
    /// Serves one request; whether the connection can be used again.
    fn exchange(&mut self, request: &Request) -> io::Result<bool> {
        let info = Info::parse(&request.method, &request.path, |name| request.parameter(name));
        let seen = Seen {
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.raw_query.clone(),
            user: self.user.as_ref().map(|user| user.0.clone()).unwrap_or_default(),
            user_agent: request.header("user-agent").unwrap_or_default().to_owned(),
            info,
            body: None,
            sequence: 0,
        };
        let (actions, _) = self.shared.faults.decide(&seen);
        let date = http_date(self.shared.clock.now());
        for action in &actions {
            match action {
                Action::Refuse(failure) => {
                    let Reply::Whole(response) = Reply::from(failure.clone()) else { continue };
                    return self.answer(&response.bytes(&date, request));
                }
                Action::Html(status) => {
                    let page =
                        Response::text(*status, "text/html", "<html><body>No way through.</body></html>");
                    return self.answer(&page.bytes(&date, request));
                }
                Action::WatchError(failure) if seen.is_watch() => {
                    self.agent.get_mut().write_all(&stream_head(&date))?;
                    write_chunk(
                        self.agent.get_mut(),
                        format!("{}\n", event("ERROR", &failure.status())).as_bytes(),
                    )?;
                    write_chunk(self.agent.get_mut(), b"")?;
                    return Ok(true);
                }
                Action::Delay(time) => wait::pause(*time),
                Action::Drop => return Ok(false),
                _ => {}
            }
        }
        let half = actions.iter().any(|action| matches!(action, Action::Half));
        self.pass(request)?;
        self.relay(half)
    }

    fn answer(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.agent.get_mut().write_all(bytes)?;
        self.agent.get_mut().flush().map(|()| true)
    }

    /// Passes the request on, with the name of the user.
    fn pass(&mut self, request: &Request) -> io::Result<()> {
        let question = if request.raw_query.is_empty() { "" } else { "?" };
        let mut head =
            format!("{} {}{question}{} HTTP/1.1\r\n", request.method, request.path, request.raw_query);
        let own = ["content-length", "transfer-encoding", "x-remote-user", "x-remote-group"];
        for (name, value) in request.headers.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some((name, groups)) = &self.user {
            head += &format!("X-Remote-User: {name}\r\n");
            groups.iter().for_each(|group| head += &format!("X-Remote-Group: {group}\r\n"));
        }
        head += &format!("Content-Length: {}\r\n\r\n", request.body.len());
        let (method, path) = (request.method.clone(), request.path.clone());
        lock(&self.shared.passed).push(Passed { at: wait::now(), method, path });
        let server = match self.server.take() {
            Some(server) => server,
            None => connect(self.shared, self.user.is_some())?,
        };
        let server = self.server.insert(server).get_mut();
        server.write_all(head.as_bytes())?;
        server.write_all(&request.body)?;
        server.flush()
    }

    /// Passes the answer back, or half of its body.
    fn relay(&mut self, half: bool) -> io::Result<bool> {
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?;
            self.agent.get_mut().write_all(&line)?;
            let text = String::from_utf8_lossy(&line).to_ascii_lowercase();
            if text.trim().is_empty() {
                break;
            }
            if let Some(value) = text.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            chunked |= text.starts_with("transfer-encoding:") && text.contains("chunked");
        }
        if !chunked {
            self.copy(if half { length / 2 } else { length })?;
            self.agent.get_mut().flush()?;
            return Ok(!half);
        }
        loop {
            let line = self.line()?;
            let size = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            self.agent.get_mut().write_all(&line)?;
            if half {
                self.copy(size / 2)?;
                self.agent.get_mut().flush()?;
                return Ok(false);
            }
            self.copy(size + 2)?;
            self.agent.get_mut().flush()?;
            if size == 0 {
                return Ok(true);
            }
        }
    }

    /// The next line of the server, with its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.patiently(|server| match server.read_until(b'\n', &mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        })?;
        Ok(line)
    }

    fn copy(&mut self, mut length: usize) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        while length > 0 {
            let mut read = 0;
            let most = length.min(buffer.len());
            self.patiently(|server| {
                read = server.read(&mut buffer[..most])?;
                if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
            })?;
            self.agent.get_mut().write_all(&buffer[..read])?;
            length -= read;
        }
        Ok(())
    }

    /// Reads from the server for as long as the agent is connected.
    fn patiently(&mut self, mut read: impl FnMut(&mut Upstream) -> io::Result<()>) -> io::Result<()> {
        loop {
            let server = self.server.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            match read(server) {
                Err(err) if matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                other => return other,
            }
            if self.agent.get_mut().is_closed() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
    }
}

fn connect(shared: &Shared, speaks_for_others: bool) -> io::Result<Upstream> {
    let tcp = TcpStream::connect_timeout(&shared.server, Duration::from_secs(5))?;
    tcp.set_nodelay(true)?;
    let config = Arc::clone(&shared.upstream[usize::from(!speaks_for_others)]);
    let name = ServerName::from(shared.server.ip());
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut handshake = tcp.try_clone()?;
    handshake.set_read_timeout(Some(Duration::from_secs(10)))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut handshake)?;
    }
    tcp.set_read_timeout(Some(LOOK))?;
    Ok(BufReader::new(StreamOwned::new(tls, tcp)))
}
