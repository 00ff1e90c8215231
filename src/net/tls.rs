//! The client side of TLS. Each handshake has a configuration of its own, built from the current answers of the
//! [`TlsParty`].

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    SignatureScheme,
};

use super::client_auth;
use super::error::TlsError;
use super::trust::{self, CertificateClock, TlsParty, TrustedRoots};
use crate::base::clock::Clock;

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(ring::default_provider())))
}

/// A TLS connection to `name` that has not sent anything yet.
pub(super) fn start(
    name: &str,
    party: &dyn TlsParty,
    clock: CertificateClock,
    second: Option<Clock>,
) -> Result<ClientConnection, TlsError> {
    let server = ServerName::try_from(name.to_owned())
        .map_err(|_| TlsError::Material(format!("{name:?} is not a valid name for a certificate")))?;
    let config = config(party, clock, second)?;
    ClientConnection::new(Arc::new(config), server).map_err(|error| classify(&error))
}

fn config(
    party: &dyn TlsParty,
    clock: CertificateClock,
    second: Option<Clock>,
) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_details(provider(), Arc::new(clock))
        .with_safe_default_protocol_versions()
        .map_err(|error| classify(&error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier(&party.roots()?, second.map(CertificateClock))?);
    let mut config = match party.certificate()? {
        None => builder.with_no_client_auth(),
        Some(pair) => builder.with_client_cert_resolver(client_auth::resolver(&pair, &provider())?),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session would skip the verification against the current trust.
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn verifier(
    roots: &TrustedRoots,
    second: Option<CertificateClock>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let (store, pinned) = match roots {
        TrustedRoots::Insecure => return Ok(Arc::new(Verifier { webpki: None, pinned: Vec::new(), second })),
        TrustedRoots::System(cas) => (trust::system_roots(cas)?, Vec::new()),
        TrustedRoots::Pem(pem) => trust::bundle_roots(pem)?,
    };
    let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider())
        .build()
        .map_err(|error| TlsError::Material(format!("CA bundle: {error}")))?;
    Ok(Arc::new(Verifier { webpki: Some(webpki), pinned, second }))
}

/// Why the server's signature of the handshake does not verify. Reporting `BadSignature` would blame a CA.
fn no_key(leaf: &CertificateDer<'_>) -> rustls::Error {
    let why = client_auth::unusable_server_key(leaf);
    rustls::Error::General(
        why.unwrap_or_else(|| "the server does not have the key of its certificate".to_owned()),
    )
}

/// Verifies as webpki does. Like Go, it also accepts a server certificate that is in the bundle itself.
#[derive(Debug)]
struct Verifier {
    /// `None` trusts every server: `insecure-skip-tls-verify`.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    pinned: Vec<CertificateDer<'static>>,
    /// A second clock, for a certificate that is expired or not valid yet by the first clock. Either clock may be
    /// wrong, and without a connection the agent could not learn the right time.
    second: Option<CertificateClock>,
}

impl Verifier {
    fn signature(
        &self,
        leaf: &CertificateDer<'_>,
        check: impl FnOnce(&WebPkiServerVerifier) -> Result<HandshakeSignatureValid, rustls::Error>,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let Some(webpki) = &self.webpki else { return Ok(HandshakeSignatureValid::assertion()) };
        check(webpki).map_err(|_| no_key(leaf))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(webpki) = &self.webpki else { return Ok(ServerCertVerified::assertion()) };
        let verify = |now| match webpki.verify_server_cert(leaf, intermediates, name, ocsp, now) {
            Err(_) if self.pinned.contains(leaf) => verify_pinned(leaf, name, now),
            result => result,
        };
        let result = verify(now);
        match (&result, &self.second) {
            (Err(error), Some(second)) if is_about_time(error) => verify(second.now()).or(result),
            _ => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signature(leaf, |webpki| webpki.verify_tls12_signature(message, leaf, signature))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signature(leaf, |webpki| webpki.verify_tls13_signature(message, leaf, signature))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

fn is_about_time(error: &rustls::Error) -> bool {
    use CertificateError as E;
    matches!(
        error,
        rustls::Error::InvalidCertificate(
            E::Expired | E::ExpiredContext { .. } | E::NotValidYet | E::NotValidYetContext { .. }
        )
    )
}

/// A certificate that the bundle itself contains; its name and validity are still checked.
fn verify_pinned(
    leaf: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, rustls::Error> {
    rustls::client::verify_server_name(&ParsedCertificate::try_from(leaf)?, name)?;
    let bad = rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|_| bad.clone())?;
    let seconds =
        |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).map_err(|_| bad.clone());
    let (from, to) = (seconds(parsed.validity.not_before)?, seconds(parsed.validity.not_after)?);
    let unix = |s: u64| UnixTime::since_unix_epoch(std::time::Duration::from_secs(s));
    if now.as_secs() > to {
        return Err(CertificateError::ExpiredContext { time: now, not_after: unix(to) }.into());
    }
    if now.as_secs() < from {
        return Err(CertificateError::NotValidYetContext { time: now, not_before: unix(from) }.into());
    }
    Ok(ServerCertVerified::assertion())
}

/// Translates an error of rustls for operators.
pub(super) fn classify(error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::InvalidCertificate(problem) => classify_certificate(problem),
        rustls::Error::AlertReceived(alert) if is_refusal(*alert) => TlsError::Refused(format!("{alert:?}")),
        rustls::Error::NoCertificatesPresented => bad("the server shows no certificate"),
        // Only our own verifier creates it.
        rustls::Error::General(text) => bad(text),
        rustls::Error::InvalidMessage(_) => TlsError::Handshake("the peer does not speak TLS".to_owned()),
        other => TlsError::Handshake(other.to_string()),
    }
}

const fn is_refusal(alert: AlertDescription) -> bool {
    use AlertDescription as A;
    matches!(
        alert,
        A::CertificateRequired
            | A::BadCertificate
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::CertificateRevoked
            | A::UnsupportedCertificate
            | A::UnknownCA
            | A::AccessDenied
    )
}

fn bad(text: &str) -> TlsError {
    TlsError::BadCertificate(text.to_owned())
}

fn classify_certificate(problem: &CertificateError) -> TlsError {
    match problem {
        CertificateError::UnknownIssuer => TlsError::UnknownIssuer,
        CertificateError::BadSignature => TlsError::BadSignature,
        CertificateError::ExpiredContext { time, not_after } => {
            TlsError::Expired { now_s: time.as_secs(), not_after_s: not_after.as_secs() }
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            TlsError::NotYetValid { now_s: time.as_secs(), not_before_s: not_before.as_secs() }
        }
        CertificateError::NotValidForNameContext { expected, presented } if presented.is_empty() => {
            TlsError::WrongName(format!(
                "the certificate has no subject alternative name, so it is not valid for {}",
                expected.to_str()
            ))
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare_name(name)).collect();
            let expected = expected.to_str();
            // A certificate that has an IP address as a DNS name.
            let hint = if names.contains(&&*expected) { " as an IP address" } else { "" };
            let names = names.join(", ");
            TlsError::WrongName(format!("the certificate is valid for {names}, not for {expected}{hint}"))
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            bad("the chain uses an unsupported signature algorithm (SHA-1, P-521)")
        }
        CertificateError::Other(reason) => TlsError::BadCertificate(unusable(&reason.to_string())),
        other => TlsError::BadCertificate(other.to_string()),
    }
}

/// webpki formats names for programmers: `DnsName("a")`, `IpAddress(::1)`.
fn bare_name(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')'));
    inner.trim_matches('"')
}

/// Explanations of webpki errors that are typical for private CAs. The errors arrive wrapped. The code reads webpki's
/// names for them, not rustls' text of the whole: shipped programs omit nested values (`cross/common`).
const REASONS: [(&str, &str); 4] = [
    ("UnsupportedCertVersion", "a certificate of the chain is not X.509 v3; recreate it with extensions"),
    ("CaUsedAsEndEntity", "the server's certificate, the first of its chain, is a CA certificate"),
    ("NameConstraint", "a CA of the chain may not issue for these names"),
    // The length limit of a CA, and the one of webpki.
    ("Path", "the chain is too long"),
];

fn unusable(reason: &str) -> String {
    let known = REASONS.iter().find(|(name, _)| reason.contains(name));
    known.map_or(reason, |(_, text)| text).to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::pem::PemObject;

    use super::*;

    const V1_CA: &str = include_str!("testdata/v1-ca.pem");
    const V1_LEAF: &str = include_str!("testdata/v1-leaf.pem");
    const V3_LEAF: &str = include_str!("testdata/v3-leaf-of-v1-ca.pem");

    fn verify(roots: &str, leaf: &str, host: &str) -> Result<(), String> {
        let leaf = CertificateDer::from_pem_slice(leaf.as_bytes()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_893_456_000));
        let verifier =
            verifier(&TrustedRoots::Pem(roots.as_bytes().into()), None).map_err(|error| error.to_string())?;
        verifier
            .verify_server_cert(&leaf, &[], &ServerName::try_from(host.to_owned()).unwrap(), &[], now)
            .map(drop)
            .map_err(|error| classify(&error).to_string())
    }

    /// A certificate that `openssl x509 -req` creates without extensions.
    #[test]
    fn certificates_of_version_one_are_named() {
        let table = [
            (V1_CA, V3_LEAF, "127.0.0.1", Ok(())),
            (
                V1_CA,
                V1_LEAF,
                "127.0.0.1",
                Err("a certificate of the chain is not X.509 v3; recreate it with extensions"),
            ),
            (V1_CA, V3_LEAF, "other", Err("the certificate is valid for 127.0.0.1, not for other")),
        ];
        for (roots, leaf, host, expected) in table {
            assert_eq!(verify(roots, leaf, host), expected.map_err(str::to_owned), "{host}");
        }
    }

    #[test]
    fn errors_of_the_handshake_say_whose_fault_it_is() {
        let alert = |alert| classify(&rustls::Error::AlertReceived(alert));
        assert!(matches!(alert(AlertDescription::CertificateExpired), TlsError::Refused(_)));
        assert!(matches!(alert(AlertDescription::HandshakeFailure), TlsError::Handshake(_)));
        let empty = CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("kube").unwrap(),
            presented: Vec::new(),
        };
        let text = classify(&empty.into()).to_string();
        assert_eq!(text, "the certificate has no subject alternative name, so it is not valid for kube");
    }
}
