//! The API without connections: the effects of requests on the storage.

pub mod failure;
pub mod selector;

pub mod addresses;
pub mod builtin;
pub mod columns;
pub mod events;
pub mod kinds;
pub mod rules;
pub mod schema;

pub mod store;
pub mod table;

pub mod options;
pub mod patch;
pub mod protection;
pub mod read;
pub mod remove;
pub mod validate;
pub mod write;

pub mod authn;
pub mod crd;
pub mod discovery;
pub mod eviction;
pub mod openapi;
pub mod rbac;
pub mod request;
pub mod review;
pub mod subresource;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gardenlet::base::clock::Clock;
use serde_json::Value;

use self::failure::Failure;
use self::kinds::Kind;
use self::store::{State, Store};
use crate::encoding::rfc3339;

/// The user of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
}

impl User {
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|g| (*g).to_owned()).collect();
        Self { name: name.to_owned(), uid: String::new(), groups }
    }

    /// The user of the server's own controllers.
    pub fn system() -> Self {
        Self::new("system:apiserver", &["system:masters", "system:authenticated"])
    }

    pub fn anonymous() -> Self {
        Self::new("system:anonymous", &["system:unauthenticated"])
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// What a request is about.
#[derive(Clone, Debug)]
pub struct Target {
    pub kind: Arc<Kind>,
    /// The version of the path, in which objects are received and sent.
    pub version: String,
    /// Empty: cluster-scoped, or all namespaces.
    pub namespace: String,
    /// Empty: the collection.
    pub name: String,
    pub subresource: String,
}

impl Target {
    /// An object (or, without a name, a collection) in the storage version of its kind.
    pub fn new(kind: Arc<Kind>, namespace: &str, name: &str) -> Self {
        let version = kind.storage.clone();
        let own = str::to_owned;
        Self { kind, version, namespace: own(namespace), name: own(name), subresource: String::new() }
    }

    #[must_use]
    pub fn subresource(mut self, subresource: &str) -> Self {
        subresource.clone_into(&mut self.subresource);
        self
    }

    fn id(&self) -> store::Id {
        store::Id::new(self.kind.home(), &self.kind.plural, &self.namespace, &self.name)
    }

    fn not_found(&self) -> Failure {
        Failure::not_found(&self.kind.group, &self.kind.plural, &self.name)
    }

    pub fn invalid(&self, field: &str, why: &str) -> Failure {
        Failure::invalid(&self.kind.group, &self.kind.kind, &self.name, field, why)
    }
}

/// The API over one storage. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    pub store: Store,
    pub clock: Clock,
    /// Whether a namespaced object needs its namespace. An aggregated server leaves that to the server in front.
    pub namespaces: bool,
    /// The time from the creation of a CustomResourceDefinition until its kind is served.
    pub crd_delay: Duration,
    /// Decides whether an object may be written.
    pub admission: Option<Admission>,
    /// Writes are answered and then forgotten.
    pub is_dry: bool,
    /// Unknown fields are refused.
    pub is_strict: bool,
    /// What the answer warns of.
    pub warnings: Arc<Mutex<Vec<String>>>,
}

/// What is about to happen to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// A write as a validating webhook sees it.
pub struct Review<'a> {
    pub state: &'a State,
    pub target: &'a Target,
    /// The new object. When it is changed or deleted, the old one.
    pub object: &'a Value,
    pub user: &'a User,
    pub operation: Operation,
    /// The server's time, RFC 3339.
    pub now: &'a str,
}

/// Validating webhooks.
pub type Admission = Arc<dyn Fn(&Review<'_>) -> Result<(), Failure> + Send + Sync>;

/// Answers a POST to a subresource that is no part of its object.
pub type Connect = Box<dyn Fn(&Api, &Target, Value, &User) -> Result<Value, Failure> + Send + Sync>;

impl Api {
    /// The same API for a request with these parameters `dryRun` and `fieldValidation`.
    #[must_use]
    pub fn asked(&self, dry_run: Option<&str>, validation: Option<&str>) -> Self {
        Self {
            is_dry: dry_run == Some("All"),
            is_strict: validation == Some("Strict"),
            warnings: Arc::default(),
            ..self.clone()
        }
    }

    /// Runs a change of objects, and takes it back at once if it was only tried.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        if !self.is_dry {
            return self.store.write(change);
        }
        // Nobody else sees it: the lock is held until everything is as it was.
        let mut state = self.store.read();
        let before = state.revision;
        let result = change(&mut state);
        state.restore(before);
        result
    }

    /// Asks the webhooks.
    fn admit(&self, review: &Review<'_>) -> Result<(), Failure> {
        self.admission.as_ref().map_or(Ok(()), |admission| admission(review))
    }

    /// The time as objects contain it.
    pub fn now(&self) -> String {
        rfc3339(self.clock.now())
    }

    /// The kind of a group, by its plural.
    pub fn kind(&self, group: &str, plural: &str) -> Option<Arc<Kind>> {
        self.store.read().kinds.find(group, plural)
    }

    /// An object, in the version of the target.
    pub fn get(&self, target: &Target) -> Result<Value, Failure> {
        let state = self.store.read();
        let object = state.objects.get(&target.id()).ok_or_else(|| target.not_found())?;
        Ok(read::present(&target.kind, &target.version, object))
    }
}
