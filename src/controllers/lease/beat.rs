//! The state of the heartbeat for the rest of the program. It shares no lock with the heartbeat.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::clock::{Clock, Mono};
use crate::base::lock::IgnorePoison;

/// How a beat ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeatOutcome {
    /// The Lease was renewed.
    Renewed,
    /// The seed is healthy, but the garden did not accept the renewal.
    Offline,
    /// The seed is not healthy, or this instance does not lead.
    Unwell,
}

#[derive(Debug, Default)]
struct BeatState {
    running: AtomicBool,
    /// A renewal is due since the heartbeat ran here: it is, too, while the heartbeat cannot run. Before
    /// that, nothing can be unhealthy.
    due: AtomicBool,
    healthy: AtomicBool,
    /// A beat has succeeded since the heartbeat started.
    beaten: AtomicBool,
    /// Monotonic milliseconds until which a success is valid.
    until_ms: AtomicU64,
    /// Monotonic milliseconds until which the last beat is recent enough, although the garden did not answer;
    /// 0 if it ended otherwise.
    offline_until_ms: AtomicU64,
    /// Monotonic milliseconds of the last success; 0 before the first.
    last_ms: AtomicU64,
    /// Why the beats since then were missed, for people. The heartbeat never waits for this lock.
    trouble: Mutex<Option<(Mono, String)>>,
}

/// Whether the seed's Lease is being renewed (Gardener's `periodic-health`). Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseHealth(Arc<BeatState>);

impl LeaseHealth {
    /// Before the start of the heartbeat.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Starts the heartbeat. Its first beat is due within `threshold`, as in upstream, unless an earlier
    /// heartbeat left a renewal due.
    pub(crate) fn begin(&self, now: Mono, threshold: Duration) {
        if !self.0.due.load(Ordering::SeqCst) {
            self.0.until_ms.store(ms(now.saturating_add(threshold)), Ordering::SeqCst);
            self.0.healthy.store(true, Ordering::SeqCst);
        }
        self.0.offline_until_ms.store(0, Ordering::SeqCst);
        self.0.beaten.store(false, Ordering::SeqCst);
        self.explain(None, now);
        self.0.due.store(true, Ordering::SeqCst);
        self.0.running.store(true, Ordering::SeqCst);
    }

    /// The heartbeat cannot run any more. Its next renewal stays due.
    pub(crate) fn pause(&self) {
        self.0.running.store(false, Ordering::SeqCst);
    }

    /// No renewal is due: another instance leads, or the Seed is gone.
    pub(crate) fn end(&self) {
        self.pause();
        self.0.due.store(false, Ordering::SeqCst);
    }

    /// Records a beat. A miss makes the heartbeat unhealthy at once; a success keeps it healthy for `threshold`.
    pub(crate) fn record(&self, outcome: BeatOutcome, now: Mono, threshold: Duration) {
        let until = ms(now.saturating_add(threshold));
        if outcome == BeatOutcome::Renewed {
            self.0.until_ms.store(until, Ordering::SeqCst);
            self.0.last_ms.store(ms(now).max(1), Ordering::SeqCst);
            self.0.beaten.store(true, Ordering::SeqCst);
        }
        let is_offline = outcome == BeatOutcome::Offline;
        self.0.offline_until_ms.store(if is_offline { until } else { 0 }, Ordering::SeqCst);
        self.0.healthy.store(outcome == BeatOutcome::Renewed, Ordering::SeqCst);
    }

    /// Records why the last beat failed; `None` after a successful one.
    pub(crate) fn explain(&self, why: Option<String>, now: Mono) {
        if let Ok(mut trouble) = self.0.trouble.try_lock() {
            let since = trouble.as_ref().map_or(now, |(since, _)| *since);
            *trouble = why.map(|why| (since, why));
        }
    }

    /// Why beats fail, and since when, while they are due.
    pub(crate) fn trouble(&self) -> Option<(Mono, String)> {
        self.0.trouble.lock().ignore_poison().clone().filter(|_| self.is_running())
    }

    /// Passes if no renewal is due here, the last beat succeeded and is recent enough, or the first beat is not overdue.
    pub(crate) fn passes(&self, clock: &Clock) -> bool {
        !self.is_due() || self.is_not_late(clock)
    }

    /// The same, but tolerates a garden that does not answer (`edge.liveness.tolerateOffline`): it fails only for an
    /// unhealthy seed, or if the heartbeat has stopped trying.
    pub(crate) fn passes_offline(&self, clock: &Clock) -> bool {
        self.passes(clock) || self.is_offline(clock)
    }

    /// Whether the last beat is recent, and only the garden did not answer it.
    pub(crate) fn is_offline(&self, clock: &Clock) -> bool {
        ms(clock.mono()) < self.0.offline_until_ms.load(Ordering::SeqCst)
    }

    /// Whether a renewal is due here.
    pub(crate) fn is_due(&self) -> bool {
        self.0.due.load(Ordering::SeqCst)
    }

    fn is_running(&self) -> bool {
        self.0.running.load(Ordering::SeqCst)
    }

    /// Whether the Lease was renewed at this time or later.
    pub(crate) fn has_renewed_since(&self, since: Mono) -> bool {
        self.0.last_ms.load(Ordering::SeqCst) >= ms(since).max(1)
    }

    /// Whether the last beat succeeded and is recent enough.
    pub(crate) fn is_healthy(&self, clock: &Clock) -> bool {
        self.0.beaten.load(Ordering::SeqCst) && self.is_not_late(clock)
    }

    fn is_not_late(&self, clock: &Clock) -> bool {
        let until = Duration::from_millis(self.0.until_ms.load(Ordering::SeqCst));
        self.0.healthy.load(Ordering::SeqCst) && clock.mono() < until
    }

    /// How long ago the last good beat was.
    pub(crate) fn age(&self, clock: &Clock) -> Option<Duration> {
        match self.0.last_ms.load(Ordering::SeqCst) {
            0 => None,
            ms => Some(clock.mono().saturating_sub(Duration::from_millis(ms))),
        }
    }
}

fn ms(at: Mono) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn fifty_days_have_more_milliseconds_than_32_bits_count() {
        let sim = Simulated::new(Timestamp::from_unix(0), 1);
        let clock = Clock::new(sim.clone());
        let (beat, threshold) = (LeaseHealth::new(), Duration::from_secs(3_600));
        sim.advance(Duration::from_millis(u64::from(u32::MAX) - 10_000));
        beat.begin(clock.mono(), threshold);
        beat.record(BeatOutcome::Renewed, clock.mono(), threshold);
        sim.advance(Duration::from_secs(1_800));
        assert!(beat.passes(&clock) && beat.is_healthy(&clock));
        sim.advance(Duration::from_secs(2_400));
        assert!(!beat.passes(&clock));
    }

    #[test]
    fn it_passes_before_the_start_and_until_the_first_beat_is_overdue() {
        let sim = Simulated::new(Timestamp::from_unix(0), 1);
        let clock = Clock::new(sim.clone());
        let (beat, threshold) = (LeaseHealth::new(), Duration::from_secs(20));
        assert!(beat.passes(&clock));
        beat.begin(clock.mono(), threshold);
        assert!(beat.passes(&clock) && !beat.is_healthy(&clock), "nothing is ready before the first beat");
        sim.advance(Duration::from_secs(21));
        assert!(!beat.passes(&clock));
        beat.end();
        assert!(beat.passes(&clock));
    }

    #[test]
    fn a_renewal_stays_due_whoever_begins_and_ends() {
        let sim = Simulated::new(Timestamp::from_unix(0), 1);
        let clock = Clock::new(sim.clone());
        let (beat, threshold) = (LeaseHealth::new(), Duration::from_secs(20));
        beat.begin(clock.mono(), threshold);
        beat.record(BeatOutcome::Renewed, clock.mono(), threshold);
        beat.pause();
        assert!(beat.passes(&clock));
        sim.advance(Duration::from_secs(21));
        assert!(!beat.passes(&clock), "nobody renews it");
        beat.begin(clock.mono(), threshold);
        assert!(!beat.passes(&clock), "it was not renewed yet");
        beat.record(BeatOutcome::Unwell, clock.mono(), threshold);
        beat.pause();
        assert!(!beat.passes(&clock) && !beat.has_renewed_since(clock.mono()));
        beat.begin(clock.mono(), threshold);
        assert!(!beat.passes(&clock));
        beat.record(BeatOutcome::Renewed, clock.mono(), threshold);
        assert!(beat.passes(&clock) && beat.has_renewed_since(clock.mono()));
    }

    use super::*;
    use crate::base::clock::{Simulated, Timestamp};

    #[test]
    fn a_miss_shows_at_once_and_silence_after_the_threshold() {
        let sim = Simulated::new(Timestamp::from_unix(0), 1);
        let clock = Clock::new(sim.clone());
        let (beat, threshold) = (LeaseHealth::new(), Duration::from_secs(20));
        assert!(!beat.is_healthy(&clock) && beat.age(&clock).is_none());
        beat.record(BeatOutcome::Renewed, clock.mono(), threshold);
        assert!(beat.is_healthy(&clock));
        beat.record(BeatOutcome::Unwell, clock.mono(), threshold);
        assert!(!beat.is_healthy(&clock));
        beat.record(BeatOutcome::Renewed, clock.mono(), threshold);
        sim.advance(Duration::from_secs(21));
        assert!(!beat.is_healthy(&clock));
        assert!(beat.age(&clock).unwrap() >= Duration::from_secs(20));
    }

    #[test]
    fn what_an_earlier_heartbeat_missed_is_forgotten() {
        let clock = Clock::new(Simulated::new(Timestamp::from_unix(0), 1));
        let (beat, threshold, now) = (LeaseHealth::new(), Duration::from_secs(20), clock.mono());
        beat.begin(now, threshold);
        beat.explain(Some("refused".to_owned()), now);
        assert_eq!(beat.trouble(), Some((now, "refused".to_owned())));
        beat.end();
        beat.begin(now, threshold);
        assert_eq!(beat.trouble(), None);
    }

    #[test]
    fn an_offline_garden_is_tolerated_while_the_heartbeat_tries() {
        let sim = Simulated::new(Timestamp::from_unix(0), 1);
        let clock = Clock::new(sim.clone());
        let (beat, threshold) = (LeaseHealth::new(), Duration::from_secs(20));
        beat.begin(clock.mono(), threshold);
        beat.record(BeatOutcome::Offline, clock.mono(), threshold);
        assert!(!beat.passes(&clock) && beat.passes_offline(&clock));
        beat.record(BeatOutcome::Unwell, clock.mono(), threshold);
        assert!(!beat.passes_offline(&clock), "the seed itself is not well");
        beat.record(BeatOutcome::Offline, clock.mono(), threshold);
        sim.advance(Duration::from_secs(21));
        assert!(!beat.passes_offline(&clock), "no beat was tried for a while");
        beat.record(BeatOutcome::Renewed, clock.mono(), threshold);
        assert!(beat.passes(&clock) && beat.passes_offline(&clock));
        beat.end();
        assert!(beat.passes_offline(&clock));
    }
}
