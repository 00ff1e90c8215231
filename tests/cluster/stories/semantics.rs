//! The real API server passes the checks that the in-process one passes.

use crate::failure::{Result, ensure};
use crate::lab::Lab;
use support::semantics;

/// Runs the shared checks against the seed.
pub(crate) fn agree(lab: &mut Lab) -> Result<()> {
    let failed = semantics::run(&lab.seed.client()?);
    ensure(failed.is_empty(), || failed.join("\n"))
}
