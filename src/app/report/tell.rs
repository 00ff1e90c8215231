//! The rows of the page for people, and their JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use crate::api::condition::{self, Condition, ConditionStatus, urgency};
use crate::api::gardener::ShootHead;
use crate::api::meta::Key;
use crate::base::clock::Timestamp;
use crate::base::cut::cut;
use crate::base::json::json;
use crate::config::version::{GARDENER, PROGRAM};
use crate::format::time::rfc3339;
use crate::format::{duration, human};
use crate::kube::{REACHABLE, RESPONSE_SECONDS};
use crate::limits;
use crate::net::traffic::BYTES;
use crate::runtime::fence::Fence;
use crate::runtime::pool;
use crate::shoot::ShootMove;

use super::super::status::{CertificateValidity, Snapshot, Watch};
use super::gather::answered;
use super::{ReportRow, Sources, StatusReport, Stores, Tone, objects};

/// The conditions that an extension must have.
const READY: [&str; 2] = ["Installed", "Healthy"];

/// A time span in JSON, in whole seconds.
fn ago(age: Option<Duration>) -> (Value, String) {
    (json!({"secondsAgo": age.map(|age| age.as_secs())}), human::ago(age))
}

/// The agent's identity, and whether it leads.
pub(super) fn agent(report: &mut StatusReport, snapshot: &Snapshot, sources: Option<&Sources>) {
    report.section("Agent");
    report.line("leading", json!(snapshot.leading), snapshot.leading.to_string());
    if let Some(leader) = &snapshot.leader {
        report.line("leader", json!(leader), leader.as_str());
    }
    let Some(sources) = sources else { return };
    report.line("seed", json!(sources.seed), sources.seed.clone());
    report.line("version", json!(PROGRAM), format!("{PROGRAM} (as Gardener {GARDENER})"));
    let uptime = snapshot.mono.saturating_sub(snapshot.begun);
    report.line("uptime", json!({"seconds": uptime.as_secs()}), human::lasting(uptime));
    report.line("time", json!(rfc3339(snapshot.now)), rfc3339(snapshot.now));
}

/// The Leases of this process, and the certificate for the garden.
pub(super) fn leases(report: &mut StatusReport, snapshot: &Snapshot, sources: Option<&Sources>) {
    report.section("Leases and certificate");
    if snapshot.leading {
        let (value, text) = ago(snapshot.lease_age);
        report.line("seed lease renewed", value, text);
    }
    for (name, fence) in &snapshot.leases {
        lease(report, snapshot, name, fence);
    }
    if let Some(CertificateValidity { begins, expires }) = snapshot.validity {
        let now = snapshot.now;
        let (left, age) = (expires.since(now), now.since(begins));
        let value = json!({"at": rfc3339(expires), "seconds": left.as_secs(), "ageSeconds": age.as_secs()});
        let in_words =
            if left.is_zero() { "expired".to_owned() } else { format!("in {}", human::lasting(left)) };
        let text = format!("{in_words} ({}), {} old", rfc3339(expires), human::lasting(age));
        report.line("certificate expires", value, text);
    }
    if let Some(skew) = sources.and_then(|sources| sources.time.skew_nanos()) {
        let ms = skew / 1_000_000;
        let text = match ms {
            0 => "the same as ours".to_owned(),
            _ => {
                let side = if ms < 0 { "behind" } else { "ahead of" };
                format!(
                    "{} {side} ours",
                    duration::format_nanos(ms.saturating_abs().saturating_mul(1_000_000))
                )
            }
        };
        report.line("garden clock", json!({"aheadMilliseconds": ms}), text);
    }
}

fn lease(report: &mut StatusReport, snapshot: &Snapshot, name: &str, fence: &Fence) {
    let held = fence.held_for();
    let renewed = fence.renewed_at().map(|at| snapshot.mono.saturating_sub(at));
    let value = json!({"held": held.is_some(), "heldSeconds": held.map(|held| held.as_secs()),
        "renewedSecondsAgo": renewed.map(|renewed| renewed.as_secs())});
    let mut text = match held {
        None => "not held".to_owned(),
        // Without an election, only this process runs.
        Some(_) if renewed.is_none() => "not needed".to_owned(),
        Some(held) => format!("held for {}", human::lasting(held)),
    };
    if let Some(renewed) = renewed {
        let _ = write!(text, ", renewed {} ago", human::lasting(renewed));
    }
    report.member("leases", "lease ", name, value, text);
}

/// The clusters and registries.
pub(super) fn servers(report: &mut StatusReport, snapshot: &Snapshot, sources: &Sources) {
    report.section("Garden and seed");
    // Only a leader talks to the garden.
    let peers = ["garden", "seed", "registry"].into_iter().skip(usize::from(!snapshot.leading));
    for peer in peers {
        server(report, sources, peer);
    }
    let (files, bytes) = sources.charts.usage();
    let max = sources.chart_bytes_max;
    let value = json!({"files": files, "bytes": bytes, "bytesMax": max});
    let text = format!("{}, {} of {}", human::counted(files, "file"), human::bytes(bytes), human::bytes(max));
    report.line("chart cache", value, text);
}

/// What is known about garden and seed, and what the agent did last with its Seed.
pub(super) fn clusters(report: &mut StatusReport, snapshot: &Snapshot) {
    for (label, what) in &snapshot.known {
        report.line(label, json!(what), what.as_str());
    }
    let stores = snapshot.stores.as_ref();
    let Some(seed) = stores.and_then(|stores| stores.seeds.store().get(&stores.seed)) else { return };
    let Some(last) = &seed.status.last_operation else { return };
    let age = objects::written(last).map(|at| report.now.since(at));
    let value = json!({"type": last.kind, "state": last.state, "progress": last.progress,
        "secondsAgo": age.map(|age| age.as_secs())});
    let text = format!("{} {} ({} %), {}", last.kind, last.state, last.progress, human::ago(age));
    report.line("seed operation", value, text);
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters of bytes")]
fn server(report: &mut StatusReport, sources: &Sources, peer: &str) {
    let (metrics, labels) = (&sources.metrics, [("peer", peer)]);
    let took = metrics.value(RESPONSE_SECONDS, &labels);
    let took = took.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    if let Some(reachable) = metrics.value(REACHABLE, &labels) {
        let reachable = reachable > 0.0;
        let (mut value, text) = ago(answered(metrics, peer).map(|at| report.now.since(at)));
        value["reachable"] = json!(reachable);
        let latency = took.map(|took| format!(" within {}", human::latency(took))).unwrap_or_default();
        let text = format!("{}, answered {text}{latency}", if reachable { "yes" } else { "no" });
        report.line(&format!("{peer} reachable"), value, text);
        if let Some(row) = report.sections.last_mut().and_then(|section| section.rows.last_mut()) {
            row.tone = if reachable { Tone::Good } else { Tone::Bad };
        }
    }
    if let Some(took) = took {
        let value = json!({"milliseconds": took.as_millis() as u64});
        if let Value::Object(latency) = report.json.entry("latency").or_insert_with(|| json!({})) {
            latency.insert(peer.to_owned(), value);
        }
    }
    let bytes = |direction| {
        metrics.value(BYTES, &[("peer", peer), ("direction", direction)]).map_or(0, |bytes| bytes as u64)
    };
    let (sent, received) = (bytes("sent"), bytes("received"));
    let value = json!({"sent": sent, "received": received});
    let text = format!("{} sent, {} received", human::bytes(sent), human::bytes(received));
    report.line(&format!("{peer} traffic"), value, text);
}

/// The stage of each part.
pub(super) fn parts(report: &mut StatusReport, snapshot: &Snapshot) {
    report.section("Parts");
    for (name, part) in &snapshot.parts {
        let problem = part.problem.clone().map(|problem| cut(problem, limits::FAILED_TEXT_BYTES_MAX));
        let value = json!({"stage": part.stage, "problem": problem});
        report.member("parts", "", name, value, part.stage.clone());
    }
}

/// The workers and their queues.
pub(super) fn work(report: &mut StatusReport, sources: &Sources) {
    report.section("Work");
    let lanes = sources.pool.lanes();
    let busy: usize = lanes.iter().map(|lane| lane.active).sum();
    let value = json!({"busy": busy, "total": sources.workers});
    report.line("workers", value, format!("{busy} of {} busy", sources.workers));
    for lane in lanes {
        queue(report, &lane);
    }
}

fn queue(report: &mut StatusReport, lane: &pool::LaneView) {
    let pool::LaneView { name, depth, failing, retries, active, .. } = *lane;
    let value = json!({"depth": depth, "failing": failing, "retries": retries, "active": active,
        "longestSeconds": lane.longest.as_secs()});
    let tries = if retries == 1 { "retry" } else { "retries" };
    let mut text = format!("{depth} waiting, {active} active, {failing} failing, {retries} {tries}");
    if active > 0 {
        let _ = write!(text, ", longest for {}", human::lasting(lane.longest));
    }
    report.member("queues", "queue ", name, value, text);
    report.rest(depth == 0 && failing == 0 && active == 0);
}

pub(super) fn watches(report: &mut StatusReport, snapshot: &Snapshot) {
    report.section("Watches");
    for Watch { name, view, .. } in &snapshot.watches {
        let age = view.heard_at.map(|at| snapshot.mono.saturating_sub(at));
        let (mut value, text) = ago(age);
        value["synced"] = json!(view.synced);
        value["objects"] = json!(view.objects);
        let synced = if view.synced { "synced" } else { "not synced" };
        let text = format!("{synced}, {}, last event {text}", human::counted(view.objects, "object"));
        report.member("watches", "watch ", name, value, text);
        report.rest(view.synced);
    }
}

/// Shoots with problems come first, then those with a running operation or on a move, then the others; each group is in
/// the order of names.
fn shown<T>(mut all: Vec<(u8, Key, T)>, most: usize) -> (Vec<(u8, Key, T)>, usize) {
    all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let more = all.len().saturating_sub(most);
    all.truncate(most);
    (all, more)
}

/// The Shoots of the seed.
pub(super) fn shoots(report: &mut StatusReport, stores: &Stores) {
    let (now, seed) = (report.now, stores.seed.name.as_str());
    let order = |(key, shoot): (Key, std::sync::Arc<ShootHead>)| {
        let state = shoot.status.last_operation.as_ref().map_or("", |last| last.state.as_str());
        let rank = match state {
            _ if objects::of_shoot(&shoot, now).is_some() => 0,
            "Succeeded" if ShootMove::of(&shoot, seed).is_none() => 2,
            _ => 1,
        };
        (rank, key, shoot)
    };
    let all: Vec<_> = stores.shoots.store().all().into_iter().map(order).collect();
    report.json.insert("shootsTotal".to_owned(), json!(all.len()));
    let (all, more) = shown(all, limits::STATUS_ROWS_MAX);
    let told: Vec<Value> = all.iter().map(|(_, key, shoot)| shoot_in_json(key, shoot, seed, now)).collect();
    report.json.insert("shoots".to_owned(), Value::Array(told));
    if all.is_empty() {
        return;
    }
    report.section("Shoots");
    for (rank, key, shoot) in &all {
        report.row(shoot_row(*rank, key, shoot, seed, now));
    }
    leave_out(report, more);
}

fn shoot_in_json(key: &Key, shoot: &ShootHead, seed: &str, now: Timestamp) -> Value {
    let moves = ShootMove::of(shoot, seed);
    let last = shoot.status.last_operation.clone().unwrap_or_default();
    let written = objects::written(&last);
    json!({
        "namespace": key.namespace,
        "name": key.name,
        "operation": last.kind,
        "state": last.state,
        "progress": last.progress,
        "move": moves.map(ShootMove::direction),
        "otherSeed": match moves {
            Some(ShootMove::To(other) | ShootMove::From(other)) => Some(other),
            _ => None,
        },
        "description": cut(last.description, limits::FAILED_TEXT_BYTES_MAX),
        "secondsAgo": written.map(|at| now.since(at).as_secs()),
        "hibernated": shoot.status.is_hibernated,
        "version": shoot.spec.kubernetes.version,
        "address": address(shoot),
        "conditions": in_short(&shoot.status.conditions),
    })
}

/// Where the owner reaches the API server.
fn address(shoot: &ShootHead) -> Option<&str> {
    let all = &shoot.status.advertised_addresses;
    let external = all.iter().find(|address| address.name == "external");
    external.or_else(|| all.first()).map(|address| address.url.as_str())
}

/// What happens to a Shoot. During an operation, its description contains the running tasks.
fn shoot_row(rank: u8, key: &Key, shoot: &ShootHead, seed: &str, now: Timestamp) -> ReportRow {
    let mut more = if shoot.status.is_hibernated { ", hibernated".to_owned() } else { String::new() };
    if let Some(moves) = ShootMove::of(shoot, seed) {
        let _ = write!(more, ", {}", moves.words());
    }
    let facts =
        [Some(shoot.spec.kubernetes.version.as_str()).filter(|version| !version.is_empty()), address(shoot)];
    facts.into_iter().flatten().for_each(|fact| more.push_str(&format!(", {fact}")));
    let Some(last) = &shoot.status.last_operation else {
        return ReportRow {
            label: key.to_string(),
            text: format!("no operation yet{more}"),
            ..ReportRow::default()
        };
    };
    let runs = last.state == "Processing";
    let mut text = format!("{} {}", last.kind, last.state);
    if runs {
        let _ = write!(text, " {} %", last.progress);
    }
    if let Some(at) = objects::written(last) {
        let _ = write!(text, ", {} ago", human::lasting(now.since(at)));
    }
    text.push_str(&more);
    // The list of problems contains the error of another state.
    if runs && !last.description.is_empty() {
        let _ = write!(text, ": {}", cut(last.description.clone(), limits::FAILED_TEXT_BYTES_MAX));
    }
    let tone = match (rank, runs) {
        (0, _) => Tone::Bad,
        (_, true) => Tone::Busy,
        (2, _) => Tone::Good,
        _ => Tone::Plain,
    };
    ReportRow {
        label: key.to_string(),
        text,
        bar: runs.then_some(last.progress.min(100)),
        tone,
        ..ReportRow::default()
    }
}

/// The extensions of the seed.
pub(super) fn installations(report: &mut StatusReport, stores: &Stores) {
    let now = report.now;
    let order = |(key, it): (Key, std::sync::Arc<_>)| {
        let rank = if objects::of_installation(&it, now).is_some() { 0 } else { 1 };
        (rank, key, it)
    };
    let all: Vec<_> = stores.installations.store().all().into_iter().map(order).collect();
    report.json.insert("installationsTotal".to_owned(), json!(all.len()));
    let (all, more) = shown(all, limits::STATUS_ROWS_MAX);
    let in_json = all.iter().map(|(_, key, it)| {
        json!({"name": key.name, "registration": it.spec.registration_ref.name,
            "conditions": in_short(&it.status.conditions)})
    });
    let in_json = in_json.collect();
    report.json.insert("installations".to_owned(), Value::Array(in_json));
    if all.is_empty() {
        return;
    }
    report.section("Extensions");
    for (rank, key, it) in &all {
        let label = key.name.clone();
        let tone = if *rank == 0 { Tone::Bad } else { Tone::Good };
        report.row(ReportRow { label, text: readiness(&it.status.conditions), tone, ..ReportRow::default() });
    }
    leave_out(report, more);
}

/// Whether an extension is ready, or why it is not.
fn readiness(conditions: &[Condition]) -> String {
    let is_good = |it: &Condition| match it.kind.as_str() {
        // Only its deletion needs this.
        "Required" => true,
        "Progressing" => it.status == ConditionStatus::False,
        _ => it.status == ConditionStatus::True,
    };
    let mut bad: Vec<&Condition> = conditions.iter().filter(|it| !is_good(it)).collect();
    bad.sort_by_key(|it| urgency(&it.kind, it.status.as_str()));
    let missing = READY.iter().find(|kind| condition::find(conditions, kind).is_none());
    match (bad.is_empty(), missing) {
        (true, None) => "ready".to_owned(),
        (true, Some(kind)) => format!("not ready: no condition {kind} yet"),
        (false, _) => {
            let words: Vec<String> = bad.iter().map(|it| format!("{} is {}", it.kind, it.status)).collect();
            format!("not ready: {}", words.join(", "))
        }
    }
}

fn leave_out(report: &mut StatusReport, more: usize) {
    if let Some(section) = report.sections.last_mut() {
        section.more = more;
    }
}

fn in_short(conditions: &[Condition]) -> Value {
    conditions.iter().map(|condition| (condition.kind.clone(), json!(condition.status.as_str()))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::AgentVerdict;
    use super::*;

    #[test]
    fn one_retry_is_no_plural() {
        let mut report = StatusReport::new(AgentVerdict::default(), Vec::new(), Timestamp::default());
        report.section("Work");
        for retries in [0, 1, 2] {
            let (depth, failing, adds, active, permits) = (0, 1, 1, 0, 1);
            let longest = Duration::ZERO;
            let lane =
                pool::LaneView { name: "shoot", depth, failing, adds, retries, active, permits, longest };
            queue(&mut report, &lane);
        }
        let told = report.sections[0].rows.iter().map(|row| row.text.rsplit_once(", ").unwrap().1);
        assert_eq!(told.collect::<Vec<_>>(), ["0 retries", "1 retry", "2 retries"]);
    }

    #[test]
    fn rows_have_a_maximum_and_those_with_problems_come_first() {
        let row = |rank: u8, name: &str| (rank, Key::cluster(name), ());
        let (all, more) = shown(vec![row(2, "a"), row(1, "b"), row(0, "d"), row(0, "c"), row(2, "e")], 4);
        let names: Vec<&str> = all.iter().map(|(_, key, ())| key.name.as_str()).collect();
        assert_eq!((names, more), (vec!["c", "d", "b", "a"], 1));
    }

    #[test]
    fn an_extension_is_ready_or_says_why_not() {
        let of = |all: &[(&str, ConditionStatus)]| {
            let condition = |(kind, status): &(&str, ConditionStatus)| Condition {
                kind: (*kind).to_owned(),
                status: *status,
                ..Condition::default()
            };
            readiness(&all.iter().map(condition).collect::<Vec<_>>())
        };
        let well = [
            ("Progressing", ConditionStatus::False),
            ("Installed", ConditionStatus::True),
            ("Healthy", ConditionStatus::True),
        ];
        let with = |more: &[(&'static str, ConditionStatus)]| [&well[..], more].concat();
        let table = [
            (well.to_vec(), "ready"),
            (with(&[("Required", ConditionStatus::False), ("Valid", ConditionStatus::True)]), "ready"),
            (well[..2].to_vec(), "not ready: no condition Healthy yet"),
            (vec![], "not ready: no condition Installed yet"),
            (
                vec![
                    ("Installed", ConditionStatus::Unknown),
                    ("Progressing", ConditionStatus::True),
                    ("Valid", ConditionStatus::False),
                ],
                "not ready: Valid is False, Progressing is True, Installed is Unknown",
            ),
        ];
        for (conditions, expected) in table {
            assert_eq!(of(&conditions), expected, "{conditions:?}");
        }
    }

    #[test]
    fn a_shoot_in_progress_shows_its_tasks_and_how_far_it_is() {
        let now = Timestamp::from_unix(1_767_600_000);
        let key = Key::new("garden-p", "s1");
        let shoot = |last: Value| {
            let status = json!({"lastOperation": last, "hibernated": false, "advertisedAddresses": [
                {"name": "internal", "url": "https://i"}, {"name": "external", "url": "https://e"}]});
            let spec = json!({"kubernetes": {"version": "1.36.2"}});
            let object = json!({"metadata": {"name": "s1"}, "spec": spec, "status": status});
            serde_json::from_value::<ShootHead>(object).unwrap()
        };
        let at = |state: &str| {
            json!({"type": "Create", "state": state, "progress": 43, "description": "Deploying etcd, Waiting",
                "lastUpdateTime": "2026-01-05T07:59:57Z"})
        };
        let row = shoot_row(1, &key, &shoot(at("Processing")), "edge", now);
        assert_eq!(row.text, "Create Processing 43 %, 3 s ago, 1.36.2, https://e: Deploying etcd, Waiting");
        assert_eq!((row.label.as_str(), row.bar, row.tone), ("garden-p/s1", Some(43), Tone::Busy));
        let row = shoot_row(0, &key, &shoot(at("Error")), "edge", now);
        assert_eq!(
            (row.text.as_str(), row.bar, row.tone),
            ("Create Error, 3 s ago, 1.36.2, https://e", None, Tone::Bad)
        );
        let row = shoot_row(1, &key, &shoot(Value::Null), "edge", now);
        assert_eq!((row.text.as_str(), row.tone), ("no operation yet, 1.36.2, https://e", Tone::Plain));
        let mut long = at("Processing");
        long["description"] = json!("x".repeat(limits::FAILED_TEXT_BYTES_MAX + 1));
        let cut = format!("{}\u{2026}", "x".repeat(limits::FAILED_TEXT_BYTES_MAX));
        assert_eq!(shoot_in_json(&key, &shoot(long.clone()), "edge", now)["description"], json!(cut));
        assert!(shoot_row(1, &key, &shoot(long), "edge", now).text.ends_with(&format!(": {cut}")));
        let told = shoot_in_json(&key, &shoot(at("Processing")), "edge", now);
        assert_eq!((&told["version"], &told["address"]), (&json!("1.36.2"), &json!("https://e")));
        assert_eq!(
            (&told["progress"], &told["secondsAgo"], &told["state"]),
            (&json!(43), &json!(3), &json!("Processing"))
        );
        assert_eq!((&told["move"], &told["otherSeed"]), (&Value::Null, &Value::Null));
        let mut leaving = shoot(at("Processing"));
        leaving.spec.seed_name = "north".to_owned();
        leaving.status.seed_name = "edge".to_owned();
        for (seed, direction, other, words) in [
            ("edge", "leaving", "north", "43 %, 3 s ago, leaves for seed north, 1.36.2"),
            ("north", "arriving", "edge", "43 %, 3 s ago, comes from seed edge, 1.36.2"),
        ] {
            let told = shoot_in_json(&key, &leaving, seed, now);
            assert_eq!((&told["move"], &told["otherSeed"]), (&json!(direction), &json!(other)));
            let row = shoot_row(1, &key, &leaving, seed, now);
            assert!(row.text.contains(words), "{}", row.text);
        }
    }
}
