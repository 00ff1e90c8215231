//! How an operation of a Shoot ends: its status, its `Cluster`, an event.

use serde_json::Value;

use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::flow::{self, TaskError};
use crate::kube::{self, Patch, Verdict};
use crate::runtime::controller::{Context, Failure, Outcome};
use crate::runtime::events::{About, News};

use super::ShootReconciler;
use super::act::{Running, Told};
use super::begin::sync_cluster;
use super::frame::{Facts, Frame};

/// Tasks that the garden asks for and that a flow does in any case.
const DONE_TASKS: [&str; 2] = ["deployDNSRecordInternal", "deployDNSRecordExternal"];

impl ShootReconciler {
    /// All tasks are done, since `at`.
    ///
    /// # Errors
    /// The garden could not be told.
    pub(super) fn succeeded(
        &self,
        key: &Key,
        running: &Running,
        at: Timestamp,
        cx: &Context,
    ) -> Result<Told, kube::Error> {
        let Running { work, frame, .. } = running;
        let Some(live) = self.garden.find::<Value>(&SHOOT, &key.namespace, &key.name)? else {
            return Ok(Ok(Outcome::Done));
        };
        let facts = Facts { shoot: &live, is_hibernated: work.view.wants_hibernation };
        let mut shoot: Value = match self.patch_status(key, frame.succeeded(at, &facts)) {
            Ok(shoot) => shoot,
            Err(error) if is_away(&error) => return Err(error),
            Err(error) => return Ok(Err(error.into())),
        };
        if let Some(patch) = frame.task_annotations(&shoot, &DONE_TASKS) {
            match self.garden.patch(&SHOOT, &key.namespace, &key.name, "", &Patch::Merge(patch)) {
                Ok(without) => shoot = without,
                // Somebody else has written meanwhile; the next operation removes them then.
                Err(error) if error.is_conflict() => {}
                Err(error) => return Ok(Err(error.into())),
            }
        }
        if let Err(failed) = sync_cluster(&self.seed, &shoot, &work.around) {
            return Ok(Err(failed.into()));
        }
        let name = key.to_string();
        let operation = frame.operation().as_str();
        log::info!(shoot = name.as_str(), operation; "The Shoot is up to date");
        self.tell(key, &shoot, (false, "Reconciled", "Reconciled Shoot cluster"), cx);
        Ok(Ok(self.again(&shoot, &work.around.seed, cx)))
    }

    /// Tasks have failed, the last one `at`.
    ///
    /// # Errors
    /// The garden could not be told.
    pub(super) fn failed(
        &self,
        key: &Key,
        frame: &Frame,
        errors: &[TaskError],
        at: Timestamp,
        cx: &Context,
    ) -> Result<Told, kube::Error> {
        let failure = flow::describe(errors);
        let is_final = frame.is_final(errors, at);
        let written = self.patch_status(key, frame.failed(errors, at));
        match written {
            Ok(shoot) => self.tell(key, &shoot, (true, "ReconcileError", &failure), cx),
            Err(error) if is_away(&error) => return Err(error),
            Err(error) => {
                let (shoot, err) = (key.to_string(), chain(&error));
                log::warn!(shoot = shoot.as_str(), err = err.as_str(); "The Shoot's last operation was not written");
                return Ok(Err(Failure::retry(failure)));
            }
        }
        // What failed for good is not tried again before somebody changes the Shoot.
        Ok(Err(if is_final { Failure::terminal(failure) } else { Failure::retry(failure) }))
    }

    /// Tells people.
    pub(super) fn tell(
        &self,
        key: &Key,
        shoot: &Value,
        (warning, reason, note): (bool, &str, &str),
        cx: &Context,
    ) {
        let uid = text(&shoot["metadata"]["uid"]);
        let about = About { resource: &SHOOT, namespace: &key.namespace, name: &key.name, uid };
        let news = News { controller: "shoot-controller", warning, reason, action: "Reconcile", note };
        cx.events.tell(&self.garden, &cx.clock, about, news);
    }
}

/// Whether it makes sense to tell the garden the same later.
fn is_away(error: &kube::Error) -> bool {
    matches!(error.verdict(), Verdict::Unreachable | Verdict::Throttled(_) | Verdict::Fenced)
}
