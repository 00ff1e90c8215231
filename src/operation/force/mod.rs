//! The tasks that delete a Shoot by force (Gardener's `reconciler_force_delete.go`): they do not use its API server, and
//! resources outside the seed may be left behind. A Shoot without workers has no machines.

use super::create::tasks as create;
use super::delete::tasks as delete;
use super::evidence::only_in_the_log;
use super::row::Row;
use super::table::Table;
use super::times::{FIFTEEN_MINUTES, FIVE_MINUTES, FIVE_SECONDS, MINUTE, SHORT};
use super::{extensions, records};

pub(super) static TABLE: Table =
    Table { name: "Shoot cluster force deletion", rows: &ROWS, of: |component| component.force_delete };

// A method of `Looker<'_>` has one lifetime, and the closure has all.
#[allow(clippy::redundant_closure_for_method_calls)]
static ROWS: [Row; 13] = [
    Row::new("Check required extensions exist", create::required_extensions, |seen| {
        seen.required_extensions()
    })
    .retrying(FIVE_SECONDS, MINUTE),
    Row::new("Deleting extension resources", |work, _| extensions::ALL_KINDS.delete(work), only_in_the_log)
        .after(&["Check required extensions exist"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extension resources have been deleted",
        |work, attempt| extensions::ALL_KINDS.wait_gone(work, attempt),
        |seen| seen.extensions_left(),
    )
    .after(&["Deleting extension resources"])
    .within(FIVE_MINUTES),
    Row::new(
        "Destroying external domain DNS record",
        |work, attempt| records::EXTERNAL_RECORD.delete_and_wait(work, attempt),
        |seen| seen.record_left(records::EXTERNAL),
    )
    .after(&["Check required extensions exist"])
    .when(|facts| facts.found.has_namespace),
    Row::new(
        "Destroying internal domain DNS record",
        |work, attempt| records::INTERNAL_RECORD.delete_and_wait(work, attempt),
        |seen| seen.record_left(records::INTERNAL),
    )
    .after(&["Check required extensions exist"])
    .when(|facts| facts.found.has_namespace),
    Row::new(
        "Configuring managed resources to not keep their objects when deleted",
        delete::drop_objects,
        only_in_the_log,
    )
    .after(&["Waiting until extension resources have been deleted"])
    .retrying(FIVE_SECONDS, SHORT),
    Row::new("Deleting managed resources", delete::force_managed, only_in_the_log)
        .after(&["Configuring managed resources to not keep their objects when deleted"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until managed resources have been deleted", delete::wait_any_managed, |seen| {
        seen.managed_left()
    })
    .after(&["Deleting managed resources"])
    .within(FIVE_MINUTES),
    Row::new("Deleting Cluster resource", delete::cluster, only_in_the_log)
        .after(&[
            "Destroying external domain DNS record",
            "Destroying internal domain DNS record",
            "Waiting until managed resources have been deleted",
        ])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Deleting Kubernetes resources", delete::force_resources, only_in_the_log)
        .after(&["Waiting until Etcd resources have been deleted"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Deleting shoot namespace", delete::namespace, only_in_the_log)
        .after(&["Deleting Kubernetes resources"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until shoot namespace has been deleted", delete::wait_namespace_gone, |seen| {
        seen.namespace_left()
    })
    .after(&["Deleting shoot namespace"])
    .within(FIFTEEN_MINUTES)
    .last(),
    Row::new("Deleting Shoot State", delete::state, only_in_the_log)
        .after(&["Deleting shoot namespace"])
        .last(),
];

#[cfg(test)]
mod tests {
    use super::super::facts::Facts;
    use super::*;

    #[test]
    fn nothing_asks_the_api_server() {
        let names: Vec<&str> = TABLE.outline(&Facts::default()).into_iter().map(|task| task.name).collect();
        assert!(!names.iter().any(|name| name.contains("connection") || name.contains("Cleaning")));
        assert_eq!(names.len(), 16);
    }
}
