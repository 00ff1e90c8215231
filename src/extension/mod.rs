//! Objects that extensions reconcile: written, awaited, migrated, restored, deleted (Gardener's `pkg/extensions`,
//! `pkg/component/extensions`).
//!
//! An [`ExtensionObject`] is one such object. Its writes ([`ExtensionObject::deploy`], [`ExtensionObject::deploy_if_needed`], [`ExtensionObject::restore`],
//! [`ExtensionObject::migrate`], [`ExtensionObject::delete`]) and its waits ([`ExtensionObject::wait_ready`], [`ExtensionObject::wait_migrated`],
//! [`ExtensionObject::wait_gone`]) are steps of a flow: each asks the API server once and returns. As a rule a flow has two tasks for an
//! object, one that writes and one that waits for it:
//!
//! ```text
//! Row::new("Deploying the extension", |work, _| {
//!     work.object.deploy(&work.client, &DesiredExtension::new(json!({"type": "lab", "class": "seed"})), work.now())?;
//!     Ok(TaskStep::Done)
//! }, evidence),
//! Row::new("Waiting for the extension", |work, attempt| {
//!     work.object.wait_ready(&work.client, ExtensionPatience::of(&EXTENSION), attempt)
//! }, evidence)
//! .after(&["Deploying the extension"]),
//! ```
//!
//! The request to an extension is stored in the object: a flow that starts again repeats it and continues.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::gardener::OPERATION;
use crate::api::meta::{Key, Resource, text};
use crate::api::patch::difference;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::time::rfc3339_nanos;
use crate::kube::{Client, DeleteParams, Error, ListParams, Patch, unless_absent};

pub(crate) mod changed;
pub(crate) mod credentials;
pub(crate) mod dns_record;
mod enabled;
pub(crate) mod hosts;
mod ready;
pub(crate) mod required;

pub(crate) use enabled::{EnabledExtension, ExtensionClass, ReconcileMoment, enabled, together};
pub use ready::TIMESTAMP;
pub(crate) use ready::{UnreadyReason, check, is_migrated, last_error};

/// The Lease that an extension renews as its heartbeat, in its own namespace of the seed.
pub const HEARTBEAT: &str = "gardener-extension-heartbeat";
/// The error code of a problem that only a change of the configuration can fix.
pub(crate) const CONFIGURATION_PROBLEM: &str = "ERR_CONFIGURATION_PROBLEM";
/// This annotation is required to delete an extension object or a ShootState.
pub(crate) const CONFIRMATION: &str = "confirmation.gardener.cloud/deletion";

/// A problem that only a change of the configuration can fix, with its error code.
pub(crate) fn problem(text: impl Into<String>) -> Failed {
    Failed { codes: vec![CONFIGURATION_PROBLEM.to_owned()], ..Failed::new(text) }
}

/// An extension object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ExtensionObject {
    /// Its kind.
    pub resource: Resource,
    /// Its namespace (some kinds have none) and name.
    pub key: Key,
}

/// The desired state of an object. Labels, annotations and fields of other writers stay, except in the spec.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DesiredExtension {
    /// Its labels.
    pub labels: Map<String, Value>,
    /// Its annotations, besides those of the request.
    pub(crate) annotations: Map<String, Value>,
    /// The whole spec.
    pub spec: Value,
}

impl DesiredExtension {
    /// An object with this spec.
    pub fn new(spec: Value) -> Self {
        Self { spec, ..Self::default() }
    }

    /// The patch of the live object; `None` if nothing differs and there is no request.
    fn difference(&self, live: &Value, request: Option<Value>) -> Option<Value> {
        let mut wanted = live.clone();
        wanted["spec"] = self.spec.clone();
        self.mark(&mut wanted);
        let mut patch = difference(live, &wanted);
        if let Some(request) = request {
            // Written even if the annotation exists, because the request counts from now.
            let annotations = &mut patch.get_or_insert_default()["metadata"]["annotations"];
            request
                .as_object()
                .into_iter()
                .flatten()
                .for_each(|(key, value)| annotations[key] = value.clone());
        }
        patch
    }

    fn mark(&self, object: &mut Value) {
        for (key, value) in &self.labels {
            object["metadata"]["labels"][key] = value.clone();
        }
        for (key, value) in &self.annotations {
            object["metadata"]["annotations"][key] = value.clone();
        }
    }
}

/// The state of an object from another seed (an entry of `ShootState.spec.extensions`).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ExtensionResourceState {
    /// `status.state`.
    pub state: Value,
    /// `status.resources`. The objects that they name must exist before the extension is triggered.
    pub(crate) resources: Value,
}

/// The pauses before the first checks; with the next one, they are one interval.
const EARLY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// How long an extension may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtensionPatience {
    /// How often it is checked, after the first such time, in which it is checked three times: most extensions are fast, and the
    /// API server of a Shoot that moves is away meanwhile.
    pub(crate) interval: Duration,
    /// After this time a reported error ends the wait.
    pub(crate) errors: Duration,
    /// How long it may take in total.
    pub(crate) timeout: Duration,
}

impl ExtensionPatience {
    /// Upstream's values for a kind. For `Extension` objects, the registration may set another `timeout`.
    pub fn of(resource: &Resource) -> Self {
        let (interval, errors, timeout) = match &*resource.kind {
            "Infrastructure" => (10, 180, 600),
            _ if resource.group == "core.gardener.cloud" => (5, 600, 600),
            "Worker" | "BackupEntry" => (5, 30, 600),
            "DNSRecord" => (5, 15, 120),
            _ => (5, 30, 180),
        };
        let seconds = Duration::from_secs;
        Self { interval: seconds(interval), errors: seconds(errors), timeout: seconds(timeout) }
    }

    /// After this many checks, regardless of their results, an error ends the wait.
    const fn looks(&self) -> u128 {
        let intervals =
            self.errors.as_millis() / if self.interval.is_zero() { 1 } else { self.interval.as_millis() };
        intervals + EARLY.len() as u128
    }

    /// The time until the next check, after so many.
    fn pause(&self, tries: u32) -> Duration {
        let early: Duration = EARLY.iter().sum();
        match EARLY.get(tries as usize) {
            Some(pause) => (*pause).min(self.interval),
            None if tries as usize == EARLY.len() => self.interval.saturating_sub(early),
            None => self.interval,
        }
    }

    /// Checks again later, or fails after the timeout.
    fn again(&self, attempt: &Attempt, why: Failed) -> Result<TaskStep, Failed> {
        if attempt.now.saturating_sub(attempt.begun) >= self.timeout {
            return Err(why);
        }
        Ok(TaskStep::again(self.pause(attempt.tries), why))
    }
}

/// The request to an extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExtensionOperation {
    Reconcile,
    /// Wait until the state is there.
    WaitForState,
    /// Reconcile the object from the state of another seed.
    Restore,
    /// Release the object, and leave its state.
    Migrate,
}

impl ExtensionOperation {
    /// The value of the annotation.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::WaitForState => "wait-for-state",
            Self::Restore => "restore",
            Self::Migrate => "migrate",
        }
    }
}

/// The annotations of a request.
fn request(operation: ExtensionOperation, now: Timestamp) -> Value {
    json!({OPERATION: operation.as_str(), TIMESTAMP: rfc3339_nanos(now)})
}

impl ExtensionObject {
    /// The objects of a kind and class (`shoot`, `seed`, `garden`) in a namespace. Errors: a request fails.
    /// If the kind is not served, there are no objects.
    pub fn of_class(
        client: &Client,
        resource: &Resource,
        namespace: &str,
        class: &str,
    ) -> Result<Vec<Self>, Error> {
        Self::with_types(client, resource, namespace, class)
            .map(|all| all.into_iter().map(|(target, _)| target).collect())
    }

    /// The same, each with its type. Errors: as for [`ExtensionObject::of_class`].
    pub(crate) fn with_types(
        client: &Client,
        resource: &Resource,
        namespace: &str,
        class: &str,
    ) -> Result<Vec<(Self, String)>, Error> {
        let mut found = Vec::new();
        let listed = client.list_all::<Value>(resource, namespace, &ListParams::default(), &mut |object| {
            // The class of Shoot objects is optional.
            if object["spec"]["class"].as_str().unwrap_or("shoot") == class {
                let target = Self { resource: resource.clone(), key: Key::of(&object) };
                found.push((target, text(&object["spec"]["type"]).to_owned()));
            }
        });
        match listed {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(found),
        }
    }

    /// The live object. Errors: a request fails. A missing object or kind gives `None`.
    pub(crate) fn find(&self, client: &Client) -> Result<Option<Value>, Error> {
        client.find(&self.resource, &self.key)
    }

    /// Creates or updates the object and triggers its reconciliation. Errors: a request fails.
    pub fn deploy(&self, client: &Client, desired: &DesiredExtension, now: Timestamp) -> Result<(), Error> {
        let live = self.find(client)?;
        self.write(client, live.as_ref(), desired, Some(request(ExtensionOperation::Reconcile, now)))
    }

    /// The same for kinds that upstream reconciles only for a reason (Infrastructure, DNSRecord): a changed
    /// spec, or a last operation that did not succeed. A record of another type is deleted first; the task
    /// should limit the time for that ([`TaskRow::within`](crate::flow::TaskRow::within)). Errors: a request fails.
    pub fn deploy_if_needed(
        &self,
        client: &Client,
        desired: &DesiredExtension,
        now: Timestamp,
    ) -> Result<TaskStep, Failed> {
        self.deploy_or_replace(client, desired, false, now)
    }

    /// The same. `is_asked` requests a reconciliation even if nothing differs.
    pub(crate) fn deploy_or_replace(
        &self,
        client: &Client,
        desired: &DesiredExtension,
        is_asked: bool,
        now: Timestamp,
    ) -> Result<TaskStep, Failed> {
        let live = self.find(client)?;
        match live.as_ref().map_or(Need::Request, |live| need(live, &desired.spec, is_asked)) {
            Need::Nothing => self.write(client, live.as_ref(), desired, None)?,
            Need::Request => {
                self.write(
                    client,
                    live.as_ref(),
                    desired,
                    Some(request(ExtensionOperation::Reconcile, now)),
                )?;
            }
            Need::Another => {
                if live.is_none_or(|live| live["metadata"]["deletionTimestamp"].is_null()) {
                    self.delete(client, now)?;
                }
                let why = format!("{} must be deleted before it can be created again", self.title());
                return Ok(TaskStep::again(ExtensionPatience::of(&self.resource).interval, why));
            }
        }
        Ok(TaskStep::Done)
    }

    /// Creates the object with its state from another seed; the extension waits until that is complete. An
    /// object that already has a state keeps it. Errors: a request fails.
    pub fn restore(
        &self,
        client: &Client,
        desired: &DesiredExtension,
        memory: &ExtensionResourceState,
        now: Timestamp,
    ) -> Result<(), Error> {
        let live = self.find(client)?;
        self.write(client, live.as_ref(), desired, Some(request(ExtensionOperation::WaitForState, now)))?;
        let knows = live.is_some_and(|live| !live["status"]["state"].is_null());
        let ExtensionResourceState { state, resources } = memory;
        let has_memory = !(state.is_null() && resources.is_null());
        if has_memory && !knows {
            let patch = Patch::Merge(json!({"status": {"state": state, "resources": resources}}));
            client.patch_status::<Value>(&self.resource, &self.key, &patch)?;
        }
        let annotations = request(ExtensionOperation::Restore, now);
        self.patch(client, json!({"metadata": {"annotations": annotations}}))
    }

    /// Asks the extension to release the object and to leave its state. Errors: a request fails. A missing
    /// object is no error.
    pub fn migrate(&self, client: &Client, now: Timestamp) -> Result<(), Error> {
        let annotations = request(ExtensionOperation::Migrate, now);
        unless_absent(self.patch(client, json!({"metadata": {"annotations": annotations}}))).map(drop)
    }

    /// Confirms the deletion and deletes the object. Errors: a request fails. A missing object is no error.
    pub fn delete(&self, client: &Client, now: Timestamp) -> Result<(), Error> {
        let annotations = json!({CONFIRMATION: "true", TIMESTAMP: rfc3339_nanos(now)});
        let confirmed = self.patch(client, json!({"metadata": {"annotations": annotations}}));
        unless_absent(
            confirmed.and_then(|()| client.delete(&self.resource, &self.key, &DeleteParams::default())),
        )
        .map(drop)
    }

    fn write(
        &self,
        client: &Client,
        live: Option<&Value>,
        desired: &DesiredExtension,
        request: Option<Value>,
    ) -> Result<(), Error> {
        if let Some(live) = live {
            return desired.difference(live, request).map_or(Ok(()), |patch| self.patch(client, patch));
        }
        let mut metadata = json!({"name": self.key.name, "annotations": request});
        if !self.key.namespace.is_empty() {
            metadata["namespace"] = json!(self.key.namespace);
        }
        let mut object = json!({"apiVersion": self.resource.api_version(), "kind": self.resource.kind,
            "metadata": metadata, "spec": desired.spec});
        desired.mark(&mut object);
        client.create::<Value>(&self.resource, &self.key.namespace, &object).map(drop)
    }

    fn patch(&self, client: &Client, patch: Value) -> Result<(), Error> {
        client.patch::<Value>(&self.resource, &self.key, &Patch::Merge(patch)).map(drop)
    }

    /// Waits until the extension has reconciled the object. Errors: a request fails; or the extension has
    /// reported errors for too long, or takes too long.
    pub fn wait_ready(
        &self,
        client: &Client,
        patience: ExtensionPatience,
        attempt: &Attempt,
    ) -> Result<TaskStep, Failed> {
        let why = match self.find(client)? {
            None => UnreadyReason::Pending(format!("{} not found", self.title())),
            Some(object) => match check(&object) {
                Ok(()) => return Ok(TaskStep::Done),
                Err(why) => why,
            },
        };
        let is_error = matches!(why, UnreadyReason::Error(_));
        let failed = why.into_failed();
        let text = format!("Error while waiting for {} to become ready: {}", self.title(), failed.text);
        let failed = Failed { text, ..failed };
        if is_error && u128::from(attempt.tries) > patience.looks() {
            return Err(failed);
        }
        patience.again(attempt, failed)
    }

    /// Waits until the extension has released the object. Errors: a request fails; or the
    /// extension takes too long.
    pub fn wait_migrated(
        &self,
        client: &Client,
        patience: ExtensionPatience,
        attempt: &Attempt,
    ) -> Result<TaskStep, Failed> {
        match self.find(client)? {
            Some(object) if !is_migrated(&object) => {
                let why =
                    last_error(&object).unwrap_or_else(|| Failed::new("the extension has not released it"));
                let text = format!("Error while waiting for {} to be migrated: {}", self.title(), why.text);
                patience.again(attempt, Failed { text, ..why })
            }
            _ => Ok(TaskStep::Done),
        }
    }

    /// Waits until the object is gone. Errors: a request fails; or the extension takes too long.
    pub fn wait_gone(
        &self,
        client: &Client,
        patience: ExtensionPatience,
        attempt: &Attempt,
    ) -> Result<TaskStep, Failed> {
        let Some(object) = self.find(client)? else { return Ok(TaskStep::Done) };
        let why = last_error(&object).unwrap_or_else(|| Failed::new("it is still there"));
        let text = format!("Error while waiting for {} to be deleted: {}", self.title(), why.text);
        patience.again(attempt, Failed { text, ..why })
    }

    fn title(&self) -> String {
        format!("{} {}", self.resource.kind, self.key)
    }
}

/// What to do with an object that is reconciled only for a reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    Nothing,
    Request,
    /// The object cannot be updated to its desired state, and must be replaced.
    Another,
}

fn need(live: &Value, spec: &Value, is_asked: bool) -> Need {
    let old = &live["spec"];
    if old["recordType"] != spec["recordType"] || !live["metadata"]["deletionTimestamp"].is_null() {
        return Need::Another;
    }
    let was_asked = live["metadata"]["annotations"][OPERATION].is_string();
    let is_ready = match check(live) {
        Ok(()) => true,
        Err(UnreadyReason::Error(_)) => false,
        // It was triggered already, but has not started.
        Err(UnreadyReason::Pending(_)) => was_asked,
    };
    let is_right = is_ready && difference(old, spec).is_none();
    if is_right && !is_asked { Need::Nothing } else { Need::Request }
}

#[cfg(test)]
mod tests;
