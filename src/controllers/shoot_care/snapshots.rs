//! The state of etcd snapshots, from the termination messages of the pods that took them, and from the CronJobs. Two
//! lists per [`pace::RARELY`] serve all Shoots; a Shoot that was just reconciled is read separately.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use crate::api::core::{CRON_JOB, POD};
use crate::api::meta::{annotation, text};
use crate::base::clock::{Mono, Timestamp};
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::base::metrics::Metrics;
use crate::base::sorted::SortedMap;
use crate::format::cron::Cron;
use crate::format::time::{parse_rfc3339, rfc3339};
use crate::kube::{Error, ListParams};
use crate::operation::components::etcd::plain::ended::EndedPod;
use crate::operation::components::etcd::plain::snapshots::{NAME, SELECTOR, SINCE};
use crate::runtime::controller::ReconcileContext;

use super::pace;
use super::planes::Planes;

/// How long a run may take.
const GRACE: Duration = Duration::from_secs(3_600);
/// How far ahead schedules are evaluated.
const AHEAD: Duration = Duration::from_secs(62 * 24 * 3_600);

const SIZE: (&str, &str) = (
    "gardenlet_etcd_database_bytes",
    "The size of the largest database of an etcd-main, at its last snapshot.",
);
const IN_USE: (&str, &str) = (
    "gardenlet_etcd_database_in_use_bytes",
    "How much of this database is in use: a defragmentation frees the rest.",
);
const OLDEST: (&str, &str) = (
    "gardenlet_etcd_snapshot_timestamp_seconds",
    "When the last snapshot was taken of the etcd-main that has waited for one for longest; since when, if it has none.",
);

#[derive(Default)]
pub(super) struct Snapshots(Mutex<Option<(Mono, All)>>);

type All = SortedMap<String, State>;

/// The state of one Shoot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct State {
    job: Option<Job>,
    /// The run that ended last.
    last: Option<SnapshotRun>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Job {
    schedule: String,
    is_suspended: bool,
    /// Since when it has its present schedule.
    since: Timestamp,
    succeeded: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct SnapshotRun {
    ended: Timestamp,
    result: Result<Taken, String>,
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Taken {
    at: Timestamp,
    database_bytes: u64,
    in_use_bytes: u64,
}

impl Snapshots {
    /// The problem of a namespace's snapshots. With `anew`, cached data does not count.
    pub(super) fn trouble(
        &self,
        planes: &Planes,
        namespace: &str,
        anew: bool,
        cx: &ReconcileContext,
    ) -> Option<String> {
        let mut known = self.0.lock().ignore_poison();
        let at = cx.clock.mono();
        let is_old = known.as_ref().is_none_or(|(read, _)| at.saturating_sub(*read) >= pace::RARELY);
        if is_old || anew {
            match read(planes, if is_old { "" } else { namespace }) {
                Ok(all) if is_old => *known = Some((at, all)),
                Ok(mut one) => {
                    let all = known.as_mut().map(|(_, all)| all);
                    all.into_iter().for_each(|all| put(all, namespace, one.remove(namespace)));
                }
                // Keep the previous facts.
                Err(error) if error.postponed().is_some() => {}
                Err(error) => {
                    log::warn!(err = chain(&error).as_str(); "Cannot read the results of etcd snapshots");
                    let before = known.take().map(|(_, all)| all);
                    *known = Some((at, before.unwrap_or_default()));
                }
            }
            known.as_ref().into_iter().for_each(|(_, all)| measure(all, &cx.metrics, cx.clock.now()));
        }
        known.as_ref()?.1.get(namespace)?.trouble(cx.clock.now())
    }
}

fn put(all: &mut All, namespace: &str, state: Option<State>) {
    match state {
        Some(state) => drop(all.insert(namespace.to_owned(), state)),
        None => drop(all.remove(namespace)),
    }
}

/// For one namespace, or for all.
fn read(planes: &Planes, namespace: &str) -> Result<All, Error> {
    let mut all = All::new();
    let params = ListParams { label_selector: SELECTOR.to_owned(), ..ListParams::default() };
    planes.list(&CRON_JOB, namespace, &params, &mut |object| match object {
        None => all.clear(),
        Some(object) => {
            let namespace = text(&object["metadata"]["namespace"]).to_owned();
            all.insert(namespace, State { job: Some(Job::read(&object)), last: None });
        }
    })?;
    planes.list(&POD, namespace, &params, &mut |object| match object {
        None => all.iter_mut().for_each(|(_, state)| state.last = None),
        Some(pod) => {
            let state = all.get_mut(text(&pod["metadata"]["namespace"]));
            if let (Some(state), Some(run)) = (state, SnapshotRun::read(&pod)) {
                // Of two in the same second, the success was later, because it ends the attempts.
                let rank = |run: &SnapshotRun| (run.ended, run.result.is_ok());
                let is_newer = state.last.as_ref().is_none_or(|last| rank(last) <= rank(&run));
                state.last = if is_newer { Some(run) } else { state.last.take() };
            }
        }
    })?;
    Ok(all)
}

/// No metric names a Shoot: the worst value counts.
fn measure(all: &All, metrics: &Metrics, now: Timestamp) {
    let taken = all.values().filter_map(|state| state.last.as_ref()?.result.as_ref().ok());
    #[expect(clippy::cast_precision_loss)]
    if let Some(largest) = taken.max_by_key(|taken| taken.database_bytes) {
        metrics.set(SIZE.0, SIZE.1, &[], largest.database_bytes as f64);
        metrics.set(IN_USE.0, IN_USE.1, &[], largest.in_use_bytes as f64);
    }
    let awake = all.values().filter(|state| state.job.as_ref().is_some_and(|job| !job.is_suspended));
    let oldest = awake.filter_map(|state| state.succeeded().or(Some(state.job.as_ref()?.since))).min();
    // The last one that waited may have gone, or be asleep: then nobody waits, and no alert should say so.
    let was_known = metrics.value(OLDEST.0, &[]).is_some();
    #[expect(clippy::cast_precision_loss)]
    if let Some(oldest) = oldest.or(was_known.then_some(now)) {
        metrics.set(OLDEST.0, OLDEST.1, &[], oldest.unix() as f64);
    }
}

fn time(value: &Value) -> Option<Timestamp> {
    parse_rfc3339(text(value)).ok()
}

impl Job {
    fn read(object: &Value) -> Self {
        let (spec, status) = (&object["spec"], &object["status"]);
        let since = parse_rfc3339(annotation(object, SINCE)).ok();
        Self {
            schedule: text(&spec["schedule"]).to_owned(),
            is_suspended: spec["suspend"] == true,
            since: since.max(time(&object["metadata"]["creationTimestamp"])).unwrap_or_default(),
            succeeded: time(&status["lastSuccessfulTime"]),
        }
    }
}

impl SnapshotRun {
    /// `None` if the pod has not ended.
    fn read(pod: &Value) -> Option<Self> {
        let EndedPod { at: ended, told, failure, .. } = EndedPod::read(pod)?;
        let number = |field: &str| told[field].as_u64().unwrap_or_default();
        let result = match failure {
            Some(why) => Err(why),
            None => Ok(Taken {
                at: time(&told["time"]).unwrap_or(ended),
                database_bytes: number("databaseBytes"),
                in_use_bytes: number("databaseBytesInUse"),
            }),
        };
        Some(Self { ended, result })
    }
}

impl State {
    /// When the last snapshot was taken.
    fn succeeded(&self) -> Option<Timestamp> {
        let taken = self.last.as_ref().and_then(|last| last.result.as_ref().ok()).map(|taken| taken.at);
        taken.max(self.job.as_ref().and_then(|job| job.succeeded))
    }

    fn trouble(&self, now: Timestamp) -> Option<String> {
        let job = self.job.as_ref().filter(|job| !job.is_suspended)?;
        if let Some(SnapshotRun { ended, result: Err(why) }) = &self.last
            && job.succeeded.is_none_or(|succeeded| succeeded < *ended)
        {
            return Some(format!("its last snapshot failed at {}: {why}", rfc3339(*ended)));
        }
        let succeeded = self.succeeded();
        let cron = Cron::parse(&job.schedule)?;
        let next = |after: Timestamp| cron.next(after, "", AHEAD);
        let second = next(next(succeeded.max(Some(job.since))?)?)?;
        (now > second.plus(GRACE)).then(|| {
            let last = succeeded.map_or_else(|| "never".to_owned(), rfc3339);
            format!(
                "its last snapshot was taken: {last}, and the schedule is \"{}\" (UTC): look at the jobs of CronJob {NAME} and their Events",
                job.schedule
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> Timestamp {
        parse_rfc3339(&format!("2026-07-{text}:00Z")).unwrap()
    }

    fn pod(ended: &str, code: i64, message: &str) -> Value {
        json!({"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": code, "reason": "Error", "message": message,
            "finishedAt": format!("2026-07-{ended}:00Z")}}}]}})
    }

    #[test]
    fn hibernated_shoots_wait_for_no_snapshot() {
        let metrics = Metrics::new();
        let told = |metrics: &Metrics| metrics.value(OLDEST.0, &[]);
        let of = |is_suspended: bool| {
            let job = Job { is_suspended, since: at("01T22:00"), ..Job::default() };
            All::from_iter([("shoot--p--s1".to_owned(), State { job: Some(job), last: None })])
        };
        measure(&of(true), &metrics, at("02T22:00"));
        assert_eq!(told(&metrics), None);
        measure(&of(false), &metrics, at("02T22:00"));
        assert_eq!(told(&metrics), Some(at("01T22:00").seconds()));
        for all in [of(true), All::default()] {
            measure(&all, &metrics, at("03T22:00"));
            assert_eq!(told(&metrics), Some(at("03T22:00").seconds()));
        }
    }

    #[test]
    fn the_termination_message_of_a_pod() {
        let run = |code, message: &str| SnapshotRun::read(&pod("01T22:05", code, message)).unwrap().result;
        let told = json!({"snapshot": "a", "databaseBytes": 20, "databaseBytesInUse": 9, "time": "2026-07-01T22:04:00Z"});
        let taken = Taken { at: at("01T22:04"), database_bytes: 20, in_use_bytes: 9 };
        let table = [
            (0, told.to_string(), Ok(taken)),
            (1, json!({"error": "no room"}).to_string(), Err("no room")),
            (101, "thread panicked".to_owned(), Err("thread panicked")),
            (137, String::new(), Err("its pod ended with Error (exit code 137)")),
            (0, String::new(), Ok(Taken { at: at("01T22:05"), ..Taken::default() })),
        ];
        for (code, message, expected) in table {
            assert_eq!(run(code, &message), expected.map_err(str::to_owned), "{message}");
        }
        assert_eq!(SnapshotRun::read(&json!({"status": {"phase": "Pending"}})), None);
    }

    #[test]
    fn late_and_failed_snapshots() {
        let job = |field: &str, value: &str| {
            let mut object = json!({"metadata": {"creationTimestamp": "2026-07-01T12:00:00Z"},
                "spec": {"schedule": "0 22 * * *"}});
            match field {
                "suspend" => object["spec"]["suspend"] = json!(true),
                "since" => object["metadata"]["annotations"] = json!({SINCE: value}),
                "succeeded" => object["status"]["lastSuccessfulTime"] = json!(value),
                _ => {}
            }
            Some(Job::read(&object))
        };
        let failed = |ended: &str| SnapshotRun::read(&pod(ended, 1, r#"{"error": "no room"}"#));
        let fresh = || job("", "");
        let succeeded = || job("succeeded", "2026-07-01T22:07:00Z");
        let late = "its last snapshot was taken: ";
        let no_room = "its last snapshot failed at 2026-07-01T22:05:00Z: no room";
        let table = [
            (None, failed("01T22:05"), "09T00:00", None),
            (fresh(), None, "02T22:30", None),
            (fresh(), None, "02T23:01", Some(format!("{late}never"))),
            (fresh(), failed("01T22:05"), "01T22:06", Some(no_room.to_owned())),
            (job("suspend", "true"), failed("01T22:05"), "09T00:00", None),
            (succeeded(), failed("01T22:05"), "01T22:10", None),
            (succeeded(), None, "03T23:00", None),
            (succeeded(), None, "03T23:01", Some(format!("{late}2026-07-01T22:07:00Z"))),
            // It was hibernated, or its schedule has changed.
            (job("since", "2026-07-08T12:00:00Z"), None, "09T22:30", None),
        ];
        for (job, last, now, expected) in table {
            let state = State { job, last };
            let found = state.trouble(at(now));
            match (&found, &expected) {
                (Some(found), Some(words)) => assert!(found.starts_with(words.as_str()), "{found}"),
                _ => assert_eq!(found, expected, "{state:?} {now}"),
            }
        }
    }
}
