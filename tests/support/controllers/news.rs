//! Which parts of the controllers' work a series of changes may concern.

use serde_json::Value;

use crate::api::store::{Change, State};
use crate::json::{list, text};

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::News;
    use crate::api::kinds::Kinds;
    use crate::api::store::{Change, Id, State, Store};

    #[test]
    fn a_change_concerns_the_parts_that_its_object_belongs_to() {
        let plain = || json!({"metadata": {"name": "a"}});
        let owned = || json!({"metadata": {"name": "a", "ownerReferences": [{"uid": "u"}]}});
        let ending = || json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let none = News::default();
        let (owners, workloads) = (News { owners: true, ..none }, News { workloads: true, ..none });
        let namespaces = News { namespaces: true, ..none };
        for (group, plural, name, before, after, deleted, expected) in [
            ("coordination.k8s.io", "leases", "a", Some(plain()), plain(), false, none),
            ("", "secrets", "a", None, plain(), false, none),
            ("", "secrets", "a", None, owned(), false, owners),
            ("", "secrets", "a", Some(owned()), owned(), false, none),
            ("", "secrets", "a", Some(owned()), plain(), false, owners),
            ("", "secrets", "a", Some(plain()), ending(), false, owners),
            ("", "secrets", "a", Some(plain()), plain(), true, owners),
            ("", "pods", "a", None, plain(), false, workloads),
            ("apps", "deployments", "a", None, plain(), false, workloads),
            ("batch", "jobs", "a", None, plain(), false, workloads),
            ("batch", "cronjobs", "a", None, plain(), false, none),
            ("", "namespaces", "a", None, plain(), false, namespaces),
            ("", "configmaps", "a", None, plain(), false, none),
            ("", "configmaps", "kube-root-ca.crt", None, plain(), false, namespaces),
            ("", "serviceaccounts", "default", None, plain(), false, namespaces),
            (
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "a",
                None,
                plain(),
                false,
                News { definitions: true, ..none },
            ),
        ] {
            let id = Id::new(group, plural, "", name);
            let before = before.map(Arc::new);
            let change = Change { revision: 2, id: id.clone(), before, after: Arc::new(after), deleted };
            assert_eq!(News::of(&change), expected, "{change:?}");
        }
    }

    #[test]
    fn everything_is_news_if_the_log_lacks_changes_or_somebody_asks() {
        let store = Store::new(Kinds::new([]), 10);
        let news = |seen| {
            let now = store.mark();
            News::between(&store.read(), seen, now)
        };
        let id = Id::new("", "secrets", "", "a");
        store.write(|state| drop(state.put(id.clone(), json!({"metadata": {}}))));
        let seen = store.mark();
        assert_eq!(news(seen), News::default());
        store.write(|state| drop(state.put(Id::new("", "pods", "", "p"), json!({"metadata": {}}))));
        let workloads = News { workloads: true, ..News::default() };
        assert_eq!(news(seen), workloads);
        store.write(State::compact);
        assert!(news(seen).is_all());
        let seen = store.mark();
        store.wake();
        assert!(news(seen).is_all());
        let seen = store.mark();
        store.write(|state| drop(state.put(id, json!({"metadata": {}}))));
        let (later, before) = (store.mark(), seen.0);
        store.write(|state| state.restore(before));
        assert!(news(later).is_all());
    }
}
