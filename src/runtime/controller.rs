//! A controller is a function from a key to "done", "again after" or a failure. The function reads the object each
//! time: a key means that something may have changed, but never what.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::api::meta::Key;
use crate::base::clock::{Clock, Mono};
use crate::base::error::chain;
use crate::base::metrics::Metrics;
use crate::base::stop::Stop;
use crate::kube::{self, ErrorVerdict};
use crate::limits;

use super::events::EventRecorder;

/// The result of a successful reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileOutcome {
    /// Nothing to do until something changes.
    Done,
    /// Nothing to do until something changes or the time has passed.
    After(Duration),
    /// The same, at a point in time. A reconciliation that computes with the present time derives the point before it
    /// starts, so that delays until its end, including a suspended machine, do not make it late.
    At(Mono),
    /// Continue after this time: the success is not known yet. Earlier failures still count.
    GoOn(Duration),
}

/// The cause, as a text for a log.
pub(crate) type Cause = Box<dyn Error + Send + Sync>;

/// How a reconciliation failed.
#[derive(Debug)]
pub enum ReconcileFailure {
    /// It may succeed later: the key is retried with backoff.
    Retry(Cause),
    /// It cannot succeed until something changes.
    Terminal(Cause),
    /// It was not tried, because something else must end first: the key returns after this time.
    Later(Duration, Cause),
}

impl ReconcileFailure {
    /// The causes in one line.
    pub fn text(&self) -> String {
        chain(&**self.cause())
    }

    /// The retry delay that the server requested, if any.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match find_request(&**self.cause())?.verdict() {
            ErrorVerdict::Throttled(after) => after.map(|after| after.min(limits::RETRY_AFTER_MAX)),
            _ => None,
        }
    }

    /// If it was not tried, or a client did not send a request: when to retry. This is not a failed attempt.
    pub fn postponed(&self) -> Option<Duration> {
        match self {
            Self::Retry(cause) => find_request(&**cause)?.postponed(),
            Self::Later(after, _) => Some(*after),
            Self::Terminal(_) => None,
        }
    }

    /// Whether another client wrote the object first. This is normal, and the next try reads the new version.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Retry(cause) if find_request(&**cause).is_some_and(kube::Error::is_conflict))
    }

    /// The verdict of the failed request, if it was one.
    pub(crate) fn verdict(&self) -> Option<ErrorVerdict> {
        find_request(&**self.cause()).map(kube::Error::verdict)
    }

    /// Whether it resolves itself: it was not tried, another client was faster, or a server does not answer.
    pub(crate) fn passes(&self) -> bool {
        let helps_itself = match self.verdict() {
            Some(ErrorVerdict::NotFound | ErrorVerdict::Denied | ErrorVerdict::Invalid) | None => false,
            Some(_) => true,
        };
        helps_itself || self.postponed().is_some()
    }

    const fn cause(&self) -> &Cause {
        let (Self::Retry(cause) | Self::Terminal(cause) | Self::Later(_, cause)) = self;
        cause
    }

    /// A retry after `after`, not counted as a failed attempt.
    pub(crate) fn later(after: Duration, cause: impl Into<Cause>) -> Self {
        Self::Later(after, cause.into())
    }

    /// A failure that waits for a change.
    pub(crate) fn terminal(cause: impl Into<Cause>) -> Self {
        Self::Terminal(cause.into())
    }

    /// A failure that is retried, from a text.
    pub(crate) fn retry(cause: impl Into<Cause>) -> Self {
        Self::Retry(cause.into())
    }
}

/// The client's error among the causes.
fn find_request<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a kube::Error> {
    let mut next = Some(cause);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

impl fmt::Display for ReconcileFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ReconcileFailure {
    fn from(error: E) -> Self {
        Self::Retry(Box::new(error))
    }
}

/// The input of a reconciliation besides its key.
#[derive(Clone, Debug)]
pub struct ReconcileContext {
    /// Time.
    pub clock: Clock,
    /// Pulled when the controller ends: long work checks it.
    pub stop: Stop,
    /// Counters.
    pub metrics: Metrics,
    /// Emits events.
    pub events: EventRecorder,
}

/// One controller.
pub trait Reconciler: Send + Sync {
    /// Brings the object of `key` closer to its desired state. Errors: [`ReconcileFailure`] defines whether to retry
    /// or to wait for a change.
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapped(kube::Error);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("while working")
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_server_may_request_a_retry_delay() {
        let refused = |code, seconds: Option<u64>| {
            let retry_after = seconds.map(Duration::from_secs);
            kube::Error::Api(Box::new(kube::StatusFailure {
                code,
                retry_after,
                ..kube::StatusFailure::default()
            }))
        };
        let s = Duration::from_secs;
        let table = [
            ("throttled", ReconcileFailure::from(refused(429, Some(7))), Some(s(7))),
            ("within another error", ReconcileFailure::from(Wrapped(refused(503, Some(8)))), Some(s(8))),
            ("forever", ReconcileFailure::from(refused(429, Some(86_400))), Some(s(300))),
            ("without a time", ReconcileFailure::from(refused(429, None)), None),
            ("another refusal", ReconcileFailure::from(refused(409, None)), None),
            ("no request", ReconcileFailure::retry("words"), None),
        ];
        for (name, failure, expected) in table {
            assert_eq!(failure.retry_after(), expected, "{name}");
        }
    }

    #[test]
    fn conflicts_are_recognized() {
        let refused = |code, reason: &str| {
            let reason = reason.to_owned();
            kube::Error::Api(Box::new(kube::StatusFailure { code, reason, ..kube::StatusFailure::default() }))
        };
        let table = [
            (ReconcileFailure::from(refused(409, "Conflict")), true),
            (ReconcileFailure::from(Wrapped(refused(409, "Conflict"))), true),
            (ReconcileFailure::from(refused(422, "Invalid")), false),
            (ReconcileFailure::terminal(refused(409, "Conflict")), false),
            (ReconcileFailure::retry("words"), false),
        ];
        for (failure, expected) in table {
            assert_eq!(failure.is_conflict(), expected, "{failure}");
        }
    }

    #[test]
    fn transient_failures_are_not_reported() {
        let refused = |code, reason: &str| {
            let reason = reason.to_owned();
            kube::Error::Api(Box::new(kube::StatusFailure { code, reason, ..kube::StatusFailure::default() }))
        };
        let table = [
            (ReconcileFailure::from(refused(409, "Conflict")), true),
            (ReconcileFailure::from(refused(409, "AlreadyExists")), true),
            (ReconcileFailure::from(refused(503, "")), true),
            (ReconcileFailure::from(kube::Error::Stopped), true),
            (ReconcileFailure::later(Duration::ZERO, "words"), true),
            (ReconcileFailure::from(Wrapped(refused(422, "Invalid"))), false),
            (ReconcileFailure::from(refused(403, "Forbidden")), false),
            (ReconcileFailure::from(refused(404, "NotFound")), false),
            (ReconcileFailure::retry("words"), false),
            (ReconcileFailure::terminal("words"), false),
        ];
        for (failure, expected) in table {
            assert_eq!(failure.passes(), expected, "{failure}");
        }
    }

    #[test]
    fn an_unsent_request_is_no_failed_attempt() {
        let fenced = || kube::Error::Fenced("not ours".to_owned());
        let soon = Some(limits::FENCED_AGAIN);
        let table = [
            ("fenced", ReconcileFailure::from(fenced()), soon),
            ("within another error", ReconcileFailure::from(Wrapped(fenced())), soon),
            ("refused by the server", ReconcileFailure::from(kube::Error::Api(Box::default())), None),
            ("no request", ReconcileFailure::retry("words"), None),
            ("terminal", ReconcileFailure::Terminal(Box::new(fenced())), None),
            (
                "not tried",
                ReconcileFailure::later(Duration::from_secs(3), "others go first"),
                Some(Duration::from_secs(3)),
            ),
        ];
        for (name, failure, expected) in table {
            assert_eq!(failure.postponed(), expected, "{name}");
        }
    }
}
