//! Kubernetes Events (`events.k8s.io/v1`), as the Go gardenlet writes them: a repetition within ten minutes is counted
//! in the `series` of its event instead of written again. Events inform people and decide nothing: a failed write is
//! not an error.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::api::core::EVENT;
use crate::api::meta::{Key, Resource, text};
use crate::base::clock::{Clock, Mono, Timestamp};
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::base::sorted::SortedMap;
use crate::format::duration;
use crate::format::time::{parse_rfc3339, rfc3339_micros};
use crate::kube::{Client, Patch};
use crate::limits;

/// Repetitions within this time belong to the same event.
const SERIES: Duration = Duration::from_secs(600);
/// The number of events that may be written at once, and the time after which one more is allowed.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(10);
/// A short timeout, because events are not important.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The API server accepts notes below 1 kB.
const NOTE_CHARS_MAX: usize = 1_000;
/// Namespace of events about objects without one.
const DEFAULT_NAMESPACE: &str = "default";

/// The content of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    /// The controller, as in Gardener: `seed-controller`.
    pub(crate) controller: &'a str,
    /// Whether it is a warning.
    pub(crate) warning: bool,
    /// A word for machines to read.
    pub(crate) reason: &'a str,
    /// The running operation: `Reconcile`, `Delete`.
    pub(crate) action: &'a str,
    /// For people; without secrets.
    pub(crate) note: &'a str,
}

/// The object that an event is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InvolvedObject<'a> {
    pub(crate) resource: &'a Resource,
    /// Its namespace; empty if it has none.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Its identity: `kubectl describe` looks for it.
    pub(crate) uid: &'a str,
}

#[derive(Debug)]
struct WrittenEvent {
    name: String,
    count: u32,
    last: Mono,
}

/// The write to send.
#[derive(Debug, PartialEq, Eq)]
enum EventWrite {
    Create { name: String },
    Count { name: String, count: u32 },
    Nothing,
}

/// The written events, and how many may be written now.
#[derive(Debug)]
struct WrittenEvents {
    events: SortedMap<String, WrittenEvent>,
    tokens: u32,
    filled_at: Mono,
}

impl WrittenEvents {
    const fn new() -> Self {
        Self { events: SortedMap::new(), tokens: BURST, filled_at: Mono::ZERO }
    }

    fn decide(&mut self, key: &str, object: &str, now: Mono) -> EventWrite {
        self.events.retain(|_, event| now.saturating_sub(event.last) < SERIES);
        let refills = now.saturating_sub(self.filled_at).as_secs() / REFILL.as_secs();
        if refills > 0 {
            self.tokens = self.tokens.saturating_add(u32::try_from(refills).unwrap_or(BURST)).min(BURST);
            self.filled_at = now;
        }
        let known = self.events.get_mut(key);
        if let Some(event) = known {
            (event.count, event.last) = (event.count.saturating_add(1), now);
        }
        if self.tokens == 0 {
            // Count known events; the next write contains the count.
            return EventWrite::Nothing;
        }
        self.tokens -= 1;
        if let Some(event) = self.events.get(key) {
            return EventWrite::Count { name: event.name.clone(), count: event.count };
        }
        if self.events.len() >= limits::EVENTS_MAX
            && let Some(oldest) =
                self.events.iter().min_by_key(|(_, event)| event.last).map(|(key, _)| key.clone())
        {
            self.events.remove(&oldest);
        }
        let name = format!("{object}.{}", random::hex(16));
        self.events.insert(key.to_owned(), WrittenEvent { name: name.clone(), count: 1, last: now });
        EventWrite::Create { name }
    }
}

/// The recorder of events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    hostname: Arc<str>,
    book: Arc<Mutex<WrittenEvents>>,
}

impl EventRecorder {
    /// A recorder without events.
    pub fn new(hostname: &str) -> Self {
        Self { hostname: hostname.into(), book: Arc::new(Mutex::new(WrittenEvents::new())) }
    }

    /// Emits an event in the cluster of `client`. Returns whether the cluster has it, with an older count at worst. A caller that
    /// reports something nowhere else may tell it again later.
    pub(crate) fn tell(
        &self,
        client: &Client,
        clock: &Clock,
        about: InvolvedObject<'_>,
        event: Event<'_>,
    ) -> bool {
        let note: String = event.note.chars().take(NOTE_CHARS_MAX).collect();
        let event = Event { note: &note, ..event };
        let key = [about.uid, about.name, event.reason, event.action, event.note].join("\n");
        let (act, is_known) = {
            // Plain values: a panic does not leave them half changed.
            let mut book = self.book.lock().ignore_poison();
            (book.decide(&key, about.name, clock.mono()), book.events.contains_key(&key))
        };
        let namespace = if about.namespace.is_empty() { DEFAULT_NAMESPACE } else { about.namespace };
        let client = client.with_deadline(TIMEOUT);
        let now = clock.now();
        let is_new = matches!(act, EventWrite::Create { .. });
        let written = match act {
            EventWrite::Nothing => return is_known,
            EventWrite::Create { name } => {
                let body = self.body(&Key::new(namespace, &name), about, event, now);
                client.create::<Value>(&EVENT, namespace, &body)
            }
            EventWrite::Count { name, count } => {
                let series = json!({"series": {"count": count, "lastObservedTime": rfc3339_micros(now)}});
                client.patch::<Value>(&EVENT, &Key::new(namespace, &name), &Patch::Merge(series))
            }
        };
        let Err(error) = written else { return true };
        let is_missing = is_new || error.is_not_found();
        if is_missing {
            // It is not in the cluster, or has expired there: the next one is new.
            self.book.lock().ignore_poison().events.remove(&key);
        }
        let err = chain(&error);
        log::debug!(about = about.name, reason = event.reason, err = err.as_str(); "Cannot write an event");
        !is_missing
    }

    fn body(&self, key: &Key, about: InvolvedObject<'_>, event: Event<'_>, now: Timestamp) -> Value {
        let mut regarding = json!({
            "apiVersion": about.resource.api_version(), "kind": about.resource.kind, "name": about.name, "uid": about.uid,
        });
        if !about.namespace.is_empty() {
            regarding["namespace"] = json!(about.namespace);
        }
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": key.namespace, "name": key.name},
            "eventTime": rfc3339_micros(now),
            "type": if event.warning { "Warning" } else { "Normal" },
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "reportingController": event.controller,
            "reportingInstance": format!("{}-{}", event.controller, self.hostname),
            "regarding": regarding,
        })
    }
}

/// When an Event was last seen, in both APIs of Events; the times are texts that sort.
pub(crate) fn last_seen(event: &Value) -> &str {
    let last = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["deprecatedLastTimestamp"],
        &event["eventTime"],
    ];
    last.into_iter().find_map(Value::as_str).unwrap_or_default()
}

/// An Event in one line.
pub(crate) fn describe(event: &Value, now: Timestamp) -> String {
    let counts = [&event["series"]["count"], &event["count"], &event["deprecatedCount"]];
    let count = counts.into_iter().find_map(Value::as_i64).unwrap_or(1);
    let times_seen = if count > 1 { format!(", {count} times") } else { String::new() };
    let (kind, reason) = (text(&event["type"]), text(&event["reason"]));
    let message = [&event["message"], &event["note"]].into_iter().find_map(Value::as_str).unwrap_or_default();
    let age = parse_rfc3339(last_seen(event)).map(|at| Duration::from_secs(now.since(at).as_secs()));
    let ago = age.map(|age| format!(" {} ago", duration::format(age))).unwrap_or_default();
    format!("event{ago}{times_seen}: {kind} {reason}: {message}")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::kube::{Connection, Options};
    use crate::net::testing::{self, TestServer};

    const fn s(seconds: u64) -> Mono {
        Duration::from_secs(seconds)
    }

    fn created(act: &EventWrite) -> &str {
        match act {
            EventWrite::Create { name } => name,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn repetitions_are_counted_until_the_event_is_old() {
        let mut book = WrittenEvents::new();
        let first = book.decide("a", "seed", s(0));
        let name = created(&first).to_owned();
        assert!(name.starts_with("seed."), "{name}");
        assert_eq!(book.decide("a", "seed", s(300)), EventWrite::Count { name: name.clone(), count: 2 });
        assert_eq!(book.decide("a", "seed", s(899)), EventWrite::Count { name: name.clone(), count: 3 });
        assert_ne!(created(&book.decide("b", "seed", s(899))), name);
        assert_ne!(created(&book.decide("a", "seed", s(899 + 600))), name);
    }

    #[test]
    fn many_events_are_bounded_in_rate_and_memory() {
        let mut book = WrittenEvents::new();
        let written = |book: &mut WrittenEvents, from: u32, at| {
            (from..from + 1_000)
                .filter(|n| book.decide(&n.to_string(), "x", at) != EventWrite::Nothing)
                .count()
        };
        assert_eq!(written(&mut book, 0, s(5)), 25);
        assert_eq!(written(&mut book, 0, s(25)), 2);
        for n in 0..u32::try_from(limits::EVENTS_MAX * 2).unwrap() {
            book.tokens = 1;
            book.decide(&format!("k{n}"), "x", s(100));
        }
        assert_eq!(book.events.len(), limits::EVENTS_MAX);
    }

    #[test]
    fn an_event_that_could_not_be_written_is_created_again() {
        let failures = AtomicUsize::new(1);
        let server = TestServer::plain(move |_| {
            let is_failure = failures.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            testing::Act::json(if is_failure { 500 } else { 201 }, "{}")
        });
        let client = Client::new(Connection::new(server.url()), Options::default()).unwrap();
        let about = InvolvedObject {
            resource: &crate::api::gardener::SEED,
            namespace: "",
            name: "edge-1",
            uid: "u-1",
        };
        let event = Event {
            controller: "c",
            warning: true,
            reason: "ReconcileError",
            action: "Reconcile",
            note: "why",
        };
        let recorder = EventRecorder::new("host-1");
        let in_cluster = [(); 3].map(|()| recorder.tell(&client, &Clock::system(), about, event));
        assert_eq!(in_cluster, [false, true, true]);
        let methods: Vec<String> = server.seen().into_iter().map(|seen| seen.method).collect();
        assert_eq!(methods, ["POST", "POST", "PATCH"]);
    }

    #[test]
    fn an_event_has_the_form_that_upstream_gives_it() {
        let about = InvolvedObject {
            resource: &crate::api::gardener::SEED,
            namespace: "",
            name: "edge-1",
            uid: "u-1",
        };
        let event = Event {
            controller: "seed-controller",
            warning: true,
            reason: "ReconcileError",
            action: "Reconcile",
            note: "why",
        };
        let now = Timestamp::from_unix(1_735_787_045);
        let expected = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"namespace": "default", "name": "edge-1.0"},
            "eventTime": "2025-01-02T03:04:05.000000Z", "type": "Warning", "reason": "ReconcileError",
            "action": "Reconcile", "note": "why", "reportingController": "seed-controller",
            "reportingInstance": "seed-controller-host-1",
            "regarding": {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "name": "edge-1", "uid": "u-1"},
        });
        assert_eq!(
            EventRecorder::new("host-1").body(&Key::new("default", "edge-1.0"), about, event, now),
            expected
        );
    }
}
