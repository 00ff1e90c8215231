//! Content digests: `sha256:` and 64 hexadecimal digits, the only algorithm that Gardener accepts.

use std::fmt;

use ring::digest::{Context, SHA256};

use crate::format::hex;

const PREFIX: &str = "sha256:";

/// The SHA-256 of some content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Parses `sha256:` and 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text.strip_prefix(PREFIX)?)
    }

    /// Parses 64 lower-case hexadecimal digits.
    pub(crate) fn from_hex(hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        let mut out = [0; 32];
        if digits.len() != 2 * out.len() {
            return None;
        }
        for (byte, pair) in out.iter_mut().zip(digits.chunks(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(out))
    }

    /// The digest of `content`.
    pub fn of(content: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(content);
        hasher.finish()
    }

    /// The digits.
    pub fn hex(self) -> String {
        hex::encode(&self.0)
    }
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Computes a digest incrementally.
#[derive(Clone)]
pub(super) struct Hasher(Context);

impl Hasher {
    pub(super) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> Digest {
        let mut out = [0; 32];
        out.copy_from_slice(self.0.finish().as_ref());
        Digest(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_read_as_they_print() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(Digest::parse(empty), Some(Digest::of(b"")));
        for bad in ["", "sha256:", "sha512:00", &empty[..70], &empty.to_uppercase(), &empty[7..]] {
            assert_eq!(Digest::parse(bad), None, "{bad}");
        }
        assert_eq!(Digest::parse(&empty.replace('b', "g")), None);
    }
}
