//! The Secrets of the seed that request account tokens: one watch for all classes, whose requestors start and stop.

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata};
use crate::base::clock::Mono;
use crate::kube::value::StreamedObject;
use crate::kube::{Client, ListParams, UndecodableObject};
use crate::runtime::controller::{ReconcileFailure, ReconcileOutcome};
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::{InformerCache, Options};
use crate::runtime::marks::{ListedMarks, Marks};
use crate::runtime::pool::Lane;
use crate::runtime::store::StoreView;

const CLASS: &str = "resources.gardener.cloud/class";
const PURPOSE: &str = "resources.gardener.cloud/purpose=token-requestor";

/// The watched Secrets. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenSecrets {
    pub(super) garden: Marks,
    pub(super) shoot: Marks,
}

/// Watches the Secrets; class `shoot` is included only if the agent renews its tokens.
pub(crate) fn watch(seed: &Client, secrets: &TokenSecrets, with_shoots: bool, group: &mut ControllerGroup) {
    let classes = if with_shoots { " in (garden,shoot)" } else { "=garden" };
    let labelled = Options {
        label_selector: format!("{PURPOSE},{CLASS}{classes}"),
        metadata_only: true,
        ..Options::all("seed/token-secrets", SECRET)
    };
    group.watch(seed, labelled, secrets);
}

/// Wakes a queue with the Secrets of a class: existing ones and later changes. One [`is_catching_up`] key
/// means all existing Secrets.
pub(super) fn wake(lane: &Lane, marks: &Marks, group: &mut ControllerGroup) {
    group.wake_seen(lane, marks, |secret| vec![secret.key.clone()]);
    // Without a view, the first list is still to come and wakes the queue itself.
    let view = marks.view();
    if view.synced || view.objects > 0 {
        lane.add(Key::default());
    }
}

/// Whether a key stands for all existing Secrets.
pub(super) fn is_catching_up(key: &Key) -> bool {
    key.name.is_empty()
}

/// Adds the keys of all Secrets with these labels.
pub(super) fn catch_up(
    seed: &Client,
    labels: &str,
    lane: &Lane,
) -> Result<ReconcileOutcome, ReconcileFailure> {
    let label_selector = labels.to_owned();
    let params = ListParams { label_selector, metadata_only: true, ..ListParams::default() };
    let mut add = |secret: Metadata| lane.add(secret.metadata.key());
    seed.list_all(&SECRET, ALL_NAMESPACES, &params, &mut add)?;
    Ok(ReconcileOutcome::Done)
}

/// The labels of a class.
pub(super) fn labels_of(class: &str) -> String {
    format!("{PURPOSE},{CLASS}={class}")
}

impl TokenSecrets {
    fn both(&self) -> [&Marks; 2] {
        [&self.garden, &self.shoot]
    }
}

impl InformerCache for TokenSecrets {
    fn view(&self) -> StoreView {
        let [garden, shoot] = self.both().map(InformerCache::view);
        StoreView { objects: garden.objects + shoot.objects, ..garden }
    }

    fn heard(&self, at: Mono) {
        self.both().iter().for_each(|marks| marks.heard(at));
    }

    fn has(&self, key: &Key) -> bool {
        self.both().iter().any(|marks| marks.has(key))
    }

    fn has_version(&self, key: &Key, version: &str) -> bool {
        self.both().iter().any(|marks| marks.has_version(key, version))
    }

    fn put(&self, key: Key, object: StreamedObject) -> Result<(), UndecodableObject> {
        let is_shoots = object.label(CLASS) == "shoot";
        let (marks, other) =
            if is_shoots { (&self.shoot, &self.garden) } else { (&self.garden, &self.shoot) };
        other.remove(&key);
        marks.put(key, object)
    }

    fn put_head(&self, _key: Key, _head: &Value) {}

    fn remove(&self, key: &Key) {
        self.both().iter().for_each(|marks| marks.remove(key));
    }

    fn retain(&self, listed: &ListedMarks) {
        self.both().iter().for_each(|marks| marks.retain(listed));
    }

    fn clear(&self) {
        self.both().iter().for_each(|marks| marks.clear());
    }
}
