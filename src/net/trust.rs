//! Whom a connection believes and who it is: asked anew for each handshake, so that both can change while the program
//! runs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use super::error::TlsError;
use crate::base::clock::{Clock, Timestamp};

/// Answers for each handshake.
pub trait Party: Send + Sync + fmt::Debug {
    /// Whom to believe.
    ///
    /// # Errors
    /// [`TlsError::Material`] if it cannot be read.
    fn roots(&self) -> Result<Roots, TlsError>;

    /// Who we are.
    ///
    /// # Errors
    /// [`TlsError::Material`] if it cannot be read.
    fn certificate(&self) -> Result<Option<CertificatePair>, TlsError>;
}

/// Whom to believe.
#[derive(Clone, Debug)]
pub enum Roots {
    /// The CAs of the system; of this file, if it is given.
    System(Option<PathBuf>),
    /// PEM certificates.
    Pem(Arc<[u8]>),
    /// Everybody.
    Insecure,
}

/// A client certificate with its key, both PEM. Formats without them.
#[derive(Clone)]
pub struct CertificatePair {
    /// Leaf first.
    pub chain_pem: Arc<[u8]>,
    /// PKCS#8, PKCS#1 or SEC1.
    pub key_pem: Arc<[u8]>,
}

impl fmt::Debug for CertificatePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificatePair")
    }
}

/// A party without certificate that believes the CAs of the system: what we are to proxies and registries.
#[derive(Clone, Debug, Default)]
pub struct Anonymous {
    /// `SSL_CERT_FILE`, if set.
    pub ca_file: Option<PathBuf>,
}

impl Party for Anonymous {
    fn roots(&self) -> Result<Roots, TlsError> {
        Ok(Roots::System(self.ca_file.clone()))
    }

    fn certificate(&self) -> Result<Option<CertificatePair>, TlsError> {
        Ok(None)
    }
}

/// A time that certainly has passed: build time, or the last time seen. A clock that shows less is wrong.
#[derive(Clone, Debug, Default)]
pub struct ClockFloor(Arc<AtomicI64>);

impl ClockFloor {
    /// Raises the floor; a lower value changes nothing.
    pub fn raise(&self, to: Timestamp) {
        self.0.fetch_max(to.unix(), Ordering::Relaxed);
    }

    /// The time by `clock`, at least the floor.
    pub fn now(&self, clock: &Clock) -> Timestamp {
        clock.now().max(Timestamp::from_unix(self.0.load(Ordering::Relaxed)))
    }
}

/// The clock by which certificates are judged.
#[derive(Clone, Debug)]
pub(super) struct CertificateClock {
    pub(super) clock: Clock,
    pub(super) floor: ClockFloor,
}

impl rustls::time_provider::TimeProvider for CertificateClock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.floor.now(&self.clock).unix()).unwrap_or(0);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// Where distributions keep their bundle of CAs.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The CAs of the system. Certificates among them that we cannot use are left out.
pub(super) fn system_roots(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let pem = match file {
        Some(path) => fs::read(path)
            .map_err(|error| TlsError::Material(format!("CAs of the system, {}: {error}", path.display())))?,
        None => SYSTEM_BUNDLES.iter().find_map(|path| fs::read(path).ok()).ok_or_else(|| {
            TlsError::Material("the system has no bundle of CAs; SSL_CERT_FILE can name one".to_owned())
        })?,
    };
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if store.is_empty() {
        Err(TlsError::Material("no usable CA in the system's bundle".to_owned()))
    } else {
        Ok(store)
    }
}

/// The CAs of a configured bundle, with the certificates as they are. Each must be usable: somebody put it there.
pub(super) fn bundle_roots(pem: &[u8]) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), TlsError> {
    let certificates =
        certificates(pem).map_err(|problem| TlsError::Material(format!("CA bundle: {problem}")))?;
    let mut store = RootCertStore::empty();
    for certificate in &certificates {
        store
            .add(certificate.clone())
            .map_err(|error| TlsError::Material(format!("CA bundle: unusable certificate: {error}")))?;
    }
    Ok((store, certificates))
}

/// Certificate chain and key of a client.
pub(super) fn client_material(
    pair: &CertificatePair,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = certificates(&pair.chain_pem)
        .map_err(|problem| TlsError::Material(format!("client certificate: {problem}")))?;
    let key = PrivateKeyDer::from_pem_slice(&pair.key_pem)
        .map_err(|_| TlsError::Material("client key: no PEM private key".to_owned()))?;
    Ok((chain, key))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match parsed {
        Ok(list) if list.is_empty() => Err("no PEM certificate in it".to_owned()),
        Ok(list) => Ok(list),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Simulated;

    #[test]
    fn the_clock_never_reads_less_than_its_floor() {
        let clock = Clock::new(Simulated::new(Timestamp::from_unix(1_000), 1));
        let floor = ClockFloor::default();
        assert_eq!(floor.now(&clock).unix(), 1_000);
        floor.raise(Timestamp::from_unix(5_000));
        floor.raise(Timestamp::from_unix(2_000));
        assert_eq!(floor.now(&clock).unix(), 5_000);
    }

    #[test]
    fn unusable_material_is_named() {
        let junk = CertificatePair { chain_pem: (*b"junk").into(), key_pem: (*b"junk").into() };
        let table = [
            (bundle_roots(b"").unwrap_err(), "CA bundle: no PEM certificate in it"),
            (client_material(&junk).unwrap_err(), "client certificate: no PEM certificate in it"),
        ];
        for (error, text) in table {
            assert_eq!(error.to_string(), text);
        }
        let not_der = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(
            bundle_roots(not_der).unwrap_err().to_string().starts_with("CA bundle: unusable certificate")
        );
        assert!(system_roots(Some(Path::new("/nonexistent"))).is_err());
        assert!(!format!("{junk:?}").contains("106"), "no bytes in {junk:?}");
    }
}
