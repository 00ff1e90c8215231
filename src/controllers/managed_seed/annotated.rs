//! Shoots in namespace `garden` with the older annotation. Each acts as a ManagedSeed that only this agent knows; a
//! real ManagedSeed wins. Events of the Shoot report failures.

use std::sync::Arc;

use serde_json::Value;

use crate::api::core::NAMESPACE as NAMESPACES;
use crate::api::gardener::{MANAGED_SEED, SEED, SHOOT, ShootHead};
use crate::api::meta::{Key, annotation, text};
use crate::base::json::json;
use crate::deployer::NAMESPACE;
use crate::flow::Failed;
use crate::kube::Patch;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::events::Event;
use crate::runtime::group::ControllerGroup;
use crate::runtime::store::Change;
use crate::runtime::write;

use super::subject::{Subject, USE_AS_SEED, read, stand_in};
use super::{CONTROLLER, ManagedSeedContext, ManagedSeedReconciliation, RETRY};

/// The annotation of a control plane's namespace in the seed: objects were created for the Shoot and must be deleted
/// when its annotation is removed.
const MADE: &str = "edge.gardenlet/used-as-seed";

pub(super) fn add(group: &mut ControllerGroup, base: Arc<ManagedSeedContext>) {
    let lane = group.lane("use-as-seed", base.controller().workers, RETRY);
    group.wake(&lane, &base.site.heads, |change: &Change<ShootHead>| {
        let word = |head: &Option<Arc<ShootHead>>| {
            let head = head.as_deref()?;
            let word = head.metadata.annotations.get(USE_AS_SEED)?.clone();
            let state = head.status.last_operation.as_ref().map(|last| last.state.clone());
            Some((word, state, head.metadata.generation, head.status.observed_generation))
        };
        // After a start, objects may be left of a Shoot that had the annotation before.
        let is_news = change.old.is_none() || word(&change.old) != word(&change.new);
        (change.key.namespace == NAMESPACE && is_news).then(|| change.key.clone())
    });
    group.run(lane, AnnotatedReconciler(base));
}

struct AnnotatedReconciler(Arc<ManagedSeedContext>);

impl Reconciler for AnnotatedReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let base = &self.0;
        let Some(shoot) = base.shoot(key)? else { return Ok(ReconcileOutcome::Done) };
        let words = annotation(&shoot, USE_AS_SEED).to_owned();
        let (asked, unknown) = read(&words);
        let asked = asked.filter(|_| shoot["metadata"]["deletionTimestamp"].is_null());
        let plane = Key::cluster(text(&shoot["status"]["technicalID"]));
        let object = stand_in(&shoot, &base.site.settings.document, asked.unwrap_or_default());
        let mut round =
            ManagedSeedReconciliation { base, subject: Subject { resource: SHOOT, object, shoot }, cx };
        for word in unknown {
            let note = format!("annotation {USE_AS_SEED} has the unknown word {word:?}, which is ignored");
            let news = Event {
                controller: CONTROLLER,
                warning: true,
                reason: "ReconcileError",
                action: "Reconcile",
                note: &note,
            };
            round.announce(news);
        }
        if asked.is_none() && !self.is_made(&plane)? {
            return Ok(ReconcileOutcome::Done);
        }
        if base.known.has_shoot(key) || self.has_managed_seed(key)? {
            self.mark(&plane, false)?;
            return Ok(ReconcileOutcome::Done);
        }
        let Some(asked) = asked else {
            return match round.delete()? {
                Some(again) => Ok(again),
                None => self.mark(&plane, false).map(|()| ReconcileOutcome::Done),
            };
        };
        self.mark(&plane, true)?;
        if asked.has_agent {
            return round.reconcile();
        }
        match register(base, &round.subject) {
            Ok(()) => Ok(ReconcileOutcome::After(base.controller().sync_period)),
            Err(failed) => Err(round.fail("ReconcileError", failed)),
        }
    }
}

impl AnnotatedReconciler {
    /// Whether objects were created for the Shoot of this control plane.
    fn is_made(&self, plane: &Key) -> Result<bool, ReconcileFailure> {
        if plane.name.is_empty() {
            return Ok(false);
        }
        let found = self.0.site.seed.find::<Value>(&NAMESPACES, plane)?;
        Ok(found.is_some_and(|found| annotation(&found, MADE) == "true"))
    }

    /// Records that objects exist, or that none is left.
    fn mark(&self, plane: &Key, is_made: bool) -> Result<(), ReconcileFailure> {
        if plane.name.is_empty() || self.is_made(plane)? == is_made {
            return Ok(());
        }
        let mark = if is_made { json!("true") } else { Value::Null };
        let patch = Patch::annotation(MADE, mark);
        match self.0.site.seed.patch::<Value>(&NAMESPACES, plane, &patch) {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Asks the garden, because the list of ManagedSeeds may be a minute old.
    fn has_managed_seed(&self, key: &Key) -> Result<bool, ReconcileFailure> {
        let is_known = || self.0.known.has(key);
        let found = self.0.site.garden.find_own::<Value>(&MANAGED_SEED, key, &is_known)?;
        Ok(found.is_some())
    }
}

/// Registers the Seed. Its agent is deployed only on request.
fn register(base: &ManagedSeedContext, subject: &Subject) -> Result<(), Failed> {
    let config = &subject.config()?["seedConfig"];
    let key = Key::cluster(subject.name());
    write::ensure(&base.site.garden, &SEED, &key, &|seed| {
        if seed["spec"].is_null() {
            seed["spec"] = config["spec"].clone();
        } else {
            // Keep fields that the garden has set.
            seed["spec"]["settings"]["scheduling"] = config["spec"]["settings"]["scheduling"].clone();
        }
    })
    .map(drop)
    .map_err(|error| {
        let failed = Failed::from(error);
        Failed { text: format!("register seed {}: {}", subject.name(), failed.text), ..failed }
    })
}
