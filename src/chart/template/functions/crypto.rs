//! Checksums, and the list of the functions that make keys and certificates.

use ring::digest;

use super::{Answer, Args, Function, fixed, variadic};
use crate::chart::value::Type::{Any, Str};

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("sha1sum", &[Str], |a| Ok(hex(&digest::SHA1_FOR_LEGACY_USE_ONLY, a.bytes(0)).into())),
    fixed("sha256sum", &[Str], |a| Ok(hex(&digest::SHA256, a.bytes(0)).into())),
    fixed("sha512sum", &[Str], |a| Ok(hex(&digest::SHA512, a.bytes(0)).into())),
    fixed("adler32sum", &[Str], |a| Ok(adler32(a.bytes(0)).to_string().into())),
    unavailable("bcrypt", |_| missing("bcrypt")),
    unavailable("buildCustomCert", |_| missing("buildCustomCert")),
    unavailable("decryptAES", |_| missing("decryptAES")),
    unavailable("derivePassword", |_| missing("derivePassword")),
    unavailable("encryptAES", |_| missing("encryptAES")),
    unavailable("genCA", |_| missing("genCA")),
    unavailable("genCAWithKey", |_| missing("genCAWithKey")),
    unavailable("genPrivateKey", |_| missing("genPrivateKey")),
    unavailable("genSelfSignedCert", |_| missing("genSelfSignedCert")),
    unavailable("genSelfSignedCertWithKey", |_| missing("genSelfSignedCertWithKey")),
    unavailable("genSignedCert", |_| missing("genSignedCert")),
    unavailable("genSignedCertWithKey", |_| missing("genSignedCertWithKey")),
    unavailable("htpasswd", |_| missing("htpasswd")),
];

const fn unavailable(name: &'static str, run: fn(&Args<'_>) -> Answer) -> Function {
    variadic(name, &[], Any, run)
}

fn missing(name: &str) -> Answer {
    Err(format!("function \"{name}\" is not available yet").into())
}

fn hex(algorithm: &'static digest::Algorithm, bytes: &[u8]) -> String {
    digest::digest(algorithm, bytes).as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % MODULUS;
        (a, (b + a) % MODULUS)
    });
    b << 16 | a
}
