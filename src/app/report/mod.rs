//! The agent's report about itself in three forms: text for a terminal, a page for a browser, JSON for programs. Also
//! the metrics that the agent computes when it serves them.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::base::clock::Timestamp;
use crate::base::cut::one_line;
use crate::base::garden_time::GardenTime;
use crate::base::json::json;
use crate::base::metrics::Metrics;
use crate::base::state::StateDir;
use crate::config::Settings;
use crate::format::human;
use crate::format::time::rfc3339;
use crate::limits;
use crate::oci;
use crate::resources::ManagedResourceHead;
use crate::runtime::pool::{self, Pool};
use crate::runtime::source::WatchSource;
use crate::serve::{ServerRequest, ServerResponse};

use super::Environment;

mod gather;
mod numbers;
mod objects;
mod page;
mod tell;
mod verdict;

pub(super) use numbers::{introduce, refresh, withdraw};
pub(super) use objects::Stores;
pub(super) use verdict::Call;
pub(crate) use verdict::State;
use verdict::{AgentProblem, AgentVerdict};

/// The values of `format`.
const FORMATS: [&str; 3] = ["text", "html", "json"];
/// In a query: leave out what is at rest.
pub(crate) const BRIEF: &str = "brief";
/// In front of a command that helps with a problem.
pub(crate) const RUN: &str = "run: ";

/// Parts of the agent that contribute to the report.
pub(super) struct Sources {
    pub(super) seed: String,
    pub(super) workers: usize,
    pub(super) metrics: Metrics,
    pub(super) pool: pool::PoolView,
    pub(super) charts: oci::Cache,
    pub(super) chart_bytes_max: u64,
    pub(super) time: GardenTime,
    pub(super) managed: WatchSource<ManagedResourceHead>,
}

impl Sources {
    /// For a new start of the parts.
    pub(super) fn new(
        settings: &Settings,
        env: &Environment,
        pool: &Pool,
        state: &StateDir,
        time: &GardenTime,
    ) -> Self {
        let chart_bytes_max = settings.edge.chart_cache_bytes_max;
        Self {
            seed: settings.seed_config.name.clone(),
            workers: settings.edge.workers,
            metrics: env.metrics.clone(),
            pool: pool.view(),
            charts: oci::Cache::new(state.path(), chart_bytes_max),
            chart_bytes_max,
            time: time.clone(),
            managed: WatchSource::default(),
        }
    }
}

/// The style of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tone {
    #[default]
    Plain,
    Good,
    Busy,
    Bad,
}

/// One row of the page.
#[derive(Debug, Default)]
struct ReportRow {
    label: String,
    text: String,
    problem: Option<String>,
    /// Percent of a bar.
    bar: Option<u32>,
    tone: Tone,
    /// Nothing happens there: only people who look for it want to see it.
    is_at_rest: bool,
}

/// Rows that belong together.
struct Section {
    title: &'static str,
    rows: Vec<ReportRow>,
    /// The number of rows that are left out.
    more: usize,
}

/// The report, independent of its form.
pub(super) struct StatusReport {
    now: Timestamp,
    verdict: AgentVerdict,
    problems: Vec<AgentProblem>,
    sections: Vec<Section>,
    json: Map<String, Value>,
}

impl StatusReport {
    fn new(verdict: AgentVerdict, problems: Vec<AgentProblem>, now: Timestamp) -> Self {
        let mut json = Map::new();
        json.insert("time".to_owned(), json!(rfc3339(now)));
        json.insert("verdict".to_owned(), json!({"state": verdict.state.as_str(), "text": verdict.text}));
        let shown = problems.iter().take(limits::STATUS_PROBLEMS_MAX);
        json.insert("problems".to_owned(), shown.map(|problem| in_json(problem, now)).collect());
        json.insert("problemsTotal".to_owned(), json!(problems.len()));
        Self { now, verdict, problems, sections: Vec::new(), json }
    }

    /// Begins a section: the following rows belong to it.
    fn section(&mut self, title: &'static str) {
        self.sections.push(Section { title, rows: Vec::new(), more: 0 });
    }

    fn row(&mut self, row: ReportRow) {
        if let Some(section) = self.sections.last_mut() {
            section.rows.push(row);
        }
    }

    /// Adds a single line. Its JSON key is the label in camel case.
    fn line(&mut self, label: &str, value: Value, text: impl Into<String>) {
        self.json.insert(joined(label), value);
        self.row(ReportRow { label: label.to_owned(), text: text.into(), ..ReportRow::default() });
    }

    /// Adds a line of a group. The text has `prefix` before the label.
    fn member(&mut self, group: &str, prefix: &str, name: &str, value: Value, text: String) {
        let problem = value["problem"].as_str().map(str::to_owned);
        let tone = if problem.is_some() { Tone::Bad } else { Tone::Plain };
        if let Value::Object(members) = self.json.entry(group).or_insert_with(|| json!({})) {
            members.insert(name.to_owned(), value);
        }
        self.row(ReportRow { label: format!("{prefix}{name}"), text, problem, tone, ..ReportRow::default() });
    }

    /// The row before is at rest.
    fn rest(&mut self, is_at_rest: bool) {
        if let Some(row) = self.sections.last_mut().and_then(|section| section.rows.last_mut()) {
            row.is_at_rest = is_at_rest;
        }
    }

    /// How long a problem has existed, for people.
    fn since(&self, problem: &AgentProblem) -> String {
        let since = problem.since.map(|since| human::lasting(self.now.since(since)));
        since.map(|since| format!("for {since}")).unwrap_or_default()
    }

    fn problems_left_out(&self) -> usize {
        self.problems.len().saturating_sub(limits::STATUS_PROBLEMS_MAX)
    }

    /// Text for a terminal: the verdict, then sections. Only titles start in the first column. `is_brief`
    /// leaves out what is at rest.
    pub(super) fn text(&self, is_brief: bool) -> String {
        let mut out = format!("{}\n", one_line(&self.verdict.text));
        // Writing to a String cannot fail.
        if !self.problems.is_empty() {
            out.push_str("\nProblems\n");
        }
        for problem in self.problems.iter().take(limits::STATUS_PROBLEMS_MAX) {
            let since = match self.since(problem) {
                since if since.is_empty() => since,
                since => format!(" ({since})"),
            };
            let place = one_line(&problem.place.to_string());
            let _ = writeln!(out, "  {place}{since}: {}", one_line(&problem.error));
            if !problem.remedy.is_empty() {
                let _ = writeln!(out, "    {RUN}{}", one_line(&problem.remedy));
            }
        }
        tell_left_out(&mut out, self.problems_left_out());
        for Section { title, rows, more } in &self.sections {
            let _ = writeln!(out, "\n{title}");
            let is_shown = |row: &&ReportRow| !(is_brief && row.is_at_rest);
            for ReportRow { label, text, problem, bar, .. } in rows.iter().filter(is_shown) {
                let bar = bar.map(|percent| format!("{} ", drawn(percent))).unwrap_or_default();
                let _ = writeln!(out, "  {}: {bar}{}", one_line(label), one_line(text));
                if let Some(problem) = problem {
                    let _ = writeln!(out, "    problem: {}", one_line(problem));
                }
            }
            tell_left_out(&mut out, *more);
            let rests = rows.len() - rows.iter().filter(is_shown).count();
            if rests > 0 {
                let _ = writeln!(out, "  {rests} at rest (--verbose shows them)");
            }
        }
        out
    }

    /// Returns the form that the client requests. Without a request it is text, as always.
    pub(super) fn response(self, request: &ServerRequest) -> ServerResponse {
        let format = request.values("format").next();
        if format.is_some_and(|format| !FORMATS.contains(&format)) {
            return ServerResponse::text(
                400,
                "unknown format: use ?format=text, ?format=html or ?format=json\n",
            );
        }
        let wants = |wanted: &str, media_type: &str| match format {
            Some(format) => format == wanted,
            None => request.accepts(media_type),
        };
        if wants("html", "text/html") {
            let refresh = request.values("refresh").next().and_then(|seconds| seconds.parse().ok());
            ServerResponse::new(200, "text/html; charset=utf-8", page::html(&self, refresh))
        } else if wants("json", "application/json") {
            ServerResponse::new(200, "application/json", format!("{}\n", Value::Object(self.json)))
        } else {
            ServerResponse::text(200, self.text(request.has(BRIEF)))
        }
    }
}

/// The answer for the path `/`.
pub(super) fn front(request: &ServerRequest) -> ServerResponse {
    if request.is_local() {
        return ServerResponse::elsewhere("/statusz");
    }
    ServerResponse::text(200, "/healthz\n/livez\n/readyz\n/statusz (for clients on the agent's machine)\n")
}

fn in_json(problem: &AgentProblem, now: Timestamp) -> Value {
    let key = if matches!(problem.place, verdict::ProblemPlace::Part(_)) { "part" } else { "object" };
    json!({
        key: problem.place.to_string(),
        "error": problem.error,
        "remedy": problem.remedy,
        "since": problem.since.map(rfc3339),
        "seconds": problem.since.map(|since| now.since(since).as_secs()),
    })
}

fn tell_left_out(out: &mut String, count: usize) {
    if count > 0 {
        let _ = writeln!(out, "  and {count} more");
    }
}

/// A bar of ten characters.
fn drawn(percent: u32) -> String {
    let full = usize::try_from(percent / 10).unwrap_or(10).min(10);
    format!("[{}{}]", "#".repeat(full), ".".repeat(10 - full))
}

/// `seed lease renewed` as a key: `seedLeaseRenewed`.
fn joined(label: &str) -> String {
    let mut words = label.split(' ');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut key, word| {
        key.extend(word.chars().take(1).flat_map(char::to_uppercase).chain(word.chars().skip(1)));
        key
    })
}

#[cfg(test)]
mod tests;
