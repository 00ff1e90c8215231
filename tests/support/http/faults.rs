//! Faults that a test orders: a predicate for requests, and an action for those that match.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::api::failure::Failure;
use crate::api::request::Info;

/// A request as a predicate sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub query: String,
    pub user: String,
    pub user_agent: String,
    pub info: Info,
    /// The body of a write, if it is JSON.
    pub body: Option<Value>,
    /// Position among all requests of the server, from 0.
    pub sequence: u64,
}

impl Seen {
    pub fn is_write(&self) -> bool {
        matches!(self.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE")
    }

    pub fn is_watch(&self) -> bool {
        self.info.verb == "watch"
    }
}

/// The action for a request.
#[derive(Clone)]
pub enum Action {
    /// Refused with this failure, unprocessed.
    Refuse(Failure),
    /// Answered with a page of HTML, as proxies do, unprocessed.
    Html(u16),
    /// The connection is closed, unprocessed and without an answer.
    Drop,
    /// The connection is reset, unprocessed.
    Reset,
    /// The request takes effect, but the connection is closed without an answer.
    DropAfter,
    /// The request takes effect, half of the answer comes.
    Half,
    /// A list is answered with one object of this many bytes, in a valid answer of any length, unprocessed.
    Flood(usize),
    /// The request takes effect, the answer is not JSON.
    BrokenJson,
    /// No answer for this time (of the server's clock), then the connection is closed, unprocessed.
    Silence(Duration),
    /// Processed after this time.
    Delay(Duration),
    /// Processed at once, answered after this time.
    DelayAnswer(Duration),
    /// The request takes effect, but the answer is this failure, as of a server with a slow storage.
    RefuseAfter(Failure),
    /// A read is answered from the state at this revision.
    Stale(u64),
    /// A read is answered from the state this many revisions ago.
    StaleBy(u64),
    /// The `Date` header is wrong by this many seconds.
    WrongDate(i64),
    /// A watch leaves out its n-th event, from 0.
    SkipEvent(u64),
    /// A watch ends properly after this many events.
    EndAfterEvents(u64),
    /// A watch breaks off in the middle of its n-th event, from 0.
    HalfEvent(u64),
    /// A watch sends this as an ERROR event and ends.
    WatchError(Failure),
    /// From the first event that the predicate accepts, a watch sends nothing for this time. Then it ends with 410, and the
    /// client has missed these events.
    Blind(Arc<dyn Fn(&Seen) -> bool + Send + Sync>, Duration),
    /// The event that the predicate accepts, and those after it, are sent later by this time.
    Late(Arc<dyn Fn(&Seen) -> bool + Send + Sync>, Duration),
    /// The request is processed as usual; the test is notified before.
    Tell(Arc<dyn Fn(&Seen) + Send + Sync>),
    /// The test is notified after the request took effect and before the answer.
    TellAfter(Arc<dyn Fn(&Seen) + Send + Sync>),
}

impl Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Refuse(_) => "refuse",
            Self::Html(_) => "html",
            Self::Drop => "drop",
            Self::Reset => "reset",
            Self::DropAfter => "drop after",
            Self::Half => "half",
            Self::Flood(_) => "flood",
            Self::BrokenJson => "broken json",
            Self::Silence(_) => "silence",
            Self::Delay(_) => "delay",
            Self::DelayAnswer(_) => "delay answer",
            Self::RefuseAfter(_) => "refuse after",
            Self::Stale(_) | Self::StaleBy(_) => "stale",
            Self::Blind(..) => "blind",
            Self::Late(..) => "late",
            Self::WrongDate(_) => "wrong date",
            Self::SkipEvent(_) => "skip event",
            Self::EndAfterEvents(_) => "end after events",
            Self::HalfEvent(_) => "half event",
            Self::WatchError(_) => "watch error",
            Self::Tell(_) | Self::TellAfter(_) => "tell",
        }
    }
}

type Predicate = Box<dyn Fn(&Seen) -> bool + Send>;

struct Rule {
    id: u64,
    predicate: Predicate,
    skip: u32,
    times: u32,
    hits: Arc<AtomicU32>,
    action: Action,
}

#[derive(Default)]
struct Rules {
    next: u64,
    rules: Vec<Rule>,
}

/// The faults of one server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Rules>>);

/// A fault being ordered.
pub struct Order {
    faults: Faults,
    predicate: Predicate,
    skip: u32,
    times: u32,
}

/// An ordered fault: how often it happened, and how to cancel it.
#[derive(Clone)]
pub struct Ordered {
    faults: Faults,
    id: u64,
    hits: Arc<AtomicU32>,
}

impl Ordered {
    pub fn hits(&self) -> u32 {
        self.hits.load(Ordering::SeqCst)
    }

    pub fn cancel(&self) {
        self.faults.lock().rules.retain(|rule| rule.id != self.id);
    }
}

impl Faults {
    fn lock(&self) -> std::sync::MutexGuard<'_, Rules> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses requests. A predicate must not call the server.
    pub fn when(&self, predicate: impl Fn(&Seen) -> bool + Send + 'static) -> Order {
        Order { faults: self.clone(), predicate: Box::new(predicate), skip: 0, times: u32::MAX }
    }

    /// Chooses requests by method (`""`: any) and a part of the path.
    pub fn on(&self, method: &'static str, path: &'static str) -> Order {
        self.when(move |seen| (method.is_empty() || seen.method == method) && seen.path.contains(path))
    }

    /// Cancels all faults.
    pub fn clear(&self) {
        self.lock().rules.clear();
    }

    /// The actions for a request, with the names for the record.
    pub fn decide(&self, seen: &Seen) -> (Vec<Action>, Option<String>) {
        let mut rules = self.lock();
        let mut actions = Vec::new();
        for rule in &mut rules.rules {
            if rule.times == 0 || !(rule.predicate)(seen) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times = if rule.times == u32::MAX { u32::MAX } else { rule.times - 1 };
            rule.hits.fetch_add(1, Ordering::SeqCst);
            actions.push(rule.action.clone());
        }
        let names: Vec<&str> = actions.iter().map(Action::name).filter(|n| *n != "tell").collect();
        let name = (!names.is_empty()).then(|| names.join(", "));
        (actions, name)
    }
}

impl Order {
    /// Skips the first `n` requests.
    #[must_use]
    pub fn skip(mut self, n: u32) -> Self {
        self.skip = n;
        self
    }

    /// Happens to `n` requests at most.
    #[must_use]
    pub fn times(mut self, n: u32) -> Self {
        self.times = n;
        self
    }

    /// Happens to one request.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Orders it.
    pub fn then(self, action: Action) -> Ordered {
        let hits = Arc::new(AtomicU32::new(0));
        let mut rules = self.faults.lock();
        rules.next += 1;
        let id = rules.next;
        let rule = Rule {
            id,
            predicate: self.predicate,
            skip: self.skip,
            times: self.times,
            hits: hits.clone(),
            action,
        };
        rules.rules.push(rule);
        drop(rules);
        Ordered { faults: self.faults, id, hits }
    }

    /// Answers with a status, in the words of a real server.
    pub fn answer(self, status: u16) -> Ordered {
        self.then(Action::Refuse(failure(status, None)))
    }

    /// Answers with a status and a `Retry-After` header.
    pub fn answer_later(self, status: u16, retry_after_s: u32) -> Ordered {
        self.then(Action::Refuse(failure(status, Some(retry_after_s))))
    }
}

/// The usual failure of a status code.
pub fn failure(status: u16, retry_after_s: Option<u32>) -> Failure {
    let (reason, message) = match status {
        400 => ("BadRequest", "the request is bad"),
        401 => ("Unauthorized", "Unauthorized"),
        403 => ("Forbidden", "forbidden: a fault was ordered"),
        404 => ("NotFound", "the server could not find the requested resource"),
        409 => (
            "Conflict",
            "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again",
        ),
        410 => ("Expired", "too old resource version: 1 (2)"),
        422 => ("Invalid", "the object is invalid"),
        429 => ("TooManyRequests", "Too many requests, please try again later."),
        500 => ("InternalError", "Internal error occurred: etcdserver: request timed out"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "Timeout: request did not complete within the allotted timeout"),
        _ => ("", "an error was ordered"),
    };
    Failure { retry_after_s, ..Failure::new(status, reason, message) }
}
