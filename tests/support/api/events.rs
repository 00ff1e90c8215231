//! Events. They are stored as `events.k8s.io` has them, and the core group shows the same objects under its own names.

use serde_json::Value;

use super::failure::Failure;
use super::kinds::Kind;
use super::rules::{Rules, Write};
use crate::json::{remove, set, text};

/// The group in which they are stored.
pub const GROUP: &str = "events.k8s.io";
/// Stands for the version of the storage in the core group, which serves `v1` alone.
pub const STORED: &str = "events.k8s.io/v1";

/// Fields of both groups: as they are stored, and in the core group.
const NAMES: &[(&str, &str)] = &[
    ("/regarding", "/involvedObject"),
    ("/note", "/message"),
    ("/reportingController", "/reportingComponent"),
    ("/deprecatedSource", "/source"),
    ("/deprecatedFirstTimestamp", "/firstTimestamp"),
    ("/deprecatedLastTimestamp", "/lastTimestamp"),
    ("/deprecatedCount", "/count"),
];

const FIELDS: &[(&str, &str)] = &[
    ("involvedObject.kind", "/regarding/kind"),
    ("involvedObject.namespace", "/regarding/namespace"),
    ("involvedObject.name", "/regarding/name"),
    ("involvedObject.uid", "/regarding/uid"),
    ("reason", "/reason"),
    ("reportingComponent", "/reportingController"),
    ("source", "/deprecatedSource/component"),
    ("type", "/type"),
];

/// The same events as their own group names the fields.
const NEW_FIELDS: &[(&str, &str)] = &[
    ("regarding.kind", "/regarding/kind"),
    ("regarding.namespace", "/regarding/namespace"),
    ("regarding.name", "/regarding/name"),
    ("regarding.uid", "/regarding/uid"),
    ("reason", "/reason"),
    ("reportingController", "/reportingController"),
    ("type", "/type"),
];

/// The kind of the core group.
pub fn core() -> Kind {
    let mut kind = Kind::new("", "v1", "Event", "events", true).fields(FIELDS).rules(Core);
    kind.stored_in = Some(GROUP);
    STORED.clone_into(&mut kind.storage);
    kind
}

/// The kind of the group of its own.
pub fn new() -> Kind {
    Kind::new(GROUP, "v1", "Event", "events", true).fields(NEW_FIELDS).rules(New)
}

struct Core;

/// An Event is where the object is that it is about.
fn check_place(event: &Value, field: &str, write: &Write<'_>) -> Result<(), Failure> {
    let (own, about) = (text(event, "/metadata/namespace"), text(event, "/regarding/namespace"));
    if own == about || (about.is_empty() && own == "default") {
        return Ok(());
    }
    let why = format!("Invalid value: {about:?}: does not match event.namespace");
    let name = text(event, "/metadata/name");
    Err(Failure::invalid(&write.kind.group, "Event", name, &format!("{field}.namespace"), &why))
}

struct New;

impl Rules for New {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        check_place(object, "involvedObject", write)
    }
}

impl Rules for Core {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        check_place(object, "involvedObject", write)
    }

    fn convert_out(&self, mut object: Value, _version: &str) -> Value {
        NAMES.iter().for_each(|(stored, core)| rename(&mut object, stored, core));
        object
    }

    fn convert_in(&self, mut object: Value, _version: &str) -> Value {
        NAMES.iter().for_each(|(stored, core)| rename(&mut object, core, stored));
        object
    }
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(value) = remove(object, from) {
        set(object, to, value);
    }
}
