//! The right to write: a lease that this process holds, measured on its own monotonic clock.
//!
//! No write *starts* when less than its own deadline remains, so that a paused or partitioned process cannot write
//! after another one took over. It is not a lock: objects that several programs share are also written with a
//! resourceVersion.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::clock::{Clock, Mono};
use crate::base::lock::IgnorePoison;
use crate::kube::WritePermit;

/// A write was refused because the remaining time of the lease is too short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotHeld {
    lease: Arc<str>,
    left: Duration,
}

/// A fence as the permit of a client: see [`Fence::permit`].
#[derive(Debug)]
struct Gate {
    fence: Fence,
    deadline: Duration,
}

impl WritePermit for Gate {
    fn may_write(&self) -> Result<(), String> {
        self.fence.check(self.deadline).map_err(|refused| refused.to_string())
    }
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write refused: lease {} is held for only {} ms more", self.lease, self.left.as_millis())
    }
}

impl std::error::Error for NotHeld {}

/// Shared by the elector, which extends it, and the clients, which check it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fence {
    clock: Clock,
    lease: Arc<str>,
    term: Arc<Mutex<Term>>,
}

/// The state of the lease.
#[derive(Clone, Copy, Debug, Default)]
struct Term {
    until: Mono,
    /// When the server last stored it, at the earliest.
    renewed_at: Option<Mono>,
    /// Since when it has been ours without a break.
    since: Mono,
}

impl Fence {
    /// A fence that is closed until [`Fence::extend`].
    pub fn new(clock: Clock, lease: &str) -> Self {
        Self { clock, lease: lease.into(), term: Arc::default() }
    }

    /// The lease is held until `until`, regardless of the server's state.
    pub fn extend(&self, until: Mono) {
        self.set(until, None);
    }

    /// The server has stored the lease with a request that started at `begun`: it is held for `lasting` from then on.
    pub(crate) fn renew(&self, begun: Mono, lasting: Duration) {
        self.set(begun.saturating_add(lasting), Some(begun));
    }

    /// When the server last stored the lease, at the earliest. `None` if unknown.
    pub(crate) fn renewed_at(&self) -> Option<Mono> {
        self.term().renewed_at
    }

    /// How long this process has held the lease without a break, if it holds it.
    pub(crate) fn held_for(&self) -> Option<Duration> {
        let (term, now) = (self.term(), self.clock.mono());
        (term.until > now).then(|| now.saturating_sub(term.since))
    }

    /// The lease is lost.
    pub(crate) fn close(&self) {
        self.extend(Mono::ZERO);
    }

    /// Whether the lease is held now.
    pub(crate) fn is_held(&self) -> bool {
        !self.left().is_zero()
    }

    /// For clients that write under this lease: no write starts when less than `deadline` is left.
    pub fn permit(&self, deadline: Duration) -> Arc<dyn WritePermit> {
        Arc::new(Gate { fence: self.clone(), deadline })
    }

    /// How long the lease is still held.
    fn left(&self) -> Duration {
        self.term().until.saturating_sub(self.clock.mono())
    }

    fn term(&self) -> Term {
        *self.term.lock().ignore_poison()
    }

    fn set(&self, until: Mono, renewed_at: Option<Mono>) {
        let now = self.clock.mono();
        let mut term = self.term.lock().ignore_poison();
        let since = if term.until > now { term.since } else { now };
        *term = Term { until, renewed_at, since };
    }

    /// Whether a write that may take `deadline` may start. Errors: [`NotHeld`] if less
    /// than `deadline` is left.
    pub(crate) fn check(&self, deadline: Duration) -> Result<(), NotHeld> {
        let left = self.left();
        if left >= deadline { Ok(()) } else { Err(NotHeld { lease: Arc::clone(&self.lease), left }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{Simulated, Timestamp};

    #[test]
    fn a_write_needs_as_much_lease_as_it_may_take() {
        let sim = Simulated::new(Timestamp::from_unix(0), 1);
        let fence = Fence::new(Clock::new(sim.clone()), "garden/gardenlet-leader-election");
        assert!(fence.check(Duration::from_millis(1)).is_err());
        fence.extend(Clock::new(sim.clone()).mono() + Duration::from_secs(15));
        assert!(fence.check(Duration::from_secs(5)).is_ok());
        sim.advance(Duration::from_secs(11));
        let refused = fence.check(Duration::from_secs(5)).unwrap_err();
        assert!(refused.to_string().contains("garden/gardenlet-leader-election"), "{refused}");
        assert!(fence.is_held());
        let seconds = |fence: &Fence| fence.held_for().map(|held| held.as_secs());
        assert_eq!(seconds(&fence), Some(11));
        fence.close();
        assert!(!fence.is_held());
        assert_eq!(seconds(&fence), None);
        sim.advance(Duration::from_secs(5));
        fence.renew(Clock::new(sim.clone()).mono(), Duration::from_secs(10));
        sim.advance(Duration::from_secs(2));
        assert_eq!(seconds(&fence), Some(2), "another term");
    }
}
