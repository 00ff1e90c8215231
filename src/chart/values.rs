//! Values: parses documents of values, and merges several sources.

use std::fmt;

use serde_json::{Number, Value};

use super::ValuesTable;
use super::archive::{Error as ArchiveError, FileError};
use crate::format::yaml;

/// Why a text is not valid as values.
#[derive(Debug)]
pub enum Error {
    /// It is not YAML.
    Yaml(yaml::Error),
    /// A document is not a map.
    NoMap,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yaml(_) => f.write_str("cannot unmarshal yaml document"),
            Self::NoMap => f.write_str("cannot unmarshal yaml document: values must be a map"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Yaml(source) => Some(source),
            Self::NoMap => None,
        }
    }
}

impl Error {
    pub(super) fn in_file(self, name: &str) -> ArchiveError {
        let source = match self {
            Self::Yaml(source) => FileError::Yaml(source),
            Self::NoMap => FileError::NoMap,
        };
        ArchiveError::File { name: name.to_owned(), source }
    }
}

/// Parses a file of values and merges the maps of its documents; later ones win. Every number becomes a
/// float, as in Helm. Errors: if a document is not a map.
pub fn read(text: &str) -> Result<ValuesTable, Error> {
    let mut values = ValuesTable::new();
    for document in yaml::parse_all(text) {
        let Value::Object(mut map) = document.value.map_err(Error::Yaml)? else { return Err(Error::NoMap) };
        map.values_mut().for_each(to_floats);
        merge(&mut values, map);
    }
    Ok(values)
}

/// Merges maps deeply; lists and scalars of `over` replace those of `under`.
pub(crate) fn merge(under: &mut ValuesTable, over: ValuesTable) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Object(a)), Value::Object(b)) => merge(a, b),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// Converts all numbers to floats, as a Go program does that decodes JSON into a map.
pub(crate) fn to_floats(value: &mut Value) {
    match value {
        Value::Number(n) => {
            if let Some(float) = n.as_f64().and_then(Number::from_f64) {
                *n = float;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(to_floats),
        Value::Object(map) => map.values_mut().for_each(to_floats),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The table at a dotted path.
pub(super) fn table<'a>(values: &'a ValuesTable, path: &str) -> Option<&'a ValuesTable> {
    let mut table = values;
    for key in path.split('.') {
        table = table.get(key)?.as_object()?;
    }
    Some(table)
}

/// The value at a dotted path, unless it is a table.
pub(super) fn scalar<'a>(values: &'a ValuesTable, path: &str) -> Option<&'a Value> {
    let found = match path.rsplit_once('.') {
        None => values.get(path)?,
        Some((parent, key)) => table(values, parent)?.get(key)?,
    };
    (!found.is_object()).then_some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_of_values_are_merged() {
        let values = read("a: {b: 1, c: [1]}\n---\na: {c: [2], d: null}\n---\n").unwrap();
        assert_eq!(Value::Object(values), json!({"a": {"b": 1.0, "c": [2.0], "d": null}}));
        assert!(read("").unwrap().is_empty());
        assert!(matches!(read("- a"), Err(Error::NoMap)));
        assert!(matches!(read("a: ["), Err(Error::Yaml(_))));
    }

    #[test]
    fn paths_lead_to_tables_and_scalars() {
        let values = read("a: {b: {c: true}}\nx: 1").unwrap();
        assert!(table(&values, "a.b").is_some() && table(&values, "a.b.c").is_none());
        assert_eq!(scalar(&values, "a.b.c"), Some(&json!(true)));
        assert_eq!(scalar(&values, "x"), Some(&json!(1.0)));
        assert_eq!((scalar(&values, "a.b"), scalar(&values, "a.y")), (None, None));
    }
}
