//! RSA keys that are ready at once: those of `tests/fixtures/keys`.

use std::sync::atomic::{AtomicUsize, Ordering};

use gardenlet::pki::AnyKey;
use gardenlet::pki::keys::RsaKeys;

const PEMS_3072: [&str; 4] = [
    include_str!("../fixtures/keys/rsa-3072-1.pem"),
    include_str!("../fixtures/keys/rsa-3072-2.pem"),
    include_str!("../fixtures/keys/rsa-3072-3.pem"),
    include_str!("../fixtures/keys/rsa-3072-4.pem"),
];
const PEM_4096: &str = include_str!("../fixtures/keys/rsa-4096.pem");

/// Returns the same keys again and again.
#[derive(Debug, Default)]
pub struct FixtureKeys {
    taken: AtomicUsize,
    /// How many more requests get no key.
    early: AtomicUsize,
}

impl FixtureKeys {
    /// How many keys it has returned.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// The next requests get no key yet.
    pub fn keep_waiting(&self, askers: usize) {
        self.early.store(askers, Ordering::SeqCst);
    }
}

impl RsaKeys for FixtureKeys {
    fn take(&self, bits: usize) -> Option<AnyKey> {
        if self.early.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
            return None;
        }
        let n = self.taken.fetch_add(1, Ordering::SeqCst);
        let pem = match bits {
            3_072 => PEMS_3072[n % PEMS_3072.len()],
            4_096 => PEM_4096,
            _ => panic!("there is no fixture of {bits} bits; add one"),
        };
        Some(AnyKey::from_pem(pem.as_bytes()).unwrap())
    }
}
