//! The SHA-256 that etcd appends to each of its snapshots.

use std::fmt;

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

/// A database consists of whole sectors; the digest follows them.
const SECTOR_BYTES: u64 = 512;
const SEAL_BYTES: u64 = 32;

/// Why a snapshot is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unsealed {
    /// A file of this length has no digest at its end.
    Length(u64),
    /// A delta of this length has no digest at its end.
    DeltaLength(u64),
    /// The digest does not match.
    Digest,
}

impl fmt::Display for Unsealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => {
                write!(f, "its {bytes} bytes are not a database followed by a SHA-256; it was truncated")
            }
            Self::DeltaLength(bytes) => {
                write!(f, "its {bytes} bytes are not events followed by a SHA-256; it was truncated")
            }
            Self::Digest => f.write_str("its SHA-256 does not match its content"),
        }
    }
}

/// Hashes a snapshot while it is read: all except the last 32 bytes.
pub(super) struct Seal {
    context: Context,
    /// The last bytes so far; never more than a digest.
    held: Vec<u8>,
    bytes: u64,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seal({} bytes)", self.bytes)
    }
}

impl Default for Seal {
    fn default() -> Self {
        Self { context: Context::new(&SHA256), held: Vec::with_capacity(2 * SHA256_OUTPUT_LEN), bytes: 0 }
    }
}

impl Seal {
    /// The next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let body = bytes.len().saturating_sub(SHA256_OUTPUT_LEN);
        let (body, last) = bytes.split_at(body);
        // Held bytes are content if enough bytes follow.
        let free = (self.held.len() + last.len()).saturating_sub(SHA256_OUTPUT_LEN);
        self.context.update(&self.held[..free.min(self.held.len())]);
        self.held.drain(..free.min(self.held.len()));
        self.context.update(body);
        self.held.extend_from_slice(last);
    }

    /// The digest at the end of the snapshot so far.
    pub(super) fn digest(&self) -> &[u8] {
        &self.held
    }

    /// The size of the whole snapshot including its digest, if that matches. Errors: the reason
    /// why it is damaged.
    pub(super) fn check(self) -> Result<u64, Unsealed> {
        if self.bytes % SECTOR_BYTES != SEAL_BYTES || self.bytes == SEAL_BYTES {
            return Err(Unsealed::Length(self.bytes));
        }
        self.check_digest()
    }

    /// The same for a delta snapshot, which may have any length. Errors: the reason why it is damaged.
    pub(super) fn check_delta(self) -> Result<u64, Unsealed> {
        if self.bytes <= SEAL_BYTES {
            return Err(Unsealed::DeltaLength(self.bytes));
        }
        self.check_digest()
    }

    fn check_digest(self) -> Result<u64, Unsealed> {
        let is_right = self.context.finish().as_ref() == self.held.as_slice();
        if is_right { Ok(self.bytes) } else { Err(Unsealed::Digest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot with this number of sectors.
    fn sealed(sectors: usize) -> Vec<u8> {
        let mut all: Vec<u8> = (0..sectors * 512).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let digest = ring::digest::digest(&SHA256, &all);
        all.extend_from_slice(digest.as_ref());
        all
    }

    fn check(all: &[u8], piece: usize) -> Result<u64, Unsealed> {
        let mut seal = Seal::default();
        all.chunks(piece).for_each(|piece| seal.update(piece));
        seal.check()
    }

    #[test]
    fn a_seal_is_found_in_any_split_of_the_bytes() {
        let whole = sealed(3);
        for piece in [1, 7, 31, 32, 33, 64, 511, 512, 1_000, 5_000] {
            assert_eq!(check(&whole, piece), Ok(1_568), "{piece}");
            let mut broken = whole.clone();
            broken[700] ^= 1;
            assert_eq!(check(&broken, piece), Err(Unsealed::Digest), "{piece}");
        }
        for end in [0, 1, 32, 512, 1_536, 1_567] {
            let found = check(&whole[..end], 100);
            assert_eq!(found, Err(Unsealed::Length(u64::try_from(end).unwrap())), "{end}");
        }
        assert_eq!(check(&whole[..1_056], 100), Err(Unsealed::Digest));
    }

    #[test]
    fn a_delta_has_any_length() {
        let check = |all: &[u8]| {
            let mut seal = Seal::default();
            seal.update(all);
            seal.check_delta()
        };
        let mut all = b"[]".to_vec();
        all.extend_from_slice(ring::digest::digest(&SHA256, &all).as_ref());
        assert_eq!(check(&all), Ok(34));
        all[0] ^= 1;
        assert_eq!(check(&all), Err(Unsealed::Digest));
        assert_eq!(check(&all[..32]), Err(Unsealed::DeltaLength(32)));
        assert_eq!(check(ring::digest::digest(&SHA256, b"").as_ref()), Err(Unsealed::DeltaLength(32)));
    }
}
