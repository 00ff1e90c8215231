//! Patterns of JSON Schema, and their cost.

use serde_json::{Map, Value};

use super::{Check, SchemaFailure, SchemaPlace, quoted_text};
use crate::chart::template;
use crate::limits::TEMPLATE_REGEXES_MAX;

impl Check<'_> {
    pub(super) fn pattern(
        &mut self,
        schema: &Map<String, Value>,
        text: &str,
        place: &SchemaPlace,
        failures: &mut Vec<SchemaFailure>,
    ) {
        if let Some(Value::String(pattern)) = schema.get("pattern")
            && !self.fits(pattern, text)
        {
            let (text, pattern) = (quoted_text(text), quoted_text(pattern));
            failures.push(place.failure(format!("{text} does not match pattern {pattern}")));
        }
    }

    pub(super) fn fits(&mut self, pattern: &str, text: &str) -> bool {
        if !self.patterns.contains_key(pattern) {
            if self.patterns.len() >= TEMPLATE_REGEXES_MAX {
                self.patterns.clear();
            }
            match template::regex(pattern) {
                Ok(regex) => {
                    self.spend(regex.compile_steps());
                    self.patterns.insert(pattern.to_owned(), regex);
                }
                Err(error) => {
                    self.broken = Some(format!("schema pattern {pattern:?}: {error}"));
                    return true;
                }
            }
        }
        let steps = self.patterns.get(pattern).map_or(0, |regex| regex.steps(text.len()));
        self.spend(1 + steps);
        self.broken.is_some() || self.patterns.get(pattern).is_none_or(|regex| regex.is_match(text))
    }
}
