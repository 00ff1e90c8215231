//! The workers: a fixed number of threads for all controllers. Each controller has a lane: its queue and a number of
//! permits (`concurrentSyncs`), so that none can occupy the pool. Lanes are served in turn.
//!
//! A panic costs one reconciliation: it is caught here and nowhere else, counted, and retried with backoff.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::api::meta::Key;
use crate::base::clock::{Clock, Mono};
use crate::base::stop::Stop;
use crate::base::{metrics::Metrics, thread};
use crate::limits;

use super::controller::{Context, Failure, Outcome, Reconciler};
use super::queue::{Queue, Retry};

struct LaneState {
    name: &'static str,
    queue: Queue<Key>,
    permits: usize,
    /// Keys that are being worked on, and since when.
    running: Vec<(Key, Mono)>,
    /// `None` while the controller does not run: keys wait.
    work: Option<Work>,
}

#[derive(Clone)]
struct Work {
    reconciler: Arc<dyn Reconciler>,
    context: Context,
}

#[derive(Default)]
struct State {
    lanes: Vec<LaneState>,
    /// The lane to look at first.
    next: usize,
    /// Whether a worker already waits for the next timer; the others then wait for a notice only.
    timer_watched: bool,
}

struct Shared {
    clock: Clock,
    stop: Stop,
    metrics: Metrics,
    state: Mutex<State>,
    /// There is something to do.
    changed: Condvar,
    /// Something was done: for those who wait for the end of it, who must not take a notice from a worker.
    settled: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Reconcilers run outside of the lock, so a panic cannot leave the queues half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module. Dropping it does not end the workers: its [`Stop`] does.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("workers", &self.workers.len()).finish()
    }
}

/// What a lane is doing, for metrics and the status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// The controller.
    pub name: &'static str,
    /// Keys that wait.
    pub depth: usize,
    /// Keys that failed last time.
    pub failing: usize,
    /// Keys that began to wait since the beginning.
    pub adds: u64,
    /// Keys that came back after a failure since the beginning.
    pub retries: u64,
    /// Keys that are being worked on.
    pub active: usize,
    /// Keys that may be worked on at once.
    pub permits: usize,
    /// How long the longest of them has taken.
    pub longest: Duration,
}

/// Looks at the lanes of a pool. Cheap to clone; it keeps nothing running.
#[derive(Clone)]
pub struct View(Arc<Shared>);

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("View")
    }
}

impl View {
    /// The lanes, in the order in which they were made.
    pub fn lanes(&self) -> Vec<LaneView> {
        let now = self.0.clock.mono();
        self.0.lock().lanes.iter().map(|lane| view(lane, now)).collect()
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
    /// Starts `workers` threads that end with `stop`.
    ///
    /// # Errors
    /// The system's, if it has no room for the threads.
    pub fn start(clock: Clock, stop: &Stop, metrics: Metrics, workers: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
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
                // Under the lock, or a worker between its look and its wait would miss it.
                let _state = shared.lock();
                shared.changed.notify_all();
            }
        });
        Ok(pool)
    }

    /// For those who add lanes.
    pub fn lanes(&self) -> Lanes {
        Lanes(Arc::clone(&self.shared))
    }

    /// For those who look on.
    pub fn view(&self) -> View {
        View(Arc::clone(&self.shared))
    }

    /// Waits until every worker has ended. The [`Stop`] must have been pulled.
    pub fn join(&mut self) {
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                log::error!("A worker ended with a panic outside of a reconciliation");
            }
        }
    }
}

/// Makes the lanes of a pool. Cheap to clone; it keeps nothing running.
#[derive(Clone)]
pub struct Lanes(Arc<Shared>);

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lanes")
    }
}

impl Lanes {
    /// The lane of this name: the present one, or a new one with these settings. It takes keys at once and works on them
    /// from [`Lane::start`] on.
    pub fn lane(&self, name: &'static str, permits: usize, retry: Retry) -> Lane {
        let mut state = self.0.lock();
        let index = state.lanes.iter().position(|lane| lane.name == name).unwrap_or_else(|| {
            state.lanes.push(LaneState {
                name,
                queue: Queue::new(retry),
                permits: permits.max(1),
                running: Vec::new(),
                work: None,
            });
            state.lanes.len() - 1
        });
        Lane { shared: Arc::clone(&self.0), index }
    }
}

/// The queue of one controller. Cheap to clone.
#[derive(Clone)]
pub struct Lane {
    shared: Arc<Shared>,
    index: usize,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lane").field(&self.index).finish()
    }
}

impl Lane {
    /// Asks for a reconciliation of `key`.
    pub fn add(&self, key: Key) {
        let mut state = self.shared.lock();
        let lane = &mut state.lanes[self.index];
        if !lane.queue.add(key) {
            log::error!(controller = lane.name; "The queue is full; the key waits for the next list");
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Asks for one after a while, or earlier if `key` comes back earlier anyway.
    pub fn add_after(&self, key: Key, delay: Duration) {
        let at = self.shared.clock.mono().saturating_add(delay);
        let mut state = self.shared.lock();
        let lane = &mut state.lanes[self.index];
        if !lane.queue.add_at(key, at) {
            log::error!(controller = lane.name; "The queue is full; the key waits for the next list");
        }
        drop(state);
        // Whoever waits for a later timer has to wait for this one.
        self.shared.changed.notify_all();
    }

    /// Starts the controller, with what its reconciliations are handed.
    pub fn start(&self, reconciler: Arc<dyn Reconciler>, context: Context) {
        self.shared.lock().lanes[self.index].work = Some(Work { reconciler, context });
        self.shared.changed.notify_all();
    }

    /// Ends the controller and drops its keys. What is being worked on ends on its own; [`Lane::wait_until_idle`] tells when.
    pub fn end(&self) {
        let mut state = self.shared.lock();
        let lane = &mut state.lanes[self.index];
        if let Some(work) = lane.work.take() {
            work.context.stop.stop();
        }
        lane.queue.clear();
    }

    /// Waits until nothing is being worked on, at most for `d`; false if something still is.
    pub fn wait_until_idle(&self, d: Duration) -> bool {
        let clock = &self.shared.clock;
        let deadline = clock.mono().saturating_add(d);
        let mut state = self.shared.lock();
        while !state.lanes[self.index].running.is_empty() {
            let left = deadline.saturating_sub(clock.mono());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.settled.wait_timeout(state, clock.real(left));
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
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

fn work(shared: &Shared) {
    while let Some(job) = next_job(shared) {
        let result = run(shared, &job);
        settle(shared, &job, &result);
    }
}

/// Blocks until there is something to do; `None` when the pool stops.
fn next_job(shared: &Shared) -> Option<Job> {
    let mut state = shared.lock();
    loop {
        if shared.stop.is_stopped() {
            return None;
        }
        let now = shared.clock.mono();
        if let Some(job) = take(&mut state, now) {
            // Others may be able to go on with the next key.
            shared.changed.notify_one();
            return Some(job);
        }
        state = match next_due(&state) {
            Some(at) if !state.timer_watched => {
                state.timer_watched = true;
                let real = shared.clock.real(at.saturating_sub(now));
                let mut state =
                    shared.changed.wait_timeout(state, real).unwrap_or_else(PoisonError::into_inner).0;
                state.timer_watched = false;
                state
            }
            _ => shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

/// The next timer that somebody could act upon. Lanes without a free permit do not count: their timers may be over, and
/// whoever waited for them would not wait at all. The end of their work wakes everybody.
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

fn run(shared: &Shared, job: &Job) -> Result<Outcome, Failure> {
    // A reconciler owns no state that outlives a call half changed: stores are written by informers alone.
    let call = AssertUnwindSafe(|| job.work.reconciler.reconcile(&job.key, &job.work.context));
    catch_unwind(call).unwrap_or_else(|panic| {
        shared.metrics.add(
            "controller_runtime_reconcile_panics_total",
            "Total number of reconcile panics per controller.",
            &[("controller", job.name)],
            1.0,
        );
        Err(Failure::retry(format!("panic: {}", panic_text(&*panic))))
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// The one place where results become queue calls.
fn settle(shared: &Shared, job: &Job, result: &Result<Outcome, Failure>) {
    let now = shared.clock.mono();
    let mut state = shared.lock();
    let lane = &mut state.lanes[job.lane];
    let begun = lane.running.iter().find(|(key, _)| *key == job.key).map_or(now, |(_, since)| *since);
    lane.running.retain(|(key, _)| *key != job.key);
    let current = lane.work.is_some();
    let delay = match result {
        Ok(Outcome::Done) => {
            lane.queue.forget(&job.key);
            None
        }
        Ok(outcome @ (Outcome::After(_) | Outcome::At(_) | Outcome::GoOn(_))) => {
            if !matches!(outcome, Outcome::GoOn(_)) {
                lane.queue.forget(&job.key);
            }
            let at = match outcome {
                Outcome::At(at) => *at,
                Outcome::After(d) | Outcome::GoOn(d) => now.saturating_add(*d),
                Outcome::Done => now,
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
        Err(failure @ Failure::Retry(_)) if current => {
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

/// Which of the failures in a row are worth a line: the first, then fewer and fewer. A site without its garden fails for
/// weeks, and its disk is small. The first three conflicts are everyday life.
const fn is_told(attempt: u32, is_conflict: bool) -> bool {
    let first = if is_conflict { 4 } else { 1 };
    attempt >= first && (attempt.is_power_of_two() || attempt.is_multiple_of(256))
}

fn report(
    shared: &Shared,
    job: &Job,
    result: &Result<Outcome, Failure>,
    delay: Option<Duration>,
    attempt: u32,
) {
    let label = match result {
        Ok(Outcome::Done) => "success",
        Ok(Outcome::After(_) | Outcome::At(_) | Outcome::GoOn(_)) => "requeue_after",
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
