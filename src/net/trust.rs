//! Trust and identity of a connection, read again for each handshake, so that both can change while the program runs.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, UnixTime};

use super::error::TlsError;
use crate::base::capped;
use crate::base::clock::Clock;
use crate::limits::{SYSTEM_CA_FILES_MAX, SYSTEM_CAS_BYTES_MAX};

/// Provides trust and identity for each handshake.
pub trait TlsParty: Send + Sync + fmt::Debug {
    /// The trusted CAs. Errors: [`TlsError::Material`] if they cannot be read.
    fn roots(&self) -> Result<TrustedRoots, TlsError>;

    /// The client certificate, if there is one. Errors: [`TlsError::Material`] if it cannot be read.
    fn certificate(&self) -> Result<Option<CertificatePair>, TlsError>;
}

/// The trusted servers.
#[derive(Clone, Debug)]
pub enum TrustedRoots {
    /// The CAs of the system.
    System(SystemCas),
    /// Certificates in the form PEM.
    Pem(Arc<[u8]>),
    /// Every server.
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

/// Where the system's CAs are, in addition to the paths of distributions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemCas {
    /// `SSL_CERT_FILE`: a bundle in place of the distribution's.
    pub(crate) file: Option<PathBuf>,
    /// `SSL_CERT_DIR`: additional directories of certificates.
    pub(crate) folders: Vec<PathBuf>,
}

impl SystemCas {
    /// The settings of an environment.
    pub(crate) fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let read = |name: &str| lookup(name).unwrap_or_default();
        let (file, folders) = (read("SSL_CERT_FILE"), read("SSL_CERT_DIR"));
        let folders = folders.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from).collect();
        Self { file: (!file.is_empty()).then(|| file.into()), folders }
    }
}

/// A party without certificate that trusts the system's CAs: our identity towards proxies and registries.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnonymousParty {
    /// The location of the CAs.
    pub(crate) system_cas: SystemCas,
}

impl TlsParty for AnonymousParty {
    fn roots(&self) -> Result<TrustedRoots, TlsError> {
        Ok(TrustedRoots::System(self.system_cas.clone()))
    }

    fn certificate(&self) -> Result<Option<CertificatePair>, TlsError> {
        Ok(None)
    }
}

/// The clock for checking certificates.
#[derive(Clone, Debug)]
pub(super) struct CertificateClock(pub(super) Clock);

impl CertificateClock {
    pub(super) fn now(&self) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(self.0.now().unix()).unwrap_or(0)))
    }
}

impl rustls::time_provider::TimeProvider for CertificateClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.now())
    }
}

/// Where distributions keep their CA bundle.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The CAs of the system, without those that are unusable.
pub(super) fn system_roots(cas: &SystemCas) -> Result<RootCertStore, TlsError> {
    let unusable = |path: &Path, error: io::Error| {
        TlsError::Material(format!("CAs of the system, {}: {error}", path.display()))
    };
    let read = |path: &Path| capped::read_file(path, SYSTEM_CAS_BYTES_MAX);
    let bundle = match &cas.file {
        Some(path) => Some(read(path).map_err(|error| unusable(path, error))?),
        None => SYSTEM_BUNDLES.iter().find_map(|path| read(Path::new(path)).ok()),
    };
    let mut store = RootCertStore::empty();
    let mut add = |pem: &[u8]| {
        store.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    };
    add(bundle.as_deref().unwrap_or_default());
    for folder in &cas.folders {
        let paths = certificate_files(folder).map_err(|error| unusable(folder, error))?;
        // The directory may contain other files.
        paths.iter().filter_map(|path| read(path).ok()).for_each(|pem| add(&pem));
    }
    if !store.is_empty() {
        return Ok(store);
    }
    let nothing = if bundle.is_none() && cas.folders.is_empty() {
        "the system has no bundle of CAs; SSL_CERT_FILE can name one"
    } else {
        "no usable CA among those of the system"
    };
    Err(TlsError::Material(nothing.to_owned()))
}

/// The files of a directory, each once: OpenSSL's hash links point to files beside them.
fn certificate_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.take(SYSTEM_CA_FILES_MAX).filter_map(|entry| Some(entry.ok()?.path()));
    let is_name = |target: PathBuf| target.components().count() == 1;
    Ok(paths.filter(|path| !fs::read_link(path).is_ok_and(is_name)).collect())
}

/// The CAs of a configured bundle, and the certificates themselves. Each must be usable: somebody configured it.
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

/// The certificates of a PEM text, at least one.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match parsed {
        Ok(list) if list.is_empty() => Err("no PEM certificate in it".to_owned()),
        Ok(list) => Ok(list),
        Err(error) => Err(why_unreadable(&error).to_owned()),
    }
}

/// What is wrong with a PEM text. The parser's own words repeat the broken line, which may belong to a private key.
fn why_unreadable(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "a PEM block has no line -----END ...-----, or another one than its BEGIN line says"
        }
        pem::Error::IllegalSectionStart { .. } => {
            "a line -----BEGIN ...----- of PEM is incomplete, or has more after it: it must stand on a line of its own"
        }
        pem::Error::Base64Decode(_) => "the content of a PEM block is not base64",
        _ => "it is not readable as PEM",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random;
    use crate::net::testing::Ca;

    #[test]
    fn the_cas_of_the_system_are_where_the_environment_says() {
        let of = |file: &'static str, folders: &'static str| {
            SystemCas::from_lookup(move |name| match name {
                "SSL_CERT_FILE" => Some(file.to_owned()),
                "SSL_CERT_DIR" => Some(folders.to_owned()),
                _ => None,
            })
        };
        assert_eq!(SystemCas::from_lookup(|_| None), SystemCas::default());
        assert_eq!(of("", ":"), SystemCas::default());
        let both = SystemCas { file: Some("/a.pem".into()), folders: vec!["/b".into(), "/c".into()] };
        assert_eq!(of("/a.pem", "/b::/c"), both);

        let place = std::env::temp_dir().join(format!("gardenlet-cas-{}", random::hex(12)));
        let (empty, full) = (place.join("empty"), place.join("full"));
        [&empty, &full].into_iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
        let [a, b, c] = ["a", "b", "c"].map(|name| Ca::new(name).pem());
        fs::write(place.join("a.pem"), &a).unwrap();
        fs::write(full.join("b.pem"), &b).unwrap();
        fs::write(full.join("README"), "no certificate").unwrap();
        std::os::unix::fs::symlink("b.pem", full.join("1234abcd.0")).unwrap();
        fs::write(place.join("c.pem"), &c).unwrap();
        std::os::unix::fs::symlink("../c.pem", full.join("c.pem")).unwrap();
        let count = |file: Option<PathBuf>, folders: &[&PathBuf]| {
            let folders = folders.iter().map(|folder| (*folder).clone()).collect();
            system_roots(&SystemCas { file, folders }).map(|store| store.len()).map_err(|e| e.to_string())
        };
        assert_eq!(count(Some(place.join("a.pem")), &[]), Ok(1));
        assert_eq!(count(Some(place.join("a.pem")), &[&empty, &full]), Ok(3), "each once");
        let none = "no usable CA among those of the system".to_owned();
        assert_eq!(count(Some(full.join("README")), &[&empty]), Err(none));
        let missing = count(Some(place.join("a.pem")), &[&place.join("gone")]).unwrap_err();
        assert!(missing.contains("/gone: No such file"), "{missing}");
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn unusable_material_is_named() {
        let junk = CertificatePair { chain_pem: (*b"junk").into(), key_pem: (*b"junk").into() };
        let not_der = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(
            bundle_roots(not_der).unwrap_err().to_string().starts_with("CA bundle: unusable certificate")
        );
        let table = [
            ("", "no PEM certificate in it"),
            (
                "-----BEGIN PRIVATE KEY-----aHVudGVyMg==\n-----END PRIVATE KEY-----\n",
                "a line -----BEGIN ...----- of PEM is incomplete, or has more after it: it must stand on a line of its own",
            ),
            (
                "-----BEGIN PRIVATE KEY-----\naHVudGVyMg==\n",
                "a PEM block has no line -----END ...-----, or another one than its BEGIN line says",
            ),
            (
                "-----BEGIN CERTIFICATE-----\nhunter2!\n-----END CERTIFICATE-----\n",
                "the content of a PEM block is not base64",
            ),
        ];
        for (pem, text) in table {
            assert_eq!(bundle_roots(pem.as_bytes()).unwrap_err().to_string(), format!("CA bundle: {text}"));
        }
        let missing = SystemCas { file: Some("/nonexistent".into()), ..SystemCas::default() };
        let text = system_roots(&missing).unwrap_err().to_string();
        assert!(text.starts_with("CAs of the system, /nonexistent: No such file"), "{text}");
        assert!(!format!("{junk:?}").contains("106"), "no bytes in {junk:?}");
    }
}
