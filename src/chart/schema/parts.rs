//! Keywords of JSON Schema with sub-schemas for the parts of lists and maps.

use serde_json::{Map, Value};

use super::{Check, SchemaFailure, SchemaPlace, Subject, keywords};

impl<'a> Check<'a> {
    pub(super) fn list(&mut self, subject: &mut Subject<'a, '_>, list: &[Value]) {
        let (schema, place) = (subject.schema, subject.place);
        keywords::lengths(schema, list.len(), "minItems", "maxItems", place, &mut subject.failures);
        keywords::unique(schema, list, place, &mut subject.failures);
        // Drafts before 2020 have the schemas of the first items in `items` itself.
        let (first, others) = match (schema.get("prefixItems"), schema.get("items")) {
            (Some(Value::Array(first)), others) if self.draft.has(2020) => (first.as_slice(), others),
            (_, Some(Value::Array(first))) if !self.draft.has(2020) => {
                let others = schema.get("additionalItems");
                if others == Some(&Value::Bool(false)) && list.len() > first.len() {
                    let count = list.len() - first.len();
                    let message = format!("last {count} additionalItem(s) not allowed");
                    self.items(subject, list, first, None);
                    return subject.failures.push(place.failure(message));
                }
                (first.as_slice(), others)
            }
            (_, others) => (&[][..], others),
        };
        self.items(subject, list, first, others);
        if let Some(contains) = schema.get("contains").filter(|_| self.draft.has(6)) {
            self.contains(subject, list, contains);
        }
    }

    fn items(
        &mut self,
        subject: &mut Subject<'a, '_>,
        list: &[Value],
        first: &'a [Value],
        others: Option<&'a Value>,
    ) {
        for (i, item) in list.iter().enumerate() {
            if let Some(schema) = first.get(i).or(others) {
                // Upstream restarts the count at zero after the first items.
                let shown = i.checked_sub(first.len()).unwrap_or(i);
                self.part(subject, schema, item, &shown.to_string());
                subject.unevaluated.items.remove(&i);
            }
        }
    }

    fn contains(&mut self, subject: &mut Subject<'a, '_>, list: &[Value], contains: &'a Value) {
        let (mut causes, mut matched) = (Vec::new(), Vec::new());
        for (i, item) in list.iter().enumerate() {
            match self.value(contains, item, &subject.place.below(&i.to_string()), false) {
                Err(failure) => causes.push(failure),
                Ok(_) => {
                    matched.push(i.to_string());
                    if self.draft.has(2020) {
                        subject.unevaluated.items.remove(&i);
                    }
                }
            }
        }
        let limit = |key: &str| subject.schema.get(key).and_then(keywords::count);
        let (min, max) =
            if self.draft.has(2019) { (limit("minContains"), limit("maxContains")) } else { (None, None) };
        let (got, at) = (matched.len(), matched.join(" "));
        let needs = |word: &str, n: usize| format!("{word} {n} items required to match contains schema, but");
        let message = match min {
            Some(min) if got == 0 && min > 0 => Some(format!("{} none matched", needs("min", min))),
            Some(min) if got < min => Some(format!("{} matched {got} items at {at}", needs("min", min))),
            None if got == 0 => Some("no items match contains schema".to_owned()),
            _ => None,
        };
        if let Some(message) = message {
            subject.failures.push(subject.place.failure_of(message, causes));
        }
        if let Some(max) = max.filter(|max| got > *max) {
            let message = format!("{} matched {got} items at {at}", needs("max", max));
            subject.failures.push(subject.place.failure(message));
        }
    }

    pub(super) fn map(&mut self, subject: &mut Subject<'a, '_>, map: &Map<String, Value>) {
        let (schema, place) = (subject.schema, subject.place);
        let failures = &mut subject.failures;
        keywords::lengths(schema, map.len(), "minProperties", "maxProperties", place, failures);
        keywords::required(schema, map, place, self.draft, &mut subject.failures);
        let table = |key: &str| schema.get(key).and_then(Value::as_object);
        for (key, dependent) in table("dependencies").into_iter().flatten() {
            if map.contains_key(key) && !dependent.is_array() {
                let result = self.same(subject, dependent);
                subject.failures.extend(result.err());
            }
        }
        self.properties(subject, map);
        if let Some(names) = schema.get("propertyNames").filter(|_| self.draft.has(6)) {
            self.names(subject, map, names);
        }
        for (key, dependent) in
            table("dependentSchemas").filter(|_| self.draft.has(2019)).into_iter().flatten()
        {
            if map.contains_key(key) {
                let result = self.same(subject, dependent);
                subject.failures.extend(result.err());
            }
        }
    }

    fn properties(&mut self, subject: &mut Subject<'a, '_>, map: &Map<String, Value>) {
        let schema = subject.schema;
        let table = |key: &str| schema.get(key).and_then(Value::as_object);
        let (properties, patterns) = (table("properties"), table("patternProperties"));
        let mut additional = Vec::new();
        for (key, value) in map {
            let mut known = false;
            if let Some(schema) = properties.and_then(|p| p.get(key)) {
                self.part(subject, schema, value, key);
                known = true;
            }
            for (pattern, schema) in patterns.into_iter().flatten() {
                if self.fits(pattern, key) {
                    self.part(subject, schema, value, key);
                    known = true;
                }
            }
            if let Some(others) = schema.get("additionalProperties").filter(|_| !known) {
                known = true;
                match others {
                    Value::Bool(false) => additional.push(key.as_str()),
                    others => self.part(subject, others, value, key),
                }
            }
            if known {
                subject.unevaluated.keys.remove(key);
            }
        }
        if !additional.is_empty() {
            let names = keywords::quoted(&additional);
            subject
                .failures
                .push(subject.place.failure(format!("additional properties {names} not allowed")));
        }
    }

    /// The check of a name starts over: its failures have no path.
    fn names(&mut self, subject: &mut Subject<'a, '_>, map: &Map<String, Value>, names: &'a Value) {
        for key in map.keys() {
            let place = SchemaPlace { path: String::new(), depth: subject.place.depth + 1 };
            if let Err(failure) = self.value(names, &Value::String(key.clone()), &place, false) {
                let causes = if failure.kind == super::Kind::Group { failure.causes } else { vec![failure] };
                let message = format!("invalid propertyName {}", super::quoted_text(key));
                let failure: SchemaFailure = place.failure_of(message, causes);
                subject.failures.push(failure);
            }
        }
    }
}
