//! BackupBuckets: the storage of a seed's etcd backups (Gardener's `backupbucket`).
//!
//! Woken by new generations in the garden, by finished operations of the extension, and once per [`PERIOD`], to check
//! whether the garden's credentials have changed. A correct bucket is not written.

mod delete;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::core::SECRET;
use crate::api::extensions;
use crate::api::gardener::BACKUP_BUCKET;
use crate::api::meta::{Key, text};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::backup::decide::{BackupPlan, State};
use crate::backup::round::finalize;
use crate::backup::status::{self, BackupReport, OperationProgress};
use crate::backup::{BackupKind, BackupRound, KnownExtensions};
use crate::base::json::json;
use crate::base::random;
use crate::extension::DesiredExtension;
use crate::extension::changed::{ExtensionHead, has_ended};
use crate::extension::credentials::{CredentialsReference, GardenCredentials};
use crate::extension::problem;
use crate::flow::Failed;
use crate::kube::Garden;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::Options;
use crate::runtime::queue::Retry;
use crate::runtime::source::WatchSource;
use crate::runtime::write;

use super::Site;

static KIND: BackupKind = BackupKind {
    core: BACKUP_BUCKET,
    extension: extensions::BACKUP_BUCKET,
    controller: "backupbucket-controller",
    secret_prefix: "bucket-",
};

/// The finalizer of credentials, and of Secrets that an extension generated.
const FINALIZER: &str = "core.gardener.cloud/backupbucket";
/// The finalizer that an older gardenlet set.
const FINALIZER_BEFORE: &str = "gardener.cloud/gardener";
/// The namespace to which the extension writes credentials that it generates.
const GENERATED_NAMESPACE: &str = "backupbucket.extensions.gardener.cloud/generated-secret-namespace";
/// How often the garden's credentials are checked.
const PERIOD: Duration = Duration::from_secs(600);
/// How long a success stays valid, as in upstream.
const REFRESH: Duration = Duration::from_secs(12 * 3_600);
/// People fix failures; the next try follows within five minutes.
const RETRY: Retry = Retry { first: Duration::from_secs(1), max: Duration::from_secs(300) };

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let lane = group.lane("backup-bucket", site.settings.controllers.backup_bucket_workers, RETRY);
    group.wake(&lane, &site.buckets, |change| {
        let generation =
            |head: &Option<Arc<ExtensionHead>>| head.as_ref().map(|head| head.metadata.generation);
        (generation(&change.old) != generation(&change.new)).then(|| change.key.clone())
    });
    let objects = WatchSource::<ExtensionHead>::default();
    group.wake(&lane, &objects, |change| has_ended(change).then(|| change.key.clone()));
    group.watch(&site.seed, Options::all("seed/backupbuckets", extensions::BACKUP_BUCKET), &objects);
    let reconciler = BucketReconciler {
        site: Arc::clone(site),
        known: KnownExtensions {
            registrations: site.registrations.store().clone(),
            installations: site.installations.store().clone(),
        },
    };
    group.run(lane, reconciler);
}

struct BucketReconciler {
    site: Arc<Site>,
    known: KnownExtensions,
}

impl Reconciler for BucketReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let Some(object) = self.site.garden.find::<Value>(&BACKUP_BUCKET, key)? else {
            return Ok(ReconcileOutcome::Done);
        };
        if object["spec"]["seedName"] != self.site.seed_name() {
            return Ok(ReconcileOutcome::Done);
        }
        let operation = status::operation(&object);
        let mut round = BackupRound::new(&self.site.garden, &self.site.seed, &KIND, object, cx);
        let result =
            if round.is_deleting() { delete::step(&mut round) } else { reconcile(&mut round, &self.known) };
        round.end(operation, result)
    }
}

fn reconcile(
    round: &mut BackupRound<'_>,
    known: &KnownExtensions,
) -> Result<ReconcileOutcome, ReconcileFailure> {
    round.finalize(true)?;
    let operation = status::operation(&round.object);
    if let Err(failed) = round.check_name() {
        // The reference is immutable.
        return Ok(round.tell(operation, failed.clone(), failed.text).map(|()| ReconcileOutcome::Done)?);
    }
    let found = CredentialsReference::read(&round.object["spec"]["credentialsRef"])
        .and_then(|reference| reference.find(round.garden, "spec.credentialsRef"));
    let credentials = match found {
        Ok(credentials) => credentials,
        Err(failed) => return Err(round.fail(operation, failed)),
    };
    if let Err(failed) = claim(round.garden, &credentials)? {
        return Err(round.fail(operation, failed));
    }
    let desired = desired(round);
    let (BackupPlan { asks, state, again, .. }, object) =
        round.prepare(&credentials, &desired, Some(REFRESH))?;
    let is_done = state == State::Succeeded;
    match state {
        State::Unheard => {
            let failed = round.unheard(&desired.spec["type"], known);
            round.tell(operation, failed.clone(), failed.text)?;
        }
        State::Failed(failed) => round.tell(operation, failed.clone(), failed.text)?,
        State::Pending => {
            let description = format!("{} of BackupBucket state initialized.", status::noun(operation));
            round.report(&BackupReport { operation, way: OperationProgress::Processing, description })?;
        }
        State::Succeeded => {
            let more = take_over(round, &object.unwrap_or_default()["status"])?;
            let description = "Backup Bucket has been successfully reconciled.".to_owned();
            round.report_with(
                &BackupReport { operation, way: OperationProgress::Succeeded, description },
                more,
            )?;
        }
    }
    if asks {
        round.target().deploy(round.seed, &desired, round.cx.clock.now())?;
    }
    // Upstream checks each minute. In the other states, a change of the extension object wakes this controller.
    let period = is_done.then(|| PERIOD.mul_f64(0.9 + 0.2 * random::unit()));
    Ok(again.or(period).map_or(ReconcileOutcome::Done, ReconcileOutcome::After))
}

/// Protects the credentials from deletion while the bucket exists. Credentials that are already being
/// deleted cannot be protected.
fn claim(garden: &Garden, credentials: &GardenCredentials) -> Result<Result<(), Failed>, ReconcileFailure> {
    let (resource, object) = (credentials.resource(), &credentials.object);
    let key = Key::of(object);
    if !object["metadata"]["deletionTimestamp"].is_null() && !has(object, FINALIZER) {
        return Ok(Err(problem(format!(
            "spec.credentialsRef refers to {} {key}, which is being deleted: create it again as soon as it is gone",
            resource.kind
        ))));
    }
    finalize(garden, resource, object, FINALIZER, true)?;
    if !has(object, FINALIZER_BEFORE) {
        return Ok(Ok(()));
    }
    let live = garden.find::<Value>(resource, &key)?;
    live.map_or(Ok(()), |live| finalize(garden, resource, &live, FINALIZER_BEFORE, false)).map(Ok)
}

fn has(object: &Value, finalizer: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten().any(|known| known == finalizer)
}

fn desired(round: &BackupRound<'_>) -> DesiredExtension {
    let (spec, secret) = (&round.object["spec"], round.secret());
    let provider = &spec["provider"];
    let mut desired = DesiredExtension::new(json!({
        "type": provider["type"],
        "region": provider["region"],
        "secretRef": {"name": secret.name, "namespace": secret.namespace},
    }));
    if !spec["providerConfig"].is_null() {
        desired.spec["providerConfig"] = spec["providerConfig"].clone();
    }
    desired.annotations.insert(GENERATED_NAMESPACE.to_owned(), json!(GARDEN_NAMESPACE));
    desired
}

/// The garden's Secret with credentials that the extension generated.
fn generated(bucket: &str) -> Key {
    Key::new(GARDEN_NAMESPACE, format!("generated-bucket-{bucket}"))
}

/// Copies the extension's results to the garden and returns other fields for the bucket's status.
fn take_over(round: &mut BackupRound<'_>, status: &Value) -> Result<Map<String, Value>, ReconcileFailure> {
    let reference = &status["generatedSecretRef"];
    if reference.is_object() {
        let made = made(round, reference)?;
        let secret = generated(&round.key().name);
        let named = json!({"name": secret.name, "namespace": secret.namespace});
        if round.object["status"]["generatedSecretRef"] != named {
            // Write this first: the garden's authorizer uses it to recognize the Secret as ours.
            round.write_status(json!({"status": {"generatedSecretRef": named}}))?;
        }
        let metadata = &round.object["metadata"];
        let owner = json!({"apiVersion": BACKUP_BUCKET.api_version(), "kind": BACKUP_BUCKET.kind, "name": metadata["name"],
            "uid": metadata["uid"], "controller": true, "blockOwnerDeletion": true});
        write::ensure(round.garden, &SECRET, &secret, &|copy| {
            copy["metadata"]["ownerReferences"] = json!([owner]);
            if !has(copy, FINALIZER) {
                let mut finalizers = copy["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
                finalizers.push(json!(FINALIZER));
                copy["metadata"]["finalizers"] = json!(finalizers);
            }
            copy["data"] = made["data"].clone();
        })?;
    }
    let state = &status["providerStatus"];
    Ok((!state.is_null()).then(|| ("providerStatus".to_owned(), state.clone())).into_iter().collect())
}

/// The seed's Secret with credentials that the extension generated.
fn made(round: &BackupRound<'_>, reference: &Value) -> Result<Value, ReconcileFailure> {
    let key = Key::new(text(&reference["namespace"]), text(&reference["name"]));
    round.seed.find(&SECRET, &key)?.ok_or_else(|| {
        ReconcileFailure::retry(format!(
            "status.generatedSecretRef of the extension's BackupBucket {} names Secret {key}, which the seed does not have: its \
             extension has to make it, or to remove the reference",
            round.key().name
        ))
    })
}
