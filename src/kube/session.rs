//! A connection in use: its URL, its pool, and the current credentials.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Duration;

use super::client::Options;
use super::connection::{AuthorizationSource, Connection, ServerTrust, read_small};
use super::error::Error;
use super::kubeconfig::exec::{ExecCache, ExecPlugin};
use super::kubeconfig::{self};
use super::request::ApiRequest;
use super::watch::WatchConnection;
use crate::base::clock::{Clock, Mono};
use crate::base::garden_time::GardenTime;
use crate::base::lock::IgnorePoison;
use crate::base::redact::{self, Secret};
use crate::net::{
    self, CertificatePair, ConnectionSettings, Http, ProxyPolicy, RequestLimits, SystemCas, TlsError,
    TlsParty, Traffic, TrustedRoots, Url, login,
};

/// Idle connections that a client keeps.
const IDLE_CONNECTIONS_MAX: usize = 2;
/// A token file is read again after this time.
const TOKEN_FILE_AGE_MAX: Duration = Duration::from_secs(60);

/// A connection in use.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Arc<Connection>,
    base_url: String,
    /// Replaced after the client certificate of a plugin has changed, and after a hang-up.
    http: RwLock<Http>,
    login: Login,
    lines: Mutex<WatchConnections>,
}

/// The watches of a session.
#[derive(Debug, Default)]
struct WatchConnections {
    running: Vec<Weak<WatchConnection>>,
    /// The session was replaced and tracks no more watches.
    ended: bool,
}

impl Session {
    pub(super) fn new(connection: Connection, options: &Options, traffic: &Traffic) -> Result<Self, Error> {
        let connection = Arc::new(connection);
        let server = server_url(&connection)?;
        let proxy = match &connection.proxy_url {
            Some(url) => ProxyPolicy::fixed(url.expose()),
            None => ProxyPolicy::from_env(&options.proxy_env),
        };
        let login = Login::new(&connection, &options.clock);
        let party = KubeParty {
            connection: Arc::clone(&connection),
            exec: login.exec(),
            system_cas: options.system_cas.clone(),
        };
        let settings = ConnectionSettings {
            dialer: Arc::clone(&options.dialer),
            party: Arc::new(party),
            server_name: connection.tls_server_name.clone(),
            proxy: proxy.map_err(|problem| Error::Request(format!("proxy: {problem}")))?,
            system_cas: options.system_cas.clone(),
            clock: options.time.as_ref().map_or_else(|| options.clock.clone(), GardenTime::garden_clock),
            second_clock: options.time.as_ref().map(GardenTime::machine_clock),
            user_agent: options.user_agent.clone(),
            idle_connections_max: IDLE_CONNECTIONS_MAX,
            traffic: traffic.clone(),
        };
        let http = RwLock::new(Http::new(settings));
        Ok(Self { connection, base_url: server.base(), http, login, lines: Mutex::default() })
    }

    /// The request in errors and logs: no query, no secret.
    pub(super) fn name(&self, request: &ApiRequest) -> String {
        format!("{} {}{}", request.method.as_str(), self.base_url, request.bare_path())
    }

    /// Whether the server's certificate is verified.
    pub(super) fn is_verified(&self) -> bool {
        self.connection.trust != ServerTrust::Insecure && self.base_url.starts_with("https:")
    }

    /// The pool of the calls.
    pub(super) fn http(&self) -> Http {
        self.http.read().ignore_poison().clone()
    }

    /// Sends a request over the connection of a watch, or over the pool, with the current credentials. After a 401, it
    /// is retried once if the credentials can be renewed.
    pub(super) fn send(
        &self,
        line: Option<&WatchConnection>,
        request: &ApiRequest,
        limits: &RequestLimits,
    ) -> Result<net::HttpResponse, Error> {
        let header = self.authorization()?;
        // Not earlier: new credentials may have replaced the pool.
        let http = || line.map_or_else(|| self.http(), |line| line.http().clone());
        let response = self.attempt(&http(), request, limits, header.as_ref())?;
        if response.status != 401 || !self.login.forget() {
            return Ok(response);
        }
        let renewed = self.authorization()?;
        if renewed == header {
            return Ok(response);
        }
        drop(response);
        self.attempt(&http(), request, limits, renewed.as_ref())
    }

    fn attempt(
        &self,
        http: &Http,
        request: &ApiRequest,
        limits: &RequestLimits,
        authorization: Option<&Secret<String>>,
    ) -> Result<net::HttpResponse, Error> {
        let mut headers = vec![("Accept", request.accept)];
        if !request.content_type.is_empty() {
            headers.push(("Content-Type", &request.content_type));
        }
        if let Some(value) = authorization {
            headers.push(("Authorization", value.expose()));
        }
        let url = format!("{}{}", self.base_url, request.path);
        let wire = net::HttpRequest {
            gzip: request.gzip,
            method: request.method.as_str(),
            url: &url,
            headers: &headers,
            body: request.body.as_deref(),
        };
        http.send(&wire, limits).map_err(|source| Error::Transport { request: self.name(request), source })
    }

    fn authorization(&self) -> Result<Option<Secret<String>>, Error> {
        let (header, certificate_changed) = self.login.header().map_err(Error::Credentials)?;
        if certificate_changed {
            let mut http = self.http.write().ignore_poison();
            *http = http.sibling();
        }
        Ok(header)
    }

    /// Closes the idle connections of the pool.
    pub(super) fn hang_up(&self) {
        let mut http = self.http.write().ignore_poison();
        if !http.is_closed() {
            *http = http.sibling();
        }
    }

    /// Registers a watch so that it ends with the session; ends it at once if the session has ended already.
    pub(super) fn track(&self, line: &Arc<WatchConnection>) {
        let mut lines = self.lines.lock().ignore_poison();
        if lines.ended {
            drop(lines);
            return line.end();
        }
        lines.running.retain(|line| line.strong_count() > 0);
        lines.running.push(Arc::downgrade(line));
    }

    /// Ends the watches as if the server had ended them.
    pub(super) fn end_watches(&self) {
        self.take_lines().iter().for_each(|line| line.end());
    }

    pub(super) fn shutdown(&self) {
        self.take_lines().iter().for_each(|line| line.close());
        self.http().shutdown();
    }

    fn take_lines(&self) -> Vec<Arc<WatchConnection>> {
        let mut lines = self.lines.lock().ignore_poison();
        lines.ended = true;
        std::mem::take(&mut lines.running).iter().filter_map(Weak::upgrade).collect()
    }
}

/// A server without scheme is HTTPS if anything about TLS is configured, as in client-go.
fn server_url(connection: &Connection) -> Result<Url, Error> {
    let server = connection.server.trim();
    let parsed = if server.contains("://") {
        Url::parse(server)
    } else {
        let tls = connection.trust != ServerTrust::System || connection.identity.certificate.is_some();
        Url::parse(&format!("{}://{server}", if tls { "https" } else { "http" }))
    };
    let url =
        parsed.map_err(|problem| Error::Request(format!("server {:?}: {problem}", redact::url(server))))?;
    if url.login.is_some() || url.scheme.starts_with("socks") {
        return Err(Error::Request("the server's URL must be http or https, without user".to_owned()));
    }
    Ok(url)
}

/// Provides trust and identity of a [`Connection`] for TLS handshakes.
#[derive(Debug)]
struct KubeParty {
    connection: Arc<Connection>,
    exec: Option<Arc<ExecCache>>,
    system_cas: SystemCas,
}

impl TlsParty for KubeParty {
    fn roots(&self) -> Result<TrustedRoots, TlsError> {
        match &self.connection.trust {
            ServerTrust::System => Ok(TrustedRoots::System(self.system_cas.clone())),
            ServerTrust::Insecure => Ok(TrustedRoots::Insecure),
            ServerTrust::Bundle(material) => {
                let pem =
                    material.load().map_err(|error| TlsError::Material(format!("CA bundle: {error}")))?;
                Ok(TrustedRoots::Pem(pem))
            }
        }
    }

    fn certificate(&self) -> Result<Option<CertificatePair>, TlsError> {
        if let Some(pair) = self.exec.as_ref().and_then(|exec| exec.certificate()) {
            return Ok(Some(pair));
        }
        let Some(certificate) = &self.connection.identity.certificate else { return Ok(None) };
        let load = |what: &str, material: &super::InlineOrFile| {
            material.load().map_err(|error| TlsError::Material(format!("{what}: {error}")))
        };
        Ok(Some(CertificatePair {
            chain_pem: load("client certificate", &certificate.chain)?,
            key_pem: load("client key", &certificate.key)?,
        }))
    }
}

/// The source of the `Authorization` header.
#[derive(Debug)]
enum Login {
    Fixed(Option<Secret<String>>),
    File { path: PathBuf, clock: Clock, cached: Mutex<Option<(Secret<String>, Mono)>> },
    Exec(Arc<ExecCache>),
}

impl Login {
    fn new(connection: &Connection, clock: &Clock) -> Self {
        match &connection.identity.credentials {
            AuthorizationSource::None => Self::Fixed(None),
            AuthorizationSource::Token(token) => Self::Fixed(Some(login::bearer(token.expose()))),
            AuthorizationSource::TokenFile(path) => {
                Self::File { path: path.clone(), clock: clock.clone(), cached: Mutex::new(None) }
            }
            AuthorizationSource::Basic { username, password } => {
                Self::Fixed(Some(login::basic(username, password)))
            }
            AuthorizationSource::Exec(plugin) => Self::Exec(Arc::new(exec_cache(plugin, connection, clock))),
        }
    }

    fn exec(&self) -> Option<Arc<ExecCache>> {
        match self {
            Self::Exec(cache) => Some(Arc::clone(cache)),
            _ => None,
        }
    }

    /// The header, and whether the client certificate has changed with it.
    fn header(&self) -> Result<(Option<Secret<String>>, bool), kubeconfig::Error> {
        match self {
            Self::Fixed(header) => Ok((header.clone(), false)),
            Self::File { path, clock, cached } => {
                let mut cached = cached.lock().ignore_poison();
                let now = clock.mono();
                if let Some((header, read_at)) = &*cached
                    && now.saturating_sub(*read_at) < TOKEN_FILE_AGE_MAX
                {
                    return Ok((Some(header.clone()), false));
                }
                let header = match (read_token(path), &*cached) {
                    (Ok(token), _) => login::bearer(&token),
                    // The file is being replaced: the token of a minute ago stays in use.
                    (Err(error), Some((header, _))) => {
                        log::warn!(err = error.to_string().as_str(); "Token file unreadable");
                        header.clone()
                    }
                    (Err(error), None) => return Err(error),
                };
                *cached = Some((header.clone(), now));
                Ok((Some(header), false))
            }
            Self::Exec(cache) => {
                let (token, certificate_changed) = cache.token()?;
                Ok((token.map(|token| login::bearer(token.expose())), certificate_changed))
            }
        }
    }

    /// Drops the cached credentials; false if there is no cache.
    fn forget(&self) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::File { cached, .. } => {
                *cached.lock().ignore_poison() = None;
                true
            }
            Self::Exec(cache) => {
                cache.forget();
                true
            }
        }
    }
}

fn exec_cache(plugin: &Arc<ExecPlugin>, connection: &Connection, clock: &Clock) -> ExecCache {
    ExecCache::new(Arc::clone(plugin), connection.clone(), clock.clone())
}

fn read_token(path: &Path) -> Result<String, kubeconfig::Error> {
    let bytes =
        read_small(path).map_err(|source| kubeconfig::Error::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    if text.is_empty() || text.contains(|c: char| c.is_control() || c == ' ') {
        return Err(kubeconfig::Error::Invalid(format!("{} holds no token", path.display())));
    }
    Ok(text)
}
