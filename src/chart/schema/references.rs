//! References of JSON Schema within one document. Each is looked up once, and the search counts as work.

use serde_json::Value;

use super::{BYTES_PER_STEP, Check};
use crate::limits::SCHEMA_DEPTH_MAX;

/// Values that a search visits in one step.
const VALUES_PER_STEP: usize = 8;

impl<'a> Check<'a> {
    /// The schema to which a reference within the document points.
    pub(super) fn target(&mut self, reference: &'a str) -> Option<&'a Value> {
        self.spend(reference.len() / BYTES_PER_STEP);
        if let Some(known) = self.targets.get(reference) {
            return *known;
        }
        let visits_max = self.steps.saturating_add(1).saturating_mul(VALUES_PER_STEP);
        let mut search = Search { visits: 0, visits_max };
        let found = search.resolve(self.root, reference);
        self.spend(search.visits / VALUES_PER_STEP);
        self.targets.insert(reference, found);
        found
    }
}

/// One search through a document.
struct Search {
    /// The number of visited values; long texts count more.
    visits: usize,
    /// The limit of the search.
    visits_max: usize,
}

impl Search {
    fn resolve<'a>(&mut self, root: &'a Value, reference: &str) -> Option<&'a Value> {
        let local = reference.strip_prefix(id(root).trim_end_matches('#')).unwrap_or(reference);
        let Some(fragment) = local.strip_prefix('#') else {
            return if local.is_empty() { Some(root) } else { self.embedded(root, reference) };
        };
        if fragment.is_empty() || fragment.starts_with('/') {
            return root.pointer(&fragment.replace("%25", "%").replace("%24", "$"));
        }
        self.anchor(root, fragment)
    }

    /// A schema within the document with this address.
    fn embedded<'a>(&mut self, root: &'a Value, reference: &str) -> Option<&'a Value> {
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let name = (!address.contains("://")).then(|| file(address));
        let target = self.find(root, 0, &|schema| {
            let id = id(schema);
            !id.is_empty() && (id == address || name == Some(file(id)))
        })?;
        match fragment {
            "" => Some(target),
            pointer if pointer.starts_with('/') => target.pointer(pointer),
            name => self.anchor(target, name),
        }
    }

    /// The schema with this anchor.
    fn anchor<'a>(&mut self, schema: &'a Value, name: &str) -> Option<&'a Value> {
        self.find(schema, 0, &|schema| {
            let says = |key: &str| schema.get(key).and_then(Value::as_str);
            let old = |key: &str| says(key).and_then(|id| id.strip_prefix('#')) == Some(name);
            says("$anchor") == Some(name) || says("$dynamicAnchor") == Some(name) || old("$id") || old("id")
        })
    }

    /// The first part of a document for which the condition holds.
    fn find<'a>(
        &mut self,
        schema: &'a Value,
        depth: usize,
        is_it: &dyn Fn(&Value) -> bool,
    ) -> Option<&'a Value> {
        if depth > SCHEMA_DEPTH_MAX || self.visits >= self.visits_max {
            return None;
        }
        self.visits += 1 + id(schema).len() * VALUES_PER_STEP / BYTES_PER_STEP;
        if is_it(schema) {
            return Some(schema);
        }
        match schema {
            Value::Object(map) => map.values().find_map(|v| self.find(v, depth + 1, is_it)),
            Value::Array(list) => list.iter().find_map(|v| self.find(v, depth + 1, is_it)),
            _ => None,
        }
    }
}

/// The address that a schema declares.
fn id(schema: &Value) -> &str {
    schema.get("$id").or_else(|| schema.get("id")).and_then(Value::as_str).unwrap_or("")
}

/// The last part of an address.
fn file(address: &str) -> &str {
    address.rsplit('/').next().unwrap_or(address)
}
