//! Counters, gauges and small histograms in Prometheus' text format. A family has a fixed number of series. No label
//! may grow without a bound, so label values are names from the code (controllers, verbs, results), never names of
//! objects.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use super::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::limits;

/// What a family measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by size. The keys of its series begin with the suffix of their name, such as `_sum`.
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Upper bounds of a histogram in seconds, as text.
const BUCKETS: [(&str, f64); 6] =
    [("0.01", 0.01), ("0.1", 0.1), ("1", 1.0), ("10", 10.0), ("60", 60.0), ("+Inf", f64::INFINITY)];

struct Family {
    kind: Kind,
    help: &'static str,
    series: SortedMap<String, f64>,
}

type Families = SortedMap<&'static str, Family>;

/// All metrics of the process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Families>>, Arc<Mutex<SortedMap<String, String>>>);

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

    /// Notes why a gauge with these labels has its value, for people who look at the status page.
    pub(crate) fn explain(&self, name: &str, labels: &[(&str, &str)], why: String) {
        let key = format!("{name}{}", label_text(labels));
        self.1.lock().ignore_poison().insert(key, why);
    }

    /// The last reason that was noted.
    pub(crate) fn reason(&self, name: &str, labels: &[(&str, &str)]) -> Option<String> {
        let key = format!("{name}{}", label_text(labels));
        self.1.lock().ignore_poison().get(&key).cloned()
    }

    /// Adds `by` to a counter.
    pub(crate) fn add(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)], by: f64) {
        self.with(name, help, Kind::Counter, labels, |value| *value += by);
    }

    pub(crate) fn set(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)], to: f64) {
        self.with(name, help, Kind::Gauge, labels, |value| *value = to);
    }

    /// Sets a counter whose value other code keeps.
    pub(crate) fn reach(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)], to: f64) {
        self.with(name, help, Kind::Counter, labels, |value| *value = to);
    }

    /// Counts a duration in seconds in a histogram.
    pub(crate) fn observe(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        seconds: f64,
    ) {
        let mut families = self.lock();
        let mut add = |key: String, by: f64| {
            change(&mut families, name, help, Kind::Histogram, key, |value| *value += by);
        };
        for (text, bound) in BUCKETS {
            let labels = [labels, &[("le", text)]].concat();
            add(format!("_bucket{}", label_text(&labels)), f64::from(u8::from(seconds <= bound)));
        }
        add(format!("_count{}", label_text(labels)), 1.0);
        add(format!("_sum{}", label_text(labels)), seconds);
    }

    /// Removes a series that means nothing any more. The next write makes it again.
    pub(crate) fn remove(&self, name: &str, labels: &[(&str, &str)]) {
        let mut families = self.lock();
        let Some(family) = families.get_mut(name) else { return };
        family.series.remove(&label_text(labels));
        if family.series.is_empty() {
            families.remove(name);
        }
    }

    /// The value of a series, if it was ever written.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.lock().get(name)?.series.get(&label_text(labels)).copied()
    }

    /// Everything, in Prometheus' text format.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for (name, family) in self.lock().iter() {
            let kind = family.kind.name();
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
        set: impl FnOnce(&mut f64),
    ) {
        change(&mut self.lock(), name, help, kind, label_text(labels), set);
    }

    fn lock(&self) -> MutexGuard<'_, Families> {
        // Numbers: no panic leaves them half changed.
        self.0.lock().ignore_poison()
    }
}

fn change(
    families: &mut Families,
    name: &'static str,
    help: &'static str,
    kind: Kind,
    key: String,
    set: impl FnOnce(&mut f64),
) {
    let family = families.entry(name).or_insert_with(|| Family { kind, help, series: SortedMap::new() });
    if family.series.len() < limits::METRIC_SERIES_MAX || family.series.contains_key(&key) {
        set(family.series.entry(key).or_default());
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
    fn counters_go_on_beyond_32_bits() {
        let metrics = Metrics::new();
        metrics.add("bytes_total", "Bytes.", &[], 4_294_967_295.0);
        metrics.add("bytes_total", "Bytes.", &[], 2.0);
        assert!(metrics.text().ends_with("bytes_total 4294967297\n"), "{}", metrics.text());
    }

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
    fn a_series_that_is_removed_is_gone_until_it_is_written_again() {
        let metrics = Metrics::new();
        metrics.remove("up", &[]);
        let write = |peer: &str, to: f64| metrics.set("up", "Up.", &[("peer", peer)], to);
        write("garden", 1.0);
        write("seed", 1.0);
        metrics.remove("up", &[("peer", "garden")]);
        metrics.remove("up", &[("peer", "other")]);
        assert_eq!(metrics.text(), "# HELP up Up.\n# TYPE up gauge\nup{peer=\"seed\"} 1\n");
        metrics.remove("up", &[("peer", "seed")]);
        assert_eq!(metrics.text(), "");
        write("garden", 0.0);
        assert_eq!(metrics.value("up", &[("peer", "garden")]), Some(0.0));
    }

    #[test]
    fn a_histogram_counts_what_is_not_larger_than_its_bounds() {
        let metrics = Metrics::new();
        for seconds in [0.05, 0.5, 100.0] {
            metrics.observe("time_seconds", "Time.", &[("c", "a")], seconds);
        }
        let text = metrics.text();
        assert!(text.starts_with("# HELP time_seconds Time.\n# TYPE time_seconds histogram\n"), "{text}");
        let table = [("0.01", 0), ("0.1", 1), ("1", 2), ("10", 2), ("60", 2), ("+Inf", 3)];
        for (bound, count) in table {
            let line = format!("\ntime_seconds_bucket{{c=\"a\",le=\"{bound}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(
            text.ends_with("time_seconds_count{c=\"a\"} 3\ntime_seconds_sum{c=\"a\"} 100.55\n"),
            "{text}"
        );
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
