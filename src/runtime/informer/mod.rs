//! An informer keeps a [`Store`] equal to a list of the API server and tells what changed.
//!
//! A state machine: *empty* (list, page by page) -> *watching* (resume after each end at the last resourceVersion that an
//! event or a bookmark named) -> *empty* again only when the server has forgotten that version, or has never known it: its
//! storage was restored. One thread and one connection each; there are few. An object that cannot be decoded is left out and
//! named in the log; it does not break the list.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::meta::{Key, Metadata, ObjectMeta, Resource};
use crate::base::backoff::Backoff;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::random;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::kube::error::Failure;
use crate::kube::request::{ListItem, ListParams, WatchParams};
use crate::kube::watch::{WatchEvent, WatchHandle};
use crate::kube::{Client, Error, Verdict};
use crate::limits;

use super::store::{Change, Store};

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
        }
    }
}

/// Called for each change, in the informer's thread: it puts keys into queues and does nothing else.
pub type Handler<T> = Box<dyn Fn(&Change<T>) + Send>;

/// Starts an informer that ends with `stop` and leaves an empty store.
///
/// # Errors
/// The system's, if it has no room for a thread.
pub fn start<T: Object>(
    client: Client,
    clock: Clock,
    stop: &Stop,
    options: Options,
    store: Store<T>,
    handler: Handler<T>,
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
    thread::spawn(&name, limits::WATCH_STACK_BYTES, move || {
        let mut feed =
            KindFeed::new(client.ungated(), options, store.clone(), handler, running, stop.clone());
        run(&mut feed, &clock, &stop);
        // What it said is not looked after any more: the next term must not take it for true.
        store.clear();
    })
}

/// The watch that is being read, so that a stop can end it.
type Running = Arc<Mutex<Option<WatchHandle>>>;

/// What differs between kinds; the loop is compiled once.
trait Feed {
    fn name(&self) -> &'static str;
    /// Brings the store to the state of a list; returns its resourceVersion.
    fn list(&mut self) -> Result<String, Error>;
    /// Follows events from `version` on and moves it; returns when the server ends the watch.
    fn follow(&mut self, version: &mut String) -> Result<(), Error>;
}

/// The first delay after a failure, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
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
        if !std::mem::replace(&mut failing, true) {
            tell(&error);
        }
        stop.wait(clock, delay);
    }
}

struct KindFeed<T> {
    client: Client,
    options: Options,
    store: Store<T>,
    handler: Handler<T>,
    running: Running,
    stop: Stop,
    /// The last watch broke off, or could not begin: the server may not be the one that it was.
    doubtful: bool,
    /// The server's past is not ours: the same version may mean another object.
    other_past: bool,
    /// Of the client, when the list was read.
    past: usize,
}

impl<T: Object> Feed for KindFeed<T> {
    fn name(&self) -> &'static str {
        self.options.name
    }

    fn list(&mut self) -> Result<String, Error> {
        let past = self.client.past();
        let (o, params) = (&self.options, self.selection());
        let (mut listed, mut undecodable) = (BTreeSet::new(), Vec::new());
        let version =
            self.client.list_each::<T>(&o.resource, &o.namespace, &params, &mut |item| match item {
                ListItem::Object(object) => {
                    listed.insert(self.put(object));
                }
                ListItem::Undecodable(object) => {
                    // It is not gone: what was known of it stays.
                    listed.insert(object.key.clone());
                    self.put_head(&object.head);
                    undecodable.push((object.key, object.why.to_string()));
                }
                ListItem::Restart => {
                    listed.clear();
                    undecodable.clear();
                }
            })?;
        (self.doubtful, self.other_past, self.past) = (false, false, past);
        undecodable.iter().for_each(|(key, why)| self.complain(key, why));
        self.store.heard(self.client.clock().mono());
        for change in self.store.keep(&listed) {
            (self.handler)(&change);
        }
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
        let mut watch = self.client.watch::<T>(&o.resource, &o.namespace, &params)?;
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
            self.store.heard(self.client.clock().mono());
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    advance(version, &object.metadata().resource_version);
                    self.put(object);
                }
                WatchEvent::Deleted(last) => {
                    advance(version, &last.resource_version);
                    (self.handler)(&self.store.remove(&key(&last)));
                }
                WatchEvent::Bookmark(seen) => advance(version, &seen),
                WatchEvent::Undecodable(object) => {
                    self.complain(&object.key, &object.why.to_string());
                    self.put_head(&object.head);
                }
            }
        }
        self.doubtful = false;
        Ok(())
    }
}

impl<T: Object> KindFeed<T> {
    fn new(
        client: Client,
        options: Options,
        store: Store<T>,
        handler: Handler<T>,
        running: Running,
        stop: Stop,
    ) -> Self {
        let past = client.past();
        Self { client, options, store, handler, running, stop, doubtful: false, other_past: false, past }
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
        let now = self.client.list::<Metadata>(&o.resource, &o.namespace, &one)?.metadata.resource_version;
        Ok(matches!((now.parse::<u64>(), version.parse::<u64>()), (Ok(now), Ok(known)) if now < known))
    }

    /// Stores one object and tells of it, unless it is the version that is known.
    fn put(&self, object: T) -> Key {
        let key = key(object.metadata());
        let known = self.store.get(&key);
        let version = &object.metadata().resource_version;
        if !self.other_past && known.is_some_and(|known| known.metadata().resource_version == *version) {
            return key;
        }
        if self.store.len() >= limits::STORE_OBJECTS_MAX && self.store.get(&key).is_none() {
            log::error!(watch = self.options.name; "The store is full; objects are left out");
            return key;
        }
        (self.handler)(&self.store.put(key.clone(), object));
        key
    }

    /// Stores what can be known of an object that cannot be decoded, if its kind wants that.
    fn put_head(&self, head: &Value) {
        if let Some(object) = T::of_head(head) {
            self.put(object);
        }
    }

    fn complain(&self, key: &Key, why: &str) {
        let key = key.to_string();
        log::warn!(watch = self.options.name, key = key.as_str(), err = why; "An object cannot be decoded");
    }
}

/// What an event says about the version; one that says nothing leaves it, since a watch without a version begins with now
/// and misses what was deleted before.
fn advance(version: &mut String, seen: &str) {
    if !seen.is_empty() {
        seen.clone_into(version);
    }
}

fn key(metadata: &ObjectMeta) -> Key {
    Key::new(metadata.namespace.clone(), metadata.name.clone())
}

#[cfg(test)]
mod tests;
