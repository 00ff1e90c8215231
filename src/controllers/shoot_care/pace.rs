//! When a Shoot is checked again. Pure.
//!
//! - Everything once per `syncPeriod`; after [`SOON`] while one of its conditions is not `True`. The workloads in the
//!   seed are read together for all Shoots, so this is cheap even if many are unhealthy.
//! - Its API server after [`SERVER`] at the latest, because `APIServerAvailable` must be `False` within a minute of an
//!   outage: a check without answer takes up to 15 s (one request, then two connections to newly found addresses, of 5
//!   s each).
//! - Its API server after [`SERVER_SOON`] while it does not answer, because the condition must be `True` within half a
//!   minute after the end of an outage.
//! - The garden after [`GARDEN_SOON`] while it lacks the result. Nothing is checked for that.

use std::time::Duration;

use crate::base::clock::Mono;
use crate::base::random;
use crate::runtime::controller::ReconcileContext;

/// For a Shoot without a seed.
pub(super) const UNSCHEDULED: Duration = Duration::from_secs(30);
pub(super) const SOON: Duration = Duration::from_secs(20);
pub(super) const SERVER: Duration = Duration::from_secs(30);
pub(super) const SERVER_SOON: Duration = Duration::from_secs(10);
pub(super) const GARDEN_SOON: Duration = Duration::from_secs(10);
/// How often facts inside the Shoot that change rarely are read: its definitions, and its pods, which may
/// take this long to end.
pub(super) const RARELY: Duration = Duration::from_secs(300);
/// How often facts that change only with operations are read again: the spec, and the expiry of CAs.
pub(super) const SELDOM: Duration = Duration::from_secs(3_600);
/// While the ManagedResources are not known.
pub(super) const UNSYNCED: Duration = Duration::from_secs(1);
/// An applier may take this long to start serving the Shoot.
pub(super) const APPLIER_GRACE: Duration = Duration::from_secs(30);

/// The result of a check, as far as the next one depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CheckOutcome {
    /// All conditions are `True`.
    pub(super) is_well: bool,
    /// Whether the API server answered; `None` if it was not asked.
    pub(super) answers: Option<bool>,
}

/// When the next checks are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Next {
    pub(super) whole: Mono,
    /// The check of its API server; `None` if it is not asked.
    pub(super) server: Option<Mono>,
}

/// The times after a check that ended at `at`. `share`, from 0 to 1, spreads checks that started together.
pub(super) fn next(found: CheckOutcome, sync_period: Duration, at: Mono, share: f64) -> Next {
    let whole = if found.is_well { sync_period.mul_f64(0.9 + 0.1 * share) } else { sync_period.min(SOON) };
    Next { whole: at.saturating_add(whole), server: server(found.answers, sync_period, at) }
}

/// When to check the API server next.
pub(super) fn server(answers: Option<bool>, sync_period: Duration, at: Mono) -> Option<Mono> {
    let wait = answers.map(|answers| if answers { SERVER } else { SERVER_SOON });
    wait.map(|wait| at.saturating_add(wait.min(sync_period)))
}

/// The maximum age of cached facts about the namespace.
pub(super) fn age_max(was_well: bool, sync_period: Duration) -> Duration {
    if was_well { sync_period / 2 } else { SOON.min(sync_period) / 2 }
}

/// When the first check is due. A Shoot that is up to date gets a time within the period, so that not all are checked
/// at once after a restart.
pub(super) fn first(is_current: bool, sync_period: Duration, cx: &ReconcileContext) -> Mono {
    let now = cx.clock.mono();
    if is_current { now.saturating_add(sync_period.mul_f64(random::unit())) } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_look() {
        let (at, s) = (Mono::from_secs, Duration::from_secs);
        // Healthy, server answers, period; then: the times of the full check and of the server check.
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
            let next = next(CheckOutcome { is_well, answers }, s(period), at(100), 1.0);
            assert_eq!(
                next,
                Next { whole: at(whole), server: server.map(at) },
                "{is_well} {answers:?} {period}"
            );
        }
        let early = next(CheckOutcome { is_well: true, answers: None }, s(60), at(100), 0.0);
        assert_eq!(early.whole, at(154));
        // An unreachable server blocks a check for three times five seconds.
        assert!(SERVER + s(15) < s(60) && SERVER_SOON + s(15) < s(30));
        assert_eq!((age_max(true, s(60)), age_max(false, s(60)), age_max(false, s(8))), (s(30), s(10), s(4)));
    }
}
