//! Watches the metadata of applied Deployments, StatefulSets and DaemonSets. The applier reverts a change of one within
//! seconds, and reports the health of its pods as quickly.
//!
//! A roll-out changes the status of a workload many times, and another program may keep changing its spec. So there is
//! a minimum time between checks of one ManagedResource, and the time between corrections grows.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::head::WorkloadHead;
use super::names;
use super::{ApplierContext, ManagedResourceApplier};
use crate::api::core::{DAEMON_SET, DEPLOYMENT, STATEFUL_SET};
use crate::api::meta::{Key, ObjectMeta};
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::{Options, PartialObject};
use crate::runtime::pool::Lane;
use crate::runtime::source::WatchSource;
use crate::runtime::store::Change;

/// Changes within this time are handled together.
const GATHER: Duration = Duration::from_millis(500);
/// The initial time between two checks, or two corrections, of one ManagedResource.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// The longest time between two checks: together with the first delay, they follow within five seconds.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(4);
/// The longest time between two corrections.
const CORRECT_PAUSE_MAX: Duration = Duration::from_secs(60);
/// A correction that is due precedes the check.
const LOOK_AFTER_CORRECTION: Duration = Duration::from_secs(1);

/// The workloads of the seed, by kind.
#[derive(Debug, Default)]
pub(super) struct Workloads([WatchSource<WorkloadHead>; 3]);

impl Workloads {
    /// Whether the objects of a kind are watched.
    pub(super) fn covers(&self, kind: &Key) -> bool {
        let index = OPTIONS.iter().position(|o| o.resource.kind == kind.name && kind.namespace == "apps/v1");
        index.and_then(|index| self.0.get(index)).is_some_and(|source| source.store().is_synced())
    }
}

const OPTIONS: [Options; 3] = [
    Options::all("seed/deployments", DEPLOYMENT),
    Options::all("seed/statefulsets", STATEFUL_SET),
    Options::all("seed/daemonsets", DAEMON_SET),
];

/// Watches the workloads of the seed.
pub(crate) fn watch_workloads(resources: &ManagedResourceApplier, group: &mut ControllerGroup) {
    for (options, source) in OPTIONS.into_iter().zip(&resources.0.workloads.0) {
        let label_selector = names::applied_objects();
        let options = Options { label_selector, metadata_only: true, ..options };
        group.watch(&resources.0.client, options, source);
    }
}

/// Wakes the queues of corrections and checks.
pub(super) fn wake(
    resources: &ManagedResourceApplier,
    correct: &Lane,
    look: &Lane,
    group: &mut ControllerGroup,
) {
    let corrections = Arc::new(Pacer::new(CORRECT_PAUSE_MAX));
    let looks = Arc::new(Pacer::new(LOOK_PAUSE_MAX));
    for source in &resources.0.workloads.0 {
        let (shared, corrections, looks) = (Arc::clone(&resources.0), corrections.clone(), looks.clone());
        let (correct, look) = (correct.clone(), look.clone());
        group.listen(source, move |change| {
            let (reason, owners) = (reason(change), owners(&shared, change));
            let now = shared.client.clock().mono();
            for owner in owners {
                let mut later = Duration::ZERO;
                if reason == Reason::Correct {
                    correct.add_after(owner.clone(), corrections.delay(&owner, now));
                    later = LOOK_AFTER_CORRECTION;
                }
                if reason != Reason::None {
                    look.add_after(owner.clone(), looks.delay(&owner, now) + later);
                }
            }
        });
    }
}

/// The present and the previous ManagedResource of an object.
fn owners(shared: &ApplierContext, change: &Change<WorkloadHead>) -> Vec<Key> {
    let owner = |workload: &Arc<WorkloadHead>| {
        shared.targets.seed.owner(workload.metadata().annotations.get(names::ORIGIN)?)
    };
    let mut owners: Vec<Key> = change.old.iter().chain(&change.new).filter_map(owner).collect();
    owners.dedup();
    owners
}

/// What a change requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    None,
    Look,
    Correct,
}

fn reason(change: &Change<WorkloadHead>) -> Reason {
    let (old, new) = match (&change.old, &change.new) {
        // The applier has created it and checks it, or it existed before the watch.
        (None, _) => return Reason::None,
        (Some(_), None) => return Reason::Correct,
        (Some(old), Some(new)) => (old.metadata(), new.metadata()),
    };
    let wanted = |m: &ObjectMeta| (m.generation, m.deletion_timestamp, m.annotations.clone());
    if wanted(old) == wanted(new) { Reason::Look } else { Reason::Correct }
}

/// When something is due for a ManagedResource, and how long the next one waits after that.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: Mono,
    pause: Duration,
}

impl Due {
    fn first(now: Mono) -> Self {
        Self { at: now + GATHER, pause: PAUSE_MIN }
    }

    fn is_over(self, now: Mono) -> bool {
        now >= self.at + self.pause * 2
    }

    /// The next time: with what is already due, otherwise after the pause, which grows unless there was a quiet time.
    fn again(self, now: Mono, pause_max: Duration) -> Self {
        if self.at > now {
            return self;
        }
        if self.is_over(now) {
            return Self::first(now);
        }
        Self { at: (now + GATHER).max(self.at + self.pause), pause: (self.pause * 2).min(pause_max) }
    }
}

/// The maximum number of remembered ManagedResources.
const PACED_MAX: usize = 1_000;

/// Enforces a minimum time between events, by ManagedResource.
#[derive(Debug)]
struct Pacer {
    pause_max: Duration,
    due: Mutex<SortedMap<Key, Due>>,
}

impl Pacer {
    const fn new(pause_max: Duration) -> Self {
        Self { pause_max, due: Mutex::new(SortedMap::new()) }
    }

    /// How long to wait.
    fn delay(&self, key: &Key, now: Mono) -> Duration {
        // One map, changed by single calls: a panic cannot leave it half changed.
        let mut all = self.due.lock().ignore_poison();
        if all.len() >= PACED_MAX {
            all.retain(|_, due| !due.is_over(now));
        }
        let due = all.get(key).map_or_else(|| Due::first(now), |due| due.again(now, self.pause_max));
        if all.len() < PACED_MAX || all.contains_key(key) {
            all.insert(key.clone(), due);
        }
        due.at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn reasons() {
        let of = |change: Value| {
            let mut object = json!({"metadata": {"name": "x", "namespace": "n", "generation": 1, "resourceVersion": "1",
                "labels": {"a": "b"}, "annotations": {"resources.gardener.cloud/origin": "garden/mr", "else": "1"}}});
            object["metadata"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            Some(Arc::new(serde_json::from_value::<WorkloadHead>(object).unwrap()))
        };
        let known = || of(json!({}));
        let table = [
            ("there from the beginning, or made", None, known(), Reason::None),
            ("gone", known(), None, Reason::Correct),
            ("status", known(), of(json!({"resourceVersion": "2"})), Reason::Look),
            ("spec", known(), of(json!({"resourceVersion": "2", "generation": 2})), Reason::Correct),
            ("deletion", known(), of(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})), Reason::Correct),
            ("origin", known(), of(json!({"annotations": {}})), Reason::Correct),
        ];
        for (name, old, new, expected) in table {
            let change = Change { key: Key::new("n", "x"), old, new };
            assert_eq!(reason(&change), expected, "{name}");
        }
        assert!(known().unwrap().metadata().labels.is_empty(), "nobody reads them");
    }

    #[test]
    fn frequent_changes_are_spread() {
        let (ms, key) = (Duration::from_millis, Key::new("n", "x"));
        // A change each 100 ms: the times of the checks, and of the corrections.
        for (pause_max, expected) in
            [(4, vec![500, 2_500, 6_500, 10_500]), (60, vec![500, 2_500, 6_500, 14_500])]
        {
            let pacer = Pacer::new(Duration::from_secs(pause_max));
            let mut due: Vec<_> = (0..150).map(|n| ms(n * 100) + pacer.delay(&key, ms(n * 100))).collect();
            due.dedup();
            assert_eq!(due[..4], expected.into_iter().map(ms).collect::<Vec<_>>(), "{pause_max}");
            assert_eq!(pacer.delay(&Key::new("n", "y"), ms(1)), GATHER, "others do not wait");
            // After a quiet time, the pause starts again.
            assert_eq!(pacer.delay(&key, ms(500_000)), GATHER);
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let pacer = Pacer::new(LOOK_PAUSE_MAX);
        for n in 0..PACED_MAX + 10 {
            assert_eq!(pacer.delay(&Key::cluster(n.to_string()), Duration::ZERO), GATHER);
        }
        assert_eq!(pacer.due.lock().unwrap().len(), PACED_MAX);
        pacer.delay(&Key::cluster("later"), Duration::from_secs(60));
        assert_eq!(pacer.due.lock().unwrap().len(), 1);
    }
}
