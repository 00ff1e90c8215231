//! Tables of an operation's tasks.

use crate::flow::{self, Flow, TaskOutline};

use super::components::COMPONENTS;
use super::components::component::Component;
use super::evidence::{Evidence, only_in_the_log};
use super::facts::Facts;
use super::row::Row;
use super::work::Work;

/// The tasks of an operation: those of the Shoot as a whole, and those of its components.
#[derive(Debug)]
pub(crate) struct Table {
    /// The name of the flow, in upstream's words.
    pub(super) name: &'static str,
    /// The tasks that belong to no component.
    pub(super) rows: &'static [Row],
    /// The tasks of a component in this operation.
    pub(super) of: fn(&Component) -> &'static [Row],
}

impl Table {
    /// All tasks, those of components last.
    pub(super) fn rows(&self) -> impl Iterator<Item = &'static Row> {
        self.rows.iter().chain(COMPONENTS.iter().flat_map(|component| (self.of)(component)))
    }

    /// The flow for a Shoot.
    pub(crate) fn flow(&self, facts: &Facts) -> Flow<Work> {
        Flow::new(self.name, self.rows(), facts)
    }

    /// Lists the tasks, to describe a flow that runs elsewhere.
    pub(crate) fn outline(&self, facts: &Facts) -> Vec<TaskOutline> {
        flow::outline(self.rows(), facts)
    }

    /// Whether a task starts only after another one has ended, for the tests of tables.
    #[cfg(test)]
    pub(super) fn waits(&self, facts: &Facts, later: &str, earlier: &str) -> bool {
        let tasks = self.outline(facts);
        let place = |name: &str| tasks.iter().position(|task| task.name == name).unwrap();
        let (mut open, earlier) = (vec![place(later)], place(earlier));
        while let Some(task) = open.pop() {
            if tasks[task].needs.contains(&earlier) {
                return true;
            }
            open.extend(&tasks[task].needs);
        }
        false
    }

    /// Where the result of a task can be seen.
    pub(crate) fn evidence(&self, task: &str) -> Evidence {
        self.rows().find(|row| row.name() == task).map_or(only_in_the_log, |row| *row.evidence())
    }
}
