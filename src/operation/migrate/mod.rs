//! The tasks that prepare a Shoot for its move to another seed, and their order (Gardener's
//! `reconciler_migrate.go`). Nothing of the Shoot is left in this seed when they are done, and nothing outside of it is deleted:
//! the objects in its cluster stay in its etcd, whose last snapshot is in the bucket, and extensions only let go.
//!
//! Tasks of machines do not exist yet. What this seed would lose for ever is deleted only after the
//! garden has shown that it has it: extension objects after the ShootState was read back, etcd after its last snapshot was.

mod tasks;

use crate::api::extensions::{CONTROL_PLANE, INFRASTRUCTURE};

use super::components::kube_apiserver::tasks as kube_apiserver;
use super::create::tasks as create;
use super::delete::tasks as delete;
use super::evidence::only_in_the_log;
use super::facts::Facts;
use super::providers::{CONTROL_PLANE_OBJECT, INFRASTRUCTURE_OBJECT, OF_NODES};
use super::row::Row;
use super::table::Table;
use super::times::{
    FIFTEEN_MINUTES, FIVE_MINUTES, FIVE_SECONDS, MINUTE, SHORT, TEN_MINUTES, TEN_SECONDS, TWO_MINUTES,
};
use super::{backups, extensions, records};

pub(super) static TABLE: Table =
    Table { name: "Shoot cluster preparation for migration", rows: &ROWS, of: |component| component.migrate };

// A method of `Looker<'_>` has one lifetime, and the closure has all.
#[allow(clippy::redundant_closure_for_method_calls)]
static ROWS: [Row; 38] = [
    Row::new("Create botanist", kube_apiserver::settings_if_possible, kube_apiserver::settings_seen)
        .when(Facts::cleans)
        .retrying(TEN_SECONDS, MINUTE),
    Row::new("Deploying Shoot namespace in Seed", create::namespace, |seen| seen.namespace())
        .after(&["Create botanist"])
        .when(Facts::has_keys)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Initializing secrets management", create::secrets, only_in_the_log)
        .after(&["Deploying Shoot namespace in Seed"])
        .when(Facts::has_keys)
        .within(TEN_MINUTES),
    // Objects of the cluster stay there.
    Row::new(
        "Configuring Managed Resources objects to be kept in the Shoot",
        tasks::keep_objects,
        only_in_the_log,
    )
    .after(&["Ensuring that the gardener-resource-manager is scaled to 1"])
    .when(Facts::cleans)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new("Deleting all Managed Resources from the Shoot's namespace", delete::managed, only_in_the_log)
        .after(&["Configuring Managed Resources objects to be kept in the Shoot"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until ManagedResources are deleted", delete::wait_managed, |seen| seen.managed_left())
        .after(&["Deleting all Managed Resources from the Shoot's namespace"])
        .within(TEN_MINUTES),
    Row::new("Migrating extension resources", |work, _| OF_NODES.migrate(work), only_in_the_log)
        .after(&["Waiting until ManagedResources are deleted"])
        .when(|facts| facts.has_workers)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extension resources have been migrated",
        |work, attempt| OF_NODES.wait_migrated(work, attempt),
        only_in_the_log,
    )
    .after(&["Migrating extension resources"])
    .when(|facts| facts.has_workers),
    Row::new(
        "Deleting extension resources from the Shoot namespace",
        |work, _| OF_NODES.delete_migrated(work),
        only_in_the_log,
    )
    .after(&["Persisting ShootState in garden cluster"])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extension resources have been deleted",
        |work, attempt| OF_NODES.wait_migrated_gone(work, attempt),
        only_in_the_log,
    )
    .after(&["Deleting extension resources from the Shoot namespace"])
    .when(|facts| facts.has_workers),
    // Upstream does not wait until it is migrated.
    Row::new("Migrating shoot control plane", |work, _| CONTROL_PLANE_OBJECT.migrate(work), only_in_the_log)
        .after(&[
            "Waiting until extension resources have been deleted",
            "Waiting until extensions that should be handled before kube-apiserver have been deleted",
            "Waiting until all stale extensions have been deleted",
        ])
        .when(|facts| facts.has_workers)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Deleting shoot control plane",
        |work, _| CONTROL_PLANE_OBJECT.delete_migrated(work),
        only_in_the_log,
    )
    .after(&["Migrating shoot control plane"])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until shoot control plane has been deleted",
        |work, attempt| CONTROL_PLANE_OBJECT.wait_migrated_gone(work, attempt),
        |seen| seen.object_left(&CONTROL_PLANE),
    )
    .after(&["Deleting shoot control plane"])
    .when(|facts| facts.has_workers),
    Row::new(
        "Migrating shoot infrastructure",
        |work, _| INFRASTRUCTURE_OBJECT.migrate(work),
        only_in_the_log,
    )
    .after(&["Waiting until kube-apiserver has been deleted"])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until shoot infrastructure has been migrated",
        |work, attempt| INFRASTRUCTURE_OBJECT.wait_migrated(work, attempt),
        only_in_the_log,
    )
    .after(&["Migrating shoot infrastructure"])
    .when(|facts| facts.has_workers),
    Row::new(
        "Deleting shoot infrastructure",
        |work, _| INFRASTRUCTURE_OBJECT.delete_migrated(work),
        only_in_the_log,
    )
    .after(&["Waiting until shoot infrastructure has been migrated"])
    .when(|facts| facts.has_workers)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until shoot infrastructure has been deleted",
        |work, attempt| INFRASTRUCTURE_OBJECT.wait_migrated_gone(work, attempt),
        |seen| seen.object_left(&INFRASTRUCTURE),
    )
    .after(&["Deleting shoot infrastructure"])
    .when(|facts| facts.has_workers),
    Row::new(
        "Migrating extensions before kube-apiserver",
        |work, _| extensions::BEFORE.migrate(work),
        only_in_the_log,
    )
    .after(&["Waiting until ManagedResources are deleted"])
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extensions that should be handled before kube-apiserver have been migrated",
        |work, attempt| extensions::BEFORE.wait_migrated(work, attempt),
        only_in_the_log,
    )
    .after(&["Migrating extensions before kube-apiserver"]),
    // Upstream does not wait for the extensions here.
    Row::new("Persisting ShootState in garden cluster", tasks::persist_state, |seen| seen.shoot_state())
        .after(&[
            "Waiting until extensions that should be handled before kube-apiserver have been migrated",
            "Waiting until extension resources have been migrated",
        ])
        .when(Facts::has_keys)
        .retrying(FIVE_SECONDS, TWO_MINUTES),
    Row::new(
        "Deleting extensions before kube-apiserver",
        |work, _| extensions::BEFORE.delete_migrated(work),
        only_in_the_log,
    )
    .after(&["Persisting ShootState in garden cluster"])
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extensions that should be handled before kube-apiserver have been deleted",
        |work, attempt| extensions::BEFORE.wait_migrated_gone(work, attempt),
        |seen| seen.extensions_left(),
    )
    .after(&["Deleting extensions before kube-apiserver"]),
    Row::new("Deleting stale extensions", |work, _| extensions::STALE.delete(work), only_in_the_log)
        .after(&["Persisting ShootState in garden cluster"])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until all stale extensions have been deleted",
        |work, attempt| extensions::STALE.wait_gone(work, attempt),
        |seen| seen.extensions_left(),
    )
    .after(&["Deleting stale extensions"]),
    Row::new("Waiting until shoot managed resources have been deleted", delete::wait_all_managed, |seen| {
        seen.managed_left()
    })
    .after(&[
        "Waiting until extensions that should be handled before kube-apiserver have been deleted",
        "Waiting until all stale extensions have been deleted",
        "Waiting until shoot control plane has been deleted",
    ])
    .when(Facts::cleans)
    .retrying(FIVE_SECONDS, TEN_MINUTES),
    Row::new(
        "Migrating extensions after kube-apiserver",
        |work, _| extensions::AFTER.migrate(work),
        only_in_the_log,
    )
    .after(&["Waiting until kube-apiserver has been deleted"])
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extensions that should be handled after kube-apiserver have been migrated",
        |work, attempt| extensions::AFTER.wait_migrated(work, attempt),
        only_in_the_log,
    )
    .after(&["Migrating extensions after kube-apiserver"]),
    Row::new(
        "Deleting extensions after kube-apiserver",
        |work, _| extensions::AFTER.delete_migrated(work),
        only_in_the_log,
    )
    .after(&["Waiting until extensions that should be handled after kube-apiserver have been migrated"])
    .retrying(FIVE_SECONDS, SHORT),
    Row::new(
        "Waiting until extensions that should be handled after kube-apiserver have been deleted",
        |work, attempt| extensions::AFTER.wait_migrated_gone(work, attempt),
        |seen| seen.extensions_left(),
    )
    .after(&["Deleting extensions after kube-apiserver"]),
    Row::new(
        "Waiting until all extensions have been deleted",
        |work, attempt| extensions::ANY.wait_gone(work, attempt),
        |seen| seen.extensions_left(),
    )
    .after(&["Waiting until extensions that should be handled after kube-apiserver have been deleted"]),
    Row::new(
        "Migrating external domain DNS record",
        |work, attempt| records::EXTERNAL_RECORD.migrate_and_wait(work, attempt),
        only_in_the_log,
    )
    .after(&["Waiting until kube-apiserver has been deleted"])
    .when(|facts| facts.found.has_namespace)
    .within(FIVE_MINUTES),
    Row::new(
        "Migrating internal domain DNS record",
        |work, attempt| records::INTERNAL_RECORD.migrate_and_wait(work, attempt),
        only_in_the_log,
    )
    .after(&["Waiting until kube-apiserver has been deleted"])
    .when(|facts| facts.found.has_namespace)
    .within(FIVE_MINUTES),
    Row::new("Deleting DNSRecords from the Shoot namespace", tasks::delete_records, |seen| {
        seen.records_left()
    })
    .after(&[
        "Waiting until all extensions have been deleted",
        "Waiting until shoot infrastructure has been deleted",
        "Migrating external domain DNS record",
        "Migrating internal domain DNS record",
    ])
    .when(|facts| facts.found.has_namespace)
    .retrying(FIVE_SECONDS, SHORT),
    Row::new("Migrating BackupEntry to new seed", backups::migrate, only_in_the_log)
        .after(&["Stopping main and events etcd"])
        .when(Facts::gives_entry)
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting for BackupEntry to be migrated to new seed", backups::wait_migrated, only_in_the_log)
        .after(&["Migrating BackupEntry to new seed"]),
    Row::new("Deleting shoot namespace in Seed", delete::namespace, only_in_the_log)
        .after(&[
            "Deleting DNSRecords from the Shoot namespace",
            "Stopping Kubernetes controller manager",
            "Waiting until main and event etcd have been destroyed",
        ])
        .retrying(FIVE_SECONDS, SHORT),
    Row::new("Waiting until shoot namespace in Seed has been deleted", delete::wait_namespace_gone, |seen| {
        seen.namespace_left()
    })
    .after(&["Deleting shoot namespace in Seed"])
    .within(FIFTEEN_MINUTES),
    // Upstream gives the entry away before.
    Row::new("Passing BackupEntry on to new seed", backups::migrate, only_in_the_log)
        .after(&["Waiting until shoot namespace in Seed has been deleted"])
        .when(Facts::passes_entry_on)
        .retrying(FIVE_SECONDS, SHORT)
        .last(),
];

#[cfg(test)]
mod tests {
    use super::super::found::Found;
    use super::*;

    fn facts(found: Found) -> Facts {
        Facts { found, has_backup: true, ..Facts::default() }
    }

    fn names(facts: &Facts) -> Vec<&'static str> {
        TABLE.outline(facts).into_iter().filter(|task| !task.is_skipped).map(|task| task.name).collect()
    }

    /// Upstream's tasks for a Shoot without workers, in the order of its source. Those that it runs and that have nothing to do
    /// for such a Shoot are left out.
    const UPSTREAM: [&str; 38] = [
        "Create botanist",
        "Deploying Shoot namespace in Seed",
        "Initializing secrets management",
        "Deploying main and events etcd",
        "Waiting until main and event etcd report readiness",
        "Scaling Kubernetes API Server up and waiting until ready",
        "Deploying gardener-resource-manager",
        "Ensuring that the gardener-resource-manager is scaled to 1",
        "Configuring Managed Resources objects to be kept in the Shoot",
        "Deleting all Managed Resources from the Shoot's namespace",
        "Waiting until ManagedResources are deleted",
        "Migrating extensions before kube-apiserver",
        "Waiting until extensions that should be handled before kube-apiserver have been migrated",
        "Persisting ShootState in garden cluster",
        "Deleting extensions before kube-apiserver",
        "Waiting until extensions that should be handled before kube-apiserver have been deleted",
        "Deleting stale extensions",
        "Waiting until all stale extensions have been deleted",
        "Waiting until shoot managed resources have been deleted",
        "Deleting kube-apiserver deployment",
        "Waiting until kube-apiserver has been deleted",
        "Migrating extensions after kube-apiserver",
        "Waiting until extensions that should be handled after kube-apiserver have been migrated",
        "Deleting extensions after kube-apiserver",
        "Waiting until extensions that should be handled after kube-apiserver have been deleted",
        "Waiting until all extensions have been deleted",
        "Migrating external domain DNS record",
        "Migrating internal domain DNS record",
        "Deleting DNSRecords from the Shoot namespace",
        "Creating ETCD Snapshot",
        "Migrating BackupEntry to new seed",
        "Waiting for BackupEntry to be migrated to new seed",
        "Destroying main and events etcd",
        "Waiting until main and event etcd have been destroyed",
        "Deleting shoot namespace in Seed",
        "Waiting until shoot namespace in Seed has been deleted",
        "Scaling etcd up",
        "Migrating nginx ingress DNS record",
    ];
    /// A woken etcd is written with its replicas, and a Shoot without workers has no such record.
    const WITHOUT_COUNTERPART: [&str; 2] = ["Scaling etcd up", "Migrating nginx ingress DNS record"];
    const OWN: &str = "Stopping main and events etcd";
    const CONTROLLERS: &str = "Stopping Kubernetes controller manager";

    #[test]
    fn tasks_are_those_of_upstream() {
        let mut expected: Vec<&str> =
            UPSTREAM.into_iter().filter(|name| !WITHOUT_COUNTERPART.contains(name)).collect();
        expected.extend([OWN, CONTROLLERS]);
        expected.sort_unstable();
        let mut found = names(&Facts { sleeps: true, ..facts(Found::ALL) });
        found.sort_unstable();
        assert_eq!(found, expected);
        let awake = names(&facts(Found::ALL));
        assert_eq!(awake.len() + 1, found.len(), "only the API server is not woken");
    }

    #[test]
    fn nothing_is_deleted_before_the_garden_or_the_bucket_has_it() {
        const STATE: &str = "Persisting ShootState in garden cluster";
        const SERVER: &str = "Waiting until kube-apiserver has been deleted";
        const SNAPSHOT: &str = "Creating ETCD Snapshot";
        let table = [
            (
                "Deleting all Managed Resources from the Shoot's namespace",
                "Configuring Managed Resources objects to be kept in the Shoot",
            ),
            (
                STATE,
                "Waiting until extensions that should be handled before kube-apiserver have been migrated",
            ),
            ("Deleting extensions before kube-apiserver", STATE),
            ("Deleting stale extensions", STATE),
            ("Deleting kube-apiserver deployment", STATE),
            ("Deleting kube-apiserver deployment", "Waiting until main and event etcd report readiness"),
            ("Deleting extensions after kube-apiserver", STATE),
            ("Migrating internal domain DNS record", STATE),
            // No acknowledged write is missing in the last snapshot, and none comes after it.
            (SNAPSHOT, SERVER),
            (OWN, SNAPSHOT),
            (CONTROLLERS, STATE),
            ("Migrating BackupEntry to new seed", OWN),
            ("Destroying main and events etcd", "Waiting for BackupEntry to be migrated to new seed"),
            ("Deleting shoot namespace in Seed", "Waiting for BackupEntry to be migrated to new seed"),
            ("Deleting shoot namespace in Seed", "Deleting DNSRecords from the Shoot namespace"),
        ];
        for (later, earlier) in table {
            assert!(
                TABLE.waits(&facts(Found::ALL), later, earlier),
                "{later:?} does not wait for {earlier:?}"
            );
        }
    }

    #[test]
    fn a_second_try_does_only_what_is_left() {
        let table = [
            // The API server is deleted, and the last snapshot is not taken or not given away.
            (Found { has_server: false, ..Found::ALL }, true, true),
            // The other seed has the backups.
            (
                Found { has_server: false, keeps_backups: false, keeps_entry: false, ..Found::ALL },
                false,
                true,
            ),
            // The namespace is gone.
            (Found::default(), false, false),
            // Somebody else has deleted it.
            (Found { keeps_entry: true, ..Found::default() }, false, false),
        ];
        for (found, takes_snapshot, has_namespace) in table {
            let names = names(&facts(found));
            for name in ["Deploying main and events etcd", "Creating ETCD Snapshot", OWN] {
                assert_eq!(names.contains(&name), takes_snapshot, "{found:?} {name}");
            }
            assert_eq!(names.contains(&"Migrating BackupEntry to new seed"), found.keeps_entry, "{found:?}");
            assert!(!names.contains(&"Passing BackupEntry on to new seed"), "{found:?}");
            for name in
                ["Persisting ShootState in garden cluster", "Deleting DNSRecords from the Shoot namespace"]
            {
                assert_eq!(names.contains(&name), has_namespace, "{found:?} {name}");
            }
            for name in [
                "Deploying gardener-resource-manager",
                "Scaling Kubernetes API Server up and waiting until ready",
            ] {
                assert!(!names.contains(&name), "{found:?} {name}");
            }
            assert!(names.contains(&"Deleting shoot namespace in Seed"));
        }
    }

    /// No key, no etcd, no snapshot, and no ShootState of its own.
    #[test]
    fn a_seed_that_has_restored_nothing_passes_on_what_it_got() {
        const MAKES: [&str; 9] = [
            "Create botanist",
            "Deploying Shoot namespace in Seed",
            "Initializing secrets management",
            "Deploying main and events etcd",
            "Waiting until main and event etcd report readiness",
            "Persisting ShootState in garden cluster",
            "Creating ETCD Snapshot",
            OWN,
            "Migrating BackupEntry to new seed",
        ];
        const ENDS: [&str; 5] = [
            "Migrating extensions before kube-apiserver",
            "Migrating extensions after kube-apiserver",
            "Migrating external domain DNS record",
            "Deleting DNSRecords from the Shoot namespace",
            "Deleting shoot namespace in Seed",
        ];
        for (has_namespace, keeps_entry) in [(true, true), (false, true), (true, false)] {
            let found = Found { has_namespace, keeps_entry, passes_on: true, ..Found::default() };
            let names = names(&facts(found));
            assert!(MAKES.iter().all(|name| !names.contains(name)), "{names:?}");
            let ends = ENDS.iter().filter(|name| has_namespace || !name.contains("DNS"));
            assert!(ends.copied().all(|name| names.contains(&name)), "{names:?}");
            assert_eq!(names.last() == Some(&"Passing BackupEntry on to new seed"), keeps_entry);
        }
    }
}
