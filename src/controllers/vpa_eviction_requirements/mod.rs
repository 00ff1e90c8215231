//! VerticalPodAutoscalers that may never shrink pods, or only in the maintenance time window of their Shoot (Gardener's
//! `vpa-eviction-requirements`).
//!
//! They are few and rarely change, so a list of their metadata each minute replaces a watch. A missing kind is not an
//! error. If the seed cluster is a garden or a self-hosted shoot, another program does this work.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::api::meta::{ALL_NAMESPACES, Key, Metadata, ObjectMeta, Resource};
use crate::api::patch::difference;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::base::sorted::SortedMap;
use crate::components::hosting;
use crate::kube::{Error, ListItem, ListParams, Patch};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::marks::Mark;
use crate::runtime::pool::Lane;
use crate::runtime::queue::RETRY_DEFAULT;

use super::{Site, is_garden};

mod decide;

const VPA: Resource =
    Resource::new("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers", true);
/// How often to check for new or changed autoscalers.
const PERIOD: Duration = Duration::from_secs(60);
/// How often to check while the kind does not exist, and whether another program does the work.
const PERIOD_SELDOM: Duration = Duration::from_secs(600);

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let workers = site.settings.controllers.vpa_eviction_requirements_workers;
    let lane = group.lane("vpa-eviction-requirements", workers, RETRY_DEFAULT);
    lane.add(Key::default());
    let reconciler =
        EvictionRequirements { site: Arc::clone(site), lane: lane.clone(), known: Mutex::default() };
    group.run(lane, reconciler);
}

struct EvictionRequirements {
    site: Arc<Site>,
    lane: Lane,
    known: Mutex<KnownAutoscalers>,
}

#[derive(Default)]
struct KnownAutoscalers {
    /// The last seen version of each autoscaler.
    versions: SortedMap<Mark, u64>,
    /// Until when the answer is valid that the work is ours.
    ours_until: Option<Mono>,
}

impl Reconciler for EvictionRequirements {
    /// The key without a name stands for all autoscalers.
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        if !key.name.is_empty() {
            return self.restrict(key, cx);
        }
        if !self.is_ours(cx.clock.mono())? {
            return Ok(jittered(PERIOD_SELDOM));
        }
        let is_there = self.look()?;
        Ok(jittered(if is_there { PERIOD } else { PERIOD_SELDOM }))
    }
}

impl EvictionRequirements {
    fn is_ours(&self, now: Mono) -> Result<bool, Error> {
        // Single values: a panic cannot leave them half changed.
        let known = || self.known.lock().ignore_poison();
        if known().ours_until.is_some_and(|until| now < until) {
            return Ok(true);
        }
        let is_ours = !is_garden(&self.site.seed)? && !hosting::is_self_hosted_shoot(&self.site.seed)?;
        known().ours_until = is_ours.then(|| now.saturating_add(PERIOD_SELDOM));
        Ok(is_ours)
    }

    /// Wakes new or changed autoscalers; false if the kind does not exist.
    fn look(&self) -> Result<bool, Error> {
        let label_selector = decide::SELECTOR.to_owned();
        let params = ListParams { label_selector, metadata_only: true, ..ListParams::default() };
        let mut seen = SortedMap::new();
        let listed =
            self.site.seed.list_each::<Metadata>(&VPA, ALL_NAMESPACES, &params, &mut |item| match item {
                ListItem::Object(vpa) => drop(seen.insert(vpa.metadata.key(), version(&vpa.metadata))),
                // One without a known name stays as it is.
                ListItem::Undecodable(vpa) if vpa.key.name.is_empty() => {}
                ListItem::Undecodable(vpa) => drop(seen.insert(vpa.key, 0)),
                ListItem::Restart => seen.clear(),
            });
        let is_there = match listed {
            Err(error) if error.is_not_found() => false,
            listed => listed.map(|_| true)?,
        };
        let mut known = self.known.lock().ignore_poison();
        let before = std::mem::take(&mut known.versions);
        for (key, version) in seen {
            let mark = Mark::of(&key);
            if before.get(&mark) != Some(&version) {
                self.lane.add(key);
            }
            known.versions.insert(mark, version);
        }
        Ok(is_there)
    }

    fn restrict(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let now = cx.clock.now();
        let begun = cx.clock.mono();
        let found = self.site.seed.find::<Value>(&VPA, key)?;
        let Some(live) = found.filter(is_relevant) else { return Ok(ReconcileOutcome::Done) };
        let plan = decide::plan(&live, now).map_err(|why| {
            log::warn!(autoscaler = key.to_string().as_str(), err = why.as_str(); "Invalid annotation of an autoscaler: cannot decide when to evict pods");
            ReconcileFailure::terminal(why)
        })?;
        let mut wanted = live.clone();
        decide::apply(plan, &mut wanted);
        if let Some(patch) = difference(&live, &wanted) {
            self.site.seed.patch::<Value>(&VPA, key, &Patch::Merge(patch))?;
            log::info!(autoscaler = key.to_string().as_str(), grows_only = plan.grows_only; "Changed the eviction requirements of an autoscaler");
        }
        Ok(plan.until.map_or(ReconcileOutcome::Done, |until| {
            ReconcileOutcome::At(begun.saturating_add(until.since(now)))
        }))
    }
}

fn is_relevant(vpa: &Value) -> bool {
    let (label, value) = decide::SELECTOR.split_once('=').unwrap_or_default();
    vpa["metadata"]["deletionTimestamp"].is_null() && vpa["metadata"]["labels"][label] == value
}

/// A hash of what upstream considers a change: the generation and the annotations. The statuses of
/// autoscalers change each minute.
fn version(metadata: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    metadata.uid.hash(&mut hasher);
    metadata.generation.hash(&mut hasher);
    for name in [decide::RESTRICTION, decide::WINDOW] {
        metadata.annotations.get(name).hash(&mut hasher);
    }
    hasher.finish()
}

/// Nine to eleven tenths of a period.
fn jittered(period: Duration) -> ReconcileOutcome {
    ReconcileOutcome::After(period.mul_f64(0.9 + 0.2 * random::unit()))
}
