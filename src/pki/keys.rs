//! RSA keys, generated in advance: a key takes a small processor ten seconds, and no worker should wait for it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use rustix::process::setpriority_process;

use super::AnyKey;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::limits;

/// A source of RSA keys.
pub trait RsaKeys: Send + Sync + fmt::Debug {
    /// An unused key of this length. `None` while it is being generated: ask again later. It never waits.
    fn take(&self, bits: usize) -> Option<AnyKey>;
}

/// Generates keys on a thread of the lowest priority, and keeps a few of each length that was requested. The thread
/// runs only while keys are missing, so a program that needs none generates none.
pub struct RsaKeyStock {
    shared: Arc<SharedStock>,
}

struct SharedStock {
    stop: Stop,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By length.
    keys: SortedMap<usize, Vec<AnyKey>>,
    /// The thread checks for missing keys once more before it ends.
    is_making: bool,
    thread: Option<JoinHandle<()>>,
}

impl State {
    fn begin(&mut self, shared: &Arc<SharedStock>) {
        // After a panic of the thread the flag is still set.
        let has_died = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        if (self.is_making && !has_died) || shared.stop.is_stopped() {
            return;
        }
        let shared = Arc::clone(shared);
        match thread::spawn("rsa-keys", limits::SMALL_STACK_BYTES, move || shared.make()) {
            Ok(thread) => (self.is_making, self.thread) = (true, Some(thread)),
            Err(error) => log::warn!(err:% = error; "RSA keys cannot be generated now"),
        }
    }
}

impl fmt::Debug for RsaKeyStock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RsaKeyStock")
    }
}

impl RsaKeyStock {
    /// An empty stock, which generates nothing after `stop`.
    pub fn new(stop: &Stop) -> Self {
        Self { shared: Arc::new(SharedStock { stop: stop.child(), state: Mutex::default() }) }
    }
}

impl RsaKeys for RsaKeyStock {
    fn take(&self, bits: usize) -> Option<AnyKey> {
        let mut state = self.shared.lock();
        let key = state.keys.entry(bits).or_default().pop();
        state.begin(&self.shared);
        key
    }
}

impl Drop for RsaKeyStock {
    fn drop(&mut self) {
        self.shared.stop.stop();
        let thread = self.shared.lock().thread.take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl SharedStock {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    fn make(&self) {
        // For this thread only. Where the system does not allow it, keys slow down other work.
        let _ = setpriority_process(None, 19);
        while let Some(bits) = self.missing() {
            let made = AnyKey::new_rsa(bits, &|| self.stop.is_stopped());
            let mut state = self.lock();
            match made {
                Ok(key) => state.keys.entry(bits).or_default().push(key),
                Err(error) => {
                    state.is_making = false;
                    log::warn!(err = error.as_str(); "An RSA key could not be generated");
                    return;
                }
            }
        }
    }

    /// The length with the fewest keys, if it has too few.
    fn missing(&self) -> Option<usize> {
        let mut state = self.lock();
        let fewest = state.keys.iter().min_by_key(|(_, keys)| keys.len());
        let missing = fewest.filter(|(_, keys)| keys.len() < limits::RSA_KEYS_STOCKED).map(|(bits, _)| *bits);
        let missing = missing.filter(|_| !self.stop.is_stopped());
        // Under the lock of the check: whoever takes a key after it starts a new thread.
        state.is_making = missing.is_some();
        missing
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::clock::Clock;

    /// Asks until there is a key, as a flow does.
    fn wait_for(stock: &RsaKeyStock, bits: usize) -> AnyKey {
        let (clock, pause) = (Clock::system(), Stop::new());
        for _ in 0..6_000 {
            if let Some(key) = stock.take(bits) {
                return key;
            }
            pause.wait(&clock, Duration::from_millis(10));
        }
        panic!("no key of {bits} bits");
    }

    fn wait_until_idle(stock: &RsaKeyStock) {
        let (clock, pause) = (Clock::system(), Stop::new());
        for _ in 0..6_000 {
            if !stock.shared.lock().is_making {
                return;
            }
            pause.wait(&clock, Duration::from_millis(10));
        }
        panic!("keys are made without end");
    }

    #[test]
    fn keys_are_generated_on_demand_up_to_a_limit() {
        let stock = RsaKeyStock::new(&Stop::new());
        assert!(!stock.shared.lock().is_making && stock.shared.lock().thread.is_none());
        let stocked = || stock.shared.lock().keys.iter().map(|(bits, keys)| (*bits, keys.len())).collect();
        assert!(stock.take(512).is_none(), "nobody waits for the first");
        let (first, second) = (wait_for(&stock, 512), wait_for(&stock, 512));
        assert_ne!(first.to_pem(), second.to_pem());
        wait_for(&stock, 640);
        wait_until_idle(&stock);
        let stocked: Vec<(usize, usize)> = stocked();
        assert_eq!(stocked, [(512, 2), (640, 2)]);
    }

    #[test]
    fn a_stop_ends_a_key_that_takes_long() {
        let stop = Stop::new();
        let stock = RsaKeyStock::new(&stop);
        assert!(stock.take(1 << 15).is_none());
        stop.stop();
        // This key would take hours.
        drop(stock);
        let stock = RsaKeyStock::new(&stop);
        assert!(stock.take(512).is_none() && stock.shared.lock().thread.is_none());
    }
}
