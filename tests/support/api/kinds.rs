//! Which kinds are served, in which versions, and how each of them behaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::rules::{Plain, Rules};
use super::schema::Schema;
use super::table::Column;

/// A kind that is served.
#[derive(Clone)]
pub struct Kind {
    pub group: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub short: Vec<String>,
    pub namespaced: bool,
    /// The preferred one first.
    pub versions: Vec<String>,
    /// The version in which objects are stored.
    pub storage: String,
    pub status: bool,
    /// A write of the status also changes labels, annotations, finalizers and owners.
    pub status_metadata: bool,
    pub scale: bool,
    /// Subresources beyond those, whose answers are made by [`super::Connect`]: name and kind of the body.
    pub connects: &'static [(&'static str, &'static str)],
    /// Whether the object is bound to another by a subresource of its own.
    pub binding: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub generation: bool,
    /// PUT must name the resourceVersion that it replaces.
    pub conditional: bool,
    /// PUT of an object that does not exist creates it.
    pub put_creates: bool,
    /// The kind came from a CustomResourceDefinition.
    pub custom: bool,
    /// The generation of that definition.
    pub definition: i64,
    /// Schema per version, of custom resources.
    pub schemas: BTreeMap<String, Arc<Schema>>,
    /// The group under which objects are stored, if it is another one.
    pub stored_in: Option<&'static str>,
    /// What `kubectl get` shows, of kinds that are compiled in.
    pub columns: &'static [Column],
    /// The columns per version, of custom resources.
    pub printed: BTreeMap<String, Vec<Value>>,
    /// Whether it belongs to `kubectl get all`.
    pub is_in_all: bool,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`: name in the query, pointer into the object.
    pub fields: Vec<(String, &'static str)>,
    pub rules: Arc<dyn Rules>,
    /// Drops unknown fields, of kinds whose fields are known.
    pub shape: Option<Shape>,
}

/// Drops unknown fields of an object of an API version and kind, and returns them. A value of another type is an error.
pub type Shape = fn(&str, &str, &mut Value) -> Result<Vec<String>, String>;

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kind({} {})", self.group, self.kind)
    }
}

impl Kind {
    pub fn new(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short: Vec::new(),
            namespaced,
            versions: vec![version.to_owned()],
            storage: version.to_owned(),
            status: false,
            status_metadata: false,
            scale: false,
            connects: &[],
            binding: false,
            generation: false,
            conditional: false,
            put_creates: false,
            custom: false,
            definition: 0,
            schemas: BTreeMap::new(),
            stored_in: None,
            columns: &[],
            printed: BTreeMap::new(),
            is_in_all: false,
            fields: Vec::new(),
            rules: Arc::new(Plain),
            shape: None,
        }
    }

    /// Sets flags by their letters: s status, b binding, c scale, g generation, r resourceVersion required, u upsert
    /// by PUT.
    #[must_use]
    pub fn flags(mut self, letters: &str) -> Self {
        self.status = letters.contains('s');
        self.scale = letters.contains('c');
        self.binding = letters.contains('b');
        self.generation = letters.contains('g');
        self.conditional = letters.contains('r');
        self.put_creates = letters.contains('u');
        self
    }

    #[must_use]
    pub fn connects(mut self, connects: &'static [(&'static str, &'static str)]) -> Self {
        self.connects = connects;
        self
    }

    #[must_use]
    pub fn fields(mut self, fields: &[(&str, &'static str)]) -> Self {
        self.fields = fields.iter().map(|(name, pointer)| ((*name).to_owned(), *pointer)).collect();
        self
    }

    #[must_use]
    pub fn rules(mut self, rules: impl Rules + 'static) -> Self {
        self.rules = Arc::new(rules);
        self
    }

    #[must_use]
    pub fn short(mut self, names: &[&str]) -> Self {
        self.short = names.iter().map(|n| (*n).to_owned()).collect();
        self
    }

    /// What can be done with its objects, in the order of discovery.
    pub fn verbs(&self) -> Vec<&'static str> {
        let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        let is_namespace = self.group.is_empty() && self.kind == "Namespace";
        all.into_iter().filter(|verb| !is_namespace || *verb != "deletecollection").collect()
    }

    /// The group under which objects are stored.
    pub fn home(&self) -> &str {
        self.stored_in.unwrap_or(&self.group)
    }

    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// The pointer to the value of a field selector.
    pub fn field(&self, name: &str) -> Option<&'static str> {
        match name {
            "metadata.name" => Some("/metadata/name"),
            "metadata.namespace" if self.namespaced || !self.custom => Some("/metadata/namespace"),
            _ => self.fields.iter().find(|(n, _)| n == name).map(|(_, pointer)| *pointer),
        }
    }
}

/// All served kinds, by group and plural.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    kinds: BTreeMap<(String, String), Arc<Kind>>,
    /// Groups whose preferred version is not the one that sorts first.
    preferred: BTreeMap<String, String>,
}

impl Kinds {
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let mut all = Self::default();
        kinds.into_iter().for_each(|kind| all.add(kind));
        all
    }

    pub fn add(&mut self, kind: Kind) {
        self.kinds.insert((kind.group.clone(), kind.plural.clone()), Arc::new(kind));
    }

    /// Makes a version the preferred one of its group.
    pub fn prefer(&mut self, group: &str, version: &str) {
        self.preferred.insert(group.to_owned(), version.to_owned());
    }

    pub fn remove(&mut self, group: &str, plural: &str) {
        self.kinds.remove(&(group.to_owned(), plural.to_owned()));
    }

    pub fn find(&self, group: &str, plural: &str) -> Option<Arc<Kind>> {
        self.kinds.get(&(group.to_owned(), plural.to_owned())).cloned()
    }

    pub fn by_name(&self, group: &str, kind: &str) -> Option<Arc<Kind>> {
        self.kinds.values().find(|k| k.group == group && k.kind == kind).cloned()
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    /// The groups with their versions, preferred first; the core group is `""`.
    pub fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for kind in self.all() {
            let versions = groups.entry(kind.group.clone()).or_default();
            for version in &kind.versions {
                if !versions.contains(version) {
                    versions.push(version.clone());
                }
            }
        }
        for (group, versions) in &mut groups {
            let preferred = self.preferred.get(group);
            versions.sort_by_key(|v| (Some(v) != preferred, std::cmp::Reverse(rank(v))));
        }
        groups
    }
}

/// Orders versions as Kubernetes does: stable before beta before alpha, newer before older.
fn rank(version: &str) -> (u8, u32, u32) {
    let number = |text: &str| text.parse::<u32>().unwrap_or(0);
    let text = version.trim_start_matches('v');
    match (text.split_once("alpha"), text.split_once("beta")) {
        (Some((major, minor)), _) => (0, number(major), number(minor)),
        (_, Some((major, minor))) => (1, number(major), number(minor)),
        _ => (2, number(text), 0),
    }
}
