//! The identity of objects: without versions, with equivalent kinds, and the list in the status.

use std::fmt;

use serde_json::Value;

use super::decode::Scope;
use super::names;
use super::object::{annotations, group_of, labels, text};
use crate::api::resources::{GroupKind, ObjectReference};
use crate::base::sorted::{SortedMap, SortedSet};

/// The identity of an object, regardless of its version. An empty namespace counts as `default`, because it may have
/// been unknown whether the kind is namespaced when an object was recorded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Identity {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.group, self.kind, self.namespace, self.name)
    }
}

impl Identity {
    /// The identity of a recorded object.
    pub(super) fn of(reference: &ObjectReference) -> Self {
        Self::new(&reference.api_version, &reference.kind, &reference.namespace, &reference.name)
    }

    /// The identity of an object.
    pub(super) fn of_object(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        Self::new(text(&object["apiVersion"]), text(&object["kind"]), namespace, name)
    }

    fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group_of(api_version).to_owned(),
            kind: kind.to_owned(),
            namespace: if namespace.is_empty() { "default".to_owned() } else { namespace.to_owned() },
            name: name.to_owned(),
        }
    }
}

/// An object for people, with its version.
pub(super) fn describe(reference: &ObjectReference) -> String {
    let Identity { kind, namespace, name, .. } = Identity::of(reference);
    format!("{}/{kind}/{namespace}/{name}", reference.api_version)
}

/// The record of a desired object in the status: its own labels, the injected ones, and its manager.
pub(super) fn reference(object: &Value, inject: &SortedMap<String, String>) -> ObjectReference {
    let mut all = labels(object);
    all.extend(inject.clone());
    all.insert(names::MANAGED_BY.to_owned(), names::MANAGED_BY_VALUE.to_owned());
    let metadata = &object["metadata"];
    ObjectReference {
        api_version: text(&object["apiVersion"]).to_owned(),
        kind: text(&object["kind"]).to_owned(),
        namespace: text(&metadata["namespace"]).to_owned(),
        name: text(&metadata["name"]).to_owned(),
        labels: all,
        annotations: annotations(object),
    }
}

/// The approximate size of a reference in the status, in bytes.
pub(super) fn size(reference: &ObjectReference) -> usize {
    let ObjectReference { api_version, kind, namespace, name, labels, annotations } = reference;
    let texts = labels.iter().chain(annotations).map(|(key, value)| key.len() + value.len() + 6);
    50 + api_version.len() + kind.len() + namespace.len() + name.len() + texts.sum::<usize>()
}

/// The number of values of a reference in the status, including keys.
pub(super) fn nodes(reference: &ObjectReference) -> usize {
    13 + 2 * (reference.labels.len() + reference.annotations.len())
}

/// The scope of a kind according to recorded objects.
pub(super) fn recorded_scope(references: &[ObjectReference], api_version: &str, kind: &str) -> Scope {
    let is_of_kind = |r: &&ObjectReference| r.api_version == api_version && r.kind == kind;
    match references.iter().find(is_of_kind) {
        Some(reference) if reference.namespace.is_empty() => Scope::Cluster,
        Some(_) => Scope::Namespaced,
        None => Scope::Unknown,
    }
}

/// Removes the namespace from objects of cluster-scoped kinds.
pub(super) fn with_scopes(references: &mut [ObjectReference], scope_of: &mut dyn FnMut(&str, &str) -> Scope) {
    for reference in &mut *references {
        let has_namespace = !reference.namespace.is_empty();
        if has_namespace && scope_of(&reference.api_version, &reference.kind) == Scope::Cluster {
            reference.namespace.clear();
        }
    }
    sort(references);
}

/// Sorts references in the order of the status.
pub(super) fn sort(references: &mut [ObjectReference]) {
    references.sort_by_cached_key(|r| Identity::of(r).to_string());
}

/// Sets of equivalent kinds. Sets with a common member are joined.
#[derive(Debug)]
pub(super) struct Equivalences(Vec<SortedSet<GroupKind>>);

impl Equivalences {
    /// The sets that every applier knows, and those of one ManagedResource.
    pub(super) fn new(more: &[Vec<GroupKind>]) -> Self {
        let pair = |a: &str, b: &str, kind: &str| {
            [a, b].map(|group| GroupKind { group: group.to_owned(), kind: kind.to_owned() }).to_vec()
        };
        let workloads = ["Deployment", "DaemonSet", "ReplicaSet", "StatefulSet"];
        let networking = ["Ingress", "NetworkPolicy"];
        let mut all = Self(Vec::new());
        workloads.iter().for_each(|kind| all.add(&pair("extensions", "apps", kind)));
        networking.iter().for_each(|kind| all.add(&pair("extensions", "networking.k8s.io", kind)));
        more.iter().for_each(|set| all.add(set));
        all
    }

    fn add(&mut self, set: &[GroupKind]) {
        let mut union: SortedSet<GroupKind> = set.iter().cloned().collect();
        self.0.retain(|known| {
            let apart = known.is_disjoint(&union);
            if !apart {
                union.extend(known.iter().cloned());
            }
            apart
        });
        self.0.push(union);
    }

    /// The same identity for all equivalent objects.
    pub(super) fn canonical(&self, identity: Identity) -> Identity {
        let kind = GroupKind { group: identity.group.clone(), kind: identity.kind.clone() };
        match self.0.iter().find(|set| set.contains(&kind)).and_then(SortedSet::first) {
            Some(first) => Identity { group: first.group.clone(), kind: first.kind.clone(), ..identity },
            None => identity,
        }
    }
}

/// Recorded objects, indexed by identity.
#[derive(Debug)]
pub(super) struct Recorded<'a> {
    equivalences: &'a Equivalences,
    index: SortedMap<Identity, &'a ObjectReference>,
}

impl<'a> Recorded<'a> {
    /// The objects that the status names.
    pub(super) fn new(references: &'a [ObjectReference], equivalences: &'a Equivalences) -> Self {
        let key = |r: &'a ObjectReference| (equivalences.canonical(Identity::of(r)), r);
        Self { equivalences, index: references.iter().map(key).collect() }
    }

    /// The record of an object.
    pub(super) fn find(&self, identity: Identity) -> Option<&'a ObjectReference> {
        self.index.get(&self.equivalences.canonical(identity)).copied()
    }
}

/// The objects of `old` that are not in `new`: they left the set.
pub(super) fn removed(
    old: &[ObjectReference],
    new: &[ObjectReference],
    equivalences: &Equivalences,
) -> Vec<ObjectReference> {
    let new = Recorded::new(new, equivalences);
    old.iter().filter(|r| new.find(Identity::of(r)).is_none()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// From `apiVersion Kind namespace/name`.
    fn object(text: &str) -> ObjectReference {
        let (api_version, rest) = text.split_once(' ').unwrap();
        let (kind, place) = rest.split_once(' ').unwrap();
        let (namespace, name) = place.split_once('/').unwrap();
        ObjectReference {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..ObjectReference::default()
        }
    }

    #[test]
    fn which_objects_left_the_set() {
        let more = [vec![
            GroupKind { group: "a".into(), kind: "K".into() },
            GroupKind { group: "b".into(), kind: "L".into() },
        ]];
        let table = [
            ("same", "v1 Secret n/x", "v1 Secret n/x", false),
            ("other version", "apps/v1beta1 Deployment n/x", "apps/v1 Deployment n/x", false),
            ("built in", "extensions/v1beta1 Deployment n/x", "apps/v1 Deployment n/x", false),
            ("built in", "extensions/v1 Ingress n/x", "networking.k8s.io/v1 Ingress n/x", false),
            ("not built in", "extensions/v1 Job n/x", "batch/v1 Job n/x", true),
            ("own set", "a/v1 K n/x", "b/v2 L n/x", false),
            ("kind outside the set", "a/v1 L n/x", "b/v2 L n/x", true),
            ("other name", "v1 Secret n/x", "v1 Secret n/y", true),
            ("other namespace", "v1 Secret n/x", "v1 Secret m/x", true),
            ("no namespace", "v1 Secret /x", "v1 Secret default/x", false),
        ];
        let equivalences = Equivalences::new(&more);
        for (name, old, new, expected) in table {
            let gone = removed(&[object(old)], &[object(new)], &equivalences);
            assert_eq!(!gone.is_empty(), expected, "{name}: {old}");
        }
    }

    #[test]
    fn records_show_the_scope_of_a_kind() {
        let recorded = [object("v1 Secret n/x"), object("rbac/v1 ClusterRole /x")];
        let table = [
            ("v1", "Secret", Scope::Namespaced),
            ("rbac/v1", "ClusterRole", Scope::Cluster),
            ("rbac/v2", "ClusterRole", Scope::Unknown),
            ("v1", "ConfigMap", Scope::Unknown),
        ];
        for (api_version, kind, expected) in table {
            assert_eq!(recorded_scope(&recorded, api_version, kind), expected, "{kind}");
        }
    }

    #[test]
    fn a_kind_that_was_unknown_at_first_is_recorded_with_its_scope() {
        let mut references = [object("z/v1 Hook n/x"), object("v1 Secret n/x"), object("v1 Other n/x")];
        with_scopes(&mut references, &mut |_, kind| match kind {
            "Hook" => Scope::Cluster,
            "Secret" => Scope::Namespaced,
            _ => Scope::Unknown,
        });
        assert_eq!(references, [object("v1 Other n/x"), object("v1 Secret n/x"), object("z/v1 Hook /x")]);
    }

    #[test]
    fn sets_with_a_common_member_are_one() {
        let kind = |group: &str| GroupKind { group: group.into(), kind: "Deployment".into() };
        let more = [
            vec![kind("a"), kind("b")],
            vec![kind("c"), kind("d")],
            vec![kind("b"), kind("c"), kind("apps")],
        ];
        let equivalences = Equivalences::new(&more);
        let ids = ["a", "b", "c", "d", "apps", "extensions"]
            .map(|g| equivalences.canonical(Identity::new(&format!("{g}/v1"), "Deployment", "n", "x")));
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }

    #[test]
    fn the_status_is_sorted_by_text() {
        let mut list = [
            object("v1 Secret /b"),
            object("apps/v1 Deployment z/a"),
            object("v1 ConfigMap e/a"),
            object("v1 ConfigMap /b"),
        ];
        sort(&mut list);
        let got: Vec<_> = list.iter().map(|r| Identity::of(r).to_string()).collect();
        assert_eq!(
            got,
            ["/ConfigMap/default/b", "/ConfigMap/e/a", "/Secret/default/b", "apps/Deployment/z/a"]
        );
    }

    #[test]
    fn a_reference_has_all_labels() {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": "x", "namespace": "n", "labels": {"a": "1", "b": "1"}, "annotations": {"c": "1"}}});
        let inject = SortedMap::from([("b".to_owned(), "2".to_owned())]);
        let expected = json!({"apiVersion": "v1", "kind": "Secret", "name": "x", "namespace": "n",
            "labels": {"a": "1", "b": "2", "resources.gardener.cloud/managed-by": "gardener"}, "annotations": {"c": "1"}});
        assert_eq!(serde_json::to_value(reference(&object, &inject)).unwrap(), expected);
    }
}
