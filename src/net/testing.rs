//! A small HTTP/1.1 server for tests of the client, over TCP or TLS, with scripted responses.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::base::thread;

/// Certificate and key, both PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) chain: String,
    pub(crate) key: String,
}

/// A CA that issues certificates for a test.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = common_name(name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for servers and clients; `years` is its validity.
    pub(crate) fn issue(&self, name: &str, sans: &[&str], years: Range<i32>) -> Pair {
        let sans: Vec<String> = sans.iter().map(|san| (*san).to_owned()).collect();
        let mut params = CertificateParams::new(sans).unwrap();
        params.distinguished_name = common_name(name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        let key = KeyPair::generate().unwrap();
        Pair { chain: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }

    /// A certificate for a server on this machine.
    pub(crate) fn server(&self) -> Pair {
        self.issue("server", &["localhost", "127.0.0.1"], 2020..2120)
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut out = DistinguishedName::new();
    out.push(DnType::CommonName, name);
    out
}

/// A request as the server saw it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenRequest {
    /// Connections are numbered from 1.
    pub(crate) connection: usize,
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The client's leaf certificate, DER.
    pub(crate) certificate: Option<Vec<u8>>,
}

impl SeenRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// The next action of the server.
pub(crate) enum Act {
    /// A whole response; the connection stays open.
    Reply(u16, &'static str, String),
    /// The same with additional headers, each with its line end.
    ReplyWith(u16, String, String),
    /// These bytes, unchanged.
    Raw(Vec<u8>),
    /// Sends nothing until the test is over.
    Silence,
    /// Ends the connection.
    Hangup,
    /// Forwards bytes to another address until either side ends.
    Forward(SocketAddr),
    /// Writes the data of the channel, then continues.
    Feed(Receiver<Vec<u8>>),
}

impl Act {
    pub(crate) fn json(status: u16, body: &str) -> Vec<Self> {
        vec![Self::Reply(status, "application/json", body.to_owned())]
    }
}

type Handler = dyn Fn(&SeenRequest) -> Vec<Act> + Send + Sync;

/// A running server; ends when dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    tls: bool,
    stop: Stop,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    connections: Arc<AtomicUsize>,
    closed: Arc<AtomicBool>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

/// TLS of a server: its certificate and, if it requires client certificates, their CA.
pub(crate) struct ServerTls {
    pub(crate) pair: Pair,
    pub(crate) client_ca: Option<String>,
}

impl ServerTls {
    fn config(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
            }
        };
        let chain = vec![CertificateDer::from_pem_slice(self.pair.chain.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.pair.key.as_bytes()).unwrap();
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }
}

impl TestServer {
    pub(crate) fn plain(handler: impl Fn(&SeenRequest) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::start(None, Arc::new(handler))
    }

    pub(crate) fn tls(
        tls: &ServerTls,
        handler: impl Fn(&SeenRequest) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        Self::start(Some(tls.config()), Arc::new(handler))
    }

    fn start(tls: Option<Arc<ServerConfig>>, handler: Arc<Handler>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            tls: tls.is_some(),
            stop: Stop::new(),
            seen: Arc::default(),
            connections: Arc::default(),
            closed: Arc::default(),
            sockets: Arc::default(),
        };
        let (seen, connections, sockets) =
            (Arc::clone(&server.seen), Arc::clone(&server.connections), Arc::clone(&server.sockets));
        let (stop, closed) = (server.stop.clone(), Arc::clone(&server.closed));
        drop(
            thread::spawn("test-server", 256 << 10, move || {
                for socket in listener.incoming().map_while(Result::ok) {
                    if closed.load(Ordering::SeqCst) {
                        break;
                    }
                    let connection = connections.fetch_add(1, Ordering::SeqCst) + 1;
                    sockets.lock().unwrap().push(socket.try_clone().unwrap());
                    let one = One {
                        tls: tls.clone(),
                        handler: Arc::clone(&handler),
                        seen: Arc::clone(&seen),
                        stop: stop.clone(),
                        connection,
                    };
                    // Many tests close the client in the middle of a request.
                    drop(
                        thread::spawn("test-connection", 512 << 10, move || drop(one.serve(socket))).unwrap(),
                    );
                }
            })
            .unwrap(),
        );
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.address)
    }

    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Ends all connections, as a restarting server does.
    pub(crate) fn cut(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.stop();
        self.closed.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes up the listener.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

struct One {
    tls: Option<Arc<ServerConfig>>,
    handler: Arc<Handler>,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    stop: Stop,
    connection: usize,
}

enum ServerStream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl ServerStream {
    fn certificate(&self) -> Option<Vec<u8>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.conn.peer_certificates()?.first().map(|leaf| leaf.to_vec()),
        }
    }
}

impl Read for ServerStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for ServerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl One {
    fn serve(&self, socket: TcpStream) -> io::Result<()> {
        let raw = socket.try_clone()?;
        let line = match &self.tls {
            None => ServerStream::Plain(socket),
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config)).unwrap();
                ServerStream::Tls(Box::new(StreamOwned::new(connection, socket)))
            }
        };
        let mut line = BufReader::new(line);
        while let Some(seen) = self.read_request(&mut line)? {
            let acts = (self.handler)(&seen);
            self.seen.lock().unwrap().push(seen);
            for act in acts {
                match act {
                    Act::Hangup => return raw.shutdown(std::net::Shutdown::Both),
                    Act::Silence => drop(self.stop.wait(&Clock::system(), Duration::from_secs(60))),
                    Act::Forward(to) => return forward(&raw, &TcpStream::connect(to)?),
                    Act::Raw(bytes) => write(line.get_mut(), &bytes)?,
                    Act::Feed(chunks) => chunks.iter().try_for_each(|bytes| write(line.get_mut(), &bytes))?,
                    Act::Reply(status, kind, body) => {
                        write(
                            line.get_mut(),
                            &response(status, &format!("Content-Type: {kind}\r\n"), &body),
                        )?;
                    }
                    Act::ReplyWith(status, headers, body) => {
                        write(line.get_mut(), &response(status, &headers, &body))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn read_request(&self, line: &mut BufReader<ServerStream>) -> io::Result<Option<SeenRequest>> {
        let mut text = String::new();
        if line.read_line(&mut text)? == 0 {
            return Ok(None);
        }
        let mut parts = text.split_whitespace().map(str::to_owned);
        let (method, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let mut seen = SeenRequest { connection: self.connection, method, path, ..SeenRequest::default() };
        loop {
            let mut text = String::new();
            line.read_line(&mut text)?;
            let Some((name, value)) = text.trim().split_once(": ") else { break };
            seen.headers.push((name.to_lowercase(), value.to_owned()));
        }
        let length = seen.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        line.read_exact(&mut body)?;
        seen.body = String::from_utf8(body).unwrap();
        seen.certificate = line.get_ref().certificate();
        Ok(Some(seen))
    }
}

pub(crate) fn response(status: u16, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The head of a response with a chunked body.
pub(crate) fn chunked_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()
}

/// One chunk; an empty one is the end.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A channel that feeds a response while the client reads it.
pub(crate) fn feed() -> (Sender<Vec<u8>>, Act) {
    let (sender, receiver) = channel();
    (sender, Act::Feed(receiver))
}

fn write(line: &mut ServerStream, bytes: &[u8]) -> io::Result<()> {
    line.write_all(bytes)?;
    line.flush()
}

fn forward(a: &TcpStream, b: &TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (b.try_clone()?, a.try_clone()?);
    let back = thread::spawn("test-forward", 64 << 10, move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    })?;
    let _ = io::copy(&mut &*a, &mut &*b);
    let _ = b.shutdown(std::net::Shutdown::Both);
    back.join().unwrap();
    Ok(())
}
