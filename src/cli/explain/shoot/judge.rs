//! Derives the state of each task of a flow from the agent's reports. No IO.
//!
//! A report contains the running tasks and the share of the completed tasks; the last report contains the failed ones.
//! A task starts only after all tasks that it needs, and a flow ends only when no other task can start. Whatever does
//! not follow from this stays unknown.

use serde_json::Value;

use crate::api::meta::text;
use crate::base::sorted::SortedSet;
use crate::controllers::shoot::status::INITIALIZE;
use crate::flow::TaskOutline;
use crate::shoot::secrets::MAKING;

/// The state of a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    Done,
    Running,
    /// It failed in the last run, which has ended. The text of its error, and its codes.
    Failed(String, Vec<String>),
    /// It has not started: it waits for these tasks, or the flow has not started.
    Waiting(Vec<usize>),
    Skipped,
    /// It is done or has failed: the end of the run will show it.
    Ended,
    Unknown,
}

/// The state of the run according to the Shoot's status.
#[derive(Clone, PartialEq, Eq, Debug)]
enum OperationRun {
    /// The flow has not started.
    None,
    /// These tasks run, and this percentage of tasks is done.
    Going(SortedSet<usize>, usize),
    /// These tasks failed, and the run has ended.
    Over(SortedSet<usize>),
    Succeeded,
    Unknown,
}

/// Derives the states of the tasks.
pub(super) fn judge(tasks: &[TaskOutline], status: &Value) -> Vec<State> {
    let judge = Judge { tasks };
    let mut states = match judge.run(status) {
        OperationRun::None => judge.all(|_| State::Waiting(Vec::new())),
        OperationRun::Succeeded => judge.all(|_| State::Done),
        OperationRun::Unknown => judge.all(|_| State::Unknown),
        OperationRun::Going(running, percent) => judge.going(&running, percent),
        OperationRun::Over(failed) => judge.over(&failed, status),
    };
    for index in 0..tasks.len() {
        if matches!(states[index], State::Waiting(_)) {
            states[index] = State::Waiting(judge.missing(index, &states));
        }
    }
    states
}

/// The errors of a run that belong to none of these tasks: they come from its preparation, or from another gardenlet.
pub(super) fn other_errors<'s>(tasks: &[TaskOutline], status: &'s Value) -> Vec<&'s Value> {
    let is_known = |error: &&Value| tasks.iter().any(|task| error["taskID"] == task.name);
    errors(status).filter(|error| !is_known(error)).collect()
}

/// The error of a task in an earlier run.
pub(super) fn error_of<'s>(task: &str, status: &'s Value) -> Option<&'s Value> {
    errors(status).find(|error| error["taskID"] == task)
}

fn errors(status: &Value) -> impl Iterator<Item = &Value> {
    status["lastErrors"].as_array().into_iter().flatten()
}

/// Whether the last operation's description contains the text of an error. There it may begin with a capital letter.
fn tells_of(last: &Value, error: &Value) -> bool {
    let mut rest = text(&error["description"]).chars();
    rest.next();
    text(&last["description"]).contains(rest.as_str())
}

struct Judge<'a> {
    tasks: &'a [TaskOutline],
}

impl Judge<'_> {
    fn all(&self, state: impl Fn(usize) -> State) -> Vec<State> {
        let of = |(index, task): (usize, &TaskOutline)| {
            if task.is_skipped { State::Skipped } else { state(index) }
        };
        self.tasks.iter().enumerate().map(of).collect()
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.tasks.iter().position(|task| task.name == name)
    }

    fn run(&self, status: &Value) -> OperationRun {
        let last = &status["lastOperation"];
        let failed: Option<SortedSet<usize>> =
            errors(status).map(|error| self.place(text(&error["taskID"]))).collect();
        match text(&last["state"]) {
            "" | "Pending" => OperationRun::None,
            "Succeeded" => OperationRun::Succeeded,
            "Processing" => self.reported(last),
            _ if errors(status).any(|error| error["taskID"] == INITIALIZE) => OperationRun::None,
            // An agent that postpones an operation keeps the old errors.
            _ if !errors(status).all(|error| tells_of(last, error)) => OperationRun::Unknown,
            _ => failed.filter(|failed| !failed.is_empty()).map_or(OperationRun::Unknown, OperationRun::Over),
        }
    }

    fn reported(&self, last: &Value) -> OperationRun {
        let percent = last["progress"].as_u64().and_then(|percent| usize::try_from(percent).ok());
        let description = without_keys(text(&last["description"]));
        let running: Option<SortedSet<usize>> = match percent {
            // Tasks without dependencies start at once.
            None | Some(0) => Some(self.open(&SortedSet::new())),
            Some(_) => description.split(", ").map(|name| self.place(name)).collect(),
        };
        match running {
            Some(running) if running.iter().all(|index| !self.tasks[*index].is_skipped) => {
                OperationRun::Going(running, percent.unwrap_or(0))
            }
            _ => OperationRun::Unknown,
        }
    }

    /// The tasks that have not started and may start after these tasks.
    fn open(&self, done: &SortedSet<usize>) -> SortedSet<usize> {
        let mut through = SortedSet::new();
        let mut open = SortedSet::new();
        for (index, task) in self.tasks.iter().enumerate() {
            let is_ready = task.needs.iter().all(|need| through.contains(need));
            if done.contains(&index) || is_ready && task.is_skipped {
                through.insert(index);
            } else if is_ready {
                open.insert(index);
            }
        }
        open
    }

    fn going(&self, running: &SortedSet<usize>, percent: usize) -> Vec<State> {
        let mut sure = SortedSet::new();
        let mut above: Vec<usize> = running.iter().copied().collect();
        while let Some(index) = above.pop() {
            let needs = self.tasks[index].needs.iter().filter(|need| sure.insert(**need));
            above.extend(needs);
        }
        // If no task has failed, each task that could run and does not is done.
        let mut done: SortedSet<usize> =
            sure.iter().copied().filter(|index| !self.tasks[*index].is_skipped).collect();
        let sure = done.clone();
        loop {
            let ended: Vec<usize> = self.open(&done).difference(running).copied().collect();
            if ended.is_empty() {
                break;
            }
            done.extend(ended);
        }
        let all = self.tasks.iter().filter(|task| !task.is_skipped).count().max(1);
        let is_complete = 100 * done.len() / all == percent;
        self.all(|index| match () {
            () if running.contains(&index) => State::Running,
            () if sure.contains(&index) || is_complete && done.contains(&index) => State::Done,
            () if done.contains(&index) => State::Ended,
            () => State::Waiting(Vec::new()),
        })
    }

    fn over(&self, failed: &SortedSet<usize>, status: &Value) -> Vec<State> {
        let mut blocked = SortedSet::new();
        for (index, task) in self.tasks.iter().enumerate() {
            let is_blocked = |need: &usize| failed.contains(need) || blocked.contains(need);
            if task.needs.iter().any(is_blocked) {
                blocked.insert(index);
            }
        }
        self.all(|index| match error_of(self.tasks[index].name, status) {
            Some(error) => {
                let codes = error["codes"].as_array().into_iter().flatten();
                let codes = codes.map(|code| text(code).to_owned()).collect();
                State::Failed(text(&error["description"]).to_owned(), codes)
            }
            None if blocked.contains(&index) => State::Waiting(Vec::new()),
            None => State::Done,
        })
    }

    /// The tasks that a task waits for. A skipped task passes on what it would wait for.
    fn missing(&self, index: usize, states: &[State]) -> Vec<usize> {
        let mut missing = SortedSet::new();
        let mut needs = self.tasks[index].needs.clone();
        while let Some(need) = needs.pop() {
            match states[need] {
                State::Done => {}
                State::Skipped => needs.extend(&self.tasks[need].needs),
                _ => drop(missing.insert(need)),
            }
        }
        missing.into_iter().collect()
    }
}

/// A description of running tasks without the number of the key that one of them makes.
fn without_keys(description: &str) -> String {
    let begin = format!(" ({MAKING}");
    match description.split_once(&begin).and_then(|(front, rest)| Some((front, rest.split_once(')')?.1))) {
        Some((front, back)) => format!("{front}{back}"),
        None => description.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// a; b after a; c after a; x (skipped) after b; d after x and c; e after a.
    fn tasks() -> Vec<TaskOutline> {
        let task = |name: &'static str, needs: &[usize], is_skipped| TaskOutline {
            name,
            needs: needs.to_vec(),
            is_skipped,
        };
        vec![
            task("a", &[], false),
            task("b", &[0], false),
            task("c", &[0], false),
            task("x", &[1], true),
            task("d", &[3, 2], false),
            task("e", &[0], false),
        ]
    }

    fn letters(status: &Value) -> String {
        let letter = |state: &State| match state {
            State::Done => 'd',
            State::Running => 'r',
            State::Failed(..) => 'f',
            State::Waiting(_) => 'w',
            State::Skipped => '-',
            State::Ended => 'e',
            State::Unknown => '?',
        };
        judge(&tasks(), status).iter().map(letter).collect()
    }

    #[test]
    fn only_what_follows_is_said() {
        let going = |percent: u32, text: &str| json!({"lastOperation": {"state": "Processing", "progress": percent, "description": text}});
        let over = |state: &str, failed: &[&str]| {
            let errors: Vec<Value> =
                failed.iter().map(|task| json!({"taskID": task, "description": "no"})).collect();
            json!({"lastOperation": {"state": state, "description": "No; no"}, "lastErrors": errors})
        };
        let put_off = |status: Value| {
            json!({"lastOperation": {"state": "Error", "description": "later"},
            "lastErrors": status["lastErrors"]})
        };
        let table = [
            (json!({}), "www-ww"),
            (json!({"lastOperation": {"state": "Pending"}}), "www-ww"),
            (going(0, "Starting Flow"), "rww-ww"),
            (json!({"lastOperation": {"state": "Processing", "description": "Initialized."}}), "rww-ww"),
            (going(20, "b, c, e"), "drr-wr"),
            (going(20, "b (making RSA keys, 3 of 7), c, e"), "drr-wr"),
            // Three of five are done: a, b, e.
            (going(60, "c"), "ddr-wd"),
            // Either b or e has failed; the report does not show which.
            (going(40, "c"), "der-we"),
            (going(60, "d"), "ddd-re"),
            (going(80, "d"), "ddd-rd"),
            (going(20, ""), "???-??"),
            (going(20, "b, deploy of another gardenlet"), "???-??"),
            (going(20, "x"), "???-??"),
            (over("Error", &["b"]), "dfd-wd"),
            (over("Failed", &["c", "e"]), "ddf-wf"),
            (over("Error", &["initializeOperation"]), "www-ww"),
            (over("Error", &["other"]), "???-??"),
            (over("Error", &[]), "???-??"),
            (put_off(over("Error", &["b"])), "???-??"),
            (over("Succeeded", &[]), "ddd-dd"),
        ];
        for (status, expected) in table {
            assert_eq!(letters(&status), expected, "{status}");
        }
    }

    #[test]
    fn what_waits_names_what_it_needs() {
        let last = json!({"state": "Error", "description": "No"});
        let status = json!({"lastOperation": last, "lastErrors": [
            {"taskID": "b", "description": "no", "codes": ["ERR_X"]}, {"taskID": "z", "description": "other"}]});
        assert_eq!(other_errors(&tasks(), &status).len(), 1);
        let known = json!({"lastOperation": last, "lastErrors": [status["lastErrors"][0]]});
        let states = judge(&tasks(), &known);
        assert_eq!(states[1], State::Failed("no".to_owned(), vec!["ERR_X".to_owned()]));
        // Through the skipped task.
        assert_eq!(states[4], State::Waiting(vec![1]));
        assert_eq!(error_of("b", &known).unwrap()["description"], "no");
    }
}
