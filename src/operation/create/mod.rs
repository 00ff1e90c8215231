//! The tasks that create a Shoot or bring it up to date, and their order (Gardener's `reconciler_reconcile.go`).
//!
//! Tasks of machine-controller-manager and of the cluster autoscaler do not exist yet. Tasks of Istio, logging and monitoring have no counterpart here.

pub(super) mod tasks;

use crate::api::extensions::{CONTROL_PLANE, INFRASTRUCTURE, NETWORK, WORKER};
use crate::extension::ReconcileMoment;

use super::components::kube_apiserver::tasks as kube_apiserver;
use super::evidence::{Expect, only_in_the_log};
use super::facts::Facts;
use super::nodes::{CONFIGS, STALE_CONFIGS, WORKER_OBJECT};
use super::providers::{
    CONTAINER_RUNTIMES, CONTROL_PLANE_OBJECT, INFRASTRUCTURE_OBJECT, NETWORK_OBJECT, STALE_RUNTIMES,
};
use super::restore::copy;
use super::row::Row;
use super::table::Table;
use super::times::{FIVE_MINUTES, FIVE_SECONDS, MINUTE, SECOND, SHORT, TEN_MINUTES, TEN_SECONDS};
use super::{backups, cloud_provider, encryption, extensions, nodes, providers, records, referenced, sleep};

pub(super) static TABLE: Table =
    Table { name: "Shoot cluster reconciliation", rows: &ROWS, of: |component| component.create };

// rustfmt leaves a table with longer lines as it is.
const LABEL: &str = "Labeling resources after modification of encryption config or to encrypt them with new ETCD encryption key";
const UNLABEL: &str = "Removing label from resources after modification of encryption config or rotation of ETCD encryption key";

// A method of `Looker<'_>` has one lifetime, and the closure has all.
#[allow(clippy::redundant_closure_for_method_calls)]
pub(super) static ROWS: [Row; 51] = [
    // Upstream creates all components before its flow, in a step of this name, and retries for ten minutes.
    Row::new("Create botanist", kube_apiserver::settings, kube_apiserver::settings_seen)
        .retrying(TEN_SECONDS, MINUTE),
    Row::new("Check required extensions", tasks::required_extensions, |seen| seen.required_extensions())
        .after(&["Create botanist"])
        .retrying(FIVE_SECONDS, MINUTE),
    Row::new("Deploying control plane namespace", tasks::namespace, |seen| seen.namespace())
        .after(&["Check required extensions"]),
    Row::new("Ensuring Shoot cluster identity", tasks::identity, |seen| seen.status("clusterIdentity"))
        .after(&["Deploying control plane namespace"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Deploying cloud provider account secret", cloud_provider::deploy, only_in_the_log)
        .after(&["Deploying control plane namespace"])
        .when(|facts| facts.has_workers)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Deploying Shoot infrastructure",
        |work, _| INFRASTRUCTURE_OBJECT.deploy(work),
        |seen| seen.object(&INFRASTRUCTURE, Expect::Exists),
    )
    .after(&[
        "Initializing secrets management",
        "Deploying cloud provider account secret",
        "Deploying referenced resources",
    ])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until Shoot infrastructure has been reconciled",
        providers::wait_infrastructure,
        |seen| seen.object(&INFRASTRUCTURE, Expect::Ready),
    )
    .after(&["Deploying Shoot infrastructure"])
    .when(|facts| facts.has_workers),
    Row::new(
        "Deploying shoot control plane components",
        |work, _| CONTROL_PLANE_OBJECT.deploy(work),
        |seen| seen.object(&CONTROL_PLANE, Expect::Exists),
    )
    .after(&[
        "Waiting until Shoot infrastructure has been reconciled",
        "Renewing shoot access secrets after creation of new ServiceAccount signing key",
    ])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until shoot control plane has been reconciled",
        |work, attempt| CONTROL_PLANE_OBJECT.wait(work, attempt),
        |seen| seen.object(&CONTROL_PLANE, Expect::Ready),
    )
    .after(&["Deploying shoot control plane components"])
    .when(|facts| facts.has_workers && facts.waits()),
    Row::new(
        "Deploying shoot network plugin",
        |work, _| NETWORK_OBJECT.deploy(work),
        |seen| seen.object(&NETWORK, Expect::Exists),
    )
    .after(&[
        "Waiting until shoot control plane has been reconciled",
        "Waiting until shoot namespaces have been reconciled",
        "Waiting until extension resources handled after kube-apiserver are ready",
        "Initializing connection to Shoot",
        "Ensuring Shoot cluster identity",
        "Deploying Kubernetes scheduler",
    ])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until shoot network plugin has been reconciled",
        |work, attempt| NETWORK_OBJECT.wait(work, attempt),
        |seen| seen.object(&NETWORK, Expect::Ready),
    )
    .after(&["Deploying shoot network plugin"])
    .when(|facts| facts.has_workers && facts.waits()),
    Row::new(
        "Deploying container runtime resources",
        |work, _| CONTAINER_RUNTIMES.deploy(work),
        only_in_the_log,
    )
    .after(&["Deploying referenced resources", "Initializing connection to Shoot"])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until container runtime resources are ready",
        |work, attempt| CONTAINER_RUNTIMES.wait(work, attempt),
        only_in_the_log,
    )
    .after(&["Deploying container runtime resources"])
    .when(|facts| facts.has_workers && facts.waits())
    .last(),
    Row::new(
        "Deleting stale container runtime resources",
        |work, _| STALE_RUNTIMES.delete(work),
        only_in_the_log,
    )
    .after(&["Initializing connection to Shoot"])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until stale container runtime resources are deleted",
        |work, attempt| STALE_RUNTIMES.wait_gone(work, attempt),
        only_in_the_log,
    )
    .after(&["Deleting stale container runtime resources"])
    .when(|facts| facts.has_workers && facts.waits_awake())
    .last(),
    Row::new(
        "Deploying OperatingSystemConfig resources for worker pools",
        |work, _| CONFIGS.deploy(work),
        only_in_the_log,
    )
    .after(&[
        "Deploying referenced resources",
        "Waiting until Shoot infrastructure has been reconciled",
        "Waiting until shoot control plane has been reconciled",
        "Waiting until extension resources handled after kube-apiserver are ready",
        "Initializing connection to Shoot",
    ])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until OperatingSystemConfig for worker pools have been reconciled",
        nodes::wait_configs,
        only_in_the_log,
    )
    .after(&["Deploying OperatingSystemConfig resources for worker pools"])
    .when(|facts| facts.has_workers),
    Row::new(
        "Deleting stale operating system config resources",
        |work, _| STALE_CONFIGS.delete(work),
        only_in_the_log,
    )
    .after(&["Deploying OperatingSystemConfig resources for worker pools"])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until stale operating system config resources are deleted",
        |work, attempt| STALE_CONFIGS.wait_gone(work, attempt),
        only_in_the_log,
    )
    .after(&["Deleting stale operating system config resources"])
    .when(|facts| facts.has_workers && facts.waits_awake())
    .last(),
    Row::new(
        "Configuring worker pools",
        |work, _| WORKER_OBJECT.deploy(work),
        |seen| seen.object(&WORKER, Expect::Exists),
    )
    .after(&[
        "Deploying managed resources for the gardener-node-agent",
        "Deploying shoot system resources",
        "Waiting until shoot network plugin has been reconciled",
    ])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until worker pools have been reconciled",
        |work, attempt| WORKER_OBJECT.wait(work, attempt),
        |seen| seen.object(&WORKER, Expect::Ready),
    )
    .after(&["Configuring worker pools"])
    .when(|facts| facts.has_workers && facts.waits()),
    Row::new("Deploying referenced resources", referenced::deploy, |seen| {
        seen.written(referenced::MANAGED_RESOURCE)
    })
    .after(&["Deploying control plane namespace"])
    .retrying(FIVE_SECONDS, SHORT),
    // Upstream creates the server certificate with its Deployment. Here the certificate contains the address of the
    // Service.
    Row::new("Initializing secrets management", tasks::secrets, only_in_the_log)
        .after(&["Waiting until Kubernetes API server service in the Seed cluster has reported readiness"])
        .within(TEN_MINUTES),
    Row::new(
        "Deploying internal domain DNS record",
        |work, attempt| records::INTERNAL_RECORD.deploy_and_wait(work, attempt),
        |seen| seen.record(records::INTERNAL),
    )
    .after(&["Deploying referenced resources", "Ensuring advertised addresses for the Shoot"])
    .when(Facts::is_awake)
    .within(FIVE_MINUTES),
    Row::new(
        "Deploying external domain DNS record",
        |work, attempt| records::EXTERNAL_RECORD.deploy_and_wait(work, attempt),
        |seen| seen.record(records::EXTERNAL),
    )
    .after(&["Deploying referenced resources", "Ensuring advertised addresses for the Shoot"])
    .when(Facts::is_awake)
    .within(FIVE_MINUTES)
    .last(),
    // The next two only if the Shoot comes from another seed. The garden accepts the entry only before the one of the Shoot
    // names another bucket.
    Row::new("Deploying source backup entry", |work, _| copy::SOURCE_ENTRY.deploy(work), only_in_the_log)
        .after(&["Deploying control plane namespace"])
        .when(Facts::copies_backups),
    Row::new(
        "Waiting until the source backup entry has been reconciled",
        |work, attempt| copy::SOURCE_ENTRY.wait(work, attempt),
        only_in_the_log,
    )
    .after(&["Deploying source backup entry"])
    .when(Facts::copies_backups),
    Row::new(
        "Deploying BackupEntry for ETCD data",
        |work, _| backups::ENTRY.deploy(work),
        |seen| seen.backup_entry(Expect::Exists),
    )
    .after(&["Waiting until the source backup entry has been reconciled"])
    .when(|facts| facts.has_backup),
    Row::new(
        "Waiting until the BackupEntry for ETCD data has been reconciled",
        |work, attempt| backups::ENTRY.wait(work, attempt),
        |seen| seen.backup_entry(Expect::Ready),
    )
    .after(&["Deploying BackupEntry for ETCD data"])
    .when(|facts| facts.has_backup && facts.waits()),
    Row::new(
        "Deploying extension resources before kube-apiserver",
        |work, _| extensions::BEFORE.deploy(work),
        |seen| seen.extensions(ReconcileMoment::Before, Expect::Exists),
    )
    .after(&[
        "Initializing secrets management",
        "Deploying referenced resources",
        "Waiting until Shoot infrastructure has been reconciled",
    ])
    .when(Facts::is_awake)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extension resources handled before kube-apiserver are ready",
        |work, attempt| extensions::BEFORE.wait(work, attempt),
        |seen| seen.extensions(ReconcileMoment::Before, Expect::Ready),
    )
    .after(&["Deploying extension resources before kube-apiserver"])
    .when(Facts::waits_awake),
    // Rewrites stored objects after a change of their encryption.
    Row::new(LABEL, encryption::label, only_in_the_log)
        .after(&["Initializing connection to Shoot"])
        .when(|facts| facts.is_awake() && facts.rewrites_objects())
        .retrying(SHORT, TEN_MINUTES),
    Row::new(UNLABEL, encryption::unlabel, only_in_the_log)
        .after(&["Initializing connection to Shoot", LABEL])
        .when(|facts| facts.is_awake() && facts.ends_rewrite())
        .retrying(SHORT, TEN_MINUTES)
        .last(),
    // ServiceAccount tokens that do not expire.
    Row::new(
        "Creating new ServiceAccount secrets after creation of new signing key",
        encryption::renew_accounts,
        only_in_the_log,
    )
    .after(&["Initializing connection to Shoot", "Waiting until kube-controller-manager reports readiness"])
    .when(|facts| facts.is_awake() && facts.prepares_service_account_key())
    .retrying(SHORT, TEN_MINUTES)
    .last(),
    Row::new(
        "Deleting old ServiceAccount secrets after rotation of signing key",
        encryption::clean_accounts,
        only_in_the_log,
    )
    .after(&["Initializing connection to Shoot", "Waiting until kube-controller-manager reports readiness"])
    .when(|facts| facts.is_awake() && facts.completes_service_account_key())
    .retrying(SHORT, TEN_MINUTES)
    .last(),
    Row::new(
        "Deploying extension resources after kube-apiserver",
        |work, _| extensions::AFTER.deploy(work),
        |seen| seen.extensions(ReconcileMoment::After, Expect::Exists),
    )
    .after(&["Deploying referenced resources", "Initializing connection to Shoot"])
    .when(Facts::is_awake)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extension resources handled after kube-apiserver are ready",
        |work, attempt| extensions::AFTER.wait(work, attempt),
        |seen| seen.extensions(ReconcileMoment::After, Expect::Ready),
    )
    .after(&["Deploying extension resources after kube-apiserver"])
    .when(Facts::waits_awake),
    // As in upstream, they do not wait for the first node.
    Row::new(
        "Deploying extension resources after workers",
        |work, _| extensions::AFTER_WORKERS.deploy(work),
        |seen| seen.extensions(ReconcileMoment::AfterWorker, Expect::Exists),
    )
    .after(&["Configuring worker pools", "Deploying CoreDNS system component"])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extension resources handled after workers are ready",
        |work, attempt| extensions::AFTER_WORKERS.wait(work, attempt),
        |seen| seen.extensions(ReconcileMoment::AfterWorker, Expect::Ready),
    )
    .after(&["Deploying extension resources after workers"])
    .when(|facts| facts.has_workers && facts.waits()),
    // Extensions that need the API server are hibernated before it stops.
    Row::new(
        "Hibernating extension resources before kube-apiserver hibernation",
        |work, _| extensions::AFTER.deploy(work),
        |seen| seen.extensions(ReconcileMoment::After, Expect::Exists),
    )
    .after(&["Deploying referenced resources", "Initializing connection to Shoot"])
    .when(|facts| facts.is_hibernated)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extension resources hibernated before kube-apiserver hibernation are ready",
        |work, attempt| extensions::AFTER.wait(work, attempt),
        |seen| seen.extensions(ReconcileMoment::After, Expect::Ready),
    )
    .after(&["Hibernating extension resources before kube-apiserver hibernation"])
    .when(|facts| facts.is_hibernated && facts.waits()),
    Row::new("Hibernating control plane", sleep::control_plane, sleep::control_plane_seen)
        .after(&[
            "Initializing connection to Shoot",
            "Waiting until extension resources hibernated before kube-apiserver hibernation are ready",
            "Waiting until kube-controller-manager reports readiness",
            "Deploying shoot namespaces system component",
            "Deploying Kubernetes controller manager",
            "Waiting until shoot network plugin has been reconciled",
            "Waiting until extension resources handled after workers are ready",
            "Waiting until worker pools have been reconciled",
            "Emptying hosts before hibernation",
        ])
        .when(|facts| facts.is_hibernated)
        .retrying(FIVE_SECONDS, TEN_MINUTES),
    // Those that work before the API server starts are hibernated after it has stopped.
    Row::new(
        "Hibernating extension resources after kube-apiserver hibernation",
        |work, _| extensions::BEFORE.deploy(work),
        |seen| seen.extensions(ReconcileMoment::Before, Expect::Exists),
    )
    .after(&["Hibernating control plane"])
    .when(|facts| facts.is_hibernated)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extension resources hibernated after kube-apiserver hibernation are ready",
        |work, attempt| extensions::BEFORE.wait(work, attempt),
        |seen| seen.extensions(ReconcileMoment::Before, Expect::Ready),
    )
    .after(&["Hibernating extension resources after kube-apiserver hibernation"])
    .when(|facts| facts.is_hibernated && facts.waits())
    .last(),
    // A Shoot without workers has no record of an ingress domain.
    Row::new(
        "Destroying internal domain DNS record if hibernated",
        |work, attempt| records::INTERNAL_RECORD.delete_and_wait(work, attempt),
        |seen| seen.no_record(records::INTERNAL),
    )
    .after(&["Hibernating control plane"])
    .when(|facts| facts.is_hibernated)
    .retrying(FIVE_SECONDS, FIVE_MINUTES)
    .last(),
    Row::new(
        "Destroying external domain DNS record if hibernated",
        |work, attempt| records::EXTERNAL_RECORD.delete_and_wait(work, attempt),
        |seen| seen.no_record(records::EXTERNAL),
    )
    .after(&["Hibernating control plane"])
    .when(|facts| facts.is_hibernated)
    .retrying(FIVE_SECONDS, FIVE_MINUTES)
    .last(),
    Row::new("Deleting stale extension resources", |work, _| extensions::STALE.delete(work), only_in_the_log)
        .after(&["Deploying control plane namespace", "Initializing connection to Shoot"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until stale extension resources are deleted",
        |work, attempt| extensions::STALE.wait_gone(work, attempt),
        only_in_the_log,
    )
    .after(&["Deleting stale extension resources"])
    .when(Facts::waits_awake)
    .last(),
    // Upstream deletes it, and with it the backups, before the API server has answered.
    Row::new("Destroying source backup entry", |work, _| copy::delete_source(work), only_in_the_log)
        .after(&["Initializing connection to Shoot"])
        .when(|facts| facts.restores() && facts.has_backup)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until source backup entry has been deleted",
        |work, attempt| copy::SOURCE_ENTRY.wait_gone(work, attempt),
        only_in_the_log,
    )
    .after(&["Destroying source backup entry"])
    .when(|facts| facts.restores() && facts.has_backup)
    .last(),
    Row::new("Restarting control plane pods", tasks::restart_pods, only_in_the_log)
        .after(&["Waiting until kube-controller-manager reports readiness"])
        .when(|facts| facts.restarts_pods)
        .within(SECOND)
        .last(),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order in which the Go gardenlet finished them, without the tasks of components that
    /// are not deployed here.
    const HIBERNATES: [&str; 20] = [
        "Deploying control plane namespace",
        "Ensuring Shoot cluster identity",
        "Deploying referenced resources",
        "Deploying Kubernetes API server service in the Seed cluster",
        "Initializing secrets management",
        "Ensuring advertised addresses for the Shoot",
        "Deploying main and events ETCDs",
        "Deploying Kubernetes API server",
        "Deploying gardener-resource-manager",
        "Deploying shoot namespaces system component",
        "Deploying Gardener shoot access resources",
        "Deploying Kubernetes controller manager",
        "Initializing connection to Shoot",
        "Hibernating extension resources before kube-apiserver hibernation",
        "Deleting stale extension resources",
        "Waiting until extension resources hibernated before kube-apiserver hibernation are ready",
        "Hibernating control plane",
        "Hibernating extension resources after kube-apiserver hibernation",
        "Destroying internal domain DNS record if hibernated",
        "Destroying external domain DNS record if hibernated",
    ];

    #[test]
    fn a_hibernating_shoot_has_the_tasks_of_upstream() {
        let all = TABLE.outline(&Facts { is_hibernated: true, ..Facts::default() });
        let own = ["Create botanist", "Check required extensions"];
        let kept = "Waiting until Kubernetes API server service in the Seed cluster has reported readiness";
        let last = "Waiting until extension resources hibernated after kube-apiserver hibernation are ready";
        let mut expected: Vec<&str> = own.into_iter().chain([kept]).chain(HIBERNATES).chain([last]).collect();
        let mut done: Vec<&str> = all.iter().filter(|task| !task.is_skipped).map(|task| task.name).collect();
        let place = |name: &str| HIBERNATES.iter().position(|known| *known == name);
        for task in all.iter().filter(|task| !task.is_skipped) {
            for need in task.needs.iter().map(|need| all[*need].name) {
                let is_later = place(need).zip(place(task.name)).is_some_and(|(need, own)| need > own);
                // Controllers must not be newer than a server that was not waited for.
                let is_ours = task.name == "Deploying Kubernetes controller manager";
                assert!(!is_later || is_ours, "{} needs {need}", task.name);
            }
        }
        expected.sort_unstable();
        done.sort_unstable();
        assert_eq!(done, expected);
        let awake = TABLE.outline(&Facts::default());
        let of_sleep = |name: &str| name.contains("ibernat");
        assert!(awake.iter().filter(|task| of_sleep(task.name)).all(|task| task.is_skipped));
    }
}
