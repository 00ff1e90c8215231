use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::base::clock::{Simulated, Timestamp};

#[test]
fn what_fails_for_weeks_is_told_now_and_then() {
    let told = |attempts: u32| (1..=attempts).filter(|attempt| is_told(*attempt, false)).count();
    // With a retry every 30 s: an hour, a day, three weeks.
    assert_eq!((told(4), told(120), told(2_880), told(60_480)), (3, 7, 19, 244));
    let conflicts: Vec<u32> = (1..=9).filter(|attempt| is_told(*attempt, true)).collect();
    assert_eq!(conflicts, [4, 8], "somebody else may be first now and then");
}

type Answer = fn(&Key, usize) -> Result<ReconcileOutcome, ReconcileFailure>;

struct Probe {
    calls: Mutex<Vec<Key>>,
    seen: Mutex<Sender<(Key, usize)>>,
    answer: Answer,
}

impl Reconciler for Probe {
    fn reconcile(&self, key: &Key, _: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let count = {
            let mut calls = self.calls.lock().unwrap();
            calls.push(key.clone());
            calls.iter().filter(|k| *k == key).count()
        };
        self.seen.lock().unwrap().send((key.clone(), count)).unwrap();
        (self.answer)(key, count)
    }
}

impl Lane {
    /// Whether no key is in progress.
    fn is_idle(&self) -> bool {
        self.shared.lock().lanes[self.index].running.is_empty()
    }

    /// Whether no key waits or is in progress; timers do not count.
    fn is_drained(&self) -> bool {
        let state = self.shared.lock();
        let lane = &state.lanes[self.index];
        lane.running.is_empty() && lane.queue.depth() == 0
    }
}

struct Bench {
    sim: Arc<Simulated>,
    stop: Stop,
    metrics: Metrics,
    pool: Pool,
    lane: Lane,
    seen: Receiver<(Key, usize)>,
}

fn key(name: &str) -> Key {
    Key { namespace: String::new(), name: name.to_owned() }
}

fn bench(answer: Answer) -> Bench {
    let sim = Simulated::new(Timestamp::from_unix(0), 1);
    let (clock, stop, metrics) = (Clock::new(sim.clone()), Stop::new(), Metrics::new());
    let pool = Pool::start(clock.clone(), &stop, metrics.clone(), 2).unwrap();
    let lane = pool.lanes().lane("probe", 1, super::super::queue::RETRY_DEFAULT);
    let (sender, seen) = channel();
    let probe = Probe { calls: Mutex::default(), seen: Mutex::new(sender), answer };
    let context = ReconcileContext {
        events: super::super::events::EventRecorder::new("test"),
        clock,
        stop: stop.child(),
        metrics: metrics.clone(),
    };
    lane.start(Arc::new(probe), context);
    Bench { sim, stop, metrics, pool, lane, seen }
}

impl Bench {
    fn next(&self) -> (Key, usize) {
        self.seen.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    fn end(mut self) {
        self.stop.stop();
        self.pool.join();
    }
}

#[test]
fn a_key_is_worked_on_and_comes_back_when_it_asked_to() {
    let b = bench(|_, count| {
        Ok(if count == 1 {
            ReconcileOutcome::After(Duration::from_secs(3_600))
        } else {
            ReconcileOutcome::Done
        })
    });
    b.lane.add(key("a"));
    assert_eq!(b.next(), (key("a"), 1));
    while !b.lane.is_drained() {
        std::thread::yield_now();
    }
    b.sim.advance(Duration::from_secs(3_601));
    assert_eq!(b.next(), (key("a"), 2));
    b.end();
}

/// The machine sleeps during a reconciliation that has already computed the time of its next run.
#[test]
fn a_moment_that_passed_meanwhile_has_come() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let b = bench(|key, count| {
        Ok(match (key.name.as_str(), count) {
            ("moment", 1) => ReconcileOutcome::At(HOUR),
            ("late", 1) => ReconcileOutcome::At(3 * HOUR),
            _ => ReconcileOutcome::Done,
        })
    });
    b.sim.advance(2 * HOUR);
    b.lane.add(key("late"));
    assert_eq!(b.next(), (key("late"), 1));
    b.lane.add(key("moment"));
    assert_eq!((b.next(), b.next()), ((key("moment"), 1), (key("moment"), 2)));
    b.sim.advance(HOUR);
    assert_eq!(b.next(), (key("late"), 2));
    b.end();
}

/// A key that takes several turns also waits longer after each failure.
#[test]
fn what_goes_on_keeps_the_count_of_its_failures() {
    // Delayed work starts only when the test advances the clock, however slow the machine is.
    const LATER: Duration = Duration::from_secs(3_600);
    let b = bench(|_, count| match count {
        1 | 3 => Err(ReconcileFailure::retry("broken")),
        2 | 4 => Ok(ReconcileOutcome::GoOn(LATER)),
        5 => Ok(ReconcileOutcome::After(LATER)),
        _ => Ok(ReconcileOutcome::Done),
    });
    b.lane.add(key("a"));
    for (count, failures) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 0)] {
        assert_eq!(b.next().1, count);
        while !b.lane.is_drained() {
            std::thread::yield_now();
        }
        assert_eq!(b.pool.shared.lock().lanes[0].queue.failures(&key("a")), failures, "{count}");
        b.sim.advance(LATER);
    }
    assert_eq!(b.next().1, 6);
    b.end();
}

#[test]
fn a_panic_costs_one_reconciliation() {
    let b = bench(|_, count| if count == 1 { panic!("boom") } else { Ok(ReconcileOutcome::Done) });
    b.lane.add(key("a"));
    assert_eq!((b.next().1, b.next().1), (1, 2));
    let labels = [("controller", "probe")];
    assert_eq!(b.metrics.value("controller_runtime_reconcile_panics_total", &labels), Some(1.0));
    b.end();
}

/// The first answer fails, so that a count exists that could grow.
#[test]
fn a_write_that_the_lease_did_not_allow_is_no_failed_attempt() {
    let b = bench(|_, count| match count {
        1 => Err(ReconcileFailure::retry("broken")),
        2..=40 => Err(crate::kube::Error::Fenced("not ours".to_owned()).into()),
        _ => Ok(ReconcileOutcome::Done),
    });
    b.lane.add(key("a"));
    assert_eq!(b.next().1, 1);
    b.sim.advance(Duration::from_secs(1));
    for count in 2..=40 {
        assert_eq!(b.next().1, count);
        while !b.lane.is_drained() {
            std::thread::yield_now();
        }
        assert_eq!(b.pool.shared.lock().lanes[0].queue.failures(&key("a")), 1);
        b.sim.advance(limits::FENCED_AGAIN);
    }
    assert_eq!(b.next().1, 41);
    let labels = [("controller", "probe")];
    let errors = b.metrics.value("controller_runtime_reconcile_errors_total", &labels);
    assert_eq!(errors, Some(1.0));
    b.end();
}

#[test]
fn a_terminal_failure_waits_for_a_change() {
    let b = bench(|_, _| Err(ReconcileFailure::terminal("no such chart")));
    b.lane.add(key("a"));
    assert_eq!(b.next().1, 1);
    while !b.lane.is_drained() {
        std::thread::yield_now();
    }
    b.sim.advance(Duration::from_secs(100_000));
    b.lane.add(key("b"));
    assert_eq!(b.next(), (key("b"), 1));
    b.end();
}

#[test]
fn timers_of_a_lane_without_permits_are_not_waited_for() {
    let b = bench(|_, _| Ok(ReconcileOutcome::Done));
    let mut state = State::default();
    let mut lane = b.pool.shared.lock().lanes.remove(0);
    lane.queue.add_at(key("due"), Mono::ZERO);
    lane.running.push((key("long"), Mono::ZERO));
    state.lanes.push(lane);
    assert_eq!(next_due(&state), None);
    state.lanes[0].running.clear();
    assert_eq!(next_due(&state), Some(Mono::ZERO));
    b.end();
}

#[test]
fn an_ended_lane_drops_its_keys() {
    let b = bench(|_, _| Ok(ReconcileOutcome::Done));
    b.lane.end();
    b.lane.add(key("late"));
    assert!(b.lane.is_idle());
    assert!(b.seen.try_recv().is_err());
    b.end();
}
