//! Shares the workers between slow tasks: requests that wait for API servers, and charts that are pulled and rendered.
//! The requests to one server and the charts together always leave one worker free for everything else, if there are at
//! least three.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::clock::Clock;
use super::lock::IgnorePoison;
use super::stop::Stop;

/// How often, and for how long, a waiting task checks whether it may begin. Meanwhile it holds a
/// worker that others need.
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_millis(500);

/// The workers of the program. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Workers(Arc<SharedWorkers>);

#[derive(Debug)]
struct SharedWorkers {
    count: usize,
    held: Mutex<WorkersInUse>,
}

#[derive(Debug, Default)]
struct WorkersInUse {
    /// By charts that are being pulled or rendered.
    charts: usize,
    /// By requests, per server.
    requests: Vec<usize>,
    /// Indexes of servers that no longer exist.
    unused: Vec<usize>,
}

/// Whether this many workers may be in use. One request and one chart are always possible, but both at once only if a
/// worker stays free or there are fewer than three.
const fn may_hold(workers: usize, requests: usize, charts: usize) -> bool {
    // A request is always possible, so its worker counts even while no request runs.
    let requests = if requests == 0 { 1 } else { requests };
    if workers < 3 { requests == 1 && charts <= 1 } else { requests + charts < workers }
}

impl Workers {
    /// `count` workers, all free.
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(SharedWorkers { count, held: Mutex::default() }))
    }

    /// The number of workers.
    pub(crate) fn count(&self) -> usize {
        self.0.count
    }

    /// Registers another server that requests wait for.
    pub(crate) fn server(&self) -> RequestServer {
        let mut held = self.lock();
        let index = held.unused.pop().unwrap_or_else(|| {
            held.requests.push(0);
            held.requests.len() - 1
        });
        RequestServer { workers: self.clone(), index }
    }

    /// The permit to pull or render a chart, if one is available now.
    pub(crate) fn chart(&self) -> Option<ChartTurn> {
        let mut held = self.lock();
        let busiest = held.requests.iter().copied().max().unwrap_or(0);
        may_hold(self.0.count, busiest, held.charts + 1).then(|| {
            held.charts += 1;
            ChartTurn(self.clone())
        })
    }

    /// The same permit; waits a moment for it.
    pub(crate) fn chart_soon(&self, stop: &Stop) -> Option<ChartTurn> {
        // In real time, because the tasks that hold the workers run in real time.
        let clock = Clock::system();
        loop {
            if let Some(turn) = self.chart() {
                return Some(turn);
            }
            if clock.mono() >= PATIENCE || stop.wait(&clock, LOOK) {
                return None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, WorkersInUse> {
        // Plain values: no panic leaves them half changed.
        self.0.held.lock().ignore_poison()
    }
}

/// The permit to pull or render one chart. Dropping it returns it.
#[derive(Debug)]
pub(crate) struct ChartTurn(Workers);

impl Drop for ChartTurn {
    fn drop(&mut self) {
        self.0.lock().charts -= 1;
    }
}

/// A server that requests wait for.
#[derive(Debug)]
pub(crate) struct RequestServer {
    workers: Workers,
    index: usize,
}

impl Drop for RequestServer {
    fn drop(&mut self) {
        self.workers.lock().unused.push(self.index);
    }
}

impl RequestServer {
    /// Whether another request may use a worker.
    pub(crate) fn has_room(&self) -> bool {
        let held = self.workers.lock();
        held.requests.get(self.index).is_some_and(|n| may_hold(self.workers.0.count, n + 1, held.charts))
    }

    /// Takes a worker for a request; false if none is available.
    pub(crate) fn enter(&self) -> bool {
        let mut held = self.workers.lock();
        let charts = held.charts;
        let Some(requests) = held.requests.get_mut(self.index) else { return false };
        let has_room = may_hold(self.workers.0.count, *requests + 1, charts);
        *requests += usize::from(has_room);
        has_room
    }

    pub(crate) fn leave(&self) {
        if let Some(requests) = self.workers.lock().requests.get_mut(self.index) {
            *requests -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most concurrent requests to one server beside a number of charts, and the most concurrent charts.
    #[test]
    fn one_worker_stays_free_whatever_the_others_wait_for() {
        let most = |fits: &dyn Fn(usize) -> bool| (0..64).take_while(|n| fits(*n)).last();
        let table = [
            // Workers; requests beside 0, 1, 2 and 4 charts; charts beside no request.
            (1, [Some(1), Some(1), None, None], Some(1)),
            (2, [Some(1), Some(1), None, None], Some(1)),
            (3, [Some(2), Some(1), None, None], Some(1)),
            (4, [Some(3), Some(2), Some(1), None], Some(2)),
            (6, [Some(5), Some(4), Some(3), Some(1)], Some(4)),
            (8, [Some(7), Some(6), Some(5), Some(3)], Some(6)),
            (16, [Some(15), Some(14), Some(13), Some(11)], Some(14)),
        ];
        for (workers, requests, charts) in table {
            let found = [0, 1, 2, 4].map(|charts| most(&|requests| may_hold(workers, requests, charts)));
            assert_eq!(found, requests, "{workers}");
            assert_eq!(most(&|charts| may_hold(workers, 0, charts)), charts, "{workers}");
        }
        for workers in 3..=32 {
            for (requests, charts) in (0..64).flat_map(|n| (0..64).map(move |m| (n, m))) {
                let held = requests + charts;
                assert!(!may_hold(workers, requests, charts) || held < workers, "{workers} {held}");
            }
        }
    }

    #[test]
    fn returned_permits_are_available_again() {
        let workers = Workers::new(4);
        let (garden, seed) = (workers.server(), workers.server());
        assert!(garden.enter() && garden.enter());
        let turn = workers.chart().unwrap();
        assert!(workers.chart_soon(&Stop::new()).is_none() && !garden.enter() && !garden.has_room());
        // Each server has its own limit.
        assert!(seed.enter() && seed.has_room());
        garden.leave();
        assert!(workers.chart_soon(&Stop::new()).is_some());
        drop(turn);
        assert!(garden.enter() && garden.enter() && !garden.enter());
        assert!(workers.chart().is_none());
    }
}
