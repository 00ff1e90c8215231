//! The agent upgrades itself (Gardener's `gardenlet`): it deploys the chart that its Gardenlet object in the garden
//! names, with the configuration of that object.
//!
//! There is no watch: the single object is read once a minute. A deployed object is not written again.

mod act;
mod decide;
mod start;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::GARDENLET;
use crate::api::meta::{Key, Metadata, text};
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::deployer::report::{self, ConditionReport};
use crate::format::view;
use crate::kube::Patch;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::events::{Event, InvolvedObject};
use crate::runtime::group::ControllerGroup;
use crate::runtime::queue::Retry;

use super::Site;
use decide::{DeploymentRequest, LastDeployment};

/// Whether the object was deployed.
const RECONCILED: &str = "GardenletReconciled";
/// The garden namespace of Gardenlet objects.
const KEY_NAMESPACE: &str = "garden";
const CONTROLLER: &str = "gardenlet-controller";
/// How often the object is read.
const PERIOD: Duration = Duration::from_secs(60);
/// How often the object is read if it does not exist. An error that only a change of the object can fix is retried
/// after this time too.
const LONG_PERIOD: Duration = Duration::from_secs(300);

/// The state of the controller.
struct GardenletReconciler {
    site: Arc<Site>,
    /// The object that the chart left for the first start was handled.
    is_started: AtomicBool,
    last: Mutex<Option<LastDeployment>>,
}

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let base = GardenletReconciler {
        site: Arc::clone(site),
        is_started: AtomicBool::new(false),
        last: Mutex::default(),
    };
    // The object is read each time, so a failure must not delay it for long.
    let lane = group.lane("gardenlet", 1, Retry { first: Duration::from_secs(5), max: PERIOD });
    lane.add(Key::new(KEY_NAMESPACE, site.seed_name()));
    group.run(lane, base);
}

impl Reconciler for GardenletReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        if !self.is_started.load(Ordering::Acquire) {
            if let Some(again) = start::hand_over(self)? {
                return Ok(again);
            }
            self.is_started.store(true, Ordering::Release);
        }
        let object = match self.site.garden.find::<Value>(&GARDENLET, key) {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(ReconcileOutcome::After(LONG_PERIOD)),
            Err(error) if error.is_denied() => return Ok(ReconcileOutcome::After(LONG_PERIOD)),
            Err(error) => return Err(error.into()),
        };
        let metadata = view::look::<Metadata>(&object)?.metadata;
        let (asked, now) = (DeploymentRequest::by(&metadata), cx.clock.mono());
        let is_over = metadata.deletion_timestamp.is_some();
        if is_over || !decide::is_due(self.last().as_ref(), &asked, now) {
            return Ok(ReconcileOutcome::After(PERIOD));
        }
        let mut round = GardenletReconciliation { base: self, key, object, cx };
        let (again, result) = round.reconcile();
        if let Some(again) = again {
            self.set_last(asked, now.saturating_add(again));
        }
        result.map(|()| ReconcileOutcome::After(PERIOD))
    }
}

impl GardenletReconciler {
    fn last(&self) -> Option<LastDeployment> {
        self.last.lock().ignore_poison().clone()
    }

    fn set_last(&self, asked: DeploymentRequest, due: Mono) {
        *self.last.lock().ignore_poison() = Some(LastDeployment { asked, due });
    }
}

/// One reconciliation of an object that has work to do.
struct GardenletReconciliation<'a> {
    base: &'a GardenletReconciler,
    key: &'a Key,
    object: Value,
    cx: &'a ReconcileContext,
}

impl GardenletReconciliation<'_> {
    /// Returns the result, and when the work is due again; `None` means as soon as the queue allows.
    fn reconcile(&mut self) -> (Option<Duration>, Result<(), ReconcileFailure>) {
        if self.object["status"]["observedGeneration"] != self.object["metadata"]["generation"] {
            self.announce(false, "Reconciling", "Deploying gardenlet");
        }
        match act::deploy(self.base, &self.object, self.cx) {
            Ok(message) => {
                let told = self.tell(&ConditionReport::new(RECONCILED, true, "Reconciled", message));
                if matches!(told, Ok(true)) {
                    self.announce(false, "Reconciled", "Gardenlet has been deployed");
                }
                let period = self.base.site.settings.controllers.gardenlet_sync_period;
                let period = if period.is_zero() { Duration::MAX } else { period };
                // If the status could not be written, the next round writes it soon.
                (told.is_ok().then_some(period), told.map(drop))
            }
            Err(failed) if failed.postponed.is_some() => (None, Err(failed.into())),
            Err(failed) => {
                self.announce(true, "ReconcileError", &failed.text);
                let told = self.tell(&ConditionReport::failed(RECONCILED, "ReconcileError", &failed));
                let again = (told.is_ok() && !failed.codes.is_empty()).then_some(LONG_PERIOD);
                (again, told.and_then(|_| Err(failed.into())))
            }
        }
    }

    /// Writes the status; false if nothing changed.
    fn tell(&mut self, report: &ConditionReport) -> Result<bool, ReconcileFailure> {
        let report = std::slice::from_ref(report);
        let Some(patch) = report::patch(&self.object, report, self.cx.clock.now()) else { return Ok(false) };
        match self.base.site.garden.patch_status::<Value>(&GARDENLET, self.key, &Patch::Strategic(patch)) {
            Ok(object) => self.object = object,
            // A deleted object needs no status.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn announce(&self, warning: bool, reason: &'static str, note: &str) {
        let uid = text(&self.object["metadata"]["uid"]);
        let about = InvolvedObject {
            resource: &GARDENLET,
            namespace: &self.key.namespace,
            name: &self.key.name,
            uid,
        };
        let news = Event { controller: CONTROLLER, warning, reason, action: "Reconcile", note };
        self.cx.events.tell(&self.base.site.garden, &self.cx.clock, about, news);
    }
}
