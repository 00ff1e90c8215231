//! The workers: a fixed number of threads for all controllers. Each controller has a lane: its queue and a number of
//! permits (`concurrentSyncs`), so that no controller can occupy the whole pool. The workers serve the lanes in turn.
//!
//! A panic fails one reconciliation: this module catches it, counts it, and retries with backoff.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::api::meta::Key;
use crate::base::clock::{Clock, Mono};
use crate::base::lock::IgnorePoison;
use crate::base::stop::Stop;
use crate::base::{metrics::Metrics, thread};
use crate::limits;

use super::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use super::queue::{Queue, Retry};

mod failed;
pub(crate) use failed::FailedKey;
use failed::{FailedKeys, FailureNote};

struct LaneState {
    name: &'static str,
    queue: Queue<Key>,
    permits: usize,
    /// The keys in progress, and when their work started.
    running: Vec<(Key, Mono)>,
    failed: FailedKeys,
    /// `None` while the controller does not run: keys wait.
    work: Option<Work>,
}

#[derive(Clone)]
struct Work {
    reconciler: Arc<dyn Reconciler>,
    context: ReconcileContext,
}

#[derive(Default)]
struct State {
    lanes: Vec<LaneState>,
    /// The next worker looks at this lane first.
    next: usize,
    /// Whether a worker already waits for the next timer; then the others wait for a notice only.
    timer_watched: bool,
}

struct SharedPool {
    clock: Clock,
    stop: Stop,
    metrics: Metrics,
    state: Mutex<State>,
    /// Wakes a worker: there is a key to reconcile.
    changed: Condvar,
    /// Wakes a thread that waits for the end of work. It is separate, so that such a thread cannot
    /// take a worker's notice.
    settled: Condvar,
}

impl SharedPool {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Reconcilers run outside of the lock, so a panic cannot leave the queues half changed.
        self.state.lock().ignore_poison()
    }
}

/// See the module. Dropping it does not end the workers; [`Stop`] does.
pub(crate) struct Pool {
    shared: Arc<SharedPool>,
    workers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("workers", &self.workers.len()).finish()
    }
}

/// The state of a lane, for metrics and the status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneView {
    pub(crate) name: &'static str,
    /// The number of waiting keys.
    pub(crate) depth: usize,
    /// The number of keys whose last reconciliation failed.
    pub(crate) failing: usize,
    /// The number of keys added since the start.
    pub(crate) adds: u64,
    /// The number of retries since the start.
    pub(crate) retries: u64,
    /// The number of keys in progress.
    pub(crate) active: usize,
    /// The most keys that may be in progress.
    pub(crate) permits: usize,
    /// How long the longest reconciliation in progress has taken.
    pub(crate) longest: Duration,
}

/// A view of the lanes of a pool. A clone is cheap and keeps nothing running.
#[derive(Clone)]
pub(crate) struct PoolView(Arc<SharedPool>);

impl std::fmt::Debug for PoolView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PoolView")
    }
}

impl PoolView {
    /// The lanes, in the order in which they were made.
    pub(crate) fn lanes(&self) -> Vec<LaneView> {
        let now = self.0.clock.mono();
        self.0.lock().lanes.iter().map(|lane| view(lane, now)).collect()
    }

    /// The keys whose last reconciliation failed. Their number is limited.
    pub(crate) fn failed(&self) -> Vec<FailedKey> {
        self.0.lock().lanes.iter().flat_map(|lane| lane.failed.all(lane.name)).collect()
    }
}

fn view(lane: &LaneState, now: Mono) -> LaneView {
    let (adds, retries) = lane.queue.totals();
    let longest = lane.running.iter().map(|(_, since)| now.saturating_sub(*since)).max();
    LaneView {
        name: lane.name,
        depth: lane.queue.depth(),
        failing: lane.queue.failing(),
        adds,
        retries,
        active: lane.running.len(),
        permits: lane.permits,
        longest: longest.unwrap_or_default(),
    }
}

impl Pool {
    /// Starts `workers` threads that end with `stop`. Errors: the error of the system, if it has no
    /// room for the threads.
    pub(crate) fn start(clock: Clock, stop: &Stop, metrics: Metrics, workers: usize) -> io::Result<Self> {
        let shared = Arc::new(SharedPool {
            clock,
            stop: stop.clone(),
            metrics,
            state: Mutex::default(),
            changed: Condvar::new(),
            settled: Condvar::new(),
        });
        let mut pool = Self { shared: Arc::clone(&shared), workers: Vec::new() };
        for n in 0..workers.max(1) {
            let shared = Arc::clone(&shared);
            let name = format!("worker-{n}");
            pool.workers.push(thread::spawn(&name, limits::WORKER_STACK_BYTES, move || work(&shared))?);
        }
        let weak = Arc::downgrade(&shared);
        stop.on_stop(move || {
            if let Some(shared) = weak.upgrade() {
                // Notify under the lock; otherwise a worker between its check and its wait would miss the notice.
                let _state = shared.lock();
                shared.changed.notify_all();
            }
        });
        Ok(pool)
    }

    /// Returns the part that adds lanes.
    pub(crate) fn lanes(&self) -> Lanes {
        Lanes(Arc::clone(&self.shared))
    }

    /// Returns a view of the pool.
    pub(crate) fn view(&self) -> PoolView {
        PoolView(Arc::clone(&self.shared))
    }

    /// Waits until every worker has ended. The [`Stop`] must have been pulled.
    pub(crate) fn join(&mut self) {
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                log::error!("A worker ended with a panic outside of a reconciliation");
            }
        }
    }
}

/// Adds lanes to a pool. A clone is cheap and keeps nothing running.
#[derive(Clone)]
pub(crate) struct Lanes(Arc<SharedPool>);

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lanes")
    }
}

impl Lanes {
    /// Returns the lane with this name: the existing one, or a new one with these settings. It accepts keys at once,
    /// and the workers serve it after [`Lane::start`].
    pub(crate) fn lane(&self, name: &'static str, permits: usize, retry: Retry) -> Lane {
        let mut state = self.0.lock();
        let index = state.lanes.iter().position(|lane| lane.name == name).unwrap_or_else(|| {
            state.lanes.push(LaneState {
                name,
                queue: Queue::new(retry),
                permits: permits.max(1),
                running: Vec::new(),
                failed: FailedKeys::default(),
                work: None,
            });
            state.lanes.len() - 1
        });
        Lane { shared: Arc::clone(&self.0), index }
    }
}

/// The queue of one controller. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Lane {
    shared: Arc<SharedPool>,
    index: usize,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lane").field(&self.index).finish()
    }
}

impl Lane {
    /// Asks for a reconciliation of `key`.
    pub(crate) fn add(&self, key: Key) {
        let mut state = self.shared.lock();
        let lane = &mut state.lanes[self.index];
        if !lane.queue.add(key) {
            log::error!(controller = lane.name; "The queue is full; the key waits for the next list");
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Requests a reconciliation after a while, or earlier if `key` is due earlier anyway.
    pub(crate) fn add_after(&self, key: Key, delay: Duration) {
        let at = self.shared.clock.mono().saturating_add(delay);
        let mut state = self.shared.lock();
        let lane = &mut state.lanes[self.index];
        if !lane.queue.add_at(key, at) {
            log::error!(controller = lane.name; "The queue is full; the key waits for the next list");
        }
        drop(state);
        // A worker that waits for a later timer has to wait for this one instead.
        self.shared.changed.notify_all();
    }

    /// Starts the controller with this reconciler.
    pub(crate) fn start(&self, reconciler: Arc<dyn Reconciler>, context: ReconcileContext) {
        self.shared.lock().lanes[self.index].work = Some(Work { reconciler, context });
        self.shared.changed.notify_all();
    }

    /// Stops the controller and drops its keys. Reconciliations in progress continue;
    /// [`Lane::wait_until_idle`] waits for them.
    pub(crate) fn end(&self) {
        let mut state = self.shared.lock();
        let lane = &mut state.lanes[self.index];
        if let Some(work) = lane.work.take() {
            work.context.stop.stop();
        }
        lane.queue.clear();
        lane.failed.clear();
    }

    /// Waits for the end of all reconciliations, but not longer than `d`. Returns false if some still run.
    pub(crate) fn wait_until_idle(&self, d: Duration) -> bool {
        let clock = &self.shared.clock;
        let deadline = clock.mono().saturating_add(d);
        let mut state = self.shared.lock();
        while !state.lanes[self.index].running.is_empty() {
            let left = deadline.saturating_sub(clock.mono());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.settled.wait_timeout(state, clock.real(left));
            state = woken.ignore_poison().0;
        }
        true
    }
}

struct Job {
    lane: usize,
    name: &'static str,
    key: Key,
    work: Work,
}

fn work(shared: &SharedPool) {
    while let Some(job) = next_job(shared) {
        let result = run(shared, &job);
        settle(shared, &job, &result);
    }
}

/// Waits for the next key; `None` when the pool stops.
fn next_job(shared: &SharedPool) -> Option<Job> {
    let mut state = shared.lock();
    loop {
        if shared.stop.is_stopped() {
            return None;
        }
        let now = shared.clock.mono();
        if let Some(job) = take(&mut state, now) {
            // Another worker may be able to reconcile the next key.
            shared.changed.notify_one();
            return Some(job);
        }
        // Within the lock, because a state that was unlocked is outdated. It takes a microsecond.
        thread::release_unused_stack();
        state = match next_due(&state) {
            Some(at) if !state.timer_watched => {
                state.timer_watched = true;
                let real = shared.clock.real(at.saturating_sub(now));
                let mut state = shared.changed.wait_timeout(state, real).ignore_poison().0;
                state.timer_watched = false;
                state
            }
            _ => shared.changed.wait(state).ignore_poison(),
        };
    }
}

/// The next timer that a worker could act on. Lanes without a free permit do not count: their timers may have passed,
/// and a worker would not wait at all. The end of their work wakes all workers.
fn next_due(state: &State) -> Option<Mono> {
    let free = |lane: &&LaneState| lane.work.is_some() && lane.running.len() < lane.permits;
    state.lanes.iter().filter(free).filter_map(|lane| lane.queue.next_due()).min()
}

fn take(state: &mut State, now: Mono) -> Option<Job> {
    let count = state.lanes.len();
    for step in 0..count {
        let index = (state.next + step) % count;
        let lane = &mut state.lanes[index];
        let Some(work) = &lane.work else { continue };
        if lane.running.len() >= lane.permits {
            continue;
        }
        let Some(key) = lane.queue.take(now) else { continue };
        let work = work.clone();
        lane.running.push((key.clone(), now));
        let name = lane.name;
        state.next = (index + 1) % count;
        return Some(Job { lane: index, name, key, work });
    }
    None
}

fn run(shared: &SharedPool, job: &Job) -> Result<ReconcileOutcome, ReconcileFailure> {
    // A reconciler has no state of its own that a panic could leave half changed: only informers write to stores.
    let call = AssertUnwindSafe(|| job.work.reconciler.reconcile(&job.key, &job.work.context));
    catch_unwind(call).unwrap_or_else(|panic| {
        shared.metrics.add(
            "controller_runtime_reconcile_panics_total",
            "Total number of reconcile panics per controller.",
            &[("controller", job.name)],
            1.0,
        );
        Err(ReconcileFailure::retry(format!("panic: {}", panic_text(&*panic))))
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// This is the only place that turns results into calls of the queue.
fn settle(shared: &SharedPool, job: &Job, result: &Result<ReconcileOutcome, ReconcileFailure>) {
    let now = shared.clock.mono();
    let failure = result.as_ref().err().filter(|failure| failure.postponed().is_none());
    let note = failure.map(FailureNote::of);
    let mut state = shared.lock();
    let lane = &mut state.lanes[job.lane];
    let begun = lane.running.iter().find(|(key, _)| *key == job.key).map_or(now, |(_, since)| *since);
    lane.running.retain(|(key, _)| *key != job.key);
    let current = lane.work.is_some();
    let delay = match result {
        Ok(ReconcileOutcome::Done) => {
            lane.queue.forget(&job.key);
            None
        }
        Ok(outcome @ (ReconcileOutcome::After(_) | ReconcileOutcome::At(_) | ReconcileOutcome::GoOn(_))) => {
            if !matches!(outcome, ReconcileOutcome::GoOn(_)) {
                lane.queue.forget(&job.key);
            }
            let at = match outcome {
                ReconcileOutcome::At(at) => *at,
                ReconcileOutcome::After(d) | ReconcileOutcome::GoOn(d) => now.saturating_add(*d),
                ReconcileOutcome::Done => now,
            };
            if current {
                lane.queue.add_at(job.key.clone(), at);
            }
            None
        }
        Err(failure) if let Some(d) = failure.postponed() => {
            if current {
                lane.queue.add_at(job.key.clone(), now.saturating_add(d));
            }
            None
        }
        Err(failure @ ReconcileFailure::Retry(_)) if current => {
            let least = failure.retry_after().unwrap_or_default();
            Some(lane.queue.retry(job.key.clone(), now, least))
        }
        Err(_) => {
            lane.queue.forget(&job.key);
            None
        }
    };
    let failures = lane.queue.failures(&job.key);
    lane.queue.done(&job.key);
    match (result, note) {
        (Ok(ReconcileOutcome::GoOn(_)), _) | (Err(_), None) => {}
        (Ok(_), _) => lane.failed.forget(&job.key),
        (Err(_), Some(note)) if current => lane.failed.note(&job.key, note, failures, now),
        (Err(_), Some(_)) => {}
    }
    drop(state);
    shared.changed.notify_all();
    shared.settled.notify_all();
    shared.metrics.observe(
        "controller_runtime_reconcile_time_seconds",
        "Length of time per reconciliation per controller.",
        &[("controller", job.name)],
        now.saturating_sub(begun).as_secs_f64(),
    );
    report(shared, job, result, delay, failures);
}

/// Which failures in a row the agent logs: the first, then fewer and fewer. A site without its garden fails for weeks,
/// and its disk is small. The first three conflicts are normal.
const fn is_told(attempt: u32, is_conflict: bool) -> bool {
    let first = if is_conflict { 4 } else { 1 };
    attempt >= first && (attempt.is_power_of_two() || attempt.is_multiple_of(256))
}

fn report(
    shared: &SharedPool,
    job: &Job,
    result: &Result<ReconcileOutcome, ReconcileFailure>,
    delay: Option<Duration>,
    attempt: u32,
) {
    let label = match result {
        Ok(ReconcileOutcome::Done) => "success",
        Ok(ReconcileOutcome::After(_) | ReconcileOutcome::At(_) | ReconcileOutcome::GoOn(_)) => {
            "requeue_after"
        }
        Err(failure) if failure.postponed().is_some() => "postponed",
        Err(_) => "error",
    };
    let failed = label == "error";
    shared.metrics.add(
        "controller_runtime_reconcile_total",
        "Total number of reconciliations per controller.",
        &[("controller", job.name), ("result", label)],
        1.0,
    );
    shared.metrics.add(
        "controller_runtime_reconcile_errors_total",
        "Total number of reconciliation errors per controller.",
        &[("controller", job.name)],
        f64::from(u8::from(failed)),
    );
    let key = job.key.to_string();
    match result {
        Ok(_) => log::debug!(controller = job.name, key = key.as_str(), result = label; "Reconciled"),
        Err(failure) if !failed => {
            let err = failure.text();
            log::debug!(controller = job.name, key = key.as_str(), err = err.as_str(); "Reconciliation postponed");
        }
        Err(failure) => {
            let (err, retry_ms) = (failure.text(), delay.map_or(0, |d| d.as_millis()));
            let level =
                if is_told(attempt, failure.is_conflict()) { log::Level::Warn } else { log::Level::Debug };
            log::log!(
                level, controller = job.name, key = key.as_str(), err = err.as_str(), attempt = attempt,
                retry_ms = u64::try_from(retry_ms).unwrap_or(u64::MAX);
                "Reconciliation failed"
            );
        }
    }
}

#[cfg(test)]
mod tests;
