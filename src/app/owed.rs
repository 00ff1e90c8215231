//! Whether the agent owes the garden a renewal of the seed's Lease (Gardener's `periodic-health`).
//!
//! Each reason has its own time: the leader is unknown, a problem blocks the way to the first renewal, or the heartbeat
//! is late. When one of these times has passed, only a renewal helps, whatever else changes: `/healthz` does not flap.

use std::time::Duration;

use crate::base::clock::{Clock, Mono};
use crate::controllers::lease::LeaseHealth;

/// What keeps the agent from a renewal, and since when.
#[derive(Debug, Default)]
pub(super) struct OwedRenewal {
    beat: LeaseHealth,
    /// The time for the first renewal. Later ones have as long, and the heartbeat knows about them.
    patience: Duration,
    /// A garden that does not answer does not matter.
    is_tolerant: bool,
    /// Since when the leader is unknown.
    adrift_since: Option<Mono>,
    /// Since when a problem in the garden has blocked the first renewal.
    blocked_since: Option<Mono>,
    seed_is_gone: bool,
    /// The time was over here, and the agent has forgotten why.
    late_since: Option<Mono>,
}

fn is_over(since: Option<Mono>, patience: Duration, now: Mono) -> bool {
    since.is_some_and(|since| now >= since.saturating_add(patience))
}

impl OwedRenewal {
    /// For an agent that has just started.
    pub(super) fn new(beat: LeaseHealth, now: Mono) -> Self {
        Self { beat, patience: Duration::MAX, adrift_since: Some(now), ..Self::default() }
    }

    /// Sets the time for the first renewal, and whether the garden may be away.
    pub(super) const fn allow(&mut self, patience: Duration, is_tolerant: bool) {
        (self.patience, self.is_tolerant) = (patience, is_tolerant);
    }

    /// Since when the leader is unknown.
    pub(super) const fn adrift_since(&self) -> Option<Mono> {
        self.adrift_since
    }

    /// Notes whether this agent leads, or another one.
    pub(super) fn mark_leader(&mut self, is_this: bool, is_other: bool, now: Mono) {
        self.remember(now);
        if is_other {
            // Its renewals are not owed here.
            self.late_since = None;
            self.beat.end();
        }
        self.adrift_since = if is_this || is_other { None } else { self.adrift_since.or(Some(now)) };
        // A new term gets the full time again.
        if !is_this {
            self.blocked_since = None;
        }
    }

    /// Notes whether a problem blocks the way into the garden.
    pub(super) fn mark_garden(&mut self, is_blocked: bool, now: Mono) {
        self.remember(now);
        self.blocked_since = is_blocked.then(|| self.blocked_since.unwrap_or(now));
    }

    /// Notes whether the Seed was deleted in the garden. Returns true if this is new.
    pub(super) fn seed_is_gone(&mut self, is_gone: bool) -> bool {
        if is_gone {
            self.late_since = None;
        }
        std::mem::replace(&mut self.seed_is_gone, is_gone) != is_gone
    }

    /// Whether the Seed was deleted in the garden.
    pub(super) const fn is_seed_gone(&self) -> bool {
        self.seed_is_gone
    }

    /// The parts have ended, and begin anew.
    pub(super) fn begin_anew(&mut self, now: Mono) {
        self.mark_leader(false, false, now);
    }

    /// Whether nothing is owed, or the time for it is not over. Before the first renewal is due, the check fails if a
    /// problem has blocked it for as long: the Go program ends then.
    pub(super) fn passes(&self, clock: &Clock) -> bool {
        let beats = match self.is_tolerant {
            true => self.beat.passes_offline(clock),
            false => self.beat.passes(clock),
        };
        let is_paid =
            |since| self.beat.has_renewed_since(since) || (self.is_tolerant && self.beat.is_offline(clock));
        beats && self.late_since.is_none_or(is_paid) && !self.is_over(clock.mono())
    }

    fn is_over(&self, now: Mono) -> bool {
        let blocked =
            self.blocked_since.filter(|_| !self.is_tolerant && !self.seed_is_gone && !self.beat.is_due());
        is_over(self.adrift_since, self.patience, now) || is_over(blocked, self.patience, now)
    }

    /// Called before a reason is forgotten.
    fn remember(&mut self, now: Mono) {
        self.late_since = self.late_since.filter(|since| !self.beat.has_renewed_since(*since));
        if self.is_over(now) {
            self.late_since.get_or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::clock::{Simulated, Timestamp};
    use crate::controllers::lease::BeatOutcome;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// An agent that has just started, with this tolerance.
    fn fresh(is_tolerant: bool) -> (Arc<Simulated>, Clock, LeaseHealth, OwedRenewal) {
        let time = Simulated::new(Timestamp::from_unix(0), 1);
        let (clock, beat) = (Clock::new(time.clone()), LeaseHealth::new());
        let mut owed = OwedRenewal::new(beat.clone(), clock.mono());
        owed.allow(PATIENCE, is_tolerant);
        (time, clock, beat, owed)
    }

    /// Both clusters hang at second 0, for three minutes. The leader loses its Lease after ten seconds, and gets it back when
    /// the seed answers again; the garden answers a little later.
    #[test]
    fn it_fails_without_a_break_until_the_next_renewal() {
        for is_tolerant in [false, true] {
            let (time, clock, beat, mut owed) = fresh(is_tolerant);
            owed.mark_leader(true, false, clock.mono());
            beat.begin(clock.mono(), PATIENCE);
            beat.record(BeatOutcome::Renewed, clock.mono(), PATIENCE);
            let mut failed = Vec::new();
            for second in 0..200 {
                match second {
                    10 => {
                        beat.pause();
                        owed.mark_leader(false, false, clock.mono());
                    }
                    // A reload.
                    60 => owed.begin_anew(clock.mono()),
                    180 => owed.mark_leader(true, false, clock.mono()),
                    182 => owed.mark_garden(true, clock.mono()),
                    184 => {
                        owed.mark_garden(false, clock.mono());
                        beat.begin(clock.mono(), PATIENCE);
                    }
                    190 => beat.record(BeatOutcome::Renewed, clock.mono(), PATIENCE),
                    _ => {}
                }
                if !owed.passes(&clock) {
                    failed.push(second);
                }
                time.advance(Duration::from_secs(1));
            }
            assert_eq!(failed, (20..190).collect::<Vec<_>>(), "{is_tolerant}");
        }
    }

    #[test]
    fn an_agent_that_never_renewed_fails_until_it_does() {
        let (time, clock, beat, mut owed) = fresh(false);
        time.advance(PATIENCE);
        assert!(!owed.passes(&clock), "nobody is known to lead");
        owed.mark_leader(true, false, clock.mono());
        assert!(!owed.passes(&clock), "it leads, and has not renewed");
        beat.begin(clock.mono(), PATIENCE);
        assert!(!owed.passes(&clock), "the first renewal was due before");
        beat.record(BeatOutcome::Renewed, clock.mono(), PATIENCE);
        assert!(owed.passes(&clock));
        // The next time is as good as the first one.
        time.advance(Duration::from_secs(1));
        beat.end();
        owed.mark_leader(false, false, clock.mono());
        time.advance(PATIENCE);
        owed.mark_leader(true, false, clock.mono());
        assert!(!owed.passes(&clock));
        owed.mark_leader(false, true, clock.mono());
        assert!(owed.passes(&clock), "another agent owes it");
    }

    #[test]
    fn a_garden_that_may_be_away_pays_with_a_beat_that_it_missed() {
        let (time, clock, beat, mut owed) = fresh(true);
        time.advance(PATIENCE);
        owed.mark_leader(true, false, clock.mono());
        beat.begin(clock.mono(), PATIENCE);
        assert!(!owed.passes(&clock));
        beat.record(BeatOutcome::Offline, clock.mono(), PATIENCE);
        assert!(owed.passes(&clock));
        time.advance(PATIENCE);
        assert!(!owed.passes(&clock));
    }
}
