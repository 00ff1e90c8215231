//! The tasks that delete a Shoot by force: they do not use its API server, and resources outside the seed may be left
//! behind.

use crate::flow::{Attempt, Flow};

use super::super::extensions;
use super::super::flow::{FIFTEEN_MINUTES, FIVE_MINUTES, FIVE_SECONDS, MINUTE, retried, wait};
use super::super::tasks::{self as run, Work};
use super::{Plan, tasks as delete};

/// The flow. It has no tasks for machines, because a Shoot without workers has none.
pub(in super::super) fn build(plan: Plan) -> Flow<Work> {
    let mut flow = Flow::new("Shoot cluster force deletion");
    let required = flow
        .task("Check required extensions exist", run::required_extensions)
        .retrying(FIVE_SECONDS, MINUTE)
        .add();
    let extensions = retried(
        &mut flow,
        "Deleting extension resources",
        |work, _| extensions::delete_all(work),
        &[required],
        false,
    );
    let extensions = flow
        .task("Waiting until extension resources have been deleted", |work: &mut Work, attempt: &Attempt| {
            extensions::wait_all_deleted(work, attempt)
        })
        .after(&[extensions])
        .within(FIVE_MINUTES)
        .add();
    let records = ["external", "internal"].map(|role| {
        flow.task(format!("Destroying {role} domain DNS record"), delete::record(role))
            .after(&[required])
            .skip_if(!plan.has_namespace)
            .add()
    });
    let drop = retried(
        &mut flow,
        "Configuring managed resources to not keep their objects when deleted",
        delete::drop_objects,
        &[extensions],
        false,
    );
    let managed = retried(&mut flow, "Deleting managed resources", delete::force_managed, &[drop], false);
    let managed = wait(
        &mut flow,
        "Waiting until managed resources have been deleted",
        delete::wait_any_managed,
        &[managed],
        FIVE_MINUTES,
    );
    let cluster = retried(
        &mut flow,
        "Deleting Cluster resource",
        delete::cluster,
        &[extensions, records[0], records[1], managed],
        false,
    );
    let etcd = retried(&mut flow, "Deleting Etcd resources", delete::etcds, &[cluster, managed], false);
    let etcd = wait(
        &mut flow,
        "Waiting until Etcd resources have been deleted",
        delete::wait_etcds_gone,
        &[etcd],
        FIVE_MINUTES,
    );
    let resources =
        retried(&mut flow, "Deleting Kubernetes resources", delete::force_resources, &[etcd], false);
    let namespace =
        retried(&mut flow, "Deleting shoot namespace", delete::namespace, &[etcd, resources], false);
    flow.task("Delete public service account signing keys from Garden cluster", delete::public_keys)
        .after(&[cluster, managed])
        .add();
    wait(
        &mut flow,
        "Waiting until shoot namespace has been deleted",
        delete::wait_namespace_gone,
        &[namespace],
        FIFTEEN_MINUTES,
    );
    flow.task("Deleting Shoot State", delete::state).after(&[namespace]).add();
    flow
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_asks_the_api_server() {
        let names: Vec<String> = build(Plan { has_namespace: true, ..Plan::default() })
            .outline()
            .into_iter()
            .map(|task| task.name)
            .collect();
        assert!(!names.iter().any(|name| name.contains("connection") || name.contains("Cleaning")));
        assert_eq!(names.len(), 16);
    }
}
