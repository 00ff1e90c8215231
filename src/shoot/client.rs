//! Clients of the cluster of a Shoot. They need three objects from its namespace in the seed: the bundle of its CA, its
//! client CA, and the Secret `gardener-internal`.
//!
//! There are two routes to the server: the cluster address of Service `kube-apiserver`, and for an agent outside the
//! seed's cluster the exposed address of the Shoot. The last working route is tried first. All clients of a server
//! share one gate, so that a server that does not answer does not delay others.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use crate::api::core::{SECRET, SERVICE, Secret};
use crate::api::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::components::exposure::{self, KUBE_APISERVER};
use crate::flow::Failed;
use crate::format::address::authority;
use crate::format::base64;
use crate::kube::{
    self, AuthorizationSource, Client, Connection, ListParams, Options, Permits, RequestGate, RequestGates,
    Seed, Shoot, WarmConnections, kubeconfig,
};
use crate::pki::AnyKey;
use crate::pki::issue::{Authority, CertificateIssuer, CertificateTemplate, KeyUsage, ServerNames, subject};
use crate::secrets::labels;
use crate::{limits, pki};

/// The bundle of its CAs.
const SERVER_CA: &str = "ca-bundle";
/// The Secret with the kubeconfig of the agent itself.
const INTERNAL: &str = "gardener-internal";
/// The user in the certificate of the first contact, and the group with all permissions.
const FIRST_NAME: &str = "gardener.cloud:system:gardener-resource-manager";
const MASTERS: &str = "system:masters";
/// How long a certificate is valid, and when it is replaced.
const VALIDITY: Duration = Duration::from_secs(600);
const RENEW_AFTER: Duration = Duration::from_secs(480);
/// Clocks of control planes may be behind.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

/// Why there is no client.
#[derive(Debug)]
pub(crate) enum Error {
    /// A request to the seed failed.
    Read {
        /// The object to read.
        what: String,
        source: kube::Error,
    },
    /// An object does not exist yet.
    Missing {
        /// The object and its place.
        what: String,
    },
    /// A Secret is invalid.
    Damaged {
        /// The namespace and the name.
        secret: String,
        why: String,
    },
    /// No client certificate could be signed.
    Sign {
        /// Namespace and name of the CA.
        secret: String,
        source: pki::Error,
    },
    /// The server does not answer, or refuses the credentials.
    Server {
        namespace: String,
        /// The other routes, and why they failed.
        others: String,
        source: kube::Error,
    },
    /// The server has another version.
    Version { namespace: String, found: String, wanted: String },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { what, .. } => write!(f, "read {what} in the seed"),
            Self::Missing { what } => write!(f, "{what}"),
            Self::Damaged { secret, why } => write!(
                f,
                "secret {secret} cannot be used: {why}; restore it from a backup, or delete it and reconcile the Shoot"
            ),
            Self::Sign { secret, .. } => {
                write!(f, "sign a client certificate with the CA of secret {secret}")
            }
            Self::Server { namespace, others, .. } => {
                write!(f, "talk to the kube-apiserver of namespace {namespace}{others}")
            }
            Self::Version { namespace, found, wanted } => write!(
                f,
                "the kube-apiserver of namespace {namespace} has version {found:?}, and the Shoot needs {wanted:?}: either its \
                 Deployment is not rolled out yet, or its image does not match its tag"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Server { source, .. } => Some(source),
            Self::Sign { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Error {
    /// Whether the server itself was asked, and not only the objects that are needed to reach it.
    pub(crate) const fn is_of_server(&self) -> bool {
        matches!(self, Self::Server { .. } | Self::Version { .. })
    }

    /// The request that failed, if one was the reason.
    const fn request(&self) -> Option<&kube::Error> {
        match self {
            Self::Read { source, .. } | Self::Server { source, .. } => Some(source),
            _ => None,
        }
    }

    /// If a request was not sent: when to try again.
    pub(crate) fn postponed(&self) -> Option<Duration> {
        self.request().and_then(kube::Error::postponed)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error.request() {
            Some(request) => Self::request(chain(&error), request),
            None => Self::new(chain(&error)),
        }
    }
}

/// The route to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Way {
    #[default]
    Service,
    Exposure,
}

/// Facts about a server that its clients share.
#[derive(Clone, Debug)]
struct ShootServer {
    gate: RequestGate,
    way: Way,
}

/// The servers of all Shoots. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ShootServers {
    gates: RequestGates,
    warm: WarmConnections,
    /// For long texts of all servers.
    texts: Permits,
    /// The route to try first for a server without earlier requests.
    first: Way,
    known: Arc<Mutex<SortedMap<String, ShootServer>>>,
}

impl ShootServers {
    /// Without any servers.
    pub(crate) fn new(gates: RequestGates) -> Self {
        let warm = WarmConnections::up_to(limits::SHOOT_CONNECTIONS_MAX);
        let texts = Permits::new(limits::SHOOT_LONG_TEXTS_MAX);
        Self { gates, warm, texts, first: Way::default(), known: Arc::default() }
    }

    /// For an agent that may be outside the seed's cluster: the exposed address of a Shoot is tried first.
    pub(crate) fn from_outside(gates: RequestGates) -> Self {
        Self { first: Way::Exposure, ..Self::new(gates) }
    }

    fn lock(&self) -> MutexGuard<'_, SortedMap<String, ShootServer>> {
        // Only single calls change the map: a panic cannot leave it half changed.
        self.known.lock().ignore_poison()
    }

    fn door(&self, namespace: &str) -> ShootServer {
        let mut known = self.lock();
        let door = || ShootServer { gate: self.gates.narrow_gate(), way: self.first };
        known.entry(namespace.to_owned()).or_insert_with(door).clone()
    }

    fn remember(&self, namespace: &str, way: Way) {
        if let Some(door) = self.lock().get_mut(namespace) {
            door.way = way;
        }
    }
}

/// Creates clients, and keeps one for each namespace. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ShootConnector {
    pub(super) seed: Seed,
    pub(super) options: Options,
    doors: ShootServers,
    clients: Arc<Mutex<SortedMap<String, Shoot>>>,
}

impl fmt::Debug for ShootConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShootConnector").field("doors", &self.doors).finish_non_exhaustive()
    }
}

/// A client to which the server has answered.
#[derive(Clone, Debug)]
pub(crate) struct OpenedClient {
    pub(crate) client: Shoot,
    /// When its certificate must be replaced.
    pub(crate) renew_at: Timestamp,
    /// When the certificate expires.
    pub(crate) expires_at: Timestamp,
}

impl ShootConnector {
    /// `options` apply to each client: they contain the lease that is checked before a write.
    pub(crate) fn new(seed: Seed, options: Options, doors: &ShootServers) -> Self {
        let options = Options {
            qps: 0.0,
            peer: "shoot",
            timeout: limits::SHOOT_TIMEOUT,
            tells_time: false,
            daily: None,
            unauthorized: None,
            warm: Some(doors.warm.clone()),
            bounds: options.bounds.of_shoot(&doors.texts),
            ..options
        };
        Self { seed, options, doors: doors.clone(), clients: Arc::default() }
    }

    /// A client with a certificate that is valid for ten minutes: it needs no objects in the cluster of the
    /// Shoot. Later calls renew the same client. Errors: [`Error`]; the server must have answered.
    pub(crate) fn open(&self, namespace: &str) -> Result<OpenedClient, Error> {
        let trusted = Connection::new("").with_ca(self.bundle(namespace, SERVER_CA)?);
        let now = self.options.clock.now();
        let mut last =
            Error::Missing { what: format!("namespace {namespace} has no secret of CA ca-client yet") };
        for authority in self.newest(namespace, "ca-client")? {
            let at = format!("{namespace}/{}", authority.metadata.name);
            let (chain, key) = first_certificate(&authority, &at, now)?;
            match self.reach(namespace, &trusted.clone().with_certificate(chain, key)) {
                // A server that does not know the newest CA yet knows the previous one.
                Err(error) if is_unauthorized(&error) => last = error,
                other => {
                    let (renew_at, expires_at) = (now.plus(RENEW_AFTER), now.plus(VALIDITY));
                    return other.map(|client| OpenedClient { client, renew_at, expires_at });
                }
            }
        }
        Err(last)
    }

    /// Asks the server at the address that clients outside the seed use. Errors: [`Error`]; the server does
    /// not answer there, or has no such address yet.
    pub(crate) fn ask_from_outside(&self, namespace: &str) -> Result<(), Error> {
        let missing =
            |what: &str| Error::Missing { what: format!("namespace {namespace} has no {what} yet") };
        let authorities = self.newest(namespace, "ca-client")?;
        let authority = authorities.first().ok_or_else(|| missing("secret of CA ca-client"))?;
        let at = format!("{namespace}/{}", authority.metadata.name);
        let (chain, key) = first_certificate(authority, &at, self.options.clock.now())?;
        let server = self.exposed_address(namespace)?.ok_or_else(|| missing("exposed address"))?;
        let identity =
            Connection::new("").with_ca(self.bundle(namespace, SERVER_CA)?).with_certificate(chain, key);
        let connection = connection(namespace, server, &identity);
        let client = Client::new(connection, Options { warm: None, ..self.options.clone() });
        client.and_then(|client| client.version()).map(drop).map_err(|source| silent(namespace, source))
    }

    /// A client for an operation, with the token of Secret `gardener-internal`. Errors: [`Error`]; the
    /// server must have answered.
    pub(crate) fn connect(&self, namespace: &str) -> Result<Shoot, Error> {
        let name = format!("{namespace}/{INTERNAL}");
        let found = self.seed.find::<Secret>(&SECRET, &Key::new(namespace, INTERNAL));
        let secret = found.map_err(|source| Error::Read { what: format!("secret {name}"), source })?;
        let missing = |what: &str| Error::Missing { what: format!("secret {name} {what}") };
        let secret = secret.ok_or_else(|| missing("does not exist yet"))?;
        let damaged = |why: String| Error::Damaged { secret: name.clone(), why };
        let config =
            decoded(&secret, "kubeconfig").ok_or_else(|| damaged("it has no kubeconfig".to_owned()))?;
        let config = String::from_utf8_lossy(&config);
        let parsed =
            kubeconfig::parse(&config, std::path::Path::new("/")).and_then(|config| config.current());
        match parsed.map_err(|error| damaged(chain(&error)))?.identity.credentials {
            AuthorizationSource::Token(token) => {
                let trusted = Connection::new("").with_ca(self.bundle(namespace, SERVER_CA)?);
                self.reach(namespace, &trusted.with_token(token.expose().clone()))
            }
            _ => Err(missing("has no token yet")),
        }
    }

    /// The namespace is gone.
    pub(crate) fn forget(&self, namespace: &str) {
        self.lock().remove(namespace);
        self.doors.lock().remove(namespace);
    }

    fn lock(&self) -> MutexGuard<'_, SortedMap<String, Shoot>> {
        // Only single calls change the map: a panic cannot leave it half changed.
        self.clients.lock().ignore_poison()
    }

    /// Tries the routes until one works, at most five seconds each.
    fn reach(&self, namespace: &str, identity: &Connection) -> Result<Shoot, Error> {
        let door = self.doors.door(namespace);
        let mut ways = [Way::Service, Way::Exposure];
        if door.way == Way::Exposure {
            ways.reverse();
        }
        let (mut others, mut last) = (String::new(), None);
        for way in ways {
            let server = match way {
                Way::Service => self.service_address(namespace)?,
                Way::Exposure => self.exposed_address(namespace)?,
            };
            let Some(server) = server else { continue };
            let connection = connection(namespace, server, identity);
            let failed = |source, others| Error::Server { namespace: namespace.to_owned(), others, source };
            let client = self.client(namespace, &door, connection).map_err(|e| failed(e, String::new()))?;
            // This request ignores the gate, because the caller needs an answer now.
            match client.ungated().version() {
                Ok(_) => {
                    self.doors.remember(namespace, way);
                    return Ok(client);
                }
                Err(source) if matches!(source, kube::Error::Transport { .. }) => {
                    if let Some(before) = last.replace(source) {
                        others = format!(" (another way: {})", chain(&before));
                    }
                }
                Err(source) => return Err(failed(source, others)),
            }
        }
        let unknown =
            || Error::Missing { what: format!("service {namespace}/{KUBE_APISERVER} has no address yet") };
        let source = last.ok_or_else(unknown)?;
        Err(Error::Server { namespace: namespace.to_owned(), others, source })
    }

    /// The client of the namespace over this connection.
    fn client(
        &self,
        namespace: &str,
        door: &ShootServer,
        connection: Connection,
    ) -> Result<Shoot, kube::Error> {
        let mut clients = self.lock();
        if let Some(client) = clients.get(namespace) {
            if *client.connection() != connection {
                client.replace(connection)?;
            }
            return Ok(client.clone());
        }
        let options = Options { gate: Some(door.gate.clone()), ..self.options.clone() };
        let client = Shoot(Client::new(connection, options)?);
        clients.insert(namespace.to_owned(), client.clone());
        Ok(client)
    }

    fn service_address(&self, namespace: &str) -> Result<Option<String>, Error> {
        let found = self.seed.find::<Value>(&SERVICE, &Key::new(namespace, KUBE_APISERVER));
        let what = || format!("service {namespace}/{KUBE_APISERVER}");
        Ok(found.map_err(|source| Error::Read { what: what(), source })?.as_ref().and_then(cluster_address))
    }

    fn exposed_address(&self, namespace: &str) -> Result<Option<String>, Error> {
        let found = exposure::known(&self.seed, namespace);
        let what = || format!("service {namespace}/{}", exposure::NAME);
        let outside = found.map_err(|source| Error::Read { what: what(), source })?;
        Ok(outside.map(|outside| format!("https://{}", outside.authority())))
    }

    /// The CAs that may have signed the server's certificate. Until its last pod is replaced at the end of a rotation,
    /// that may be a CA that only the previous bundle contains.
    pub(super) fn bundle(&self, namespace: &str, name: &str) -> Result<Vec<u8>, Error> {
        let found = self.newest(namespace, name)?;
        let Some(newest) = found.first() else {
            return Err(Error::Missing { what: format!("namespace {namespace} has no secret {name} yet") });
        };
        let damaged = || Error::Damaged {
            secret: format!("{namespace}/{}", newest.metadata.name),
            why: "it has no bundle.crt".to_owned(),
        };
        let mut all = decoded(newest, "bundle.crt").ok_or_else(damaged)?;
        for before in found.iter().skip(1).filter_map(|secret| decoded(secret, "bundle.crt")) {
            all.push(b'\n');
            all.extend(before);
        }
        Ok(all)
    }

    /// The Secrets of one configuration of the secrets manager, the newest first.
    fn newest(&self, namespace: &str, name: &str) -> Result<Vec<Secret>, Error> {
        let label_selector = format!("{},{}={name}", labels::selector("gardenlet"), labels::NAME);
        let params = ListParams { label_selector, ..ListParams::default() };
        let found = self.seed.list::<Secret>(&SECRET, namespace, &params);
        let what = || format!("secrets {name} of namespace {namespace}");
        let mut all = found.map_err(|source| Error::Read { what: what(), source })?.items;
        let age = |secret: &Secret| {
            let rotated =
                secret.metadata.labels.get(labels::LAST_ROTATION).and_then(|at| at.parse::<i64>().ok());
            (secret.metadata.creation_timestamp, rotated)
        };
        all.sort_by_key(|secret| std::cmp::Reverse(age(secret)));
        Ok(all)
    }
}

/// A connection to a server at this address, whose certificate has the names of its Service.
fn connection(namespace: &str, server: String, identity: &Connection) -> Connection {
    let tls_server_name = Some(format!("{KUBE_APISERVER}.{namespace}.svc"));
    Connection { server, tls_server_name, ..identity.clone() }
}

/// The server does not answer, and there was no other way to try.
fn silent(namespace: &str, source: kube::Error) -> Error {
    Error::Server { namespace: namespace.to_owned(), others: String::new(), source }
}

/// Checks that the server has exactly the Shoot's version. Errors: [`Error::Version`]; or [`Error::Server`]
/// if it does not answer.
pub(crate) fn check_version(client: &Shoot, namespace: &str, wanted: &str) -> Result<(), Error> {
    let found = client.version().map_err(|source| silent(namespace, source))?.git_version;
    if found.strip_prefix('v').unwrap_or(&found) == wanted {
        return Ok(());
    }
    Err(Error::Version { namespace: namespace.to_owned(), found, wanted: wanted.to_owned() })
}

/// A certificate and its key, signed by the Shoot's client CA.
fn first_certificate(authority: &Secret, at: &str, now: Timestamp) -> Result<(String, String), Error> {
    let damaged = |why: &str| Error::Damaged { secret: at.to_owned(), why: why.to_owned() };
    let part = |key: &str| decoded(authority, key).ok_or_else(|| damaged(&format!("it has no {key}")));
    let (certificate, key) = (part("ca.crt")?, part("ca.key")?);
    let signing = AnyKey::from_pem(&key).map_err(|why| damaged(&why))?;
    let failed = |source| Error::Sign { secret: at.to_owned(), source };
    let own = AnyKey::new_p256().map_err(|why| failed(pki::Error::Sign(why)))?;
    let template = CertificateTemplate {
        subject: subject(FIRST_NAME, &[MASTERS.to_owned()]),
        names: ServerNames::default(),
        not_before_unix_s: now.minus(CLOCKS_DIFFER).unix(),
        not_after_unix_s: now.plus(VALIDITY).unix(),
        usage: Some(KeyUsage::Client),
        authority: Authority::No,
    };
    let issuer = CertificateIssuer::of_pem(&certificate, &signing).map_err(failed)?;
    let chain = template.sign(&own, &issuer).map_err(failed)?;
    Ok((chain, own.to_pem()))
}

fn is_unauthorized(error: &Error) -> bool {
    matches!(error, Error::Server { source, .. } if source.status_code() == Some(401))
}

fn decoded(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    base64::decode(secret.data.get(key)?.as_bytes()).ok().filter(|bytes| !bytes.is_empty())
}

/// The address of a Service within the cluster.
fn cluster_address(service: &Value) -> Option<String> {
    let host = text(&service["spec"]["clusterIP"]);
    let port = service["spec"]["ports"][0]["port"].as_u64()?;
    (!host.is_empty() && host != "None").then(|| format!("https://{}", authority(host, port)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_of_a_service() {
        let inside = |spec: Value| cluster_address(&json!({"spec": spec}));
        let ports = json!([{"port": 443, "nodePort": 30_443}]);
        let table = [
            (json!({"clusterIP": "10.1.2.3", "ports": ports}), Some("https://10.1.2.3:443")),
            (json!({"clusterIP": "fd00::1", "ports": ports}), Some("https://[fd00::1]:443")),
            (json!({"clusterIP": "None", "ports": ports}), None),
            (json!({"clusterIP": "", "ports": ports}), None),
            (json!({"clusterIP": "10.1.2.3"}), None),
        ];
        for (spec, expected) in table {
            assert_eq!(inside(spec.clone()).as_deref(), expected, "{spec}");
        }
    }

    #[test]
    fn the_first_certificate_has_the_masters_group_and_is_short() {
        let key = AnyKey::new_p256().unwrap();
        let now = Timestamp::from_unix(1_800_000_000);
        let template = CertificateTemplate {
            subject: subject("ca-client", &[]),
            names: ServerNames::default(),
            not_before_unix_s: now.unix() - 10,
            not_after_unix_s: now.unix() + 100_000,
            usage: None,
            authority: Authority::CertificatesAndRevocations,
        };
        let ca = template.sign(&key, &CertificateIssuer::itself(&template, &key).unwrap()).unwrap();
        let data = [("ca.crt", ca.as_bytes()), ("ca.key", key.to_pem().as_bytes())]
            .map(|(key, value)| (key.to_owned(), base64::encode(value)));
        let secret = Secret { data: data.into(), ..Secret::default() };
        let (chain, _) = first_certificate(&secret, "ns/ca-client", now).unwrap();
        let certificate = pki::Certificate::parse_pem(&chain).unwrap();
        assert_eq!(
            (certificate.not_before, certificate.not_after),
            (now.minus(CLOCKS_DIFFER), now.plus(VALIDITY))
        );

        let error = first_certificate(&Secret::default(), "ns/ca-client", now).unwrap_err().to_string();
        assert!(error.starts_with("secret ns/ca-client cannot be used: it has no ca.crt;"), "{error}");
    }
}
