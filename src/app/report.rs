//! What the agent says of itself, in three forms: text for a terminal, a page for a browser, JSON for programs. And the
//! metrics that are only known when somebody asks.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::base::clock::{Mono, Timestamp};
use crate::base::garden_time::GardenTime;
use crate::base::metrics::Metrics;
use crate::base::process;
use crate::config::version::{GARDENER, PROGRAM};
use crate::format::duration;
use crate::format::time::rfc3339;
use crate::kube::{ANSWERED, REACHABLE};
use crate::net::traffic::BYTES;
use crate::oci;
use crate::runtime::pool;
use crate::serve::{Request, Response};

use super::status::Status;

/// Parts of the agent that know something worth telling.
pub(super) struct Sources {
    pub(super) seed: String,
    pub(super) begun: Mono,
    pub(super) workers: usize,
    pub(super) metrics: Metrics,
    pub(super) pool: pool::View,
    pub(super) charts: oci::Cache,
    pub(super) chart_bytes_max: u64,
    pub(super) time: GardenTime,
}

/// One line of the page.
struct Row {
    label: String,
    text: String,
    problem: Option<String>,
}

/// The page before it has a form. JSON keys are the labels, written together.
#[derive(Default)]
pub(super) struct Report {
    rows: Vec<Row>,
    json: Map<String, Value>,
}

impl Report {
    /// A line by itself.
    pub(super) fn line(&mut self, label: &str, value: Value, text: impl Into<String>) {
        self.json.insert(joined(label), value);
        self.rows.push(Row { label: label.to_owned(), text: text.into(), problem: None });
    }

    /// A line of a group, which stands before its label in text unless `prefix` is empty.
    pub(super) fn member(&mut self, group: &str, (prefix, name): (&str, &str), value: Value, text: String) {
        let problem = value["problem"].as_str().map(str::to_owned);
        if let Value::Object(members) = self.json.entry(group).or_insert_with(|| json!({})) {
            members.insert(name.to_owned(), value);
        }
        self.rows.push(Row { label: format!("{prefix}{name}"), text, problem });
    }

    /// For a terminal.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for Row { label, text, problem } in &self.rows {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{label}: {text}");
            if let Some(problem) = problem {
                let _ = writeln!(out, "  problem: {problem}");
            }
        }
        out
    }

    /// For a browser: no script, nothing from elsewhere.
    fn html(&self) -> String {
        let title = escape(self.json.get("seed").and_then(Value::as_str).unwrap_or_default());
        let mut out = format!(
            "<!doctype html><meta charset=utf-8><title>gardenlet {title}</title><style>{STYLE}</style>\
            <h1>gardenlet {title}</h1><table>"
        );
        for Row { label, text, problem } in &self.rows {
            let _ = write!(out, "<tr><th>{}<td>{}", escape(label), escape(text));
            if let Some(problem) = problem {
                let _ = write!(out, "<b>{}</b>", escape(problem));
            }
        }
        out.push_str("</table><p><a href=?format=json>JSON</a> <a href=?format=text>text</a>\n");
        out
    }

    /// In the form that the client wants: text unless it says otherwise, as ever.
    pub(super) fn response(self, request: &Request) -> Response {
        let wants = |format: &str, media_type: &str| match request.values("format").next() {
            Some(wanted) => wanted == format,
            None => request.accepts(media_type),
        };
        if wants("html", "text/html") {
            Response::new(200, "text/html; charset=utf-8", self.html())
        } else if wants("json", "application/json") {
            Response::new(200, "application/json", format!("{}\n", Value::Object(self.json)))
        } else {
            Response::text(200, self.text())
        }
    }
}

const STYLE: &str = "body{font:15px/1.4 sans-serif;max-width:60em;margin:1em auto;padding:0 1em;color:#222}\
    th{text-align:left;font-weight:400;color:#567;white-space:nowrap;padding-right:1em;vertical-align:top}\
    tr:nth-child(odd){background:#f4f6f8}b{display:block;color:#a11}";

/// `seed lease renewed` as a key: `seedLeaseRenewed`.
fn joined(label: &str) -> String {
    let mut words = label.split(' ');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut key, word| {
        key.extend(word.chars().take(1).flat_map(char::to_uppercase).chain(word.chars().skip(1)));
        key
    })
}

fn escape(text: &str) -> String {
    let with = |text: String, (from, to): (char, &str)| text.replace(from, to);
    [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")]
        .into_iter()
        .fold(text.to_owned(), with)
}

/// How long ago, in whole seconds.
pub(super) fn ago(age: Option<Duration>) -> (Value, String) {
    match age {
        Some(age) => (json!({"secondsAgo": age.as_secs()}), format!("{} s ago", age.as_secs())),
        None => (json!({"secondsAgo": null}), "never".to_owned()),
    }
}

/// What the parts that know something say.
pub(super) fn tell(
    report: &mut Report,
    sources: &Sources,
    expires: Option<Timestamp>,
    now: Timestamp,
    mono: Mono,
) {
    report.line("seed", json!(sources.seed), sources.seed.clone());
    report.line("version", json!(PROGRAM), format!("{PROGRAM} (as Gardener {GARDENER})"));
    let uptime = Duration::from_secs(mono.saturating_sub(sources.begun).as_secs());
    report.line("uptime", json!({"seconds": uptime.as_secs()}), duration::format(uptime));
    if let Some(expires) = expires {
        let left = duration::format(Duration::from_secs(expires.since(now).as_secs()));
        let value = json!({"at": rfc3339(expires), "seconds": expires.since(now).as_secs()});
        report.line("certificate expires", value, format!("{}, in {left}", rfc3339(expires)));
    }
    if let Some(skew) = sources.time.skew_nanos() {
        let text = format!("{} ahead of ours", duration::format_nanos(skew / 1_000_000 * 1_000_000));
        report.line("garden clock", json!({"aheadMilliseconds": skew / 1_000_000}), text);
    }
    for peer in ["garden", "seed", "registry"] {
        tell_peer(report, &sources.metrics, peer, now);
    }
    let (files, bytes) = sources.charts.usage();
    let max = sources.chart_bytes_max;
    let value = json!({"files": files, "bytes": bytes, "bytesMax": max});
    report.line("chart cache", value, format!("{files} files, {bytes} of {max} bytes"));
    let lanes = sources.pool.lanes();
    let busy: usize = lanes.iter().map(|lane| lane.active).sum();
    let value = json!({"busy": busy, "total": sources.workers});
    report.line("workers", value, format!("{busy} of {} busy", sources.workers));
    for lane in lanes {
        tell_lane(report, &lane);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "whole seconds and bytes")]
fn tell_peer(report: &mut Report, metrics: &Metrics, peer: &str, now: Timestamp) {
    let labels = [("peer", peer)];
    if let Some(reachable) = metrics.value(REACHABLE, &labels) {
        let reachable = reachable > 0.0;
        let answered = metrics.value(ANSWERED, &labels).map(|at| now.since(Timestamp::from_unix(at as i64)));
        let (mut value, text) = ago(answered);
        value["reachable"] = json!(reachable);
        let text = format!("{}, answered {text}", if reachable { "yes" } else { "no" });
        report.line(&format!("{peer} reachable"), value, text);
    }
    let bytes = |direction| {
        metrics.value(BYTES, &[("peer", peer), ("direction", direction)]).map_or(0, |bytes| bytes as i64)
    };
    let (sent, received) = (bytes("sent"), bytes("received"));
    let value = json!({"sent": sent, "received": received});
    report.line(&format!("{peer} traffic"), value, format!("{sent} bytes sent, {received} received"));
}

fn tell_lane(report: &mut Report, lane: &pool::LaneView) {
    let pool::LaneView { name, depth, failing, retries, active, .. } = *lane;
    let longest = lane.longest.as_secs();
    let value = json!({"depth": depth, "failing": failing, "retries": retries, "active": active,
        "longestSeconds": longest});
    let mut text = format!("{depth} waiting, {active} active, {failing} failing, {retries} retries");
    if active > 0 {
        let _ = write!(text, ", longest for {longest} s");
    }
    report.member("queues", ("queue ", name), value, text);
}

/// Sets the metrics that are only known when somebody asks.
pub(super) fn refresh(status: &Status, sources: &Sources, metrics: &Metrics) {
    let set = |name, help, to| metrics.set(name, help, &[], to);
    if let Some(age) = status.lease_age() {
        set(
            "gardenlet_seed_lease_age_seconds",
            "Time since the seed's lease was renewed.",
            age.as_secs_f64(),
        );
    }
    if let Some(expires) = status.expires() {
        let name = "gardenlet_garden_certificate_expiration_timestamp_seconds";
        set(name, "When the client certificate for the garden expires.", expires.seconds());
    }
    refresh_process(metrics);
    for lane in sources.pool.lanes() {
        refresh_lane(metrics, &lane);
    }
}

fn refresh_process(metrics: &Metrics) {
    let usage = process::usage();
    let help = "Total user and system CPU time spent in seconds.";
    metrics.reach("process_cpu_seconds_total", help, &[], usage.cpu_s);
    let gauges = [
        ("process_resident_memory_bytes", "Resident memory size in bytes.", usage.resident_bytes),
        ("process_virtual_memory_bytes", "Virtual memory size in bytes.", usage.virtual_bytes),
        ("process_open_fds", "Number of open file descriptors.", usage.open_fds),
        ("process_threads", "Number of threads.", usage.threads),
    ];
    for (name, help, to) in gauges {
        metrics.set(name, help, &[], to);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric needs no more precision")]
fn refresh_lane(metrics: &Metrics, lane: &pool::LaneView) {
    let (name, controller) = ([("name", lane.name)], [("controller", lane.name)]);
    metrics.set("workqueue_depth", "Current depth of workqueue.", &name, lane.depth as f64);
    let help = "How many seconds has the longest running processor for workqueue been running.";
    let longest = lane.longest.as_secs_f64();
    metrics.set("workqueue_longest_running_processor_seconds", help, &name, longest);
    let help = "Number of currently used workers per controller.";
    metrics.set("controller_runtime_active_workers", help, &controller, lane.active as f64);
    let help = "Maximum number of concurrent reconciles per controller.";
    metrics.set("controller_runtime_max_concurrent_reconciles", help, &controller, lane.permits as f64);
    let help = "Total number of adds handled by workqueue.";
    metrics.reach("workqueue_adds_total", help, &name, lane.adds as f64);
    let help = "Total number of retries handled by workqueue.";
    metrics.reach("workqueue_retries_total", help, &name, lane.retries as f64);
}

/// Sets the metrics that never change.
pub(super) fn introduce(metrics: &Metrics, now: Timestamp) {
    let labels = [("version", PROGRAM), ("gardener_version", GARDENER), ("arch", std::env::consts::ARCH)];
    metrics.set("gardenlet_build_info", "What runs here; always 1.", &labels, 1.0);
    let help = "Start time of the process since unix epoch in seconds.";
    metrics.set("process_start_time_seconds", help, &[], now.seconds());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_say_the_same() {
        let mut report = Report::default();
        report.line("seed lease renewed", json!({"secondsAgo": 3}), "3 s ago");
        report.line("seed", json!("a<b>"), "a<b>");
        let part = json!({"stage": "running", "problem": "it said \"<script>&'\""});
        report.member("parts", ("", "garden"), part, "running".to_owned());
        report.member("watches", ("watch ", "garden/seeds"), json!({"synced": true}), "synced".to_owned());
        let text = "seed lease renewed: 3 s ago\nseed: a<b>\ngarden: running\n  problem: it said \"<script>&'\"\n\
            watch garden/seeds: synced\n";
        assert_eq!(report.text(), text);
        let html = report.html();
        assert!(html.contains("<title>gardenlet a&lt;b&gt;</title>"), "{html}");
        let row = "<tr><th>garden<td>running<b>it said &quot;&lt;script&gt;&amp;&#39;&quot;</b>";
        assert!(html.contains(row) && !html.contains("<script"), "{html}");
        let expected = json!({"seedLeaseRenewed": {"secondsAgo": 3}, "seed": "a<b>",
            "parts": {"garden": {"stage": "running", "problem": "it said \"<script>&'\""}},
            "watches": {"garden/seeds": {"synced": true}}});
        assert_eq!(Value::Object(report.json), expected);
    }
}
