//! Which objects of a Shoot exist, and which of its workloads are well. One list of a kind serves all ManagedResources of the
//! Shoot, so that a Shoot with nodes costs few requests. The seed has watches and lists of its own (`workload`, `inventory`).

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use serde_json::Value;

use super::health;
use super::object::{hash, skips_checks};
use super::progress::{self, RolloutProgress};
use crate::api::meta::{Key, text};
use crate::api::resources::ObjectReference;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::limits;

/// How often workloads are listed: they can become unhealthy while nobody changes them. A list that failed is tried again as soon.
const WORKLOADS_EVERY: Duration = Duration::from_secs(300);
/// How often other kinds are listed. Their objects have to be deleted, or changed by somebody, to matter.
const OTHERS_EVERY: Duration = Duration::from_secs(2_700);
/// Kinds with a health check that change as rarely as those without.
const STEADY: [&str; 3] = ["CustomResourceDefinition", "Service", "VerticalPodAutoscaler"];

/// The last list of a kind.
#[derive(Debug)]
struct Listing {
    kind: u64,
    /// When it must be listed again.
    due: Mono,
    /// Hashes of the objects that are well, in their order.
    well: Vec<u64>,
}

/// The last list of each kind. A few bytes per object: an agent has one for each Shoot.
#[derive(Debug, Default)]
pub(super) struct Survey {
    listings: Mutex<Vec<Listing>>,
    /// Whoever lists holds it.
    turn: Mutex<()>,
}

impl Survey {
    fn lock(&self) -> MutexGuard<'_, Vec<Listing>> {
        // One list, changed by single calls: a panic cannot leave it half changed.
        self.listings.lock().ignore_poison()
    }

    /// The turn to list, if nobody else has it.
    pub(super) fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether a kind must be listed again.
    pub(super) fn is_due(&self, kind: &Key, now: Mono) -> bool {
        let kind = id(&kind.namespace, &kind.name);
        self.lock().iter().find(|listing| listing.kind == kind).is_none_or(|listing| now >= listing.due)
    }

    /// Stores a new list: which objects are well. `None`: it could not be read.
    pub(super) fn put(&self, kind: &Key, now: Mono, well: Option<Vec<u64>>) {
        let period = if well.is_none() || is_workload(kind) { WORKLOADS_EVERY } else { OTHERS_EVERY };
        let mut well = well.unwrap_or_default();
        well.sort_unstable();
        well.shrink_to_fit();
        let listing =
            Listing { kind: id(&kind.namespace, &kind.name), due: now.saturating_add(period), well };
        let mut all = self.lock();
        all.retain(|other| other.kind != listing.kind);
        all.push(listing);
    }

    /// Adds objects that were read one by one, and are well.
    pub(super) fn learn(&self, objects: &[ObjectReference]) {
        let mut all = self.lock();
        for object in objects {
            let kind = id(&object.api_version, &object.kind);
            let Some(listing) = all.iter_mut().find(|listing| listing.kind == kind) else { continue };
            let id = id(&object.namespace, &object.name);
            if let Err(place) = listing.well.binary_search(&id)
                && listing.well.len() < limits::SHOOT_SURVEY_OBJECTS_MAX
            {
                listing.well.insert(place, id);
            }
        }
    }

    /// Whether the last list of its kind found an object well.
    pub(super) fn is_well(&self, object: &ObjectReference) -> bool {
        let kind = id(&object.api_version, &object.kind);
        let all = self.lock();
        let listing = all.iter().find(|listing| listing.kind == kind);
        listing.is_some_and(|it| it.well.binary_search(&id(&object.namespace, &object.name)).is_ok())
    }
}

/// Whether objects of the kind can become unhealthy while nobody changes them.
fn is_workload(kind: &Key) -> bool {
    progress::is_read(&kind.namespace, &kind.name) && !STEADY.contains(&kind.name.as_str())
}

/// What the lists contain for an object, or for a kind: a hash of its namespace, or its API version, and its name.
pub(super) fn id(space: &str, name: &str) -> u64 {
    hash(&(space, name))
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
    use crate::resources::object::kind_key;

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
            survey.put(kind, s(100), Some(vec![id("kube-system", "b"), id("kube-system", "a")]));
        }
        assert!(!survey.is_due(&deployments, s(399)) && survey.is_due(&deployments, s(400)));
        assert!(!survey.is_due(&maps, s(2_799)) && survey.is_due(&maps, s(2_800)));
        assert!(survey.is_well(&object("Deployment", "a")) && survey.is_well(&object("ConfigMap", "b")));
        assert!(!survey.is_well(&object("Deployment", "c")) && !survey.is_well(&object("Secret", "a")));
        survey.put(&deployments, s(400), Some(vec![id("kube-system", "b")]));
        assert!(!survey.is_well(&object("Deployment", "a")) && survey.is_well(&object("ConfigMap", "a")));
        assert!(!survey.is_due(&deployments, s(699)));
        let kinds = [("batch/v1", "Job"), ("v1", "Pod"), ("v1", "Service"), ("v1", "Secret")];
        let are_workloads = kinds.map(|(api_version, kind)| is_workload(&kind_key(api_version, kind)));
        assert_eq!(are_workloads, [true, true, false, false]);
    }

    #[test]
    fn a_list_that_failed_is_tried_again_soon() {
        let survey = Survey::default();
        let maps = kind_key("v1", "ConfigMap");
        survey.put(&maps, s(100), None);
        assert!(!survey.is_well(&object("ConfigMap", "a")));
        assert!(!survey.is_due(&maps, s(399)) && survey.is_due(&maps, s(400)));
    }

    #[test]
    fn what_was_read_by_itself_is_known_until_the_next_list() {
        let survey = Survey::default();
        let maps = kind_key("v1", "ConfigMap");
        let new = [object("ConfigMap", "a"), object("ConfigMap", "b")];
        survey.learn(&new);
        assert!(!survey.is_well(&new[0]), "the kind was never listed");
        survey.put(&maps, s(100), Some(Vec::new()));
        survey.learn(&new);
        survey.learn(&new);
        assert!(new.iter().all(|object| survey.is_well(object)));
        assert_eq!(survey.lock()[0].well.len(), 2);
        survey.put(&maps, s(2_800), Some(vec![id("kube-system", "b")]));
        assert!(!survey.is_well(&new[0]) && survey.is_well(&new[1]));
    }

    #[test]
    fn one_lists_at_a_time_also_after_a_panic() {
        let survey = Survey::default();
        let turn = survey.turn();
        assert!(turn.is_some() && survey.turn().is_none());
        drop(turn);
        let panicked = std::thread::scope(|scope| {
            let spawned = scope.spawn(|| {
                let _turn = survey.turn();
                panic!("on purpose");
            });
            spawned.join()
        });
        assert!(panicked.is_err() && survey.turn().is_some());
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
