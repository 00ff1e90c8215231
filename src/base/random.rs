//! Random numbers for jitter, names and ids, from the system's generator.

use ring::rand::{SecureRandom, SystemRandom};

/// `N` random bytes. All zero only if the system has no random numbers, which no supported kernel does.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    if SystemRandom::new().fill(&mut out).is_err() {
        log::error!("The system has no random numbers");
    }
    out
}

/// Whether the system has random numbers. Code that creates a secret checks this first.
pub(crate) fn works() -> bool {
    SystemRandom::new().fill(&mut [0; 16]).is_ok()
}

/// `len` random bytes.
pub fn vec(len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        out.extend(bytes::<32>().into_iter().take(len - out.len()));
    }
    out
}

/// A number in `0.0..1.0`.
pub(crate) fn unit() -> f64 {
    let n = u32::from_be_bytes(bytes());
    f64::from(n) / (f64::from(u32::MAX) + 1.0)
}

/// `len` characters of `0-9a-f`.
pub fn hex(len: usize) -> String {
    text(len, b"0123456789abcdef")
}

/// `len` characters of the alphabet, which has at most 256 of them.
pub fn text(len: usize, alphabet: &[u8]) -> String {
    let pick = |byte: u8| char::from(alphabet[usize::from(byte) * alphabet.len() / 256]);
    vec(len).into_iter().map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_length_and_the_letters_asked_for() {
        let id = hex(64);
        assert_eq!(id.len(), 64);
        assert!(id.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_ne!(id, hex(64));
        assert!((0..100).all(|_| (0.0..1.0).contains(&unit())));
    }
}
