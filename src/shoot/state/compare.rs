//! What a ShootState lacks, and how new content is merged into it.

use serde_json::Value;

use crate::api::meta::text;
use crate::base::json::json;

/// A list of a ShootState: its name, and the fields that identify an entry.
struct EntryList {
    name: &'static str,
    identity: &'static [&'static str],
    /// The other fields, with words for a difference.
    content: &'static [EntryField],
}

struct EntryField {
    name: &'static str,
    words: &'static str,
}

/// As in upstream.
const LISTS: [EntryList; 3] = [
    EntryList {
        name: "gardener",
        identity: &["type", "name"],
        content: &[
            EntryField { name: "data", words: "the data of" },
            EntryField { name: "labels", words: "the labels of" },
        ],
    },
    EntryList {
        name: "extensions",
        identity: &["kind", "name", "purpose"],
        content: &[
            EntryField { name: "state", words: "the state of" },
            EntryField { name: "resources", words: "the references of" },
        ],
    },
    EntryList {
        name: "resources",
        identity: &["apiVersion", "kind", "name"],
        content: &[EntryField { name: "data", words: "the content of" }],
    },
];

impl EntryList {
    fn is_same(&self, one: &Value, other: &Value) -> bool {
        self.identity.iter().all(|field| one[field] == other[field])
    }

    fn entries<'a>(&self, spec: &'a Value) -> &'a [Value] {
        spec[self.name].as_array().map_or(&[], Vec::as_slice)
    }

    /// The name of an entry for people.
    fn title(&self, entry: &Value) -> String {
        let parts = self.identity.iter().map(|field| text(&entry[field]));
        // All of these have the same version.
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty() && *part != "v1").collect();
        parts.join(" ")
    }
}

/// The entries of `wanted` that a stored spec lacks, or has with another content.
pub(super) fn missing(wanted: &Value, stored: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for list in &LISTS {
        for entry in list.entries(wanted) {
            let title = list.title(entry);
            let Some(found) = list.entries(stored).iter().find(|found| list.is_same(found, entry)) else {
                missing.push(title);
                continue;
            };
            let differs = |field: &&EntryField| content(&entry[field.name]) != content(&found[field.name]);
            missing
                .extend(list.content.iter().filter(differs).map(|field| format!("{} {title}", field.words)));
        }
    }
    missing
}

/// The content of a field. An object of the seed changes its resourceVersion without changing what it says.
fn content(value: &Value) -> Value {
    match value {
        Value::Object(object) if object.contains_key("metadata") => {
            let mut object = object.clone();
            object.remove("metadata");
            Value::Object(object)
        }
        other => other.clone(),
    }
}

/// The Secrets of a stored spec that `new` has with other data, although the data of such a Secret never change. Another value
/// of the same name comes from a control plane that was made anew. A Secret that may change does so while its Shoot is here.
pub(super) fn replaced(stored: &Value, new: &Value) -> Vec<String> {
    let [list, ..] = &LISTS;
    let is_fixed = |entry: &Value| entry["data"]["immutable"] == true;
    let differs = |known: &Value, entry: &Value| {
        let (before, now) = (&known["data"]["data"], &entry["data"]["data"]);
        // An entry of an older version has no such map.
        let is_other = before.is_object() && before != now;
        list.is_same(known, entry) && is_other && (is_fixed(known) || is_fixed(entry))
    };
    let entries = list.entries(new).iter().filter(|entry| entry["type"] == "secret");
    let replaced = entries.filter(|entry| list.entries(stored).iter().any(|known| differs(known, entry)));
    replaced.map(|entry| text(&entry["name"]).to_owned()).collect()
}

/// The stored spec with the entries of `new`. Other entries stay: what they describe may be gone from the seed already.
pub(super) fn merge(stored: &Value, new: &Value) -> Value {
    let mut merged = json!({});
    for list in &LISTS {
        let mut entries = list.entries(stored).to_vec();
        for entry in list.entries(new) {
            match entries.iter_mut().find(|known| list.is_same(known, entry)) {
                Some(known) => *known = entry.clone(),
                None => entries.push(entry.clone()),
            }
        }
        // The order of collected content, so that the same content has the same digest.
        entries.sort_by_cached_key(|entry| {
            let parts = list.identity.iter().map(|field| text(&entry[field]).to_owned());
            parts.collect::<Vec<String>>()
        });
        if !entries.is_empty() {
            merged[list.name] = json!(entries);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Value {
        let reference =
            json!([{"name": "own", "resourceRef": {"apiVersion": "v1", "kind": "Secret", "name": "of-lab"}}]);
        json!({
            "gardener": [
                {"name": "ca", "type": "secret", "labels": {"name": "ca"}, "data": {"data": {"ca.crt": "YQ=="}}},
                {"name": "machine-state", "type": "machine-state", "data": {"state": "YQ=="}}],
            "extensions": [
                {"kind": "Extension", "name": "lab", "state": {"a": 1}, "resources": reference},
                {"kind": "OperatingSystemConfig", "name": "pool", "purpose": "provision", "state": 1},
                {"kind": "OperatingSystemConfig", "name": "pool", "purpose": "reconcile", "state": 2}],
            "resources": [{"apiVersion": "v1", "kind": "Secret", "name": "of-lab",
                "data": {"metadata": {"name": "of-lab", "resourceVersion": "1"}, "data": {"k": "dg=="}}}]})
    }

    #[test]
    fn what_is_missing_is_named() {
        type Change = fn(&mut Value);
        let cut = |list: &str, at: usize| {
            let mut stored = spec();
            stored[list].as_array_mut().unwrap().remove(at);
            missing(&spec(), &stored)
        };
        let gone = [
            (cut("gardener", 0), "secret ca"),
            (cut("gardener", 1), "machine-state machine-state"),
            (cut("extensions", 0), "Extension lab"),
            (cut("extensions", 2), "OperatingSystemConfig pool reconcile"),
            (cut("resources", 0), "Secret of-lab"),
        ];
        for (found, expected) in gone {
            assert_eq!(found, [expected]);
        }
        let table: [(Change, &[&str]); 12] = [
            (|_| {}, &[]),
            (|s| s["gardener"][0]["data"]["data"]["ca.crt"] = json!("Yg=="), &["the data of secret ca"]),
            (|s| s["gardener"][0]["data"]["type"] = json!("Opaque"), &["the data of secret ca"]),
            (|s| s["gardener"][0]["labels"]["name"] = json!("other"), &["the labels of secret ca"]),
            (|s| s["gardener"][1]["data"]["state"] = json!(""), &["the data of machine-state machine-state"]),
            (|s| s["extensions"][0]["state"]["a"] = json!(2), &["the state of Extension lab"]),
            (|s| s["extensions"][0]["resources"] = Value::Null, &["the references of Extension lab"]),
            (
                |s| s["extensions"][1]["state"] = Value::Null,
                &["the state of OperatingSystemConfig pool provision"],
            ),
            (|s| s["resources"][0]["data"]["data"] = json!({}), &["the content of Secret of-lab"]),
            // What says nothing, or is more than needed.
            (|s| s["resources"][0]["data"]["metadata"]["resourceVersion"] = json!("2"), &[]),
            (|s| s["gardener"].as_array_mut().unwrap().push(json!({"name": "old", "type": "secret"})), &[]),
            (
                |s| *s = Value::Null,
                &[
                    "secret ca",
                    "machine-state machine-state",
                    "Extension lab",
                    "OperatingSystemConfig pool provision",
                    "OperatingSystemConfig pool reconcile",
                    "Secret of-lab",
                ],
            ),
        ];
        for (change, expected) in table {
            let mut stored = spec();
            change(&mut stored);
            assert_eq!(missing(&spec(), &stored), expected, "{stored}");
        }
    }

    #[test]
    fn a_key_is_never_replaced() {
        let secret = |name: &str, data: &str, immutable: Value| json!({"name": name, "type": "secret", "data": {"data": {"k": data}, "immutable": immutable}});
        let spec = |entries: &[Value]| json!({"gardener": entries});
        let (fixed, free) = (json!(true), Value::Null);
        let stored = spec(&[secret("ca", "YQ==", fixed.clone()), secret("own", "YQ==", free.clone())]);
        let table = [
            (vec![secret("ca", "YQ==", fixed.clone())], vec![]),
            (vec![secret("ca", "YQ==", free.clone())], vec![]),
            (vec![secret("ca", "Yg==", fixed.clone())], vec!["ca"]),
            (vec![secret("ca", "Yg==", free.clone())], vec!["ca"]),
            // Somebody else's, who may change it.
            (vec![secret("own", "Yg==", free)], vec![]),
            (vec![secret("own", "Yg==", fixed.clone()), secret("ca", "", fixed.clone())], vec!["own", "ca"]),
            // After a rotation.
            (vec![secret("ca-2", "Yg==", fixed)], vec![]),
            (
                vec![json!({"name": "ca", "type": "machine-state", "data": {"immutable": true, "data": 1}})],
                vec![],
            ),
        ];
        for (new, expected) in table {
            assert_eq!(replaced(&stored, &spec(&new)), expected, "{new:?}");
        }
        assert_eq!(replaced(&Value::Null, &stored), [""; 0]);
        let older = spec(&[json!({"name": "ca", "type": "secret", "data": {"k": "YQ=="}})]);
        assert_eq!(replaced(&older, &stored), [""; 0]);
    }

    #[test]
    fn merging_adds_and_replaces_and_drops_nothing() {
        let mut new = json!({"gardener": [{"name": "ca", "type": "secret", "data": {"data": {"ca.crt": "bmV3"}}}],
            "extensions": [{"kind": "Extension", "name": "lab", "purpose": "x", "state": 1}]});
        let merged = merge(&spec(), &new);
        assert_eq!(merged["gardener"], json!([spec()["gardener"][1], new["gardener"][0]]));
        let extensions = merged["extensions"].as_array().unwrap();
        assert_eq!((extensions.len(), &extensions[1]), (4, &new["extensions"][0]));
        assert_eq!(merged["resources"], spec()["resources"]);
        assert!(missing(&new, &merged).is_empty());
        assert_eq!(merge(&merged, &new), merged);
        new["gardener"] = json!([]);
        assert_eq!(merge(&Value::Null, &new), json!({"extensions": new["extensions"]}));
    }
}
