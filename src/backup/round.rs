//! One reconciliation of a BackupBucket or BackupEntry: what its controller reads, writes and reports.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::core::SECRET;
use crate::api::gardener::{BACKUP_BUCKET, ControllerInstallation, ControllerRegistration};
use crate::api::meta::{Key, Metadata, Resource, text};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::base::error::chain;
use crate::base::json::json;
use crate::extension::credentials::{self, GardenCredentials};
use crate::extension::required::unheard;
use crate::extension::{DesiredExtension, ExtensionObject, TIMESTAMP, problem};
use crate::flow::Failed;
use crate::format::time::rfc3339_nanos;
use crate::format::view;
use crate::kube::{Error, ErrorVerdict, Garden, Patch, Seed};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};
use crate::runtime::events::{Event, InvolvedObject};
use crate::runtime::store::Store;
use crate::runtime::write;

use super::FINALIZER;
use super::decide::{self, BackupFacts, BackupPlan, SecretCopy};
use super::status::{self, BackupReport, OperationProgress};

/// The longest name of an object in the seed.
const NAME_MAX: usize = 253;

/// The kind of the object.
#[derive(Debug)]
pub(crate) struct BackupKind {
    pub(crate) core: Resource,
    pub(crate) extension: Resource,
    /// The controller that reports events: `backupbucket-controller`.
    pub(crate) controller: &'static str,
    /// The prefix of the Secrets with its credentials.
    pub(crate) secret_prefix: &'static str,
}

/// The registered extensions of the garden, and the installed ones of the seed.
#[derive(Clone, Debug)]
pub(crate) struct KnownExtensions {
    /// All registrations of the garden.
    pub(crate) registrations: Store<ControllerRegistration>,
    /// The installations of the seed.
    pub(crate) installations: Store<ControllerInstallation>,
}

pub(crate) struct BackupRound<'a> {
    pub(crate) garden: &'a Garden,
    pub(crate) seed: &'a Seed,
    /// The kind of the object.
    pub(crate) kind: &'static BackupKind,
    /// The object of the garden as it was last read or written.
    pub(crate) object: Value,
    /// The context of the reconciliation.
    pub(crate) cx: &'a ReconcileContext,
    /// Whether a failure was already reported.
    is_told: bool,
}

impl std::fmt::Debug for BackupRound<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BackupRound").field(&self.key()).finish()
    }
}

impl<'a> BackupRound<'a> {
    /// Starts a reconciliation of an object.
    pub(crate) const fn new(
        garden: &'a Garden,
        seed: &'a Seed,
        kind: &'static BackupKind,
        object: Value,
        cx: &'a ReconcileContext,
    ) -> Self {
        Self { garden, seed, kind, object, cx, is_told: false }
    }

    /// The namespace and the name.
    pub(crate) fn key(&self) -> Key {
        Key::of(&self.object)
    }

    /// The extension object, which has the same name.
    pub(crate) fn target(&self) -> ExtensionObject {
        ExtensionObject { resource: self.kind.extension.clone(), key: Key::cluster(self.key().name) }
    }

    /// The Secret of the seed with the credentials.
    pub(crate) fn secret(&self) -> Key {
        Key::new(GARDEN_NAMESPACE, format!("{}{}", self.kind.secret_prefix, self.key().name))
    }

    /// Checks that the names derived from the object are valid. Errors: a name is too long.
    pub(crate) fn check_name(&self) -> Result<(), Failed> {
        let (secret, kind) = (self.secret(), &self.kind.core.kind);
        if secret.name.len() <= NAME_MAX {
            return Ok(());
        }
        Err(problem(format!(
            "the name of the {kind} is too long: Secret {secret} of the seed would have {} characters, and {} are allowed; make a \
             {kind} with a shorter name",
            secret.name.len(),
            NAME_MAX
        )))
    }

    /// Whether the object has a deletion timestamp.
    pub(crate) fn is_deleting(&self) -> bool {
        !self.object["metadata"]["deletionTimestamp"].is_null()
    }

    /// The failure when no extension has started to work on an object of this type.
    pub(crate) fn unheard(&self, type_name: &Value, known: &KnownExtensions) -> Failed {
        let kind = if self.kind.core == BACKUP_BUCKET { "BackupBucket" } else { "BackupEntry" };
        unheard(kind, text(type_name), &known.registrations.values(), &known.installations.values())
    }

    /// Whether the object has our finalizer.
    pub(crate) fn has_finalizer(&self) -> bool {
        let finalizers = self.object["metadata"]["finalizers"].as_array();
        finalizers.into_iter().flatten().any(|finalizer| finalizer == FINALIZER)
    }

    /// Adds our finalizer or removes it.
    pub(crate) fn finalize(&self, present: bool) -> Result<(), ReconcileFailure> {
        finalize(self.garden, &self.kind.core, &self.object, FINALIZER, present)
    }

    /// Writes the credentials and then the extension object to the seed if needed. Returns the progress of the
    /// extension; a success is valid for `refresh`.
    pub(crate) fn prepare(
        &self,
        credentials: &GardenCredentials,
        desired: &DesiredExtension,
        refresh: Option<Duration>,
    ) -> Result<(BackupPlan, Option<Value>), Error> {
        let copy = self.copy_of(credentials)?;
        let object = self.target().find(self.seed)?;
        let now = self.cx.clock.now();
        let plan =
            decide::plan(&BackupFacts { copy, object: object.as_ref(), spec: &desired.spec, refresh, now });
        if plan.writes_copy {
            self.apply_credentials(credentials)?;
        }
        Ok((plan, object))
    }

    /// Compares the credentials in the seed with the garden's.
    pub(crate) fn copy_of(&self, credentials: &GardenCredentials) -> Result<SecretCopy, Error> {
        let key = self.secret();
        let secret = self.seed.find::<Value>(&SECRET, &key)?;
        let context = credentials::context(&self.kind.core, &self.object);
        Ok(SecretCopy::read(secret.as_ref(), |copy| credentials.is_copied_to(copy, &context)))
    }

    /// Writes the credentials into the seed.
    pub(crate) fn apply_credentials(&self, credentials: &GardenCredentials) -> Result<(), Error> {
        let metadata = json!({"annotations": {TIMESTAMP: rfc3339_nanos(self.cx.clock.now())}});
        let context = credentials::context(&self.kind.core, &self.object);
        credentials.apply(self.seed, &self.secret(), &metadata, &context).map(drop)
    }

    /// Writes the progress to the garden's status if it changed.
    pub(crate) fn report(&mut self, report: &BackupReport) -> Result<(), Error> {
        self.report_with(report, Map::new())
    }

    /// The same, with other fields of the status.
    pub(crate) fn report_with(
        &mut self,
        report: &BackupReport,
        more: Map<String, Value>,
    ) -> Result<(), Error> {
        match status::patch(&self.object, report, more, self.cx.clock.now()) {
            Some(patch) => self.write_status(patch),
            None => Ok(()),
        }
    }

    /// Writes fields of the status.
    pub(crate) fn write_status(&mut self, patch: Value) -> Result<(), Error> {
        let key = self.key();
        self.object = self.garden.patch_status(&self.kind.core, &key, &Patch::Merge(patch))?;
        Ok(())
    }

    /// Reports a failure as status and event unless it was reported before.
    pub(crate) fn tell(
        &mut self,
        operation: &'static str,
        failed: Failed,
        description: String,
    ) -> Result<(), Error> {
        self.is_told = true;
        let (about, note) = (self.about(), failed.text.clone());
        let report = BackupReport { operation, way: OperationProgress::Error(failed), description };
        let Some(patch) = status::patch(&self.object, &report, Map::new(), self.cx.clock.now()) else {
            return Ok(());
        };
        let (reason, action) = match operation {
            "Delete" => ("DeleteError", "Delete"),
            "Migrate" => ("ReconcileError", "Migrate"),
            _ => ("ReconcileError", "Reconcile"),
        };
        let news = Event { controller: self.kind.controller, warning: true, reason, action, note: &note };
        let about =
            InvolvedObject { resource: &self.kind.core, namespace: &about.0, name: &about.1, uid: &about.2 };
        self.cx.events.tell(self.garden, &self.cx.clock, about, news);
        self.write_status(patch)
    }

    /// Reports an error that the extension did not cause. The reconciliation is retried.
    pub(crate) fn fail(&mut self, operation: &'static str, failed: Failed) -> ReconcileFailure {
        if failed.postponed.is_none() {
            self.try_to_tell(operation, failed.clone());
        }
        failed.into()
    }

    /// Ends a reconciliation: writes a failure to the status, unless it is transient or already there.
    pub(crate) fn end(
        &mut self,
        operation: &'static str,
        result: Result<ReconcileOutcome, ReconcileFailure>,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        if let Err(failure) = &result
            && !self.is_told
            && !failure.passes()
        {
            let is_wrong = failure.verdict() == Some(ErrorVerdict::Invalid);
            let text = failure.text();
            self.try_to_tell(operation, if is_wrong { problem(text) } else { Failed::new(text) });
        }
        result
    }

    fn try_to_tell(&mut self, operation: &'static str, failed: Failed) {
        let description = failed.text.clone();
        if let Err(error) = self.tell(operation, failed, description)
            // A missing object was deleted meanwhile.
            && !error.is_not_found()
        {
            let (object, err) = (self.key().to_string(), chain(&error));
            log::warn!(kind = &*self.kind.core.kind, object = object.as_str(), err = err.as_str(); "Cannot report a failure");
        }
    }

    fn about(&self) -> (String, String, String) {
        let Key { namespace, name } = self.key();
        (namespace, name, text(&self.object["metadata"]["uid"]).to_owned())
    }
}

/// Adds a finalizer to an object of the garden or removes it.
pub(crate) fn finalize(
    garden: &Garden,
    resource: &Resource,
    object: &Value,
    name: &str,
    present: bool,
) -> Result<(), ReconcileFailure> {
    let metadata = view::look::<Metadata>(object)?.metadata;
    Ok(write::finalizer(garden, resource, &metadata.key(), &metadata, name, present)?)
}
