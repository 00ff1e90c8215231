//! Whether a Shoot that leaves has still to hand its backups over: the last snapshot is taken, etcd is stopped, and the BackupEntry is
//! given to the other seed.
//!
//! The entry alone does not say it. An administrator who takes this seed for lost writes it for the seed (`gardenlet rescue`), and
//! the seed may come back before he has ended. Then etcd runs here and has what no snapshot has. This agent stops etcd before it
//! gives the entry away, so an etcd that runs was not handed over.

use crate::api::core::{SECRET, STATEFUL_SET};
use crate::api::meta::{Key, Metadata};
use crate::components::scale;
use crate::flow::Failed;
use crate::kube::Error;

use super::super::components::etcd::plain::snapshots::SECRET as BUCKET;
use super::super::components::etcd::{Role, druid};
use super::super::work::Environment;
use super::Found;
use super::read::BackupOwner;

/// Decides it. `is_in_use` says whether etcd runs here, or an API server could use it.
fn decide(owner: BackupOwner, is_in_use: bool) -> bool {
    match owner {
        BackupOwner::Source => true,
        BackupOwner::Target => is_in_use,
        BackupOwner::Nobody => false,
    }
}

/// Whether the backups must still be handed over. Errors: they must, and the Secret of their bucket is missing. Then nothing of the
/// Shoot may be deleted here.
pub(super) fn is_due(
    env: &Environment,
    namespace: &str,
    owner: BackupOwner,
    found: &Found,
) -> Result<bool, Failed> {
    let is_in_use = owner == BackupOwner::Target && (found.has_server || runs(env, namespace)?);
    let is_due = decide(owner, is_in_use);
    let secret = Key::new(namespace, BUCKET);
    if is_due && is_in_use && env.seed.find::<Metadata>(&SECRET, &secret)?.is_none() {
        return Err(Failed::new(format!(
            "the etcd of the Shoot still runs on this seed, although its BackupEntry was given away, and Secret {secret} of the seed, \
             which leads to its bucket, does not exist: bind the Shoot to this seed again, which creates the Secret, and then to the \
             other one"
        )));
    }
    Ok(is_due)
}

/// Whether the etcd with the data has replicas, whoever runs it.
fn runs(env: &Environment, namespace: &str) -> Result<bool, Error> {
    let key = Key::new(namespace, Role::Main.name());
    for resource in [druid::ETCD, STATEFUL_SET] {
        if scale::replicas(&env.seed, &resource, &key)?.is_some_and(|replicas| replicas > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etcd_that_runs_was_not_handed_over() {
        let table = [
            (BackupOwner::Source, false, true),
            (BackupOwner::Source, true, true),
            // The last snapshot is taken, and etcd is stopped.
            (BackupOwner::Target, false, false),
            // The seed was taken for lost, and is not.
            (BackupOwner::Target, true, true),
            (BackupOwner::Nobody, true, false),
            (BackupOwner::Nobody, false, false),
        ];
        for (owner, is_in_use, expected) in table {
            assert_eq!(decide(owner, is_in_use), expected, "{owner:?} {is_in_use}");
        }
    }
}
