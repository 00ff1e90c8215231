//! Base64 (RFC 4648): the standard alphabet with padding, and the URL alphabet without.

use std::fmt;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Why a text is not Base64: the offset of the first invalid byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Offset into the input, in bytes.
    pub(crate) offset: usize,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "illegal base64 data at input byte {}", self.offset)
    }
}

impl std::error::Error for Error {}

/// Encodes with the standard alphabet and padding.
pub fn encode(bytes: &[u8]) -> String {
    encode_with(bytes, STANDARD, true)
}

/// Encodes with the URL alphabet, without padding (JSON web tokens).
pub fn encode_url(bytes: &[u8]) -> String {
    encode_with(bytes, URL, false)
}

/// Decodes the standard alphabet. Line breaks are skipped, as Go does; padding must be right. Errors: the
/// offset of the first byte that is not Base64.
pub fn decode(text: &[u8]) -> Result<Vec<u8>, Error> {
    decode_with(text, STANDARD, true)
}

/// Decodes the URL alphabet without padding. Errors: the offset of the first byte that is not Base64.
pub fn decode_url(text: &[u8]) -> Result<Vec<u8>, Error> {
    decode_with(text, URL, false)
}

fn encode_with(bytes: &[u8], alphabet: &[u8; 64], padded: bool) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |g, b| g << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            if i <= chunk.len() {
                let sextet = usize::try_from(group >> (18 - 6 * i) & 63).unwrap_or(0);
                out.push(char::from(alphabet[sextet]));
            } else if padded {
                out.push('=');
            }
        }
    }
    out
}

fn decode_with(text: &[u8], alphabet: &[u8; 64], padded: bool) -> Result<Vec<u8>, Error> {
    let table = table(alphabet);
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut group, mut sextets) = (0u32, 0usize);
    let mut bytes = text.iter().enumerate().filter(|(_, b)| !matches!(b, b'\n' | b'\r'));
    while let Some((offset, &byte)) = bytes.next() {
        if byte == b'=' && padded && sextets >= 2 {
            let mut missing = 3 - sextets;
            for (offset, &byte) in bytes.by_ref() {
                if byte != b'=' || missing == 0 {
                    return Err(Error { offset });
                }
                missing -= 1;
            }
            if missing != 0 {
                return Err(Error { offset: text.len() });
            }
            return Ok(finish(out, group, sextets));
        }
        let sextet = table[usize::from(byte)];
        if sextet == NONE {
            return Err(Error { offset });
        }
        group = group << 6 | u32::from(sextet);
        sextets += 1;
        if sextets == 4 {
            out.extend_from_slice(&group.to_be_bytes()[1..]);
            (group, sextets) = (0, 0);
        }
    }
    if sextets == 1 || (padded && sextets != 0) {
        return Err(Error { offset: text.len() - sextets });
    }
    Ok(finish(out, group, sextets))
}

/// Appends the bytes of an incomplete last group.
fn finish(mut out: Vec<u8>, group: u32, sextets: usize) -> Vec<u8> {
    if sextets > 1 {
        let group = group << (6 * (4 - sextets));
        out.extend_from_slice(&group.to_be_bytes()[1..sextets]);
    }
    out
}

const NONE: u8 = 255;

fn table(alphabet: &[u8; 64]) -> [u8; 256] {
    let mut table = [NONE; 256];
    for (value, letter) in (0u8..).zip(alphabet) {
        table[usize::from(*letter)] = value;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_go_both_ways() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()).unwrap(), plain.as_bytes());
            let bare = text.trim_end_matches('=');
            assert_eq!(encode_url(plain.as_bytes()), bare);
            assert_eq!(decode_url(bare.as_bytes()).unwrap(), plain.as_bytes());
        }
        assert_eq!(encode(&[0xfb, 0xff, 0xfe]), "+//+");
        assert_eq!(encode_url(&[0xfb, 0xff, 0xfe]), "-__-");
        assert_eq!(decode(b"Zm9v\r\nYg=\n=").unwrap(), b"foob");
    }

    #[test]
    fn invalid_base64_is_refused() {
        for (text, offset) in [
            ("Zm9", 0),
            ("Z", 0),
            ("Zg=", 3),
            ("Zg===", 4),
            ("Zm 9", 2),
            ("Zg==Zg==", 4),
            ("-__-", 0),
            ("=", 0),
        ] {
            assert_eq!(decode(text.as_bytes()), Err(Error { offset }), "{text}");
        }
        assert!(decode_url(b"Zg==").is_err());
        assert!(decode_url(b"Zm9vY").is_err());
    }
}
