//! Which applied objects exist, kind by kind: one list of metadata serves all ManagedResources of the seed. Workloads
//! are watched instead (`workload`), so such lists do not matter for them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::error::Error;
use super::names;
use super::object::hash;
use super::progress::is_read;
use super::session::Session;
use super::{ApplierContext, jittered};
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata, ObjectMeta};
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::kube::ListParams;
use crate::limits;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};

/// The shortest average time between the starts of two lists of any kinds.
const LIST_EVERY: Duration = Duration::from_secs(12);

/// The content of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Listing {
    listed_at: Mono,
    /// Hashes of the objects' keys.
    objects: HashSet<u64>,
    /// A hash of the objects of each ManagedResource, independent of their order.
    owners: SortedMap<Key, u64>,
}

impl Listing {
    /// `owner` is the ManagedResource of the object. `versions` includes the object's version, if its changes matter.
    fn add(&mut self, object: &ObjectMeta, owner: Option<Key>, versions: bool) {
        self.objects.insert(hash(&(&object.namespace, &object.name)));
        let version = if versions { object.resource_version.as_str() } else { "" };
        // No ManagedResource has a longer key.
        let is_real =
            |owner: &Key| owner.namespace.len().max(owner.name.len()) <= limits::SHOOT_NAME_BYTES_MAX;
        if let Some(owner) = owner.filter(is_real) {
            let sum = self.owners.entry(owner).or_default();
            *sum = sum.wrapping_add(hash(&(&object.namespace, &object.name, version)));
        }
    }

    /// ManagedResources whose objects have changed. A ManagedResource with its first objects is not included, because
    /// the applier has checked those.
    fn changed_since(&self, old: &Self) -> Vec<Key> {
        let is_other = |(owner, sum): &(&Key, &u64)| self.owners.get(owner) != Some(sum);
        old.owners.iter().filter(is_other).map(|(owner, _)| owner.clone()).collect()
    }
}

/// The last list of each kind.
#[derive(Debug, Default)]
pub(super) struct Inventory(Mutex<SortedMap<Key, Listing>>);

impl Inventory {
    fn lock(&self) -> MutexGuard<'_, SortedMap<Key, Listing>> {
        // One map, changed by single calls: a panic cannot leave it half changed.
        self.0.lock().ignore_poison()
    }

    /// Time between two lists of a kind, without the jitter.
    fn period(&self, usual: Duration) -> Duration {
        let kinds = u32::try_from(self.lock().len()).unwrap_or(u32::MAX);
        usual.max(LIST_EVERY.saturating_mul(kinds))
    }

    /// Whether a kind is listed periodically. An outdated list does not count, because it may not be renewed any more.
    pub(super) fn covers(&self, kind: &Key, now: Mono, usual: Duration) -> bool {
        let age_max = self.period(usual) * 2;
        self.lock().get(kind).is_some_and(|listing| now.saturating_sub(listing.listed_at) < age_max)
    }

    /// Whether the last list of a kind contained this object.
    pub(super) fn has(&self, kind: &Key, namespace: &str, name: &str) -> bool {
        self.lock().get(kind).is_some_and(|listing| listing.objects.contains(&hash(&(namespace, name))))
    }

    /// Stores a new list and returns the ManagedResources with changes. A kind without objects is forgotten.
    fn put(&self, kind: &Key, listing: Listing) -> Vec<Key> {
        let mut all = self.lock();
        let old = all.remove(kind);
        let changed = old.map(|old| listing.changed_since(&old)).unwrap_or_default();
        if !listing.objects.is_empty() {
            all.insert(kind.clone(), listing);
        }
        changed
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}

/// Lists kinds. Its keys are theirs.
#[derive(Debug)]
pub(crate) struct InventoryReconciler(pub(super) Arc<ApplierContext>);

impl Reconciler for InventoryReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let target = &self.0.targets.seed;
        let listing = match list(self.0.session(target, cx), key) {
            // The token has just expired, and its successor is on its way.
            Err(Error::Request(error)) if error.status_code() == Some(401) => {
                return Err(ReconcileFailure::later(LIST_EVERY, error));
            }
            other => other.map_err(Error::into_failure)?,
        };
        let is_empty = listing.objects.is_empty();
        let changed = target.inventory.put(key, listing);
        if let Some(lanes) = self.0.lanes() {
            changed.into_iter().for_each(|owner| lanes.check.add(owner));
        }
        if is_empty {
            return Ok(ReconcileOutcome::Done);
        }
        Ok(jittered(target.inventory.period(self.0.settings.check_period)))
    }
}

fn list(session: Session<'_>, kind: &Key) -> Result<Listing, Error> {
    let new = Listing { listed_at: session.cx.clock.mono(), ..Listing::default() };
    let mut listing = new.clone();
    let Key { namespace: api_version, name } = kind;
    let Some(resource) = session.resource(api_version, name)? else { return Ok(listing) };
    let versions = is_read(api_version, name);
    let label_selector = names::applied_objects();
    let params = ListParams { label_selector, metadata_only: true, ..ListParams::default() };
    let listed =
        session.each(&resource, ALL_NAMESPACES, &params, &mut |object: Option<Metadata>| match object {
            Some(Metadata { metadata, .. }) => {
                let origin = metadata.annotations.get(names::ORIGIN);
                let owner = origin.and_then(|origin| session.target.owner(origin));
                listing.add(&metadata, owner, versions);
            }
            None => listing = new.clone(),
        });
    match listed {
        // The definition was just deleted, or the kind cannot be listed.
        Err(error) if error.is_not_found() || error.status_code() == Some(405) => Ok(new),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(listing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::object::kind_key;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Owner, name and version of an object.
    type Sample = (&'static str, &'static str, &'static str);
    /// The change, the objects after it, and the owners whose objects changed: compared by name, and
    /// by name and version.
    type Case<'a> = (&'a str, &'a [Sample], &'a [&'a str], &'a [&'a str]);

    fn listing(at: u64, objects: &[Sample], versions: bool) -> Listing {
        let mut listing = Listing { listed_at: s(at), ..Listing::default() };
        for (owner, name, version) in objects {
            let metadata = ObjectMeta {
                name: (*name).to_owned(),
                namespace: "n".to_owned(),
                resource_version: (*version).to_owned(),
                ..ObjectMeta::default()
            };
            listing.add(&metadata, (!owner.is_empty()).then(|| Key::new("garden", *owner)), versions);
        }
        listing
    }

    #[test]
    fn who_has_news() {
        let old = [("one", "a", "1"), ("one", "b", "2"), ("two", "c", "3"), ("", "d", "4")];
        let table: [Case<'_>; 7] = [
            ("nothing, in another order", &[old[3], old[2], old[1], old[0]], &[], &[]),
            ("another version", &[("one", "a", "9"), old[1], old[2], old[3]], &[], &["one"]),
            ("one object is gone", &[old[0], old[2], old[3]], &["one"], &["one"]),
            ("all of one are gone", &[old[0], old[1], old[3]], &["two"], &["two"]),
            ("one without owner is gone", &old[..3], &[], &[]),
            ("another owner", &[old[0], ("two", "b", "2"), old[2], old[3]], &["one", "two"], &["one", "two"]),
            ("a new one", &[old[0], old[1], old[2], old[3], ("three", "e", "5")], &[], &[]),
        ];
        for (name, now, by_name, by_version) in table {
            for (versions, expected) in [(false, by_name), (true, by_version)] {
                let changed = listing(1, now, versions).changed_since(&listing(0, &old, versions));
                let changed: Vec<_> = changed.iter().map(|key| key.name.as_str()).collect();
                assert_eq!(changed, expected, "{name}, versions {versions}");
            }
        }
    }

    #[test]
    fn a_kind_is_covered_while_its_list_is_fresh() {
        let inventory = Inventory::default();
        let kind = kind_key("v1", "ConfigMap");
        assert!(!inventory.covers(&kind, s(0), s(60)) && !inventory.has(&kind, "n", "a"));
        assert!(
            inventory.put(&kind, listing(100, &[("one", "a", "1")], false)).is_empty(),
            "nothing has changed"
        );
        assert!(inventory.has(&kind, "n", "a") && !inventory.has(&kind, "n", "b"));
        assert!(inventory.covers(&kind, s(219), s(60)) && !inventory.covers(&kind, s(220), s(60)));
        assert_eq!(inventory.put(&kind, listing(160, &[], false)), [Key::new("garden", "one")]);
        assert!(!inventory.covers(&kind, s(160), s(60)), "a kind without objects is forgotten");
    }

    #[test]
    fn many_kinds_are_listed_less_often() {
        let inventory = Inventory::default();
        for (kinds, seconds) in [(1, 60), (5, 60), (20, 240)] {
            (0..kinds).for_each(|n| {
                drop(inventory.put(&kind_key("v1", &n.to_string()), listing(0, &[("", "a", "")], false)));
            });
            assert_eq!(inventory.period(s(60)), s(seconds), "{kinds}");
        }
    }
}
