//! Checksums, passwords, keys and certificates, as in sprig.

use std::any::Any as StdAny;

use ring::digest;

use super::{Function, fixed};
use crate::base::json::json;
use crate::chart::value::Type::{Int, List, Native, Str, Uint32};
use crate::chart::value::{GoString, Object, Value};
use crate::format::hex;

mod certificates;
mod keys;
mod passwords;

/// The type of the results of `genCA` and related functions.
const CERTIFICATE: &str = "sprig.certificate";

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("sha1sum", &[Str], |a| Ok(checksum(&digest::SHA1_FOR_LEGACY_USE_ONLY, a.bytes(0)).into())),
    fixed("sha256sum", &[Str], |a| Ok(checksum(&digest::SHA256, a.bytes(0)).into())),
    fixed("sha512sum", &[Str], |a| Ok(checksum(&digest::SHA512, a.bytes(0)).into())),
    fixed("adler32sum", &[Str], |a| Ok(adler32(a.bytes(0)).to_string().into())),
    fixed("bcrypt", &[Str], |a| Ok(passwords::bcrypt(a, a.bytes(0))?.into())),
    fixed("htpasswd", &[Str, Str], passwords::htpasswd),
    fixed("encryptAES", &[Str, Str], passwords::encrypt_aes),
    fixed("decryptAES", &[Str, Str], passwords::decrypt_aes),
    fixed("derivePassword", &[Uint32, Str, Str, Str, Str], passwords::derive),
    fixed("genPrivateKey", &[Str], keys::generate),
    fixed("buildCustomCert", &[Str, Str], certificates::build_custom),
    fixed("genCA", &[Str, Int], certificates::authority),
    fixed("genCAWithKey", &[Str, Int, Str], certificates::authority),
    fixed("genSelfSignedCert", &[Str, List, List, Int], certificates::self_signed),
    fixed("genSelfSignedCertWithKey", &[Str, List, List, Int, Str], certificates::self_signed),
    fixed("genSignedCert", &[Str, List, List, Int, Native(CERTIFICATE)], certificates::signed),
    fixed("genSignedCertWithKey", &[Str, List, List, Int, Native(CERTIFICATE), Str], certificates::signed),
];

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
struct Pair {
    cert: GoString,
    key: GoString,
}

impl Object for Pair {
    fn type_name(&self) -> &'static str {
        CERTIFICATE
    }

    fn display(&self) -> String {
        format!("{{{} {}}}", self.cert.to_str(), self.key.to_str())
    }

    fn is_stringer(&self) -> bool {
        false
    }

    fn to_json(&self) -> serde_json::Value {
        json!({"Cert": self.cert.to_str(), "Key": self.key.to_str()})
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "Cert" => Some(self.cert.clone().into()),
            "Key" => Some(self.key.clone().into()),
            _ => None,
        }
    }

    fn as_any(&self) -> &dyn StdAny {
        self
    }
}

/// The cost of generating keys and passwords, in steps of a rendering, which take up to a microsecond each: a short
/// template must not cause much work.
const RSA_2048_STEPS: u64 = 200_000;
const RSA_4096_STEPS: u64 = 1_000_000;
const DSA_STEPS: u64 = 400_000;
/// One signature with an RSA key, of at most 4096 bits, which is checked before each.
const RSA_SIGNATURE_STEPS: u64 = 20_000;
const SIGNATURE_STEPS: u64 = 2_000;
const BCRYPT_STEPS: u64 = 50_000;
const SCRYPT_STEPS: u64 = 100_000;

fn checksum(algorithm: &'static digest::Algorithm, bytes: &[u8]) -> String {
    hex::encode(digest::digest(algorithm, bytes).as_ref())
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % MODULUS;
        (a, (b + a) % MODULUS)
    });
    b << 16 | a
}

#[cfg(test)]
mod tests;
