//! BackupEntries: a Shoot's part of a bucket (Gardener's `backupentry`).
//!
//! Woken by new generations in the garden, by finished operations on the bucket, and by finished operations of the
//! extension. A seed is responsible for an entry while `status.seedName` names it: when the entry moves to another
//! seed, the old seed ends that responsibility. A correct entry is not written.

mod delete;
mod migrate;

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::api::extensions;
use crate::api::gardener::{BACKUP_BUCKET, BACKUP_ENTRY, LastOperation, OPERATION};
use crate::api::meta::{Key, ObjectMeta, annotation, text};
use crate::backup::decide::{self, BackupPlan, State};
use crate::backup::garden::{ENTRY_SECRETS, credentials};
use crate::backup::status::{self, BackupReport, OperationProgress};
use crate::backup::{BackupKind, BackupRound, KnownExtensions};
use crate::base::json::json;
use crate::config::backup::BackupEntryController;
use crate::extension::DesiredExtension;
use crate::extension::changed::has_ended;
use crate::extension::credentials::GardenCredentials;
use crate::extension::problem;
use crate::flow::Failed;
use crate::format::view;
use crate::kube::Patch;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::{Options, PartialObject};
use crate::runtime::queue::Retry;
use crate::runtime::source::WatchSource;
use crate::runtime::store::Store;
use crate::shoot::state::{self, extension_state};

use super::Site;

static KIND: BackupKind = BackupKind {
    core: BACKUP_ENTRY,
    extension: extensions::BACKUP_ENTRY,
    controller: "backupentry-controller",
    secret_prefix: ENTRY_SECRETS,
};

/// How often an unusable bucket of another seed is checked.
const BUCKET_PERIOD: Duration = Duration::from_secs(60);
/// How often an unusable bucket of this seed is checked. It also wakes its entries when it becomes usable.
const OWN_BUCKET_PERIOD: Duration = Duration::from_secs(600);
/// People fix failures; the next try follows within five minutes.
const RETRY: Retry = Retry { first: Duration::from_secs(1), max: Duration::from_secs(300) };

/// The part of a BackupEntry that is kept in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
struct EntryHead {
    metadata: ObjectMeta,
    spec: EntrySpec,
    status: EntryStatus,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EntrySpec {
    bucket_name: String,
    seed_name: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EntryStatus {
    last_operation: Option<LastOperation>,
    seed_name: String,
}

impl PartialObject for EntryHead {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl EntryHead {
    /// Whether a seed is responsible for it. A released entry waits until it is restored.
    fn is_of(&self, seed: &str) -> bool {
        let responsible =
            if self.status.seed_name.is_empty() { &self.spec.seed_name } else { &self.status.seed_name };
        let last = self.status.last_operation.as_ref();
        let is_let_go = last.is_some_and(|last| last.kind == "Migrate" && last.state == "Succeeded");
        let is_restored = self.metadata.annotations.get(OPERATION).is_some_and(|asked| asked == "restore");
        responsible == seed && (!is_let_go || is_restored)
    }

    /// Whether it moves to another seed.
    fn is_leaving(&self) -> bool {
        let (wanted, present) = (&self.spec.seed_name, &self.status.seed_name);
        !wanted.is_empty() && !present.is_empty() && wanted != present
    }
}

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let settings = &site.settings.controllers.backup_entry;
    let lane = group.lane("backup-entry", settings.workers, RETRY);
    let entries = WatchSource::<EntryHead>::default();
    let seed_name = site.seed_name().to_owned();
    let seed = seed_name.clone();
    group.wake(&lane, &entries, move |change| {
        let new = change.new.as_deref().filter(|new| new.is_of(&seed))?;
        let is_new = change.old.as_ref().is_none_or(|old| old.metadata.generation != new.metadata.generation);
        is_new.then(|| change.key.clone())
    });
    let (known, seed) = (entries.store().clone(), seed_name.clone());
    group.wake(&lane, &site.buckets, move |change| {
        if has_ended(change) { in_bucket(&known, &change.key.name, &seed) } else { Vec::new() }
    });
    let known = entries.store().clone();
    group.wake(&lane, &site.entry_objects, move |change| {
        // Names contain UIDs: no two entries have the same.
        let key = || known.all().into_iter().map(|(key, _)| key).find(|key| key.name == change.key.name);
        has_ended(change).then(key).flatten()
    });
    let ours = Options {
        label_selector: format!("name.seed.gardener.cloud/{seed_name}=true"),
        ..Options::all("garden/backupentries", BACKUP_ENTRY)
    };
    group.watch(&site.garden, ours, &entries);
    let reconciler = EntryReconciler {
        site: Arc::clone(site),
        known: KnownExtensions {
            registrations: site.registrations.store().clone(),
            installations: site.installations.store().clone(),
        },
    };
    group.run(lane, reconciler);
}

/// The entries of a bucket for which a seed is responsible.
fn in_bucket(entries: &Store<EntryHead>, bucket: &str, seed: &str) -> Vec<Key> {
    let all = entries.all().into_iter();
    let ours = all.filter(|(_, entry)| entry.spec.bucket_name == bucket && entry.is_of(seed));
    ours.map(|(key, _)| key).collect()
}

struct EntryReconciler {
    site: Arc<Site>,
    known: KnownExtensions,
}

impl EntryReconciler {
    /// When to check again whether the bucket of an entry is usable.
    fn patience(&self, entry: &EntryHead) -> Duration {
        let is_ours = self.site.buckets.store().get(&Key::cluster(entry.spec.bucket_name.as_str())).is_some();
        if is_ours { OWN_BUCKET_PERIOD } else { BUCKET_PERIOD }
    }

    fn grace(&self) -> &BackupEntryController {
        &self.site.settings.controllers.backup_entry
    }
}

impl Reconciler for EntryReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let found = self.site.garden.find::<Value>(&BACKUP_ENTRY, key)?;
        let Some(object) = found else { return Ok(ReconcileOutcome::Done) };
        let head = view::look::<EntryHead>(&object)?;
        if !head.is_of(self.site.seed_name()) {
            return Ok(ReconcileOutcome::Done);
        }
        let patience = self.patience(&head);
        let leaves = object["metadata"]["deletionTimestamp"].is_null() && head.is_leaving();
        let operation = if leaves { migrate::OPERATION_TYPE } else { status::operation(&object) };
        let mut round = BackupRound::new(&self.site.garden, &self.site.seed, &KIND, object, cx);
        let result = if leaves {
            migrate::step(&mut round)
        } else if round.is_deleting() {
            delete::step(&mut round, self.grace(), patience)
        } else {
            reconcile(&mut round, patience, &self.known)
        };
        round.end(operation, result)
    }
}

fn reconcile(
    round: &mut BackupRound<'_>,
    patience: Duration,
    known: &KnownExtensions,
) -> Result<ReconcileOutcome, ReconcileFailure> {
    round.finalize(true)?;
    let operation = status::operation(&round.object);
    if round.object["status"]["seedName"].is_null() {
        // From now on, this seed is responsible for the entry, wherever it moves.
        let seed = round.object["spec"]["seedName"].clone();
        round.write_status(json!({"status": {"seedName": seed}}))?;
    }
    if let Err(failed) = round.check_name() {
        // The reference is immutable.
        return Ok(round.tell(operation, failed.clone(), failed.text).map(|()| ReconcileOutcome::Done)?);
    }
    let Some((bucket, credentials)) = usable(round, operation)? else {
        return Ok(ReconcileOutcome::After(patience));
    };
    let desired = desired(round, &bucket);
    let (BackupPlan { asks, state, again, .. }, _) = round.prepare(&credentials, &desired, None)?;
    let is_done = state == State::Succeeded;
    match state {
        State::Unheard => {
            let failed = round.unheard(&desired.spec["type"], known);
            round.tell(operation, failed.clone(), failed.text)?;
        }
        State::Failed(failed) => round.tell(operation, failed.clone(), failed.text)?,
        State::Pending => round.report(&started(operation))?,
        State::Succeeded => round.report(&succeeded(operation))?,
    }
    if asks {
        ask(round, operation, &desired)?;
    } else if is_done && annotation(&round.object, OPERATION) == "restore" {
        let patch = Patch::annotation(OPERATION, Value::Null);
        round.garden.patch::<Value>(&BACKUP_ENTRY, &round.key(), &patch)?;
    }
    Ok(again.map_or(ReconcileOutcome::Done, ReconcileOutcome::After))
}

fn started(operation: &'static str) -> BackupReport {
    let description = format!("{} of BackupEntry state initialized.", status::noun(operation));
    BackupReport { operation, way: OperationProgress::Processing, description }
}

fn succeeded(operation: &'static str) -> BackupReport {
    let description = format!("{} of BackupEntry succeeded.", status::noun(operation));
    BackupReport { operation, way: OperationProgress::Succeeded, description }
}

/// The bucket of the entry and its credentials. `None`: the bucket cannot be used now, and the status of the
/// entry contains the reason.
fn usable(
    round: &mut BackupRound<'_>,
    operation: &'static str,
) -> Result<Option<(Value, GardenCredentials)>, ReconcileFailure> {
    let bucket = match bucket(round)? {
        Ok(bucket) => bucket,
        Err(failed) => {
            round.tell(operation, failed.clone(), failed.text)?;
            return Ok(None);
        }
    };
    match credentials(round.garden, &bucket) {
        Ok(credentials) => Ok(Some((bucket, credentials))),
        Err(failed) => Err(round.fail(operation, failed)),
    }
}

/// The bucket of the entry, or why it cannot be used now.
fn bucket(round: &BackupRound<'_>) -> Result<Result<Value, Failed>, ReconcileFailure> {
    let name = text(&round.object["spec"]["bucketName"]);
    let found = round.garden.find::<Value>(&BACKUP_BUCKET, &Key::cluster(name))?;
    Ok(match found {
        Some(bucket) => decide::check_bucket(&bucket).map(|()| bucket),
        None => Err(problem(format!(
            "failed getting associated BackupBucket {name:?}: not found: create it, or delete the BackupEntry"
        ))),
    })
}

fn desired(round: &BackupRound<'_>, bucket: &Value) -> DesiredExtension {
    let (provider, secret) = (&bucket["spec"]["provider"], round.secret());
    let mut desired = DesiredExtension::new(json!({
        "type": provider["type"],
        "region": provider["region"],
        "secretRef": {"name": secret.name, "namespace": secret.namespace},
        "bucketName": round.object["spec"]["bucketName"],
    }));
    let optional = [
        ("providerConfig", &bucket["spec"]["providerConfig"]),
        ("backupBucketProviderStatus", &bucket["status"]["providerStatus"]),
    ];
    for (name, value) in optional.into_iter().filter(|(_, value)| !value.is_null()) {
        desired.spec[name] = value.clone();
    }
    desired
}

/// Triggers the extension. The state from another seed is in the ShootState.
fn ask(round: &BackupRound<'_>, operation: &str, desired: &DesiredExtension) -> Result<(), ReconcileFailure> {
    let (target, seed, now) = (round.target(), round.seed, round.cx.clock.now());
    if operation != "Restore" {
        return Ok(target.deploy(seed, desired, now)?);
    }
    let owners = round.object["metadata"]["ownerReferences"].as_array();
    let owner = owners.into_iter().flatten().find(|owner| owner["kind"] == "Shoot");
    let shoot = owner.map(|owner| text(&owner["name"])).unwrap_or_default();
    let key = Key::new(round.key().namespace, shoot);
    let Some(state) = state::find(round.garden, &key)? else {
        return Err(ReconcileFailure::retry(format!(
            "the garden has no ShootState {key}, from which the BackupEntry is to be restored: the seed that it has left \
             makes it; if that cannot do so any more, create one with an empty spec"
        )));
    };
    let memory = extension_state(&state, &target.resource.kind, &target.key.name, None);
    Ok(target.restore(seed, desired, &memory, now)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(wanted: &str, present: &str, last: (&str, &str), asked: &str) -> EntryHead {
        let last = (!last.0.is_empty()).then(|| json!({"type": last.0, "state": last.1}));
        let seed = |name: &str| if name.is_empty() { Value::Null } else { json!(name) };
        let annotations = if asked.is_empty() { json!({}) } else { json!({OPERATION: asked}) };
        view::read(json!({"metadata": {"name": "e", "annotations": annotations},
            "spec": {"bucketName": "b", "seedName": seed(wanted)},
            "status": {"seedName": seed(present), "lastOperation": last}}))
        .unwrap()
    }

    #[test]
    fn which_seed_is_responsible_for_an_entry() {
        let none = ("", "");
        let gone = ("Migrate", "Succeeded");
        // Desired seed, present seed, last operation, operation annotation; whether seed `a` is responsible, and
        // whether the entry leaves.
        let table = [
            ("a", "", none, "", true, false),
            ("a", "a", ("Reconcile", "Succeeded"), "", true, false),
            ("b", "a", ("Reconcile", "Succeeded"), "", true, true),
            ("b", "a", ("Migrate", "Error"), "", true, true),
            ("b", "", gone, "", false, false),
            ("b", "b", ("Restore", "Processing"), "", false, false),
            ("a", "", gone, "", false, false),
            ("a", "", gone, "restore", true, false),
            ("a", "a", ("Restore", "Processing"), "restore", true, false),
            ("", "a", ("Reconcile", "Succeeded"), "", true, false),
            ("", "", none, "", false, false),
        ];
        for (wanted, present, last, asked, is_ours, is_leaving) in table {
            let head = head(wanted, present, last, asked);
            assert_eq!(
                (head.is_of("a"), head.is_leaving()),
                (is_ours, is_leaving),
                "{wanted} {present} {last:?} {asked}"
            );
        }
    }
}
