//! The end of a Shoot's operation: its status, its `Cluster`, an event.

use serde_json::Value;

use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, annotation, text};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::flow::{self, TaskError};
use crate::kube::{self, ErrorVerdict, Patch};
use crate::operation::components::etcd::plain::moving::ACCEPT_LOSS;
use crate::operation::{Operation, cluster, lost, requests};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};
use crate::runtime::events::{self, InvolvedObject};
use crate::secrets;

use super::ShootReconciler;
use super::act::{EndError, RunningShootFlow};
use super::report::{OperationReport, OperationSuccess};

/// How often the removal of finished tasks is tried.
const STRIKES_MAX: usize = 3;

/// The event of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum OperationEvent<'a> {
    Begun,
    Succeeded,
    Failed(&'a str),
    /// A restoration has lost this.
    Lost(&'a str),
}

impl<'a> OperationEvent<'a> {
    /// Whether it is a warning, its reason, and its text.
    fn words(self, operation: Operation) -> (bool, &'static str, &'a str) {
        let words = EventWords::of(operation);
        match self {
            Self::Begun => (false, words.begun, words.begun_text),
            Self::Succeeded => (false, words.done, words.done_text),
            Self::Failed(why) => (true, words.failed, why),
            Self::Lost(what) => (true, "DataLost", what),
        }
    }
}

/// Upstream's reasons and texts for the events of an operation.
struct EventWords {
    action: &'static str,
    begun: &'static str,
    begun_text: &'static str,
    done: &'static str,
    done_text: &'static str,
    failed: &'static str,
}

impl EventWords {
    const fn of(operation: Operation) -> Self {
        match operation {
            Operation::Create | Operation::Reconcile => Self {
                action: "Reconcile",
                begun: "Reconciling",
                begun_text: "Reconciling Shoot cluster",
                done: "Reconciled",
                done_text: "Reconciled Shoot cluster",
                failed: "ReconcileError",
            },
            Operation::Restore => Self {
                begun_text: "Restoring Shoot cluster",
                done_text: "Restored Shoot cluster",
                ..Self::of(Operation::Reconcile)
            },
            Operation::Migrate => Self {
                action: "Migrate",
                begun: "PrepareMigration",
                begun_text: "Preparing Shoot cluster for migration",
                done: "MigrationPrepared",
                done_text: "Prepared Shoot cluster for migration",
                failed: "MigrationPreparationFailed",
            },
            Operation::Delete | Operation::ForceDelete => Self {
                action: "Delete",
                begun: "Deleting",
                begun_text: "Deleting Shoot cluster",
                done: "Deleted",
                done_text: "Deleted Shoot cluster",
                failed: "DeleteError",
            },
        }
    }
}

impl RunningShootFlow {
    fn fulfilled(&self) -> Vec<&'static str> {
        requests::fulfilled(self.work.shoot(), |name| self.flow.is_done(name))
    }
}

impl ShootReconciler {
    /// Reports that all tasks have been done since `at`. Errors: a request fails; [`EndError`] tells whether
    /// the result is still to be reported.
    pub(super) fn succeeded(
        &self,
        key: &Key,
        running: &RunningShootFlow,
        at: Timestamp,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, EndError> {
        let RunningShootFlow { work, report, .. } = running;
        if report.operation().is_deletion() {
            return self.deleted(key, report, at, cx);
        }
        let Some(mut live) = self.env.garden.find::<Value>(&SHOOT, key)? else {
            return Ok(ReconcileOutcome::Done);
        };
        let leaves = report.operation() == Operation::Migrate;
        if leaves {
            // Before the status, with which the other seed becomes responsible.
            self.delete_cluster(work.shoot())?;
        }
        if report.operation() == Operation::Restore && !annotation(&live, ACCEPT_LOSS).is_empty() {
            live = self.env.garden.patch(&SHOOT, key, &Patch::annotation(ACCEPT_LOSS, Value::Null))?;
        }
        // Before the status: a reader of a successful status may request the same tasks again.
        let written = self.strike_off(key, running, live).and_then(|live| {
            let is_hibernated = work.facts().is_hibernated || leaves && work.facts().sleeps;
            self.patch_status(key, report.succeeded(at, &OperationSuccess { shoot: &live, is_hibernated }))
        });
        let shoot = match written {
            Ok(shoot) => shoot,
            Err(error) => return Err(EndError::of(error)),
        };
        if leaves {
            self.tell(key, &shoot, report.operation(), OperationEvent::Succeeded, cx);
            log::info!(shoot = key.to_string().as_str(); "The Shoot has left for another seed");
            return Ok(ReconcileOutcome::Done);
        }
        if let Err(failed) = cluster::sync(&self.env, &shoot, work.inputs()) {
            return Err(EndError::Reported(failed.into()));
        }
        let name = key.to_string();
        let operation = report.operation().as_str();
        log::info!(shoot = name.as_str(), operation; "The Shoot is up to date");
        self.tell(key, &shoot, report.operation(), OperationEvent::Succeeded, cx);
        Ok(self.again(&shoot, &work.inputs().seed, cx))
    }

    /// Removes finished tasks from the Shoot's annotation, and returns the Shoot without them. If other clients keep
    /// changing the Shoot, the tasks stay, and the next operation does them again.
    fn strike_off(
        &self,
        key: &Key,
        running: &RunningShootFlow,
        mut live: Value,
    ) -> Result<Value, kube::Error> {
        let done = running.fulfilled();
        for _ in 0..STRIKES_MAX {
            let Some(patch) = running.report.task_annotations(&live, &done) else { break };
            match self.env.garden.patch(&SHOOT, key, &Patch::Merge(patch)) {
                // The Shoot's care often writes at this moment.
                Err(error) if error.is_conflict() => {
                    let Some(again) = self.env.garden.find(&SHOOT, key)? else { break };
                    live = again;
                }
                other => return other,
            }
        }
        Ok(live)
    }

    /// The same after other tasks have failed, so that the next try does not repeat them. Errors:
    /// the garden is unreachable.
    pub(super) fn strike_off_done(&self, key: &Key, running: &RunningShootFlow) -> Result<(), kube::Error> {
        if running.fulfilled().is_empty() {
            return Ok(());
        }
        let found = self.env.garden.find::<Value>(&SHOOT, key);
        let struck = found.and_then(|live| live.map(|live| self.strike_off(key, running, live)).transpose());
        match struck {
            Err(error) if is_away(&error) => Err(error),
            Err(error) => {
                let (shoot, err) = (key.to_string(), chain(&error));
                log::warn!(shoot = shoot.as_str(), err = err.as_str(); "Cannot remove finished tasks from the Shoot's annotation");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// Reports that tasks have failed, the last one `at`.
    pub(super) fn failed(
        &self,
        key: &Key,
        report: &OperationReport,
        errors: &[TaskError],
        at: Timestamp,
        cx: &ReconcileContext,
    ) -> EndError {
        let failure = flow::describe(errors);
        let is_final = report.is_final(errors, at);
        let written = self.patch_status(key, report.failed(errors, at));
        match written {
            Ok(shoot) => {
                self.tell(key, &shoot, report.operation(), OperationEvent::Failed(&failure), cx);
            }
            Err(error) if is_away(&error) => return EndError::Unreported(error.into()),
            Err(error) => {
                let (shoot, err) = (key.to_string(), chain(&error));
                log::warn!(shoot = shoot.as_str(), err = err.as_str(); "Cannot write the Shoot's last operation");
                return EndError::Reported(ReconcileFailure::retry(failure));
            }
        }
        // A permanent failure is not retried before somebody changes the Shoot.
        EndError::Reported(if is_final {
            ReconcileFailure::terminal(failure)
        } else {
            ReconcileFailure::retry(failure)
        })
    }

    /// Tells what the last restoration has lost, unless that was told. It does not wait for the success: the owner may want to know it
    /// before. If the garden has no Event of it, the next operation tells it.
    pub(super) fn tell_lost(&self, key: &Key, running: &RunningShootFlow, cx: &ReconcileContext) {
        let (operation, shoot) = (running.report.operation(), running.work.shoot());
        if !matches!(operation, Operation::Restore | Operation::Reconcile) {
            return;
        }
        let (seed, namespace) = (&self.env.seed, text(&shoot["status"]["technicalID"]));
        let told = lost::find(seed, namespace).and_then(|found| match found {
            Some(what) if self.tell(key, shoot, operation, OperationEvent::Lost(&what), cx) => {
                lost::forget(seed, namespace)
            }
            _ => Ok(()),
        });
        if let Err(error) = told {
            let (shoot, err) = (key.to_string(), chain(&error));
            log::warn!(shoot = shoot.as_str(), err = err.as_str(); "Cannot tell what the restoration of the Shoot has lost");
        }
    }

    /// Whether the garden has the event.
    pub(super) fn tell(
        &self,
        key: &Key,
        shoot: &Value,
        operation: Operation,
        news: OperationEvent<'_>,
        cx: &ReconcileContext,
    ) -> bool {
        let (warning, reason, note) = news.words(operation);
        let action = EventWords::of(operation).action;
        let uid = text(&shoot["metadata"]["uid"]);
        let about = InvolvedObject { resource: &SHOOT, namespace: &key.namespace, name: &key.name, uid };
        let news = events::Event { controller: "shoot-controller", warning, reason, action, note };
        cx.events.tell(&self.env.garden, &cx.clock, about, news)
    }
}

/// Whether to clean up later, because the seed did not answer. An answer is an error of the operation.
pub(super) fn is_no_answer(error: &secrets::Error) -> bool {
    matches!(error, secrets::Error::Kube { source, .. } if is_away(source) && source.status_code().is_none())
}

/// Whether to report the same to the garden later.
pub(super) fn is_away(error: &kube::Error) -> bool {
    matches!(error.verdict(), ErrorVerdict::Unreachable | ErrorVerdict::Throttled(_) | ErrorVerdict::Fenced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::StatusFailure as Answer;

    #[test]
    fn an_answer_of_the_seed_is_final() {
        let answer = |code| kube::Error::Api(Box::new(Answer { code, ..Answer::default() }));
        let table = [
            (kube::Error::Stopped, true),
            (kube::Error::Limited, true),
            (answer(500), false),
            (answer(403), false),
        ];
        for (source, expected) in table {
            let text = source.to_string();
            let error = secrets::Error::Kube { operation: "delete".to_owned(), source };
            assert_eq!(is_no_answer(&error), expected, "{text}");
        }
        assert!(!is_no_answer(&secrets::Error::NoCa { ca: "ca".to_owned() }));
    }
}
