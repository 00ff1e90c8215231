//! Waiting for conditions with a deadline. No story sleeps for a fixed time and hopes.

use std::fmt::Display;
use std::sync::OnceLock;
use std::time::Duration;

use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::stop::Stop;

use crate::failure::{Failure, Result};

/// The interval between two checks of a condition.
const LOOK: Duration = Duration::from_millis(40);

fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::system)
}

/// Monotonic time since the harness started.
pub(crate) fn now() -> Mono {
    clock().mono()
}

/// Seconds since an earlier [`now`].
pub(crate) fn seconds_since(earlier: Mono) -> f64 {
    now().saturating_sub(earlier).as_secs_f64()
}

/// Lets `d` pass: between two checks, or where a story shows that something does *not* happen.
pub(crate) fn pause(d: Duration) {
    Stop::new().wait(clock(), d);
}

/// Calls `look` until it returns a value, at most `seconds` long. The last error of `look` becomes part of the failure.
pub(crate) fn until<T, E: Display>(
    what: &str,
    seconds: u64,
    mut look: impl FnMut() -> std::result::Result<Option<T>, E>,
) -> Result<T> {
    let deadline = now().saturating_add(Duration::from_secs(seconds));
    loop {
        let complaint = match look() {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => None,
            Err(err) => Some(err.to_string()),
        };
        if now() >= deadline {
            let complaint = complaint.map(|text| format!(": {text}")).unwrap_or_default();
            return Err(Failure::new(format!("waited {seconds} s for {what}{complaint}")));
        }
        pause(LOOK);
    }
}

/// Checks until `holds` is true, at most `seconds` long.
pub(crate) fn until_true(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) -> Result<()> {
    until(what, seconds, || Ok::<_, Failure>(holds().then_some(())))
}
