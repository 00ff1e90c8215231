//! Which parts of the controllers' work a series of changes may concern.

use serde_json::Value;

use crate::support::api::store::{Change, State};
use crate::support::json::{list, text};

/// The parts that have something to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// CustomResourceDefinitions.
    pub definitions: bool,
    /// Namespaces and their default objects.
    pub namespaces: bool,
    /// Objects that are deleted with their owners.
    pub owners: bool,
    /// Deployments, pods and the like.
    pub workloads: bool,
}

impl News {
    pub fn all() -> Self {
        Self { definitions: true, namespaces: true, owners: true, workloads: true }
    }

    pub fn is_all(self) -> bool {
        self == Self::all()
    }

    pub fn or(self, other: Self) -> Self {
        Self {
            definitions: self.definitions || other.definitions,
            namespaces: self.namespaces || other.namespaces,
            owners: self.owners || other.owners,
            workloads: self.workloads || other.workloads,
        }
    }

    /// The news between two marks of the storage (revision and wakes): everything if somebody asked for a look, or if
    /// the log does not have all changes.
    pub fn between(state: &State, seen: (u64, u64), now: (u64, u64)) -> Self {
        if seen.1 != now.1 || seen.0 > now.0 || seen.0 < state.compacted {
            return Self::all();
        }
        state.since(seen.0).map(Self::of).fold(Self::default(), Self::or)
    }

    fn of(change: &Change) -> Self {
        let (id, after) = (&change.id, &*change.after);
        Self {
            definitions: id.is_of("apiextensions.k8s.io", "customresourcedefinitions"),
            namespaces: id.is_of("", "namespaces")
                || id.is_of("", "configmaps") && id.name == "kube-root-ca.crt"
                || id.is_of("", "serviceaccounts") && id.name == "default",
            owners: change.deleted
                || !text(after, "/metadata/deletionTimestamp").is_empty()
                || owners(after) != change.before.as_deref().map_or(&[][..], owners),
            workloads: id.group == "apps"
                || id.is_of("batch", "jobs")
                || id.is_of("", "pods")
                || id.is_of("", "persistentvolumeclaims"),
        }
    }
}

fn owners(object: &Value) -> &[Value] {
    list(object, "/metadata/ownerReferences")
}
