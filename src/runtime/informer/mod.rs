//! An informer keeps what somebody reads of a kind equal to a list of the API server: a [`Store`](super::store::Store) of objects,
//! or [`Marks`](super::marks::Marks).
//!
//! A state machine: *empty* (list, page by page) -> *watching* (resume after each end at the last resourceVersion that an
//! event or a bookmark named) -> *empty* again only when the server has forgotten that version, or has never known it: its
//! storage was restored. One thread and one connection each; there are few. An object that cannot be decoded is left out and
//! named in the log; it does not break the list.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::meta::{Key, ObjectMeta, Resource};
use crate::base::backoff::Backoff;
use crate::base::clock::{Clock, Mono};
use crate::base::error::chain;
use crate::base::random;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::kube::error::Failure;
use crate::kube::request::{ListParams, Undecodable, WatchParams};
use crate::kube::value::Streamed;
use crate::kube::watch::{WatchEvent, WatchHandle};
use crate::kube::{Client, Error, Verdict};
use crate::limits;

use super::marks::{Listed, Mark};
use super::store::StoreView;

/// A view of a kind: the fields that somebody reads.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    /// Its metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// What is kept of an object that has too many values to be read. `head` has those that come first. `None`: the object
    /// is left out.
    fn of_head(_head: &Value) -> Option<Self> {
        None
    }
}

/// What to keep.
#[derive(Clone, Debug)]
pub struct Options {
    /// For logs: `garden/seeds`.
    pub name: &'static str,
    /// The kind.
    pub resource: Resource,
    /// Empty for all.
    pub namespace: String,
    /// Empty for all.
    pub label_selector: String,
    /// Empty for all.
    pub field_selector: String,
    /// Metadata is enough.
    pub metadata_only: bool,
    /// The server need not have the kind, or need not let us see it: then there are no objects.
    pub optional: bool,
}

impl Options {
    /// Everything of a kind.
    pub const fn all(name: &'static str, resource: Resource) -> Self {
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

/// Keeps of the objects of a kind what somebody reads, and tells of changes, in the informer's thread: listeners put keys into
/// queues and do nothing else. One informer writes.
pub trait Keep: Send + Sync {
    /// What is known, as it looks from outside.
    fn view(&self) -> StoreView;

    /// The server said something.
    fn heard(&self, at: Mono);

    /// Whether the object is known.
    fn has(&self, key: &Key) -> bool;

    /// Whether this is the version that is known.
    fn has_version(&self, key: &Key, version: &str) -> bool;

    /// The object is there, in a version that is not known.
    ///
    /// # Errors
    /// If it cannot be decoded. What was known of it stays.
    fn put(&self, key: Key, object: Streamed) -> Result<(), Undecodable>;

    /// The same, for one that cannot be decoded, if something can be known of it.
    fn put_head(&self, key: Key, head: &Value);

    /// The object is gone.
    fn remove(&self, key: &Key);

    /// A complete list ended: whatever it did not contain is gone.
    fn retain(&self, listed: &Listed);

    /// Nobody follows the kind any more: nothing is known.
    fn clear(&self);
}

/// Starts an informer that ends with `stop` and leaves nothing in what it fills.
///
/// # Errors
/// The system's, if it has no room for a thread.
pub fn start(
    client: &Client,
    clock: Clock,
    stop: &Stop,
    options: Options,
    kept: Arc<dyn Keep>,
) -> io::Result<JoinHandle<()>> {
    let name = format!("watch {}", options.name);
    let stop = stop.clone();
    let running: Running = Arc::default();
    let hook = Arc::clone(&running);
    stop.on_stop(move || {
        if let Some(watch) = hook.lock().unwrap_or_else(PoisonError::into_inner).take() {
            watch.close();
        }
    });
    let mut feed = KindFeed::new(client.ungated(), options, kept, running, stop.clone());
    thread::spawn(&name, limits::WATCH_STACK_BYTES, move || {
        run(&mut feed, &clock, &stop);
        // What it said is not looked after any more: the next term must not take it for true.
        feed.kept.clear();
    })
}

/// The watch that is being read, so that a stop can end it.
type Running = Arc<Mutex<Option<WatchHandle>>>;

/// What the loop asks a server; tests play it.
trait Feed {
    fn name(&self) -> &'static str;
    /// Brings the store to the state of a list; returns its resourceVersion.
    fn list(&mut self) -> Result<String, Error>;
    /// Whether the server need not have the kind.
    fn is_optional(&self) -> bool {
        false
    }
    /// Follows events from `version` on and moves it; returns when the server ends the watch.
    fn follow(&mut self, version: &mut String) -> Result<(), Error>;
}

/// The first delay after a failure, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How often a server may answer a list with 404 before that is a failure: for about eight seconds, in which it begins to serve
/// a kind whose definition is new.
const UNSERVED_MAX: u32 = 4;
/// How often to look for a kind that a server need not have.
const ABSENT_PERIOD: Duration = Duration::from_secs(300);
/// A watch that ends sooner and tells nothing is no watch: a proxy, or a server that is ending.
const SHORT: Duration = Duration::from_secs(1);
/// The longest wait after a watch that broke off.
const RESUME_SPREAD: Duration = Duration::from_secs(2);
/// After a watch of this length, failures of before count no more.
const LONG: Duration = Duration::from_secs(30);

fn run(feed: &mut dyn Feed, clock: &Clock, stop: &Stop) {
    let name = feed.name();
    run_telling(feed, clock, stop, &mut |error| {
        let err = chain(error);
        log::warn!(watch = name, err = err.as_str(); "The watch failed; trying again");
    });
}

/// `tell` is called for the first of failures in a row.
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
                log::info!(watch = feed.name(); "The watch goes on");
            }
            if before == version && lasted < SHORT {
                stop.wait(clock, backoff.next_delay());
            }
            continue;
        };
        // The client may be stopped a moment before this thread is.
        if stop.is_stopped() || matches!(error, Error::Stopped) {
            return;
        }
        let pause = backoff.next_delay();
        // Our own doing: the client has another token.
        if error.is_closed_by_us() {
            log::debug!(watch = feed.name(); "The connection of the watch was replaced; resuming");
            stop.wait(clock, pause);
            continue;
        }
        let delay = match error.verdict() {
            Verdict::Gone => {
                log::info!(watch = feed.name(); "The resourceVersion is too old; listing again");
                version = None;
                // At once; but a server that forgets each version must not be asked without a pause.
                stop.wait(clock, if backoff.failures() > 1 { pause } else { Duration::ZERO });
                continue;
            }
            // Of the server it says nothing; whatever is wrong with it shows when the watch begins again. When a server
            // ends, all agents come to the next one: not in the same moment.
            Verdict::Unreachable if was_running && !failing => {
                let err = chain(&error);
                log::info!(watch = feed.name(), err = err.as_str(); "The watch broke off; resuming");
                stop.wait(clock, pause.max(RESUME_SPREAD.mul_f64(random::unit())));
                continue;
            }
            Verdict::Throttled(Some(after)) => after.clamp(pause, limits::RETRY_AFTER_MAX),
            _ => pause,
        };
        if is_absent(feed.is_optional() && version.is_none(), &error) {
            stop.wait(clock, if backoff.failures() > UNSERVED_MAX { ABSENT_PERIOD } else { delay });
            continue;
        }
        let is_unserved = version.is_none() && matches!(error.verdict(), Verdict::NotFound);
        let may_be_new = is_unserved && backoff.failures() <= UNSERVED_MAX;
        if !may_be_new && !std::mem::replace(&mut failing, true) {
            tell(&error);
        }
        stop.wait(clock, delay);
    }
}

/// Whether the answer to a list means that a kind which need not be there is not there.
fn is_absent(is_optional: bool, error: &Error) -> bool {
    is_optional && matches!(error.verdict(), Verdict::NotFound | Verdict::Denied)
}

struct KindFeed {
    client: Client,
    options: Options,
    kept: Arc<dyn Keep>,
    running: Running,
    stop: Stop,
    /// The last watch broke off, or could not begin: the server may not be the one that it was.
    doubtful: bool,
    /// The server's past is not ours: the same version may mean another object.
    other_past: bool,
    /// Of the client, when the list was read.
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
        let (mut listed, mut undecodable) = (Listed::new(), Vec::new());
        let found = self.client.list_streamed(&o.resource, &o.namespace, &params, &mut |item| match item {
            Some(object) => {
                // One that cannot be decoded is not gone, either.
                listed.insert(Mark::of(&object.key()));
                undecodable.extend(self.put(object).err());
            }
            None => {
                listed.clear();
                undecodable.clear();
            }
        });
        if found.as_ref().is_err_and(|error| is_absent(o.optional, error)) {
            self.kept.heard(self.client.clock().mono());
            self.kept.retain(&Listed::new());
        }
        let version = found?;
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
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch.handle());
        if self.stop.is_stopped() {
            return Err(Error::Stopped);
        }
        // Somebody may have found out while this watch began: too late to be refused, too early to be ended.
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
    fn new(client: Client, options: Options, kept: Arc<dyn Keep>, running: Running, stop: Stop) -> Self {
        let past = client.past();
        Self { client, options, kept, running, stop, doubtful: false, other_past: false, past }
    }

    /// Whether somebody has found out since the list that the server's storage went back.
    fn is_restored(&self) -> bool {
        self.past != self.client.past()
    }

    /// What was listed does not count: as if the version were too old.
    fn forget(&mut self, version: &str) -> Error {
        log::warn!(watch = self.options.name, version;
            "This resourceVersion is of another past: the server was restored to an older state");
        self.other_past = true;
        Error::Api(Box::new(Failure { code: 410, ..Failure::default() }))
    }

    /// Which objects are listed.
    fn selection(&self) -> ListParams {
        let o = &self.options;
        ListParams {
            label_selector: o.label_selector.clone(),
            field_selector: o.field_selector.clone(),
            metadata_only: o.metadata_only,
            ..ListParams::default()
        }
    }

    /// Whether the server has not come as far as `version`. A watch from there would tell nothing until it has, and never
    /// of what happens meanwhile. Versions that are no numbers cannot be compared.
    fn is_before(&self, version: &str) -> Result<bool, Error> {
        let (o, one) = (&self.options, ListParams { limit: 1, metadata_only: true, ..self.selection() });
        let now = self.client.list::<Value>(&o.resource, &o.namespace, &one)?.metadata.resource_version;
        Ok(matches!((now.parse::<u64>(), version.parse::<u64>()), (Ok(now), Ok(known)) if now < known))
    }

    /// Keeps one object, unless it is the version that is known. Of one that cannot be decoded only what its kind wants.
    fn put(&self, object: Streamed) -> Result<(), Undecodable> {
        let key = object.key();
        if !self.other_past && self.kept.has_version(&key, object.version()) {
            return Ok(());
        }
        if self.kept.view().objects >= limits::STORE_OBJECTS_MAX && !self.kept.has(&key) {
            log::error!(watch = self.options.name; "The store is full; objects are left out");
            return Ok(());
        }
        self.kept.put(key, object).map_err(|mut object| {
            // Its complaint may wait for the end of a list, which may have many of them; megabytes must not.
            self.kept.put_head(object.key.clone(), &std::mem::take(&mut object.head));
            object
        })
    }

    fn complain(&self, object: &Undecodable) {
        let (key, err) = (object.key.to_string(), object.why.to_string());
        log::warn!(watch = self.options.name, key = key.as_str(), err = err.as_str(); "An object cannot be decoded");
    }
}

/// What an event says about the version; one that says nothing leaves it, since a watch without a version begins with now
/// and misses what was deleted before.
fn advance(version: &mut String, seen: &str) {
    if !seen.is_empty() {
        seen.clone_into(version);
    }
}

#[cfg(test)]
mod tests;
