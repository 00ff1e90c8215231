//! Password hashes for web servers.

use crate::base::random;
use crate::format::base64;

/// The default exponent of the number of rounds in Go's package.
const COST: u32 = 10;
/// The bytes of a password that bcrypt uses.
pub(crate) const BCRYPT_BYTES_MAX: usize = 72;
const BCRYPT_ALPHABET: &[u8; 64] = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const BASE64_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// bcrypt, as `$2a$10$...`. Bytes beyond [`BCRYPT_BYTES_MAX`] are ignored. It takes 50 ms of processor time or more.
pub(crate) fn bcrypt(password: &[u8]) -> String {
    bcrypt_with(password, random::bytes())
}

fn bcrypt_with(password: &[u8], salt: [u8; 16]) -> String {
    let mut key = [password, &[0]].concat();
    key.truncate(BCRYPT_BYTES_MAX);
    let hash = ::bcrypt::bcrypt(COST, salt, &key);
    format!("$2a${COST}${}{}", bcrypt_text(&salt), bcrypt_text(&hash[..23]))
}

/// Base64 with the alphabet of crypt(3), without padding.
fn bcrypt_text(bytes: &[u8]) -> String {
    let letter =
        |b: u8| BASE64_ALPHABET.iter().position(|c| *c == b).map(|at| char::from(BCRYPT_ALPHABET[at]));
    base64::encode(bytes).bytes().filter_map(letter).collect()
}
