//! Waiting longer after each failure.

use std::time::Duration;

use super::random;

/// Exponential growth from `first` to `max`. Jitter keeps many agents from retrying at the same moment.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Starts at `first`, doubles after each failure, and never exceeds `max`.
    pub(crate) const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// The delay after one more failure: between 80 % and 100 % of the doubled delay.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = delay_after(self.first, self.max, self.failures);
        self.failures = self.failures.saturating_add(1);
        delay.mul_f64(0.8 + 0.2 * random::unit())
    }

    /// Resets after a success: the delay after the next failure is `first` again.
    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }

    /// The number of consecutive failures.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }
}

/// `first` doubled `failures` times, at most `max`.
pub(crate) fn delay_after(first: Duration, max: Duration, failures: u32) -> Duration {
    first.saturating_mul(2u32.saturating_pow(failures.min(31))).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap() {
        let (first, max) = (Duration::from_millis(5), Duration::from_secs(1_000));
        let table = [(0, 5), (1, 10), (10, 5_120), (17, 655_360), (18, 1_000_000), (200, 1_000_000)];
        for (failures, millis) in table {
            assert_eq!(delay_after(first, max, failures), Duration::from_millis(millis), "{failures}");
        }
    }

    #[test]
    fn jitter_stays_within_a_fifth() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
        for expected in [1.0, 2.0, 4.0, 8.0, 8.0] {
            let seconds = backoff.next_delay().as_secs_f64();
            assert!(seconds <= expected && seconds >= 0.8 * expected, "{seconds} for {expected}");
        }
        backoff.reset();
        assert_eq!(backoff.failures(), 0);
    }
}
