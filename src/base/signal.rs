//! Signals of the operating system, as a [`Stop`].

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::iterator::backend::Handle;
use signal_hook::low_level::emulate_default_handler;

use super::stop::Stop;
use super::thread;
use crate::limits;

/// Watches for SIGTERM, SIGINT and SIGHUP until dropped.
#[derive(Debug)]
pub struct SignalWatch {
    handle: Handle,
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Pulls `stop` at the first SIGTERM or SIGINT and runs `again` at the second. Errors: the error of the
/// system, if it cannot install a handler.
pub fn stop_on_signal(stop: &Stop, again: impl FnOnce() + Send + 'static) -> io::Result<SignalWatch> {
    start(&[SIGTERM, SIGINT], stop, || {}, again)
}

/// Pulls `stop` at the first SIGTERM or SIGINT. The second ends the process, as if nobody watched for it.
/// Errors: the error of the system, if it cannot install a handler.
pub(crate) fn stop_or_end(stop: &Stop) -> io::Result<SignalWatch> {
    stop_on_signal(stop, || drop(emulate_default_handler(SIGINT)))
}

/// Like [`stop_on_signal`], and runs `reload` at each SIGHUP before the stop. Errors: the error of the
/// system, if it cannot install a handler.
pub(crate) fn watch(
    stop: &Stop,
    reload: impl Fn() + Send + 'static,
    again: impl FnOnce() + Send + 'static,
) -> io::Result<SignalWatch> {
    start(&[SIGTERM, SIGINT, SIGHUP], stop, reload, again)
}

fn start(
    signals: &[i32],
    stop: &Stop,
    reload: impl Fn() + Send + 'static,
    again: impl FnOnce() + Send + 'static,
) -> io::Result<SignalWatch> {
    let mut signals = Signals::new(signals)?;
    let handle = signals.handle();
    let stop = stop.clone();
    // Detached: the thread ends with the handle. Its stack is large enough to read a configuration; unused stack costs
    // nothing.
    drop(thread::spawn("signal", limits::WORKER_STACK_BYTES, move || {
        for signal in signals.forever() {
            match (signal, stop.is_stopped()) {
                (SIGHUP, false) => reload(),
                (SIGHUP, true) => {}
                (_, false) => stop.stop(),
                (_, true) => return again(),
            }
        }
    })?);
    Ok(SignalWatch { handle })
}
