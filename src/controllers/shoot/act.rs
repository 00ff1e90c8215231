//! The turns of a Shoot's flow, and their reports.

use std::sync::PoisonError;

use serde_json::Value;

use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::flow::{Failed, Flow, FlowObserver, FlowProgress, FlowTurn, LentValue, ReportPacer, TaskError};
use crate::kube::{self, Garden, Patch};
use crate::operation::{Operation, Work};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};

use super::ShootReconciler;
use super::decide;
use super::finish::{is_away, is_no_answer};
use super::frame::Frame;

/// A flow between its turns.
pub(super) struct Running {
    pub(super) flow: Flow<Work>,
    pub(super) work: Work,
    pub(super) frame: Frame,
    pub(super) pacer: ReportPacer,
    /// Tasks that have finished since the last report.
    pub(super) done: Vec<String>,
    /// The result, until it is written to the garden.
    pub(super) ended: Option<(Vec<TaskError>, Timestamp)>,
}

/// Why a reconciliation ends with a failure.
#[derive(Debug)]
pub(super) enum EndError {
    /// The operation is over: its result is in the garden, or the garden has refused it.
    Reported(ReconcileFailure),
    /// The result is still to be reported, in the next turn: the garden or the seed has not answered.
    Unreported(ReconcileFailure),
}

impl EndError {
    pub(super) fn into_failure(self) -> ReconcileFailure {
        match self {
            Self::Reported(failure) | Self::Unreported(failure) => failure,
        }
    }

    /// An answer of the server ends the operation; without an answer, the next turn reports again.
    pub(super) fn of(error: kube::Error) -> Self {
        if is_away(&error) { Self::Unreported(error.into()) } else { Self::Reported(error.into()) }
    }
}

/// A read before the report failed: the next turn tries again.
impl From<kube::Error> for EndError {
    fn from(error: kube::Error) -> Self {
        Self::Unreported(error.into())
    }
}

impl ShootReconciler {
    /// The operation that waits for its next turn, if the Shoot's request has not changed.
    pub(super) fn unfinished(&self, key: &Key) -> Option<Running> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(key)?;
        let now = self.site.heads.store().get(key)?;
        let then = &running.work.shoot()["metadata"];
        let is_new = now.metadata.deletion_timestamp.is_some() && then["deletionTimestamp"].is_null();
        // The cache may be older than the start of the operation.
        let is_more_force =
            decide::is_forced(&now.metadata.annotations) && running.frame.operation() == Operation::Delete;
        let is_same = text(&then["uid"]) == now.metadata.uid
            && now.metadata.generation <= running.frame.generation()
            && !is_new
            && !is_more_force;
        is_same.then_some(running)
    }

    /// Runs the tasks that can run now.
    pub(super) fn turn(
        &self,
        key: &Key,
        running: Running,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        let mut held = LentValue::new(|running| self.keep(key, running));
        let running = held.lend(running);
        let (errors, at) = match &running.ended {
            Some(before) => before.clone(),
            None => {
                let now = || cx.clock.mono();
                let Running { flow, work, frame, pacer, done, .. } = &mut *running;
                let mut teller =
                    Teller { garden: &self.env.garden, key, pacer, frame, done, is_refused: false, cx };
                match flow.turn(work, &now, &mut teller) {
                    FlowTurn::Again(after) => return Ok(ReconcileOutcome::GoOn(after)),
                    FlowTurn::Ended(errors) => (errors, cx.clock.now()),
                }
            }
        };
        // If the garden or the seed is unreachable, a later turn writes the result. No task runs twice.
        running.ended = Some((errors.clone(), at));
        match self.end(key, running, &errors, at, cx) {
            Err(EndError::Unreported(failure)) => Err(failure),
            Err(EndError::Reported(failure)) => {
                held.forget();
                Err(failure)
            }
            Ok(outcome) => {
                held.forget();
                Ok(outcome)
            }
        }
    }

    fn keep(&self, key: &Key, running: Running) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), running);
    }

    /// Reports the result of the flow, which has ended `at`, to the garden.
    fn end(
        &self,
        key: &Key,
        running: &mut Running,
        errors: &[TaskError],
        at: Timestamp,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, EndError> {
        if !errors.is_empty() {
            self.strike_off_done(key, running)?;
            return Err(self.failed(key, &running.frame, errors, at, cx));
        }
        match running.work.clean_up() {
            Err(error) if is_no_answer(&error) => Err(EndError::Unreported(Failed::from(error).into())),
            Err(error) => {
                let failed = Failed::from(error);
                // Upstream's text, which names no task.
                let text = format!("failed to clean no longer required secrets: {}", failed.text);
                let error = TaskError { task: String::new(), failed: Failed { text, ..failed } };
                self.strike_off_done(key, running)?;
                Err(self.failed(key, &running.frame, &[error], at, cx))
            }
            Ok(()) => self.succeeded(key, running, at, cx),
        }
    }
}

/// Writes the progress of a flow to the Shoot.
struct Teller<'a> {
    garden: &'a Garden,
    key: &'a Key,
    pacer: &'a mut ReportPacer,
    frame: &'a mut Frame,
    done: &'a mut Vec<String>,
    /// A report of this turn was refused. The next turn sends the state of that time.
    is_refused: bool,
    cx: &'a ReconcileContext,
}

impl FlowObserver for Teller<'_> {
    fn progress(&mut self, progress: &FlowProgress) {
        // The start and the end are written in any case.
        let is_between = (1..100).contains(&progress.percent);
        let now = self.cx.clock.mono();
        if !is_between || self.is_refused || !self.pacer.is_due(progress, now) {
            return;
        }
        let Some((patch, report)) = self.frame.going_on(progress, self.done, self.cx.clock.now()) else {
            return;
        };
        match self.garden.patch_status::<Value>(&SHOOT, self.key, &Patch::Strategic(patch)) {
            Ok(_) => {
                self.pacer.has_told(progress, now);
                self.frame.has_told(report);
                self.done.clear();
            }
            Err(e) => {
                // The flow continues in the seed even if the garden is unreachable.
                self.is_refused = true;
                let (shoot, err) = (self.key.to_string(), chain(&e));
                log::debug!(shoot = shoot.as_str(), err = err.as_str(); "Cannot write the progress");
            }
        }
    }

    fn done(&mut self, task: &str) {
        self.done.push(task.to_owned());
        let shoot = self.key.to_string();
        log::debug!(shoot = shoot.as_str(), task; "The task is done");
    }
}
