//! The only source of time. All code that reads the time or waits takes a [`Clock`], so that a test can run the whole
//! program on a simulated clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::ClockId;

/// A point in wall-clock time: nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

const NANOS: i64 = 1_000_000_000;

impl Timestamp {
    /// From whole seconds since 1970. Saturates far beyond the times that certificates and API objects can hold.
    pub const fn from_unix(seconds: i64) -> Self {
        Self(seconds.saturating_mul(NANOS))
    }

    /// From nanoseconds since 1970.
    pub(crate) const fn from_unix_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Whole seconds since 1970, rounded down.
    pub const fn unix(self) -> i64 {
        self.0.div_euclid(NANOS)
    }

    /// Seconds since 1970 as metrics show them: the fraction is not exact.
    #[expect(clippy::cast_precision_loss, reason = "a metric needs no more precision")]
    pub const fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Nanoseconds since 1970.
    pub const fn unix_nanos(self) -> i64 {
        self.0
    }

    /// The nanosecond part of the second.
    pub fn subsec_nanos(self) -> u32 {
        u32::try_from(self.0.rem_euclid(NANOS)).unwrap_or(0)
    }

    /// The time that has passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// `d` later, saturating.
    #[must_use]
    pub fn plus(self, d: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// `d` earlier, saturating.
    #[must_use]
    pub fn minus(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// Shifted by a signed number of nanoseconds, saturating.
    #[must_use]
    pub const fn offset(self, nanos: i64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({}.{:09})", self.unix(), self.subsec_nanos())
    }
}

/// A point on the monotonic clock: the time since an arbitrary start. It never decreases, and it counts the time that
/// the machine is suspended. Intervals and deadlines use it.
pub type Mono = Duration;

/// What a clock provides.
pub trait TimeSource: Send + Sync + fmt::Debug {
    /// Wall-clock time: may be wrong, may jump.
    fn now(&self) -> Timestamp;
    /// The present time of the monotonic clock.
    fn mono(&self) -> Mono;
    /// How long a thread must really block until `d` of this clock has passed. A simulated clock returns less. Every
    /// wait is a loop that reads [`TimeSource::mono`] again.
    fn real(&self, d: Duration) -> Duration;
}

/// The clock that all code takes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Arc<dyn TimeSource>);

impl Clock {
    /// The clock of the machine.
    pub fn system() -> Self {
        Self(Arc::new(System { start: boot_time() }))
    }

    /// A clock with another source.
    pub fn new(source: Arc<dyn TimeSource>) -> Self {
        Self(source)
    }

    /// The present time of the wall clock.
    pub fn now(&self) -> Timestamp {
        self.0.now()
    }

    /// The present time of the monotonic clock.
    pub fn mono(&self) -> Mono {
        self.0.mono()
    }

    /// See [`TimeSource::real`].
    pub fn real(&self, d: Duration) -> Duration {
        self.0.real(d)
    }
}

/// Microseconds of the machine's `CLOCK_MONOTONIC`, which other programs can compare with theirs.
pub(crate) fn machine_usec() -> u64 {
    u64::try_from(read(ClockId::Monotonic).as_micros()).unwrap_or(u64::MAX)
}

/// The processor time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// The time since boot, including suspension: a lease expires and the garden's time advances while the machine sleeps.
fn boot_time() -> Duration {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[derive(Debug)]
struct System {
    start: Duration,
}

/// The system's waits do not count suspended time. After a resume, all waits notice the new time within this duration.
const WAKE_UP_TIME: Duration = Duration::from_secs(20);

impl TimeSource for System {
    #[allow(clippy::disallowed_methods)] // the one place
    fn now(&self) -> Timestamp {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(d) => Timestamp::default().plus(d),
            Err(e) => Timestamp::default().minus(e.duration()),
        }
    }

    fn mono(&self) -> Mono {
        boot_time().saturating_sub(self.start)
    }

    fn real(&self, d: Duration) -> Duration {
        d.min(WAKE_UP_TIME)
    }
}

/// A clock for tests that runs faster than the machine's clock and can be set.
///
/// Time passes at `factor` times the rate of another clock, so threads that wait for each other stay in step. Waits are
/// cut into short real pieces, so that they notice a jump within milliseconds.
#[derive(Debug)]
pub struct Simulated {
    pace: Clock,
    begin: Mono,
    factor: u32,
    wall_nanos: AtomicI64,
    mono_nanos: AtomicU64,
}

/// The longest real time for which a thread blocks before it reads a simulated clock again.
const LOOK: Duration = Duration::from_millis(5);

impl Simulated {
    /// A clock that reads `wall` now and runs `factor` times as fast as the machine's.
    pub fn new(wall: Timestamp, factor: u32) -> Arc<Self> {
        Self::paced(Clock::system(), wall, factor)
    }

    /// A clock that reads `wall` now and runs `factor` times as fast as `pace` does.
    pub fn paced(pace: Clock, wall: Timestamp, factor: u32) -> Arc<Self> {
        Arc::new(Self {
            begin: pace.mono(),
            pace,
            factor: factor.max(1),
            wall_nanos: AtomicI64::new(wall.unix_nanos()),
            mono_nanos: AtomicU64::new(0),
        })
    }

    /// Lets `d` pass at once, on both clocks.
    pub fn advance(&self, d: Duration) {
        let nanos = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX / 4);
        self.mono_nanos.fetch_add(nanos, Ordering::SeqCst);
        self.step(i64::try_from(nanos).unwrap_or(i64::MAX / 4));
    }

    /// Sets the wall clock forward or back by `nanos`; monotonic time does not move.
    pub fn step(&self, nanos: i64) {
        self.wall_nanos.fetch_add(nanos, Ordering::SeqCst);
    }

    fn scaled(&self) -> Duration {
        self.pace.mono().saturating_sub(self.begin).saturating_mul(self.factor)
    }
}

impl TimeSource for Simulated {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_nanos(self.wall_nanos.load(Ordering::SeqCst)).plus(self.scaled())
    }

    fn mono(&self) -> Mono {
        Duration::from_nanos(self.mono_nanos.load(Ordering::SeqCst)).saturating_add(self.scaled())
    }

    fn real(&self, d: Duration) -> Duration {
        (d / self.factor).clamp(Duration::from_micros(200), LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a processor has no such instruction, the compiler or the kernel emulates it.
    #[test]
    fn atomics_of_64_bits_lose_no_carry() {
        const TURNS: u64 = 50_000;
        let counter = AtomicU64::new(u64::from(u32::MAX) - TURNS);
        let count = || {
            (0..TURNS).for_each(|_| {
                counter.fetch_add(1, Ordering::Relaxed);
            });
        };
        // A torn read would be far off.
        let look = || {
            let begin = u64::from(u32::MAX) - TURNS;
            (0..TURNS)
                .for_each(|_| assert!(counter.load(Ordering::Relaxed).wrapping_sub(begin) <= 2 * TURNS));
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(count);
                scope.spawn(look);
            }
        });
        assert_eq!(counter.into_inner(), u64::from(u32::MAX) + TURNS);
    }

    #[test]
    fn timestamps_subtract_without_wrapping() {
        let a = Timestamp::from_unix(100);
        assert_eq!(a.since(Timestamp::from_unix(98)), Duration::from_secs(2));
        assert_eq!(a.since(Timestamp::from_unix(101)), Duration::ZERO);
        assert_eq!(Timestamp::from_unix(i64::MAX).plus(Duration::MAX).unix_nanos(), i64::MAX);
        assert_eq!(Timestamp::from_unix_nanos(-1).unix(), -1);
        assert_eq!(Timestamp::from_unix_nanos(-1).subsec_nanos(), 999_999_999);
    }

    #[test]
    fn the_systems_clock_counts_the_time_in_which_the_machine_sleeps() {
        // On a machine that never slept, both clocks are equal.
        let (awake, all) = (read(ClockId::Monotonic), boot_time());
        assert!(awake <= all, "{awake:?} {all:?}");
        let clock = Clock::system();
        for (wait, real) in [(2, 2), (20, 20), (3_600, 20)].map(|(a, b)| (Duration::from_secs(a), b)) {
            assert_eq!(clock.real(wait), Duration::from_secs(real), "{wait:?}");
        }
    }

    #[test]
    fn a_simulated_clock_jumps_and_steps() {
        let sim = Simulated::new(Timestamp::from_unix(1_000), 1);
        let clock = Clock::new(sim.clone());
        let before = clock.mono();
        sim.advance(Duration::from_secs(60));
        assert!(clock.mono() - before >= Duration::from_secs(60));
        assert!(clock.now() >= Timestamp::from_unix(1_060));
        sim.step(-500 * 1_000_000_000);
        assert!(clock.now() < Timestamp::from_unix(600));
        assert!(clock.mono() - before >= Duration::from_secs(60));
    }
}
