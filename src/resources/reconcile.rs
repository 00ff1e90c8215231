//! One reconciliation of one ManagedResource.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::apply::apply;
use super::decode::{Manifest, ManifestPlan, PlanRefusal, Planned, Planner, Scope};
use super::error::Error;
use super::memory::Permit;
use super::merge::{Terms, inject_labels};
use super::names::{self, reason};
use super::reference::{Equivalences, Identity, Recorded, recorded_scope, removed, with_scopes};
use super::remove::{PENDING_AGAIN, RemainingObjects, Rules, release, remove};
use super::session::{Own, Session, managed_resource};
use super::status::{Applied, Present, with_status};
use super::trigger::{Duty, duty, is_ours, operation};
use super::{ApplierContext, later};
use crate::api::condition::{self, Condition};
use crate::api::core::SECRET;
use crate::api::gardener::OPERATION;
use crate::api::meta::{Key, ObjectMeta, annotation, is_true};
use crate::api::resources::{MANAGED_RESOURCE, ManagedResource, ObjectReference, SecretReference};
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::{base64, view};
use crate::kube::{Patch, value};
use crate::limits;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::events::{Event, InvolvedObject};

/// Applies ManagedResources. Its keys are their keys.
#[derive(Debug)]
pub struct ResourcesReconciler(pub(super) Arc<ApplierContext>);

impl Reconciler for ResourcesReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let mut permit = self.0.memory.permit();
        let own = managed_resource(&self.0.client, key, &mut permit).map_err(Error::into_failure)?;
        let (raw, own_bytes) = match own {
            Own::Read { raw, bytes } => (raw, bytes),
            Own::Busy => return Ok(later()),
            Own::Gone => return Ok(ReconcileOutcome::Done),
            Own::TooLarge(why) => {
                unread(&self.0, cx, key, why)?;
                return Ok(super::jittered(self.0.settings.sync_period));
            }
        };
        let resource = view::look::<ManagedResource>(&raw).map_err(ReconcileFailure::terminal)?;
        let Some(target) = self.0.targets.of(&resource.metadata, &resource.spec.class) else {
            return Ok(ReconcileOutcome::Done);
        };
        let session = self.0.session(&target, cx);
        let duty = duty(target.class, &resource.metadata, &resource.spec.class);
        let mut round = ApplyRound { shared: &self.0, session, raw, own_bytes, permit, resource };
        let outcome = match duty {
            Duty::Nothing => Ok(ReconcileOutcome::Done),
            Duty::Ignore => round.ignore(),
            Duty::Delete => round.delete(),
            Duty::Apply => round.apply(),
        };
        outcome.map_err(Error::into_failure)
    }
}

/// The fields that can be read from any ManagedResource.
const OUTLINE: [&[&str]; 3] = [&["metadata"], &["spec", "class"], &["status", "conditions"]];

/// Reports that a ManagedResource is too large; nothing else is done.
fn unread(
    shared: &ApplierContext,
    cx: &ReconcileContext,
    key: &Key,
    why: String,
) -> Result<(), ReconcileFailure> {
    let found = shared.client.find_with(&MANAGED_RESOURCE, key, &mut |body| {
        value::read_parts(body, &OUTLINE).and_then(view::read)
    })?;
    let Some(ManagedResource { metadata, spec, status }) = found else { return Ok(()) };
    let Some(target) = shared.targets.of(&metadata, &spec.class) else { return Ok(()) };
    let present = Present { conditions: &status.conditions, now: cx.clock.now() };
    let changed = match duty(target.class, &metadata, &spec.class) {
        Duty::Nothing => return Ok(()),
        Duty::Ignore => present.ignored(),
        Duty::Delete | Duty::Apply => present.failed(reason::DECODING_FAILED, &Error::TooLarge(why).text()),
    };
    let mut wanted = status.conditions.clone();
    condition::merge(&mut wanted, changed);
    if wanted != status.conditions {
        let patch = Patch::Merge(json!({"status": {"conditions": wanted}}));
        shared.client.patch_status_blindly(&MANAGED_RESOURCE, key, &patch)?;
    }
    Ok(())
}

/// How long a ManagedResource is new. The account of its pods may come from another one that is just being applied.
const NEW_FOR: Duration = Duration::from_secs(60);

/// When to look again for the accounts of pods that did not exist: soon at first, before there are pods that would be replaced.
fn open_again(age: Duration, usual: Duration) -> Duration {
    if age < NEW_FOR { usual.min(Duration::from_secs(2)) } else { usual }
}

struct ApplyRound<'a> {
    shared: &'a ApplierContext,
    session: Session<'a>,
    /// The ManagedResource as last read or written.
    raw: Value,
    /// Its memory; the permit is held until the reconciliation ends.
    own_bytes: usize,
    permit: Permit,
    resource: ManagedResource,
}

impl ApplyRound<'_> {
    fn ignore(&mut self) -> Result<ReconcileOutcome, Error> {
        self.write(self.present().ignored(), None)?;
        Ok(ReconcileOutcome::Done)
    }

    fn delete(&mut self) -> Result<ReconcileOutcome, Error> {
        self.write(self.present().deleting(!self.resource.spec.keep_objects), None)?;
        if !self.resource.spec.keep_objects {
            let all = std::mem::take(&mut self.resource.status.resources);
            if let Some(outcome) = self.remove(&all)? {
                return Ok(outcome);
            }
        }
        let mut finalizers = self.resource.metadata.finalizers.clone();
        finalizers.retain(|f| f != self.session.target.class.finalizer());
        match self.session.patch_own(&self.raw, &json!({ "finalizers": finalizers })) {
            Err(Error::Request(error)) if error.is_not_found() => Ok(ReconcileOutcome::Done),
            result => result.map(|_| ReconcileOutcome::Done),
        }
    }

    fn apply(&mut self) -> Result<ReconcileOutcome, Error> {
        if !self.permit.hold(self.own_bytes + limits::APPLIER_READ_BYTES) {
            return Ok(later());
        }
        self.prepare()?;
        let mut plan = match self.plan() {
            Ok(plan) => plan,
            Err(NoPlan::Refused(PlanRefusal::Busy)) => return Ok(later()),
            Err(NoPlan::Refused(PlanRefusal::TooLarge(why))) => {
                return self.fail(reason::DECODING_FAILED, Error::TooLarge(why));
            }
            Err(NoPlan::Secret(error)) => return self.fail(reason::CANNOT_READ_SECRET, error),
        };
        let status = &self.resource.status;
        if plan.references != status.resources || plan.checksum != status.secrets_data_checksum {
            self.write(self.present().changed(), None)?;
        }
        let old = std::mem::take(&mut self.resource.status.resources);
        if let Some(outcome) = self.shrink(&old, &plan)? {
            return Ok(outcome);
        }
        let is_open = match self.apply_all(&plan.objects, &old) {
            Ok(is_open) => is_open,
            Err(error) => return self.fail(reason::APPLY_FAILED, error),
        };
        // Kinds that were unknown at the start may be known now.
        let session = self.session;
        with_scopes(&mut plan.references, &mut |api_version, kind| scope(session, &old, api_version, kind));
        let generation = self.resource.metadata.generation;
        let applied = Applied { references: &plan.references, checksum: &plan.checksum, generation };
        self.write(self.present().applied(plan.problems.text()), Some(applied))?;
        let settings = &self.shared.settings;
        let (now, made) = (self.session.cx.clock.now(), self.resource.metadata.creation_timestamp);
        // The clock of the seed may be ahead.
        let age = made.filter(|made| *made <= now).map_or(NEW_FOR, |made| now.since(made));
        let again = if is_open { open_again(age, settings.check_period) } else { settings.sync_period };
        Ok(super::jittered(again))
    }

    /// Adds our finalizer and removes the operation annotation.
    fn prepare(&mut self) -> Result<(), Error> {
        let metadata = &self.resource.metadata;
        let mut change = Map::new();
        let class = self.session.target.class;
        if !is_ours(class, metadata) {
            let mut finalizers = metadata.finalizers.clone();
            finalizers.push(class.finalizer().to_owned());
            change.insert("finalizers".to_owned(), json!(finalizers));
        }
        if operation(metadata) == "reconcile" {
            change.insert("annotations".to_owned(), json!({OPERATION: null}));
        }
        if !change.is_empty() {
            self.raw = self.session.patch_own(&self.raw, &Value::Object(change))?;
        }
        Ok(())
    }

    /// Reads all Secrets in order, and their keys in order. Only one Secret is in memory at a time.
    fn plan(&mut self) -> Result<ManifestPlan, NoPlan> {
        let references = &self.resource.spec.secret_refs;
        if references.len() > limits::MANAGED_RESOURCE_SECRETS_MAX {
            let max = limits::MANAGED_RESOURCE_SECRETS_MAX;
            return Err(NoPlan::Refused(PlanRefusal::TooLarge(format!("it names more than {max} Secrets"))));
        }
        let namespace = &self.resource.metadata.namespace;
        let (session, old) = (self.session, &self.resource.status.resources);
        let mut scope_of = |api_version: &str, kind: &str| scope(session, old, api_version, kind);
        let inject = &self.resource.spec.inject_labels;
        let mut planner = Planner::new(self.own_bytes, inject, &mut scope_of, &mut self.permit);
        for SecretReference { name } in references {
            let failed = |source| NoPlan::Secret(Error::ReadSecret { name: name.clone(), source });
            let secret: Option<SecretData> =
                session.own.find_plain(&SECRET, &Key::new(namespace, name)).map_err(|e| failed(Some(e)))?;
            for (key, value) in secret.ok_or_else(|| failed(None))?.data {
                // The server stores only Base64 there. An empty value is noticed as missing objects.
                let bytes = base64::decode(value.as_bytes()).unwrap_or_default();
                let manifest = Manifest { secret: name.clone(), key, bytes };
                planner.add(&manifest).map_err(NoPlan::Refused)?;
            }
        }
        planner.finish().map_err(NoPlan::Refused)
    }

    /// Deletes objects that left the set, and releases objects that are not managed any more, before
    /// new objects are applied.
    fn shrink(
        &mut self,
        old: &[ObjectReference],
        plan: &ManifestPlan,
    ) -> Result<Option<ReconcileOutcome>, Error> {
        let equivalences = Equivalences::new(&self.resource.spec.equivalences);
        let orphans: Vec<Identity> =
            plan.orphans.iter().map(|orphan| equivalences.canonical(orphan.clone())).collect();
        let (orphaned, gone): (Vec<_>, Vec<_>) = removed(old, &plan.references, &equivalences)
            .into_iter()
            .partition(|r| orphans.contains(&equivalences.canonical(Identity::of(r))));
        if let Some(outcome) = self.remove(&gone)? {
            return Ok(Some(outcome));
        }
        let failed = release(self.session, &orphaned, &self.origin())?;
        if failed.is_empty() {
            return Ok(None);
        }
        self.fail(reason::RELEASE_FAILED, Error::Several(failed)).map(Some)
    }

    /// Deletes objects; returns an outcome if some still exist.
    fn remove(&mut self, objects: &[ObjectReference]) -> Result<Option<ReconcileOutcome>, Error> {
        let delete_claims = self.resource.spec.delete_persistent_volume_claims;
        let rules = Rules { delete_claims, collector_runs: self.shared.settings.collector_runs };
        let RemainingObjects { pending, failed } = remove(self.session, objects, rules)?;
        if pending.is_empty() && failed.is_empty() {
            return Ok(None);
        }
        if pending.is_empty() {
            return self.fail(reason::DELETION_FAILED, Error::Several(failed)).map(Some);
        }
        // While objects are being deleted, check again soon, regardless of failures.
        let problems = [failed, pending].concat();
        self.write(self.present().deletion_pending(&problems.join("; ")), None)?;
        Ok(Some(ReconcileOutcome::After(PENDING_AGAIN)))
    }

    /// Applies the objects in order; the first problem ends the reconciliation. Returns true if one must
    /// be checked again soon.
    fn apply_all(&self, objects: &[Planned], old: &[ObjectReference]) -> Result<bool, Error> {
        let mut is_open = false;
        let spec = &self.resource.spec;
        let equivalences = Equivalences::new(&spec.equivalences);
        let recorded = Recorded::new(old, &equivalences);
        let origin = self.origin();
        for planned in objects {
            let make = || {
                let mut object =
                    planned.value(&mut |api_version, kind| scope(self.session, old, api_version, kind));
                if !is_true(annotation(&object, names::IGNORE)) {
                    inject_labels(&mut object, &spec.inject_labels);
                }
                object
            };
            let terms = Terms {
                origin: &origin,
                recorded: recorded.find(Identity::of_object(&make())),
                force_labels: spec.force_overwrite_labels,
                force_annotations: spec.force_overwrite_annotations,
                autoscaled: false,
            };
            is_open |= apply(self.session, &self.session.target.settled, &make, terms)?;
        }
        Ok(is_open)
    }

    /// Reports a failure and returns it, so that the key is retried.
    fn fail(&mut self, reason: &str, error: Error) -> Result<ReconcileOutcome, Error> {
        if !error.is_postponed() {
            self.tell(reason, &error.text());
            self.write(self.present().failed(reason, &error.text()), None)?;
        }
        Err(error)
    }

    fn tell(&self, reason: &str, note: &str) {
        let ObjectMeta { namespace, name, uid, deletion_timestamp, .. } = &self.resource.metadata;
        let about = InvolvedObject { resource: &MANAGED_RESOURCE, namespace, name, uid };
        let action = if deletion_timestamp.is_some() { "Delete" } else { "Reconcile" };
        let news = Event { controller: "resource-controller", warning: true, reason, action, note };
        self.session.cx.events.tell(self.session.own, &self.session.cx.clock, about, news);
    }

    fn present(&self) -> Present<'_> {
        Present { conditions: &self.resource.status.conditions, now: self.session.now() }
    }

    fn write(&mut self, changed: Vec<Condition>, applied: Option<Applied<'_>>) -> Result<(), Error> {
        let next = with_status(&self.raw, &changed, applied);
        let before = std::mem::take(&mut self.raw);
        self.raw = self.session.write_status(before, &next)?;
        condition::merge(&mut self.resource.status.conditions, changed);
        Ok(())
    }

    fn origin(&self) -> String {
        self.session.target.origin(&self.resource.metadata.key())
    }
}

/// If no server answers, the recorded scope is used, so that an object does not seem to have left the set. Without a
/// record, an error counts as an unknown kind: applying the object reports it.
fn scope(session: Session<'_>, old: &[ObjectReference], api_version: &str, kind: &str) -> Scope {
    match session.resource(api_version, kind) {
        Ok(Some(resource)) if resource.namespaced => Scope::Namespaced,
        Ok(Some(_)) => Scope::Cluster,
        Ok(None) => Scope::Unknown,
        Err(_) => recorded_scope(old, api_version, kind),
    }
}

/// Why there is no plan.
enum NoPlan {
    /// A Secret could not be read.
    Secret(Error),
    Refused(PlanRefusal),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SecretData {
    #[serde(deserialize_with = "entries")]
    data: SortedMap<String, String>,
}

/// The entries of `data`, limited to what a plan may need.
fn entries<'de, D: Deserializer<'de>>(from: D) -> Result<SortedMap<String, String>, D::Error> {
    from.deserialize_any(SecretDataEntries)
}

struct SecretDataEntries;

impl<'de> Visitor<'de> for SecretDataEntries {
    type Value = SortedMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data of a Secret")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(SortedMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut all = SortedMap::new();
        while let Some((key, value)) = entries.next_entry()? {
            all.insert(key, value);
            if all.len() > limits::SECRET_KEYS_MAX {
                let max = limits::SECRET_KEYS_MAX;
                return Err(serde::de::Error::custom(format!("it has more than {max} keys")));
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_accounts_are_looked_for_soon_while_all_is_new() {
        let s = Duration::from_secs;
        assert_eq!([0, 59, 60].map(|age| open_again(s(age), s(45))), [s(2), s(2), s(45)]);
        assert_eq!(open_again(s(1), s(1)), s(1));
    }
}
