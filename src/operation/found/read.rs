//! Reads what an operation depends on.

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, NAMESPACE, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET};
use crate::api::meta::{Key, Metadata, text};
use crate::backup::garden;
use crate::flow::Failed;
use crate::kube::{Error, Seed};
use crate::shoot::access;

use super::super::components::etcd::plain::refused;
use super::super::components::etcd::{Role, druid};
use super::super::components::{kube_apiserver, kube_controller_manager};
use super::super::inputs::GardenInputs;
use super::super::kinds::Operation;
use super::super::restore;
use super::super::snapshots::accepts_loss;
use super::super::work::Environment;
use super::departure::{self, Departure};
use super::{Found, handover};

/// Reads what the operation depends on.
pub(crate) fn read(
    env: &Environment,
    operation: Operation,
    shoot: &Value,
    inputs: &GardenInputs,
) -> Result<Found, Failed> {
    let namespace = text(&shoot["status"]["technicalID"]);
    match operation {
        Operation::Create | Operation::Reconcile => Ok(Found::default()),
        Operation::Delete | Operation::ForceDelete => Ok(in_seed(&env.seed, namespace)?),
        Operation::Migrate => leaving(env, shoot, inputs),
        Operation::Restore => coming(env, shoot, inputs),
    }
}

/// What a restoration finds. Errors: there is an etcd, or a volume of one, with data of an earlier time.
fn coming(env: &Environment, shoot: &Value, inputs: &GardenInputs) -> Result<Found, Failed> {
    let namespace = text(&shoot["status"]["technicalID"]);
    let has_etcd = has_etcd(&env.seed, namespace)?;
    let claim = Key::new(namespace, Role::Main.first_claim());
    let has_old = has_etcd || env.seed.find::<Metadata>(&PERSISTENT_VOLUME_CLAIM, &claim)?.is_some();
    if has_old && let Some(bucket) = restore::copy::elsewhere(env, shoot, inputs)? {
        let old = if has_etcd { ETCD.to_owned() } else { format!("PersistentVolumeClaim {}", claim.name) };
        return Err(outdated(namespace, &old, &bucket));
    }
    let trace = EtcdTrace {
        exists: has_etcd,
        is_refused: has_etcd && refused::find(&env.seed, namespace)?.is_some(),
        has_server: has_etcd && has_server(&env.seed, namespace)?,
    };
    let needs_copy = lacks_data(trace) && restore::copy::is_needed(env, shoot, inputs)?;
    if needs_copy {
        restore::copy::check_owner(env, shoot)?;
    }
    Ok(Found { has_etcd, needs_copy, ..Found::default() })
}

/// What an old etcd is called in messages.
const ETCD: &str = "etcd-main";

fn outdated(namespace: &str, old: &str, bucket: &str) -> Failed {
    Failed::new(format!(
        "namespace {namespace} of the seed has {old} from an earlier time of the Shoot here, and its present data are in \
         BackupBucket {bucket} of another seed: remove what is left of the Shoot here (docs/moving.md)"
    ))
}

/// What a migration finds.
fn leaving(env: &Environment, shoot: &Value, inputs: &GardenInputs) -> Result<Found, Failed> {
    let namespace = text(&shoot["status"]["technicalID"]);
    let found = in_seed(&env.seed, namespace)?;
    let entry = garden::entry(shoot);
    let live = entry.find(&env.garden)?.unwrap_or_default();
    let (bucket, seed) = (text(&live["spec"]["bucketName"]), text(&live["spec"]["seedName"]));
    let keeps_entry = !live.is_null() && seed != text(&shoot["spec"]["seedName"]);
    let has_etcd = has_etcd(&env.seed, namespace)?;
    match departure::look(&env.garden, &env.seed, shoot, &inputs.seed)? {
        Departure::Blocked(why) => Err(Failed::new(why)),
        // Somebody may still want to look for something in it.
        Departure::PassedOn if has_etcd => Err(outdated(namespace, ETCD, bucket)),
        Departure::PassedOn => {
            let has_namespace = found.has_namespace;
            Ok(Found { has_namespace, keeps_entry, passes_on: true, ..Found::default() })
        }
        Departure::Whole => {
            let owner = BackupOwner::of(seed, shoot);
            if owner == BackupOwner::Nobody && has_etcd && !accepts_loss(shoot) {
                return Err(Failed::new(format!(
                    "the data of the Shoot cannot leave this seed: BackupEntry {} of the garden does not exist, or belongs to neither \
                     of the two seeds; let it be created by binding the Shoot to its seed again",
                    entry.key
                )));
            }
            let keeps_backups = found.has_namespace && handover::is_due(env, namespace, owner, &found)?;
            Ok(Found { keeps_backups, keeps_entry, ..found })
        }
    }
}

fn in_seed(seed: &Seed, namespace: &str) -> Result<Found, Error> {
    let is_live = |found: Option<Metadata>| found.is_some_and(|it| it.metadata.deletion_timestamp.is_none());
    let has = |name: &str| Ok::<_, Error>(is_live(seed.find(&DEPLOYMENT, &Key::new(namespace, name))?));
    let has_namespace = is_live(seed.find(&NAMESPACE, &Key::cluster(namespace))?);
    if !has_namespace {
        return Ok(Found::default());
    }
    let server: Option<Value> = seed.find(&DEPLOYMENT, &Key::new(namespace, kube_apiserver::NAME))?;
    let answers = |server: &Value| server["status"]["readyReplicas"].as_i64().is_some_and(|n| n > 0);
    // The owner may have used it before any token was requested.
    let was_served = server.as_ref().is_some_and(answers) || access::was_ever_given(seed, namespace)?;
    let is_live = |server: &Value| server["metadata"]["deletionTimestamp"].is_null();
    Ok(Found {
        has_namespace,
        has_server: server.as_ref().is_some_and(is_live),
        was_served,
        has_controllers: has(kube_controller_manager::NAME)?,
        ..Found::default()
    })
}

/// Which of the two seeds of a migration has the backups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BackupOwner {
    /// The seed that the Shoot leaves.
    Source,
    /// The entry was given away: by this seed after the last snapshot, or by an administrator who took the seed for lost.
    Target,
    Nobody,
}

impl BackupOwner {
    /// From the seed of the Shoot's entry; empty without an entry.
    fn of(seed: &str, shoot: &Value) -> Self {
        match (seed, text(&shoot["status"]["seedName"]), text(&shoot["spec"]["seedName"])) {
            ("", ..) => Self::Nobody,
            (seed, source, _) if seed == source => Self::Source,
            (seed, _, target) if seed == target => Self::Target,
            _ => Self::Nobody,
        }
    }
}

/// The etcd of a Shoot that is restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct EtcdTrace {
    exists: bool,
    /// It does not start, because what its bucket has cannot be restored.
    is_refused: bool,
    /// An API server may have written to it.
    has_server: bool,
}

/// Whether a copy of the backups may give an etcd its data, and can replace nothing.
const fn lacks_data(trace: EtcdTrace) -> bool {
    !trace.exists || trace.is_refused && !trace.has_server
}

/// Whether the Deployment of the API server exists, also in its deletion.
fn has_server(seed: &Seed, namespace: &str) -> Result<bool, Error> {
    Ok(seed.find::<Metadata>(&DEPLOYMENT, &Key::new(namespace, kube_apiserver::NAME))?.is_some())
}

/// Whether the etcd with the data exists, whoever runs it.
pub(super) fn has_etcd(seed: &Seed, namespace: &str) -> Result<bool, Error> {
    let key = Key::new(namespace, Role::Main.name());
    Ok(druid::runs(seed, &key)? || seed.find::<Metadata>(&STATEFUL_SET, &key)?.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn backups_are_copied_until_an_etcd_has_started_with_them() {
        let table = [
            ([false, false, false], true),
            ([true, false, false], false),
            ([true, true, false], true),
            ([true, true, true], false),
            ([true, false, true], false),
        ];
        for ([exists, is_refused, has_server], expected) in table {
            let trace = EtcdTrace { exists, is_refused, has_server };
            assert_eq!(lacks_data(trace), expected, "{trace:?}");
        }
    }

    #[test]
    fn who_has_the_backups_of_a_shoot_that_leaves() {
        let shoot = json!({"spec": {"seedName": "b"}, "status": {"seedName": "a"}});
        let table = [
            ("a", BackupOwner::Source),
            ("b", BackupOwner::Target),
            ("c", BackupOwner::Nobody),
            ("", BackupOwner::Nobody),
        ];
        for (seed, expected) in table {
            assert_eq!(BackupOwner::of(seed, &shoot), expected, "{seed}");
        }
    }
}
