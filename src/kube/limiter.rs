//! Our own rate limit: a bucket of `burst` tokens that fills with `qps` tokens per second.

use std::sync::Mutex;
use std::time::Duration;

use crate::base::clock::{Clock, Mono};
use crate::base::lock::IgnorePoison;
use crate::base::stop::Stop;

use super::error::Error;

#[derive(Debug)]
pub(super) struct Limiter {
    qps: f64,
    burst: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Negative while callers wait for reserved tokens.
    tokens: f64,
    at: Mono,
}

impl Limiter {
    /// A full bucket; `qps` of 0 or less means no limit.
    pub(super) fn new(qps: f32, burst: u32, clock: &Clock) -> Self {
        let burst = f64::from(burst.max(1));
        Self { qps: f64::from(qps), burst, state: Mutex::new(State { tokens: burst, at: clock.mono() }) }
    }

    /// Takes a token; waits for it at most `wait_max`.
    pub(super) fn acquire(&self, clock: &Clock, stop: &Stop, wait_max: Duration) -> Result<(), Error> {
        let wait = self.reserve(clock.mono(), wait_max)?;
        if wait.is_zero() {
            return Ok(());
        }
        let until = clock.mono().saturating_add(wait);
        loop {
            let left = until.saturating_sub(clock.mono());
            if left.is_zero() {
                return Ok(());
            }
            // A wake ends a wait early without a stop.
            if stop.wait(clock, left) {
                return Err(Error::Stopped);
            }
        }
    }

    /// How long to wait for a token that is reserved now; reserves nothing if the wait would exceed `wait_max`.
    fn reserve(&self, now: Mono, wait_max: Duration) -> Result<Duration, Error> {
        if self.qps <= 0.0 || !self.qps.is_finite() {
            return Ok(Duration::ZERO);
        }
        let mut state = self.state.lock().ignore_poison();
        let filled = now.saturating_sub(state.at).as_secs_f64() * self.qps;
        state.tokens = (state.tokens + filled).min(self.burst);
        state.at = now;
        let missing_s = ((1.0 - state.tokens) / self.qps).max(0.0);
        let wait = Duration::try_from_secs_f64(missing_s).unwrap_or(Duration::MAX);
        if wait > wait_max {
            return Err(Error::Limited);
        }
        state.tokens -= 1.0;
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_is_free_and_the_rest_waits_its_turn() {
        let limiter = Limiter::new(2.0, 3, &Clock::system());
        let at = |ms: u64| limiter.state.lock().unwrap().at + Duration::from_millis(ms);
        let wait = |now: Mono| limiter.reserve(now, Duration::from_secs(60)).unwrap().as_millis();
        let start = at(0);
        assert_eq!([0; 3].map(|_: i32| wait(start)), [0, 0, 0]);
        assert_eq!([0; 2].map(|_: i32| wait(start)), [500, 1_000]);
        // After 1.5 s, the two reserved tokens are paid and one more is available.
        assert_eq!(wait(start + Duration::from_millis(1_500)), 0);
        // A long pause adds no more than the burst.
        let later = start + Duration::from_secs(3_600);
        assert_eq!([0; 4].map(|_: i32| wait(later)), [0, 0, 0, 500]);
    }

    #[test]
    fn a_wait_beyond_the_deadline_is_refused_and_reserves_nothing() {
        let clock = Clock::system();
        let limiter = Limiter::new(0.1, 1, &clock);
        let now = clock.mono();
        assert!(limiter.reserve(now, Duration::ZERO).unwrap().is_zero());
        for _ in 0..3 {
            assert!(matches!(limiter.reserve(now, Duration::from_secs(5)), Err(Error::Limited)));
        }
        let wait = limiter.reserve(now, Duration::from_secs(11)).unwrap();
        assert!(wait > Duration::from_secs(9) && wait <= Duration::from_secs(10), "{wait:?}");
    }

    #[test]
    fn no_limit_means_no_wait_and_a_stop_ends_one() {
        let (clock, stop) = (Clock::system(), Stop::new());
        let free = Limiter::new(0.0, 0, &clock);
        for _ in 0..1_000 {
            free.acquire(&clock, &stop, Duration::ZERO).unwrap();
        }
        let slow = Limiter::new(0.001, 1, &clock);
        slow.acquire(&clock, &stop, Duration::ZERO).unwrap();
        stop.stop();
        assert!(matches!(slow.acquire(&clock, &stop, Duration::MAX), Err(Error::Stopped)));
    }
}
