//! The object to write, from the desired one, the live one and the recorded one.
//!
//! In short: metadata and status are the live object's, except for labels, annotations and owners. Everything else is
//! as desired, so that a field that is not desired returns to the server's default. Some kinds keep a few more fields.

use serde_json::Value;

use super::names;
use super::object::{annotations, find_map, from_texts, group_of, is_empty, labels, map_at, set, text};
use crate::api::meta::annotation;
use crate::api::resources::{ObjectReference, REFERENCE_PREFIX};
use crate::base::sorted::SortedMap;

mod service;
mod workload;

#[cfg(test)]
mod tests;

/// How one object is merged with the live one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    /// `<namespace>/<name>` of the ManagedResource.
    pub(super) origin: &'a str,
    /// The desired state when the object was last applied.
    pub(super) recorded: Option<&'a ObjectReference>,
    /// Whether labels of other writers are dropped.
    pub(super) force_labels: bool,
    /// Whether annotations of other writers are dropped.
    pub(super) force_annotations: bool,
    /// Whether a HorizontalPodAutoscaler sets the replicas.
    pub(super) autoscaled: bool,
}

/// Adds labels to an object, its pod template and its volume claim templates.
pub(super) fn inject_labels(object: &mut Value, inject: &SortedMap<String, String>) {
    let mut all = inject.clone();
    all.insert(names::MANAGED_BY.to_owned(), names::MANAGED_BY_VALUE.to_owned());
    let put = |value: &mut Value| {
        let map = map_at(value, &["metadata", "labels"]);
        map.extend(all.iter().map(|(k, v)| (k.clone(), Value::String(v.clone()))));
    };
    put(object);
    let Some(spec) = find_map(object, &["spec"]) else { return };
    if let Some(template) = spec.get_mut("template").filter(|t| t.is_object()) {
        put(template);
    }
    if let Some(claims) = spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut) {
        claims.iter_mut().for_each(put);
    }
}

/// The object to write, from the manifest with injected labels. The manifest is moved, not copied, because
/// it may be large.
pub(super) fn merge(object: Value, terms: Terms<'_>, live: Option<&Value>) -> Value {
    let mut merged = object;
    let nothing = Value::Null;
    let old = live.unwrap_or(&nothing);
    let (labels, annotations) = (merge_labels(&merged, terms, old), merge_annotations(&merged, terms, old));
    let preserved = Preserved {
        replicas: terms.autoscaled || says_true(&merged, names::PRESERVE_REPLICAS),
        resources: says_true(&merged, names::PRESERVE_RESOURCES),
    };
    if !is_empty(&old["metadata"]) {
        let owners = merged["metadata"]["ownerReferences"].take();
        map_at(&mut merged, &[]).insert("metadata".to_owned(), old["metadata"].clone());
        set(&mut merged, &["metadata"], "ownerReferences", owners);
    }
    set(&mut merged, &[], "status", old["status"].clone());
    set(&mut merged, &["metadata"], "labels", from_texts(labels));
    set(&mut merged, &["metadata"], "annotations", from_texts(annotations));
    merge_kind(preserved, live, &mut merged);
    merged
}

/// Fields that the manifest leaves to other writers.
#[derive(Clone, Copy, Debug)]
struct Preserved {
    replicas: bool,
    resources: bool,
}

fn merge_labels(object: &Value, terms: Terms<'_>, old: &Value) -> SortedMap<String, String> {
    if terms.force_labels {
        return labels(object);
    }
    merge_texts(labels(object), labels(old), terms.recorded.map(|r| &r.labels))
}

fn merge_annotations(object: &Value, terms: Terms<'_>, old: &Value) -> SortedMap<String, String> {
    let mut live = annotations(old);
    // These annotations show which Secrets the object uses: only the desired ones may protect a Secret from garbage
    // collection.
    live.retain(|key, _| !key.starts_with(REFERENCE_PREFIX));
    let own = annotations(object);
    let recorded = terms.recorded.map(|r| &r.annotations);
    let mut all = if terms.force_annotations { own } else { merge_texts(own, live, recorded) };
    all.insert(names::DESCRIPTION.to_owned(), names::DESCRIPTION_TEXT.to_owned());
    all.insert(names::ORIGIN.to_owned(), terms.origin.to_owned());
    all
}

/// Live and desired entries; a desired one wins. A recorded entry that is not desired any more is removed, unless
/// another writer has changed it since.
fn merge_texts(
    desired: SortedMap<String, String>,
    mut live: SortedMap<String, String>,
    recorded: Option<&SortedMap<String, String>>,
) -> SortedMap<String, String> {
    live.retain(|key, value| recorded.and_then(|r| r.get(key)) != Some(value));
    live.extend(desired);
    live
}

fn merge_kind(preserved: Preserved, live: Option<&Value>, new: &mut Value) {
    let group = group_of(text(&new["apiVersion"])).to_owned();
    let kind = text(&new["kind"]).to_owned();
    match (group.as_str(), kind.as_str()) {
        ("", "Service") => service::merge(live, new),
        ("", "ServiceAccount") => {
            if let Some(live) = live {
                merge_service_account(live, new);
            }
        }
        ("apps" | "extensions" | "batch", kind) => {
            if let Some(live) = live {
                workload::merge(preserved, kind, live, new);
            }
        }
        _ => {}
    }
}

/// Controllers of the cluster add token Secrets and pull secrets.
fn merge_service_account(live: &Value, new: &mut Value) {
    for field in ["secrets", "imagePullSecrets"] {
        set(new, &[], field, live[field].clone());
    }
}

/// Whether an annotation of the manifest is literally `true`.
fn says_true(object: &Value, name: &str) -> bool {
    annotation(object, name) == "true"
}
