//! The first identity: the kubeconfig Secret of an earlier life, a bootstrap token and a certificate request, or a
//! kubeconfig that the operator supplies.

use std::path::PathBuf;
use std::time::Duration;

use crate::api::core::SECRET;
use crate::api::meta::Key;
use crate::base::clock::Clock;
use crate::base::state::StateDir;
use crate::kube::{self, Client, Connection, DeleteParams, Garden, kubeconfig};

use super::csr::seed_subject;
use super::issue::{Issued, Issuer, Progress};
use super::{Error, secret};

/// Where the identity may come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `gardenClientConnection.kubeconfigSecret`: what an earlier life wrote, and where a new identity goes.
    pub kubeconfig_secret: Option<Key>,
    /// `gardenClientConnection.bootstrapKubeconfig`.
    pub bootstrap_secret: Option<Key>,
    /// `gardenClientConnection.kubeconfig` or `GARDEN_KUBECONFIG`.
    pub kubeconfig_path: Option<PathBuf>,
    /// `edge.bootstrap.keep`: leave the bootstrap credentials where they are.
    pub keep_bootstrap: bool,
}

/// How far the first identity is.
#[derive(Debug)]
pub enum Obtained {
    /// Ask again after this time.
    Waiting {
        /// When.
        after: Duration,
        /// For what, in words for an operator.
        what: String,
    },
    /// The connection to the garden.
    Ready(Connection),
}

/// Makes a client of the garden from a connection.
pub type Connect<'a> = &'a dyn Fn(Connection) -> Result<Garden, kube::Error>;

/// Gets the first identity, in steps.
#[derive(Debug)]
pub struct Obtain {
    sources: Sources,
    seed_name: String,
    validity: Option<Duration>,
    clock: Clock,
    state: StateDir,
    bootstrap: Option<(Connection, Garden, Issuer)>,
}

/// The state directory's file of a pending bootstrap request.
const SLOT: &str = "bootstrap-request";

impl Obtain {
    /// `validity` is asked of the signer, `None` leaves it to the signer.
    pub fn new(
        sources: Sources,
        seed_name: String,
        validity: Option<Duration>,
        clock: Clock,
        state: StateDir,
    ) -> Self {
        Self { sources, seed_name, validity, clock, state, bootstrap: None }
    }

    /// One step.
    ///
    /// # Errors
    /// [`Error`] names place and remedy; the next call tries again from where it stands.
    pub fn step(&mut self, seed: &Client, connect: Connect<'_>) -> Result<Obtained, Error> {
        if let Some(key) = &self.sources.kubeconfig_secret {
            // Looked at in each step: an operator, or another replica, may have supplied it meanwhile.
            if let Some(stored) = secret::load(seed, key)? {
                return Ok(Obtained::Ready(stored.connection));
            }
            if self.sources.bootstrap_secret.is_some() {
                return self.bootstrap_step(seed, connect);
            }
        }
        let path = self.sources.kubeconfig_path.clone().ok_or(Error::NotConfigured)?;
        let read = kubeconfig::load(std::slice::from_ref(&path)).and_then(|config| config.select(""));
        let wrong = |source| Error::Kubeconfig { place: path.display().to_string(), source };
        Ok(Obtained::Ready(read.map_err(wrong)?))
    }

    fn bootstrap_step(&mut self, seed: &Client, connect: Connect<'_>) -> Result<Obtained, Error> {
        let (from, garden, mut issuer) = self.bootstrap_parts(seed, connect)?;
        let progress = issuer.step(&garden);
        self.bootstrap = Some((from, garden, issuer));
        match progress {
            Ok(Progress::Waiting { after, csr_name }) => {
                Ok(Obtained::Waiting { after, what: format!("approval of certificate request {csr_name}") })
            }
            Ok(Progress::Issued(issued)) => self.store(seed, issued).map(Obtained::Ready),
            Err(e) => {
                // The Secret may hold another token by the next try.
                self.bootstrap = None;
                Err(e)
            }
        }
    }

    fn bootstrap_parts(
        &mut self,
        seed: &Client,
        connect: Connect<'_>,
    ) -> Result<(Connection, Garden, Issuer), Error> {
        if let Some(parts) = self.bootstrap.take() {
            return Ok(parts);
        }
        let key = self.sources.bootstrap_secret.clone().unwrap_or_default();
        let stored = secret::load(seed, &key)?.ok_or_else(|| Error::NoKubeconfig {
            place: format!("secret {key} of the seed"),
            remedy: "supply a bootstrap kubeconfig for the garden in its key kubeconfig",
        })?;
        let garden = connect(stored.connection.clone())
            .map_err(Error::kube("connect with the bootstrap kubeconfig"))?;
        let subject = seed_subject(&self.seed_name);
        let issuer = Issuer::new(self.clock.clone(), self.state.clone(), SLOT, subject, self.validity);
        Ok((stored.connection, garden, issuer))
    }

    /// Secret first, then the bootstrap Secret goes, then the key on disk: a crash between them loses nothing.
    fn store(&mut self, seed: &Client, issued: Issued) -> Result<Connection, Error> {
        let Some((from, _, issuer)) = &mut self.bootstrap else { return Err(Error::NotConfigured) };
        let connection =
            from.clone().with_certificate(issued.certificate_pem, issued.key_pem.expose().clone());
        if let Some(key) = &self.sources.kubeconfig_secret {
            secret::store(seed, key, &connection, false)?;
        }
        issuer.discard();
        self.bootstrap = None;
        log::info!(csr = issued.csr_name.as_str(); "Received the certificate for the garden");
        if let Some(key) = self.sources.bootstrap_secret.as_ref().filter(|_| !self.sources.keep_bootstrap) {
            remove_bootstrap_secret(seed, key)?;
        }
        Ok(connection)
    }
}

/// Deletes the bootstrap Secret in the seed; nothing happens if it is gone.
///
/// # Errors
/// If the seed refuses.
pub fn remove_bootstrap_secret(seed: &Client, key: &Key) -> Result<(), Error> {
    match seed.delete(&SECRET, &key.namespace, &key.name, &DeleteParams::default()) {
        Err(e) if !e.is_not_found() => Err(Error::kube(format!("delete secret {key} in the seed"))(e)),
        _ => Ok(()),
    }
}
