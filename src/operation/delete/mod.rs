//! The tasks that delete a Shoot, and their order (Gardener's `reconciler_delete.go`). The tasks of Istio,
//! logging and monitoring have no counterpart here. Replicas are written together with a workload, so there are no tasks that
//! scale one.
//!
//! Independent tasks continue if one fails, and all errors are reported. The clean-up needs a running API server, even for a
//! hibernated Shoot, so the deletion wakes it up first.

pub(super) mod tasks;

use crate::api::extensions::{CONTROL_PLANE, INFRASTRUCTURE, NETWORK, WORKER};
use crate::shoot::cleaner::CleanupStage;

use super::components::kube_apiserver::tasks as kube_apiserver;
use super::create::tasks as create;
use super::evidence::{Expect, only_in_the_log};
use super::facts::Facts;
use super::nodes::{CONFIGS, WORKER_OBJECT};
use super::providers::{CONTAINER_RUNTIMES, CONTROL_PLANE_OBJECT, INFRASTRUCTURE_OBJECT, NETWORK_OBJECT};
use super::row::Row;
use super::table::Table;
use super::times::{
    FIFTEEN_MINUTES, FIVE_MINUTES, FIVE_SECONDS, MINUTE, SHORT, TEN_MINUTES, TEN_SECONDS, TWO_MINUTES,
};
use super::{cloud_provider, extensions, providers, records, referenced};

pub(super) static TABLE: Table =
    Table { name: "Shoot cluster deletion", rows: &ROWS, of: |component| component.delete };

// A method of `Looker<'_>` has one lifetime, and the closure has all.
#[allow(clippy::redundant_closure_for_method_calls)]
static ROWS: [Row; 41] = [
    Row::new("Create botanist", kube_apiserver::settings_if_possible, kube_apiserver::settings_seen)
        .when(Facts::cleans)
        .retrying(TEN_SECONDS, MINUTE),
    Row::new("Check required extensions exist", create::required_extensions, |seen| {
        seen.required_extensions()
    })
    .after(&["Create botanist"])
    .retrying(FIVE_SECONDS, MINUTE),
    Row::new("Deploying Shoot namespace in Seed", create::namespace, |seen| seen.namespace())
        .after(&["Check required extensions exist"])
        .when(|facts| facts.found.has_namespace)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Ensuring Shoot cluster identity", create::identity, |seen| seen.status("clusterIdentity"))
        .after(&["Deploying Shoot namespace in Seed"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Deploying cloud provider account secret", cloud_provider::deploy, only_in_the_log)
        .after(&["Deploying Shoot namespace in Seed"])
        .when(|facts| facts.has_workers && facts.found.has_namespace)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Deploying Shoot control plane", providers::keep_control_plane, |seen| {
        seen.object(&CONTROL_PLANE, Expect::Exists)
    })
    .after(&[
        "Deploying cloud provider account secret",
        "Waiting until gardener-resource-manager reports readiness",
    ])
    .when(|facts| facts.has_workers && facts.cleans())
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until Shoot control plane has been reconciled",
        providers::wait_kept_control_plane,
        |seen| seen.object(&CONTROL_PLANE, Expect::Ready),
    )
    .after(&["Deploying Shoot control plane"])
    .when(|facts| facts.has_workers && facts.cleans()),
    Row::new("Destroying shoot workers", |work, _| WORKER_OBJECT.delete(work), only_in_the_log)
        .after(&INSIDE)
        .when(|facts| facts.has_workers)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until shoot worker nodes have been terminated",
        |work, attempt| WORKER_OBJECT.wait_gone(work, attempt),
        |seen| seen.object_left(&WORKER),
    )
    .after(&["Destroying shoot workers"])
    .when(|facts| facts.has_workers),
    Row::new("Deleting operating system config resources", |work, _| CONFIGS.delete(work), only_in_the_log)
        .after(&["Waiting until shoot worker nodes have been terminated"])
        .when(|facts| facts.has_workers)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until operating system config resources have been deleted",
        |work, attempt| CONFIGS.wait_gone(work, attempt),
        only_in_the_log,
    )
    .after(&["Deleting operating system config resources"])
    .when(|facts| facts.has_workers),
    // The network goes while nodes still end, as in upstream.
    Row::new("Destroying shoot network plugin", |work, _| NETWORK_OBJECT.delete(work), only_in_the_log)
        .after(&INSIDE)
        .when(|facts| facts.has_workers)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until shoot network plugin has been destroyed",
        |work, attempt| NETWORK_OBJECT.wait_gone(work, attempt),
        |seen| seen.object_left(&NETWORK),
    )
    .after(&["Destroying shoot network plugin"])
    .when(|facts| facts.has_workers),
    Row::new(
        "Deleting container runtime resources",
        |work, _| CONTAINER_RUNTIMES.delete(work),
        only_in_the_log,
    )
    .after(&INSIDE)
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until stale container runtime resources are deleted",
        |work, attempt| CONTAINER_RUNTIMES.wait_gone(work, attempt),
        only_in_the_log,
    )
    .after(&["Deleting container runtime resources"])
    .when(|facts| facts.has_workers),
    Row::new("Destroying shoot control plane", |work, _| CONTROL_PLANE_OBJECT.delete(work), only_in_the_log)
        .after(&CLEANED)
        .when(|facts| facts.has_workers)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until shoot control plane has been destroyed",
        |work, attempt| CONTROL_PLANE_OBJECT.wait_gone(work, attempt),
        |seen| seen.object_left(&CONTROL_PLANE),
    )
    .after(&["Destroying shoot control plane"])
    .when(|facts| facts.has_workers),
    Row::new(
        "Destroying shoot infrastructure",
        |work, _| INFRASTRUCTURE_OBJECT.delete(work),
        only_in_the_log,
    )
    .after(&["Waiting until shoot control plane has been destroyed"])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until shoot infrastructure has been deleted",
        |work, attempt| INFRASTRUCTURE_OBJECT.wait_gone(work, attempt),
        |seen| seen.object_left(&INFRASTRUCTURE),
    )
    .after(&["Destroying shoot infrastructure"])
    .when(|facts| facts.has_workers),
    Row::new("Initializing secrets management", create::secrets, only_in_the_log)
        .after(&["Waiting until Kubernetes API LoadBalancer in the Seed cluster has reported readiness"])
        .when(Facts::cleans)
        .within(TEN_MINUTES),
    Row::new("Deploying referenced resources", referenced::deploy, |seen| {
        seen.written(referenced::MANAGED_RESOURCE)
    })
    .after(&["Deploying Shoot namespace in Seed"])
    .when(Facts::cleans)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Deploying internal domain DNS record",
        |work, attempt| records::INTERNAL_RECORD.deploy_and_wait(work, attempt),
        |seen| seen.record(records::INTERNAL),
    )
    .after(&[
        "Deploying referenced resources",
        "Waiting until Kubernetes API LoadBalancer in the Seed cluster has reported readiness",
    ])
    .when(Facts::cleans)
    .within(FIVE_MINUTES),
    // Everything in the cluster, and then its controllers.
    Row::new(
        "Cleaning up webhooks",
        |work, _| tasks::sweep(work, CleanupStage::Webhooks),
        |seen| seen.inside(CleanupStage::Webhooks),
    )
    .after(&["Initializing connection to Shoot"])
    .when(Facts::cleans)
    .retrying(FIVE_SECONDS, TEN_MINUTES),
    Row::new(
        "Cleaning extended API groups",
        |work, _| tasks::sweep(work, CleanupStage::Apis),
        |seen| seen.inside(CleanupStage::Apis),
    )
    .after(&["Initializing connection to Shoot", "Waiting until kube-controller-manager is active"])
    .when(|facts| facts.cleans() && !facts.keeps_api_extensions)
    .retrying(FIVE_SECONDS, TEN_MINUTES),
    Row::new(
        "Cleaning Kubernetes resources",
        |work, _| tasks::sweep(work, CleanupStage::Resources),
        |seen| seen.inside(CleanupStage::Resources),
    )
    .after(&["Cleaning extended API groups", "Waiting until kube-controller-manager is active"])
    .when(Facts::cleans)
    .retrying(FIVE_SECONDS, TEN_MINUTES),
    Row::new("Deleting managed resources", tasks::managed, only_in_the_log)
        .after(&INSIDE)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until managed resources have been deleted", tasks::wait_managed, |seen| {
        seen.managed_left()
    })
    .after(&["Deleting managed resources"])
    .within(TEN_MINUTES),
    Row::new(
        "Deleting extension resources before kube-apiserver",
        |work, _| extensions::BEFORE.delete(work),
        only_in_the_log,
    )
    .after(&["Cleaning Kubernetes resources", "Waiting until managed resources have been deleted"])
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extension resources that should be handled before kube-apiserver have been deleted",
        tasks::wait_extensions_before,
        |seen| seen.extensions_left(),
    )
    .after(&["Deleting extension resources before kube-apiserver"]),
    Row::new("Deleting stale extension resources", |work, _| extensions::STALE.delete(work), only_in_the_log)
        .after(&["Cleaning Kubernetes resources", "Waiting until managed resources have been deleted"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until all stale extension resources have been deleted",
        tasks::wait_stale_extensions,
        |seen| seen.extensions_left(),
    )
    .after(&["Deleting stale extension resources"]),
    // Upstream deletes these early and waits for half a minute: extensions delete theirs with their own objects.
    Row::new("Waiting until shoot managed resources have been deleted", tasks::wait_all_managed, |seen| {
        seen.managed_left()
    })
    .after(&[
        "Waiting until extension resources that should be handled before kube-apiserver have been deleted",
        "Waiting until all stale extension resources have been deleted",
        "Waiting until shoot control plane has been destroyed",
    ])
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Deleting extension resources after kube-apiserver",
        |work, _| extensions::AFTER.delete(work),
        only_in_the_log,
    )
    .after(&["Waiting until Kubernetes API server has been deleted"])
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extension resources that should be handled after kube-apiserver have been deleted",
        |work, attempt| extensions::AFTER.wait_gone(work, attempt),
        |seen| seen.extensions_left(),
    )
    .after(&["Deleting extension resources after kube-apiserver"]),
    Row::new(
        "Waiting until all extension resources have been deleted",
        |work, attempt| extensions::ANY.wait_gone(work, attempt),
        |seen| seen.extensions_left(),
    )
    .after(&["Waiting until Kubernetes API server has been deleted"]),
    Row::new(
        "Destroying external domain DNS record",
        |work, attempt| records::EXTERNAL_RECORD.delete_and_wait(work, attempt),
        |seen| seen.record_left(records::EXTERNAL),
    )
    .after(&["Waiting until Kubernetes API server has been deleted"])
    .when(|facts| facts.found.has_namespace),
    // The record of the API server is deleted late, because the server must be reachable until everything is clean.
    Row::new(
        "Destroying internal domain DNS record",
        |work, attempt| records::INTERNAL_RECORD.delete_and_wait(work, attempt),
        |seen| seen.record_left(records::INTERNAL),
    )
    .after(&GONE)
    .when(|facts| facts.found.has_namespace),
    Row::new("Deleting referenced resources", tasks::referenced, only_in_the_log)
        .after(&GONE)
        .when(|facts| facts.found.has_namespace)
        .within(TWO_MINUTES),
    Row::new("Deleting shoot namespace in Seed", tasks::namespace, only_in_the_log)
        .after(&[
            "Destroying internal domain DNS record",
            "Deleting referenced resources",
            "Waiting until main and event etcd have been destroyed",
        ])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until shoot namespace in Seed has been deleted", tasks::wait_namespace_gone, |seen| {
        seen.namespace_left()
    })
    .after(&["Deleting shoot namespace in Seed"])
    .within(FIFTEEN_MINUTES)
    .last(),
    Row::new("Deleting Shoot State", tasks::state, only_in_the_log)
        .after(&["Deleting shoot namespace in Seed"])
        .retrying(FIVE_SECONDS, SHORT)
        .last(),
];

/// Then the cluster is empty, except for what belongs to the Shoot itself.
const INSIDE: [&str; 4] = [
    "Cleaning up webhooks",
    "Cleaning extended API groups",
    "Cleaning Kubernetes resources",
    "Deleting metrics-server",
];

/// Then nothing needs the provider's part of the control plane any more.
const CLEANED: [&str; 6] = [
    "Waiting until operating system config resources have been deleted",
    "Waiting until managed resources have been deleted",
    "Waiting until shoot network plugin has been destroyed",
    "Waiting until stale container runtime resources are deleted",
    "Waiting until extension resources that should be handled before kube-apiserver have been deleted",
    "Waiting until all stale extension resources have been deleted",
];

/// Then nothing outside the control plane depends on it any more.
const GONE: [&str; 4] = [
    "Waiting until shoot infrastructure has been deleted",
    "Waiting until extension resources that should be handled after kube-apiserver have been deleted",
    "Waiting until all extension resources have been deleted",
    "Destroying external domain DNS record",
];

#[cfg(test)]
mod tests {
    use super::super::found::Found;
    use super::*;
    use crate::flow::TaskOutline;

    fn names(found: Found) -> Vec<&'static str> {
        let tasks = TABLE.outline(&Facts { found, ..Facts::default() });
        tasks.into_iter().filter(|task| !task.is_skipped).map(|task| task.name).collect()
    }

    /// The golden run, except for tasks without a counterpart.
    #[test]
    fn tasks_are_those_of_a_go_gardenlet() {
        const LEFT_OUT: [&str; 14] = [
            "Reconcile Istio internal load balancing ConfigMap",
            "Scaling up etcd main and event",
            "Setting gardener-resource-manager replicas to 2",
            "Deploying Kubernetes API server service SNI settings in the Seed cluster",
            "Scaling up Kubernetes controller manager",
            "Destroying Kubernetes API server service SNI",
            "Deleting Shoot Alertmanager",
            "Deleting Plutono in Seed",
            "Destroying control plane blackbox-exporter",
            "Deleting Shoot Prometheus",
            "Deleting logging stack in Seed",
            "Deleting istio-basic-auth-server in Seed",
            "Scaling up Kubernetes API server",
            "Deleting external authorization server in Seed",
        ];
        let golden = include_str!("../../../tests/fixtures/golden-shoot-deletion.txt");
        let mut golden: Vec<&str> = golden.lines().filter(|name| !LEFT_OUT.contains(name)).collect();
        // Upstream does these before its flow.
        golden.extend(["Create botanist", "Check required extensions exist"]);
        golden.sort_unstable();
        let mut found = names(Found::ALL);
        found.sort_unstable();
        assert_eq!(found, golden);
    }

    /// Whether a task starts only after another one has ended.
    fn waits(tasks: &[TaskOutline], later: &str, earlier: &str) -> bool {
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

    #[test]
    fn nothing_is_deleted_before_its_dependents() {
        const SERVER: &str = "Deleting Kubernetes API server";
        let tasks = TABLE.outline(&Facts { found: Found::ALL, ..Facts::default() });
        let table = [
            ("Cleaning up webhooks", "Initializing connection to Shoot"),
            ("Cleaning extended API groups", "Cleaning up webhooks"),
            ("Cleaning Kubernetes resources", "Cleaning extended API groups"),
            ("Cleaning Kubernetes resources", "Waiting until kube-controller-manager is active"),
            ("Deleting managed resources", "Cleaning Kubernetes resources"),
            (SERVER, "Waiting until managed resources have been deleted"),
            (
                SERVER,
                "Waiting until extension resources that should be handled before kube-apiserver have been deleted",
            ),
            (SERVER, "Waiting until all stale extension resources have been deleted"),
            ("Deleting extension resources after kube-apiserver", SERVER),
            ("Destroying Kubernetes API server service", SERVER),
            (
                "Destroying internal domain DNS record",
                "Waiting until all extension resources have been deleted",
            ),
            ("Destroying main and events etcd", "Waiting until Kubernetes API server has been deleted"),
            ("Deleting shoot namespace in Seed", "Waiting until main and event etcd have been destroyed"),
            ("Deleting shoot namespace in Seed", "Destroying internal domain DNS record"),
            ("Deleting Shoot State", "Deleting shoot namespace in Seed"),
        ];
        for (later, earlier) in table {
            assert!(waits(&tasks, later, earlier), "{later:?} does not wait for {earlier:?}");
        }
        assert!(!waits(&tasks, SERVER, "Deleting Shoot State"));
    }

    #[test]
    fn a_cluster_that_never_ran_needs_no_client() {
        let short = names(Found { has_namespace: true, ..Found::default() });
        for name in
            ["Initializing connection to Shoot", "Cleaning up webhooks", "Initializing secrets management"]
        {
            assert!(!short.contains(&name), "{name}");
        }
        assert!(short.contains(&"Deleting managed resources"));
        let gone = names(Found::default());
        assert!(!gone.iter().any(|name| name.contains("DNS record")));
        assert!(gone.contains(&"Deleting Shoot State"));
    }
}
