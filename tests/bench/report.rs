//! The table.

use std::collections::BTreeMap;
use std::time::Duration;

use support::http::record::Recorded;

struct Row {
    name: String,
    value: String,
    budget: String,
    /// Of a test: whether it passed.
    holds: Option<bool>,
}

/// Rows in the order of their measurement.
#[derive(Default)]
pub(crate) struct Report {
    notes: Vec<String>,
    left_out: Vec<String>,
    rows: Vec<Row>,
}

impl Report {
    /// A line above the table.
    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// A test that could not run here.
    pub(crate) fn leave_out(&mut self, why: &str) {
        self.left_out.push(why.to_owned());
    }

    /// A figure. An empty budget means that there is none.
    pub(crate) fn row(&mut self, name: impl Into<String>, value: impl Into<String>, budget: &str) {
        self.add(name.into(), value.into(), budget, None);
    }

    /// A figure that must be within its budget.
    pub(crate) fn check(
        &mut self,
        name: impl Into<String>,
        value: impl Into<String>,
        budget: &str,
        holds: bool,
    ) {
        self.add(name.into(), value.into(), budget, Some(holds));
    }

    /// Repeated measurements of a time: the median, the minimum and the maximum.
    pub(crate) fn times(&mut self, name: &str, times: &[Duration], budget: &str) {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
        let range =
            if sorted.len() > 1 { format!(" ({} to {})", ms(least), ms(most)) } else { String::new() };
        self.row(name, format!("{}{range}", ms(sorted[sorted.len() / 2])), budget);
    }

    /// How often each kind of request was sent in a minute, if that is often enough.
    pub(crate) fn kinds(&mut self, indent: &str, requests: &[Recorded], minutes: f64, least: f64) {
        let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
        for request in requests {
            *kinds.entry(what(request)).or_default() += 1;
        }
        let rates = kinds.into_iter().map(|(kind, count)| (kind, count as f64 / minutes));
        for (kind, rate) in rates.filter(|(_, rate)| *rate >= least) {
            self.row(format!("{indent}{kind}"), format!("{rate:.1}"), "");
        }
    }

    fn add(&mut self, name: String, value: String, budget: &str, holds: Option<bool>) {
        self.rows.push(Row { name, value, budget: budget.to_owned(), holds });
    }

    /// Failed tests.
    pub(crate) fn failed(&self) -> usize {
        self.rows.iter().filter(|row| row.holds == Some(false)).count()
    }

    /// Prints notes, the table and the summary line.
    pub(crate) fn print(&self) {
        self.notes.iter().for_each(|note| println!("{note}"));
        for Row { name, value, budget, holds } in &self.rows {
            let verdict = match holds {
                Some(false) => "FAILED",
                Some(true) => "ok",
                None => "",
            };
            let budget = if budget.is_empty() { String::new() } else { format!("of {budget}") };
            println!("{}", format!("{name:<58} {value:<26} {budget:<12} {verdict}").trim_end());
        }
        let passed = self.rows.iter().filter(|row| row.holds == Some(true)).count();
        self.left_out.iter().for_each(|why| println!("LEFT OUT: {why}"));
        println!("{passed} passed, {} failed, {} skipped", self.failed(), self.left_out.len());
    }
}

/// Bytes as megabytes.
pub(crate) fn mb(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// The request without names that differ.
fn what(request: &Recorded) -> String {
    let info = &request.info;
    if info.resource.is_empty() {
        return format!("{} {}", info.verb, info.path);
    }
    let group = if info.group.is_empty() { String::new() } else { format!(".{}", info.group) };
    let sub = if info.subresource.is_empty() { String::new() } else { format!("/{}", info.subresource) };
    let lease = if info.resource == "leases" { format!(" {}", info.name) } else { String::new() };
    format!("{} {}{group}{sub}{lease}", info.verb, info.resource)
}
