//! The objects that a story leaves, so that two runs of it can be compared.

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde_json::{Value, json};

use support::TestCluster;
use support::api::store::Id;
use support::json::text;

/// Placeholders for values that are new in each run.
pub struct Words(Vec<(Regex, String)>);

impl Words {
    /// The usual patterns and, before digests and addresses, those of a story: a pattern and its replacement.
    pub fn new(own: &[(&str, &str)]) -> Self {
        let uuid = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
        let first = [(uuid, "<uid>"), (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>")];
        let last = [(r"[0-9a-f]{64}", "<id>"), (r"127\.0\.0\.1:\d+", "<address>")];
        let all = first.iter().chain(own).chain(&last);
        Self(all.map(|(rule, word)| (Regex::new(rule).unwrap(), (*word).to_owned())).collect())
    }

    /// The text with these placeholders.
    pub fn clean(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |t, (rule, word)| rule.replace_all(&t, word.as_str()).into_owned())
    }

    /// The objects of a cluster to compare, without Events, which report the accidents. Sorted; two objects that differ
    /// only in a random name give two lines.
    pub fn left_in(&self, cluster: &TestCluster, counts: impl Fn(&Id) -> bool) -> Vec<(String, Value)> {
        let state = cluster.store().read();
        let mut all: Vec<(String, Value)> = state
            .objects
            .iter()
            .filter(|(id, object)| object["kind"] != "Event" && counts(id))
            .map(|(id, object)| {
                let cleaned = self.clean(&without_numbers(object).to_string());
                let key = format!("{} {}/{} {}/{}", cluster.name, id.group, id.plural, id.namespace, id.name);
                (self.clean(&key), serde_json::from_str(&cleaned).unwrap())
            })
            .collect();
        drop(state);
        all.sort_by(|a, b| (&a.0, a.1.to_string()).cmp(&(&b.0, b.1.to_string())));
        all
    }
}

/// An object without its version, its keys and certificates, and the versions that others observed.
fn without_numbers(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "managedFields"] {
        metadata.remove(field);
    }
    // Keys and certificates are new in each run, and Secrets of charts contain the random name.
    for part in ["/data", "/spec/request", "/status/certificate", "/spec/conversion"] {
        if let Some(data) = object.pointer_mut(part) {
            *data = hidden(data);
        }
    }
    // The versions that the garden's controllers observed depend on the number of writes before.
    for part in ["/spec/deploymentRef", "/spec/registrationRef", "/spec/seedRef"] {
        if let Some(Value::Object(reference)) = object.pointer_mut(part) {
            reference.remove("resourceVersion");
        }
    }
    // Several controllers write into this list.
    for part in ["/status/conditions", "/spec/seed/status/conditions"] {
        if let Some(Value::Array(conditions)) = object.pointer_mut(part) {
            conditions.sort_by_key(|c| text(c, "/type").to_owned());
        }
    }
    object
}

fn hidden(data: &Value) -> Value {
    match data {
        Value::Object(fields) => {
            fields.keys().map(|key| (key.clone(), json!("<new>"))).collect::<serde_json::Map<_, _>>().into()
        }
        _ => json!("<new>"),
    }
}

/// The differences, in a few lines.
pub fn differences(one: &[(String, Value)], two: &[(String, Value)]) -> Vec<String> {
    let count = |all: &[(String, Value)]| {
        let mut counts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (key, object) in all {
            counts.entry(key.clone()).or_default().push(object.clone());
        }
        counts
    };
    let (one, two) = (count(one), count(two));
    let mut out = Vec::new();
    for key in one.keys().chain(two.keys()) {
        let (a, b) = (one.get(key), two.get(key));
        if a == b {
            continue;
        }
        let number = |objects: Option<&Vec<Value>>| objects.map_or(0, Vec::len);
        if number(a) != number(b) {
            out.push(format!("{key}: {} undisturbed, {} after the accident", number(a), number(b)));
            continue;
        }
        for (a, b) in a.into_iter().flatten().zip(b.into_iter().flatten()) {
            first_difference(key, a, b, &mut out);
        }
    }
    out.sort();
    out.dedup();
    out
}

fn first_difference(path: &str, one: &Value, two: &Value, out: &mut Vec<String>) {
    match (one, two) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()) {
                let missing = Value::Null;
                let (a, b) = (a.get(key).unwrap_or(&missing), b.get(key).unwrap_or(&missing));
                first_difference(&format!("{path}.{key}"), a, b, out);
            }
        }
        _ if one != two => out.push(format!("{path}: {one} undisturbed, {two} after the accident")),
        _ => {}
    }
}
