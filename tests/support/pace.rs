//! Time that passes only as fast as the machine can follow.
//!
//! Stories run on simulated time, many times faster than real time, so what is late by a fraction of a second on a busy
//! machine would be late by the deadline of a lease. Their clocks follow this one: a thread that runs only where a
//! processor has nothing else to do counts its turns, so time is slower on a machine that cannot follow, and no thread is late.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Mono, TimeSource, Timestamp};
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;

/// From turn to turn, if nobody else has anything to do.
const TURN: Duration = Duration::from_millis(1);
/// What a turn counts at most, however late it comes.
const TURN_MAX: Duration = Duration::from_micros(1_250);
const STACK: usize = 256 << 10;

static PASSED: AtomicU64 = AtomicU64::new(0);

/// The clock of this process. It stops while the machine is busy.
pub fn clock() -> Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK
        .get_or_init(|| {
            thread::spawn("pace", STACK, count).unwrap();
            Clock::new(std::sync::Arc::new(Pace))
        })
        .clone()
}

#[derive(Debug)]
struct Pace;

impl TimeSource for Pace {
    fn now(&self) -> Timestamp {
        Clock::system().now()
    }

    fn mono(&self) -> Mono {
        Duration::from_nanos(PASSED.load(Ordering::SeqCst))
    }

    fn real(&self, d: Duration) -> Duration {
        d.clamp(TURN, 5 * TURN)
    }
}

fn count() {
    stand_back();
    let (real, never) = (Clock::system(), Stop::new());
    let mut last = real.mono();
    loop {
        never.wait(&real, TURN);
        let now = real.mono();
        let turn = now.saturating_sub(last).min(TURN_MAX);
        PASSED.fetch_add(turn.as_nanos() as u64, Ordering::SeqCst);
        last = now;
    }
}

/// Lets all other threads run first. Where the system has no such priority, time passes as usual.
fn stand_back() {
    let this = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    if let Some(id) = this.file_name() {
        drop(std::process::Command::new("chrt").args(["--idle", "--pid", "0"]).arg(id).output());
    }
}
