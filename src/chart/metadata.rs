//! Chart.yaml.

use std::fmt;

use serde_json::{Map, Value};

use crate::base::sorted::{SortedMap, SortedSet};
use crate::format::{number, semver};

/// The content of Chart.yaml. Absent texts are empty.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // the fields of Chart.yaml, under their own names
pub struct Metadata {
    pub name: String,
    pub home: String,
    pub sources: Vec<String>,
    pub version: String,
    pub description: String,
    pub keywords: Vec<String>,
    pub maintainers: Vec<Maintainer>,
    pub icon: String,
    pub api_version: String,
    pub condition: String,
    pub tags: String,
    pub app_version: String,
    pub deprecated: bool,
    /// Templates can tell absent from empty.
    pub annotations: Option<SortedMap<String, String>>,
    pub kube_version: String,
    pub dependencies: Vec<Dependency>,
    /// `type`: empty, `application` or `library`.
    pub kind: String,
}

/// A maintainer of a chart.
#[derive(Clone, Debug, Default)]
pub struct Maintainer {
    pub(crate) name: String,
    pub(crate) email: String,
    pub(crate) url: String,
}

/// A dependency of a chart.
#[derive(Clone, Debug, Default)]
pub struct Dependency {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) repository: String,
    pub(crate) condition: String,
    pub(crate) tags: Vec<String>,
    pub(crate) enabled: bool,
    /// Texts, or maps with `child` and `parent`.
    pub(crate) import_values: Vec<Value>,
    pub(crate) alias: String,
}

/// A problem in Chart.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A field has another type than it must have.
    Type {
        /// The path of the field.
        field: &'static str,
        /// The required type.
        wanted: &'static str,
    },
    /// A field is missing.
    Required(&'static str),
    /// A field has a value that is not allowed.
    Invalid {
        /// The path of the field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// Two dependencies share a name or alias.
    Duplicate(String),
    /// The alias of the dependency with this name has characters other than letters, digits, `_` and `-`.
    Alias(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("validation: ")?;
        match self {
            Self::Type { field, wanted } => write!(f, "chart.metadata.{field} must be {wanted}"),
            Self::Required(field) => write!(f, "chart.metadata.{field} is required"),
            Self::Invalid { field: "type", .. } => {
                f.write_str("chart.metadata.type must be application or library")
            }
            Self::Invalid { field: "name", value } if matches!(value.as_str(), "." | "..") => {
                write!(f, "chart.metadata.name {value:?} is not allowed")
            }
            Self::Invalid { field, value } => write!(f, "chart.metadata.{field} {value:?} is invalid"),
            Self::Duplicate(name) => write!(f, "more than one dependency with name or alias {name:?}"),
            Self::Alias(name) => write!(f, "dependency {name:?} has disallowed characters in the alias"),
        }
    }
}

impl std::error::Error for Error {}

impl Metadata {
    /// Reads the fields of a document; absent ones stay as they are (requirements.yaml only has
    /// dependencies). Errors: if a field has the wrong type.
    pub(super) fn merge(&mut self, document: &Value) -> Result<(), Error> {
        let map = match document {
            Value::Null => return Ok(()),
            Value::Object(map) => map,
            _ => return Err(Error::Type { field: "", wanted: "a map" }),
        };
        for (field, target) in [
            ("name", &mut self.name),
            ("home", &mut self.home),
            ("version", &mut self.version),
            ("description", &mut self.description),
            ("icon", &mut self.icon),
            ("apiVersion", &mut self.api_version),
            ("condition", &mut self.condition),
            ("tags", &mut self.tags),
            ("appVersion", &mut self.app_version),
            ("kubeVersion", &mut self.kube_version),
            ("type", &mut self.kind),
        ] {
            read(map, field, target)?;
        }
        if let Some(sources) = list(map, "sources")? {
            self.sources = texts(sources, "sources")?;
        }
        if let Some(keywords) = list(map, "keywords")? {
            self.keywords = texts(keywords, "keywords")?;
        }
        match map.get("deprecated") {
            None | Some(Value::Null) => {}
            Some(Value::Bool(b)) => self.deprecated = *b,
            Some(_) => return Err(Error::Type { field: "deprecated", wanted: "true or false" }),
        }
        match map.get("annotations") {
            None | Some(Value::Null) => {}
            Some(Value::Object(annotations)) => {
                let pairs = annotations.iter().map(|(k, v)| Ok((k.clone(), text(v, "annotations")?)));
                self.annotations = Some(pairs.collect::<Result<_, Error>>()?);
            }
            Some(_) => return Err(Error::Type { field: "annotations", wanted: "a map" }),
        }
        if let Some(maintainers) = list(map, "maintainers")? {
            self.maintainers = maintainers.iter().map(Maintainer::read).collect::<Result<_, _>>()?;
        }
        if let Some(dependencies) = list(map, "dependencies")? {
            self.dependencies = dependencies.iter().map(Dependency::read).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Removes unprintable characters, then checks every field. Errors: the first field that is
    /// missing or not allowed.
    pub(super) fn validate(&mut self) -> Result<(), Error> {
        for text in [
            &mut self.name,
            &mut self.description,
            &mut self.home,
            &mut self.icon,
            &mut self.condition,
            &mut self.tags,
            &mut self.app_version,
            &mut self.kube_version,
        ] {
            sanitize(text);
        }
        self.sources.iter_mut().chain(&mut self.keywords).for_each(sanitize);
        for (field, text) in
            [("apiVersion", &self.api_version), ("name", &self.name), ("version", &self.version)]
        {
            if text.is_empty() {
                return Err(Error::Required(field));
            }
        }
        let invalid = |field, value: &str| Error::Invalid { field, value: value.to_owned() };
        if matches!(self.name.as_str(), "." | "..") || self.name.contains('/') {
            return Err(invalid("name", &self.name));
        }
        semver::Version::parse(&self.version).map_err(|_| invalid("version", &self.version))?;
        if !matches!(self.kind.as_str(), "" | "application" | "library") {
            return Err(invalid("type", &self.kind));
        }
        for maintainer in &mut self.maintainers {
            [&mut maintainer.name, &mut maintainer.email, &mut maintainer.url].into_iter().for_each(sanitize);
        }
        self.validate_dependencies()
    }

    fn validate_dependencies(&mut self) -> Result<(), Error> {
        let mut names = SortedSet::new();
        for dependency in &mut self.dependencies {
            let d = dependency;
            for text in [&mut d.name, &mut d.version, &mut d.repository, &mut d.condition] {
                sanitize(text);
            }
            d.tags.iter_mut().for_each(sanitize);
            if !d.alias.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')) {
                return Err(Error::Alias(d.name.clone()));
            }
            let key = if d.alias.is_empty() { &d.name } else { &d.alias };
            if !names.insert(key.clone()) {
                return Err(Error::Duplicate(key.clone()));
            }
        }
        Ok(())
    }
}

impl Maintainer {
    fn read(value: &Value) -> Result<Self, Error> {
        let Value::Object(map) = value else {
            return Err(Error::Type { field: "maintainers", wanted: "a list of maps" });
        };
        let mut maintainer = Self::default();
        read(map, "name", &mut maintainer.name)?;
        read(map, "email", &mut maintainer.email)?;
        read(map, "url", &mut maintainer.url)?;
        Ok(maintainer)
    }
}

impl Dependency {
    fn read(value: &Value) -> Result<Self, Error> {
        let Value::Object(map) = value else {
            return Err(Error::Type { field: "dependencies", wanted: "a list of maps" });
        };
        let mut dependency = Self::default();
        for (field, target) in [
            ("name", &mut dependency.name),
            ("version", &mut dependency.version),
            ("repository", &mut dependency.repository),
            ("condition", &mut dependency.condition),
            ("alias", &mut dependency.alias),
        ] {
            read(map, field, target)?;
        }
        if let Some(tags) = list(map, "tags")? {
            dependency.tags = texts(tags, "tags")?;
        }
        if let Some(imports) = list(map, "import-values")? {
            dependency.import_values = imports.clone();
        }
        dependency.enabled = map.get("enabled") == Some(&Value::Bool(true));
        Ok(dependency)
    }
}

fn read(map: &Map<String, Value>, field: &'static str, target: &mut String) -> Result<(), Error> {
    if let Some(value) = map.get(field).filter(|v| !v.is_null()) {
        *target = text(value, field)?;
    }
    Ok(())
}

fn list<'a>(map: &'a Map<String, Value>, field: &'static str) -> Result<Option<&'a Vec<Value>>, Error> {
    match map.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(_) => Err(Error::Type { field, wanted: "a list" }),
    }
}

fn texts(list: &[Value], field: &'static str) -> Result<Vec<String>, Error> {
    list.iter().map(|v| text(v, field)).collect()
}

/// Numbers and booleans count as text; a fraction is converted to 32 bits, as upstream.
fn text(value: &Value, field: &'static str) -> Result<String, Error> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Bool(b) => Ok(b.to_string()),
        #[allow(clippy::cast_possible_truncation)] // as upstream
        Value::Number(n) if n.is_f64() => Ok(number::general32(n.as_f64().unwrap_or(0.0) as f32)),
        Value::Number(n) => Ok(n.to_string()),
        _ => Err(Error::Type { field, wanted: "a text" }),
    }
}

/// White space becomes blanks, and unprintable characters are removed.
fn sanitize(text: &mut String) {
    if text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return;
    }
    *text = text
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !c.is_control() && *c != '\u{feff}')
        .collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::yaml;

    fn read(text: &str) -> Result<Metadata, Error> {
        let mut metadata = Metadata::default();
        metadata.merge(&yaml::parse(text).unwrap())?;
        metadata.validate()?;
        Ok(metadata)
    }

    #[test]
    fn fields_are_read_as_text() {
        let text = "apiVersion: v2\nname: a\nversion: 1.10\nappVersion: 1.10\ndescription: \"x\\ty\"\n\
                    keywords: [a, 1, yes]\nannotations: {a: 1.5}\ndeprecated: true\nicon: null\n\
                    dependencies: [{name: b, version: 1, tags: [x]}]\nmaintainers: [{name: m}]\n";
        let m = read(text).unwrap();
        assert_eq!(
            (m.version.as_str(), m.app_version.as_str(), m.description.as_str()),
            ("1.1", "1.1", "x y")
        );
        assert_eq!(m.keywords, ["a", "1", "true"]);
        assert_eq!(m.annotations.unwrap()["a"], "1.5");
        let bare = |more: &str| {
            read(&format!("apiVersion: v2\nname: a\nversion: 1.0.0\n{more}")).unwrap().annotations
        };
        assert_eq!((bare(""), bare("annotations: null")), (None, None));
        assert_eq!(bare("annotations: {}"), Some(SortedMap::new()));
        assert_eq!((m.dependencies[0].version.as_str(), m.maintainers[0].name.as_str()), ("1", "m"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, message) in [
            ("name: a\nversion: 1", "chart.metadata.apiVersion is required"),
            ("apiVersion: v1\nversion: 1", "chart.metadata.name is required"),
            ("apiVersion: v1\nname: a", "chart.metadata.version is required"),
            ("apiVersion: v1\nname: a/b\nversion: 1", "chart.metadata.name \"a/b\" is invalid"),
            ("apiVersion: v1\nname: ..\nversion: 1", "chart.metadata.name \"..\" is not allowed"),
            ("apiVersion: v1\nname: a\nversion: x", "chart.metadata.version \"x\" is invalid"),
            (
                "apiVersion: v1\nname: a\nversion: 1\ntype: x",
                "chart.metadata.type must be application or library",
            ),
            ("apiVersion: v1\nname: [a]\nversion: 1", "chart.metadata.name must be a text"),
            ("- a", "chart.metadata. must be a map"),
            (
                "apiVersion: v1\nname: a\nversion: 1\ndependencies: [{name: b}, {name: c, alias: b}]",
                "more than one dependency with name or alias \"b\"",
            ),
            (
                "apiVersion: v1\nname: a\nversion: 1\ndependencies: [{name: b, alias: b.c}]",
                "dependency \"b\" has disallowed characters in the alias",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), format!("validation: {message}"), "{text}");
        }
    }
}
