//! What is done to a Shoot: one table of tasks for each operation, and what the tasks share.
//!
//! `controllers/shoot` says when an operation begins, and reports. The names of tasks are upstream's: they are the ids of
//! errors in the Shoot's status.

use std::time::Duration;

use crate::flow::{self, Flow, Outline};

mod backups;
pub mod cluster;
mod create;
mod delete;
mod encryption;
pub mod evidence;
mod extensions;
mod facts;
mod force;
pub mod inputs;
pub mod look;
mod pods;
mod records;
pub mod requests;
mod results;
pub mod sleep;
mod snapshots;
pub(crate) mod status;
mod work;

pub use delete::found::Found;
pub use facts::Facts;
pub use inputs::GardenInputs;
pub use work::{Environment, Work};

use evidence::Evidence;

/// The operation on a Shoot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Operation {
    /// Create it.
    #[default]
    Create,
    /// Reconcile it with its spec.
    Reconcile,
    /// Create it from the state that another seed has left.
    Restore,
    /// Prepare its migration to another seed.
    Migrate,
    /// Delete it.
    Delete,
    /// Delete it even if something is left behind.
    ForceDelete,
}

impl Operation {
    /// The type of the last operation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Reconcile => "Reconcile",
            Self::Restore => "Restore",
            Self::Migrate => "Migrate",
            Self::Delete | Self::ForceDelete => "Delete",
        }
    }

    /// Whether nothing of the Shoot is left after it.
    pub const fn is_deletion(self) -> bool {
        matches!(self, Self::Delete | Self::ForceDelete)
    }

    /// Why this version does not support the operation, as a text for the Shoot's owner; `None` if it does.
    pub const fn unbuilt(self) -> Option<&'static str> {
        match self {
            Self::Create | Self::Reconcile | Self::Delete | Self::ForceDelete => None,
            Self::Restore => Some(
                "This gardenlet cannot restore Shoots that come from other seeds yet. It has left everything as it is.",
            ),
            Self::Migrate => Some(
                "This gardenlet cannot prepare the migration of Shoots to other seeds yet. It has left everything as it is.",
            ),
        }
    }

    /// The tasks of the operation; `None` if this version does not support it.
    pub const fn table(self) -> Option<&'static Table> {
        match self {
            Self::Create | Self::Reconcile => Some(&create::TABLE),
            Self::Delete => Some(&delete::TABLE),
            Self::ForceDelete => Some(&force::TABLE),
            Self::Restore | Self::Migrate => None,
        }
    }
}

/// A task of an operation.
type Row = flow::Row<Work, Facts, Evidence>;

/// The tasks of an operation, in an order in which none stands above a task that it waits for.
#[derive(Debug)]
pub struct Table {
    /// The name of the flow, in upstream's words.
    name: &'static str,
    rows: &'static [Row],
}

impl Table {
    /// The flow for a Shoot.
    pub fn flow(&self, facts: &Facts) -> Flow<Work> {
        Flow::new(self.name, self.rows, facts)
    }

    /// Lists the tasks, to describe a flow that runs elsewhere.
    pub fn outline(&self, facts: &Facts) -> Vec<Outline> {
        flow::outline(self.rows, facts)
    }

    /// Where the result of a task can be seen.
    pub fn evidence(&self, task: &str) -> Option<Evidence> {
        self.rows.iter().find(|row| row.name() == task).map(|row| *row.evidence())
    }
}

const SECOND: Duration = Duration::from_secs(1);
const FIVE_SECONDS: Duration = Duration::from_secs(5);
const TEN_SECONDS: Duration = Duration::from_secs(10);
/// How long upstream retries transient failures.
const SHORT: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);
const NINETY_SECONDS: Duration = Duration::from_secs(90);
const TWO_MINUTES: Duration = Duration::from_secs(120);
const THREE_MINUTES: Duration = Duration::from_secs(180);
const FIVE_MINUTES: Duration = Duration::from_secs(300);
const TEN_MINUTES: Duration = Duration::from_secs(600);
const FIFTEEN_MINUTES: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_can_run() {
        for table in [&create::TABLE, &delete::TABLE, &force::TABLE] {
            assert_eq!(flow::problems(table.rows), [""; 0], "{}", table.name);
        }
    }

    #[test]
    fn an_operation_has_a_table_or_says_why_not() {
        use Operation::{Create, Delete, ForceDelete, Migrate, Reconcile, Restore};
        for operation in [Create, Reconcile, Restore, Migrate, Delete, ForceDelete] {
            assert_eq!(operation.table().is_some(), operation.unbuilt().is_none(), "{operation:?}");
        }
    }
}
