//! The content of a ShootState: read from the seed, with its size limited during the read.

use ring::digest::SHA256;
use serde_json::{Value, json};

use crate::api::core::{CONFIG_MAP, SECRET};
use crate::api::extensions::{BACKUP_ENTRY, DNS_RECORD, EXTENSION};
use crate::api::meta::{Key, Resource, text};
use crate::backup::garden::entry_name;
use crate::kube::{Error, ListItem, ListParams, Seed};
use crate::limits;
use crate::runtime::controller::ReconcileFailure;

/// The Secrets to keep, whoever has made them: keys and CAs. Certificates that they sign are created again.
pub(super) const SELECTOR: &str = "persist=true";

/// A SHA-256.
pub(super) type Digest = [u8; 32];

/// The digest of the spec of a ShootState.
pub(super) fn digest(spec: &Value) -> Digest {
    digest_of(&spec.to_string())
}

fn digest_of(text: &str) -> Digest {
    let hash = ring::digest::digest(&SHA256, text.as_bytes());
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(hash.as_ref()).for_each(|(byte, hashed)| *byte = *hashed);
    bytes
}

/// The location of a Shoot in the seed.
pub(super) struct Plane {
    namespace: String,
    /// Its BackupEntry, which has no namespace.
    backup: String,
}

impl Plane {
    pub(super) fn of(shoot: &Value) -> Self {
        let status = &shoot["status"];
        let (namespace, uid) = (text(&status["technicalID"]), text(&status["uid"]));
        Self { namespace: namespace.to_owned(), backup: entry_name(namespace, uid) }
    }
}

/// The desired content of a ShootState.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) spec: Value,
    pub(super) digest: Digest,
    /// What is missing, with the reasons.
    pub(super) left_out: Vec<String>,
}

impl Content {
    /// The digest of what is missing.
    pub(super) fn lacks(&self) -> Option<Digest> {
        (!self.left_out.is_empty()).then(|| digest_of(&self.left_out.join("\n")))
    }
}

pub(super) fn collect(seed: &Seed, plane: &Plane) -> Result<Content, ReconcileFailure> {
    if plane.namespace.is_empty() {
        return Err(ReconcileFailure::retry("the Shoot has no status.technicalID yet"));
    }
    let mut gathered = Gathered::default();
    secrets(seed, plane, &mut gathered)?;
    let Gathered { bytes, .. } = gathered;
    if bytes > limits::SHOOT_STATE_BYTES_MAX {
        let why = format!(
            "the Secrets of namespace {} with label {SELECTOR} have {bytes} bytes, and a ShootState may have {}: \
             remove what does not belong there",
            plane.namespace,
            limits::SHOOT_STATE_BYTES_MAX
        );
        return Err(ReconcileFailure::terminal(why));
    }
    // A Shoot without workers has only objects of these kinds.
    for (resource, namespace, field_selector) in [
        (&EXTENSION, plane.namespace.as_str(), String::new()),
        (&DNS_RECORD, &plane.namespace, String::new()),
        (&BACKUP_ENTRY, "", format!("metadata.name={}", plane.backup)),
    ] {
        let params = ListParams { field_selector, ..ListParams::default() };
        extensions(seed, resource, namespace, &params, &mut gathered)?;
    }
    references(seed, plane, &mut gathered)?;
    Ok(gathered.content())
}

/// An entry with its size.
struct Entry {
    /// Kind and name, for sorting.
    place: (String, String),
    value: Value,
    bytes: usize,
}

impl Entry {
    fn new(kind: &str, name: &str, value: Value) -> Self {
        let bytes = value.to_string().len();
        Self { place: (kind.to_owned(), name.to_owned()), value, bytes }
    }
}

/// The content that has been read so far.
#[derive(Default)]
struct Gathered {
    secrets: Vec<Entry>,
    extensions: Vec<Entry>,
    resources: Vec<Entry>,
    bytes: usize,
    left_out: Vec<String>,
}

impl Gathered {
    /// Adds the state of an extension. If the limit is exceeded, the largest state is dropped, because
    /// all others then fit.
    fn take(&mut self, entry: Entry) {
        self.bytes += entry.bytes;
        self.extensions.push(entry);
        while self.bytes > limits::SHOOT_STATE_BYTES_MAX {
            let largest = (0..self.extensions.len()).max_by_key(|at| self.extensions[*at].bytes);
            let Some(at) = largest else { break };
            let Entry { place: (kind, name), bytes, .. } = self.extensions.swap_remove(at);
            self.bytes -= bytes;
            let max = limits::SHOOT_STATE_BYTES_MAX;
            self.left_out.push(format!(
                "the state of {kind} {name}: it has {bytes} bytes, and a ShootState may have {max}"
            ));
        }
    }

    fn content(mut self) -> Content {
        let mut spec = json!({});
        let lists = [
            ("gardener", &mut self.secrets),
            ("extensions", &mut self.extensions),
            ("resources", &mut self.resources),
        ];
        for (name, entries) in lists {
            entries.sort_by(|a, b| a.place.cmp(&b.place));
            if !entries.is_empty() {
                spec[name] = entries.drain(..).map(|entry| entry.value).collect();
            }
        }
        self.left_out.sort();
        Content { digest: digest(&spec), spec, left_out: self.left_out }
    }
}

fn secrets(seed: &Seed, plane: &Plane, gathered: &mut Gathered) -> Result<(), Error> {
    let params = ListParams { label_selector: SELECTOR.to_owned(), ..ListParams::default() };
    let mut found = Vec::new();
    // An unreadable Secret is an error, because it must not be missing.
    seed.list_all::<Value>(&SECRET, &plane.namespace, &params, &mut |secret| found.push(kept(&secret)))?;
    gathered.bytes = found.iter().map(|entry| entry.bytes).sum();
    gathered.secrets = found;
    Ok(())
}

fn kept(secret: &Value) -> Entry {
    let name = text(&secret["metadata"]["name"]);
    let mut data = json!({});
    for field in ["data", "immutable", "type"] {
        if !secret[field].is_null() {
            data[field] = secret[field].clone();
        }
    }
    let labels = &secret["metadata"]["labels"];
    Entry::new("Secret", name, json!({"name": name, "type": "secret", "labels": labels, "data": data}))
}

fn extensions(
    seed: &Seed,
    resource: &Resource,
    namespace: &str,
    params: &ListParams,
    gathered: &mut Gathered,
) -> Result<(), ReconcileFailure> {
    let mut restarted = false;
    let listed = seed.list_each::<Value>(resource, namespace, params, &mut |item| match item {
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
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e.into()),
        // A Shoot has a handful of them, so a list has one page and does not restart.
        Ok(_) if restarted => {
            let why = format!("the list of {} restarted", resource.plural);
            Err(ReconcileFailure::later(limits::PERMIT_AGAIN, why))
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
fn references(seed: &Seed, plane: &Plane, gathered: &mut Gathered) -> Result<(), Error> {
    let references: Vec<Value> = gathered
        .extensions
        .iter()
        .flat_map(|entry| entry.value["resources"].as_array().cloned().unwrap_or_default())
        .map(|named| named["resourceRef"].clone())
        .collect();
    for reference in references {
        let (kind, name) = (text(&reference["kind"]), text(&reference["name"]));
        let is_known = |entry: &Entry| entry.place.0 == kind && entry.place.1 == name;
        if gathered.resources.iter().any(is_known) {
            continue;
        }
        let resource = match (text(&reference["apiVersion"]), kind) {
            ("v1", "Secret") => &SECRET,
            ("v1", "ConfigMap") => &CONFIG_MAP,
            _ => {
                let why = "only Secrets and ConfigMaps can be kept";
                gathered.left_out.push(format!("{kind} {name} of namespace {}: {why}", plane.namespace));
                continue;
            }
        };
        let Some(object) = seed.find::<Value>(resource, &Key::new(&plane.namespace, name))? else {
            gathered.left_out.push(format!("{kind} {name}: it is not in namespace {}", plane.namespace));
            continue;
        };
        let entry = json!({"apiVersion": resource.api_version(), "kind": kind, "name": name, "data": object});
        let entry = Entry::new(kind, name, entry);
        if gathered.bytes + entry.bytes > limits::SHOOT_STATE_BYTES_MAX {
            let max = limits::SHOOT_STATE_BYTES_MAX;
            let bytes = entry.bytes;
            gathered
                .left_out
                .push(format!("{kind} {name}: it has {bytes} bytes, and a ShootState may have {max}"));
            continue;
        }
        gathered.bytes += entry.bytes;
        gathered.resources.push(entry);
    }
    Ok(())
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
            kept(&secret).value,
            json!({"name": "ca-1", "type": "secret", "labels": labels, "data": data})
        );
    }

    #[test]
    fn only_states_are_kept() {
        let object = |metadata: Value, status: Value| {
            let object = json!({"metadata": metadata, "spec": {"type": "lab"}, "status": status});
            state("Extension", &object).map(|entry| entry.value)
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
        let record =
            json!({"metadata": {"name": "r"}, "spec": {"purpose": "normal"}, "status": {"state": 1}});
        assert_eq!(state("DNSRecord", &record).unwrap().value["purpose"], "normal");
    }

    #[test]
    fn the_largest_state_is_dropped_first() {
        let entry = |name: &str, bytes: usize| Entry::new("Extension", name, json!("x".repeat(bytes)));
        let mut gathered = Gathered { bytes: 100, ..Gathered::default() };
        for (name, bytes) in [("a", 10), ("b", 1 << 20), ("c", 900_000), ("d", 20)] {
            gathered.take(entry(name, bytes));
        }
        let content = gathered.content();
        assert_eq!(content.spec["extensions"].as_array().unwrap().len(), 3);
        let [left_out] = content.left_out.as_slice() else { panic!("{:?}", content.left_out) };
        assert!(left_out.starts_with("the state of Extension b: it has 1048578 bytes"), "{left_out}");
    }

    #[test]
    fn the_order_does_not_matter() {
        let content = |names: [&str; 2]| {
            let mut gathered = Gathered::default();
            for name in names {
                gathered.take(Entry::new("Extension", name, json!({"name": name})));
            }
            gathered.content()
        };
        let (one, other) = (content(["a", "b"]), content(["b", "a"]));
        assert_eq!((&one.spec, one.digest), (&other.spec, other.digest));
        assert_ne!(one.digest, content(["a", "c"]).digest);
        assert_eq!(one.spec.get("resources"), None);
    }
}
