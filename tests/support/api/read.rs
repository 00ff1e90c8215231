//! GET, LIST and what a watch reads from the log of changes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::failure::Failure;
use super::kinds::Kind;
use super::selector::{Selector, parse_fields, parse_labels};
use super::store::{Change, Id, State};
use super::table::{Form, table};
use super::{Api, Target, options};
use crate::encoding::{base64_url, from_base64};
use crate::json::{remove, set};

/// An object of the storage version as it is shown in another.
pub fn present(kind: &Kind, version: &str, object: &Value) -> Value {
    let mut shown = if version == kind.storage {
        object.clone()
    } else {
        kind.rules.convert_out(object.clone(), version)
    };
    shown["apiVersion"] = kind.api_version(version).into();
    shown["kind"] = kind.kind.clone().into();
    shown
}

/// The query of a list or watch.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pub selector: Selector,
    pub limit: usize,
    pub continue_token: String,
    pub resource_version: String,
    pub exact: bool,
    pub watch: bool,
    pub bookmarks: bool,
    /// Whether a watch first sends the objects that exist, and then a bookmark.
    pub initial_events: Option<bool>,
    pub timeout_s: Option<u64>,
    /// The form in which objects are asked for.
    pub form: Form,
}

impl Query {
    /// Reads the parameters of a list or watch of a kind.
    pub fn parse(kind: &Kind, get: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let text = |name: &str| get(name).unwrap_or_default();
        let truth = |name: &str| matches!(text(name).as_str(), "true" | "1");
        options::check(text, truth("watch"))?;
        let labels = parse_labels(&text("labelSelector")).map_err(Failure::bad_request)?;
        let mut fields = Vec::new();
        for requirement in parse_fields(&text("fieldSelector")).map_err(Failure::bad_request)? {
            let Some(pointer) = kind.field(requirement.key()) else {
                let message = format!("field label not supported: {}", requirement.key());
                return Err(Failure::bad_request(message));
            };
            fields.push((requirement, pointer));
        }
        let version = text("resourceVersion");
        if !version.is_empty() && version.parse::<u64>().is_err() {
            return Err(no_version(&version, truth("watch")));
        }
        Ok(Self {
            selector: Selector { labels, fields },
            limit: text("limit").parse().unwrap_or(0),
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            exact: text("resourceVersionMatch") == "Exact",
            watch: truth("watch"),
            bookmarks: truth("allowWatchBookmarks"),
            initial_events: get("sendInitialEvents").map(|_| truth("sendInitialEvents")),
            timeout_s: text("timeoutSeconds").parse().ok(),
            form: Form::Whole,
        })
    }
}

/// Reduces an object to its `PartialObjectMetadata`.
pub fn metadata_of(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn no_version(text: &str, watch: bool) -> Failure {
    let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
    if watch {
        return Failure::new(500, "", format!("resourceVersion: Invalid value: {text:?}: {why}"));
    }
    Failure::bad_request(format!("invalid resourceVersion {text:?}: {why}"))
}

/// The history of a page is forgotten. The rest can be had as it is now.
fn gone(start: Option<&Start>) -> Failure {
    let Some(start) = start else {
        return Failure::expired("The resourceVersion for the provided list is too old.");
    };
    let failure = Failure::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    Failure { continue_token: Some(token(-1, &start.key)), ..failure }
}

impl Api {
    /// LIST. `stale` shows the state of an older revision, as a lagging cache would.
    pub fn list(&self, target: &Target, query: &Query, stale: Option<u64>) -> Result<Value, Failure> {
        let state = self.store.read();
        let (group, plural) = (target.kind.home(), target.kind.plural.as_str());
        let start = Start::parse(&query.continue_token)?;
        if start.is_some() && !["", "0"].contains(&query.resource_version.as_str()) {
            let why = "specifying resource version is not allowed when using continue";
            return Err(Failure::bad_request(why));
        }
        let asked: u64 = query.resource_version.parse().unwrap_or(0);
        if asked > state.revision {
            let message = format!("Too large resource version: {asked}, current: {}", state.revision);
            return Err(Failure { retry_after_s: Some(1), ..Failure::new(504, "Timeout", message) });
        }
        let of_page = start.as_ref().and_then(|start| start.revision);
        let current = start.is_some().then_some(state.revision);
        let revision =
            of_page.or(current).or(query.exact.then_some(asked)).or(stale).unwrap_or(state.revision);
        let objects: Vec<(Id, Arc<Value>)> = if revision == state.revision {
            state.of(group, plural, &target.namespace).map(|(id, o)| (id.clone(), o.clone())).collect()
        } else {
            state.at(revision, group, plural).ok_or_else(|| gone(start.as_ref()))?.into_iter().collect()
        };
        let inside = |id: &Id| target.namespace.is_empty() || id.namespace == target.namespace;
        let chosen = objects.into_iter().filter(|(id, object)| {
            inside(id)
                && start.as_ref().is_none_or(|start| start.is_before(id, target))
                && query.selector.matches(object)
        });
        let chosen: Vec<_> = chosen.collect();
        // Release the lock while the answer is made.
        drop(state);
        Ok(page(target, query, revision, &chosen))
    }

    /// GET of the state at an older revision.
    pub fn get_at(&self, target: &Target, revision: u64) -> Result<Value, Failure> {
        let state = self.store.read();
        let objects = state.at(revision, target.kind.home(), &target.kind.plural).unwrap_or_default();
        let object = objects.get(&target.id()).ok_or_else(|| target.not_found())?;
        Ok(present(&target.kind, &target.version, object))
    }
}

/// Where a page begins.
struct Start {
    /// None: as it is now.
    revision: Option<u64>,
    /// The key of the storage below that of the list.
    key: String,
}

impl Start {
    fn parse(token: &str) -> Result<Option<Self>, Failure> {
        if token.is_empty() {
            return Ok(None);
        }
        let bad = |why: &str| {
            Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = from_base64(token).ok_or_else(|| bad("illegal base64 data at input byte 0"))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|e| bad(&e.to_string()))?;
        if json["v"] != "meta.k8s.io/v1" {
            let version = json["v"].as_str().unwrap_or_default();
            return Err(bad(&format!("server does not recognize this encoded version {version}")));
        }
        let revision = json["rv"].as_i64().filter(|revision| *revision != 0);
        let revision = revision.ok_or_else(|| bad("incorrect encoded start resourceVersion"))?;
        let key = json["start"].as_str().filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| bad("encoded start key empty (version meta.k8s.io/v1)"))?.to_owned();
        Ok(Some(Self { revision: u64::try_from(revision).ok(), key }))
    }

    /// Whether an object of a list is in the page.
    fn is_before(&self, id: &Id, list: &Target) -> bool {
        // The key that follows another one has a zero more.
        let (key, is_after) =
            self.key.strip_suffix('\0').map_or((self.key.as_str(), false), |key| (key, true));
        let key = key.trim_start_matches('/');
        let start = key.split_once('/').unwrap_or((&list.namespace, key));
        let object = (id.namespace.as_str(), id.name.as_str());
        object > start || !is_after && object == start
    }
}

fn token(revision: i64, key: &str) -> String {
    base64_url(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": key}).to_string().as_bytes())
}

fn page(target: &Target, query: &Query, revision: u64, chosen: &[(Id, Arc<Value>)]) -> Value {
    let count = if query.limit == 0 { chosen.len() } else { query.limit.min(chosen.len()) };
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let Some((last, _)) = chosen.get(count.wrapping_sub(1)).filter(|_| count < chosen.len()) {
        let is_in_all = target.kind.namespaced && target.namespace.is_empty();
        let place = if is_in_all { format!("{}/", last.namespace) } else { String::new() };
        metadata["continue"] = token(revision.cast_signed(), &format!("/{place}{}\0", last.name)).into();
        if query.selector.is_empty() {
            metadata["remainingItemCount"] = (chosen.len() - count).into();
        }
    }
    if let Form::Table(include, clock) = &query.form {
        let items = chosen[..count].iter().map(|(_, object)| present(&target.kind, &target.version, object));
        let items: Vec<Value> = items.collect();
        return table(&target.kind, &target.version, &items, &metadata, *include, clock.now());
    }
    let is_metadata = matches!(query.form, Form::Metadata);
    let item = |object: &Value| {
        let mut shown = present(&target.kind, &target.version, object);
        if is_metadata {
            return metadata_of(&shown);
        }
        if !target.kind.custom {
            // Items of compiled-in kinds do not repeat the kind.
            remove(&mut shown, "/apiVersion");
            remove(&mut shown, "/kind");
        }
        shown
    };
    let items: Vec<Value> = chosen[..count].iter().map(|(_, object)| item(object)).collect();
    let mut list = json!({"kind": target.kind.list_kind(), "apiVersion": target.kind.api_version(&target.version),
        "metadata": metadata, "items": items});
    if is_metadata {
        set(&mut list, "/kind", "PartialObjectMetadataList");
        set(&mut list, "/apiVersion", "meta.k8s.io/v1");
    }
    list
}

/// One line of a watch.
pub fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

/// What a watch sends for a change: the kind of the event and the object. None if the change does not concern the watch.
pub fn event_of(target: &Target, query: &Query, change: &Change) -> Option<(&'static str, Value)> {
    let concerns = change.id.is_of(target.kind.home(), &target.kind.plural)
        && (target.namespace.is_empty() || change.id.namespace == target.namespace);
    if !concerns {
        return None;
    }
    let before = change.before.as_ref().is_some_and(|o| query.selector.matches(o));
    let after = !change.deleted && query.selector.matches(&change.after);
    let kind = match (before, after) {
        (false, true) => "ADDED",
        (true, true) => "MODIFIED",
        (true, false) => "DELETED",
        (false, false) => return None,
    };
    Some((kind, shown(target, query, &change.after)))
}

fn shown(target: &Target, query: &Query, object: &Value) -> Value {
    query.form.one(&target.kind, &target.version, present(&target.kind, &target.version, object))
}

/// Where a watch starts: the revision after which it reads the log, and the objects that it first reports as added.
pub fn watch_start(state: &State, target: &Target, query: &Query) -> Result<(u64, Vec<Value>), Failure> {
    let from: u64 = match query.resource_version.as_str() {
        "" | "0" => 0,
        text => {
            text.parse().map_err(|_| Failure::bad_request(format!("invalid resourceVersion {text:?}")))?
        }
    };
    if from == 0 && query.initial_events == Some(false) {
        return Ok((state.revision, Vec::new()));
    }
    if from == 0 || query.initial_events == Some(true) {
        let all = state.of(target.kind.home(), &target.kind.plural, &target.namespace);
        let chosen = all.filter(|(_, o)| query.selector.matches(o));
        return Ok((state.revision, chosen.map(|(_, o)| event("ADDED", &shown(target, query, o))).collect()));
    }
    if from < state.compacted {
        return Err(Failure::expired(format!("too old resource version: {from} ({})", state.compacted)));
    }
    Ok((from, Vec::new()))
}

/// The bookmark that ends what was there when a watch began.
pub fn end_of_initial_events(target: &Target, query: &Query, revision: u64) -> Value {
    let mut bookmark = bookmark(target, query, revision);
    set(&mut bookmark, "/object/metadata/annotations", json!({"k8s.io/initial-events-end": "true"}));
    bookmark
}

/// A bookmark.
pub fn bookmark(target: &Target, query: &Query, revision: u64) -> Value {
    let object = json!({"kind": target.kind.kind, "apiVersion": target.kind.api_version(&target.version),
        "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null}});
    event("BOOKMARK", &query.form.one(&target.kind, &target.version, object))
}
