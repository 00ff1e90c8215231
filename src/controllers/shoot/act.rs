//! The turns of a Shoot's flow, and their reports.

use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::flow::{
    Failed, Flow, FlowObserver, FlowProgress, FlowTurn, LentValue, ProgressWriter, ReportPacer, TaskError,
};
use crate::kube;
use crate::operation::{Operation, Work};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};

use super::ShootReconciler;
use super::decide;
use super::finish::{is_away, is_no_answer};
use super::report::OperationReport;

/// A flow between its turns.
pub(super) struct RunningShootFlow {
    pub(super) flow: Flow<Work>,
    pub(super) work: Work,
    pub(super) report: OperationReport,
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
    pub(super) fn unfinished(&self, key: &Key) -> Option<RunningShootFlow> {
        let running = self.running.lock().ignore_poison().remove(key)?;
        let now = self.site.heads.store().get(key)?;
        let then = &running.work.shoot()["metadata"];
        let is_new = now.metadata.deletion_timestamp.is_some() && then["deletionTimestamp"].is_null();
        // The cache may be older than the start of the operation.
        let is_more_force =
            decide::is_forced(&now.metadata.annotations) && running.report.operation() == Operation::Delete;
        let is_same = text(&then["uid"]) == now.metadata.uid
            && now.metadata.generation <= running.report.generation()
            && !is_new
            && !is_more_force;
        is_same.then_some(running)
    }

    /// Runs the tasks that can run now.
    pub(super) fn turn(
        &self,
        key: &Key,
        running: RunningShootFlow,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        let mut held = LentValue::new(|running| self.keep(key, running));
        let running = held.lend(running);
        let (errors, at) = match &running.ended {
            Some(before) => before.clone(),
            None => {
                let now = || cx.clock.mono();
                let RunningShootFlow { flow, work, report, pacer, done, .. } = &mut *running;
                let writer = ProgressWriter::new(&self.env.garden, SHOOT, key, pacer, &cx.clock);
                let mut observer = ShootFlowObserver { writer, report, done };
                match flow.turn(work, &now, &mut observer) {
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

    fn keep(&self, key: &Key, running: RunningShootFlow) {
        self.running.lock().ignore_poison().insert(key.clone(), running);
    }

    /// Reports the result of the flow, which has ended `at`, to the garden.
    fn end(
        &self,
        key: &Key,
        running: &mut RunningShootFlow,
        errors: &[TaskError],
        at: Timestamp,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, EndError> {
        self.tell_lost(key, running, cx);
        if !errors.is_empty() {
            self.strike_off_done(key, running)?;
            return Err(self.failed(key, &running.report, errors, at, cx));
        }
        match running.work.clean_up() {
            Err(error) if is_no_answer(&error) => Err(EndError::Unreported(Failed::from(error).into())),
            Err(error) => {
                let failed = Failed::from(error);
                // Upstream's text, which names no task.
                let text = format!("failed to clean no longer required secrets: {}", failed.text);
                let error = TaskError { task: String::new(), failed: Failed { text, ..failed } };
                self.strike_off_done(key, running)?;
                Err(self.failed(key, &running.report, &[error], at, cx))
            }
            Ok(()) => self.succeeded(key, running, at, cx),
        }
    }
}

/// Writes the progress of a flow to the Shoot.
struct ShootFlowObserver<'a> {
    writer: ProgressWriter<'a>,
    report: &'a mut OperationReport,
    done: &'a mut Vec<String>,
}

impl FlowObserver for ShootFlowObserver<'_> {
    fn progress(&mut self, progress: &FlowProgress) {
        let mut report = None;
        let written = self.writer.write(progress, |now| {
            let (patch, told) = self.report.going_on(progress, self.done, now)?;
            report = Some(told);
            Some(patch)
        });
        match (written, report) {
            (Ok(true), Some(report)) => {
                self.report.has_told(report);
                self.done.clear();
            }
            (Ok(_), _) => {}
            (Err(e), _) => {
                // The flow continues in the seed even if the garden is unreachable.
                let (shoot, err) = (self.writer.key.to_string(), chain(&e));
                log::debug!(shoot = shoot.as_str(), err = err.as_str(); "Cannot write the progress");
            }
        }
    }

    fn done(&mut self, task: &str) {
        self.done.push(task.to_owned());
        let shoot = self.writer.key.to_string();
        log::debug!(shoot = shoot.as_str(), task; "The task is done");
    }
}
