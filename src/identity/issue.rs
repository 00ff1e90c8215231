//! Getting one certificate: make a key and a request, post it, look soon and then every two seconds, give up after fifteen
//! minutes.
//!
//! Key and name are kept in the state directory, so that a crash resumes the request that was posted instead of leaving
//! an orphan behind.

use std::time::Duration;

use miniserde::{Deserialize, Serialize};

use crate::api::certificates::{CERTIFICATE_SIGNING_REQUEST, CertificateSigningRequest};
use crate::base::clock::{Clock, Mono, Timestamp};
use crate::base::redact::Secret;
use crate::base::state::StateDir;
use crate::format::base64;
use crate::kube::{Garden, Verdict};
use crate::pki::request::{self, Subject};
use crate::pki::{Certificate, PrivateKey};

use super::Error;
use super::csr::{self, State};

/// Between two looks at a request (list and watch are not granted for it). A garden usually approves at once, so the first
/// looks come sooner: after as long as the request has waited already.
pub const POLL: Duration = Duration::from_secs(2);
const POLL_FIRST: Duration = Duration::from_millis(100);
/// How long a request may wait for its approval.
pub const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// A key and the certificate for it.
#[derive(Clone, Debug)]
pub struct Issued {
    /// PEM, leaf first.
    pub certificate_pem: String,
    /// PEM `EC PRIVATE KEY`.
    pub key_pem: Secret<String>,
    /// The request that led to it.
    pub csr_name: String,
}

/// How far a request is.
#[derive(Clone, Debug)]
pub enum Progress {
    /// Look again after this time.
    Waiting {
        /// When to call again.
        after: Duration,
        /// The request that waits for its approval.
        csr_name: String,
    },
    /// Done.
    Issued(Issued),
}

/// What is kept over a crash. Ours alone, so miniserde.
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
    /// Machine time, for the next life.
    begun: Timestamp,
    /// The wait in this life began here, on the monotonic clock: the machine's may be set meanwhile ...
    since: Mono,
    /// ... after a wait of so long in an earlier life.
    before: Duration,
}

impl Pending {
    fn waited(&self, now: Mono) -> Duration {
        now.saturating_sub(self.since).saturating_add(self.before)
    }
}

/// One certificate for one subject, over as many requests as it takes.
pub struct Issuer {
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
    /// Resumes the request that `slot` of the state directory holds, if it is for this subject and still fresh.
    pub fn new(
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

    /// One step: posts a request or looks at it.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::TimedOut`] end the request: the next step makes a new key and request. Others leave
    /// it pending.
    pub fn step(&mut self, garden: &Garden) -> Result<Progress, Error> {
        let pending = match self.pending.take() {
            Some(pending) if !pending.uid.is_empty() => pending,
            // The crash came between the key and the answer: the object may or may not exist.
            Some(pending) => self.post(garden, pending)?,
            None => self.post(garden, self.fresh(PrivateKey::generate()?)?)?,
        };
        if pending.waited(self.clock.mono()) > PATIENCE {
            self.discard();
            return Err(Error::TimedOut { name: pending.name });
        }
        self.look(garden, pending)
    }

    /// Forgets the request and its key.
    pub fn discard(&mut self) {
        self.pending = None;
        if let Err(e) = self.state.remove(self.slot) {
            let err = crate::base::error::chain(&e);
            log::warn!(err = err.as_str(); "The finished certificate request stays in the state directory");
        }
    }

    fn look(&mut self, garden: &Garden, pending: Pending) -> Result<Progress, Error> {
        let found = garden.get::<CertificateSigningRequest>(&CERTIFICATE_SIGNING_REQUEST, "", &pending.name);
        let state = match found {
            Ok(object) => csr::judge(&object, &pending.uid),
            Err(e) if e.verdict() == Verdict::NotFound => {
                State::Refused("deleted", "somebody removed the object".to_owned())
            }
            Err(source) => {
                let operation = format!("look at certificate request {}", pending.name);
                self.pending = Some(pending);
                return Err(Error::Kube { operation, source });
            }
        };
        match state {
            State::Pending => {
                let after = pending.waited(self.clock.mono()).clamp(POLL_FIRST, POLL);
                let csr_name = pending.name.clone();
                self.pending = Some(pending);
                Ok(Progress::Waiting { after, csr_name })
            }
            State::Refused(how, why) => {
                self.discard();
                Err(Error::Refused { name: pending.name, how, why })
            }
            State::Issued(certificate_pem) => {
                // A certificate that cannot be read must not replace one that works.
                Certificate::parse_pem(&certificate_pem)?;
                let key_pem = pending.key.to_pem();
                let csr_name = pending.name.clone();
                // Kept until the caller has stored the certificate and discards the request.
                self.pending = Some(pending);
                Ok(Progress::Issued(Issued { certificate_pem, key_pem, csr_name }))
            }
        }
    }

    fn fresh(&self, key: PrivateKey) -> Result<Pending, Error> {
        let request = request::build(&self.subject, &key)?;
        let name = csr::name(&request.public_key, &self.subject);
        let (begun, since) = (self.clock.now(), self.clock.mono());
        Ok(Pending { name, uid: String::new(), key, begun, since, before: Duration::ZERO })
    }

    /// Posts a request for the key; the key is on disk before the server knows the request.
    fn post(&mut self, garden: &Garden, mut pending: Pending) -> Result<Pending, Error> {
        let request = request::build(&self.subject, &pending.key)?;
        self.save(&pending);
        let object = csr::object(&pending.name, &request.pem, self.validity.map(|v| v.as_secs()));
        let made = garden.create::<CertificateSigningRequest>(&CERTIFICATE_SIGNING_REQUEST, "", &object);
        let is_new = made.is_ok();
        let made = match made {
            // The name is a digest of the new key: an object of this name is our own, posted without an answer.
            Err(e) if e.is_already_exists() => garden.get(&CERTIFICATE_SIGNING_REQUEST, "", &pending.name),
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
            // Its time begins now, however long it took to get it to the garden.
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
        if let Err(e) = self.state.write(self.slot, miniserde::json::to_string(&saved).as_bytes()) {
            let err = crate::base::error::chain(&e);
            log::warn!(err = err.as_str(); "The pending certificate request will not survive a crash");
        }
    }

    fn load(&self) -> Option<Pending> {
        let text = String::from_utf8(self.state.read(self.slot)?).ok()?;
        let saved: Saved = miniserde::json::from_str(&text).ok()?;
        let begun = Timestamp::from_unix(saved.begun_unix_s);
        let (now, since) = (self.clock.now(), self.clock.mono());
        // A clock without a battery may show a little less than before.
        let fresh = begun <= now.plus(PATIENCE) && now <= begun.plus(PATIENCE);
        if !fresh || saved.common_name != self.subject.common_name {
            log::info!(csr = saved.name.as_str(); "The pending certificate request is too old, or not ours: making a new one");
            return None;
        }
        let key = PrivateKey::from_pkcs8(base64::decode(saved.key.as_bytes()).ok()?).ok()?;
        Some(Pending { name: saved.name, uid: saved.uid, key, begun, since, before: now.since(begun) })
    }
}
