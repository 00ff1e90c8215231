//! The state that the requestors of all classes share.

use super::pace::Pace;
use super::seen::Secrets;

/// The state. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// The Secrets that need tokens.
    pub secrets: Secrets,
    /// The rate limit.
    pub pace: Pace,
}
