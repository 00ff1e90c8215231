//! An informer keeps a cache of a kind in sync with the API server's list: a [`Store`](super::store::Store) of objects,
//! or [`Marks`](super::marks::Marks).
//!
//! A state machine: *empty* (list, page by page) -> *watching* (resume after each end at the last resourceVersion of an
//! event or a bookmark) -> *empty* again only when the server has dropped that version, or does not know it because its
//! storage was restored. Each informer has its own thread and connection; there are few. An object that cannot be
//! decoded, or is too long, is omitted and logged; its old state stays. It does not break the list, unless its text is so long
//! that not even its name is known.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::meta::{Key, ObjectMeta, Resource};
use crate::base::backoff::Backoff;
use crate::base::clock::{Clock, Mono};
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::format::human;
use crate::kube::error::StatusFailure;
use crate::kube::request::{ListParams, UndecodableObject, WatchParams};
use crate::kube::value::StreamedObject;
use crate::kube::watch::{WatchEvent, WatchHandle};
use crate::kube::{Client, Error, ErrorVerdict};
use crate::limits;

use super::marks::{ListedMarks, Mark};
use super::store::StoreView;

/// A partial view of a kind: the fields that are used.
pub(crate) trait PartialObject: DeserializeOwned + Send + Sync + 'static {
    fn metadata(&self) -> &ObjectMeta;

    /// The part to keep of an object with too many values to decode. `head` has its first values. `None`:
    /// the object is omitted.
    fn of_head(_head: &Value) -> Option<Self> {
        None
    }
}

/// The selection of objects.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// For logs: `garden/seeds`.
    pub(crate) name: &'static str,
    pub(crate) resource: Resource,
    /// An empty text selects all.
    pub(crate) namespace: String,
    /// An empty text selects all.
    pub(crate) label_selector: String,
    /// An empty text selects all.
    pub(crate) field_selector: String,
    /// Only metadata is needed.
    pub(crate) metadata_only: bool,
    /// The server may lack the kind or deny access to it: then there are no objects.
    pub(crate) optional: bool,
}

impl Options {
    /// Everything of a kind.
    pub(crate) const fn all(name: &'static str, resource: Resource) -> Self {
        Self {
            name,
            resource,
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            metadata_only: false,
            optional: false,
        }
    }
}

/// A cache of a kind, reduced to the fields that are used. It calls its listeners in the informer's thread: they put
/// keys into queues and do nothing else. Only one informer writes.
pub(crate) trait InformerCache: Send + Sync {
    /// The state of the cache, for observers.
    fn view(&self) -> StoreView;

    /// The server has sent something.
    fn heard(&self, at: Mono);

    /// Whether the object is known.
    fn has(&self, key: &Key) -> bool;

    /// Whether the cache has this version.
    fn has_version(&self, key: &Key, version: &str) -> bool;

    /// The object exists, in a version that is not in the cache. Errors: it cannot be decoded. The cache
    /// keeps what it had.
    fn put(&self, key: Key, object: StreamedObject) -> Result<(), UndecodableObject>;

    /// The same for an object that cannot be decoded, if a part of it can be kept.
    fn put_head(&self, key: Key, head: &Value);

    /// The object is gone.
    fn remove(&self, key: &Key);

    /// A complete list has ended: objects that it did not contain are gone.
    fn retain(&self, listed: &ListedMarks);

    /// The kind is not watched any more: the cache is emptied.
    fn clear(&self);
}

/// Starts an informer that ends with `stop` and empties its cache then. Errors: the system
/// cannot start a thread.
pub(crate) fn start(
    client: &Client,
    clock: Clock,
    stop: &Stop,
    options: Options,
    kept: Arc<dyn InformerCache>,
) -> io::Result<JoinHandle<()>> {
    let name = format!("watch {}", options.name);
    let stop = stop.clone();
    let running: RunningWatch = Arc::default();
    let hook = Arc::clone(&running);
    stop.on_stop(move || {
        if let Some(watch) = hook.lock().ignore_poison().take() {
            watch.close();
        }
    });
    let mut feed = KindFeed::new(client.ungated(), options, kept, running, stop.clone());
    thread::spawn(&name, limits::WATCH_STACK_BYTES, move || {
        run(&mut feed, &clock, &stop);
        // The cache is not updated any more: the next term must not consider it current.
        feed.kept.clear();
    })
}

/// The current watch, so that a stop can end it.
type RunningWatch = Arc<Mutex<Option<WatchHandle>>>;

/// The requests of the loop; tests replace it.
trait Feed {
    fn name(&self) -> &'static str;
    /// Brings the cache to the state of a list; returns its resourceVersion.
    fn list(&mut self) -> Result<String, Error>;
    /// Whether the server may lack the kind.
    fn is_optional(&self) -> bool {
        false
    }
    /// Follows events from `version` on and updates it; returns when the server ends the watch.
    fn follow(&mut self, version: &mut String) -> Result<(), Error>;
}

/// The first and the longest delay after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How often a server may answer a list with 404 before that is a failure: for about eight seconds, because it needs
/// time to serve a kind with a new definition.
const UNSERVED_MAX: u32 = 4;
/// How often to check for an optional kind.
const ABSENT_PERIOD: Duration = Duration::from_secs(300);
/// A watch that ends sooner without an event does not count: it comes from a proxy, or from a server
/// that is shutting down.
const SHORT: Duration = Duration::from_secs(1);
/// The longest delay after a broken watch.
const RESUME_SPREAD: Duration = Duration::from_secs(2);
/// After a watch of this length, earlier failures do not count any more.
const LONG: Duration = Duration::from_secs(30);

fn run(feed: &mut dyn Feed, clock: &Clock, stop: &Stop) {
    let name = feed.name();
    run_telling(feed, clock, stop, &mut |error| {
        let err = chain(error);
        log::warn!(watch = name, err = err.as_str(); "The watch failed; trying again");
    });
}

/// `tell` is called for the first of consecutive failures.
fn run_telling(feed: &mut dyn Feed, clock: &Clock, stop: &Stop, tell: &mut dyn FnMut(&Error)) {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    let mut version: Option<String> = None;
    let mut failing = false;
    while !stop.is_stopped() {
        let (begun, before) = (clock.mono(), version.clone());
        let result = match &mut version {
            None => feed.list().map(|listed| version = Some(listed)),
            Some(version) => feed.follow(version),
        };
        let lasted = clock.mono().saturating_sub(begun);
        if before.is_some() && (lasted >= LONG || before != version) {
            backoff.reset();
        }
        let was_running = before.is_some() && (lasted >= SHORT || before != version);
        let Err(error) = result else {
            if std::mem::take(&mut failing) {
                log::info!(watch = feed.name(); "The watch continues");
            }
            if before == version && lasted < SHORT {
                stop.wait(clock, backoff.next_delay());
            }
            continue;
        };
        // The client may be stopped slightly before this thread.
        if stop.is_stopped() || matches!(error, Error::Stopped) {
            return;
        }
        let pause = backoff.next_delay();
        // Caused by us: the client has another token.
        if error.is_closed_by_us() {
            log::debug!(watch = feed.name(); "The connection of the watch was replaced; resuming");
            stop.wait(clock, pause);
            continue;
        }
        let delay = match error.verdict() {
            ErrorVerdict::Gone => {
                log::info!(watch = feed.name(); "The resourceVersion is too old; listing again");
                version = None;
                // At once, but a server that drops each version must not be asked without a pause.
                stop.wait(clock, if backoff.failures() > 1 { pause } else { Duration::ZERO });
                continue;
            }
            // A broken watch proves nothing about the server; a persistent problem shows when the watch resumes. When a
            // server shuts down, all agents reconnect to another one, so spread them.
            ErrorVerdict::Unreachable if was_running && !failing => {
                let err = chain(&error);
                log::info!(watch = feed.name(), err = err.as_str(); "The watch was interrupted; resuming");
                stop.wait(clock, pause.max(RESUME_SPREAD.mul_f64(random::unit())));
                continue;
            }
            ErrorVerdict::Throttled(Some(after)) => after.clamp(pause, limits::RETRY_AFTER_MAX),
            _ => pause,
        };
        if is_absent(feed.is_optional() && version.is_none(), &error) {
            stop.wait(clock, if backoff.failures() > UNSERVED_MAX { ABSENT_PERIOD } else { delay });
            continue;
        }
        let is_unserved = version.is_none() && matches!(error.verdict(), ErrorVerdict::NotFound);
        let may_be_new = is_unserved && backoff.failures() <= UNSERVED_MAX;
        if !may_be_new && !std::mem::replace(&mut failing, true) {
            tell(&error);
        }
        stop.wait(clock, delay);
    }
}

/// Whether the answer to a list means that an optional kind does not exist.
fn is_absent(is_optional: bool, error: &Error) -> bool {
    is_optional && matches!(error.verdict(), ErrorVerdict::NotFound | ErrorVerdict::Denied)
}

struct KindFeed {
    client: Client,
    options: Options,
    kept: Arc<dyn InformerCache>,
    running: RunningWatch,
    stop: Stop,
    /// The last watch was interrupted or could not start: the server may have been replaced.
    doubtful: bool,
    /// The server's history differs from ours: the same version may mean another object.
    other_past: bool,
    /// The client's history counter when the list was read.
    past: usize,
}

impl Feed for KindFeed {
    fn name(&self) -> &'static str {
        self.options.name
    }

    fn is_optional(&self) -> bool {
        self.options.optional
    }

    fn list(&mut self) -> Result<String, Error> {
        let past = self.client.past();
        let (o, params) = (&self.options, self.selection());
        let (mut listed, mut undecodable, mut nameless) = (ListedMarks::new(), Vec::new(), 0);
        let found = self.client.list_streamed(&o.resource, &o.namespace, &params, &mut |item| match item {
            Some(object) if object.is_unknown() => nameless += 1,
            Some(object) => {
                // An object that cannot be decoded is not gone.
                listed.insert(Mark::of(&object.key()));
                undecodable.extend(self.put(object).err());
            }
            None => {
                listed.clear();
                undecodable.clear();
                nameless = 0;
            }
        });
        if found.as_ref().is_err_and(|error| is_absent(o.optional, error)) {
            self.kept.heard(self.client.clock().mono());
            self.kept.retain(&ListedMarks::new());
        }
        let version = found?;
        if nameless > 0 {
            // One of them may be any of the known ones.
            let objects = human::counted(nameless, "object");
            let why = format!("too long, and no name at the beginning: {objects}");
            let what = o.resource.collection_path(&o.namespace);
            return Err(Error::Decode { what, source: serde::de::Error::custom(why) });
        }
        (self.doubtful, self.other_past, self.past) = (false, false, past);
        undecodable.iter().for_each(|object| self.complain(object));
        self.kept.heard(self.client.clock().mono());
        self.kept.retain(&listed);
        Ok(version)
    }

    fn follow(&mut self, version: &mut String) -> Result<(), Error> {
        if self.is_restored() || (std::mem::replace(&mut self.doubtful, true) && self.is_before(version)?) {
            return Err(self.forget(version));
        }
        let o = &self.options;
        let params = WatchParams {
            label_selector: o.label_selector.clone(),
            field_selector: o.field_selector.clone(),
            resource_version: version.clone(),
            bookmarks: true,
            timeout_seconds: 0,
            metadata_only: o.metadata_only,
        };
        let mut watch = self.client.watch_streamed(&o.resource, &o.namespace, &params)?;
        *self.running.lock().ignore_poison() = Some(watch.handle());
        if self.stop.is_stopped() {
            return Err(Error::Stopped);
        }
        // A restored storage may have been detected while this watch started: too late to refuse the watch, too early
        // to end it.
        if self.is_restored() {
            return Err(self.forget(version));
        }
        while let Some(event) = watch.next() {
            let event = event?;
            self.kept.heard(self.client.clock().mono());
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    advance(version, object.version());
                    if let Err(object) = self.put(object) {
                        self.complain(&object);
                    }
                }
                WatchEvent::Deleted(last) => {
                    advance(version, &last.resource_version);
                    self.kept.remove(&last.key());
                }
                WatchEvent::Bookmark(seen) => advance(version, &seen),
                WatchEvent::Undecodable(object) => self.complain(&object),
            }
        }
        self.doubtful = false;
        Ok(())
    }
}

impl KindFeed {
    fn new(
        client: Client,
        options: Options,
        kept: Arc<dyn InformerCache>,
        running: RunningWatch,
        stop: Stop,
    ) -> Self {
        let past = client.past();
        Self { client, options, kept, running, stop, doubtful: false, other_past: false, past }
    }

    /// Whether a restored storage of the server was detected since the list.
    fn is_restored(&self) -> bool {
        self.past != self.client.past()
    }

    /// Drops the list's version, as if it were too old.
    fn forget(&mut self, version: &str) -> Error {
        log::warn!(watch = self.options.name, version;
            "The resourceVersion is from before a restore: the server was restored to an older state");
        self.other_past = true;
        Error::Api(Box::new(StatusFailure { code: 410, ..StatusFailure::default() }))
    }

    /// The selection of the list.
    fn selection(&self) -> ListParams {
        let o = &self.options;
        ListParams {
            label_selector: o.label_selector.clone(),
            field_selector: o.field_selector.clone(),
            metadata_only: o.metadata_only,
            ..ListParams::default()
        }
    }

    /// Whether the server has not reached `version`. A watch from there would send nothing until it has, and would miss
    /// all events until then. Non-numeric versions cannot be compared.
    fn is_before(&self, version: &str) -> Result<bool, Error> {
        let (o, one) = (&self.options, ListParams { limit: 1, metadata_only: true, ..self.selection() });
        let now = self.client.list::<Value>(&o.resource, &o.namespace, &one)?.metadata.resource_version;
        Ok(matches!((now.parse::<u64>(), version.parse::<u64>()), (Ok(now), Ok(known)) if now < known))
    }

    /// Stores an object unless its version is known. If it cannot be decoded, only the part that its kind keeps.
    fn put(&self, object: StreamedObject) -> Result<(), UndecodableObject> {
        let key = object.key();
        if !self.other_past && self.kept.has_version(&key, object.version()) {
            return Ok(());
        }
        if self.kept.view().objects >= limits::STORE_OBJECTS_MAX && !self.kept.has(&key) {
            log::error!(watch = self.options.name; "The cache is full; objects are omitted");
            return Ok(());
        }
        self.kept.put(key, object).map_err(|mut object| {
            // The error may wait for the end of a list with many such objects, so drop the megabytes of data now.
            self.kept.put_head(object.key.clone(), &std::mem::take(&mut object.head));
            object
        })
    }

    fn complain(&self, object: &UndecodableObject) {
        let (key, err) = (object.key.to_string(), object.why.to_string());
        log::warn!(watch = self.options.name, key = key.as_str(), err = err.as_str(); "Cannot decode an object");
    }
}

/// Takes the version from an event. An event without a version keeps the present one, because a watch without a version
/// starts now and misses earlier deletions.
fn advance(version: &mut String, seen: &str) {
    if !seen.is_empty() {
        seen.clone_into(version);
    }
}

#[cfg(test)]
mod tests;
