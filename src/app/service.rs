//! Notifies the service manager: that the agent is up, what it is doing, that it reloads, stops, and is alive.
//!
//! The watchdog depends on the progress of the agent's own threads, including the heartbeat. It counts their tries, not
//! their success: a site without a garden must not be restarted.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::clock::{self, Clock, Mono};
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::base::notify::{self, Notifier};
use crate::base::stop::Stop;
use crate::base::thread;
use crate::limits;

use super::{AgentStatus, Environment};

/// How often to check for a change to report.
const LOOK: Duration = Duration::from_secs(1);
/// Extends the start timeout until the agent is up: an unreachable seed must not fail the start.
const START_PATIENCE: &str = "EXTEND_TIMEOUT_USEC=60000000";

/// The state to report.
#[derive(Clone, Debug, Default)]
struct CurrentState {
    /// The agent leads, or is a standby.
    is_up: bool,
    /// No thread is stuck.
    is_alive: bool,
    line: String,
    now: Mono,
}

/// The state that was reported.
#[derive(Debug, Default)]
struct ReportedState {
    ready: bool,
    /// A reload has started, but the parts have not restarted yet.
    reloading: bool,
    line: String,
    fed_at: Option<Mono>,
}

/// The lines to send now.
fn decide(seen: &CurrentState, told: &mut ReportedState, watchdog: Option<Duration>) -> Vec<String> {
    let mut lines = Vec::new();
    if seen.is_up && !told.ready && !told.reloading {
        told.ready = true;
        lines.push("READY=1".to_owned());
    } else if !told.ready && seen.is_alive {
        lines.push(START_PATIENCE.to_owned());
    }
    if told.line != seen.line {
        told.line.clone_from(&seen.line);
        lines.push(format!("STATUS={}", seen.line));
    }
    let is_due = |period| told.fed_at.is_none_or(|at| seen.now.saturating_sub(at) >= period);
    if seen.is_alive && watchdog.is_some_and(is_due) {
        told.fed_at = Some(seen.now);
        lines.push("WATCHDOG=1".to_owned());
    }
    lines
}

struct ServiceNotifier {
    notifier: Notifier,
    watchdog: Option<Duration>,
    clock: Clock,
    status: AgentStatus,
    told: Mutex<ReportedState>,
    /// Woken by a change.
    news: Stop,
}

/// The service manager, if there is one. Cheap to clone.
#[derive(Clone, Default)]
pub struct Service(Option<Arc<ServiceNotifier>>);

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Service").field(&self.0.is_some()).finish()
    }
}

impl Service {
    /// Configured by the environment.
    pub(crate) fn new(env: &Environment, status: &AgentStatus) -> Self {
        let Some(address) = env.variable("NOTIFY_SOCKET") else { return Self::default() };
        let notifier = match Notifier::new(address) {
            Ok(notifier) => notifier,
            Err(error) => {
                let err = chain(&error);
                log::warn!(err = err.as_str(); "Cannot use NOTIFY_SOCKET; the service manager gets no notifications");
                return Self::default();
            }
        };
        let (usec, pid) = (env.variable("WATCHDOG_USEC"), env.variable("WATCHDOG_PID"));
        Self(Some(Arc::new(ServiceNotifier {
            notifier,
            watchdog: notify::watchdog(usec, pid, std::process::id()),
            clock: env.clock.clone(),
            status: status.clone(),
            told: Mutex::default(),
            news: env.stop.child(),
        })))
    }

    /// Reports from its own thread until the agent stops, and then reports the stop.
    pub(crate) fn start(&self, stop: &Stop) -> Option<JoinHandle<()>> {
        let inner = Arc::clone(self.0.as_ref()?);
        let leaving = Arc::clone(&inner);
        stop.on_stop(move || leaving.send(&["STOPPING=1".to_owned()]));
        let stop = stop.clone();
        let body = move || {
            let period = inner.watchdog.map_or(LOOK, |watchdog| watchdog.min(LOOK));
            while !stop.is_stopped() {
                inner.tell();
                inner.news.wait(&inner.clock, period);
            }
        };
        let spawned = thread::spawn("service", limits::SMALL_STACK_BYTES, body);
        if spawned.is_err() {
            log::warn!("Cannot start a thread; the service manager gets no notifications");
        }
        spawned.ok()
    }

    /// Reports the start of a reload. The agent is not reported ready before [`Service::reloaded`].
    pub(super) fn reloading(&self) {
        let Some(inner) = &self.0 else { return };
        let mut told = inner.told();
        (told.reloading, told.ready) = (true, false);
        inner.send(&["RELOADING=1".to_owned(), format!("MONOTONIC_USEC={}", clock::machine_usec())]);
    }

    /// The reload is done or abandoned. The parts that it restarts are not up yet.
    pub(super) fn reloaded(&self) {
        let Some(inner) = &self.0 else { return };
        inner.told().reloading = false;
        inner.news.wake();
    }

    /// Something has changed that the service manager should know soon.
    pub(super) fn look(&self) {
        if let Some(inner) = &self.0 {
            inner.news.wake();
        }
    }
}

impl ServiceNotifier {
    fn told(&self) -> std::sync::MutexGuard<'_, ReportedState> {
        // Plain values: a panic does not leave them half changed.
        self.told.lock().ignore_poison()
    }

    fn tell(&self) {
        let seen = CurrentState {
            is_up: self.status.is_up(),
            is_alive: self.status.progress.stuck().is_empty(),
            line: self.status.line(),
            now: self.clock.mono(),
        };
        let mut told = self.told();
        let lines = decide(&seen, &mut told, self.watchdog);
        self.send(&lines);
    }

    fn send(&self, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        if let Err(error) = self.notifier.send(&lines.join("\n")) {
            let err = chain(&error);
            log::debug!(err = err.as_str(); "Cannot notify the service manager");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(is_up: bool, is_alive: bool, line: &str, seconds: u64) -> CurrentState {
        CurrentState { is_up, is_alive, line: line.to_owned(), now: Duration::from_secs(seconds) }
    }

    #[test]
    fn notifications_of_a_service_manager() {
        let mut told = ReportedState::default();
        let watchdog = Some(Duration::from_secs(10));
        let mut tell = |seen: &CurrentState| decide(seen, &mut told, watchdog).join(" ");
        assert_eq!(
            tell(&seen(false, true, "begins", 1)),
            format!("{START_PATIENCE} STATUS=begins WATCHDOG=1")
        );
        assert_eq!(tell(&seen(false, true, "begins", 2)), START_PATIENCE);
        assert_eq!(tell(&seen(true, true, "leads", 3)), "READY=1 STATUS=leads");
        assert_eq!(tell(&seen(true, true, "leads", 10)), "");
        assert_eq!(tell(&seen(true, true, "leads", 11)), "WATCHDOG=1");
        // Losing the lease does not revoke readiness.
        assert_eq!(tell(&seen(false, true, "leads", 12)), "");
        assert_eq!(tell(&seen(true, false, "leads", 60)), "", "a stuck thread starves the watchdog");
    }

    #[test]
    fn a_reload_ends_with_the_parts_that_it_restarts() {
        let mut told = ReportedState { ready: false, reloading: true, ..ReportedState::default() };
        let tell = |seen: &CurrentState, told: &mut ReportedState| decide(seen, told, None).join(" ");
        let up = seen(true, true, "", 1);
        assert_eq!(tell(&up, &mut told), START_PATIENCE);
        told.reloading = false;
        assert_eq!(tell(&seen(false, true, "", 2), &mut told), START_PATIENCE);
        assert_eq!(tell(&up, &mut told), "READY=1");
    }
}
