//! Tables of tasks. A row is a task; its name is its key, and is displayed while it runs.

use std::fmt;
use std::time::Duration;

use super::{Attempt, Failed, FlowTask, TaskOutline, TaskStep};

/// What a task does. It returns at once; while it waits for something, it is called again.
pub type TaskFunction<C> = fn(&mut C, &Attempt) -> Result<TaskStep, Failed>;
/// A condition about the facts at the start of a flow.
pub(crate) type When<F> = fn(&F) -> bool;

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

    /// It starts when these tasks are done.
    #[must_use]
    pub const fn after(mut self, names: &'static [&'static str]) -> Self {
        self.after = names;
        self
    }

    /// Under this condition, it also waits for these tasks.
    #[must_use]
    pub(crate) const fn also_after(mut self, when: When<F>, names: &'static [&'static str]) -> Self {
        self.also = Some((when, names));
        self
    }

    /// It is skipped unless this holds. A skipped task lets others start as soon as it could have started itself.
    #[must_use]
    pub(crate) const fn when(mut self, when: When<F>) -> Self {
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
    pub(crate) const fn retrying(mut self, interval: Duration, time: Duration) -> Self {
        self.retry = Some(interval);
        self.within(time)
    }

    /// Under this condition, it may take this time instead.
    #[must_use]
    pub(crate) const fn longer(mut self, when: When<F>, time: Duration) -> Self {
        self.longer = Some((when, time));
        self
    }

    /// No task waits for it.
    #[must_use]
    pub(crate) const fn last(mut self) -> Self {
        self.is_last = true;
        self
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Where its result can be seen.
    pub(crate) const fn evidence(&self) -> &E {
        &self.evidence
    }

    /// The tasks that it may wait for.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        let also = self.also.map_or(&[][..], |(_, names)| names);
        self.after.iter().chain(also).copied()
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

/// Rows in an order in which each comes after those that it may wait for. Otherwise they stay in the order of the table. Rows
/// that wait for each other come last.
pub(super) fn ordered<'a, C, F, E>(
    rows: impl IntoIterator<Item = &'a TaskRow<C, F, E>>,
) -> Vec<&'a TaskRow<C, F, E>> {
    let mut open: Vec<_> = rows.into_iter().collect();
    let mut ordered = Vec::with_capacity(open.len());
    while !open.is_empty() {
        let can_start =
            |row: &TaskRow<C, F, E>| row.names().all(|name| open.iter().all(|other| other.name != name));
        let Some(next) = open.iter().position(|row| can_start(row)) else { break };
        ordered.push(open.remove(next));
    }
    ordered.append(&mut open);
    ordered
}

/// The tasks of a flow, each after those that it waits for.
pub(crate) fn outline<'a, C: 'a, F: 'a, E: 'a>(
    rows: impl IntoIterator<Item = &'a TaskRow<C, F, E>>,
    facts: &F,
) -> Vec<TaskOutline> {
    of_ordered(&ordered(rows), facts)
}

pub(super) fn of_ordered<C, F, E>(rows: &[&TaskRow<C, F, E>], facts: &F) -> Vec<TaskOutline> {
    let place = |name: &str| rows.iter().position(|row| row.name == name);
    let of = |row: &&TaskRow<C, F, E>| TaskOutline {
        name: row.name,
        needs: row.needs(facts).filter_map(place).collect(),
        is_skipped: row.when.is_some_and(|when| !when(facts)),
    };
    rows.iter().map(of).collect()
}

/// What is wrong with a table, for the tests of tables. Without problems, each task of a flow can start.
#[cfg(test)]
pub(crate) fn problems<'a, C: 'a, F: 'a, E: 'a>(
    rows: impl IntoIterator<Item = &'a TaskRow<C, F, E>>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let rows = ordered(rows);
    let place = |name: &str| rows.iter().position(|row| row.name == name);
    let all: Vec<&str> = rows.iter().flat_map(|row| row.names()).collect();
    for (index, row) in rows.iter().enumerate() {
        let name = row.name;
        if place(name) != Some(index) {
            problems.push(format!("two tasks have the name {name:?}"));
        }
        for need in row.names() {
            match place(need) {
                Some(_) if need == name => problems.push(format!("{name:?} waits for itself")),
                None => problems.push(format!("{name:?} waits for {need:?}, which is no task")),
                Some(at) if at > index => {
                    problems.push(format!("{name:?} waits for {need:?}, which waits for it"));
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
