//! Watches the machine's clock: reports a wrong clock, and stores the garden's time for the next start. It also reports a
//! state directory that cannot be written.

use std::time::Duration;

use crate::base::clock::{Mono, Timestamp};
use crate::base::garden_time::GardenTime;
use crate::base::state::StateDir;
use crate::format::duration::rough;
use crate::format::time::rfc3339;

use super::{AgentStatus, Environment};

/// Name of this part on the status page.
pub(super) const PART: &str = "clock";
/// The part for the state directory.
pub(super) const STATE: &str = "state directory";
/// The file in the state directory that stores the last garden time, in seconds since 1970.
const SLOT: &str = "clock";
/// The shortest time between two writes of the file: flash wears out.
const STORE_PERIOD: Duration = Duration::from_secs(3_600);
/// How often to try again to write the state directory.
const RETRY_PERIOD: Duration = Duration::from_secs(60);
/// How often the clock is checked.
pub(super) const LOOK: Duration = Duration::from_secs(10);
/// A skew that is not reported. The garden considers a seed lost after 40 s.
const TOLERATED: Duration = Duration::from_secs(10);

/// The agent's time, from its clock, its build time and the state directory.
pub(super) fn garden_time(env: &Environment, state: &StateDir) -> GardenTime {
    let seen = state.read(SLOT).and_then(|bytes| String::from_utf8(bytes).ok());
    let seen = seen.and_then(|text| text.parse().ok()).map(Timestamp::from_unix);
    GardenTime::new(env.clock.clone(), env.built, seen)
}

/// Checks the clock while the agent runs.
pub(super) struct ClockWatch {
    time: GardenTime,
    state: StateDir,
    stored: Option<Mono>,
    retried: Mono,
}

impl ClockWatch {
    pub(super) const fn new(time: GardenTime, state: StateDir) -> Self {
        Self { time, state, stored: None, retried: Mono::ZERO }
    }

    /// Checks the clock; called at intervals.
    pub(super) fn look(&mut self, env: &Environment, status: &AgentStatus) {
        self.look_at_state(env, status);
        let skew = self.time.skew_nanos();
        if let Some(nanos) = skew {
            let help = "By how much the machine's clock is ahead of the garden's.";
            #[expect(clippy::cast_precision_loss, reason = "a gauge needs no more precision")]
            env.metrics.set("gardenlet_clock_skew_seconds", help, &[], -(nanos as f64) / 1e9);
            self.store_when_due();
        }
        status.clock_remark(remark(skew));
        match problem(self.time.machine(), self.time.floor(), skew) {
            Some(problem) => {
                status.doing(PART, "wrong");
                if status.problem(PART, &problem) {
                    log::warn!(problem = problem.as_str(); "The machine's clock is wrong");
                }
            }
            None if status.parts().get(PART).is_some_and(|part| part.problem.is_some()) => {
                status.stage(PART, "right");
                log::info!("The machine's clock is correct again");
            }
            None => {}
        }
    }

    fn look_at_state(&mut self, env: &Environment, status: &AgentStatus) {
        let now = env.clock.mono();
        if now >= self.retried.saturating_add(RETRY_PERIOD) {
            self.retried = now;
            self.state.retry();
        }
        match self.state.trouble() {
            Some(why) => {
                status.doing(STATE, "in memory");
                status.problem(STATE, &why);
            }
            None => status.forget(STATE),
        }
    }

    fn store_when_due(&mut self) {
        let now = self.time.local_clock().mono();
        if self.stored.is_none_or(|at| now.saturating_sub(at) >= STORE_PERIOD) {
            self.store();
        }
    }

    /// Stores the time for the next start.
    pub(super) fn store(&mut self) {
        let Some(garden) = self.time.garden() else { return };
        self.stored = Some(self.time.local_clock().mono());
        self.state.write(SLOT, garden.unix().to_string().as_bytes());
    }
}

/// Describes a skew that matters. The text is rounded so that it does not change with each check.
fn matters(skew_nanos: Option<i64>) -> Option<String> {
    let nanos = skew_nanos?;
    let skew = Duration::from_nanos(nanos.unsigned_abs());
    let side = if nanos > 0 { "behind" } else { "ahead of" };
    (skew > TOLERATED).then(|| format!("{} {side} the garden's", rough(skew)))
}

/// A sentence for the Seed's condition.
fn remark(skew_nanos: Option<i64>) -> Option<String> {
    Some(format!("The clock of its machine is {}.", matters(skew_nanos)?))
}

/// What is wrong with the machine's clock, and how to fix it.
fn problem(machine: Timestamp, floor: Timestamp, skew_nanos: Option<i64>) -> Option<String> {
    let remedy = "set it, best with NTP; no restart is needed";
    if let Some(off) = matters(skew_nanos) {
        return Some(format!(
            "the clock is {off}, whose time is used for the lease and for certificates: {remedy}"
        ));
    }
    // Without the garden, a clock is certainly wrong only if it shows a time that has already passed.
    (skew_nanos.is_none() && floor.since(machine) > TOLERATED).then(|| {
        let (day, floor) = (&rfc3339(machine)[..10], &rfc3339(floor)[..10]);
        format!("the clock is before {floor}, which has passed, and shows {day}: {remedy}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{Clock, Simulated};

    #[test]
    fn the_gardens_time_is_kept_once_an_hour() {
        let begin = Timestamp::from_unix(1_750_000_000);
        let sim = Simulated::new(begin, 1);
        let time = GardenTime::new(Clock::new(sim.clone()), Timestamp::default(), None);
        let state = StateDir::in_memory();
        let mut keeper = ClockWatch::new(time.clone(), state.clone());
        let kept = || String::from_utf8(state.read(SLOT)?).unwrap().parse::<i64>().ok();
        keeper.store_when_due();
        keeper.store();
        assert_eq!(kept(), None, "the garden has not answered yet");
        // The garden is a day ahead.
        let mono = time.local_clock().mono();
        time.learn(begin.plus(Duration::from_secs(86_400)), mono, mono);
        for (minutes, expected) in [(0, 0), (59, 0), (2, 3_660), (30, 3_660)] {
            sim.advance(Duration::from_secs(minutes * 60));
            keeper.store_when_due();
            assert_eq!(kept(), Some(1_750_086_400 + expected), "{minutes}");
        }
        keeper.store();
        assert_eq!(kept(), Some(1_750_086_400 + 5_460), "at the end");
    }

    #[test]
    fn what_is_wrong_with_a_clock() {
        let floor = Timestamp::from_unix(1_750_000_000);
        let later = |s: i64| floor.offset(s * 1_000_000_000);
        let hour = Some(3_600_000_000_000);
        let table = [
            (later(5), None, None),
            (later(-5), None, None),
            (
                Timestamp::from_unix(10),
                None,
                Some("the clock is before 2025-06-15, which has passed, and shows 1970-01-01: set it"),
            ),
            (later(5), Some(9_000_000_000), None),
            (later(5), hour, Some("the clock is 1 h behind the garden's")),
            (Timestamp::from_unix(10), hour, Some("the clock is 1 h behind the garden's")),
            (later(5), Some(-90_000_000_000), Some("the clock is 2 min ahead of the garden's")),
            (later(-60), Some(0), None),
        ];
        for (machine, skew, expected) in table {
            let found = problem(machine, floor, skew);
            let fits = match (&found, expected) {
                (Some(found), Some(expected)) => found.starts_with(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(fits, "{machine:?} {skew:?}: {found:?}");
        }
        assert_eq!(remark(hour).unwrap(), "The clock of its machine is 1 h behind the garden's.");
        assert_eq!(remark(Some(10_000_000_000)), None);
    }
}
