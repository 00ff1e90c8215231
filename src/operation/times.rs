//! How long tasks wait and may take.

use std::time::Duration;

/// Reading a store is cheap.
pub(super) const STORE_PERIOD: Duration = Duration::from_secs(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const FIVE_SECONDS: Duration = Duration::from_secs(5);
pub(super) const TEN_SECONDS: Duration = Duration::from_secs(10);
/// How long upstream retries transient failures.
pub(super) const SHORT: Duration = Duration::from_secs(30);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const NINETY_SECONDS: Duration = Duration::from_secs(90);
pub(super) const TWO_MINUTES: Duration = Duration::from_secs(120);
pub(super) const THREE_MINUTES: Duration = Duration::from_secs(180);
pub(super) const FIVE_MINUTES: Duration = Duration::from_secs(300);
pub(super) const TEN_MINUTES: Duration = Duration::from_secs(600);
pub(super) const FIFTEEN_MINUTES: Duration = Duration::from_secs(900);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);
