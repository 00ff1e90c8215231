//! The state that the requestors of all classes share.

use super::pace::Pace;
use super::seen::Secrets;

/// The state. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    /// The Secrets that need tokens.
    pub(crate) secrets: Secrets,
    pub(crate) pace: Pace,
}
