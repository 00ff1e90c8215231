//! An OCI registry over TLS in this process. A story may answer each request in its place, to simulate faults.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use serde_json::{Value, json};
use socket2::Socket;

use super::encoding::{base64, sha256_hex};
use super::http::message::{Request, Response};
use super::http::port;
use super::http::tls::{Stream, Traffic, server_config};
use super::pki::Authority;

const STACK_BYTES: usize = 1 << 20;
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// How long a silent registry holds a connection.
const STUCK: Duration = Duration::from_secs(3_600);
/// The name by which proxies know it; its certificate is good for it.
pub const NAME: &str = "registry.example.org";

/// The authentication that the registry demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    Open,
    /// User and password.
    Basic(&'static str, &'static str),
    /// A token of its own service, for anybody.
    Token,
    /// The same for a user with a password.
    TokenFor(&'static str, &'static str),
    /// The same for a refresh token.
    TokenForRefresh(&'static str),
    /// A token for anybody, by GET only: POST is answered with this status.
    TokenByGet(u16),
}

/// The answer of a story.
pub enum Answer {
    Reply(Response),
    /// The head and this many bytes of the body; then the connection ends.
    Cut(Response, usize),
    /// The body in pieces of this many bytes, with a pause before each.
    Slow(Response, usize, Duration),
    /// The head and this many bytes of the body; then nothing for [`STUCK`], or until the server ends.
    Stuck(Response, usize),
    /// Nothing for [`STUCK`], or until the server ends.
    Silence,
}

type Twist = Box<dyn Fn(&Request, &Response) -> Option<Answer> + Send + Sync>;

struct Shared {
    address: String,
    access: Mutex<Access>,
    twist: Mutex<Option<Twist>>,
    /// By path below `/v2/`: media type, content.
    content: Mutex<BTreeMap<String, (String, Vec<u8>)>>,
    seen: Mutex<Vec<Request>>,
    tokens: Mutex<u32>,
    open: Mutex<Vec<TcpStream>>,
    /// Connections whose client has shown a certificate.
    certified: AtomicUsize,
    ended: AtomicBool,
    stop: Stop,
}

/// See the module. Ends when dropped.
pub struct Registry {
    /// `127.0.0.1:<port>`.
    pub address: String,
    /// The CA of its certificate, PEM.
    pub ca: String,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
    /// Its port after the end.
    kept: Option<Socket>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The digest as references contain it.
pub fn digest(content: &[u8]) -> String {
    format!("sha256:{}", sha256_hex(content))
}

/// The manifest of a chart as helm makes it.
pub fn manifest(chart: &[u8]) -> Value {
    json!({"schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": digest(b"{}"), "size": 2},
        "layers": [{"mediaType": CHART, "digest": digest(chart), "size": chart.len()}]})
}

impl Registry {
    pub fn start(clock: &Clock) -> Self {
        Self::start_with(clock, true)
    }

    /// A registry without TLS.
    pub fn start_plain(clock: &Clock) -> Self {
        Self::start_with(clock, false)
    }

    fn start_with(clock: &Clock, is_secure: bool) -> Self {
        let now = clock.now();
        let authority = Authority::new("registry-ca", now);
        let day = Duration::from_secs(86_400);
        let identity = authority.server(&[NAME.to_owned()], now.minus(day), now.plus(365 * day));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            address: address.clone(),
            access: Mutex::new(Access::Open),
            twist: Mutex::default(),
            content: Mutex::default(),
            seen: Mutex::default(),
            tokens: Mutex::default(),
            open: Mutex::default(),
            certified: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            stop: Stop::new(),
        });
        let config = server_config(&identity, clock);
        let serving = Arc::clone(&shared);
        let accept = move || {
            let mut threads = Vec::new();
            for tcp in listener.incoming().map_while(Result::ok) {
                if serving.ended.load(Ordering::SeqCst) {
                    break;
                }
                lock(&serving.open).extend(tcp.try_clone());
                let (shared, config) = (Arc::clone(&serving), Arc::clone(&config));
                threads.extend(thread::spawn("registry-connection", STACK_BYTES, move || {
                    let _ =
                        Line::accept(is_secure.then_some(config), tcp).and_then(|line| shared.serve(line));
                }));
            }
            threads.into_iter().for_each(|thread| drop(thread.join()));
        };
        let accepting = Some(thread::spawn("registry", STACK_BYTES, accept).unwrap());
        Self { address, ca: authority.certificate(), shared, accepting, kept: None }
    }

    /// Stores a chart under a tag and under its digest. Returns the manifest's digest.
    pub fn push(&self, repository: &str, tag: &str, chart: &[u8]) -> String {
        let manifest = manifest(chart);
        self.put_blob(repository, chart);
        self.put_manifest(repository, tag, MANIFEST, manifest.to_string().as_bytes())
    }

    /// Stores a manifest of any kind. Returns its digest.
    pub fn put_manifest(&self, repository: &str, tag: &str, kind: &str, content: &[u8]) -> String {
        let mut all = lock(&self.shared.content);
        for name in [tag, &digest(content)] {
            all.insert(format!("{repository}/manifests/{name}"), (kind.to_owned(), content.to_owned()));
        }
        digest(content)
    }

    pub fn put_blob(&self, repository: &str, content: &[u8]) {
        let kind = "application/octet-stream".to_owned();
        let path = format!("{repository}/blobs/{}", digest(content));
        lock(&self.shared.content).insert(path, (kind, content.to_owned()));
    }

    pub fn protect(&self, access: Access) {
        *lock(&self.shared.access) = access;
    }

    /// Lets a story change answers. It gets the request and the intended answer.
    pub fn twist(&self, twist: impl Fn(&Request, &Response) -> Option<Answer> + Send + Sync + 'static) {
        *lock(&self.shared.twist) = Some(Box::new(twist));
    }

    pub fn behave(&self) {
        *lock(&self.shared.twist) = None;
    }

    /// Connections whose client has shown a certificate.
    pub fn certified(&self) -> usize {
        self.shared.certified.load(Ordering::SeqCst)
    }

    /// All requests since the last call.
    pub fn take_seen(&self) -> Vec<Request> {
        std::mem::take(&mut lock(&self.shared.seen))
    }

    /// Ends all connections and accepts no more.
    pub fn down(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.stop.stop();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(&self.address);
        for tcp in lock(&self.shared.open).drain(..) {
            let _ = tcp.shutdown(Shutdown::Both);
        }
        let _ = accepting.join();
        self.kept = self.address.parse().ok().and_then(|address| port::keep(address).ok());
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.down();
    }
}

/// A connection, with TLS or without.
enum Line {
    Secure(Box<Stream>),
    Plain(TcpStream),
}

impl Line {
    fn accept(config: Option<Arc<rustls::ServerConfig>>, tcp: TcpStream) -> io::Result<Self> {
        let Some(config) = config else { return Ok(Self::Plain(tcp)) };
        Ok(Self::Secure(Box::new(Stream::accept(config, tcp, Arc::<Traffic>::default())?)))
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Secure(stream) => stream.tcp(),
            Self::Plain(tcp) => tcp,
        }
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Secure(stream) => stream.read(buffer),
            Self::Plain(tcp) => tcp.read(buffer),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Secure(stream) => stream.write(bytes),
            Self::Plain(tcp) => tcp.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Secure(stream) => stream.flush(),
            Self::Plain(tcp) => tcp.flush(),
        }
    }
}

impl Shared {
    fn serve(&self, stream: Line) -> io::Result<()> {
        if matches!(&stream, Line::Secure(secure) if !secure.peer().is_empty()) {
            self.certified.fetch_add(1, Ordering::SeqCst);
        }
        let mut stream = BufReader::new(stream);
        while let Some(request) = Request::read(&mut stream)? {
            lock(&self.seen).push(request.clone());
            let usual = self.answer(&request);
            let answer = lock(&self.twist).as_ref().and_then(|twist| twist(&request, &usual));
            let out = stream.get_mut();
            let date = "Mon, 05 Jan 2026 08:00:00 GMT";
            match answer.unwrap_or(Answer::Reply(usual)) {
                Answer::Reply(response) => out.write_all(&response.bytes(date, &request))?,
                Answer::Cut(response, bytes) => {
                    let all = response.bytes(date, &request);
                    out.write_all(&all[..all.len() - response.body.len() + bytes])?;
                    out.flush()?;
                    return out.tcp().shutdown(Shutdown::Both);
                }
                Answer::Slow(response, bytes, pause) => {
                    for piece in response.bytes(date, &request).chunks(bytes) {
                        if self.stop.wait(&Clock::system(), pause) {
                            break;
                        }
                        out.write_all(piece)?;
                        out.flush()?;
                    }
                }
                Answer::Stuck(response, bytes) => {
                    let all = response.bytes(date, &request);
                    out.write_all(&all[..all.len() - response.body.len() + bytes])?;
                    out.flush()?;
                    let _ = self.stop.wait(&Clock::system(), STUCK);
                    return out.tcp().shutdown(Shutdown::Both);
                }
                Answer::Silence => drop(self.stop.wait(&Clock::system(), STUCK)),
            }
            out.flush()?;
        }
        Ok(())
    }

    fn answer(&self, request: &Request) -> Response {
        if request.path == "/token" {
            return self.token(request);
        }
        let Some(path) = request.path.strip_prefix("/v2/") else { return refusal(404, "UNSUPPORTED") };
        if let Some(challenge) = self.challenge(request, path) {
            return refusal(401, "UNAUTHORIZED").header("WWW-Authenticate", challenge);
        }
        let found = lock(&self.content).get(path).cloned();
        let Some((kind, content)) = found else {
            let code = if path.contains("/manifests/") { "MANIFEST_UNKNOWN" } else { "BLOB_UNKNOWN" };
            return refusal(404, code);
        };
        let whole = digest(&content);
        let reply = |status, body: &[u8]| Response { status, headers: Vec::new(), body: body.to_vec() };
        let response = match range(request) {
            Some(from) if from >= content.len() => reply(416, b""),
            Some(from) => {
                let (last, all) = (content.len() - 1, content.len());
                reply(206, &content[from..]).header("Content-Range", format!("bytes {from}-{last}/{all}"))
            }
            None => reply(200, &content),
        };
        response.header("Content-Type", kind).header("Docker-Content-Digest", whole)
    }

    /// The credentials that the request lacks.
    fn challenge(&self, request: &Request, path: &str) -> Option<String> {
        let shown = request.header("authorization").unwrap_or_default().to_owned();
        let access = lock(&self.access).clone();
        match access {
            Access::Open => None,
            Access::Basic(user, password) => {
                (shown != basic(user, password)).then(|| "Basic realm=\"registry\"".to_owned())
            }
            _ => {
                let tokens = *lock(&self.tokens);
                let repository = path.split("/manifests/").next()?.split("/blobs/").next()?;
                let realm = format!("https://{}/token", request.header("host").unwrap_or(&self.address));
                (tokens == 0 || shown != format!("Bearer token-{tokens}")).then(|| {
                    format!(
                        "Bearer realm=\"{realm}\",service=\"registry\",scope=\"repository:{repository}:pull\""
                    )
                })
            }
        }
    }

    fn token(&self, request: &Request) -> Response {
        let shown = request.header("authorization").unwrap_or_default();
        let form = String::from_utf8_lossy(&request.body).into_owned();
        let access = lock(&self.access).clone();
        if let (Access::TokenByGet(status), "POST") = (&access, request.method.as_str()) {
            return refusal(*status, "UNSUPPORTED");
        }
        let is_right = match access {
            Access::TokenFor(user, password) => shown == basic(user, password),
            Access::TokenForRefresh(refresh) => form.contains(&format!("refresh_token={refresh}")),
            _ => shown.is_empty(),
        };
        let asked = request.parameter("scope").unwrap_or(form);
        if !is_right || !asked.contains("pull") {
            return refusal(401, "UNAUTHORIZED");
        }
        let mut tokens = lock(&self.tokens);
        *tokens += 1;
        Response::json(200, &json!({"token": format!("token-{tokens}"), "expires_in": 60}))
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", base64(format!("{user}:{password}").as_bytes()))
}

fn range(request: &Request) -> Option<usize> {
    request.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

/// A registry's error.
pub fn refusal(status: u16, code: &str) -> Response {
    Response::json(status, &json!({"errors": [{"code": code, "message": "Bearer secret-of-the-server"}]}))
}
