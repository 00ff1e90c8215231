//! Tables of tasks. A row is a task; its name is its key, and is displayed while it runs.

use std::fmt;
use std::time::Duration;

use super::{Attempt, Failed, FlowTask, TaskOutline, TaskStep};

/// What a task does. It returns at once; while it waits for something, it is called again.
pub type TaskFunction<C> = fn(&mut C, &Attempt) -> Result<TaskStep, Failed>;
/// A condition about the facts at the start of a flow.
pub type When<F> = fn(&F) -> bool;

/// A task. `C` is the state that the tasks of a flow share, `F` are the facts that decide which tasks are needed, and `E` says
/// where its result can be seen.
pub struct TaskRow<C, F, E> {
    name: &'static str,
    run: TaskFunction<C>,
    after: &'static [&'static str],
    also: Option<(When<F>, &'static [&'static str])>,
    when: Option<When<F>>,
    retry: Option<Duration>,
    within: Option<Duration>,
    longer: Option<(When<F>, Duration)>,
    is_last: bool,
    evidence: E,
}

impl<C, F, E> fmt::Debug for TaskRow<C, F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRow")
            .field("name", &self.name)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl<C, F, E> TaskRow<C, F, E> {
    /// A task that every flow needs, that waits for no other, and whose errors are not retried.
    pub const fn new(name: &'static str, run: TaskFunction<C>, evidence: E) -> Self {
        Self {
            name,
            run,
            after: &[],
            also: None,
            when: None,
            retry: None,
            within: None,
            longer: None,
            is_last: false,
            evidence,
        }
    }

    /// It starts when these tasks are done. They come earlier in the table.
    #[must_use]
    pub const fn after(mut self, names: &'static [&'static str]) -> Self {
        self.after = names;
        self
    }

    /// Under this condition, it also waits for these tasks.
    #[must_use]
    pub const fn also_after(mut self, when: When<F>, names: &'static [&'static str]) -> Self {
        self.also = Some((when, names));
        self
    }

    /// It is skipped unless this holds. A skipped task lets others start as soon as it could have started itself.
    #[must_use]
    pub const fn when(mut self, when: When<F>) -> Self {
        self.when = Some(when);
        self
    }

    /// It fails if it is not done after this time.
    #[must_use]
    pub const fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    /// An error is retried after `interval`, until the task has taken `time`.
    #[must_use]
    pub const fn retrying(mut self, interval: Duration, time: Duration) -> Self {
        self.retry = Some(interval);
        self.within(time)
    }

    /// Under this condition, it may take this time instead.
    #[must_use]
    pub const fn longer(mut self, when: When<F>, time: Duration) -> Self {
        self.longer = Some((when, time));
        self
    }

    /// No task waits for it.
    #[must_use]
    pub const fn last(mut self) -> Self {
        self.is_last = true;
        self
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Where its result can be seen.
    pub const fn evidence(&self) -> &E {
        &self.evidence
    }

    /// The tasks that it waits for.
    fn needs(&self, facts: &F) -> impl Iterator<Item = &'static str> {
        let also = self.also.filter(|(when, _)| when(facts)).map_or(&[][..], |(_, names)| names);
        self.after.iter().chain(also).copied()
    }

    pub(super) fn task(&self, needs: Vec<usize>, facts: &F) -> FlowTask<C> {
        let longer = self.longer.filter(|(when, _)| when(facts)).map(|(_, time)| time);
        let within = longer.or(self.within);
        FlowTask { name: self.name, needs, run: self.run, within, retry: self.retry }
    }
}

/// The tasks of a flow in the order of its table.
pub fn outline<C, F, E>(rows: &[TaskRow<C, F, E>], facts: &F) -> Vec<TaskOutline> {
    let place = |name: &str| rows.iter().position(|row| row.name == name);
    let of = |row: &TaskRow<C, F, E>| TaskOutline {
        name: row.name,
        needs: row.needs(facts).filter_map(place).collect(),
        is_skipped: row.when.is_some_and(|when| !when(facts)),
    };
    rows.iter().map(of).collect()
}

/// What is wrong with a table, for the tests of tables. Without problems, each task of a flow can start.
pub fn problems<C, F, E>(rows: &[TaskRow<C, F, E>]) -> Vec<String> {
    let mut problems = Vec::new();
    let place = |name: &str| rows.iter().position(|row| row.name == name);
    let needs = |row: &TaskRow<C, F, E>| {
        row.after.iter().chain(row.also.map_or(&[][..], |(_, names)| names)).copied().collect::<Vec<_>>()
    };
    let all: Vec<&str> = rows.iter().flat_map(needs).collect();
    for (index, row) in rows.iter().enumerate() {
        let name = row.name;
        if place(name) != Some(index) {
            problems.push(format!("two tasks have the name {name:?}"));
        }
        for need in needs(row) {
            match place(need) {
                None => problems.push(format!("{name:?} waits for {need:?}, which is no task")),
                Some(at) if at == index => problems.push(format!("{name:?} waits for itself")),
                Some(at) if at > index => {
                    problems.push(format!("{name:?} waits for {need:?}, which comes later"));
                }
                Some(_) => {}
            }
        }
        if row.is_last == all.contains(&name) {
            let what =
                if row.is_last { "is the last one, but others wait for it" } else { "is not waited for" };
            problems.push(format!("{name:?} {what}"));
        }
    }
    problems
}
