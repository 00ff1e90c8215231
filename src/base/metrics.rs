//! Counters and gauges in Prometheus' text format. A family has a fixed number of series: no label may grow without
//! bound, so label values are names from the code (controllers, verbs, results), never names of objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits;

/// What a family measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
}

struct Family {
    kind: Kind,
    help: &'static str,
    series: BTreeMap<String, f64>,
}

/// All metrics of the process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<BTreeMap<&'static str, Family>>>);

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// No metrics yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `by` to a counter.
    pub fn add(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)], by: f64) {
        self.with(name, help, Kind::Counter, labels, |value| *value += by);
    }

    /// Sets a gauge.
    pub fn set(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)], to: f64) {
        self.with(name, help, Kind::Gauge, labels, |value| *value = to);
    }

    /// The value of a series, if it was ever written.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        families.get(name)?.series.get(&label_text(labels)).copied()
    }

    /// Everything, in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, family) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let kind = if family.kind == Kind::Counter { "counter" } else { "gauge" };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
            for (labels, value) in &family.series {
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        }
        out
    }

    fn with(
        &self,
        name: &'static str,
        help: &'static str,
        kind: Kind,
        labels: &[(&str, &str)],
        change: impl FnOnce(&mut f64),
    ) {
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let family = families.entry(name).or_insert_with(|| Family { kind, help, series: BTreeMap::new() });
        let key = label_text(labels);
        if family.series.len() >= limits::METRIC_SERIES_MAX && !family.series.contains_key(&key) {
            return;
        }
        change(family.series.entry(key).or_default());
    }
}

fn label_text(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pairs: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let metrics = Metrics::new();
        metrics.add("requests_total", "Requests.", &[("code", "200")], 1.0);
        metrics.add("requests_total", "Requests.", &[("code", "200")], 2.0);
        metrics.set("age_seconds", "Age.", &[], 1.5);
        metrics.set("odd", "Odd.", &[("l", "a\"b\\c\nd")], 0.0);
        let expected = "# HELP age_seconds Age.\n# TYPE age_seconds gauge\nage_seconds 1.5\n\
            # HELP odd Odd.\n# TYPE odd gauge\nodd{l=\"a\\\"b\\\\c\\nd\"} 0\n\
            # HELP requests_total Requests.\n# TYPE requests_total counter\nrequests_total{code=\"200\"} 3\n";
        assert_eq!(metrics.text(), expected);
        assert_eq!(metrics.value("requests_total", &[("code", "200")]), Some(3.0));
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let metrics = Metrics::new();
        for n in 0..limits::METRIC_SERIES_MAX + 10 {
            metrics.set("many", "Many.", &[("n", &n.to_string())], 1.0);
        }
        assert_eq!(metrics.text().lines().count(), limits::METRIC_SERIES_MAX + 2);
    }
}
