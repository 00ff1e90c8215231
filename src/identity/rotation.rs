//! Renews the certificate before it expires, without a restart.
//!
//! The time is random between 70 % and 90 % of the lifetime (configurable), so that the agents of a garden do not all
//! renew at once. Every ten seconds the agent reads the Secret: an operator may have requested a renewal, or another
//! replica may have renewed the certificate.

use std::time::Duration;

use crate::api::meta::Key;
use crate::base::clock::{Clock, Timestamp};
use crate::base::random;
use crate::base::state::StateDir;
use crate::kube::{Client, Connection, Garden};
use crate::pki::Certificate;

use super::Error;
use super::cleanup::{certificate, same_trust};
use super::issue::{Issuer, RequestProgress};
use super::secret::{self, KubeconfigOperation};

/// How often the Secret is read.
pub(crate) const LOOK: Duration = Duration::from_secs(10);

/// Field `gardenClientConnection.kubeconfigValidity` of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KubeconfigValidity {
    /// The requested lifetime; if absent, the signer's default. At least ten minutes.
    pub(crate) validity: Option<Duration>,
    /// Earliest time, in percent of the lifetime.
    pub(crate) jitter_percent_min: u32,
    /// Latest time, in percent of the lifetime.
    pub(crate) jitter_percent_max: u32,
}

/// The time of renewal: `unit` (0 to 1) selects a time between the earliest and the latest.
pub(crate) fn deadline(current: &Certificate, validity: KubeconfigValidity, unit: f64) -> Timestamp {
    let lifetime = current.not_after.since(current.not_before);
    let (min, max) = (f64::from(validity.jitter_percent_min), f64::from(validity.jitter_percent_max));
    let percent = min + (max - min).max(0.0) * unit;
    current.not_before.plus(lifetime.mul_f64(percent / 100.0))
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum RotationStep {
    /// Nothing to do for this time.
    Wait(Duration),
    /// Use this connection from now on, and confirm it with [`KubeconfigRotation::adopted`]: otherwise the next
    /// step offers it again.
    Replace(Connection),
    /// A renewal is not enough: the certificate is lost, or somebody requested a new bootstrap.
    Bootstrap,
}

/// Whether both have the same server, server name, proxy and CAs.
fn same_way(one: &Connection, other: &Connection) -> bool {
    one.server == other.server
        && one.proxy_url == other.proxy_url
        && one.tls_server_name == other.tls_server_name
        && same_trust(&one.trust, &other.trust)
}

/// The file for a pending renewal in the state directory.
const SLOT: &str = "renewal-request";

/// Watches one kubeconfig Secret.
#[derive(Debug)]
pub(crate) struct KubeconfigRotation {
    clock: Clock,
    garden_clock: Clock,
    state: StateDir,
    secret: Key,
    validity: KubeconfigValidity,
    current: Certificate,
    deadline: Timestamp,
    issuer: Option<Issuer>,
    /// The connection in use.
    connection: Connection,
    /// Whether the garden refuses the certificate.
    pub(crate) lost: bool,
}

impl KubeconfigRotation {
    /// `connection` is the connection in use. Deadlines use the garden's clock. Errors: if it
    /// has no client certificate.
    pub(crate) fn new(
        clock: Clock,
        garden_clock: Clock,
        state: StateDir,
        secret: Key,
        validity: KubeconfigValidity,
        connection: &Connection,
    ) -> Result<Self, Error> {
        let current = certificate(connection)?;
        let deadline = deadline(&current, validity, random::unit());
        Ok(Self {
            clock,
            garden_clock,
            state,
            secret,
            validity,
            current,
            deadline,
            issuer: None,
            connection: connection.clone(),
            lost: false,
        })
    }

    /// The certificate in use.
    pub(crate) const fn current(&self) -> &Certificate {
        &self.current
    }

    /// Confirms that the agent uses this connection now. Errors: if it has no client certificate.
    pub(crate) fn adopted(&mut self, connection: &Connection) -> Result<(), Error> {
        self.current = certificate(connection)?;
        self.connection = connection.clone();
        self.lost = false;
        self.deadline = deadline(&self.current, self.validity, random::unit());
        Ok(())
    }

    /// One step: reads the Secret, and renews if it is time. Errors: [`Error`]; the current
    /// certificate stays in use.
    pub(crate) fn step(&mut self, seed: &Client, garden: &Garden) -> Result<RotationStep, Error> {
        let stored = secret::load(seed, &self.secret)?;
        let operation = stored.as_ref().map(|s| s.operation).unwrap_or_default();
        let renew = operation == KubeconfigOperation::Renew;
        let stored = stored.map(|s| s.connection);
        if let Some(connection) = &stored {
            let other = certificate(connection)?;
            if (other.not_after, &other.public_key) != (self.current.not_after, &self.current.public_key) {
                // Another replica or an operator was faster, so our own request is pointless.
                if let Some(mut issuer) = self.issuer.take() {
                    issuer.discard();
                }
                return Ok(RotationStep::Replace(connection.clone()));
            }
            if !same_way(connection, &self.connection) {
                return Ok(RotationStep::Replace(connection.clone()));
            }
        }
        if self.lost || operation == KubeconfigOperation::Rebootstrap {
            return Ok(RotationStep::Bootstrap);
        }
        if !renew && self.issuer.is_none() && self.garden_clock.now() < self.deadline {
            return Ok(RotationStep::Wait(LOOK));
        }
        self.renew(seed, garden, stored).map_err(|source| Error::Renew { source: Box::new(source) })
    }

    /// The Secret keeps its address of the garden, because the agent may be using another one.
    fn renew(
        &mut self,
        seed: &Client,
        garden: &Garden,
        stored: Option<Connection>,
    ) -> Result<RotationStep, Error> {
        let mut issuer = self.issuer.take().unwrap_or_else(|| {
            // Subject and names of the current certificate: an operator's own certificate keeps them.
            let subject = self.current.subject.clone();
            Issuer::new(self.clock.clone(), self.state.clone(), SLOT, subject, self.validity.validity)
        });
        let progress = issuer.step(garden);
        let issued = match progress {
            Ok(RequestProgress::Waiting { after, .. }) => {
                self.issuer = Some(issuer);
                return Ok(RotationStep::Wait(after));
            }
            Ok(RequestProgress::Issued(issued)) => issued,
            Err(e) => {
                self.issuer = Some(issuer);
                return Err(e);
            }
        };
        let key_pem = issued.key_pem.expose().clone();
        let present = stored.unwrap_or_else(|| garden.connection().as_ref().clone());
        let connection = present.with_certificate(issued.certificate_pem, key_pem);
        if let Err(e) = secret::store(seed, &self.secret, &connection, false) {
            // The request keeps its certificate: the next step finds it issued and retries the write.
            self.issuer = Some(issuer);
            return Err(e);
        }
        issuer.discard();
        log::info!(csr = issued.csr_name.as_str(); "Renewed the certificate for the garden");
        Ok(RotationStep::Replace(connection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::request::Subject;

    #[test]
    fn the_moment_lies_between_the_two_shares_of_the_lifetime() {
        let current = Certificate {
            subject: Subject::default(),
            not_before: Timestamp::from_unix(1_000),
            not_after: Timestamp::from_unix(2_000),
            public_key: Vec::new(),
            is_ca: false,
        };
        let validity = KubeconfigValidity { validity: None, jitter_percent_min: 70, jitter_percent_max: 90 };
        let table = [(0.0, 1_700), (0.5, 1_800), (1.0, 1_900)];
        for (unit, expected) in table {
            assert_eq!(deadline(&current, validity, unit).unix(), expected, "{unit}");
        }
    }

    use std::sync::{Arc, Mutex};

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use serde_json::json;

    use crate::base::redact::Secret;
    use crate::format::base64;
    use crate::kube::{Options, kubeconfig};
    use crate::net::testing::{Act, TestServer};

    fn made(year: i32) -> (String, String) {
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (date_time_ymd(year, 1, 1), date_time_ymd(year + 1, 1, 1));
        let pair = KeyPair::generate().unwrap();
        (params.self_signed(&pair).unwrap().pem(), pair.serialize_pem())
    }

    fn with_certificate(server: &str, year: i32) -> Connection {
        let (chain, key) = made(year);
        Connection::new(server).with_certificate(chain, key)
    }

    /// A seed with a kubeconfig Secret that requests `renew`, a garden with a request in this state, and the rotation.
    fn scene(
        secret: &Arc<Mutex<String>>,
        request: serde_json::Value,
    ) -> (TestServer, Client, TestServer, Garden) {
        let secret = Arc::clone(secret);
        let seed = TestServer::plain(move |_| {
            let kubeconfig = base64::encode(secret.lock().unwrap().as_bytes());
            let annotations = json!({"gardener.cloud/operation": "renew"});
            let object = json!({"metadata": {"name": "s", "annotations": annotations}, "data": {"kubeconfig": kubeconfig}});
            Act::json(200, &object.to_string())
        });
        let garden = TestServer::plain(move |_| Act::json(200, &request.to_string()));
        let client =
            |server: &TestServer| Client::new(Connection::new(server.url()), Options::default()).unwrap();
        let (seed_client, garden_client) = (client(&seed), Garden(client(&garden)));
        (seed, seed_client, garden, garden_client)
    }

    fn rotation(present: &Connection) -> KubeconfigRotation {
        let validity = KubeconfigValidity { validity: None, jitter_percent_min: 70, jitter_percent_max: 90 };
        let key = Key::new("garden", "s");
        KubeconfigRotation::new(
            Clock::system(),
            Clock::system(),
            StateDir::in_memory(),
            key,
            validity,
            present,
        )
        .unwrap()
    }

    #[test]
    fn the_secret_keeps_saying_where_the_garden_is() {
        let present = with_certificate("https://public.example.org", 2100);
        let secret = Arc::new(Mutex::new(kubeconfig::render(&present).unwrap()));
        let issued = base64::encode(made(2101).0.as_bytes());
        let request = json!({"metadata": {"uid": "u"}, "status": {
            "certificate": issued, "conditions": [{"type": "Approved", "status": "True"}]}});
        let (_seed, seed, _garden, garden) = scene(&secret, request);
        let mut rotation = rotation(&present);
        let RotationStep::Replace(renewed) = rotation.step(&seed, &garden).unwrap() else { panic!("waits") };
        assert_eq!(renewed.server, "https://public.example.org");
        assert_ne!(renewed.identity, present.identity);
    }

    #[test]
    fn a_certificate_of_somebody_else_ends_our_own_request() {
        let present = with_certificate("https://g", 2100);
        let secret = Arc::new(Mutex::new(kubeconfig::render(&present).unwrap()));
        let (_seed, seed, _garden, garden) = scene(&secret, json!({"metadata": {"uid": "u"}}));
        let mut rotation = rotation(&present);
        // The request waits for its approval; all other waits last the ten seconds between two reads.
        let RotationStep::Wait(after) = rotation.step(&seed, &garden).unwrap() else { panic!("not waiting") };
        assert!(after <= Duration::from_secs(2) && rotation.issuer.is_some(), "{after:?}");
        *secret.lock().unwrap() = kubeconfig::render(&with_certificate("https://g", 2101)).unwrap();
        assert!(matches!(rotation.step(&seed, &garden).unwrap(), RotationStep::Replace(_)));
        assert!(rotation.issuer.is_none());
    }

    #[test]
    fn another_way_to_the_garden_is_taken() {
        let present = with_certificate("https://g", 2100);
        let secret = Arc::new(Mutex::new(kubeconfig::render(&present).unwrap()));
        let (_seed, seed, _garden, garden) = scene(&secret, json!({"metadata": {"uid": "u"}}));
        let proxy_url = Some(Secret::new("http://proxy:3128".to_owned()));
        let table = [
            ("server", Connection { server: "https://moved".to_owned(), ..present.clone() }),
            ("proxy", Connection { proxy_url, ..present.clone() }),
            ("name", Connection { tls_server_name: Some("kube".to_owned()), ..present.clone() }),
            ("trust", present.clone().with_ca("CA")),
        ];
        for (what, changed) in table {
            let mut rotation = rotation(&present);
            *secret.lock().unwrap() = kubeconfig::render(&changed).unwrap();
            let RotationStep::Replace(offered) = rotation.step(&seed, &garden).unwrap() else {
                panic!("{what}")
            };
            assert_eq!(offered, changed, "{what}");
            rotation.adopted(&offered).unwrap();
            // Only the annotation is left.
            assert!(matches!(rotation.step(&seed, &garden).unwrap(), RotationStep::Wait(_)), "{what}");
        }
    }

    #[test]
    fn a_certificate_is_offered_until_it_is_used() {
        let present = with_certificate("https://g", 2100);
        let secret =
            Arc::new(Mutex::new(kubeconfig::render(&with_certificate("https://wrong", 2101)).unwrap()));
        let (_seed, seed, _garden, garden) = scene(&secret, json!({"metadata": {"uid": "u"}}));
        let mut rotation = rotation(&present);
        let offered = |rotation: &mut KubeconfigRotation| match rotation.step(&seed, &garden).unwrap() {
            RotationStep::Replace(connection) => Some(connection),
            RotationStep::Wait(_) | RotationStep::Bootstrap => None,
        };
        assert_eq!(offered(&mut rotation).unwrap().server, "https://wrong");
        // The connection was unusable; somebody corrects the fields around the certificate.
        let corrected = secret.lock().unwrap().replace("wrong", "right");
        *secret.lock().unwrap() = corrected;
        let connection = offered(&mut rotation).unwrap();
        assert_eq!(connection.server, "https://right");
        rotation.adopted(&connection).unwrap();
        // Only the annotation is left, which requests a new certificate: the request waits.
        assert!(offered(&mut rotation).is_none());
        assert_eq!(rotation.current().public_key, certificate(&connection).unwrap().public_key);
    }
}
