//! Deletes objects from the cluster, and releases those that are not managed any more.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::error::Error;
use super::names;
use super::object::{group_of, text};
use super::reference::describe;
use super::removal::{Circumstances, Deletion, Fate, fate, is_mounted, is_workload};
use super::session::Session;
use crate::api::core::{NAMESPACE, PERSISTENT_VOLUME_CLAIM};
use crate::api::meta::{Key, Metadata, Resource, annotation};
use crate::api::resources::ObjectReference;
use crate::base::cut::cut;
use crate::base::json::json;
use crate::format::view;
use crate::kube::{DeleteParams, ListParams, Propagation};
use crate::limits;

/// How long to wait before checking again whether deleted objects are gone.
pub(super) const PENDING_AGAIN: Duration = Duration::from_secs(5);

/// The number of warnings in the message about a pending deletion.
const EVENTS_MAX: usize = 5;

/// What remains of a removal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RemainingObjects {
    /// Objects that are being deleted, one sentence each.
    pub(super) pending: Vec<String>,
    /// Objects that could not be deleted, one sentence each.
    pub(super) failed: Vec<String>,
}

/// The rules for removed objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether volume claims of StatefulSets are deleted with them.
    pub(super) delete_claims: bool,
    /// Whether a collector deletes unused Secrets and ConfigMaps.
    pub(super) collector_runs: bool,
}

/// Deletes objects independently of each other, with one exception: what pods mount stays until the workloads
/// of its namespace are gone. Until then, a pod may start again, and would hang without it. Errors: only that
/// the lease is not ours; everything else is in [`RemainingObjects`].
pub(super) fn remove(
    session: Session<'_>,
    objects: &[ObjectReference],
    rules: Rules,
) -> Result<RemainingObjects, Error> {
    let mut left = RemainingObjects::default();
    let mut busy: BTreeSet<&str> = BTreeSet::new();
    let (mounted, others): (Vec<_>, Vec<_>) = objects.iter().partition(|object| is_mounted(object));
    for object in others.into_iter().chain(mounted) {
        let name = describe(object);
        let waits = is_mounted(object) && busy.contains(object.namespace.as_str());
        let result = remove_one(session, object, rules, waits);
        if is_workload(object) && !matches!(result, Ok(None)) {
            busy.insert(&object.namespace);
        }
        match result {
            Ok(None) => {}
            Ok(Some(warnings)) => {
                left.pending.push(format!("deletion of old resource {name:?} is still pending{warnings}"));
            }
            Err(error) if error.is_postponed() => return Err(error),
            Err(error) => {
                left.failed.push(format!("error during deletion of old resource {name:?}: {}", error.text()));
            }
        }
    }
    Ok(left)
}

/// `None` if the object is gone or stays; otherwise a remark about its deletion, which `waits` does not begin yet.
fn remove_one(
    session: Session<'_>,
    object: &ObjectReference,
    rules: Rules,
    waits: bool,
) -> Result<Option<String>, Error> {
    let Some((resource, live)) = session.find::<Value>(object)? else { return Ok(None) };
    let Rules { delete_claims, collector_runs } = rules;
    let deleted_at = metadata(&live).deletion_timestamp;
    let circumstances = Circumstances { delete_claims, collector_runs, now: session.now(), deleted_at };
    let Fate::Delete(deletion) = fate(&live, circumstances) else { return Ok(None) };
    if waits && !deletion.is_running {
        return Ok(Some(String::new()));
    }
    match delete(session, &resource, &live, &deletion) {
        Ok(()) => Ok(Some(warnings(session, object))),
        // Another client was faster: the next check shows the result.
        Err(error) if error.is_conflict() => Ok(Some(String::new())),
        Err(Error::Request(error)) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn metadata(live: &Value) -> crate::api::meta::ObjectMeta {
    // An unreadable object counts as one without metadata.
    view::look::<Metadata>(live).unwrap_or_default().metadata
}

fn delete(session: Session<'_>, resource: &Resource, live: &Value, deletion: &Deletion) -> Result<(), Error> {
    let namespace = text(&live["metadata"]["namespace"]);
    if !deletion.claims.is_empty() {
        session.delete_all(&PERSISTENT_VOLUME_CLAIM, namespace, &deletion.claims)?;
    }
    if deletion.finalize {
        return finalize(session, resource, live);
    }
    if deletion.is_running {
        return Ok(());
    }
    let params = DeleteParams {
        propagation: deletion.foreground.then_some(Propagation::Foreground),
        uid: Some(text(&live["metadata"]["uid"]).to_owned()),
        ..DeleteParams::default()
    };
    log::info!(kind = &*resource.kind, namespace, name = text(&live["metadata"]["name"]); "Deleting an applied object");
    session.delete(resource, live, &params)
}

/// Removes all finalizers, because the deletion has exceeded its time limit.
fn finalize(session: Session<'_>, resource: &Resource, live: &Value) -> Result<(), Error> {
    let name = text(&live["metadata"]["name"]);
    log::warn!(kind = &*resource.kind, name; "Removing finalizers of an object that is not deleted in time");
    if *resource == NAMESPACE {
        session.finalize_namespace(live)?;
    }
    let has_finalizers = live["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    if has_finalizers && let Some(live) = session.target.client.find(resource, &Key::of(live))? {
        session.patch_metadata(resource, &live, &json!({"finalizers": null}))?;
    }
    Ok(())
}

/// `v1` Events, because only these can be selected by the object that they are about.
const EVENT: Resource = Resource::new("", "v1", "Event", "events", true);

/// Why the load balancer of a Service is not deleted: the last warnings about it. Empty for other kinds.
pub(super) fn warnings(session: Session<'_>, object: &ObjectReference) -> String {
    if object.kind != "Service" || !group_of(&object.api_version).is_empty() {
        return String::new();
    }
    let name = &object.name;
    let field_selector = format!("involvedObject.kind=Service,involvedObject.name={name},type=Warning");
    let params = ListParams { field_selector, ..ListParams::default() };
    let mut last: VecDeque<String> = VecDeque::new();
    let listed = session.each(&EVENT, &object.namespace, &params, &mut |event: Option<Value>| match event {
        Some(event) => {
            if last.len() >= EVENTS_MAX {
                last.pop_front();
            }
            let words = format!("{}: {}", text(&event["reason"]), text(&event["message"]));
            last.push_back(cut(words, limits::PROBLEM_BYTES_MAX));
        }
        None => last.clear(),
    });
    if listed.is_err() || last.is_empty() {
        return String::new();
    }
    format!(" ({})", Vec::from(last).join("; "))
}

/// Removes our marks from objects that must not be managed any more; returns one sentence for each failure.
/// Errors: only that the lease is not ours.
pub(super) fn release(
    session: Session<'_>,
    objects: &[ObjectReference],
    origin: &str,
) -> Result<Vec<String>, Error> {
    let mut failed = Vec::new();
    for object in objects {
        match release_one(session, object, origin) {
            Ok(()) => {}
            Err(error) if error.is_postponed() => return Err(error),
            Err(error) => {
                failed.push(format!("release of {:?}: {}", describe(object), error.text()));
            }
        }
    }
    Ok(failed)
}

fn release_one(session: Session<'_>, object: &ObjectReference, origin: &str) -> Result<(), Error> {
    let Some((resource, live)) = session.find::<Value>(object)? else { return Ok(()) };
    if annotation(&live, names::ORIGIN) != origin {
        return Ok(());
    }
    let marks = json!({"annotations": {names::ORIGIN: null, names::DESCRIPTION: null}});
    session.patch_metadata(&resource, &live, &marks).map(drop)
}
