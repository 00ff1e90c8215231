//! Flows: tasks that depend on each other. Each is a step that is repeated until it is done (Gardener's
//! `pkg/utils/flow`).
//!
//! Waiting does not block a thread: a step returns [`TaskStep::Again`], and the flow returns when it needs its next turn. A
//! run stores only which tasks are done. A lost run starts again, and its tasks find their earlier results in the
//! clusters.

use std::fmt;
use std::time::Duration;

use crate::base::clock::Mono;
use crate::base::error::chain;
use crate::kube::{self, ErrorVerdict};
use crate::runtime::controller::ReconcileFailure;

mod held;
mod report;
mod table;
mod writer;

pub(crate) use held::LentValue;
pub use report::FlowProgress;
pub(crate) use report::ReportPacer;
pub(crate) use table::outline;
#[cfg(test)]
pub(crate) use table::problems;
pub use table::{TaskFunction, TaskRow};
use table::{of_ordered, ordered};
pub(crate) use writer::ProgressWriter;

/// The result of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskStep {
    /// The task is done.
    Done,
    /// It is not done yet.
    Again {
        /// When to continue.
        after: Duration,
        /// What it waits for. If the deadline passes, this is the error.
        why: Failed,
    },
}

impl TaskStep {
    pub(crate) fn again(after: Duration, why: impl Into<Failed>) -> Self {
        Self::Again { after, why: why.into() }
    }
}

/// Why a task failed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Failed {
    /// A text for people.
    pub text: String,
    /// Gardener's error codes.
    pub codes: Vec<String>,
    /// What the server's answer means, if a request was the reason.
    pub(crate) verdict: Option<ErrorVerdict>,
    /// Set if nothing was sent: when to try again. The task has not failed then.
    pub postponed: Option<Duration>,
    /// The text stands beside the task's name while the task waits: it takes long, and it goes on.
    pub(crate) is_progress: bool,
}

impl Failed {
    /// Without codes.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// The failure of a request, with a text for people.
    pub(crate) fn request(text: impl Into<String>, error: &kube::Error) -> Self {
        Self { verdict: Some(error.verdict()), postponed: error.postponed(), ..Self::new(text) }
    }

    /// What a task is doing, for the progress of its flow.
    pub(crate) fn progress(text: impl Into<String>) -> Self {
        Self { is_progress: true, ..Self::new(text) }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&str> for Failed {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Failed {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// For a step outside of a flow: a postponed request is not a failed attempt.
impl From<Failed> for ReconcileFailure {
    fn from(failed: Failed) -> Self {
        match failed.postponed {
            Some(after) => Self::later(after, failed.text),
            None => Self::retry(failed.text),
        }
    }
}

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        Self::request(chain(&error), &error)
    }
}

/// What a step knows about its task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// When the task started.
    pub begun: Mono,
    /// Now.
    pub now: Mono,
    /// How often it was tried before.
    pub tries: u32,
}

struct FlowTask<C> {
    name: &'static str,
    /// The tasks that must be done before it starts.
    needs: Vec<usize>,
    run: TaskFunction<C>,
    /// How long it may take.
    within: Option<Duration>,
    /// Its errors are retried after this time.
    retry: Option<Duration>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Pending,
    /// Started, to be tried again.
    Waiting {
        begun: Mono,
        due: Mono,
        tries: u32,
        last: Option<Failed>,
    },
    /// Being tried. If it has this state in the next turn, it has panicked.
    Trying,
    Done,
    /// Skipped: it counts as done, but not for the progress.
    Skipped,
    Failed,
}

/// A flow and its progress.
pub struct Flow<C> {
    name: &'static str,
    tasks: Vec<FlowTask<C>>,
    states: Vec<State>,
    errors: Vec<TaskError>,
}

impl<C> fmt::Debug for Flow<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("name", &self.name).field("states", &self.states).finish_non_exhaustive()
    }
}

/// A task that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskError {
    /// Its name; empty for the steps after all tasks.
    pub(crate) task: String,
    /// Why.
    pub failed: Failed,
}

/// In the words of upstream's flows.
impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.task.is_empty() {
            return self.failed.fmt(f);
        }
        write!(f, "task {:?} failed: {}", self.task, self.failed)
    }
}

/// All errors of a flow in one line.
pub(crate) fn describe(errors: &[TaskError]) -> String {
    errors.iter().map(TaskError::to_string).collect::<Vec<String>>().join("; ")
}

/// A task as the table of its flow describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TaskOutline {
    pub(crate) name: &'static str,
    /// The tasks that must be done before it starts, by their index in the list. They precede it.
    pub(crate) needs: Vec<usize>,
    /// It is skipped. Its dependents may start as soon as it could have started itself.
    pub(crate) is_skipped: bool,
}

/// The result of a turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowTurn {
    /// It needs the next turn after this time.
    Again(Duration),
    /// The flow has ended, with the errors of its tasks in the order in which they failed; without errors, all are done.
    Ended(Vec<TaskError>),
}

/// Receives the events of a flow.
pub trait FlowObserver {
    /// Tasks have started or ended.
    fn progress(&mut self, progress: &FlowProgress);
    /// A task is done.
    fn done(&mut self, _task: &str) {}
}

/// How soon a task tries again after a conflict.
const CONFLICT_AGAIN: Duration = Duration::from_millis(200);
/// So many conflicts of a task are no failure, also if its other errors are not retried.
const CONFLICTS_MAX: u32 = 5;
/// A turn ends after this time even if tasks could continue, because other flows need the worker too.
const TURN_MAX: Duration = Duration::from_secs(2);

impl<C> Flow<C> {
    /// The flow of a table without [`problems`]. The facts decide which of its tasks are skipped.
    pub fn new<'a, F: 'a, E: 'a>(
        name: &'static str,
        rows: impl IntoIterator<Item = &'a TaskRow<C, F, E>>,
        facts: &F,
    ) -> Self
    where
        C: 'a,
    {
        let rows = ordered(rows);
        let outline = of_ordered(&rows, facts);
        let state = |task: &TaskOutline| if task.is_skipped { State::Skipped } else { State::Pending };
        let states = outline.iter().map(state).collect();
        let tasks = rows.iter().zip(outline).map(|(row, outline)| row.task(outline.needs, facts)).collect();
        Self { name, tasks, states, errors: Vec::new() }
    }

    /// Whether the task of this name has run and is done.
    pub(crate) fn is_done(&self, name: &str) -> bool {
        let is_done = |(task, state): (&FlowTask<C>, &State)| task.name == name && *state == State::Done;
        self.tasks.iter().zip(&self.states).any(is_done)
    }

    pub(crate) fn progress(&self) -> FlowProgress {
        let count = |wanted: &State| self.states.iter().filter(|state| *state == wanted).count();
        let all = self.states.len() - count(&State::Skipped);
        let mut running: Vec<String> = Vec::new();
        for (task, state) in self.tasks.iter().zip(&self.states) {
            match state {
                State::Waiting { last: Some(last), .. } if last.is_progress => {
                    running.push(format!("{} ({})", task.name, last.text));
                }
                State::Waiting { .. } | State::Trying => running.push(task.name.to_owned()),
                _ => {}
            }
        }
        running.sort_unstable();
        FlowProgress::new(self.name, count(&State::Done), all, &running)
    }

    /// Tries all due tasks. `now` is called before and after each step.
    pub fn turn(
        &mut self,
        context: &mut C,
        now: &dyn Fn() -> Mono,
        observer: &mut dyn FlowObserver,
    ) -> FlowTurn {
        self.bury();
        let begun = now();
        loop {
            if self.begin(now()) {
                observer.progress(&self.progress());
            }
            let (mut has_ended, mut is_over) = (false, false);
            for index in self.due(now()) {
                has_ended |= self.attempt(index, context, now, observer);
                is_over = now().saturating_sub(begun) >= TURN_MAX;
                if is_over {
                    break;
                }
            }
            // An ended task may let others start.
            if has_ended && !is_over {
                continue;
            }
            // Observers that skip some reports get another chance.
            observer.progress(&self.progress());
            match self.next_due() {
                _ if has_ended => return FlowTurn::Again(Duration::ZERO),
                Some(due) => return FlowTurn::Again(due.saturating_sub(now())),
                None => return FlowTurn::Ended(self.errors.clone()),
            }
        }
    }

    /// Fails a task that was being tried when the worker panicked.
    fn bury(&mut self) {
        for index in 0..self.states.len() {
            if self.states[index] == State::Trying {
                self.fail(index, Failed::new("the program panicked; its log says where"));
            }
        }
    }

    /// Starts the tasks that can start.
    fn begin(&mut self, now: Mono) -> bool {
        let mut has_begun = false;
        // Whether the dependents of a task may start. They have higher indices. A skipped task lets them start as soon
        // as it could have started itself.
        let mut open = vec![false; self.states.len()];
        for index in 0..self.states.len() {
            let is_ready = self.tasks[index].needs.iter().all(|need| open[*need]);
            open[index] = match self.states[index] {
                State::Done => true,
                State::Skipped => is_ready,
                State::Pending if is_ready => {
                    self.states[index] = State::Waiting { begun: now, due: now, tries: 0, last: None };
                    has_begun = true;
                    false
                }
                _ => false,
            };
        }
        has_begun
    }

    /// The due tasks, the longest waiting one first.
    fn due(&self, now: Mono) -> Vec<usize> {
        let mut due: Vec<(Mono, usize)> = Vec::new();
        for (index, state) in self.states.iter().enumerate() {
            if let State::Waiting { due: at, .. } = state
                && *at <= now
            {
                due.push((*at, index));
            }
        }
        due.sort_unstable();
        due.into_iter().map(|(_, index)| index).collect()
    }

    fn next_due(&self) -> Option<Mono> {
        let due = |state: &State| match state {
            State::Waiting { due, .. } => Some(*due),
            _ => None,
        };
        self.states.iter().filter_map(due).min()
    }

    /// Tries a task; returns whether it ended.
    fn attempt(
        &mut self,
        index: usize,
        context: &mut C,
        now: &dyn Fn() -> Mono,
        observer: &mut dyn FlowObserver,
    ) -> bool {
        let State::Waiting { begun, tries, .. } = std::mem::replace(&mut self.states[index], State::Trying)
        else {
            return false;
        };
        let task = &self.tasks[index];
        let result = (task.run)(context, &Attempt { begun, now: now(), tries });
        let (after, why, tries) = match result {
            Ok(TaskStep::Done) => {
                self.states[index] = State::Done;
                observer.done(self.tasks[index].name);
                observer.progress(&self.progress());
                return true;
            }
            Ok(TaskStep::Again { after, why }) => (Some(after), why, tries.saturating_add(1)),
            Err(failed) => match failed.postponed {
                Some(after) => (Some(after), failed, tries),
                // Another writer came first. The task reads again.
                None if failed.verdict == Some(ErrorVerdict::Conflict) && tries < CONFLICTS_MAX => {
                    (Some(CONFLICT_AGAIN), failed, tries.saturating_add(1))
                }
                None => (task.retry, failed, tries.saturating_add(1)),
            },
        };
        // A step may take longer than its interval, so the pause starts after it.
        let now = now();
        let deadline = task.within.map(|time| begun.saturating_add(time));
        match after {
            Some(after) if deadline.is_none_or(|deadline| now < deadline) => {
                // The last try is at the deadline.
                let due = now.saturating_add(after);
                let due = deadline.map_or(due, |deadline| due.min(deadline));
                self.states[index] = State::Waiting { begun, due, tries, last: Some(why) };
                false
            }
            _ => {
                self.fail(index, why);
                observer.progress(&self.progress());
                true
            }
        }
    }

    fn fail(&mut self, index: usize, failed: Failed) {
        self.states[index] = State::Failed;
        self.errors.push(TaskError { task: self.tasks[index].name.to_owned(), failed });
    }
}

#[cfg(test)]
mod tests;
