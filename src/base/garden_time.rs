//! The current time on a machine whose clock may start in 1970, be hours off, or jump.
//!
//! There are three sources. The best one is the garden's time, which answers over verified TLS carry and the monotonic
//! clock extrapolates. The second one is the machine's clock. The last one is a floor: the time of the build, or the
//! last garden time that an earlier process saw. Only garden time becomes a floor. Otherwise a clock that was once far
//! in the future would lock the agent there.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::clock::{Clock, Mono, TimeSource, Timestamp};

/// A slower answer is too inaccurate.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(5);
/// `Date` has whole seconds: half of one, in nanoseconds.
const HALF_SECOND: i64 = 500_000_000;
const UNKNOWN: i64 = i64::MIN;

#[derive(Debug)]
struct TimeOffsets {
    system: Clock,
    built: Timestamp,
    /// Offset from monotonic time in nanoseconds. Atomic, because the heartbeat must not wait for a lock.
    floor: AtomicI64,
    /// The same offset for the garden's time, or [`UNKNOWN`].
    garden: AtomicI64,
}

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GardenTime(Arc<TimeOffsets>);

/// Which time a [`Clock`] shows.
#[derive(Clone, Copy, Debug)]
enum Shows {
    /// The machine's time, but not before the floor.
    Local,
    /// The garden's time if it is known, else [`Shows::Local`].
    Garden,
    /// The machine's time as it is, unless it is before the time of the build.
    Machine,
}

#[derive(Debug)]
struct ShownTime {
    time: GardenTime,
    shows: Shows,
}

impl GardenTime {
    /// `built`: the time of the build. `seen`: the last garden time that an earlier process saw.
    pub(crate) fn new(system: Clock, built: Timestamp, seen: Option<Timestamp>) -> Self {
        let floor = seen.map_or(built, |seen| seen.max(built));
        let floor = AtomicI64::new(behind(floor, system.mono()));
        Self(Arc::new(TimeOffsets { system, built, floor, garden: AtomicI64::new(UNKNOWN) }))
    }

    /// The machine's time, at least the floor.
    pub(crate) fn local(&self) -> Timestamp {
        self.0.system.now().max(self.floor())
    }

    /// A time that has certainly passed.
    pub(crate) fn floor(&self) -> Timestamp {
        self.at(self.0.floor.load(Ordering::Relaxed))
    }

    /// The machine's clock, right or wrong.
    pub(crate) fn machine(&self) -> Timestamp {
        self.0.system.now()
    }

    /// The garden's time, after the first answer that carries it.
    pub(crate) fn garden(&self) -> Option<Timestamp> {
        match self.0.garden.load(Ordering::Relaxed) {
            UNKNOWN => None,
            offset => Some(self.at(offset)),
        }
    }

    /// By how many nanoseconds the garden's clock is ahead of the machine's clock.
    pub(crate) fn skew_nanos(&self) -> Option<i64> {
        self.garden().map(|garden| garden.unix_nanos().saturating_sub(self.machine().unix_nanos()))
    }

    /// Learns from the `Date` of an answer over verified TLS, on the monotonic clock. An answer changes the
    /// time only as far as it contradicts it: `Date` is half a second off on average, and the server wrote it
    /// at some moment of the round trip.
    pub(crate) fn learn(&self, date: Timestamp, sent: Mono, received: Mono) {
        let round_trip = received.saturating_sub(sent);
        if round_trip > ROUND_TRIP_MAX || date < self.0.built {
            return;
        }
        let half = i64::try_from(round_trip.as_nanos() / 2).unwrap_or(0);
        let (middle, error) =
            (behind(date, sent).saturating_add(HALF_SECOND - half), half.saturating_add(HALF_SECOND));
        let present = match self.0.garden.load(Ordering::Relaxed) {
            UNKNOWN => behind(self.local(), self.0.system.mono()),
            known => known,
        };
        let learned = present.clamp(middle.saturating_sub(error), middle.saturating_add(error));
        self.0.garden.store(learned, Ordering::Relaxed);
        // The floor may decrease: a garden whose clock was wrong for a while does no lasting harm.
        self.0.floor.store(learned.saturating_sub(2 * error), Ordering::Relaxed);
    }

    /// The machine's clock, never before the floor.
    pub(crate) fn local_clock(&self) -> Clock {
        self.clock(Shows::Local)
    }

    /// The garden's clock, as far as it is known. It stamps leases and checks certificates.
    pub(crate) fn garden_clock(&self) -> Clock {
        self.clock(Shows::Garden)
    }

    /// The machine's clock, unless it is certainly wrong: the second opinion on certificates.
    pub(crate) fn machine_clock(&self) -> Clock {
        self.clock(Shows::Machine)
    }

    fn clock(&self, shows: Shows) -> Clock {
        Clock::new(Arc::new(ShownTime { time: self.clone(), shows }))
    }

    fn at(&self, offset: i64) -> Timestamp {
        Timestamp::from_unix_nanos(offset).plus(self.0.system.mono())
    }
}

/// The offset from monotonic time to wall-clock time.
fn behind(at: Timestamp, mono: Mono) -> i64 {
    at.minus(mono).unix_nanos()
}

impl TimeSource for ShownTime {
    fn now(&self) -> Timestamp {
        let time = &self.time;
        match self.shows {
            Shows::Local => time.local(),
            Shows::Garden => time.garden().unwrap_or_else(|| time.local()),
            Shows::Machine if time.machine() >= time.0.built => time.machine(),
            Shows::Machine => time.local(),
        }
    }

    fn mono(&self) -> Mono {
        self.time.0.system.mono()
    }

    fn real(&self, d: Duration) -> Duration {
        self.time.0.system.real(d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Simulated;

    const BUILT: i64 = 1_700_000_000;
    const NOW: i64 = 1_750_000_000;
    const HOUR: i64 = 3_600;

    fn at(unix: i64) -> Timestamp {
        Timestamp::from_unix(unix)
    }

    fn machine(shows: i64, seen: Option<i64>) -> (Arc<Simulated>, GardenTime) {
        let sim = Simulated::new(at(shows), 1);
        let time = GardenTime::new(Clock::new(sim.clone()), at(BUILT), seen.map(at));
        (sim, time)
    }

    /// An answer of a garden whose clock shows `date`.
    fn answer(time: &GardenTime, date: i64, round_trip_s: u64) {
        let mono = time.local_clock().mono();
        time.learn(at(date), mono, mono + Duration::from_secs(round_trip_s));
    }

    #[test]
    fn the_clock_is_never_before_what_has_passed() {
        // Machine's time, last garden time; local clock, second opinion.
        let table = [
            (NOW, None, NOW, NOW),
            (0, None, BUILT, BUILT),
            (0, Some(NOW), NOW, NOW),
            (NOW, Some(NOW - HOUR), NOW, NOW),
            (NOW, Some(NOW + HOUR), NOW + HOUR, NOW),
            (NOW, Some(0), NOW, NOW),
        ];
        for (shows, seen, local, second) in table {
            let (_, time) = machine(shows, seen);
            assert_eq!(time.local_clock().now().unix(), local, "{shows} {seen:?}");
            assert_eq!(time.garden_clock().now().unix(), local, "{shows} {seen:?}");
            assert_eq!(time.machine_clock().now().unix(), second, "{shows} {seen:?}");
            assert_eq!(time.skew_nanos(), None);
        }
    }

    #[test]
    fn a_clock_at_its_floor_advances() {
        let (sim, time) = machine(0, Some(NOW));
        sim.advance(Duration::from_secs(60));
        assert_eq!(time.local().unix(), NOW + 60);
        // Somebody sets it.
        sim.step((NOW + 100) * 1_000_000_000);
        assert_eq!(time.local().unix(), NOW + 160);
    }

    #[test]
    fn the_time_changes_as_far_as_an_answer_contradicts_it() {
        // `Date`, round trip; error in seconds of the garden time before the answer arrived.
        let table = [(NOW, 0, 0.0), (NOW - 1, 0, 0.0), (NOW + HOUR, 0, 3_600.0), (NOW - HOUR, 0, -3_599.0)];
        for (date, round_trip, expected) in table {
            let (_, time) = machine(NOW, None);
            answer(&time, date, round_trip);
            let skew = time.skew_nanos().unwrap();
            let off = Duration::from_nanos(skew.unsigned_abs()).as_secs_f64() - f64::abs(expected);
            assert!(
                f64::abs(off) < 0.1 && (expected == 0.0 || (skew < 0) == (expected < 0.0)),
                "{date} {skew}"
            );
        }
        let (_, time) = machine(NOW, None);
        answer(&time, NOW + HOUR, 6);
        answer(&time, BUILT - 1, 0);
        assert_eq!(time.garden(), None, "too slow, or certainly wrong");
    }

    #[test]
    fn jumps_of_the_machines_clock_do_not_move_the_gardens_time() {
        let (sim, time) = machine(NOW, None);
        answer(&time, NOW, 0);
        for (jump, skew) in [(10 * HOUR, -10 * HOUR), (-30 * HOUR, 20 * HOUR), (20 * HOUR, 0)] {
            sim.step(jump * 1_000_000_000);
            assert_eq!(time.garden_clock().now().unix(), NOW);
            assert_eq!((time.skew_nanos().unwrap() + HALF_SECOND).div_euclid(1_000_000_000), skew);
        }
    }

    #[test]
    fn a_time_far_in_the_future_is_forgotten() {
        // The clock was wrong, but no garden confirmed it: it does not become the floor.
        let (sim, time) = machine(NOW, None);
        sim.step(100_000 * HOUR * 1_000_000_000);
        sim.step(-100_000 * HOUR * 1_000_000_000);
        assert_eq!(time.local().unix(), NOW);
        // The garden was wrong: its next correct answer fixes the time.
        answer(&time, NOW + 100_000 * HOUR, 0);
        assert!(time.local().unix() > NOW + 99_999 * HOUR);
        answer(&time, NOW, 0);
        assert_eq!(time.local().unix(), NOW);
        assert_eq!(time.garden_clock().now().unix(), NOW + 1);
    }
}
