//! When a Shoot is looked at again. Pure.
//!
//! - All of it once per `syncPeriod`; after [`SOON`] while one of its conditions is not `True`. The workloads in the seed are read
//!   together for all Shoots, so that this is cheap also if many are not well.
//! - Its API server after [`SERVER`] at the latest, since `APIServerAvailable` has to be `False` within a minute of a cut: a
//!   look that gets no answer takes up to 15 s (one request, then two ways to the server that are found anew, of 5 s each).
//! - Its API server after [`SERVER_SOON`] while it does not answer, since the condition has to be `True` within half a minute
//!   of the cut's end.
//! - The garden after [`GARDEN_SOON`] while it does not know the result. Nothing is looked at for that.

use std::time::Duration;

use crate::base::clock::Mono;
use crate::base::random;
use crate::runtime::controller::Context;

/// For a Shoot that no seed has yet.
pub(super) const UNSCHEDULED: Duration = Duration::from_secs(30);
/// See the module.
pub(super) const SOON: Duration = Duration::from_secs(20);
/// See the module.
pub(super) const SERVER: Duration = Duration::from_secs(30);
/// See the module.
pub(super) const SERVER_SOON: Duration = Duration::from_secs(10);
/// See the module.
pub(super) const GARDEN_SOON: Duration = Duration::from_secs(10);
/// What changes rarely inside the Shoot is read so often: its definitions, and its pods, which have this long to end.
pub(super) const RARELY: Duration = Duration::from_secs(300);
/// What changes with operations only is read again so often: the spec, and the validity of CAs.
pub(super) const SELDOM: Duration = Duration::from_secs(3_600);
/// While the ManagedResources are not known.
pub(super) const UNSYNCED: Duration = Duration::from_secs(1);
/// An applier that does not serve the Shoot has this long to begin.
pub(super) const APPLIER_GRACE: Duration = Duration::from_secs(30);

/// What a look has found, as far as the next one depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// All conditions are `True`.
    pub(super) is_well: bool,
    /// Whether the API server answered; nothing if it was not asked.
    pub(super) answers: Option<bool>,
}

/// When to look next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Next {
    /// At all of it.
    pub(super) whole: Mono,
    /// At its API server; nothing if it is not asked.
    pub(super) server: Option<Mono>,
}

/// The times after a look that ended at `at`. `share`, from 0 to 1, keeps apart what began together.
pub(super) fn next(found: Found, sync_period: Duration, at: Mono, share: f64) -> Next {
    let whole = if found.is_well { sync_period.mul_f64(0.9 + 0.1 * share) } else { sync_period.min(SOON) };
    Next { whole: at.saturating_add(whole), server: server(found.answers, sync_period, at) }
}

/// When to ask the API server next.
pub(super) fn server(answers: Option<bool>, sync_period: Duration, at: Mono) -> Option<Mono> {
    let wait = answers.map(|answers| if answers { SERVER } else { SERVER_SOON });
    wait.map(|wait| at.saturating_add(wait.min(sync_period)))
}

/// How old what is known of the namespace may be.
pub(super) fn age_max(was_well: bool, sync_period: Duration) -> Duration {
    if was_well { sync_period / 2 } else { SOON.min(sync_period) / 2 }
}

/// When to look for the first time: a Shoot that is up to date at some time in the period, so that not all begin at once after a
/// restart.
pub(super) fn first(is_current: bool, sync_period: Duration, cx: &Context) -> Mono {
    let now = cx.clock.mono();
    if is_current { now.saturating_add(sync_period.mul_f64(random::unit())) } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_look() {
        let (at, s) = (Mono::from_secs, Duration::from_secs);
        // All is well, the server answers, the period; then: the whole look, and that at the server.
        let table = [
            (true, Some(true), 60, 160, Some(130)),
            (true, None, 60, 160, None),
            (true, Some(true), 30, 130, Some(130)),
            (false, Some(true), 60, 120, Some(130)),
            (false, Some(false), 60, 120, Some(110)),
            (false, None, 60, 120, None),
            (false, Some(false), 5, 105, Some(105)),
        ];
        for (is_well, answers, period, whole, server) in table {
            let next = next(Found { is_well, answers }, s(period), at(100), 1.0);
            assert_eq!(
                next,
                Next { whole: at(whole), server: server.map(at) },
                "{is_well} {answers:?} {period}"
            );
        }
        let early = next(Found { is_well: true, answers: None }, s(60), at(100), 0.0);
        assert_eq!(early.whole, at(154));
        // A server that gives no answer holds a look for three times five seconds.
        assert!(SERVER + s(15) < s(60) && SERVER_SOON + s(15) < s(30));
        assert_eq!((age_max(true, s(60)), age_max(false, s(60)), age_max(false, s(8))), (s(30), s(10), s(4)));
    }
}
