//! Reports of a reconciliation: the Seed's last operation and events.

use serde_json::Value;

use crate::api::gardener::SEED;
use crate::api::meta::Key;
use crate::base::error::chain;
use crate::kube::Patch;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};
use crate::runtime::events::{Event, InvolvedObject};

use super::decide::{self, Observed, Phase};
use super::{SeedReconciler, delete};

impl SeedReconciler {
    /// Writes the result of the reconciliation if it differs from the status.
    pub(super) fn finish(
        &self,
        key: &Key,
        observed: &Observed,
        phase: Phase,
        result: Result<delete::SeedReconciliationResult, ReconcileFailure>,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        match result {
            Ok(delete::SeedReconciliationResult::Gone) => Ok(ReconcileOutcome::Done),
            Ok(delete::SeedReconciliationResult::Again(after)) => Ok(ReconcileOutcome::After(after)),
            Ok(delete::SeedReconciliationResult::Blocked(why, after)) => {
                self.tell_blocked(key, observed, &why, cx)?;
                Ok(ReconcileOutcome::After(after))
            }
            Ok(delete::SeedReconciliationResult::Wait(after)) => {
                if matches!(phase, Phase::Begin) && !observed.deleting() {
                    let patch = decide::succeeded(observed, cx.clock.now());
                    self.site.garden.patch_status::<Value>(&SEED, key, &Patch::Strategic(patch))?;
                    log::info!(seed = key.name.as_str(); "Reconciled the Seed");
                }
                Ok(ReconcileOutcome::After(after))
            }
            Err(failure) if failure.postponed().is_some() => Err(failure),
            Err(failure) => {
                let reason = if observed.deleting() { "DeleteError" } else { "ReconcileError" };
                self.tell(key, observed, true, reason, &failure.text(), cx);
                let patch = decide::failed(observed, &failure.text(), cx.clock.now());
                if let Err(e) = self.site.garden.patch_status::<Value>(&SEED, key, &Patch::Strategic(patch)) {
                    let err = chain(&e);
                    log::warn!(seed = key.name.as_str(), err = err.as_str(); "Cannot write the Seed's last operation");
                }
                Err(failure)
            }
        }
    }

    fn tell(
        &self,
        key: &Key,
        observed: &Observed,
        warning: bool,
        reason: &str,
        note: &str,
        cx: &ReconcileContext,
    ) {
        let uid = observed.live["metadata"]["uid"].as_str().unwrap_or_default();
        let about = InvolvedObject { resource: &SEED, namespace: "", name: &key.name, uid };
        let action = if observed.deleting() { "Delete" } else { "Reconcile" };
        let news = Event { controller: "seed-controller", warning, reason, action, note };
        cx.events.tell(&self.site.garden, &cx.clock, about, news);
    }

    /// Reports what the operation waits for while it continues: once per reason, in the status, as an event
    /// and in the log.
    fn tell_blocked(
        &self,
        key: &Key,
        observed: &Observed,
        why: &str,
        cx: &ReconcileContext,
    ) -> Result<(), ReconcileFailure> {
        if decide::says(observed, why) {
            return Ok(());
        }
        log::warn!(seed = key.name.as_str(), why; "The Seed cannot be deleted yet");
        let now = cx.clock.now();
        // Upstream uses the same reason.
        self.tell(key, observed, false, "ResourceReferenced", why, cx);
        let patch = Patch::Strategic(decide::blocked(why, now));
        self.site.garden.patch_status::<Value>(&SEED, key, &patch)?;
        Ok(())
    }
}
