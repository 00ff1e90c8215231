//! Reads the content of a ShootState from the seed.

use std::fmt;

use serde_json::Value;

use super::content::{CollectedState, Entry, Gathered};
use super::machines;
use crate::api::core::{CONFIG_MAP, SECRET};
use crate::api::extensions::{
    BACKUP_ENTRY, CONTAINER_RUNTIME, CONTROL_PLANE, DNS_RECORD, EXTENSION, INFRASTRUCTURE, NETWORK,
    OPERATING_SYSTEM_CONFIG, SELF_HOSTED_SHOOT_EXPOSURE, WORKER,
};
use crate::api::meta::{Key, Resource, text};
use crate::backup::garden;
use crate::base::json::json;
use crate::flow::Failed;
use crate::kube::{self, ListItem, ListParams, Seed};
use crate::limits;
use crate::runtime::controller::ReconcileFailure;
use crate::shoot::has_workers;

/// The Secrets to keep, whoever has made them: keys and CAs. Certificates that they sign are created again.
pub(crate) const SELECTOR: &str = "persist=true";

/// The kinds whose objects have states, and whether a Shoot without workers can have such an object.
static KINDS: [StatefulKind; 10] = [
    StatefulKind::of_all(BACKUP_ENTRY),
    StatefulKind::of_workers(CONTAINER_RUNTIME),
    StatefulKind::of_workers(CONTROL_PLANE),
    StatefulKind::of_all(DNS_RECORD),
    StatefulKind::of_all(EXTENSION),
    StatefulKind::of_workers(INFRASTRUCTURE),
    StatefulKind::of_workers(NETWORK),
    StatefulKind::of_workers(OPERATING_SYSTEM_CONFIG),
    StatefulKind::of_workers(SELF_HOSTED_SHOOT_EXPOSURE),
    StatefulKind::of_workers(WORKER),
];

/// A kind whose objects have states.
struct StatefulKind {
    resource: Resource,
    is_of_all: bool,
}

impl StatefulKind {
    const fn of_all(resource: Resource) -> Self {
        Self { resource, is_of_all: true }
    }

    const fn of_workers(resource: Resource) -> Self {
        Self { resource, is_of_all: false }
    }
}

/// The kinds to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CollectionScope {
    /// Those that the Shoot can have.
    Possible,
    /// All, so that nothing is lost whoever has made it.
    All,
}

impl CollectionScope {
    fn has(self, kind: &StatefulKind, has_workers: bool) -> bool {
        self == Self::All || has_workers || kind.is_of_all
    }
}

/// The location of a Shoot in the seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ControlPlanePlace {
    pub(crate) namespace: String,
    /// Its BackupEntry, which has no namespace.
    backup: String,
    has_workers: bool,
}

impl ControlPlanePlace {
    pub(crate) fn of(shoot: &Value) -> Self {
        Self {
            namespace: text(&shoot["status"]["technicalID"]).to_owned(),
            backup: garden::entry(shoot).key.name,
            has_workers: has_workers(shoot),
        }
    }
}

/// Why the content cannot be read.
#[derive(Debug)]
pub(crate) enum CollectError {
    /// The Shoot has no namespace yet.
    NoNamespace,
    /// What is there cannot be kept, and this needs a person.
    Unusable(String),
    /// A list changed while it was read.
    Restarted(String),
    /// A request to the seed fails.
    Request(kube::Error),
}

impl From<kube::Error> for CollectError {
    fn from(error: kube::Error) -> Self {
        Self::Request(error)
    }
}

impl fmt::Display for CollectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNamespace => f.write_str("the Shoot has no status.technicalID yet"),
            Self::Unusable(why) | Self::Restarted(why) => f.write_str(why),
            Self::Request(error) => error.fmt(f),
        }
    }
}

impl From<CollectError> for Failed {
    fn from(error: CollectError) -> Self {
        match error {
            CollectError::Request(error) => error.into(),
            other => Self::new(other.to_string()),
        }
    }
}

impl From<CollectError> for ReconcileFailure {
    fn from(error: CollectError) -> Self {
        match error {
            CollectError::NoNamespace => Self::retry(error.to_string()),
            CollectError::Unusable(why) => Self::terminal(why),
            CollectError::Restarted(why) => Self::later(limits::PERMIT_AGAIN, why),
            CollectError::Request(error) => error.into(),
        }
    }
}

/// Reads the keys and states of a Shoot. `machines` is the entry that the garden has for its machines: it stays if the seed
/// has none.
pub(crate) fn collect(
    seed: &Seed,
    place: &ControlPlanePlace,
    scope: CollectionScope,
    machines: Option<&Value>,
) -> Result<CollectedState, CollectError> {
    if place.namespace.is_empty() {
        return Err(CollectError::NoNamespace);
    }
    let mut gathered = Gathered::default();
    let bytes = gathered.keep(secrets(seed, place)?);
    if bytes > limits::SHOOT_STATE_BYTES_MAX {
        let why = format!(
            "the Secrets of namespace {} with label {SELECTOR} have {bytes} bytes, and a ShootState may have {}: \
             remove what does not belong there",
            place.namespace,
            limits::SHOOT_STATE_BYTES_MAX
        );
        return Err(CollectError::Unusable(why));
    }
    let present = if place.has_workers { machines::collect(seed, &place.namespace)? } else { None };
    let kept =
        machines.map(|entry| Entry::new(machines::MACHINE_STATE, machines::MACHINE_STATE, entry.clone()));
    let bytes = gathered.keep(present.or(kept));
    if bytes > limits::SHOOT_STATE_BYTES_MAX {
        let why = format!(
            "the keys and the state of the machines of namespace {} have {bytes} bytes, and a ShootState may have {}: the \
             Shoot has too many machines",
            place.namespace,
            limits::SHOOT_STATE_BYTES_MAX
        );
        return Err(CollectError::Unusable(why));
    }
    for kind in KINDS.iter().filter(|kind| scope.has(kind, place.has_workers)) {
        extensions(seed, &kind.resource, place, &mut gathered)?;
    }
    references(seed, place, &mut gathered)?;
    Ok(gathered.content())
}

fn secrets(seed: &Seed, place: &ControlPlanePlace) -> Result<Vec<Entry>, kube::Error> {
    let params = ListParams { label_selector: SELECTOR.to_owned(), ..ListParams::default() };
    let mut found = Vec::new();
    // An unreadable Secret is an error, because it must not be missing.
    seed.list_all::<Value>(&SECRET, &place.namespace, &params, &mut |secret| found.push(kept(&secret)))?;
    Ok(found)
}

fn kept(secret: &Value) -> Entry {
    let name = text(&secret["metadata"]["name"]);
    // Without `data`, a reader takes the entry for one of an older version.
    let mut data = json!({"data": {}});
    for field in ["data", "immutable", "type"] {
        if !secret[field].is_null() {
            data[field] = secret[field].clone();
        }
    }
    let labels = &secret["metadata"]["labels"];
    Entry::new("secret", name, json!({"name": name, "type": "secret", "labels": labels, "data": data}))
}

fn extensions(
    seed: &Seed,
    resource: &Resource,
    place: &ControlPlanePlace,
    gathered: &mut Gathered,
) -> Result<(), CollectError> {
    let namespace = if resource.namespaced { place.namespace.as_str() } else { "" };
    let field_selector =
        if resource.namespaced { String::new() } else { format!("metadata.name={}", place.backup) };
    let params = ListParams { field_selector, ..ListParams::default() };
    let mut restarted = false;
    let listed = seed.list_each::<Value>(resource, namespace, &params, &mut |item| match item {
        ListItem::Object(object) => {
            if let Some(entry) = state(&resource.kind, &object) {
                gathered.take(entry);
            }
        }
        ListItem::Undecodable(object) => {
            gathered.left_out.push(format!("the state of {} {}: {}", resource.kind, object.key, object.why));
        }
        ListItem::Restart => restarted = true,
    });
    match listed {
        // The seed has no such kind.
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e.into()),
        // A Shoot has a handful of them, so a list has one page and does not restart.
        Ok(_) if restarted => {
            Err(CollectError::Restarted(format!("the list of {} restarted", resource.plural)))
        }
        Ok(_) => Ok(()),
    }
}

/// `None` for an object that has no state, or is being deleted.
fn state(kind: &str, object: &Value) -> Option<Entry> {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    let resources = status["resources"].as_array().filter(|all| !all.is_empty());
    let is_empty = status["state"].is_null() && resources.is_none();
    if is_empty || !metadata["deletionTimestamp"].is_null() {
        return None;
    }
    let name = text(&metadata["name"]);
    let mut entry = json!({"kind": kind, "name": name});
    let purpose = &object["spec"]["purpose"];
    let fields = [("purpose", purpose), ("state", &status["state"])];
    for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
        entry[field] = value.clone();
    }
    if let Some(resources) = resources {
        entry["resources"] = json!(resources);
    }
    Some(Entry::new(kind, name, entry))
}

/// The objects that states refer to, without duplicates.
fn references(seed: &Seed, place: &ControlPlanePlace, gathered: &mut Gathered) -> Result<(), kube::Error> {
    for reference in gathered.references() {
        let (kind, name) = (text(&reference["kind"]), text(&reference["name"]));
        if gathered.refers_to(kind, name) {
            continue;
        }
        let Some(resource) = referable(&reference) else {
            let why = "only Secrets and ConfigMaps can be kept";
            gathered.left_out.push(format!("{kind} {name} of namespace {}: {why}", place.namespace));
            continue;
        };
        let Some(object) = seed.find::<Value>(&resource, &Key::new(&place.namespace, name))? else {
            gathered.left_out.push(format!("{kind} {name}: it is not in namespace {}", place.namespace));
            continue;
        };
        let entry = json!({"apiVersion": resource.api_version(), "kind": kind, "name": name, "data": object});
        gathered.refer(Entry::new(kind, name, entry));
    }
    Ok(())
}

/// The kind of an object that a state refers to, if such objects are kept.
pub(super) fn referable(reference: &Value) -> Option<Resource> {
    match (text(&reference["apiVersion"]), text(&reference["kind"])) {
        ("v1", "Secret") => Some(SECRET),
        ("v1", "ConfigMap") => Some(CONFIG_MAP),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_kept_with_its_labels() {
        let labels = json!({"name": "ca", "persist": "true"});
        let secret = json!({"metadata": {"name": "ca-1", "namespace": "n", "labels": labels, "uid": "u"},
            "data": {"ca.crt": "Yw=="}, "immutable": true, "type": "Opaque"});
        let data = json!({"data": {"ca.crt": "Yw=="}, "immutable": true, "type": "Opaque"});
        assert_eq!(
            kept(&secret).value(),
            &json!({"name": "ca-1", "type": "secret", "labels": labels, "data": data})
        );
        let empty = json!({"metadata": {"name": "empty"}, "type": "Opaque"});
        assert_eq!(kept(&empty).value()["data"], json!({"data": {}, "type": "Opaque"}));
    }

    #[test]
    fn only_states_are_kept() {
        let object = |metadata: Value, status: Value| {
            let object = json!({"metadata": metadata, "spec": {"type": "lab"}, "status": status});
            state("Extension", &object).map(|entry| entry.value().clone())
        };
        let name = || json!({"name": "one"});
        let resources =
            json!([{"name": "r", "resourceRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}}]);
        let table = [
            (object(name(), json!({})), None),
            (object(name(), json!({"state": null, "resources": []})), None),
            (object(json!({"name": "one", "deletionTimestamp": "x"}), json!({"state": {}})), None),
            (
                object(name(), json!({"state": {"a": 1}})),
                Some(json!({"kind": "Extension", "name": "one", "state": {"a": 1}})),
            ),
            (
                object(name(), json!({"resources": resources})),
                Some(json!({"kind": "Extension", "name": "one", "resources": resources})),
            ),
        ];
        for (found, expected) in table {
            assert_eq!(found, expected);
        }
        let config =
            json!({"metadata": {"name": "r"}, "spec": {"purpose": "provision"}, "status": {"state": 1}});
        assert_eq!(state("OperatingSystemConfig", &config).unwrap().value()["purpose"], "provision");
    }

    #[test]
    fn a_shoot_without_workers_costs_three_lists() {
        let read = |scope: CollectionScope, has_workers: bool| -> Vec<&str> {
            let kinds = KINDS.iter().filter(|kind| scope.has(kind, has_workers));
            kinds.map(|kind| &*kind.resource.kind).collect()
        };
        assert_eq!(read(CollectionScope::Possible, false), ["BackupEntry", "DNSRecord", "Extension"]);
        assert_eq!(read(CollectionScope::Possible, true).len(), 10);
        assert_eq!(read(CollectionScope::All, false).len(), 10);
    }
}
