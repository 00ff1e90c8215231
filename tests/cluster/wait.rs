//! Waiting for conditions with a deadline. No story sleeps for a fixed time and hopes.

use std::fmt::Display;
use std::sync::OnceLock;
use std::time::Duration;

use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::stop::Stop;

use crate::failure::{Failure, Result};
use support::options::{self, patience};

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

/// Calls `look` until it returns a value, at most `seconds` long, in CI four times as long: the story shall end, and not
/// measure. The last error of `look` becomes part of the failure.
pub(crate) fn until<T, E: Display>(
    what: &str,
    seconds: u64,
    look: impl FnMut() -> std::result::Result<Option<T>, E>,
) -> Result<T> {
    let limit = patience(Duration::from_secs(seconds));
    match look_for(limit, look) {
        Ok(found) => Ok(found),
        Err(complaint) => {
            let complaint = complaint.map(|text| format!(": {text}")).unwrap_or_default();
            Err(Failure::new(format!("waited {} s for {what}{complaint}", limit.as_secs())))
        }
    }
}

/// Checks until `holds` is true, at most `seconds` long, as [`until`] does.
pub(crate) fn until_true(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) -> Result<()> {
    until(what, seconds, || Ok::<_, Failure>(holds().then_some(())))
}

/// Calls `look` until it returns a value, no longer than `time` on any machine: the value may also not come.
pub(crate) fn briefly<T>(time: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let mut failed = None;
    let found = look_for(time, || match look() {
        Ok(found) => Ok::<_, Failure>(found.map(Some)),
        Err(failure) => {
            failed = Some(failure);
            Ok(Some(None))
        }
    });
    failed.map_or(Ok(found.ok().flatten()), Err)
}

/// A value, or the last error of `look`, if there was one.
fn look_for<T, E: Display>(
    limit: Duration,
    mut look: impl FnMut() -> std::result::Result<Option<T>, E>,
) -> std::result::Result<T, Option<String>> {
    let deadline = now().saturating_add(limit);
    loop {
        let complaint = match look() {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => None,
            Err(err) => Some(err.to_string()),
        };
        if now() >= deadline {
            return Err(complaint);
        }
        pause(LOOK);
    }
}

/// Prints a figure that depends on the speed of the machine. Only a long run demands its limit.
pub(crate) fn measured(what: &str, figure: f64, limit: f64) -> Result<()> {
    options::measured(what, figure, limit).map_err(Failure::new)
}
