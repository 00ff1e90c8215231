//! Our own certificate in a handshake.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::error::TlsError;
use super::trust::{self, CertificatePair};

/// With smaller RSA keys, ring neither signs nor verifies.
const RSA_BITS_MIN: usize = 2_048;
/// With larger RSA keys, ring does not sign.
const OWN_RSA_BITS_MAX: usize = 4_096;
/// With larger RSA keys, ring does not verify.
const RSA_BITS_MAX: usize = 8_192;

/// The certificate that we show to servers. Like Go, this accepts certificates of X.509 version 1. Errors:
/// [`TlsError::Material`] if certificate or key cannot be read or used, or do not belong together.
pub(super) fn resolver(
    pair: &CertificatePair,
    provider: &CryptoProvider,
) -> Result<Arc<dyn ResolvesClientCert>, TlsError> {
    let wrong = |why: &str| TlsError::Material(format!("client certificate: {why}"));
    let chain = trust::certificates(&pair.chain_pem).map_err(|why| wrong(&why))?;
    let key = PrivateKeyDer::from_pem_slice(&pair.key_pem)
        .map_err(|_| TlsError::Material("client key: no PEM private key, or an encrypted one".to_owned()))?;
    let (_, leaf) = x509_parser::parse_x509_certificate(&chain[0])
        .map_err(|_| wrong("its first PEM block is not an X.509 certificate"))?;
    if let Some(found) = unusable_key(leaf.public_key(), OWN_RSA_BITS_MAX) {
        return Err(wrong(&format!(
            "it has {found}: make one with an ECDSA key on P-256 or P-384, an Ed25519 key, or an RSA key of {RSA_BITS_MIN} to \
             {OWN_RSA_BITS_MAX} bits"
        )));
    }
    let key = provider.key_provider.load_private_key(key).map_err(|_| {
        TlsError::Material(
            "client key: it is broken, or of another kind than its certificate says".to_owned(),
        )
    })?;
    if key.public_key().is_some_and(|ours| *ours != *leaf.public_key().raw) {
        return Err(wrong("it is for another key than the client key beside it"));
    }
    Ok(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))))
}

/// The words for a server's key with which ring cannot verify a signature.
pub(super) fn unusable_server_key(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let found = unusable_key(certificate.public_key(), RSA_BITS_MAX)?;
    Some(format!(
        "the server's certificate has {found}: it needs an ECDSA key on P-256 or P-384, an Ed25519 key, or an RSA key of \
         {RSA_BITS_MIN} to {RSA_BITS_MAX} bits"
    ))
}

/// The words for a key of a kind or size that ring does not know.
fn unusable_key(key: &SubjectPublicKeyInfo<'_>, rsa_bits_max: usize) -> Option<String> {
    let kind = &key.algorithm.algorithm;
    if *kind == OID_SIG_ED25519 {
        return None;
    }
    if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY {
        let curve = key.algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
        let is_known = curve.is_some_and(|curve| curve == OID_EC_P256 || curve == OID_NIST_EC_P384);
        return (!is_known).then(|| "an ECDSA key on another curve than P-256 and P-384".to_owned());
    }
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) if *kind == OID_PKCS1_RSAENCRYPTION => {
            let bits = rsa.key_size();
            (!(RSA_BITS_MIN..=rsa_bits_max).contains(&bits)).then(|| format!("an RSA key of {bits} bits"))
        }
        _ => Some("a key that is none of RSA, ECDSA and Ed25519".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rustls::client::danger::HandshakeSignatureValid;
    use rustls::crypto::verify_tls13_signature_with_raw_key;
    use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
    use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
    use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme};

    use super::*;
    use crate::base::clock::Clock;
    use crate::net::testing::Ca;
    use crate::net::tls;
    use crate::net::trust::{CertificateClock, TlsParty, TrustedRoots};

    /// openssl made these: certificate and key in one file.
    const V1: &str = include_str!("testdata/v1-client.pem");
    const RSA_1024: &str = include_str!("testdata/rsa1024-client.pem");
    const P521: &str = include_str!("testdata/p521-client.pem");
    const ED448: &str = include_str!("testdata/ed448-client.pem");

    fn refusal(chain: &str, key: &str) -> String {
        let pair = CertificatePair { chain_pem: chain.as_bytes().into(), key_pem: key.as_bytes().into() };
        let made = resolver(&pair, &rustls::crypto::ring::default_provider());
        made.map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn our_own_certificate_needs_a_usable_key() {
        let wanted = "make one with an ECDSA key on P-256 or P-384, an Ed25519 key, or an RSA key of 2048 to 4096 bits";
        let ca = Ca::new("ca");
        let ours = ca.issue("one", &[], 2020..2120);
        let no_key = V1.split_once("-----BEGIN PRIVATE").unwrap().0;
        let table = [
            (V1, V1, String::new()),
            (&ours.chain, &ours.key, String::new()),
            (RSA_1024, RSA_1024, format!("client certificate: it has an RSA key of 1024 bits: {wanted}")),
            (
                P521,
                P521,
                format!(
                    "client certificate: it has an ECDSA key on another curve than P-256 and P-384: {wanted}"
                ),
            ),
            (
                ED448,
                ED448,
                format!("client certificate: it has a key that is none of RSA, ECDSA and Ed25519: {wanted}"),
            ),
            (
                &ours.chain,
                V1,
                "client certificate: it is for another key than the client key beside it".to_owned(),
            ),
            (
                V1,
                RSA_1024,
                "client key: it is broken, or of another kind than its certificate says".to_owned(),
            ),
            (V1, no_key, "client key: no PEM private key, or an encrypted one".to_owned()),
            ("junk", V1, "client certificate: no PEM certificate in it".to_owned()),
        ];
        for (chain, key, expected) in table {
            assert_eq!(refusal(chain, key), expected);
        }
        let server = unusable_server_key(&trust::certificates(RSA_1024.as_bytes()).unwrap()[0]).unwrap();
        assert!(
            server.starts_with("the server's certificate has an RSA key of 1024 bits: it needs "),
            "{server}"
        );
        assert_eq!(unusable_server_key(&trust::certificates(V1.as_bytes()).unwrap()[0]), None);
    }

    /// Accepts each certificate whose key the client has, as a server without webpki's rules does.
    #[derive(Debug)]
    struct AnyClient(Arc<CryptoProvider>);

    impl ClientCertVerifier for AnyClient {
        fn root_hint_subjects(&self) -> &[DistinguishedName] {
            &[]
        }

        fn verify_client_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: UnixTime,
        ) -> Result<ClientCertVerified, rustls::Error> {
            Ok(ClientCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("both sides know TLS 1.3".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let (_, read) = x509_parser::parse_x509_certificate(certificate).unwrap();
            let key = SubjectPublicKeyInfoDer::from(read.public_key().raw);
            let algorithms = &self.0.signature_verification_algorithms;
            verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }

    #[derive(Debug)]
    struct Ours;

    impl TlsParty for Ours {
        fn roots(&self) -> Result<TrustedRoots, TlsError> {
            Ok(TrustedRoots::Insecure)
        }

        fn certificate(&self) -> Result<Option<CertificatePair>, TlsError> {
            Ok(Some(CertificatePair { chain_pem: V1.as_bytes().into(), key_pem: V1.as_bytes().into() }))
        }
    }

    /// Webpki, which rustls asks for certificates given to it as PEM, refuses this one.
    #[test]
    fn a_certificate_of_version_one_is_shown_to_the_server() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pair = Ca::new("ca").server();
        let chain = trust::certificates(pair.chain.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::new(AnyClient(provider)))
            .with_single_cert(chain, key)
            .unwrap();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let mut client = tls::start("localhost", &Ours, CertificateClock(Clock::system()), None).unwrap();
        let mut wire = Vec::new();
        while client.is_handshaking() || server.is_handshaking() {
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets().unwrap();
            wire.clear();
        }
        let expected = trust::certificates(V1.as_bytes()).unwrap();
        assert_eq!(server.peer_certificates(), Some(&expected[..]));
    }
}
