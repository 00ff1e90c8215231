//! What decides which tasks of an operation are needed.

use serde_json::Value;

use crate::api::meta::text;
use crate::config::control_plane::{NodeSettings, Tunnel};
use crate::shoot::{RotationPhase, ShootView, cleaner, rotation};

use super::found::Found;
use super::kinds::Operation;
use super::requests;

/// The facts about a Shoot at the start of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) operation: Operation,
    /// The Shoot has pools of workers.
    pub(crate) has_workers: bool,
    /// A tunnel leads to its nodes: `edge.tunnel`.
    pub(crate) has_tunnel: bool,
    /// What the site wants on the nodes of each Shoot.
    pub(crate) nodes: NodeSettings,
    /// Its nodes have kube-proxy: `spec.kubernetes.kubeProxy.enabled` is not false.
    pub(crate) has_kube_proxy: bool,
    /// The control plane ends, or stays off: `spec.hibernation.enabled`. A Shoot that is deleted is awake, because the content
    /// of its cluster cannot be deleted while it is hibernated. One that moves is awake, so that each seed shows that its
    /// data is whole.
    pub(crate) is_hibernated: bool,
    /// Annotation `shoot.gardener.cloud/skip-readiness`: do not wait for readiness.
    pub(crate) skips_readiness: bool,
    /// The garden publishes the public keys of service accounts.
    pub(crate) publishes_keys: bool,
    /// The rotation of the key of service accounts.
    pub(crate) service_account_key: RotationPhase,
    /// The rotation of CAs.
    pub(crate) authorities: RotationPhase,
    /// The rotation of the encryption key.
    pub(crate) encryption_key: RotationPhase,
    /// The kinds that are encrypted change, or nothing records them yet.
    pub(crate) changes_encryption: bool,
    /// The seed has backups.
    pub(crate) has_backup: bool,
    /// The garden requests new pods of the control plane.
    pub(crate) restarts_pods: bool,
    /// The owner keeps API extensions until the API server is deleted.
    pub(crate) keeps_api_extensions: bool,
    /// The Shoot is hibernated, or is to be.
    pub(crate) sleeps: bool,
    /// What the operation finds in the seed.
    pub(crate) found: Found,
}

impl Facts {
    /// The facts of an operation. `nodes` is what the site wants. `found` is what the operation finds in the seed.
    pub(crate) fn new(
        operation: Operation,
        shoot: &Value,
        view: &ShootView,
        nodes: NodeSettings,
        found: Found,
    ) -> Self {
        let rotations = &view.rotations;
        let rest = &shoot["status"]["credentials"]["encryptionAtRest"];
        Self {
            operation,
            has_workers: view.has_workers,
            has_tunnel: view.has_workers && nodes.tunnel == Tunnel::Konnectivity,
            nodes,
            has_kube_proxy: view.kubernetes["kubeProxy"]["enabled"] != false,
            is_hibernated: view.wants_hibernation
                && matches!(operation, Operation::Create | Operation::Reconcile),
            skips_readiness: !shoot["metadata"]["annotations"]["shoot.gardener.cloud/skip-readiness"]
                .is_null(),
            publishes_keys: view.wants_managed_issuer,
            service_account_key: rotations.service_account_key.phase,
            authorities: rotations.authorities.phase,
            encryption_key: rotations.encryption_key.phase,
            changes_encryption: rotation::encrypts_others(shoot)
                || text(&rest["provider"]["type"]).is_empty(),
            has_backup: view.backup.is_object(),
            restarts_pods: requests::asks(shoot, requests::RESTART_PODS),
            keeps_api_extensions: cleaner::skips(shoot),
            sleeps: view.sleeps,
            found,
        }
    }

    /// It is awake when the operation ends.
    pub(super) const fn is_awake(&self) -> bool {
        !self.is_hibernated
    }

    /// It has pools, and is awake when the operation ends: the nodes get what runs on them.
    pub(super) const fn serves_nodes(&self) -> bool {
        self.has_workers && self.is_awake()
    }

    /// The operation waits until workloads are ready.
    pub(super) const fn waits(&self) -> bool {
        !self.skips_readiness
    }

    pub(super) const fn waits_awake(&self) -> bool {
        self.is_awake() && self.waits()
    }

    pub(super) const fn prepares_service_account_key(&self) -> bool {
        is_preparing(self.service_account_key)
    }

    pub(super) const fn prepares_encryption_key(&self) -> bool {
        is_preparing(self.encryption_key)
    }

    /// Stored objects must be rewritten: the key or the encrypted kinds have changed.
    pub(super) const fn rewrites_objects(&self) -> bool {
        self.changes_encryption || self.prepares_encryption_key()
    }

    /// The label of rewritten objects must be removed.
    pub(super) const fn ends_rewrite(&self) -> bool {
        self.changes_encryption || matches!(self.encryption_key, RotationPhase::Completing)
    }

    pub(super) const fn completes_service_account_key(&self) -> bool {
        matches!(self.service_account_key, RotationPhase::Completing)
    }

    /// What the old CAs have signed is not trusted any more.
    pub(super) const fn completes_authorities(&self) -> bool {
        matches!(self.authorities, RotationPhase::Completing)
    }

    /// Old controllers would fill new Secrets with tokens that the old key has signed.
    pub(super) const fn waits_for_controllers(&self) -> bool {
        self.prepares_service_account_key() || is_preparing(self.authorities) && self.waits()
    }

    /// The API server of the Shoot can be used, and its cluster has content: a deletion deletes that.
    pub(super) const fn cleans(&self) -> bool {
        self.found.is_usable()
    }

    /// A migration starts the API server of a hibernated Shoot.
    pub(super) const fn wakes(&self) -> bool {
        self.sleeps && self.cleans()
    }

    /// A migration takes the last snapshot, because the backups do not belong to the other seed yet.
    pub(super) const fn takes_last_snapshot(&self) -> bool {
        self.found.keeps_backups
    }

    /// A migration gives the BackupEntry to the other seed.
    pub(super) const fn gives_entry(&self) -> bool {
        self.found.keeps_entry && !self.found.passes_on
    }

    /// The same if this seed has nothing of the Shoot but the entry. It does so at the end: until then, it can begin to restore
    /// the Shoot again.
    pub(super) const fn passes_entry_on(&self) -> bool {
        self.found.keeps_entry && self.found.passes_on
    }

    /// The keys of the Shoot that a migration finds are the true ones, and not just begun.
    pub(super) const fn has_keys(&self) -> bool {
        self.found.has_namespace && !self.found.passes_on
    }

    /// A migration needs the etcds.
    pub(super) const fn uses_etcd(&self) -> bool {
        self.cleans() || self.takes_last_snapshot()
    }

    pub(super) const fn restores(&self) -> bool {
        matches!(self.operation, Operation::Restore)
    }

    /// A restored Shoot gets its backups from the bucket of the seed that it has left.
    pub(super) const fn copies_backups(&self) -> bool {
        self.has_backup && self.restores() && self.found.needs_copy
    }
}

const fn is_preparing(phase: RotationPhase) -> bool {
    matches!(phase, RotationPhase::Preparing | RotationPhase::PreparingWithoutWorkersRollout)
}
