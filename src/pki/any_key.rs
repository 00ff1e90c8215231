//! Private keys of all kinds: generate, read and write PEM, and sign. RSA, ECDSA (P-256 and P-384) and Ed25519 keys can
//! sign; DSA keys can only be generated, read and written, as in Go.

use std::fmt;

use num_bigint::BigUint;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use x509_parser::pem::Pem;

use super::key::pem;
use super::{PrivateKey, prime};
use crate::base::random;
use crate::format::base64;
use crate::format::der::{self, DerReader};

/// A private key. Never formats its content.
#[derive(Clone)]
pub struct AnyKey(Kind);

#[derive(Clone)]
enum Kind {
    /// As PKCS#1.
    Rsa {
        pkcs1: Vec<u8>,
    },
    Ec {
        curve: &'static Curve,
        number: Vec<u8>,
        point: Vec<u8>,
    },
    Ed25519 {
        seed: Vec<u8>,
    },
    /// As OpenSSL writes it: version, p, q, g, y, x.
    Dsa {
        parts: Vec<u8>,
    },
}

impl fmt::Debug for AnyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

struct Curve {
    oid: &'static [u8],
    number_bytes: usize,
    signing: &'static EcdsaSigningAlgorithm,
    /// ecdsa-with-SHA256 or ecdsa-with-SHA384.
    signature_oid: &'static [u8],
}

static CURVES: [Curve; 2] = [
    Curve {
        oid: &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
        number_bytes: 32,
        signing: &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        signature_oid: &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
    },
    Curve {
        oid: &[0x2b, 0x81, 0x04, 0x00, 0x22],
        number_bytes: 48,
        signing: &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
        signature_oid: &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
    },
];

const EC_OID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const RSA_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const RSA_SHA256_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const ED25519_OID: &[u8] = &[0x2b, 0x65, 0x70];
/// `[0]` and `[1]` of an EC key: parameters and public key.
const CONTEXT_0: u8 = 0xa0;
const CONTEXT_1: u8 = 0xa1;

fn works() -> Result<(), String> {
    if random::works() { Ok(()) } else { Err("the system has no random numbers".to_owned()) }
}

fn given_up() -> String {
    "given up".to_owned()
}

/// A sequence of numbers after the format version, which is 0.
fn numbered(numbers: &[BigUint]) -> Vec<u8> {
    let mut parts = vec![der::unsigned(&[])];
    parts.extend(numbers.iter().map(|number| der::unsigned(&number.to_bytes_be())));
    der::element(der::SEQUENCE, &parts.concat())
}

impl AnyKey {
    /// Generates an RSA key of this length. It takes a tenth of a second of processor time or more. Gives up
    /// if `stopped` returns true. Errors: if the system has no random numbers, or the caller gave up.
    pub fn new_rsa(bits: usize, stopped: &dyn Fn() -> bool) -> Result<Self, String> {
        let numbers = works().and_then(|()| prime::rsa(bits, stopped).ok_or_else(given_up))?;
        Ok(Self(Kind::Rsa { pkcs1: numbered(&numbers) }))
    }

    /// Generates a DSA key of 2048 bits. Errors: if the system has no random numbers.
    pub(crate) fn new_dsa() -> Result<Self, String> {
        let numbers = works().and_then(|()| prime::dsa(&|| false).ok_or_else(given_up))?;
        Ok(Self(Kind::Dsa { parts: numbered(&numbers) }))
    }

    /// Generates an Ed25519 key.
    pub(crate) fn new_ed25519() -> Self {
        Self(Kind::Ed25519 { seed: random::bytes::<32>().to_vec() })
    }

    /// Generates an ECDSA key on P-256. Errors: if the system has no random numbers.
    pub fn new_p256() -> Result<Self, String> {
        let key = PrivateKey::generate().map_err(|e| e.to_string())?;
        Self::from_pem(key.to_pem().expose().as_bytes())
    }

    /// Reads the first PEM block of a text. Errors: in sprig's words, as far as the format is concerned.
    pub fn from_pem(text: &[u8]) -> Result<Self, String> {
        let block = Pem::iter_from_buffer(text).find_map(Result::ok).ok_or("no PEM data in input")?;
        let der = &block.contents;
        let failed =
            |form: &str| format!("parsing {form} private key from PEM: malformed or unsupported key");
        if block.label == "PRIVATE KEY" {
            let malformed = || "decoding PEM as PKCS#8: malformed or unsupported key".to_owned();
            return Self::from_pkcs8(der).ok_or_else(malformed);
        }
        let Some(kind) = block.label.strip_suffix(" PRIVATE KEY") else {
            return Err(format!("no private key data in PEM block of type {}", block.label));
        };
        match kind {
            "RSA" => Self::from_pkcs1(der).ok_or_else(|| failed("RSA")),
            "EC" => Self::from_sec1(der, None).ok_or_else(|| failed("EC")),
            "DSA" => Self::from_dsa(der).ok_or_else(|| failed("DSA")),
            _ => Err(format!("invalid private key type {}", block.label)),
        }
    }

    fn from_pkcs1(der: &[u8]) -> Option<Self> {
        let mut parts = DerReader::new(der).enter(der::SEQUENCE)?;
        (0..9).try_for_each(|_| parts.read(der::INTEGER).map(drop))?;
        Some(Self(Kind::Rsa { pkcs1: der.to_vec() }))
    }

    fn from_dsa(der: &[u8]) -> Option<Self> {
        let mut parts = DerReader::new(der).enter(der::SEQUENCE)?;
        (0..6).try_for_each(|_| parts.read(der::INTEGER).map(drop))?;
        Some(Self(Kind::Dsa { parts: der.to_vec() }))
    }

    /// RFC 5915. `curve` is set if PKCS#8 names it.
    fn from_sec1(der: &[u8], curve: Option<&'static Curve>) -> Option<Self> {
        let mut parts = DerReader::new(der).enter(der::SEQUENCE)?;
        parts.read(der::INTEGER)?;
        let digits = parts.read(der::OCTET_STRING)?;
        let named = parts.enter(CONTEXT_0).and_then(|mut p| find_curve(p.read(der::OBJECT_IDENTIFIER)?));
        let curve = curve.or(named)?;
        let point = parts.enter(CONTEXT_1)?.read(der::BIT_STRING)?.strip_prefix(&[0])?.to_vec();
        let digits = &digits[digits.iter().take_while(|b| **b == 0).count()..];
        let mut number = vec![0; curve.number_bytes.checked_sub(digits.len())?];
        number.extend_from_slice(digits);
        (point.len() == 2 * curve.number_bytes + 1).then_some(Self(Kind::Ec { curve, number, point }))
    }

    fn from_pkcs8(der: &[u8]) -> Option<Self> {
        let mut parts = DerReader::new(der).enter(der::SEQUENCE)?;
        parts.read(der::INTEGER)?;
        let mut algorithm = parts.enter(der::SEQUENCE)?;
        let oid = algorithm.read(der::OBJECT_IDENTIFIER)?;
        let key = parts.read(der::OCTET_STRING)?;
        match oid {
            RSA_OID => Self::from_pkcs1(key),
            EC_OID => Self::from_sec1(key, Some(find_curve(algorithm.read(der::OBJECT_IDENTIFIER)?)?)),
            ED25519_OID => {
                let seed = DerReader::new(key).read(der::OCTET_STRING)?.to_vec();
                (seed.len() == 32).then_some(Self(Kind::Ed25519 { seed }))
            }
            _ => None,
        }
    }

    /// Whether it is an RSA key, which signs much more slowly than others.
    pub(crate) const fn is_rsa(&self) -> bool {
        matches!(self.0, Kind::Rsa { .. })
    }

    /// The key as PEM: RSA as PKCS#1, EC as RFC 5915, Ed25519 as PKCS#8.
    pub fn to_pem(&self) -> String {
        match &self.0 {
            Kind::Rsa { pkcs1 } => pem("RSA PRIVATE KEY", pkcs1),
            Kind::Dsa { parts } => pem("DSA PRIVATE KEY", parts),
            Kind::Ec { curve, number, point } => {
                let parameters = der::element(CONTEXT_0, &der::oid(curve.oid));
                let public = der::element(CONTEXT_1, &der::bit_string(point));
                let number = der::element(der::OCTET_STRING, number);
                let key = der::sequence(&[&der::unsigned(&[1]), &number, &parameters, &public]);
                pem("EC PRIVATE KEY", &key)
            }
            Kind::Ed25519 { seed } => {
                let algorithm = der::sequence(&[&der::oid(ED25519_OID)]);
                let inner = der::element(der::OCTET_STRING, &der::element(der::OCTET_STRING, seed));
                pem("PRIVATE KEY", &der::sequence(&[&der::unsigned(&[]), &algorithm, &inner]))
            }
        }
    }

    /// The public key: its algorithm and its bits. Errors: if certificates do not support the
    /// type of the key.
    pub(crate) fn public(&self) -> Result<(Vec<u8>, Vec<u8>), String> {
        match &self.0 {
            Kind::Rsa { pkcs1 } => {
                let mut parts = DerReader::new(pkcs1).enter(der::SEQUENCE).ok_or("x509: malformed key")?;
                let numbers: Option<Vec<_>> = (0..3).map(|_| parts.read(der::INTEGER)).collect();
                let numbers = numbers.ok_or("x509: malformed key")?;
                let (n, e) = (der::element(der::INTEGER, numbers[1]), der::element(der::INTEGER, numbers[2]));
                let algorithm = der::sequence(&[&der::oid(RSA_OID), &der::NULL]);
                Ok((algorithm, der::sequence(&[&n, &e])))
            }
            Kind::Ec { curve, point, .. } => {
                let (kind, curve) = (der::oid(EC_OID), der::oid(curve.oid));
                Ok((der::sequence(&[&kind, &curve]), point.clone()))
            }
            Kind::Ed25519 { seed } => {
                let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|e| e.to_string())?;
                let algorithm = der::sequence(&[&der::oid(ED25519_OID)]);
                Ok((algorithm, pair.public_key().as_ref().to_vec()))
            }
            Kind::Dsa { .. } => Err("x509: unsupported public key type: *dsa.PublicKey".to_owned()),
        }
    }

    /// The public key of an RSA key in the format of SSH's `authorized_keys`.
    pub(crate) fn ssh_public(&self) -> Option<String> {
        let Kind::Rsa { pkcs1 } = &self.0 else { return None };
        let mut parts = DerReader::new(pkcs1).enter(der::SEQUENCE)?;
        let (_, modulus, exponent) =
            (parts.read(der::INTEGER)?, parts.read(der::INTEGER)?, parts.read(der::INTEGER)?);
        let mut blob = Vec::new();
        for part in [&b"ssh-rsa"[..], exponent, modulus] {
            blob.extend_from_slice(&u32::try_from(part.len()).ok()?.to_be_bytes());
            blob.extend_from_slice(part);
        }
        Some(format!("ssh-rsa {}", base64::encode(&blob)))
    }

    /// The public key as DER `SubjectPublicKeyInfo`. Errors: if certificates do not support the
    /// type of the key.
    pub(crate) fn public_key(&self) -> Result<Vec<u8>, String> {
        let (algorithm, bits) = self.public()?;
        Ok(der::sequence(&[&algorithm, &der::bit_string(&bits)]))
    }

    /// The signature algorithm of this key, as certificates encode it. Errors: if the
    /// key cannot sign certificates.
    pub(crate) fn signature_algorithm(&self) -> Result<Vec<u8>, String> {
        match &self.0 {
            Kind::Rsa { .. } => Ok(der::sequence(&[&der::oid(RSA_SHA256_OID), &der::NULL])),
            Kind::Ec { curve, .. } => Ok(der::sequence(&[&der::oid(curve.signature_oid)])),
            Kind::Ed25519 { .. } => Ok(der::sequence(&[&der::oid(ED25519_OID)])),
            Kind::Dsa { .. } => {
                Err("x509: certificate private key does not implement crypto.Signer".to_owned())
            }
        }
    }

    /// Signs a message. Errors: if ring refuses the key, such as RSA below 2048 bits.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let random = SystemRandom::new();
        let failed = |what: &str| format!("x509: the key cannot sign: {what}");
        match &self.0 {
            Kind::Rsa { pkcs1 } => {
                let pair = RsaKeyPair::from_der(pkcs1).map_err(|e| failed(&e.to_string()))?;
                let mut out = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut out)
                    .map_err(|e| failed(&e.to_string()))?;
                Ok(out)
            }
            Kind::Ec { curve, number, point } => {
                let pair =
                    EcdsaKeyPair::from_private_key_and_public_key(curve.signing, number, point, &random)
                        .map_err(|e| failed(&e.to_string()))?;
                Ok(pair.sign(&random, message).map_err(|e| failed(&e.to_string()))?.as_ref().to_vec())
            }
            Kind::Ed25519 { seed } => {
                let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|e| failed(&e.to_string()))?;
                Ok(pair.sign(message).as_ref().to_vec())
            }
            Kind::Dsa { .. } => Err(failed("DSA")),
        }
    }
}

fn find_curve(oid: &[u8]) -> Option<&'static Curve> {
    CURVES.iter().find(|curve| curve.oid == oid)
}
