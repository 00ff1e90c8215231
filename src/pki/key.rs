//! The agent's own key: ECDSA P-256, stored as PKCS#8 and written as PEM `EC PRIVATE KEY`, as the Go gardenlet writes
//! it into the kubeconfig.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};

use crate::base::redact::Secret;
use crate::format::base64;

use super::Error;

/// A private key. Never formats its content.
#[derive(Clone, Debug)]
pub struct PrivateKey {
    pkcs8: Secret<Vec<u8>>,
}

/// The bytes before the 32 bytes of the private number in the PKCS#8 document that ring writes for P-256.
const PKCS8_HEAD: [u8; 36] = [
    0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
    0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x6d, 0x30, 0x6b, 0x02, 0x01, 0x01,
    0x04, 0x20,
];
/// The bytes between the private number and the point.
const PKCS8_MIDDLE: [u8; 5] = [0xa1, 0x44, 0x03, 0x42, 0x00];
/// The bytes before the point in a `SubjectPublicKeyInfo` for P-256.
const PUBLIC_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const NUMBER_BYTES: usize = 32;
const POINT_BYTES: usize = 65;

impl PrivateKey {
    /// A new key. Errors: if the system has no random numbers.
    pub fn generate() -> Result<Self, Error> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new())
            .map_err(|_| Error::Key("generate an ECDSA P-256 key"))?;
        Self::from_pkcs8(document.as_ref().to_vec())
    }

    /// Reads a key that [`PrivateKey::pkcs8`] returned. Errors: if it is not a P-256 key in that format.
    pub fn from_pkcs8(pkcs8: Vec<u8>) -> Result<Self, Error> {
        let middle = PKCS8_HEAD.len() + NUMBER_BYTES;
        let known = pkcs8.len() == middle + PKCS8_MIDDLE.len() + POINT_BYTES
            && pkcs8.starts_with(&PKCS8_HEAD)
            && pkcs8[middle..].starts_with(&PKCS8_MIDDLE);
        if known { Ok(Self { pkcs8: pkcs8.into() }) } else { Err(Error::Key("read an ECDSA P-256 key")) }
    }

    /// The key as a PKCS#8 document, for the state directory and for signing.
    pub fn pkcs8(&self) -> &[u8] {
        self.pkcs8.expose()
    }

    /// The public key as DER `SubjectPublicKeyInfo`.
    pub fn public_key(&self) -> Vec<u8> {
        let pkcs8 = self.pkcs8.expose();
        [&PUBLIC_HEAD, &pkcs8[pkcs8.len() - POINT_BYTES..]].concat()
    }

    /// Signs (ECDSA with SHA-256, in DER). Errors: if the key is invalid, or the system
    /// has no random numbers.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let random = SystemRandom::new();
        let wrong = |_| Error::Key("sign with an ECDSA P-256 key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, self.pkcs8(), &random)
            .map_err(|_| Error::Key("read an ECDSA P-256 key"))?;
        Ok(pair.sign(&random, message).map_err(wrong)?.as_ref().to_vec())
    }

    /// The key as PEM `EC PRIVATE KEY` (RFC 5915) with the curve named: Go requires the name.
    pub fn to_pem(&self) -> Secret<String> {
        let pkcs8 = self.pkcs8.expose();
        let number = &pkcs8[PKCS8_HEAD.len()..PKCS8_HEAD.len() + NUMBER_BYTES];
        let mut der = vec![0x30, 0x77, 0x02, 0x01, 0x01, 0x04, 0x20];
        der.extend_from_slice(number);
        der.extend_from_slice(&[0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]);
        der.extend_from_slice(&PKCS8_MIDDLE);
        der.extend_from_slice(&pkcs8[pkcs8.len() - POINT_BYTES..]);
        pem("EC PRIVATE KEY", &der).into()
    }
}

/// One PEM block with lines of 64 characters.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = tail;
    }
    out.push_str("-----END ");
    out.push_str(label);
    out.push_str("-----\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_own_form() {
        let key = PrivateKey::generate().unwrap();
        let again = PrivateKey::from_pkcs8(key.pkcs8().to_vec()).unwrap();
        assert_eq!(again.to_pem(), key.to_pem());
        assert!(PrivateKey::from_pkcs8(vec![0; 138]).is_err());
    }

    #[test]
    fn the_pem_is_a_key_that_tls_reads() {
        let pem = PrivateKey::generate().unwrap().to_pem();
        let text = pem.expose();
        assert!(text.starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
        assert!(text.ends_with("-----END EC PRIVATE KEY-----\n"));
        assert!(text.lines().all(|line| line.len() <= 64));
        let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
        let der = base64::decode(body.as_bytes()).unwrap();
        assert_eq!((der.len(), usize::from(der[1]) + 2), (121, 121));
    }

    #[test]
    fn a_key_is_never_printed() {
        let key = PrivateKey::generate().unwrap();
        assert_eq!(format!("{key:?}"), "PrivateKey { pkcs8: [redacted] }");
    }
}
