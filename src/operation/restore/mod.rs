//! A Shoot that comes from another seed is created from what that seed has left: keys and states of extensions in the
//! ShootState, data in the backups (Gardener's `reconciler_reconcile.go`, which does both).
//!
//! The tasks are those of a creation; some of them are needed only here ([`Facts::copies_backups`](super::facts::Facts)). The
//! etcd never starts empty, and the backups of the other seed go only after the restored API server has answered.

pub(super) mod copy;

use super::create;
use super::table::Table;

pub(super) static TABLE: Table =
    Table { name: "Shoot cluster restoration", rows: &create::ROWS, of: |component| component.create };

#[cfg(test)]
mod tests {
    use super::super::facts::Facts;
    use super::super::found::Found;
    use super::super::kinds::Operation;
    use super::*;

    fn names(facts: &Facts) -> Vec<&'static str> {
        TABLE.outline(facts).into_iter().filter(|task| !task.is_skipped).map(|task| task.name).collect()
    }

    #[test]
    fn backups_are_copied_before_etcd_starts_and_go_after_the_server_has_answered() {
        let restores = Facts { operation: Operation::Restore, has_backup: true, ..Facts::default() };
        let copies = Facts { found: Found { needs_copy: true, ..Found::default() }, ..restores };
        let of_copy = [
            "Deploying source backup entry",
            "Waiting until the source backup entry has been reconciled",
            "Copying etcd backups to new seed's backup bucket",
            "Waiting until etcd backups are copied",
            "Destroying copy etcd backups task resource",
        ];
        let of_source =
            ["Destroying source backup entry", "Waiting until source backup entry has been deleted"];
        let (first, again, usual) = (names(&copies), names(&restores), names(&Facts::default()));
        for name in of_copy {
            assert_eq!(
                [&first, &again, &usual].map(|names| names.contains(&name)),
                [true, false, false],
                "{name}"
            );
        }
        for name in of_source {
            assert_eq!(
                [&first, &again, &usual].map(|names| names.contains(&name)),
                [true, true, false],
                "{name}"
            );
        }
        const COPIED: &str = "Waiting until etcd backups are copied";
        const ANSWERS: &str = "Initializing connection to Shoot";
        let table = [
            // The garden accepts it only while the Shoot's own entry still names the other bucket.
            (
                "Deploying BackupEntry for ETCD data",
                "Waiting until the source backup entry has been reconciled",
            ),
            (
                "Copying etcd backups to new seed's backup bucket",
                "Waiting until the BackupEntry for ETCD data has been reconciled",
            ),
            (COPIED, "Copying etcd backups to new seed's backup bucket"),
            ("Destroying copy etcd backups task resource", COPIED),
            ("Deploying main and events ETCDs", COPIED),
            ("Checking that the restored main etcd has data", "Deploying main and events ETCDs"),
            ("Deploying Kubernetes API server", "Checking that the restored main etcd has data"),
            (ANSWERS, "Deploying Kubernetes API server"),
            ("Allowing the restored etcd to start without backups", ANSWERS),
            ("Destroying source backup entry", ANSWERS),
            ("Waiting until source backup entry has been deleted", "Destroying source backup entry"),
        ];
        for (later, earlier) in table {
            assert!(TABLE.waits(&copies, later, earlier), "{later:?} does not wait for {earlier:?}");
        }
    }
}
