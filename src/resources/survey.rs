//! Which objects of a Shoot exist, and which of its workloads are well. One list of a kind serves all ManagedResources of the
//! Shoot, so that a Shoot with nodes costs few requests. The seed has watches and lists of its own (`workload`, `inventory`).

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use super::health;
use super::object::{hash, kind_key, skips_checks};
use super::progress::{self, RolloutProgress};
use crate::api::meta::{Key, text};
use crate::api::resources::ObjectReference;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;

/// How often workloads are listed: they can become unhealthy while nobody changes them.
const WORKLOADS_EVERY: Duration = Duration::from_secs(300);
/// How often other kinds are listed, whose objects someone would have to delete.
const OTHERS_EVERY: Duration = Duration::from_secs(2_700);

/// The last list of a kind.
#[derive(Debug)]
struct Listing {
    kind: u64,
    at: Mono,
    /// Hashes of the objects that are well, in their order.
    well: Box<[u64]>,
}

/// The last list of each kind. A few bytes per object: an agent has one for each Shoot.
#[derive(Debug, Default)]
pub(super) struct Survey {
    listings: Mutex<Vec<Listing>>,
    /// Whoever lists holds it.
    pub(super) turn: Mutex<()>,
}

impl Survey {
    fn lock(&self) -> MutexGuard<'_, Vec<Listing>> {
        // One list, changed by single calls: a panic cannot leave it half changed.
        self.listings.lock().ignore_poison()
    }

    /// Whether a kind must be listed again.
    pub(super) fn is_due(&self, kind: &Key, now: Mono) -> bool {
        let is_workload = progress::concerns(&kind.namespace, &kind.name);
        let period = if is_workload { WORKLOADS_EVERY } else { OTHERS_EVERY };
        let id = hash(kind);
        let listed = self.lock().iter().find(|listing| listing.kind == id).map(|listing| listing.at);
        listed.is_none_or(|at| now.saturating_sub(at) >= period)
    }

    /// Stores a new list: which objects are well.
    pub(super) fn put(&self, kind: &Key, now: Mono, mut well: Vec<u64>) {
        well.sort_unstable();
        let listing = Listing { kind: hash(kind), at: now, well: well.into() };
        let mut all = self.lock();
        all.retain(|other| other.kind != listing.kind);
        all.push(listing);
    }

    /// Whether the last list of its kind found an object well.
    pub(super) fn is_well(&self, object: &ObjectReference) -> bool {
        let kind = hash(&kind_key(&object.api_version, &object.kind));
        let all = self.lock();
        let listing = all.iter().find(|listing| listing.kind == kind);
        listing.is_some_and(|it| it.well.binary_search(&id(&object.namespace, &object.name)).is_ok())
    }
}

/// What the lists contain for an object.
pub(super) fn id(namespace: &str, name: &str) -> u64 {
    hash(&(namespace, name))
}

/// Whether an object is healthy and rolled out. The old pods of a Deployment were counted when its ManagedResource was checked
/// after its last change.
pub(super) fn is_well(object: &Value) -> bool {
    let check = health::check_of(text(&object["apiVersion"]), text(&object["kind"]));
    let is_healthy = check.is_none_or(|check| check(object).is_ok());
    skips_checks(object) || is_healthy && !matches!(progress::check(object), RolloutProgress::Running(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn object(kind: &str, name: &str) -> ObjectReference {
        let api_version = if kind == "Deployment" { "apps/v1" } else { "v1" };
        ObjectReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            ..ObjectReference::default()
        }
    }

    #[test]
    fn workloads_are_listed_more_often_than_other_kinds() {
        let survey = Survey::default();
        let (deployments, maps) = (kind_key("apps/v1", "Deployment"), kind_key("v1", "ConfigMap"));
        assert!(survey.is_due(&deployments, s(0)) && survey.is_due(&maps, s(0)));
        for kind in [&deployments, &maps] {
            survey.put(kind, s(100), vec![id("kube-system", "a"), id("kube-system", "b")]);
        }
        assert!(!survey.is_due(&deployments, s(399)) && survey.is_due(&deployments, s(400)));
        assert!(!survey.is_due(&maps, s(2_799)) && survey.is_due(&maps, s(2_800)));
        assert!(survey.is_well(&object("Deployment", "a")) && survey.is_well(&object("ConfigMap", "b")));
        assert!(!survey.is_well(&object("Deployment", "c")) && !survey.is_well(&object("Secret", "a")));
        survey.put(&deployments, s(400), vec![id("kube-system", "b")]);
        assert!(!survey.is_well(&object("Deployment", "a")) && survey.is_well(&object("ConfigMap", "a")));
        assert!(!survey.is_due(&deployments, s(699)));
    }

    #[test]
    fn which_objects_are_well() {
        let deployment = |available: &str, progressing: &str, annotations: Value| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"generation": 1, "annotations": annotations}, "spec": {"replicas": 1},
                "status": {"observedGeneration": 1, "conditions": [
                    {"type": "Available", "status": available, "reason": "r"},
                    {"type": "Progressing", "status": "True", "reason": progressing}]}})
        };
        let skipped = json!({"resources.gardener.cloud/skip-health-check": "true"});
        let table = [
            (json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}), true),
            (deployment("True", "NewReplicaSetAvailable", json!({})), true),
            (deployment("False", "NewReplicaSetAvailable", json!({})), false),
            (deployment("True", "ReplicaSetUpdated", json!({})), false),
            (deployment("False", "ReplicaSetUpdated", skipped), true),
        ];
        for (object, expected) in table {
            assert_eq!(is_well(&object), expected, "{object}");
        }
    }
}
