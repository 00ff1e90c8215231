//! Alerts and dashboard of `packaging/monitoring` use only what exists: each metric and label is documented and served,
//! each alert is explained, and each scraped endpoint exists. Prometheus' own engine tests when they fire
//! (tests/packaging).

use std::collections::{BTreeMap, BTreeSet};

use gardenlet::format::yaml;
use serde_json::Value;

use crate::docs::{blocks, read};
use crate::packaging;
use crate::world::{Options, World};
use support::json::{list, text};

const RULES: &str = "packaging/monitoring/rules.yaml";
const OBJECT: &str = "packaging/monitoring/prometheusrule.yaml";
const DOCUMENT: &str = "docs/monitoring.md";

/// Labels that Prometheus adds when it scrapes.
const ADDED: [&str; 6] = ["job", "instance", "seed", "namespace", "alertstate", "le"];
/// Metrics of other programs: Prometheus itself, and etcds and API servers of Shoots.
const FOREIGN: [&str; 3] = ["up", "ALERTS", "process_max_fds"];
const FOREIGN_FAMILIES: [&str; 2] = ["etcd_", "apiserver_"];
/// Metrics that exist only after some event, and the file that sets them.
const RARE: [(&str, &str); 10] = [
    ("controller_runtime_reconcile_panics_total", "src/runtime/pool/mod.rs"),
    ("gardenlet_api_skipped_objects_total", "src/kube/pages.rs"),
    ("gardenlet_chart_cache_hits_total", "src/oci/puller/mod.rs"),
    ("gardenlet_chart_pull_bytes_total", "src/oci/puller/download.rs"),
    ("gardenlet_chart_pulls_total", "src/oci/puller/mod.rs"),
    ("gardenlet_clock_skew_seconds", "src/app/clock.rs"),
    ("gardenlet_etcd_database_bytes", "src/controllers/shoot_care/snapshots.rs"),
    ("gardenlet_etcd_database_in_use_bytes", "src/controllers/shoot_care/snapshots.rs"),
    ("gardenlet_etcd_snapshot_timestamp_seconds", "src/controllers/shoot_care/snapshots.rs"),
    ("gardenlet_shoot_healthz_seconds", "src/controllers/shoot_care/inside.rs"),
];

type Uses = BTreeMap<String, BTreeSet<String>>;

fn rules(path: &str) -> Vec<Value> {
    let whole = yaml::parse(&read(path)).unwrap();
    let groups = list(&whole, if path == OBJECT { "/spec/groups" } else { "/groups" });
    groups.iter().flat_map(|group| list(group, "/rules").to_vec()).collect()
}

fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("packaging/monitoring/dashboard.json")).unwrap();
    let panels = list(&dashboard, "/panels").iter().filter(|panel| panel["type"] != "row");
    let of_panels = panels.flat_map(|panel| list(panel, "/targets"));
    rules(RULES).iter().chain(of_panels).map(|one| text(one, "/expr").to_owned()).collect()
}

/// Collects the metrics of an expression and the labels that it uses. A label of `by` or `on` counts for each metric
/// before it.
fn read_expression(expression: &str, uses: &mut Uses) {
    const WORDS: [&str; 9] = ["by", "on", "or", "and", "unless", "offset", "bool", "without", "ignoring"];
    let mut rest = expression;
    let (mut metric, mut is_inside, mut grouping) = (String::new(), false, false);
    let mut groups: BTreeSet<String> = BTreeSet::new();
    let mut own: Uses = Uses::new();
    while let Some(c) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if c == '"' {
            let end = rest[1..].find('"').unwrap();
            rest = &rest[end + 2..];
        } else if c.is_ascii_alphabetic() || c == '_' {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let after_space = after.trim_start();
            if is_inside {
                own.get_mut(&metric).unwrap().insert(word.to_owned());
            } else if grouping {
                groups.insert(word.to_owned());
            } else if ["by", "on"].contains(&word) {
                grouping = true;
            } else if !WORDS.contains(&word)
                && !after_space.starts_with('(')
                && !after_space.starts_with("by ")
            {
                word.clone_into(&mut metric);
                own.entry(metric.clone()).or_default();
            }
            rest = after;
        } else if c.is_ascii_digit() {
            rest = rest.trim_start_matches(|c| is_word(c) || c == '.');
        } else {
            match c {
                '{' => is_inside = true,
                '}' => is_inside = false,
                ')' => grouping = false,
                _ => {}
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    for (name, labels) in own {
        uses.entry(name).or_default().extend(labels);
    }
    // label_replace writes another label instead of one; the match groups are those of its result.
    let is_plain = !expression.contains("label_replace") && uses.len() == 1;
    if is_plain {
        uses.values_mut().for_each(|labels| labels.extend(groups.clone()));
    }
}

fn uses() -> Uses {
    let mut all = Uses::new();
    for expression in expressions() {
        let mut one = Uses::new();
        read_expression(&expression, &mut one);
        assert!(!one.is_empty(), "{expression}");
        for (name, labels) in one {
            let added = labels.into_iter().filter(|label| !ADDED.contains(&label.as_str()));
            all.entry(base(&name)).or_default().extend(added);
        }
    }
    all.retain(|name, _| {
        !FOREIGN.contains(&name.as_str()) && !FOREIGN_FAMILIES.iter().any(|family| name.starts_with(family))
    });
    all
}

/// The name of the histogram that a series belongs to.
fn base(name: &str) -> String {
    let of_histogram = ["_bucket", "_sum", "_count"].into_iter().find_map(|ending| name.strip_suffix(ending));
    of_histogram.unwrap_or(name).to_owned()
}

/// The series of a text in Prometheus' format, with their labels.
fn served(metrics: &str) -> Uses {
    let mut found = Uses::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').unwrap().0;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let names =
            labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
        found.entry(base(name)).or_default().extend(names);
    }
    found
}

#[test]
fn expressions_are_taken_apart() {
    let mut found = Uses::new();
    read_expression("sum by (a, b) (rate(x_total{c=\"by (z)\",d!~\"1|2\"}[5m])) > bool 2e6 * 10", &mut found);
    let labels = ["a", "b", "c", "d"].into_iter().map(str::to_owned).collect();
    assert_eq!(found, Uses::from([("x_total".to_owned(), labels)]));
    let mut found = Uses::new();
    read_expression("min_over_time(x[1h]) unless on (s) y{c=\"1\"} offset 1h or vector(0)", &mut found);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["x", "y"]);
    let metrics = "# TYPE a counter\na{l=\"1, m=2\",n=\"\"} 1\nb 2\nc_bucket{le=\"1\"} 3\n";
    let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let expected = [("a", labels(&["l", "n"])), ("b", labels(&[])), ("c", labels(&["le"]))];
    assert_eq!(
        served(metrics),
        expected.into_iter().map(|(name, labels)| (name.to_owned(), labels)).collect()
    );
}

#[test]
fn what_alerts_and_dashboard_name_is_documented_and_served() {
    let document = read("docs/metrics.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeSet<&str> = rows.map(|row| row.split('`').next().unwrap()).collect();
    let uses = uses();
    assert!(uses.len() > 30, "{}", uses.len());
    for name in uses.keys() {
        assert!(documented.contains(name.as_str()), "{name} is not in docs/metrics.md");
    }
    // Every metric of the agent is in an alert or in the dashboard.
    let unseen: Vec<_> = documented.iter().filter(|name| !uses.contains_key(**name)).collect();
    assert_eq!(unseen, [&"gardenlet_api_last_response_timestamp_seconds"]);

    let world = World::start(&Options::calm("monitored"));
    let agent = world.agent();
    world.wait_until_ready();
    let (status, metrics) = agent.get(2729, "/metrics");
    assert_eq!(status, 200);
    let served = served(&metrics);
    for (name, labels) in uses {
        if let Some(there) = served.get(&name) {
            assert_eq!(labels.difference(there).collect::<Vec<_>>(), [&""; 0], "labels of {name}");
        } else {
            let rare = RARE.iter().find(|(known, _)| *known == name);
            let (_, path) = rare.unwrap_or_else(|| panic!("{name} is not served: {metrics}"));
            let source = read(path);
            assert!(source.contains(&format!("\"{name}\"")), "{path} does not set {name}");
            for label in labels {
                assert!(
                    source.contains(&format!("(\"{label}\",")),
                    "{path} does not set the label {label} of {name}"
                );
            }
        }
    }
    agent.stop();
}

#[test]
fn each_alert_has_what_a_person_needs() {
    let rules = rules(RULES);
    for (rule, repeated) in rules.iter().zip(self::rules(OBJECT)) {
        assert_eq!(*rule, repeated, "{OBJECT} has another alert");
    }
    assert_eq!(rules.len(), self::rules(OBJECT).len());
    let mut names = BTreeSet::new();
    for rule in &rules {
        let name = text(rule, "/alert");
        assert!(names.insert(name.to_owned()), "{name} twice");
        assert!(text(rule, "/for").ends_with(['m', 'h']), "{name}");
        assert!(["critical", "warning", "info"].contains(&text(rule, "/labels/severity")), "{name}");
        let summary = text(rule, "/annotations/summary");
        let description = text(rule, "/annotations/description");
        assert!(summary.len() > 20 && summary.ends_with('.'), "{name}: {summary}");
        assert!(description.len() > 100 && description.ends_with('.'), "{name}: {description}");
        // Every description names the place, unless no agent answers.
        assert!(description.contains("{{ $labels.") || name == "GardenletAbsent", "{name}: no place");
    }
    let document = read(DOCUMENT);
    let mut told = BTreeSet::new();
    for section in document.split("\n### ").skip(1) {
        let heading = section.lines().next().unwrap();
        told.extend(heading.split(", ").map(str::to_owned));
        let section = section.split("\n## ").next().unwrap();
        let commands = blocks(section, "sh").concat().lines().count();
        assert!(commands >= 2, "{heading}: {commands} commands");
    }
    assert_eq!(told, names);
}

/// The scraped Services are those that the chart, and the agent for each Shoot, create.
#[test]
fn scraped_services_exist() {
    let chart = packaging::rendered("bootstrap");
    let agent =
        chart.iter().find(|o| o["kind"] == "Service" && o["metadata"]["name"] == "gardenlet").unwrap();
    let etcd = read("src/operation/components/etcd/plain/service-client.yaml");
    let etcd = yaml::parse(&etcd.replace("${", "").replace('}', "")).unwrap();
    let monitors: Vec<Value> = yaml::parse_all(&read("packaging/monitoring/servicemonitor.yaml"))
        .into_iter()
        .map(|document| document.value.unwrap())
        .collect();
    for (monitor, service) in monitors.iter().zip([agent, &etcd]) {
        let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        for (label, value) in wanted {
            assert_eq!(&service["metadata"]["labels"][label], value, "{label}");
        }
        let port = text(monitor, "/spec/endpoints/0/port");
        assert!(list(service, "/spec/ports").iter().any(|p| p["name"] == port), "{port}");
    }
    assert_eq!(monitors.len(), 2);
    let scrape = read("packaging/monitoring/scrape.yaml");
    for known in ["regex: gardenlet;metrics", "regex: etcd-client-service;metrics", "localhost:2729"] {
        assert!(scrape.contains(known), "{known}");
    }
}
