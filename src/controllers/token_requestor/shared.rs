//! The state that the requestors of all classes share.

use super::pace::TokenRateLimit;
use super::seen::TokenSecrets;

/// The state. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenRequestorState {
    /// The Secrets that need tokens.
    pub(crate) secrets: TokenSecrets,
    pub(crate) pace: TokenRateLimit,
}
