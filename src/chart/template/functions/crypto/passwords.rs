//! bcrypt, AES and derived passwords.

use aes::Aes256;
use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockDecrypt as _, BlockEncrypt as _, KeyInit as _};
use ring::hmac;

use super::super::{Args, Cause, FunctionResult};
use super::{BCRYPT_STEPS, SCRYPT_STEPS};
use crate::base::random;
use crate::chart::value::GoString;
use crate::format::base64;
use crate::pki::password;

/// The hash of a password, or an error text: sprig returns it as the result.
pub(super) fn bcrypt(a: &Args<'_>, text: &[u8]) -> Result<String, Cause> {
    if text.len() > password::BCRYPT_BYTES_MAX {
        return Ok(
            "failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes".to_owned()
        );
    }
    a.engine.shared.charge(BCRYPT_STEPS)?;
    Ok(password::bcrypt(text))
}

pub(super) fn htpasswd(a: &Args<'_>) -> FunctionResult {
    let user = a.text(0);
    if user.as_bytes().contains(&b':') {
        return Ok(GoString::from([b"invalid username: ", user.as_bytes()].concat()).into());
    }
    let hash = bcrypt(a, a.bytes(1))?;
    Ok(GoString::from([user.as_bytes(), b":", hash.as_bytes()].concat()).into())
}

const BLOCK_BYTES: usize = 16;

/// The password itself is the key, cut or padded with zeros.
fn cipher(password: &[u8]) -> Aes256 {
    let mut key = [0; 32];
    key.iter_mut().zip(password).for_each(|(to, from)| *to = *from);
    Aes256::new(GenericArray::from_slice(&key))
}

/// AES-256 in CBC mode, preceded by the initialization vector.
pub(super) fn encrypt_aes(a: &Args<'_>) -> FunctionResult {
    let mut content = a.bytes(1).to_vec();
    if content.is_empty() {
        return Ok("".into());
    }
    let padding = BLOCK_BYTES - content.len() % BLOCK_BYTES;
    content.resize(content.len() + padding, u8::try_from(padding).unwrap_or(0));
    let cipher = cipher(a.bytes(0));
    let mut last: [u8; BLOCK_BYTES] = random::bytes();
    let mut out = last.to_vec();
    for block in content.chunks_exact(BLOCK_BYTES) {
        last.iter_mut().zip(block).for_each(|(to, from)| *to ^= from);
        cipher.encrypt_block(GenericArray::from_mut_slice(&mut last));
        out.extend_from_slice(&last);
    }
    Ok(base64::encode(&out).into())
}

pub(super) fn decrypt_aes(a: &Args<'_>) -> FunctionResult {
    let text = a.bytes(1);
    if text.is_empty() {
        return Ok("".into());
    }
    let all = base64::decode(text).map_err(|e| e.to_string())?;
    // Go's errors, in this order, where sprig does not check.
    let capacity = text.len() / 4 * 3;
    if capacity < BLOCK_BYTES {
        return Err(out_of_range(&format!("[:{BLOCK_BYTES}] with capacity {capacity}")));
    }
    let Some((mut last, crypt)) = all.split_at_checked(BLOCK_BYTES) else {
        return Err(out_of_range(&format!("[{BLOCK_BYTES}:{}]", all.len())));
    };
    if crypt.len() % BLOCK_BYTES != 0 {
        return Err("crypto/cipher: input not full blocks".into());
    }
    let cipher = cipher(a.bytes(0));
    let mut out = Vec::with_capacity(crypt.len());
    for block in crypt.chunks_exact(BLOCK_BYTES) {
        let mut clear = GenericArray::clone_from_slice(block);
        cipher.decrypt_block(&mut clear);
        out.extend(clear.iter().zip(last).map(|(c, l)| c ^ l));
        last = block;
    }
    let padding = usize::from(*out.last().ok_or("runtime error: index out of range [-1]")?);
    let Some(len) = out.len().checked_sub(padding) else {
        return Err(out_of_range(&format!("[:-{}]", padding - out.len())));
    };
    out.truncate(len);
    Ok(GoString::from(out).into())
}

fn out_of_range(what: &str) -> Cause {
    format!("runtime error: slice bounds out of range {what}").into()
}

const MASTER_SEED: &[u8] = b"com.lyndir.masterpassword";

/// The Master Password algorithm: password types, and their patterns of character classes.
const PATTERNS: [(&str, &[&str]); 6] = [
    ("maximum", &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"]),
    (
        "long",
        &[
            "CvcvnoCvcvCvcv",
            "CvcvCvcvnoCvcv",
            "CvcvCvcvCvcvno",
            "CvccnoCvcvCvcv",
            "CvccCvcvnoCvcv",
            "CvccCvcvCvcvno",
            "CvcvnoCvccCvcv",
            "CvcvCvccnoCvcv",
            "CvcvCvccCvcvno",
            "CvcvnoCvcvCvcc",
            "CvcvCvcvnoCvcc",
            "CvcvCvcvCvccno",
            "CvccnoCvccCvcv",
            "CvccCvccnoCvcv",
            "CvccCvccCvcvno",
            "CvcvnoCvccCvcc",
            "CvcvCvccnoCvcc",
            "CvcvCvccCvccno",
            "CvccnoCvcvCvcc",
            "CvccCvcvnoCvcc",
            "CvccCvcvCvccno",
        ],
    ),
    ("medium", &["CvcnoCvc", "CvcCvcno"]),
    ("short", &["Cvcn"]),
    ("basic", &["aaanaaan", "aannaaan", "aaannaaa"]),
    ("pin", &["nnnn"]),
];

fn class(letter: u8) -> &'static [u8] {
    match letter {
        b'V' => b"AEIOU",
        b'C' => b"BCDFGHJKLMNPQRSTVWXYZ",
        b'v' => b"aeiou",
        b'c' => b"bcdfghjklmnpqrstvwxyz",
        b'a' => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        b'n' => b"0123456789",
        b'o' => b"@&%?,=[]_:-+*$#!'^~;()/.",
        _ => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    }
}

/// A deterministic password from a counter, its type, a master password, a user and a site.
pub(super) fn derive(a: &Args<'_>) -> FunctionResult {
    let kind = a.str(1);
    let Some((_, patterns)) = PATTERNS.iter().find(|(name, _)| *name == kind) else {
        return Ok(format!("cannot find password template {kind}").into());
    };
    a.engine.shared.charge(SCRYPT_STEPS)?;
    let counter = u32::try_from(a.int(0)).unwrap_or(0);
    let seed = derived_seed(counter, a.bytes(2), a.bytes(3), a.bytes(4))?;
    let (first, rest) = seed.split_first().ok_or("no seed")?;
    let pattern = patterns[usize::from(*first) % patterns.len()];
    let pick = |(letter, byte): (u8, &u8)| {
        let class = class(letter);
        char::from(class[usize::from(*byte) % class.len()])
    };
    Ok(pattern.bytes().zip(rest).map(pick).collect::<String>().into())
}

fn derived_seed(counter: u32, password: &[u8], user: &[u8], site: &[u8]) -> Result<Vec<u8>, Cause> {
    let length = |text: &[u8]| u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes();
    let salt = [MASTER_SEED, &length(user), user].concat();
    let mut key = [0; 64];
    let parameters = scrypt::Params::new(15, 8, 2, key.len()).map_err(|e| e.to_string())?;
    scrypt::scrypt(password, &salt, &parameters, &mut key).map_err(|e| e.to_string())?;
    let text = [MASTER_SEED, &length(site), site, &counter.to_be_bytes()].concat();
    Ok(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &text).as_ref().to_vec())
}
