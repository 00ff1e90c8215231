//! A checker of the data of Shoots, over all seeds of a test. The sites tell it when data begin, and when an API server serves
//! them. Data of one Shoot are a chain: each link begins with a snapshot of the one before it. Four things are problems:
//!
//! - two API servers serve data of one Shoot at the same time;
//! - data begin empty, or with those of another cluster, although the Shoot has data already;
//! - a link has changes after the snapshot with which the next one began: they are lost;
//! - an object has another UID or revision in the next link, and nobody has changed it there.
//!
//! The storages stay readable after their clusters have ended, so that the whole chain is compared at each look.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::buckets::lineage;
use crate::api::store::{Id, State, Store};
use crate::json::text;

/// Data in one place.
struct Link {
    /// `<seed>/<namespace>`
    place: String,
    /// The UID of the Shoot.
    owner: String,
    lineage: String,
    store: Store,
    /// The revision of the snapshot with which it began; none if it began empty.
    from: Option<u64>,
    /// Its own revision at that time.
    base: u64,
    is_serving: bool,
    has_served: bool,
}

#[derive(Default)]
struct Book {
    links: Vec<Link>,
    problems: Vec<String>,
}

/// See the module. Cheap to clone; clones share the book.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Book>>);

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Data begin. `from`: the revision of their snapshot.
    pub fn begin(&self, owner: &str, place: &str, store: &Store, from: Option<u64>) -> Tenure {
        let mut book = self.book();
        let lineage = lineage(store);
        let before = book.links.iter().rfind(|link| link.owner == owner && link.has_served);
        let problem = before.filter(|before| before.lineage != lineage).map(|before| {
            let how =
                from.map_or("empty".to_owned(), |at| format!("with a foreign snapshot of revision {at}"));
            format!("{place} begins {how}, although {} has data of the same Shoot", before.place)
        });
        book.problems.extend(problem);
        let base = store.read().revision;
        book.links.push(Link {
            place: place.to_owned(),
            owner: owner.to_owned(),
            lineage,
            store: store.clone(),
            from,
            base,
            is_serving: false,
            has_served: false,
        });
        Tenure { ledger: self.clone(), index: book.links.len() - 1 }
    }

    /// Everything that is wrong, now or before. Empty: all is well.
    pub fn problems(&self) -> Vec<String> {
        let book = self.book();
        let mut all = book.problems.clone();
        let owners: BTreeSet<&str> = book.links.iter().map(|link| link.owner.as_str()).collect();
        for owner in owners {
            let chain: Vec<&Link> =
                book.links.iter().filter(|link| link.owner == owner && link.has_served).collect();
            let pairs = chain.iter().zip(chain.iter().skip(1));
            all.extend(pairs.flat_map(|(before, after)| compare(before, after)));
        }
        all.dedup();
        all
    }

    /// The places in which an API server serves data of a Shoot.
    pub fn serving(&self, owner: &str) -> Vec<String> {
        let book = self.book();
        let serving = book.links.iter().filter(|link| link.owner == owner && link.is_serving);
        serving.map(|link| link.place.clone()).collect()
    }
}

/// The right to serve data of the ledger. It ends when dropped.
pub struct Tenure {
    ledger: Ledger,
    index: usize,
}

impl Tenure {
    /// An API server begins to serve. Call it before the server listens.
    pub fn serves(&self) {
        let mut book = self.ledger.book();
        let (place, owner) = (book.links[self.index].place.clone(), book.links[self.index].owner.clone());
        let others = book
            .links
            .iter()
            .enumerate()
            .filter(|(index, link)| *index != self.index && link.owner == owner && link.is_serving);
        let problems: Vec<String> = others
            .map(|(_, link)| {
                format!("{place} and {} serve data of the same Shoot at the same time", link.place)
            })
            .collect();
        book.problems.extend(problems);
        (book.links[self.index].is_serving, book.links[self.index].has_served) = (true, true);
    }

    /// It serves no longer. Call it after the last request has ended.
    pub fn stops(&self) {
        self.ledger.book().links[self.index].is_serving = false;
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        self.stops();
    }
}

/// What makes an object the same.
fn identity(object: &Value) -> (&str, u64) {
    (text(object, "/metadata/uid"), text(object, "/metadata/resourceVersion").parse().unwrap_or_default())
}

/// The places of objects that were written after a revision.
fn written(state: &State, since: u64) -> BTreeSet<&Id> {
    state.since(since.max(state.compacted)).map(|change| &change.id).collect()
}

/// Where a link does not go on with what the one before it had.
fn compare(before: &Link, after: &Link) -> Vec<String> {
    let Some(from) = after.from.filter(|_| before.lineage == after.lineage) else { return Vec::new() };
    let (old, new) = (before.store.read(), after.store.read());
    if old.revision > from {
        let lost: Vec<String> = old
            .since(from.max(old.compacted))
            .map(|change| format!("{} {}", change.id.plural, change.id.name))
            .collect();
        return vec![format!(
            "{} begins with revision {from} of {}, which has gone on to {}: lost are {lost:?}",
            after.place, before.place, old.revision
        )];
    }
    let changed = written(&new, after.base);
    let places: BTreeSet<&Id> = old.objects.keys().chain(new.objects.keys()).collect();
    let of = |state: &State, id: &Id| {
        state.objects.get(id).map(|object| {
            let (uid, revision) = identity(object);
            (uid.to_owned(), revision)
        })
    };
    let differ = |id: &&&Id| !changed.contains(**id) && of(&old, id) != of(&new, id);
    let differing: Vec<String> =
        places.iter().filter(differ).map(|id| format!("{} {}", id.plural, id.name)).collect();
    // A storage that has forgotten its log cannot tell what was changed since.
    if differing.is_empty() || new.compacted > after.base {
        return Vec::new();
    }
    vec![format!("{} does not have what {} had: {differing:?}", after.place, before.place)]
}

#[cfg(test)]
mod tests {
    use gardenlet::base::clock::Clock;
    use serde_json::json;

    use super::super::buckets::Snapshot;
    use super::*;
    use crate::{Options, TestCluster};

    fn cluster(name: &str) -> TestCluster {
        TestCluster::start(Options {
            share: crate::controllers::Share::none(),
            ..Options::new(name, &Clock::system())
        })
    }

    fn note(cluster: &TestCluster, name: &str) {
        cluster.create("v1", "configmaps", &json!({"metadata": {"name": name, "namespace": "default"}}));
    }

    #[test]
    fn a_chain_of_data_has_no_problems() {
        let (ledger, one, two) = (Ledger::default(), cluster("one"), cluster("two"));
        let first = ledger.begin("u", "a/s", one.store(), None);
        first.serves();
        note(&one, "kept");
        first.stops();
        let snapshot = Snapshot::of(one.store(), 1, true);
        snapshot.load_into(two.store());
        let second = ledger.begin("u", "b/s", two.store(), Some(snapshot.revision));
        second.serves();
        note(&two, "new");
        two.delete("", "configmaps", "default", "kept");
        assert_eq!(ledger.problems(), [""; 0]);
        assert_eq!(ledger.serving("u"), ["b/s"]);
        drop(second);
        assert_eq!(ledger.serving("u"), [""; 0]);
    }

    /// One case for each kind of problem.
    #[test]
    fn problems_are_named() {
        let begun = |cluster: &TestCluster| {
            let ledger = Ledger::default();
            let first = ledger.begin("u", "a/s", cluster.store(), None);
            first.serves();
            (ledger, first)
        };
        let only = |ledger: &Ledger, words: &str| {
            let problems = ledger.problems();
            assert!(problems.len() == 1 && problems[0].contains(words), "{words}: {problems:?}");
        };
        let (one, two) = (cluster("one"), cluster("two"));
        let (ledger, first) = begun(&one);
        first.stops();
        let _empty = ledger.begin("u", "b/s", two.store(), None);
        only(&ledger, "b/s begins empty, although a/s has data");
        let _other = ledger.begin("other", "b/t", two.store(), None);
        only(&ledger, "b/s begins empty");

        let (ledger, first) = begun(&one);
        let snapshot = Snapshot::of(one.store(), 1, true);
        snapshot.load_into(two.store());
        let second = ledger.begin("u", "b/s", two.store(), Some(snapshot.revision));
        second.serves();
        only(&ledger, "b/s and a/s serve data of the same Shoot");
        drop((first, second));

        let (ledger, first) = begun(&one);
        let second = ledger.begin("u", "b/s", two.store(), Some(snapshot.revision));
        first.stops();
        second.serves();
        assert_eq!(ledger.problems(), [""; 0]);
        let id = Id::new("", "namespaces", "", "kube-public");
        let same = two.store().read().objects[&id].clone();
        let mut other = (*same).clone();
        other["metadata"]["uid"] = "x".into();
        two.store().write(|state| state.objects.insert(id.clone(), Arc::new(other)));
        only(&ledger, "b/s does not have what a/s had: [\"namespaces kube-public\"]");
        two.store().write(|state| state.objects.insert(id, same));
        note(&one, "late");
        only(&ledger, "lost are [\"configmaps late\"]");
    }
}
