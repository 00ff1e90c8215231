//! Watches.

use gardenlet::api::core::{CONFIG_MAP, SECRET};
use gardenlet::api::meta::Metadata;
use gardenlet::kube::{DeleteParams, List, ListParams, Patch, Watch, WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::{Named, Outcome, Place, chain, ensure, equal, ok};

pub(super) const CHECKS: &[Named] = &[
    ("a watch tells what happens after a list", follows),
    ("a watch without a version begins with what is there", begins),
    ("an object that leaves the selection is deleted for the watch", selection),
    ("a watch ends after its timeout", ends),
    ("a watch of metadata", metadata_only),
    ("a watch of one name", one_name),
    ("a version that is too old", too_old),
];

fn params(version: &str) -> WatchParams {
    WatchParams { resource_version: version.to_owned(), timeout_seconds: 5, ..WatchParams::default() }
}

fn describe(event: WatchEvent<Value>) -> String {
    let name = |o: &Value| o["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match event {
        WatchEvent::Added(o) => format!("+{}", name(&o)),
        WatchEvent::Modified(o) => format!("~{}", name(&o)),
        WatchEvent::Deleted(last) => format!("-{}", last.name),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Undecodable(..) => "undecodable".to_owned(),
    }
}

fn read(watch: &mut Watch<Value>, count: usize) -> Result<Vec<String>, String> {
    let mut events = Vec::new();
    while events.len() < count {
        match watch.next() {
            Some(Ok(event)) => events.push(describe(event)),
            Some(Err(e)) => return Err(chain(&e)),
            None => return Err(format!("the watch ended after {events:?}")),
        }
    }
    Ok(events)
}

fn version_now(place: &Place<'_>) -> Result<String, String> {
    let list: List<Metadata> =
        ok("list", place.client.list(&SECRET, &place.namespace, &ListParams::default()))?;
    Ok(list.metadata.resource_version)
}

fn create(place: &Place<'_>, name: &str, labels: &Value) -> Outcome {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}});
    ok("create", place.client.create::<Value>(&SECRET, &place.namespace, &object)).map(drop)
}

fn label(place: &Place<'_>, name: &str, value: &Value) -> Outcome {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"x": value}}}));
    ok("patch", place.client.patch::<Value>(&SECRET, &place.key(name), &patch)).map(drop)
}

fn follows(place: &Place<'_>) -> Outcome {
    create(place, "before", &json!({}))?;
    let version = version_now(place)?;
    create(place, "a", &json!({}))?;
    let mut watch = ok("watch", place.client.watch(&SECRET, &place.namespace, &params(&version)))?;
    label(place, "a", &json!("1"))?;
    ok("delete", place.client.delete(&SECRET, &place.key("a"), &DeleteParams::default()))?;
    equal("events", read(&mut watch, 3)?, ["+a", "~a", "-a"].map(str::to_owned).to_vec())
}

fn begins(place: &Place<'_>) -> Outcome {
    create(place, "a", &json!({}))?;
    create(place, "b", &json!({}))?;
    let mut watch = ok("watch", place.client.watch(&SECRET, &place.namespace, &params("")))?;
    let mut events = read(&mut watch, 2)?;
    events.sort_unstable();
    equal("events", events, ["+a", "+b"].map(str::to_owned).to_vec())
}

fn selection(place: &Place<'_>) -> Outcome {
    let version = version_now(place)?;
    let selecting = WatchParams { label_selector: "x=1".to_owned(), ..params(&version) };
    let mut watch = ok("watch", place.client.watch(&SECRET, &place.namespace, &selecting))?;
    create(place, "other", &json!({}))?;
    create(place, "a", &json!({"x": "1"}))?;
    label(place, "a", &json!("2"))?;
    label(place, "a", &json!("1"))?;
    equal("events", read(&mut watch, 3)?, ["+a", "-a", "+a"].map(str::to_owned).to_vec())
}

fn ends(place: &Place<'_>) -> Outcome {
    let version = version_now(place)?;
    let short = WatchParams { timeout_seconds: 1, bookmarks: true, ..params(&version) };
    let mut watch = ok("watch", place.client.watch::<Value>(&SECRET, &place.namespace, &short))?;
    loop {
        match watch.next() {
            Some(Ok(WatchEvent::Bookmark(_))) => {}
            Some(Ok(event)) => return Err(format!("an event: {}", describe(event))),
            Some(Err(e)) => return Err(chain(&e)),
            None => return Ok(()),
        }
    }
}

fn metadata_only(place: &Place<'_>) -> Outcome {
    let version = version_now(place)?;
    let metadata = WatchParams { metadata_only: true, ..params(&version) };
    let mut watch = ok("watch", place.client.watch::<Value>(&SECRET, &place.namespace, &metadata))?;
    create(place, "a", &json!({}))?;
    match watch.next() {
        Some(Ok(WatchEvent::Added(object))) => {
            equal("kind", object["kind"].as_str(), Some("PartialObjectMetadata"))?;
            ensure(object.get("type").is_none(), "more than metadata")
        }
        other => Err(format!("found {other:?}")),
    }
}

fn too_old(place: &Place<'_>) -> Outcome {
    // Servers keep a few minutes of history; version 1 is older than anything.
    place.config_map("a", "1")?;
    let mut watch = match place.client.watch::<Value>(&CONFIG_MAP, &place.namespace, &params("1")) {
        Ok(watch) => watch,
        Err(e) => return ensure(e.is_gone(), chain(&e)),
    };
    match watch.next() {
        Some(Err(e)) => ensure(e.is_gone(), chain(&e)),
        // A new server still has it.
        Some(Ok(_)) => Ok(()),
        None => Err("the watch ended without an answer".to_owned()),
    }
}

fn one_name(place: &Place<'_>) -> Outcome {
    let version = version_now(place)?;
    let one = WatchParams { field_selector: "metadata.name=b".to_owned(), ..params(&version) };
    let mut watch = ok("watch", place.client.watch(&SECRET, &place.namespace, &one))?;
    create(place, "a", &json!({}))?;
    create(place, "b", &json!({}))?;
    ok("delete", place.client.delete(&SECRET, &place.key("b"), &DeleteParams::default()))?;
    equal("events", read(&mut watch, 2)?, ["+b", "-b"].map(str::to_owned).to_vec())
}
