//! What the agent says of itself: probes, metrics, and the stage that the bring-up is in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::base::clock::{Clock, Mono};
use crate::base::error::chain;
use crate::config::settings::{Listener, Settings};
use crate::controllers::lease::Beat;
use crate::runtime::health::Progress;
use crate::serve::{self, Checks, Response, Routes, Server};

use super::{Environment, Error};

/// How long an informer may take before `/healthz` fails for it (Gardener's `runtime-informer-sync`).
const SYNC_PATIENCE: Duration = Duration::from_secs(180);

/// What stands in the way of a part of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// What it is doing.
    pub stage: String,
    /// Why it does not get further, if it does not.
    pub problem: Option<String>,
}

type Synced = Box<dyn Fn() -> bool + Send>;

#[derive(Default)]
struct State {
    leading: bool,
    parts: BTreeMap<&'static str, Part>,
    informers: BTreeMap<&'static str, (Synced, Mono)>,
}

/// Shared by all parts. Cheap to clone.
#[derive(Clone)]
pub struct Status {
    clock: Clock,
    /// The heartbeat.
    pub beat: Beat,
    /// Threads that promise progress.
    pub progress: Progress,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Status").field("parts", &self.parts()).finish_non_exhaustive()
    }
}

impl Status {
    /// Of an agent that has not begun.
    pub fn new(clock: Clock) -> Self {
        Self { progress: Progress::new(clock.clone()), clock, beat: Beat::new(), state: Arc::default() }
    }

    /// What each part is doing.
    pub fn parts(&self) -> BTreeMap<&'static str, Part> {
        self.lock().parts.clone()
    }

    /// A part has reached a stage.
    pub(super) fn stage(&self, part: &'static str, stage: &str) {
        self.lock().parts.insert(part, Part { stage: stage.to_owned(), problem: None });
    }

    /// A part cannot go on. True if that is news.
    pub(super) fn problem(&self, part: &'static str, problem: &str) -> bool {
        let mut state = self.lock();
        let entry = state.parts.entry(part).or_default();
        let news = entry.problem.as_deref() != Some(problem);
        entry.problem = Some(problem.to_owned());
        news
    }

    /// A part goes on.
    pub(super) fn recovered(&self, part: &'static str) {
        if let Some(entry) = self.lock().parts.get_mut(part) {
            entry.problem = None;
        }
    }

    pub(super) fn leading(&self, leading: bool) {
        self.lock().leading = leading;
    }

    /// An informer was started.
    pub(super) fn informer(&self, name: &'static str, synced: impl Fn() -> bool + Send + 'static) {
        self.lock().informers.insert(name, (Box::new(synced), self.clock.mono()));
    }

    /// A term ended with its informers.
    pub(super) fn forget_informers(&self) {
        self.lock().informers.clear();
    }

    /// Whether every informer has seen a list, or had less than `patience` for it.
    fn informers_synced(&self, patience: Duration) -> bool {
        let now = self.clock.mono();
        let state = self.lock();
        state.informers.values().all(|(synced, since)| now < since.saturating_add(patience) || synced())
    }

    /// One page for a person.
    fn page(&self) -> String {
        let state = self.lock();
        let mut out = format!("leading: {}\n", state.leading);
        let age =
            self.beat.age(&self.clock).map_or("never".to_owned(), |age| format!("{} s ago", age.as_secs()));
        out.push_str(&format!("seed lease renewed: {age}\n"));
        for (name, part) in &state.parts {
            out.push_str(&format!("{name}: {}\n", part.stage));
            if let Some(problem) = &part.problem {
                out.push_str(&format!("  problem: {problem}\n"));
            }
        }
        for (name, (synced, _)) in &state.informers {
            out.push_str(&format!("watch {name}: {}\n", if synced() { "synced" } else { "not synced" }));
        }
        out
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Plain values: no panic leaves them half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the listeners for probes and metrics.
pub(super) fn serve(settings: &Settings, env: &Environment, status: &Status) -> Result<Vec<Server>, Error> {
    let page = status.clone();
    let probes =
        Routes::new().checks(checks(status)).get("/statusz", move |_| Response::text(200, page.page()));
    let metrics = Routes::new().metrics(env.metrics.clone());
    Ok(vec![
        listen("probes", &settings.health_probes, probes, env)?,
        listen("metrics", &settings.metrics, metrics, env)?,
    ])
}

fn listen(what: &str, at: &Listener, routes: Routes, env: &Environment) -> Result<Server, Error> {
    let server = serve::start(&at.bind_address, at.port, routes, &env.stop).map_err(|source| {
        let operation = format!("listen for {what} on {}:{}", at.bind_address, at.port);
        Error::System { operation, source }
    })?;
    let address = server.addr().to_string();
    log::info!(what = what, address = address.as_str(); "Listening");
    Ok(server)
}

fn checks(status: &Status) -> Checks {
    let (patient, ready, beat, alive) = (status.clone(), status.clone(), status.clone(), status.clone());
    Checks::new()
        .healthz("ping", || true)
        .healthz("runtime-informer-sync", move || patient.informers_synced(SYNC_PATIENCE))
        .healthz("periodic-health", move || beat.beat.passes(&beat.clock))
        .readyz("runtime-informer-sync", move || ready.informers_synced(Duration::ZERO))
        .livez("threads", move || alive.progress.stuck().is_empty())
}

/// One problem of a part, logged when it is news.
pub(super) fn complain(status: &Status, part: &'static str, error: &(dyn std::error::Error + 'static)) {
    let err = chain(error);
    let stage = status.parts().get(part).map(|p| p.stage.clone()).unwrap_or_default();
    if status.problem(part, &err) {
        log::warn!(part = part, stage = stage.as_str(), err = err.as_str(); "Cannot go on; trying again");
    }
}
