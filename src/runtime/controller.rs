//! What a controller is: a name and a function from a key to "done", "again after" or a failure. The function reads the
//! object anew each time: a key says that something may be different, never what.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::api::meta::Key;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::metrics::Metrics;
use crate::base::stop::Stop;

use super::fence::Fence;

/// How a reconciliation ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do until something changes.
    Done,
    /// Nothing to do until something changes or the time has passed.
    After(Duration),
}

/// What went wrong, in words for a log.
pub type Cause = Box<dyn Error + Send + Sync>;

/// How a reconciliation failed.
#[derive(Debug)]
pub enum Failure {
    /// It may work later: the key comes back after a growing delay.
    Retry(Cause),
    /// It cannot work until something changes.
    Terminal(Cause),
}

impl Failure {
    /// The causes in one line.
    pub fn text(&self) -> String {
        let (Self::Retry(cause) | Self::Terminal(cause)) = self;
        chain(&**cause)
    }

    /// A failure that waits for a change.
    pub fn terminal(cause: impl Into<Cause>) -> Self {
        Self::Terminal(cause.into())
    }

    /// A failure that comes back, from a sentence.
    pub fn retry(cause: impl Into<Cause>) -> Self {
        Self::Retry(cause.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Retry(Box::new(error))
    }
}

/// What a reconciliation is handed besides its key.
#[derive(Clone, Debug)]
pub struct Context {
    /// Time.
    pub clock: Clock,
    /// Pulled when the controller ends: long work looks at it.
    pub stop: Stop,
    /// Counters.
    pub metrics: Metrics,
    /// The lease under which the controller writes.
    pub fence: Fence,
    /// The longest that one write may take: what must be left of the lease when it begins.
    pub write_deadline: Duration,
}

impl Context {
    /// Whether a write may begin now.
    ///
    /// # Errors
    /// A retry, if the lease is not ours for long enough.
    pub fn may_write(&self) -> Result<(), Failure> {
        Ok(self.fence.check(self.write_deadline)?)
    }
}

/// One controller.
pub trait Reconciler: Send + Sync {
    /// The name as in Gardener, for logs and metrics.
    fn name(&self) -> &'static str;

    /// Brings the object of `key` nearer to what it should be.
    ///
    /// # Errors
    /// [`Failure`] says whether to come back or to wait for a change.
    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure>;
}
