//! What is done to a Shoot: tables of tasks for its operations, and what the tasks share.
//!
//! `controllers/shoot` says when an operation begins, and reports. The names of tasks are upstream's: they are the ids of
//! errors in the Shoot's status.

use serde_json::Value;

use crate::config::control_plane::NodeSettings;
use crate::flow::TaskOutline;
use crate::shoot::{ShootView, ShootViewSources};

mod backups;
mod cloud_provider;
pub(crate) mod cluster;
pub mod components;
mod create;
mod delete;
mod encryption;
pub(crate) mod evidence;
mod extensions;
mod facts;
mod force;
pub(crate) mod found;
pub(crate) mod inputs;
mod kinds;
pub(crate) mod look;
pub(crate) mod lost;
mod migrate;
mod nodes;
mod objects;
mod pods;
mod providers;
mod records;
mod referenced;
pub(crate) mod requests;
mod restore;
mod results;
mod row;
pub(crate) mod sleep;
mod snapshots;
pub(crate) mod status;
mod table;
mod times;
mod work;

pub(crate) use facts::Facts;
pub(crate) use found::Found;
pub(crate) use kinds::Operation;
pub(crate) use table::Table;
pub(crate) use work::{Environment, Work};

use evidence::Evidence;

/// The tasks of an operation.
pub(crate) const fn table(operation: Operation) -> &'static Table {
    match operation {
        Operation::Create | Operation::Reconcile => &create::TABLE,
        Operation::Restore => &restore::TABLE,
        Operation::Migrate => &migrate::TABLE,
        Operation::Delete => &delete::TABLE,
        Operation::ForceDelete => &force::TABLE,
    }
}

/// Where the result of a task can be seen.
pub(crate) fn evidence_of(operation: Operation, task: &str) -> Evidence {
    table(operation).evidence(task)
}

/// The tasks of an operation on the Shoot, as far as its spec and status tell which are skipped.
pub(crate) fn outline(operation: Operation, shoot: &Value, nodes: NodeSettings) -> Vec<TaskOutline> {
    let view =
        ShootView::new(ShootViewSources { shoot, seed: &Value::Null, project: "", garden: "", secrets: &[] });
    let mut facts = Facts::new(operation, shoot, &view, nodes, Found::ALL);
    // The last task of a re-encryption updates the status, and a new Shoot has nothing encrypted at its start.
    facts.changes_encryption |= operation == Operation::Create;
    table(operation).outline(&facts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::flow;

    #[test]
    fn each_table_can_run() {
        for table in [&create::TABLE, &restore::TABLE, &migrate::TABLE, &delete::TABLE, &force::TABLE] {
            assert_eq!(flow::problems(table.rows()), [""; 0], "{}", table.name);
        }
    }

    fn skipped(operation: Operation, shoot: &Value) -> Vec<&'static str> {
        outline(operation, shoot, NodeSettings::default())
            .into_iter()
            .filter(|task| task.is_skipped)
            .map(|task| task.name)
            .collect()
    }

    #[test]
    fn tasks_are_skipped_as_in_the_flow() {
        let shoot =
            json!({"status": {"credentials": {"encryptionAtRest": {"provider": {"type": "aescbc"}}}}});
        let all = outline(Operation::Create, &shoot, NodeSettings::default());
        assert!(all.iter().enumerate().all(|(index, task)| task.needs.iter().all(|need| *need < index)));
        assert_eq!(all[0].name, "Create botanist");
        let labels = |name: &&&str| name.contains("encryption");
        assert!(!skipped(Operation::Create, &shoot).iter().any(|name| labels(&name)));
        assert_eq!(skipped(Operation::Reconcile, &shoot).iter().filter(labels).count(), 2);
        let mut asleep = shoot;
        asleep["spec"]["hibernation"]["enabled"] = json!(true);
        assert!(
            skipped(Operation::Reconcile, &asleep)
                .contains(&"Waiting until Kubernetes API server rolled out")
        );
    }
}
