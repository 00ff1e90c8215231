//! The first identity comes from the kubeconfig Secret that an earlier process wrote, from a bootstrap token and a
//! certificate request, or from a kubeconfig that the operator supplies. When the garden no longer accepts the
//! identity, any present or future bootstrap credential can provide the next one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::core::SECRET;
use crate::api::meta::Key;
use crate::base::clock::Clock;
use crate::base::state::StateDir;
use crate::config::{SecretReference, Settings};
use crate::kube::{self, Client, Connection, DeleteParams, Garden, kubeconfig};

use super::csr::seed_subject;
use super::issue::{Issued, Issuer, RequestProgress};
use super::{Error, secret};

/// The name of the service manager's credential with a bootstrap kubeconfig.
pub(crate) const CREDENTIAL: &str = "bootstrap-kubeconfig";

/// The possible sources of the identity.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdentitySources {
    /// `gardenClientConnection.kubeconfigSecret`: written by an earlier process, and updated with each new identity.
    pub(crate) kubeconfig_secret: Option<Key>,
    /// Field `gardenClientConnection.bootstrapKubeconfig` of the configuration.
    pub(crate) bootstrap_secret: Option<Key>,
    /// Files with a bootstrap kubeconfig, which may appear later: `edge.bootstrap.kubeconfig`, and the credential
    /// `bootstrap-kubeconfig` of the service manager.
    pub(crate) bootstrap_files: Vec<PathBuf>,
    /// `gardenClientConnection.kubeconfig` or `GARDEN_KUBECONFIG`.
    pub(crate) kubeconfig_path: Option<PathBuf>,
    /// `edge.bootstrap.keep`: keep the bootstrap credentials after use.
    pub(crate) keep_bootstrap: bool,
}

/// The progress towards the first identity.
#[derive(Debug)]
pub(crate) enum BootstrapProgress {
    /// Call again after this time.
    Waiting {
        after: Duration,
        /// The awaited event, for an operator.
        what: String,
    },
    /// The connection to the garden.
    Ready(Connection),
}

/// Creates a client of the garden from a connection.
pub(crate) type Connect<'a> = &'a dyn Fn(Connection) -> Result<Garden, kube::Error>;

/// A kubeconfig that can request a certificate.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    /// Its location, for messages.
    pub(crate) place: String,
    /// It is in the Secret, which is deleted after use.
    in_secret: bool,
    /// The connection that it describes.
    pub(crate) connection: Connection,
}

impl IdentitySources {
    /// The sources in the configuration. The configured file takes precedence over the service manager's credential.
    pub(crate) fn new(settings: &Settings, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let garden = &settings.garden_client_connection;
        let credential = variable("CREDENTIALS_DIRECTORY").map(|dir| PathBuf::from(dir).join(CREDENTIAL));
        Self {
            kubeconfig_secret: garden.kubeconfig_secret.as_ref().map(SecretReference::key),
            bootstrap_secret: garden.bootstrap_kubeconfig.as_ref().map(SecretReference::key),
            bootstrap_files: settings
                .edge
                .bootstrap_kubeconfig
                .clone()
                .into_iter()
                .chain(credential)
                .chain(settings.edge.bootstrap_credential.clone())
                .collect(),
            kubeconfig_path: garden.connection.kubeconfig.clone(),
            keep_bootstrap: settings.edge.bootstrap_keep,
        }
    }

    /// Whether to bootstrap, as opposed to using a kubeconfig.
    pub(crate) fn wants_bootstrap(&self) -> bool {
        self.bootstrap_secret.is_some()
            || self.bootstrap_files.iter().any(|file| file.exists())
            || (self.kubeconfig_path.is_none() && !self.bootstrap_files.is_empty())
    }

    /// The bootstrap credentials that exist now. Errors: if there is none: names the places, or what is
    /// wrong with their content.
    pub(crate) fn credentials(&self, seed: &Client) -> Result<Vec<Credential>, Error> {
        let (mut found, mut looked, mut problem) = (Vec::new(), Vec::new(), None);
        if let Some(key) = &self.bootstrap_secret {
            let place = format!("secret {key} of the seed");
            match secret::load(seed, key) {
                Ok(None) => {}
                Ok(Some(stored)) => {
                    let connection = stored.connection;
                    found.push(Credential { place: place.clone(), in_secret: true, connection });
                }
                Err(error @ Error::Kube { .. }) => return Err(error),
                Err(error) => problem = Some(error),
            }
            looked.push(place);
        }
        for path in &self.bootstrap_files {
            let place = format!("file {}", path.display());
            if path.exists() {
                match from_file(path) {
                    Ok(connection) => {
                        found.push(Credential { place: place.clone(), in_secret: false, connection });
                    }
                    Err(error) => problem = problem.or(Some(error)),
                }
            }
            looked.push(place);
        }
        if !found.is_empty() {
            return Ok(found);
        }
        Err(problem.unwrap_or_else(|| nothing(&looked)))
    }
}

fn nothing(looked: &[String]) -> Error {
    let (place, remedy) = match looked {
        [] => (
            "gardenClientConnection.bootstrapKubeconfig or edge.bootstrap.kubeconfig".to_owned(),
            "neither is set; name a place, and supply a bootstrap kubeconfig for the garden there",
        ),
        [one] if one.starts_with("file") => {
            (one.clone(), "supply a bootstrap kubeconfig for the garden there")
        }
        [one] => (one.clone(), "supply a bootstrap kubeconfig for the garden in its key kubeconfig"),
        more => (more.join(" or "), "supply a bootstrap kubeconfig for the garden in one of them"),
    };
    Error::NoKubeconfig { place, remedy }
}

fn from_file(path: &Path) -> Result<Connection, Error> {
    let read = kubeconfig::load(&[path.to_owned()]).and_then(|config| config.current());
    read.map_err(|source| Error::Kubeconfig { place: path.display().to_string(), source })
}

/// Obtains an identity in steps: the first one, or a new one when the garden no longer accepts the current one.
#[derive(Debug)]
pub(crate) struct IdentityBootstrap {
    sources: IdentitySources,
    seed_name: String,
    validity: Option<Duration>,
    clock: Clock,
    state: StateDir,
    bootstrap: Option<(Credential, Garden, Issuer)>,
    /// Credentials that failed, until all have failed.
    failed: Vec<Connection>,
}

/// The file for a pending bootstrap request in the state directory.
const SLOT: &str = "bootstrap-request";

impl IdentityBootstrap {
    /// `validity` is the requested validity; `None` leaves it to the signer.
    pub(crate) fn new(
        sources: IdentitySources,
        seed_name: String,
        validity: Option<Duration>,
        clock: Clock,
        state: StateDir,
    ) -> Self {
        Self { sources, seed_name, validity, clock, state, bootstrap: None, failed: Vec::new() }
    }

    /// One step towards the first identity. Errors: [`Error`] names place and remedy;
    /// the next call continues.
    pub(crate) fn step(&mut self, seed: &Client, connect: Connect<'_>) -> Result<BootstrapProgress, Error> {
        if let Some(key) = &self.sources.kubeconfig_secret {
            // Checked in each step: an operator or another replica may have supplied it meanwhile.
            if let Some(stored) = secret::load(seed, key)? {
                return Ok(BootstrapProgress::Ready(stored.connection));
            }
            if self.sources.wants_bootstrap() {
                return self.again(seed, connect);
            }
        }
        let path = self.sources.kubeconfig_path.as_ref().ok_or(Error::NotConfigured)?;
        from_file(path).map(BootstrapProgress::Ready)
    }

    /// One step towards a new identity, even if one is stored. Errors: as [`IdentityBootstrap::step`].
    pub(crate) fn again(&mut self, seed: &Client, connect: Connect<'_>) -> Result<BootstrapProgress, Error> {
        let (from, garden, mut issuer) = self.bootstrap_parts(seed, connect)?;
        let progress = issuer.step(&garden);
        let (place, connection) = (from.place.clone(), from.connection.clone());
        self.bootstrap = Some((from, garden, issuer));
        match progress {
            Ok(RequestProgress::Waiting { after, csr_name }) => Ok(BootstrapProgress::Waiting {
                after,
                what: format!("approval of certificate request {csr_name}"),
            }),
            Ok(RequestProgress::Issued(issued)) => self.store(seed, issued).map(BootstrapProgress::Ready),
            Err(source) => {
                // Another credential may work, and this one may have been replaced before the next attempt.
                self.bootstrap = None;
                if matches!(source, Error::Kube { .. }) {
                    self.failed.push(connection);
                }
                Err(Error::Bootstrap { place, source: Box::new(source) })
            }
        }
    }

    fn bootstrap_parts(
        &mut self,
        seed: &Client,
        connect: Connect<'_>,
    ) -> Result<(Credential, Garden, Issuer), Error> {
        if let Some(parts) = self.bootstrap.take() {
            return Ok(parts);
        }
        let mut all = self.sources.credentials(seed)?;
        let untried = all.iter().position(|credential| !self.failed.contains(&credential.connection));
        if untried.is_none() {
            self.failed.clear();
        }
        let credential = all.swap_remove(untried.unwrap_or(0));
        let garden = connect(credential.connection.clone()).map_err(|source| {
            self.failed.push(credential.connection.clone());
            Error::kube(format!("connect with the bootstrap kubeconfig in {}", credential.place))(source)
        })?;
        let subject = seed_subject(&self.seed_name);
        let issuer = Issuer::new(self.clock.clone(), self.state.clone(), SLOT, subject, self.validity);
        Ok((credential, garden, issuer))
    }

    /// Stores the Secret, then deletes the bootstrap Secret, then the key on disk: a crash in between loses nothing.
    fn store(&mut self, seed: &Client, issued: Issued) -> Result<Connection, Error> {
        let Some((from, _, issuer)) = &mut self.bootstrap else { return Err(Error::NotConfigured) };
        let connection =
            from.connection.clone().with_certificate(issued.certificate_pem, issued.key_pem.expose().clone());
        if let Some(key) = &self.sources.kubeconfig_secret {
            secret::store(seed, key, &connection, false)?;
        }
        issuer.discard();
        let goes = from.in_secret && !self.sources.keep_bootstrap;
        let (csr, place) = (issued.csr_name.as_str(), from.place.as_str());
        log::info!(csr, from = place; "Received the certificate for the garden");
        self.bootstrap = None;
        self.failed.clear();
        if let Some(key) = self.sources.bootstrap_secret.as_ref().filter(|_| goes) {
            remove_bootstrap_secret(seed, key)?;
        }
        Ok(connection)
    }
}

/// Deletes the bootstrap Secret in the seed, if it exists. Errors: if the seed refuses.
pub(crate) fn remove_bootstrap_secret(seed: &Client, key: &Key) -> Result<(), Error> {
    match seed.delete(&SECRET, key, &DeleteParams::default()) {
        Err(e) if !e.is_not_found() => Err(Error::kube(format!("delete secret {key} in the seed"))(e)),
        _ => Ok(()),
    }
}
