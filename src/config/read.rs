//! Reads typed values by path from a valid document with all its defaults. An absent value reads as empty, zero or
//! false: the schema decides which values may be absent.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::scalar;
use crate::base::sorted::SortedMap;

/// A place in a document.
#[derive(Clone, Copy)]
pub(super) struct FieldReader<'a>(&'a Value);

impl<'a> FieldReader<'a> {
    pub(super) const fn new(document: &'a Value) -> Self {
        Self(document)
    }

    /// The value at a dotted path; absent if there is none.
    pub(super) fn at(self, path: &str) -> Self {
        let step = |value: &'a Value, key: &str| value.get(key);
        Self(path.split('.').try_fold(self.0, step).unwrap_or(&Value::Null))
    }

    pub(super) const fn value(self) -> &'a Value {
        self.0
    }

    pub(super) fn is_absent(self) -> bool {
        self.0.is_null()
    }

    pub(super) fn str(self, path: &str) -> &'a str {
        self.at(path).0.as_str().unwrap_or_default()
    }

    pub(super) fn path(self, path: &str) -> Option<PathBuf> {
        Some(self.str(path)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    pub(super) fn flag(self, path: &str) -> bool {
        self.at(path).0.as_bool().unwrap_or_default()
    }

    pub(super) fn float(self, path: &str) -> f64 {
        self.at(path).0.as_f64().unwrap_or_default()
    }

    /// A whole number; a negative one reads as 0.
    pub(super) fn count(self, path: &str) -> u32 {
        let number = self.at(path).0.as_i64().unwrap_or_default().max(0);
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// A Go duration; a negative one reads as 0.
    pub(super) fn duration(self, path: &str) -> Duration {
        self.optional_duration(path).unwrap_or_default()
    }

    pub(super) fn optional_duration(self, path: &str) -> Option<Duration> {
        let nanos = scalar::duration_nanos(self.at(path).0.as_str()?)?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
    }

    /// A quantity in whole bytes.
    pub(super) fn bytes(self, path: &str) -> u64 {
        let bytes = scalar::quantity_value(self.at(path).0).unwrap_or_default();
        u64::try_from(bytes).unwrap_or(0)
    }

    pub(super) fn items(self, path: &str) -> impl Iterator<Item = Self> + use<'a> {
        self.at(path).0.as_array().map_or(&[] as &[Value], Vec::as_slice).iter().map(Self)
    }

    /// The texts of a list.
    pub(super) fn texts_of(self, path: &str) -> Vec<String> {
        self.items(path).filter_map(|item| item.value().as_str().map(str::to_owned)).collect()
    }

    /// A map whose values are texts, or numbers that are read as texts.
    pub(super) fn texts(self, path: &str) -> SortedMap<String, String> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let entries = self.at(path).0.as_object().into_iter().flatten();
        entries.map(|(key, value)| (key.clone(), text(value))).collect()
    }
}
