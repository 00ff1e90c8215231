//! The row of a task.

use crate::flow;

use super::evidence::Evidence;
use super::facts::Facts;
use super::work::Work;

/// A task of an operation.
pub(super) type Row = flow::TaskRow<Work, Facts, Evidence>;
