//! Threads: named, with a stack size, counted, and joined by their owner.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// The number of running threads that [`spawn`] started.
pub fn running() -> usize {
    RUNNING.load(Ordering::Relaxed)
}

struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts a thread. `stack_bytes` is explicit because musl's default of 128 KiB is not what the tests run with.
///
/// # Errors
/// The error of the system, if it cannot start another thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    RUNNING.fetch_add(1, Ordering::Relaxed);
    let counted = Counted;
    std::thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(move || {
        let _counted = counted;
        body()
    })
}
