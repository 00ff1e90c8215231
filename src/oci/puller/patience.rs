//! How often and when to retry: transient errors, and registries that request a pause.

use std::time::Duration;

use crate::base::backoff::Backoff;
use crate::base::lock::IgnorePoison;
use crate::limits;
use crate::oci::error::{Error, PullVerdict};

use super::{Errand, Puller};

/// The delay after a first failure, and the longest delay.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Hosts whose requested pause is remembered.
const QUIET_HOSTS_MAX: usize = 64;

impl Puller {
    /// Retries transient errors a few times.
    pub(super) fn patiently<T>(
        &self,
        errand: Errand<'_>,
        mut attempt: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
        loop {
            let error = match attempt() {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            let mut pause = backoff.next_delay();
            if let Error::Status { host, retry_after: Some(wanted), .. } = &error {
                if *wanted > RETRY_MAX {
                    self.note_pause(host, *wanted);
                    return Err(error);
                }
                pause = pause.max(*wanted);
            }
            let is_over = self.asks
                || backoff.failures() >= limits::OCI_ATTEMPTS_MAX
                || self.clock.mono().saturating_add(pause) >= errand.deadline;
            let is_hopeless = error.verdict() != PullVerdict::Retry
                || matches!(error, Error::Stopped | Error::Quiet { .. } | Error::Disk { .. });
            if is_over || is_hopeless {
                return Err(error);
            }
            if errand.stop.wait(&self.clock, pause) {
                return Err(Error::Stopped);
            }
        }
    }

    fn note_pause(&self, host: &str, wanted: Duration) {
        let now = self.clock.mono();
        // A registry can make the agent wait for an hour at most, because the reason for a longer wait would be hard to
        // find.
        let until = now.saturating_add(wanted.min(Duration::from_secs(3_600)));
        let mut quiet = self.quiet.lock().ignore_poison();
        quiet.retain(|_, until| *until > now);
        if quiet.len() < QUIET_HOSTS_MAX {
            quiet.insert(host.to_owned(), until);
        }
    }

    pub(super) fn respect_pause(&self, host: &str) -> Result<(), Error> {
        let quiet = self.quiet.lock().ignore_poison();
        match quiet.get(host) {
            Some(until) if *until > self.clock.mono() => Err(Error::Quiet { host: host.to_owned() }),
            _ => Ok(()),
        }
    }
}
