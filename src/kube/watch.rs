//! Watches: a stream of events, one JSON document a line, over a connection of its own.

use std::fmt;
use std::io::Read as _;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::bounds::{Busy, Claims, HeldPermit};
use super::error::{Error, StatusFailure};
use super::pages::count_skipped;
use super::request::UndecodableObject;
use super::split::whole_part;
use super::status;
use super::value::StreamedObject;
use crate::api::meta::{Metadata, ObjectMeta};
use crate::base::metrics::Metrics;
use crate::base::thread;
use crate::limits;
use crate::net::{self, Body, Http};

/// What a watch yields.
#[derive(Debug)]
pub enum WatchEvent<T> {
    /// The object is new to the watch.
    Added(T),
    /// The object changed.
    Modified(T),
    /// The object is gone, or no longer selected.
    Deleted(ObjectMeta),
    /// A new resourceVersion without a change.
    Bookmark(String),
    /// An object that exists but cannot be decoded. The watch continues.
    Undecodable(UndecodableObject),
}

/// A running watch whose objects are decoded as `T`.
#[derive(Debug)]
pub struct Watch<T> {
    events: Events,
    marker: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Watch<T> {
    pub(super) const fn new(events: Events) -> Self {
        Self { events, marker: PhantomData }
    }

    /// As [`Events::next`].
    #[allow(clippy::should_implement_trait)] // it blocks and its errors end it: not a collection
    pub fn next(&mut self) -> Option<Result<WatchEvent<T>, Error>> {
        let decoded = |object: StreamedObject, event: fn(T) -> WatchEvent<T>| {
            object.decode().map_or_else(WatchEvent::Undecodable, event)
        };
        let event = match self.events.next()? {
            Ok(WatchEvent::Added(object)) => decoded(object, WatchEvent::Added),
            Ok(WatchEvent::Modified(object)) => decoded(object, WatchEvent::Modified),
            Ok(WatchEvent::Deleted(last)) => WatchEvent::Deleted(last),
            Ok(WatchEvent::Bookmark(version)) => WatchEvent::Bookmark(version),
            Ok(WatchEvent::Undecodable(object)) => WatchEvent::Undecodable(object),
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(event))
    }

    /// As [`Events::handle`].
    pub fn handle(&self) -> WatchHandle {
        self.events.handle()
    }
}

/// What a watch needs for long events.
pub(super) struct LongEvents {
    pub(super) claims: Claims,
    pub(super) metrics: Metrics,
    pub(super) peer: &'static str,
}

/// A running watch. The server ends it after its timeout; begin the next one at the last resourceVersion seen.
pub(crate) struct Events {
    line: Arc<WatchConnection>,
    request: String,
    lines: Lines,
    long: LongEvents,
    done: bool,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.request).finish()
    }
}

impl Events {
    pub(super) fn new(line: Arc<WatchConnection>, request: String, body: Body, long: LongEvents) -> Self {
        let lines = Lines::new(body, long.claims.clone());
        Self { line, request, lines, long, done: false }
    }

    /// Waits for the next event. `None` when the watch has ended regularly: the server ended it, or the client got
    /// another connection. After an error, there are no more events.
    pub(crate) fn next(&mut self) -> Option<Result<WatchEvent<StreamedObject>, Error>> {
        if self.done {
            return None;
        }
        let result = self.step();
        self.done = !matches!(result, Some(Ok(_)));
        match self.line.state() {
            CLOSED => Some(Err(Error::Stopped)),
            ENDED => None,
            _ => result,
        }
    }

    /// A handle that ends the watch from another thread.
    pub(crate) fn handle(&self) -> WatchHandle {
        WatchHandle(Arc::clone(&self.line))
    }

    fn step(&mut self) -> Option<Result<WatchEvent<StreamedObject>, Error>> {
        let decoded = match self.lines.next() {
            Ok(Some(WatchLine::Whole(bytes))) => match self.long.claims.values(bytes) {
                Ok(held) => decode(bytes, held),
                Err(Busy) => return self.broken(Broken::Busy),
            },
            Ok(Some(WatchLine::TooLong(head))) => {
                count_skipped(&self.long.metrics, self.long.peer);
                let head = head.unwrap_or_default();
                match self.long.claims.values(&head) {
                    Ok(held) => decode_head(&head, held),
                    Err(Busy) => return self.broken(Broken::Busy),
                }
            }
            Ok(None) => return None,
            Err(broken) => return self.broken(broken),
        };
        Some(decoded.map_err(|problem| problem.into_error(&self.request)))
    }

    fn broken<T>(&self, broken: Broken) -> Option<Result<T, Error>> {
        let request = self.request.clone();
        Some(Err(match broken {
            Broken::Net(source) => Error::Transport { request, source },
            Broken::Text(problem) => Error::Response { request, problem },
            Broken::Busy => Error::Response { request, problem: Busy::PROBLEM.to_owned() },
        }))
    }
}

/// Ends a watch from another thread, even while it waits for an event.
#[derive(Clone, Debug)]
pub struct WatchHandle(Arc<WatchConnection>);

impl WatchHandle {
    /// Ends the watch: its blocked `next` returns [`Error::Stopped`].
    pub fn close(&self) {
        self.0.close();
    }
}

const RUNNING: u8 = 0;
const CLOSED: u8 = 1;
const ENDED: u8 = 2;

/// The connection of one watch, and whether our side ended it.
#[derive(Debug)]
pub(super) struct WatchConnection {
    http: Http,
    state: AtomicU8,
}

impl WatchConnection {
    pub(super) fn new(http: Http) -> Arc<Self> {
        Arc::new(Self { http, state: AtomicU8::new(RUNNING) })
    }

    pub(super) const fn http(&self) -> &Http {
        &self.http
    }

    /// The owner closed the watch.
    pub(super) fn close(&self) {
        self.shut(CLOSED);
    }

    /// The watch should restart over another connection.
    pub(super) fn end(&self) {
        self.shut(ENDED);
    }

    fn shut(&self, state: u8) {
        // The first reason is kept.
        let _ = self.state.compare_exchange(RUNNING, state, Ordering::SeqCst, Ordering::SeqCst);
        self.http.shutdown();
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::SeqCst)
    }
}

#[derive(Deserialize)]
struct RawEvent {
    #[serde(rename = "type")]
    kind: String,
    object: StreamedObject,
}

enum WatchProblem {
    /// An `ERROR` event.
    Failure(Box<StatusFailure>),
    Text(String),
}

impl WatchProblem {
    fn into_error(self, request: &str) -> Error {
        match self {
            Self::Failure(mut failure) => {
                request.clone_into(&mut failure.request);
                Error::Api(failure)
            }
            Self::Text(problem) => Error::Response { request: request.to_owned(), problem },
        }
    }
}

fn decode(bytes: &[u8], held: Option<HeldPermit>) -> Result<WatchEvent<StreamedObject>, WatchProblem> {
    let RawEvent { kind, object } = serde_json::from_slice(bytes)
        .map_err(|_| WatchProblem::Text(format!("not an event: {}", status::excerpt(bytes))))?;
    sort(&kind, object.with_permit(held))
}

/// An event whose text is too long. If its start does not say which object it is about, only a new list
/// can tell what exists.
fn decode_head(head: &[u8], held: Option<HeldPermit>) -> Result<WatchEvent<StreamedObject>, WatchProblem> {
    let known = serde_json::from_slice::<RawEvent>(head).ok();
    match known.filter(|event| event.object.has_name()) {
        Some(RawEvent { kind, object }) => sort(&kind, object.cut_short().with_permit(held)),
        None => Err(WatchProblem::Failure(Box::new(StatusFailure {
            code: 410,
            reason: "Expired".to_owned(),
            message: "an event is too long, and does not begin with the name of its object".to_owned(),
            ..StatusFailure::default()
        }))),
    }
}

fn sort(kind: &str, object: StreamedObject) -> Result<WatchEvent<StreamedObject>, WatchProblem> {
    if kind == "ERROR" {
        return Err(WatchProblem::Failure(Box::new(status::event_failure(
            object.whole().unwrap_or_default(),
        ))));
    }
    if kind == "BOOKMARK" {
        return Ok(WatchEvent::Bookmark(object.version().to_owned()));
    }
    let event = match kind {
        "ADDED" => Ok(WatchEvent::Added(object)),
        "MODIFIED" => Ok(WatchEvent::Modified(object)),
        // Its shape does not matter, because the object is gone.
        "DELETED" => object.only_head().decode::<Metadata>().map(|last| WatchEvent::Deleted(last.metadata)),
        _ => Err(object.refused(&format!("event of unknown type {kind:?}"))),
    };
    Ok(event.unwrap_or_else(WatchEvent::Undecodable))
}

enum Broken {
    Net(net::Error),
    Text(String),
    /// There is no memory for a long line now.
    Busy,
}

/// A larger buffer is freed after a long line.
const KEPT_BUFFER_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 4 << 10;

enum WatchLine<'a> {
    Whole(&'a [u8]),
    /// It was skipped. What is known of it, as JSON with the same shape.
    TooLong(Option<Vec<u8>>),
}

/// Cuts a body into lines.
struct Lines {
    body: Body,
    claims: Claims,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were returned already.
    used: usize,
    /// Bytes of the buffer that contain no line break.
    searched: usize,
    /// The line is too long: its end is searched, and the buffer has only the last part of it.
    skipped: Option<Option<Vec<u8>>>,
    /// The permit for a long line.
    held: Option<HeldPermit>,
}

impl Lines {
    const fn new(body: Body, claims: Claims) -> Self {
        Self { body, claims, buffer: Vec::new(), used: 0, searched: 0, skipped: None, held: None }
    }

    /// The next line that is not blank, or `None` at the end.
    fn next(&mut self) -> Result<Option<WatchLine<'_>>, Broken> {
        self.held = None;
        loop {
            self.discard_used();
            while let Some(end) = self.find_break() {
                self.used = end + 1;
                self.searched = self.used;
                if let Some(head) = self.skipped.take() {
                    return Ok(Some(WatchLine::TooLong(head)));
                }
                if !self.buffer[..end].trim_ascii().is_empty() {
                    return Ok(Some(WatchLine::Whole(&self.buffer[..end])));
                }
                self.discard_used();
            }
            self.limit()?;
            if !self.fill()? {
                return self.check_rest().map(|()| None);
            }
        }
    }

    /// Without a line break in the buffer: takes a permit for a long line, and forgets one that is too long.
    fn limit(&mut self) -> Result<(), Broken> {
        if self.skipped.is_some() {
            (self.used, self.searched) = (self.buffer.len(), self.buffer.len());
            self.discard_used();
        } else if self.buffer.len() > self.claims.bounds.object_bytes_max {
            self.skipped = Some(whole_part(&std::mem::take(&mut self.buffer)));
            self.searched = 0;
        } else if self.buffer.len() > limits::SHORT_TEXT_BYTES_MAX && self.held.is_none() {
            self.held = Some(self.claims.text().map_err(|Busy| Broken::Busy)?);
        }
        Ok(())
    }

    fn find_break(&mut self) -> Option<usize> {
        let found =
            self.buffer[self.searched..].iter().position(|b| *b == b'\n').map(|at| self.searched + at);
        if found.is_none() {
            self.searched = self.buffer.len();
        }
        found
    }

    fn discard_used(&mut self) {
        if self.used == 0 {
            return;
        }
        self.buffer.drain(..self.used);
        (self.used, self.searched) = (0, 0);
        if self.buffer.capacity() > KEPT_BUFFER_BYTES && self.buffer.len() <= KEPT_BUFFER_BYTES {
            self.buffer.shrink_to(READ_BYTES);
        }
    }

    fn fill(&mut self) -> Result<bool, Broken> {
        let len = self.buffer.len();
        self.buffer.resize(len + READ_BYTES, 0);
        // Most watches are silent for a long time.
        thread::release_unused_stack();
        let amount = self.body.read(&mut self.buffer[len..]);
        self.buffer.truncate(len + amount.as_ref().copied().unwrap_or(0));
        match amount {
            Ok(amount) => Ok(amount > 0),
            Err(error) => Err(Broken::Net(net::Error::from_io("read an event", error))),
        }
    }

    /// Text without a trailing line break is half an event, or not an event.
    fn check_rest(&self) -> Result<(), Broken> {
        let rest = self.buffer.trim_ascii();
        if rest.is_empty() && self.skipped.is_none() {
            return Ok(());
        }
        Err(Broken::Text(if rest.starts_with(b"{") || self.skipped.is_some() {
            "the stream ended inside an event".to_owned()
        } else {
            format!("not an event: {}", status::excerpt(rest))
        }))
    }
}
