//! The gate in front of one API server: limits the requests of workers that are in flight, and decides whether sending
//! one is useful. It keeps an unresponsive server from blocking all workers.
//!
//! All clients of a server share one gate. Requests of workers pass through it; a refused request fails at once, and
//! its key is retried later. Requests of other clients ([`super::Client::ungated`]: heartbeat, leader election,
//! informers) are never refused, but their results count too.
//!
//! The gate closes when the server is unreachable, or leaves a request unanswered and answers no other one meanwhile.
//! Then one request at a time may probe the server. The first answer opens the gate.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::base::backoff::delay_after;
use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::random;
use crate::base::workers::{RequestServer, Workers};
use crate::limits;

/// Creates the gates of all servers: their probes share the workers.
#[derive(Clone, Debug)]
pub(crate) struct RequestGates {
    workers: Workers,
    probes: Arc<Probes>,
}

#[derive(Debug)]
struct Probes {
    running: AtomicUsize,
    max: usize,
}

impl RequestGates {
    /// Gates for a program with these workers.
    pub(crate) fn new(workers: &Workers) -> Self {
        let probes = Probes { running: AtomicUsize::new(0), max: (workers.count() / 2).max(1) };
        Self { workers: workers.clone(), probes: Arc::new(probes) }
    }

    /// A gate for another server.
    pub(crate) fn gate(&self) -> RequestGate {
        self.gate_of(permits(self.workers.count()))
    }

    /// A gate for one of many servers: its requests use at most a quarter of the workers.
    pub(crate) fn narrow_gate(&self) -> RequestGate {
        self.gate_of((self.workers.count() / 4).max(1))
    }

    fn gate_of(&self, permits: usize) -> RequestGate {
        let state = Mutex::new(State::new(permits));
        let (returned, probes) = (Condvar::new(), Arc::clone(&self.probes));
        RequestGate(Arc::new(SharedGate { state, returned, server: self.workers.server(), probes }))
    }
}

/// Three quarters of the workers: at least one stays free, if there are several.
const fn permits(workers: usize) -> usize {
    let reserve = if workers < 8 { 1 } else { workers / 4 };
    let rest = workers.saturating_sub(reserve);
    if rest == 0 { 1 } else { rest }
}

/// The gate of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RequestGate(Arc<SharedGate>);

#[derive(Debug)]
struct SharedGate {
    state: Mutex<State>,
    /// Notified when a permit is returned.
    returned: Condvar,
    /// The workers that its requests use; charts share them.
    server: RequestServer,
    probes: Arc<Probes>,
}

/// Why a request was not sent, and when to retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GateRefusal {
    pub(super) why: Arc<str>,
    pub(super) after: Duration,
}

/// The permit for one request in flight. Dropping it returns it.
#[derive(Debug)]
pub(super) struct Pass {
    gate: RequestGate,
    is_probe: bool,
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.lock().leave(self.is_probe);
        self.gate.0.server.leave();
        if self.is_probe {
            self.gate.0.probes.running.fetch_sub(1, Ordering::SeqCst);
        }
        self.gate.0.returned.notify_one();
    }
}

impl RequestGate {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain values: no panic leaves them half changed.
        self.0.state.lock().ignore_poison()
    }

    /// Requests a permit. If the server answers but all permits are taken, waits a moment for one.
    pub(super) fn enter(&self, now: Mono) -> Result<Pass, GateRefusal> {
        let mut state = self.lock();
        let mut entry = self.held(state.enter(now));
        if entry == Entry::Full && !state.jammed {
            let waits = |state: &mut State| state.active >= state.permits || !self.0.server.has_room();
            // In real time, because sockets wait in real time.
            let waited = self.0.returned.wait_timeout_while(state, limits::PERMIT_WAIT_MAX, waits);
            state = waited.ignore_poison().0;
            entry = self.held(state.enter(now));
            state.jammed = entry == Entry::Full;
        }
        let is_probe = match entry {
            Entry::Pass => false,
            Entry::Probe if self.may_probe() => true,
            Entry::Probe => {
                self.0.server.leave();
                return Err(state.refusal(limits::PERMIT_AGAIN));
            }
            Entry::Full => return Err(state.refusal(limits::PERMIT_AGAIN)),
            Entry::Closed(after) => return Err(state.refusal(after)),
        };
        state.begin(is_probe);
        drop(state);
        Ok(Pass { gate: self.clone(), is_probe })
    }

    /// Takes a worker if the entry needs one.
    fn held(&self, entry: Entry) -> Entry {
        let needs_one = matches!(entry, Entry::Pass | Entry::Probe);
        if needs_one && !self.0.server.enter() { Entry::Full } else { entry }
    }

    fn may_probe(&self) -> bool {
        let Probes { running, max } = &*self.0.probes;
        let more = |running: usize| (running < *max).then_some(running + 1);
        running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// The server answered a request.
    pub(super) fn answered(&self, now: Mono) {
        self.lock().answered(now);
    }

    /// A request that was sent at `sent` could not reach the server.
    pub(super) fn unreachable(&self, sent: Mono, now: Mono, why: &str) {
        self.lock().unreachable(sent, now, why);
    }

    /// Resets the state, because the server was replaced.
    pub(super) fn forget(&self) {
        self.lock().outage = None;
    }

    /// Refuses all requests until `until`, while a more important request probes for all. `None` ends it.
    pub(super) fn hold(&self, until: Option<Mono>) {
        self.lock().held_until = until;
    }
}

/// The state of a server. Times are those of the program's clock.
#[derive(Debug)]
struct State {
    permits: usize,
    /// Requests of workers in flight.
    active: usize,
    /// A caller has waited for a permit in vain, and none has been returned since.
    jammed: bool,
    /// When the server answered last.
    answered_at: Option<Mono>,
    outage: Option<Outage>,
    held_until: Option<Mono>,
}

#[derive(Debug)]
struct Outage {
    why: Arc<str>,
    /// The number of failed probes.
    failures: u32,
    probe_at: Mono,
    is_probed: bool,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Pass,
    /// It probes the server for all.
    Probe,
    /// All permits are taken.
    Full,
    /// The server is unreachable; retry after this time.
    Closed(Duration),
}

impl State {
    const fn new(permits: usize) -> Self {
        Self { permits, active: 0, jammed: false, answered_at: None, outage: None, held_until: None }
    }

    fn enter(&self, now: Mono) -> Entry {
        if self.held_until.is_some_and(|until| now < until) {
            return Entry::Closed(limits::PERMIT_AGAIN);
        }
        match &self.outage {
            Some(outage) if now < outage.probe_at => Entry::Closed(outage.probe_at.saturating_sub(now)),
            Some(outage) if outage.is_probed => Entry::Closed(limits::PERMIT_AGAIN),
            Some(_) => Entry::Probe,
            None if self.active >= self.permits => Entry::Full,
            None => Entry::Pass,
        }
    }

    const fn begin(&mut self, is_probe: bool) {
        self.active += 1;
        if let Some(outage) = &mut self.outage {
            outage.is_probed |= is_probe;
        }
    }

    const fn leave(&mut self, is_probe: bool) {
        self.active -= 1;
        self.jammed = false;
        if let (true, Some(outage)) = (is_probe, &mut self.outage) {
            outage.is_probed = false;
        }
    }

    fn answered(&mut self, now: Mono) {
        self.answered_at = Some(now);
        self.outage = None;
    }

    fn unreachable(&mut self, sent: Mono, now: Mono, why: &str) {
        if self.answered_at.is_some_and(|at| at > sent) {
            return;
        }
        let failures = match &self.outage {
            // Sent before the last failure was known: part of the same outage.
            Some(outage) if now < outage.probe_at => return,
            Some(outage) => outage.failures.saturating_add(1),
            None => 0,
        };
        let delay = delay_after(limits::OUTAGE_PROBE_MIN, limits::OUTAGE_PROBE_MAX, failures);
        let is_probed = self.outage.as_ref().is_some_and(|outage| outage.is_probed);
        self.outage =
            Some(Outage { why: why.into(), failures, probe_at: now.saturating_add(delay), is_probed });
    }

    fn refusal(&self, after: Duration) -> GateRefusal {
        let why = match &self.outage {
            Some(outage) => Arc::clone(&outage.why),
            None if self.held_until.is_some() => Arc::from("not sent: the server could not be reached"),
            None => Arc::from("not sent: too many requests wait for the server's answer"),
        };
        // Spread, so that the keys are not retried at the same moment.
        GateRefusal { why, after: after.mul_f64(1.0 + random::unit() / 4.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn some_workers_stay_free() {
        let table = [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (16, 12), (0, 1)];
        for (workers, expected) in table {
            assert_eq!(permits(workers), expected, "{workers}");
        }
    }

    /// An event at a time in milliseconds.
    #[derive(Clone, Copy, Debug)]
    enum GateStep {
        Ask(Entry),
        Leave,
        LeaveProbe,
        Answer,
        /// The failure of a request that was sent at this time.
        Fail(u64),
        Hold(u64),
        Release,
    }

    fn play(name: &str, steps: &[(u64, GateStep)]) {
        let mut state = State::new(2);
        for (at, step) in steps {
            let now = ms(*at);
            match *step {
                GateStep::Ask(expected) => {
                    let entry = state.enter(now);
                    assert_eq!(entry, expected, "{name}: at {at}");
                    if matches!(entry, Entry::Pass | Entry::Probe) {
                        state.begin(entry == Entry::Probe);
                    }
                }
                GateStep::Leave => state.leave(false),
                GateStep::LeaveProbe => state.leave(true),
                GateStep::Answer => state.answered(now),
                GateStep::Fail(sent) => state.unreachable(ms(sent), now, "no route"),
                GateStep::Hold(until) => state.held_until = Some(ms(until)),
                GateStep::Release => state.held_until = None,
            }
        }
    }

    #[test]
    fn the_gate_decides_about_requests() {
        use Entry::{Closed, Full, Pass, Probe};
        use GateStep::{Answer, Ask, Fail, Hold, Leave, LeaveProbe, Release};
        let (first, later) = (limits::OUTAGE_PROBE_MIN, limits::PERMIT_AGAIN);
        assert_eq!(first, ms(250));
        let table: &[(&str, &[(u64, GateStep)])] = &[
            (
                "as many as there are permits",
                &[(0, Ask(Pass)), (0, Ask(Pass)), (1, Ask(Full)), (2, Leave), (2, Ask(Pass)), (2, Ask(Full))],
            ),
            (
                "a failure closes, one at a time probes, an answer opens",
                &[
                    (0, Ask(Pass)),
                    (10, Fail(0)),
                    (10, Leave),
                    (10, Ask(Closed(first))),
                    (259, Ask(Closed(ms(1)))),
                    (260, Ask(Probe)),
                    (260, Ask(Closed(later))),
                    (300, Answer),
                    (300, LeaveProbe),
                    (300, Ask(Pass)),
                ],
            ),
            (
                "the pauses grow",
                &[
                    (0, Fail(0)),
                    (250, Ask(Probe)),
                    (300, Fail(250)),
                    (300, LeaveProbe),
                    (300, Ask(Closed(ms(500)))),
                    (800, Ask(Probe)),
                    (900, Fail(800)),
                    (900, LeaveProbe),
                    (900, Ask(Closed(ms(1_000)))),
                ],
            ),
            (
                "requests that fail together are one failure",
                &[
                    (0, Ask(Pass)),
                    (0, Ask(Pass)),
                    (10, Fail(0)),
                    (11, Fail(0)),
                    (12, Fail(5)),
                    (12, Ask(Closed(ms(248)))),
                ],
            ),
            (
                "others were answered meanwhile",
                &[(0, Ask(Pass)), (5, Answer), (10, Fail(0)), (10, Ask(Pass))],
            ),
            (
                "an answer from before proves nothing",
                &[(0, Answer), (5, Ask(Pass)), (10, Fail(5)), (10, Ask(Closed(first)))],
            ),
            ("somebody without a pass finds out", &[(0, Fail(0)), (20, Answer), (20, Ask(Pass))]),
            (
                "a probe that shows nothing makes room for the next",
                &[(0, Fail(0)), (250, Ask(Probe)), (300, LeaveProbe), (300, Ask(Probe))],
            ),
            (
                "who holds it tries for all",
                &[
                    (0, Fail(0)),
                    (0, Hold(5_000)),
                    (4_000, Ask(Closed(later))),
                    (4_500, Answer),
                    (4_500, Ask(Closed(later))),
                    (4_600, Release),
                    (4_600, Ask(Pass)),
                ],
            ),
            ("who holds it and does not try any more holds nobody", &[(0, Hold(5_000)), (5_000, Ask(Pass))]),
        ];
        for (name, steps) in table {
            play(name, steps);
        }
    }

    #[test]
    fn a_probe_waits_no_longer_than_the_longest_pause() {
        let (mut state, mut now) = (State::new(1), ms(0));
        for _ in 0..40 {
            state.unreachable(now, now, "no route");
            let Entry::Closed(after) = state.enter(now) else { panic!("open") };
            assert!(after <= limits::OUTAGE_PROBE_MAX, "{after:?}");
            now += after;
            assert_eq!(state.enter(now), Entry::Probe);
        }
    }

    #[test]
    fn probes_of_all_servers_share_the_workers() {
        let gates = RequestGates::new(&Workers::new(4));
        let all: Vec<RequestGate> = (0..3).map(|_| gates.gate()).collect();
        all.iter().for_each(|gate| gate.unreachable(ms(0), ms(0), "no route"));
        let mut passes: Vec<_> = all.iter().map(|gate| gate.enter(ms(1_000))).collect();
        assert!(passes[0].is_ok() && passes[1].is_ok());
        let refusal = passes.pop().unwrap().unwrap_err();
        assert_eq!(&*refusal.why, "no route");
        drop(passes.pop());
        assert!(all[2].enter(ms(1_000)).is_ok());
    }

    #[test]
    fn charts_take_permits_away() {
        let workers = Workers::new(4);
        let gate = RequestGates::new(&workers).gate();
        let turns = [workers.chart().unwrap(), workers.chart().unwrap()];
        let pass = gate.enter(ms(0)).unwrap();
        assert!(gate.enter(ms(0)).is_err() && workers.chart().is_none());
        drop(turns);
        let more = [gate.enter(ms(0)).unwrap(), gate.enter(ms(0)).unwrap()];
        assert!(gate.enter(ms(0)).is_err() && workers.chart().is_none());
        drop((pass, more));
        assert!(workers.chart().is_some());
    }

    #[test]
    fn only_one_request_waits_for_a_silent_server() {
        let gate = RequestGates::new(&Workers::new(2)).gate();
        let pass = gate.enter(ms(0)).unwrap();
        assert!(gate.enter(ms(0)).is_err());
        assert!(gate.lock().jammed);
        drop(pass);
        assert!(!gate.lock().jammed);
        assert!(gate.enter(ms(0)).is_ok());
    }
}
