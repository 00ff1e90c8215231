//! The server: it listens, accepts connections, and can be stopped and started again.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::base::thread;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use socket2::Socket;

use super::connection;
use super::faults::Faults;
use super::message::{Request, Response};
use super::port;
use super::record::Record;
use super::tls::{Traffic, Trust, server_config};
use crate::api::authn::{Accounts, Tokens};
use crate::api::failure::Failure;
use crate::api::rbac;
use crate::api::request::Info;
use crate::api::review::Judge;
use crate::api::store::State;
use crate::api::{Api, Connect, Target, User};
use crate::pki::Identity;

const STACK_BYTES: usize = 512 << 10;

/// Allowed, or the reason why not, which is often empty.
pub type Decision = Result<(), String>;

/// Authorizes requests.
pub trait Authorizer: Send + Sync {
    fn decide(&self, state: &State, user: &User, info: &Info) -> Decision;
}

/// Answers paths that are not part of the API: a webhook.
pub type Webhook = Box<dyn Fn(&Request, &User) -> Option<Response> + Send + Sync>;

/// A second handle of each socket, to cut it, and the thread that serves it.
type Connections = BTreeMap<u64, (Option<TcpStream>, Option<JoinHandle<()>>)>;

/// What can be exchanged while the server runs.
struct Settings {
    tls: Arc<ServerConfig>,
    /// CAs of client certificates.
    trust: Trust,
    /// CAs and common names of proxies that may speak for others.
    front_proxy: Option<(Trust, Vec<String>)>,
    tokens: Tokens,
    version: String,
    healthy: bool,
    /// Whether anonymous requests get an answer.
    anonymous: bool,
    /// Other things to read, by path.
    documents: BTreeMap<String, Value>,
}

/// What the client certificate of a connection says.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// There is one.
    pub is_presented: bool,
    /// Its user, if it is trusted.
    pub user: Option<User>,
    /// It belongs to a front proxy, which may speak for others.
    pub is_front_proxy: bool,
}

/// What connections share.
pub struct Shared {
    pub api: Api,
    pub record: Record,
    pub faults: Faults,
    pub traffic: Arc<Traffic>,
    /// Whether `/api` is served: not by an aggregated server.
    pub serves_core: bool,
    authorizer: Box<dyn Authorizer>,
    webhook: Option<Webhook>,
    connect: Option<Connect>,
    settings: Mutex<Settings>,
    connections: Mutex<Connections>,
    next_connection: AtomicU64,
    stopping: AtomicBool,
    address: SocketAddr,
}

impl Shared {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tls(&self) -> Arc<ServerConfig> {
        self.settings().tls.clone()
    }

    pub fn document(&self, path: &str) -> Option<Value> {
        self.settings().documents.get(path).cloned()
    }

    pub fn version(&self) -> String {
        self.settings().version.clone()
    }

    pub fn takes_anonymous(&self) -> bool {
        self.settings().anonymous
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn user_of(&self, token: &str) -> Option<User> {
        let settings = self.settings();
        settings.tokens.user(&self.api.store.read(), token, self.api.clock.now())
    }

    /// The keys and tokens, under the lock.
    pub fn tokens(&self) -> impl std::ops::Deref<Target = Tokens> + '_ {
        struct Guard<'a>(MutexGuard<'a, Settings>);
        impl std::ops::Deref for Guard<'_> {
            type Target = Tokens;
            fn deref(&self) -> &Tokens {
                &self.0.tokens
            }
        }
        Guard(self.settings())
    }

    /// What a client certificate says.
    pub fn peer(&self, chain: &[CertificateDer<'static>]) -> Peer {
        if chain.is_empty() {
            return Peer::default();
        }
        let settings = self.settings();
        let clock = &self.api.clock;
        let is_front_proxy = settings.front_proxy.as_ref().is_some_and(|(trust, names)| {
            let subject = trust.subject(chain, clock);
            subject.is_some_and(|s| names.is_empty() || names.contains(&s.common_name))
        });
        let subject = settings.trust.subject(chain, clock);
        let user = subject.map(|s| User { name: s.common_name, uid: String::new(), groups: s.organizations });
        Peer { is_presented: true, user, is_front_proxy }
    }

    pub fn health(&self) -> Response {
        if self.settings().healthy {
            return Response::text(200, "text/plain; charset=utf-8", "ok");
        }
        let body = "[+]ping ok\n[-]etcd failed: reason withheld\nhealthz check failed\n";
        Response::text(500, "text/plain; charset=utf-8", body)
    }

    pub fn webhook(&self, request: &Request, user: &User) -> Option<Response> {
        self.webhook.as_ref()?(request, user)
    }

    /// Answers a subresource that is not part of its object.
    pub fn connect(&self, target: &Target, body: Value, user: &User) -> Result<Value, Failure> {
        let connect = self.connect.as_ref().ok_or_else(Failure::no_resource)?;
        connect(&self.api, target, body, user)
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Gives up the second handle of a socket, so that closing the first one ends the connection.
    pub fn forget(&self, connection: u64) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((tcp, _)) = connections.get_mut(&connection) {
            *tcp = None;
        }
    }

    /// Waits for a time of the server's clock, or until the server stops.
    pub fn pause(&self, time: Duration) {
        let clock = &self.api.clock;
        let deadline = clock.mono() + time;
        while clock.mono() < deadline && !self.is_stopping() {
            let left = deadline.saturating_sub(clock.mono());
            self.api.store.wait_after(u64::MAX, clock.real(left).min(Duration::from_millis(20)));
        }
    }
}

impl Judge for Shared {
    fn decide(&self, user: &User, info: &Info) -> Decision {
        self.authorizer.decide(&self.api.store.read(), user, info)
    }

    fn user_of(&self, token: &str) -> Option<User> {
        Shared::user_of(self, token)
    }

    fn rules_of(&self, user: &User, namespace: &str) -> Vec<Value> {
        rbac::rules(&self.api.store.read(), user, namespace)
    }
}

impl Shared {
    pub fn decide(&self, user: &User, info: &Info) -> Decision {
        Judge::decide(self, user, info)
    }
}

/// What a server is made of.
pub struct Parts {
    pub api: Api,
    pub authorizer: Box<dyn Authorizer>,
    pub identity: Identity,
    pub client_authorities: Vec<String>,
    pub front_proxy: Option<(String, Vec<String>)>,
    pub version: String,
    pub serves_core: bool,
    pub webhook: Option<Webhook>,
    pub connect: Option<Connect>,
    /// 0: any free port.
    pub port: u16,
}

/// A running server.
pub struct Server {
    pub shared: Arc<Shared>,
    accepting: Mutex<Option<(TcpListener, JoinHandle<()>)>>,
    /// Its port while it does not listen.
    kept: Mutex<Option<Socket>>,
}

impl Server {
    /// Starts to listen on loopback.
    pub fn start(parts: Parts) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, parts.port))?;
        let settings = Settings {
            tls: server_config(&parts.identity, &parts.api.clock),
            trust: Trust::new(&parts.client_authorities),
            front_proxy: parts.front_proxy.map(|(ca, names)| (Trust::new(&[ca]), names)),
            tokens: Tokens::default(),
            version: parts.version,
            healthy: true,
            anonymous: true,
            documents: BTreeMap::new(),
        };
        let shared = Shared {
            api: parts.api,
            record: Record::default(),
            faults: Faults::default(),
            traffic: Arc::default(),
            serves_core: parts.serves_core,
            authorizer: parts.authorizer,
            webhook: parts.webhook,
            connect: parts.connect,
            settings: Mutex::new(settings),
            connections: Mutex::default(),
            next_connection: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            address: listener.local_addr()?,
        };
        let server = Self { shared: Arc::new(shared), accepting: Mutex::new(None), kept: Mutex::new(None) };
        server.accept(listener)?;
        Ok(server)
    }

    fn accept(&self, listener: TcpListener) -> io::Result<()> {
        let (shared, taken) = (self.shared.clone(), listener.try_clone()?);
        let thread = thread::spawn("api-accept", STACK_BYTES, move || {
            while let Ok((tcp, _)) = taken.accept() {
                if shared.is_stopping() {
                    break;
                }
                take(&shared, tcp);
            }
        })?;
        *self.accepting.lock().unwrap_or_else(PoisonError::into_inner) = Some((listener, thread));
        Ok(())
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("https://{}", self.shared.address)
    }

    /// Stops listening and cuts all connections. Objects stay.
    pub fn down(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        if let Some((listener, thread)) = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            // Linux: wakes the thread that waits in accept.
            let _ = socket2::SockRef::from(&listener).shutdown(Shutdown::Both);
            let _ = thread.join();
            *self.kept() = port::keep(self.shared.address).ok();
            drop(listener);
        }
        self.cut();
        let all = std::mem::take(&mut *self.connections());
        for (_, thread) in all.into_values() {
            if let Some(thread) = thread {
                let _ = thread.join();
            }
        }
    }

    /// Listens again, on the same port.
    pub fn up(&self) -> io::Result<()> {
        self.shared.stopping.store(false, Ordering::SeqCst);
        let Some(kept) = self.kept().take() else {
            return self.accept(TcpListener::bind(self.shared.address)?);
        };
        kept.listen(128)?;
        self.accept(kept.into())
    }

    fn kept(&self) -> MutexGuard<'_, Option<Socket>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts all connections but keeps listening.
    pub fn cut(&self) {
        for tcp in self.connections().values().filter_map(|(tcp, _)| tcp.as_ref()) {
            let _ = tcp.shutdown(Shutdown::Both);
        }
        self.shared.api.store.wake();
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> usize {
        self.connections().values().filter(|(_, t)| t.as_ref().is_some_and(|t| !t.is_finished())).count()
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows another certificate from the next handshake on.
    pub fn set_identity(&self, identity: &Identity) {
        let config = server_config(identity, &self.shared.api.clock);
        self.shared.settings().tls = config;
    }

    /// Trusts client certificates of these CAs.
    pub fn set_client_authorities(&self, authorities: &[String]) {
        self.shared.settings().trust = Trust::new(authorities);
    }

    /// Sets the documents at other paths.
    pub fn set_documents(&self, documents: BTreeMap<String, Value>) {
        self.shared.settings().documents = documents;
    }

    /// Sets the answer of `/version`.
    pub fn set_version(&self, version: &str) {
        version.clone_into(&mut self.shared.settings().version);
    }

    /// Sets the answer of `/healthz`, `/livez` and `/readyz`.
    pub fn set_healthy(&self, healthy: bool) {
        self.shared.settings().healthy = healthy;
    }

    /// Sets whether anonymous requests get an answer, if they are authorized.
    pub fn set_anonymous(&self, anonymous: bool) {
        self.shared.settings().anonymous = anonymous;
    }

    /// Trusts proxies with a certificate of this CA to authenticate users.
    pub fn set_front_proxy(&self, ca: &str) {
        self.shared.settings().front_proxy = Some((Trust::new(&[ca.to_owned()]), Vec::new()));
    }

    /// Accepts the tokens of a file, and issues others with these keys.
    pub fn set_tokens(&self, fixed: Vec<(String, User)>, accounts: Accounts) {
        let mut settings = self.shared.settings();
        settings.tokens.set_fixed(fixed);
        settings.tokens.set_accounts(accounts);
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Makes a bearer token valid.
    pub fn add_token(&self, token: &str, user: User) {
        self.shared.settings().tokens.add(token, user);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.down();
    }
}

fn take(shared: &Arc<Shared>, tcp: TcpStream) {
    let number = shared.next_connection.fetch_add(1, Ordering::SeqCst);
    shared.traffic.connections.fetch_add(1, Ordering::Relaxed);
    let Ok(kept) = tcp.try_clone() else { return };
    let _ = tcp.set_nodelay(true);
    let mut connections = shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
    connections.retain(|_, (_, thread)| thread.as_ref().is_some_and(|t| !t.is_finished()));
    let serving = shared.clone();
    let thread = thread::spawn("api-connection", STACK_BYTES, move || {
        connection::serve(&serving, tcp, number);
        serving.forget(number);
    });
    connections.insert(number, (Some(kept), thread.ok()));
}
