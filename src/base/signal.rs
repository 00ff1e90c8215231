//! Signals of the operating system, as a [`Stop`].

use std::io;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::iterator::backend::Handle;

use super::stop::Stop;
use super::thread;

/// Watches for SIGTERM and SIGINT until dropped.
#[derive(Debug)]
pub struct Watch {
    handle: Handle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Pulls `stop` at the first SIGTERM or SIGINT and runs `again` at the second.
///
/// # Errors
/// The system's, if a handler cannot be set.
pub fn stop_on_signal(stop: &Stop, again: impl FnOnce() + Send + 'static) -> io::Result<Watch> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let handle = signals.handle();
    let stop = stop.clone();
    // Detached: the thread ends with the handle.
    drop(thread::spawn("signal", 64 << 10, move || {
        let mut received = signals.forever();
        if received.next().is_some() {
            stop.stop();
        }
        if received.next().is_some() {
            again();
        }
    })?);
    Ok(Watch { handle })
}
