//! Obtains one certificate: generates a key and a request, posts it, polls it soon and then every two seconds, and
//! gives up after fifteen minutes.
//!
//! Key and name are kept in the state directory, so that the agent resumes the posted request after a crash and leaves
//! no orphan behind.

use std::time::Duration;

use miniserde::{Deserialize, Serialize};

use crate::api::certificates::{CERTIFICATE_SIGNING_REQUEST, CertificateSigningRequest};
use crate::api::meta::{CLUSTER_SCOPED, Key};
use crate::base::clock::{Clock, Mono, Timestamp};
use crate::base::redact::Secret;
use crate::base::state::StateDir;
use crate::format::base64;
use crate::kube::{ErrorVerdict, Garden};
use crate::pki::request::{self, Subject};
use crate::pki::{Certificate, PrivateKey};

use super::Error;
use super::csr::{self, State};

/// The interval between two polls of a request (list and watch are not granted for it). A garden usually approves at
/// once, so the first polls come sooner: the delay is as long as the request has waited so far.
pub(crate) const POLL: Duration = Duration::from_secs(2);
const POLL_FIRST: Duration = Duration::from_millis(100);
/// How long to wait for the approval of a request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// A key and the certificate for it.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    /// PEM, with the leaf first.
    pub(crate) certificate_pem: String,
    /// PEM `EC PRIVATE KEY`.
    pub(crate) key_pem: Secret<String>,
    /// The request that produced it.
    pub(crate) csr_name: String,
}

/// The progress of a request.
#[derive(Clone, Debug)]
pub(crate) enum RequestProgress {
    /// Call again after this time.
    Waiting {
        after: Duration,
        /// The request that waits for its approval.
        csr_name: String,
    },
    Issued(Issued),
}

/// State that survives a crash. Only this program reads it, so miniserde is enough.
#[derive(Serialize, Deserialize)]
struct Saved {
    name: String,
    uid: String,
    common_name: String,
    begun_unix_s: i64,
    key: String,
}

struct Pending {
    name: String,
    uid: String,
    key: PrivateKey,
    /// Machine time, for the next process.
    begun: Timestamp,
    /// Start of the wait in this process, on the monotonic clock, because the machine's clock may be set meanwhile ...
    since: Mono,
    /// ... after this wait in an earlier process.
    before: Duration,
}

impl Pending {
    fn waited(&self, now: Mono) -> Duration {
        now.saturating_sub(self.since).saturating_add(self.before)
    }
}

/// Obtains one certificate for one subject, with as many requests as it takes.
pub(crate) struct Issuer {
    clock: Clock,
    state: StateDir,
    /// Name of the file in the state directory.
    slot: &'static str,
    subject: Subject,
    validity: Option<Duration>,
    pending: Option<Pending>,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.pending.as_ref().map(|p| p.name.as_str());
        f.debug_struct("Issuer").field("subject", &self.subject.common_name).field("pending", &name).finish()
    }
}

impl Issuer {
    /// Resumes the request in `slot` of the state directory, if it is for this subject and recent.
    pub(crate) fn new(
        clock: Clock,
        state: StateDir,
        slot: &'static str,
        subject: Subject,
        validity: Option<Duration>,
    ) -> Self {
        let mut issuer = Self { clock, state, slot, subject, validity, pending: None };
        issuer.pending = issuer.load();
        if let Some(pending) = &issuer.pending {
            log::info!(csr = pending.name.as_str(); "Resuming the pending certificate request");
        }
        issuer
    }

    /// One step: posts a request or polls it. Errors: [`Error::Refused`] and [`Error::TimedOut`] end the
    /// request: the next step creates a new key and request. After other errors, it stays pending.
    pub(crate) fn step(&mut self, garden: &Garden) -> Result<RequestProgress, Error> {
        let pending = match self.pending.take() {
            Some(pending) if !pending.uid.is_empty() => pending,
            // A crash came between the key and the response: the object may or may not exist.
            Some(pending) => self.post(garden, pending)?,
            None => self.post(garden, self.fresh(PrivateKey::generate()?)?)?,
        };
        if pending.waited(self.clock.mono()) > PATIENCE {
            self.discard();
            return Err(Error::TimedOut { name: pending.name });
        }
        self.look(garden, pending)
    }

    /// Deletes the request and its key.
    pub(crate) fn discard(&mut self) {
        self.pending = None;
        self.state.remove(self.slot);
    }

    fn look(&mut self, garden: &Garden, pending: Pending) -> Result<RequestProgress, Error> {
        let key = Key::cluster(&pending.name);
        let found = garden.get::<CertificateSigningRequest>(&CERTIFICATE_SIGNING_REQUEST, &key);
        let state = match found {
            Ok(object) => csr::judge(&object, &pending.uid),
            Err(e) if e.verdict() == ErrorVerdict::NotFound => {
                State::Refused("deleted", "the object was deleted".to_owned())
            }
            Err(source) => {
                let operation = format!("read certificate request {}", pending.name);
                self.pending = Some(pending);
                return Err(Error::Kube { operation, source });
            }
        };
        match state {
            State::Pending => {
                let after = pending.waited(self.clock.mono()).clamp(POLL_FIRST, POLL);
                let csr_name = pending.name.clone();
                self.pending = Some(pending);
                Ok(RequestProgress::Waiting { after, csr_name })
            }
            State::Refused(how, why) => {
                self.discard();
                Err(Error::Refused { name: pending.name, how, why })
            }
            State::Issued(certificate_pem) => {
                // An unreadable certificate must not replace a working one.
                Certificate::parse_pem(&certificate_pem)?;
                let key_pem = pending.key.to_pem();
                let csr_name = pending.name.clone();
                // Kept until the caller has stored the certificate and discards the request.
                self.pending = Some(pending);
                Ok(RequestProgress::Issued(Issued { certificate_pem, key_pem, csr_name }))
            }
        }
    }

    fn fresh(&self, key: PrivateKey) -> Result<Pending, Error> {
        let request = request::build(&self.subject, &key)?;
        let name = csr::name(&request.public_key, &self.subject);
        let (begun, since) = (self.clock.now(), self.clock.mono());
        Ok(Pending { name, uid: String::new(), key, begun, since, before: Duration::ZERO })
    }

    /// Posts a request for the key. The key is on disk before the server sees the request.
    fn post(&mut self, garden: &Garden, mut pending: Pending) -> Result<Pending, Error> {
        let request = request::build(&self.subject, &pending.key)?;
        self.save(&pending);
        let object = csr::object(&pending.name, &request.pem, self.validity.map(|v| v.as_secs()));
        let made =
            garden.create::<CertificateSigningRequest>(&CERTIFICATE_SIGNING_REQUEST, CLUSTER_SCOPED, &object);
        let is_new = made.is_ok();
        let made = match made {
            // The name is a digest of the new key, so an object with this name is our own: its response was lost.
            Err(e) if e.is_already_exists() => {
                garden.get(&CERTIFICATE_SIGNING_REQUEST, &Key::cluster(&pending.name))
            }
            other => other,
        };
        let made = match made {
            Ok(made) => made,
            Err(source) => {
                let operation = format!("post certificate request {}", pending.name);
                self.pending = Some(pending);
                return Err(Error::Kube { operation, source });
            }
        };
        pending.uid = made.metadata.uid;
        if is_new {
            // Its time starts now, no matter how long the post took.
            (pending.begun, pending.since, pending.before) =
                (self.clock.now(), self.clock.mono(), Duration::ZERO);
        }
        self.save(&pending);
        log::info!(csr = pending.name.as_str(), subject = self.subject.common_name.as_str(); "Posted a certificate request");
        Ok(pending)
    }

    fn save(&self, pending: &Pending) {
        let saved = Saved {
            name: pending.name.clone(),
            uid: pending.uid.clone(),
            common_name: self.subject.common_name.clone(),
            begun_unix_s: pending.begun.unix(),
            key: base64::encode(pending.key.pkcs8()),
        };
        self.state.write(self.slot, miniserde::json::to_string(&saved).as_bytes());
    }

    fn load(&self) -> Option<Pending> {
        let text = String::from_utf8(self.state.read(self.slot)?).ok()?;
        let saved: Saved = miniserde::json::from_str(&text).ok()?;
        let begun = Timestamp::from_unix(saved.begun_unix_s);
        let (now, since) = (self.clock.now(), self.clock.mono());
        // After a restart, a clock without a battery may show an earlier time.
        let fresh = begun <= now.plus(PATIENCE) && now <= begun.plus(PATIENCE);
        if !fresh || saved.common_name != self.subject.common_name {
            log::info!(csr = saved.name.as_str(); "The pending certificate request is too old or belongs to another agent; creating a new one");
            return None;
        }
        let key = PrivateKey::from_pkcs8(base64::decode(saved.key.as_bytes()).ok()?).ok()?;
        Some(Pending { name: saved.name, uid: saved.uid, key, begun, since, before: now.since(begun) })
    }
}
