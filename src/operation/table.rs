//! Tables of an operation's tasks.

use crate::flow::{self, Flow, TaskOutline};

use super::evidence::{Evidence, only_in_the_log};
use super::facts::Facts;
use super::work::Work;

/// A task of an operation.
pub(super) type Row = flow::TaskRow<Work, Facts, Evidence>;

/// The tasks of an operation. A task comes after those that it waits for.
#[derive(Debug)]
pub struct Table {
    /// The name of the flow, in upstream's words.
    pub(super) name: &'static str,
    pub(super) rows: &'static [Row],
}

impl Table {
    /// The flow for a Shoot.
    pub fn flow(&self, facts: &Facts) -> Flow<Work> {
        Flow::new(self.name, self.rows, facts)
    }

    /// Lists the tasks, to describe a flow that runs elsewhere.
    pub fn outline(&self, facts: &Facts) -> Vec<TaskOutline> {
        flow::outline(self.rows, facts)
    }

    /// Where the result of a task can be seen.
    pub fn evidence(&self, task: &str) -> Evidence {
        self.rows.iter().find(|row| row.name() == task).map_or(only_in_the_log, |row| *row.evidence())
    }
}
