//! Controllers that start and end together: those of the garden side while a Seed is served, those of the applier while
//! it holds its lease.
//!
//! A controller is added by one function of its folder, which declares its queue, its triggers, and its reconciler.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::api::meta::Key;
use crate::base::error::chain;
use crate::kube::Client;

use super::controller::{ReconcileContext, Reconciler};
use super::informer::{self, InformerCache, Options};
use super::marks::{ChangedObject, Marks};
use super::pool::{Lane, Lanes};
use super::queue::Retry;
use super::source::{Listening, Notice, WatchSource};
use super::store::{Change, StoreView};

/// The present state of a store.
pub(crate) type Look = Box<dyn Fn() -> StoreView + Send>;
/// Makes the state of an informer available to the probes.
pub(crate) type Announce = Arc<dyn Fn(&'static str, Look) + Send + Sync>;

pub(crate) struct ControllerGroup {
    lanes: Lanes,
    /// The context of each reconciliation; its stop ends the informers.
    context: ReconcileContext,
    announce: Announce,
    running: Vec<Lane>,
    listening: Vec<Listening>,
    informers: Vec<JoinHandle<()>>,
}

impl fmt::Debug for ControllerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerGroup").field("running", &self.running).finish_non_exhaustive()
    }
}

impl ControllerGroup {
    /// A group without controllers. `context.stop` ends its informers.
    pub(crate) fn new(lanes: Lanes, context: ReconcileContext, announce: Announce) -> Self {
        Self { lanes, context, announce, running: Vec::new(), listening: Vec::new(), informers: Vec::new() }
    }

    /// The queue of a controller, with the number of keys that it may process at once (`concurrentSyncs`).
    pub(crate) fn lane(&self, name: &'static str, permits: u32, retry: Retry) -> Lane {
        self.lanes.lane(name, usize::try_from(permits).unwrap_or(usize::MAX), retry)
    }

    /// Keeps `source` in sync with the server.
    pub(crate) fn watch(
        &mut self,
        client: &Client,
        options: Options,
        source: &(impl InformerCache + Clone + 'static),
    ) {
        self.follow(client, options, Arc::new(source.clone()));
    }

    fn follow(&mut self, client: &Client, options: Options, kept: Arc<dyn InformerCache>) {
        let (stop, name) = (&self.context.stop, options.name);
        let (known, ending) = (Arc::clone(&kept), stop.clone());
        // An informer that is being stopped has no state to report.
        let look = move || {
            let view = known.view();
            StoreView { synced: view.synced || ending.is_stopped(), ..view }
        };
        (self.announce)(name, Box::new(look));
        match informer::start(client, self.context.clock.clone(), stop, options, kept) {
            Ok(handle) => self.informers.push(handle),
            Err(e) => {
                let err = chain(&e);
                log::error!(watch = name, err = err.as_str(); "Cannot start a watch; all controllers restart");
                stop.stop();
            }
        }
    }

    /// Wakes the queue with the keys that `keys` returns for existing objects and for each change.
    pub(crate) fn wake<T, K>(
        &mut self,
        lane: &Lane,
        source: &WatchSource<T>,
        keys: impl Fn(&Change<T>) -> K + Send + Sync + 'static,
    ) where
        T: Send + Sync + 'static,
        K: IntoIterator<Item = Key>,
    {
        let lane = lane.clone();
        self.listen(source, move |change| keys(change).into_iter().for_each(|key| lane.add(key)));
    }

    /// Wakes the queue with the keys that `keys` returns for each object in the watch.
    pub(crate) fn wake_seen(
        &mut self,
        lane: &Lane,
        marks: &Marks,
        keys: impl Fn(&ChangedObject) -> Vec<Key> + Send + Sync + 'static,
    ) {
        let lane = lane.clone();
        self.listening.push(marks.listen(move |seen| keys(seen).into_iter().for_each(|key| lane.add(key))));
    }

    /// Keeps a subscription of the caller while the controllers run.
    pub(crate) fn keep(&mut self, listening: Listening) {
        self.listening.push(listening);
    }

    /// Calls back with existing objects, as new, and with each change, while the controllers run.
    pub(crate) fn listen<T: Send + Sync + 'static>(
        &mut self,
        source: &WatchSource<T>,
        listener: impl Fn(&Change<T>) + Send + Sync + 'static,
    ) {
        self.listening.push(source.listen(listener));
    }

    /// Wakes the queue with these keys on each notice.
    pub(crate) fn wake_on<K: IntoIterator<Item = Key>>(
        &mut self,
        lane: &Lane,
        notice: &Notice,
        keys: impl Fn() -> K + Send + Sync + 'static,
    ) {
        let lane = lane.clone();
        self.listening.push(notice.add(move |()| keys().into_iter().for_each(|key| lane.add(key))));
    }

    pub(crate) fn run(&mut self, lane: Lane, reconciler: impl Reconciler + 'static) {
        let context = ReconcileContext { stop: self.context.stop.child(), ..self.context.clone() };
        lane.start(Arc::new(reconciler), context);
        self.running.push(lane);
    }

    /// Ends the controllers; running reconciliations end on their own.
    pub(crate) fn end(&mut self) {
        self.listening.clear();
        self.running.iter().for_each(Lane::end);
    }

    /// Waits until nothing is processed, at most for `d`; false if something still is.
    pub(crate) fn wait_until_idle(&self, d: Duration) -> bool {
        let clock = &self.context.clock;
        let deadline = clock.mono().saturating_add(d);
        self.running.iter().all(|lane| lane.wait_until_idle(deadline.saturating_sub(clock.mono())))
    }

    /// Ends the controllers and waits for the informers, whose stop must have been pulled.
    pub(crate) fn join(mut self) {
        self.end();
        for informer in self.informers {
            if informer.join().is_err() {
                log::error!("An informer ended with a panic");
            }
        }
    }
}
