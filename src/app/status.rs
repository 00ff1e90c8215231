//! What the agent says of itself: probes, metrics, and the stage that the bring-up is in.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::base::clock::{Clock, Mono, Timestamp};
use crate::base::error::chain;
use crate::base::process;
use crate::base::sorted::SortedMap;
use crate::config::settings::{Listener, Settings};
use crate::controllers::lease::Beat;
use crate::runtime::health::Progress;
use crate::runtime::store::StoreView;
use crate::serve::{self, Checks, Response, Routes, Server};

use super::report::{self, Report, Sources};
use super::{Environment, Error};

/// How long an informer may take before `/healthz` and `/readyz` fail for it (Gardener's `runtime-informer-sync`).
const SYNC_PATIENCE: Duration = Duration::from_secs(180);

/// The line for a service manager.
const LINE_CHARS_MAX: usize = 400;

/// What stands in the way of a part of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// What it is doing.
    pub stage: String,
    /// Why it does not get further, if it does not.
    pub problem: Option<String>,
}

type Look = Box<dyn Fn() -> StoreView + Send>;

#[derive(Default)]
struct State {
    leading: bool,
    seed_is_gone: bool,
    /// Who leads, if somebody else does.
    leader: Option<String>,
    /// Whether the agent was ready before; see [`Status::is_ready`].
    was_ready: bool,
    remark: Option<String>,
    clock_remark: Option<String>,
    garden_remark: Option<String>,
    webhook_remark: Option<String>,
    parts: SortedMap<&'static str, Part>,
    /// Since when nobody has been known to lead.
    adrift_since: Option<Mono>,
    /// Since when the way to the first beat has been blocked in the garden.
    garden_blocked_since: Option<Mono>,
    informers: SortedMap<&'static str, (Look, Mono)>,
    /// Until when the client certificate for the garden is valid.
    expires: Option<Timestamp>,
}

impl State {
    fn mark_leader(&mut self, now: Mono) {
        let is_known = self.leading || self.leader.is_some();
        self.adrift_since = if is_known { None } else { self.adrift_since.or(Some(now)) };
        // The term of a leader begins with its own patience.
        if !self.leading {
            self.garden_blocked_since = None;
        }
    }

    fn mark_garden(&mut self, now: Mono) {
        let has_problem = self.parts.get(super::garden::PART).is_some_and(|part| part.problem.is_some());
        self.garden_blocked_since = has_problem.then(|| self.garden_blocked_since.unwrap_or(now));
    }

    fn informers_synced(&self, now: Mono, without_garden: bool) -> bool {
        self.informers.iter().all(|(name, (look, since))| {
            let excused = without_garden && name.starts_with("garden/");
            excused || now < since.saturating_add(SYNC_PATIENCE) || look().synced
        })
    }
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
        let progress = Progress::new(clock.clone());
        let state = State { adrift_since: Some(clock.mono()), ..State::default() };
        Self { progress, clock, beat: Beat::new(), state: Arc::new(Mutex::new(state)) }
    }

    /// What each part is doing.
    pub fn parts(&self) -> SortedMap<&'static str, Part> {
        self.lock().parts.clone()
    }

    /// A part has reached a stage.
    pub(super) fn stage(&self, part: &'static str, stage: &str) {
        let mut state = self.lock();
        state.parts.insert(part, Part { stage: stage.to_owned(), problem: None });
        state.mark_garden(self.clock.mono());
    }

    /// The same, for a stage that may have been reached before: a problem of it stays.
    pub(super) fn doing(&self, part: &'static str, stage: &str) {
        stage.clone_into(&mut self.lock().parts.entry(part).or_default().stage);
    }

    /// What people should know who look at the Seed's conditions.
    pub(super) fn remark(&self, remark: Option<String>) {
        self.lock().remark = remark;
    }

    /// The same, about the clock.
    pub(super) fn clock_remark(&self, remark: Option<String>) {
        self.lock().clock_remark = remark;
    }

    /// The same, about what the garden withholds.
    pub(super) fn garden_remark(&self, remark: Option<String>) {
        self.lock().garden_remark = remark;
    }

    /// The same, about webhooks that refuse writes to the seed.
    pub(super) fn webhook_remark(&self, remark: Option<String>) {
        self.lock().webhook_remark = remark;
    }

    /// See [`Status::remark`], for those who write conditions.
    pub(super) fn remarks(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move || {
            let state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let all = [&state.clock_remark, &state.garden_remark, &state.webhook_remark, &state.remark];
            let all: Vec<&str> = all.into_iter().flatten().map(String::as_str).collect();
            (!all.is_empty()).then(|| all.join(" "))
        }
    }

    /// A part cannot go on. True if that is news.
    pub(super) fn problem(&self, part: &'static str, problem: &str) -> bool {
        let mut state = self.lock();
        let entry = state.parts.entry(part).or_default();
        let news = entry.problem.as_deref() != Some(problem);
        entry.problem = Some(problem.to_owned());
        state.mark_garden(self.clock.mono());
        news
    }

    /// There is nothing more to say about a part.
    pub(super) fn forget(&self, part: &'static str) {
        self.lock().parts.remove(part);
    }

    /// A part goes on.
    pub(super) fn recovered(&self, part: &'static str) {
        let mut state = self.lock();
        if let Some(entry) = state.parts.get_mut(part) {
            entry.problem = None;
        }
        state.mark_garden(self.clock.mono());
    }

    pub(super) fn leading(&self, leading: bool) {
        let mut state = self.lock();
        state.leading = leading;
        if leading {
            state.leader = None;
        }
        state.mark_leader(self.clock.mono());
    }

    /// The parts have ended and begin anew: what they said counts no more. Who was ready stays so.
    pub(super) fn begin_anew(&self) {
        let mut state = self.lock();
        (state.leading, state.leader, state.remark) = (false, None, None);
        (state.garden_remark, state.webhook_remark) = (None, None);
        state.parts.clear();
        (state.adrift_since, state.garden_blocked_since) = (Some(self.clock.mono()), None);
    }

    /// Whether the agent leads or stands by.
    pub(super) fn is_up(&self) -> bool {
        let state = self.lock();
        state.leading || state.leader.is_some()
    }

    /// The stage in one line, for a service manager.
    pub(super) fn line(&self) -> String {
        let state = self.lock();
        let mut line = match (state.leading, &state.leader) {
            (true, _) => "leading".to_owned(),
            (false, Some(leader)) => format!("standing by for {leader}"),
            (false, None) => "looking for the leader's lease in the seed".to_owned(),
        };
        for (name, part) in &state.parts {
            let problem = part.problem.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
            line.push_str(&format!("; {name}: {}{problem}", part.stage));
        }
        let line = line.replace(|c: char| c.is_control(), " ");
        line.chars().take(LINE_CHARS_MAX).collect()
    }

    /// Somebody else leads.
    pub(super) fn standing_by(&self, leader: &str) {
        let mut state = self.lock();
        state.leader = Some(leader.to_owned());
        state.mark_leader(self.clock.mono());
    }

    /// An informer was started.
    pub(super) fn informer(&self, name: &'static str, look: impl Fn() -> StoreView + Send + 'static) {
        self.lock().informers.insert(name, (Box::new(look), self.clock.mono()));
    }

    /// Informers whose names begin so have ended.
    pub(super) fn forget_informers(&self, prefix: &str) {
        self.lock().informers.retain(|name, _| !name.starts_with(prefix));
    }

    /// Whether the Seed was deleted under us. True if that is news.
    pub(super) fn seed_is_gone(&self, gone: bool) -> bool {
        std::mem::replace(&mut self.lock().seed_is_gone, gone) != gone
    }

    /// Whether every informer has seen a list, or had less than [`SYNC_PATIENCE`] for it; those of the garden may be left
    /// out.
    fn informers_synced(&self, without_garden: bool) -> bool {
        self.lock().informers_synced(self.clock.mono(), without_garden)
    }

    /// Gardener's `periodic-health`. While no beat is due, it fails for an agent whose way to one has been blocked for
    /// `patience`: the Go program ends then. With `tolerant` only what the seed does counts.
    fn is_beating(&self, patience: Duration, tolerant: bool) -> bool {
        let now = self.clock.mono();
        let is_overdue =
            |since: Option<Mono>| since.is_some_and(|since| now >= since.saturating_add(patience));
        let beats =
            if tolerant { self.beat.passes_offline(&self.clock) } else { self.beat.passes(&self.clock) };
        let state = self.lock();
        let is_blocked = !tolerant && !state.seed_is_gone && is_overdue(state.garden_blocked_since);
        beats && !is_overdue(state.adrift_since) && (self.beat.is_due() || !is_blocked)
    }

    /// The agent is ready if it stands by, or if it leads and all its watches have been synced once. Watches come and
    /// go with the garden and with the lease of the applier. A watch that begins later has time for its first list, so
    /// that readiness does not dip.
    fn is_ready(&self) -> bool {
        let now = self.clock.mono();
        let mut state = self.lock();
        if !state.was_ready {
            let knows =
                !state.informers.is_empty() && state.informers.values().all(|(look, _)| look().synced);
            state.was_ready = state.leader.is_some() || knows;
        }
        state.was_ready && state.informers_synced(now, false)
    }

    /// There is an identity for the garden, or another one: until when its certificate is valid.
    pub(super) fn certificate(&self, expires: Option<Timestamp>) {
        self.lock().expires = expires;
    }

    pub(super) fn expires(&self) -> Option<Timestamp> {
        self.lock().expires
    }

    /// How long ago the seed's Lease was renewed.
    pub(super) fn lease_age(&self) -> Option<Duration> {
        self.beat.age(&self.clock)
    }

    /// Everything, for the status page.
    fn report(&self, sources: Option<&Sources>) -> Report {
        let mut report = Report::default();
        let now = self.clock.mono();
        let state = self.lock();
        report.line("leading", json!(state.leading), state.leading.to_string());
        if let Some(leader) = &state.leader {
            report.line("leader", json!(leader), leader.as_str());
        }
        let (value, text) = report::ago(self.lease_age());
        report.line("seed lease renewed", value, text);
        if let Some(sources) = sources {
            report::tell(&mut report, sources, state.expires, self.clock.now(), now);
        }
        for (name, part) in &state.parts {
            let value = json!({"stage": part.stage, "problem": part.problem});
            report.member("parts", ("", name), value, part.stage.clone());
        }
        for (name, (look, _)) in &state.informers {
            let StoreView { synced, objects, heard_at } = look();
            let (mut value, text) = report::ago(heard_at.map(|at| now.saturating_sub(at)));
            value["synced"] = json!(synced);
            value["objects"] = json!(objects);
            let synced = if synced { "synced" } else { "not synced" };
            let text = format!("{synced}, {objects} objects, last event {text}");
            report.member("watches", ("watch ", name), value, text);
        }
        report
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Plain values: no panic leaves them half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the listeners for probes and metrics.
pub(super) fn serve(
    settings: &Settings,
    env: &Environment,
    status: &Status,
    sources: Sources,
) -> Result<Vec<Server>, Error> {
    let (page, numbers, sources) = (status.clone(), status.clone(), Arc::new(sources));
    let told = Arc::clone(&sources);
    report::introduce(&env.metrics, env.clock.now());
    let probes = Routes::new()
        .checks(checks(status, patience(settings), settings.edge.liveness_tolerate_offline))
        .get_local("/statusz", move |request| page.report(Some(&told)).response(request));
    let mut metrics = Routes::new().metrics(env.metrics.clone(), move |metrics| {
        report::refresh(&numbers, &sources, metrics);
    });
    if settings.profiling {
        metrics = metrics.get("/debug/pprof", |_| Response::text(200, process::profile()));
    }
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

/// How long the first beat may be blocked: as long as any other one may be missed.
fn patience(settings: &Settings) -> Duration {
    let seed = &settings.controllers.seed;
    seed.lease_resync.saturating_mul(seed.lease_resync_miss_threshold)
}

/// With `tolerant` a garden that does not answer does not fail `/healthz`.
fn checks(status: &Status, patience: Duration, tolerant: bool) -> Checks {
    let (patient, ready, beat, alive) = (status.clone(), status.clone(), status.clone(), status.clone());
    let joined = status.clone();
    Checks::new()
        .healthz("ping", || true)
        .healthz("runtime-informer-sync", move || patient.informers_synced(tolerant))
        .healthz("periodic-health", move || beat.is_beating(patience, tolerant))
        .readyz("runtime-informer-sync", move || ready.is_ready())
        .readyz("seed", move || !joined.lock().seed_is_gone)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::base::clock::Simulated;

    fn informer(status: &Status, name: &'static str) -> Arc<AtomicBool> {
        let synced = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&synced);
        let look = move || StoreView { synced: asked.load(Ordering::SeqCst), ..StoreView::default() };
        status.informer(name, look);
        synced
    }

    #[test]
    fn readiness_comes_with_the_first_lists_and_stays() {
        let time = Simulated::new(Timestamp::from_unix(0), 1);
        let status = Status::new(Clock::new(time.clone()));
        assert!(!status.is_ready());
        status.leading(true);
        let (a, b) = (informer(&status, "a"), informer(&status, "b"));
        a.store(true, Ordering::SeqCst);
        assert!(!status.is_ready());
        b.store(true, Ordering::SeqCst);
        assert!(status.is_ready());
        let late = informer(&status, "late");
        assert!(status.is_ready());
        time.advance(Duration::from_secs(179));
        assert!(status.is_ready());
        // A list that never comes is no dip.
        time.advance(Duration::from_secs(2));
        assert!(!status.is_ready());
        late.store(true, Ordering::SeqCst);
        assert!(status.is_ready());
        status.forget_informers("");
        assert!(status.is_ready());
    }

    #[test]
    fn health_fails_while_the_way_to_the_first_beat_is_blocked() {
        let time = Simulated::new(Timestamp::from_unix(0), 1);
        let status = Status::new(Clock::new(time.clone()));
        let patience = Duration::from_secs(20);
        // Whether it is healthy, and whether it is if the garden may be offline.
        let health =
            |status: &Status| (status.is_beating(patience, false), status.is_beating(patience, true));
        let (good, bad, offline) = ((true, true), (false, false), (false, true));
        assert_eq!(health(&status), good);
        time.advance(Duration::from_secs(21));
        assert_eq!(health(&status), bad, "nobody is known to lead");
        status.leading(false);
        assert_eq!(health(&status), bad);
        status.standing_by("other");
        assert_eq!(health(&status), good);
        status.leading(true);
        status.stage("garden", "getting an identity");
        time.advance(Duration::from_secs(600));
        assert_eq!(health(&status), good, "an approval may take its time");
        status.problem("garden", "unreachable");
        assert_eq!(health(&status), good);
        time.advance(Duration::from_secs(21));
        status.problem("garden", "still unreachable");
        assert_eq!(health(&status), offline);
        status.seed_is_gone(true);
        assert_eq!(health(&status), good, "no beat is due");
        status.seed_is_gone(false);
        status.beat.begin(status.clock.mono(), patience);
        assert_eq!(health(&status), good, "the beat decides");
        status.beat.end();
        assert_eq!(health(&status), offline);
        status.recovered("garden");
        assert_eq!(health(&status), good);
        status.leading(false);
        time.advance(Duration::from_secs(21));
        assert_eq!(health(&status), bad, "the lease is lost and nobody has it");
        status.begin_anew();
        assert_eq!(health(&status), good);
    }

    #[test]
    fn the_stage_is_one_line() {
        let status = Status::new(Clock::new(Simulated::new(Timestamp::from_unix(0), 1)));
        assert!(!status.is_up());
        assert_eq!(status.line(), "looking for the leader's lease in the seed");
        status.standing_by("host-2");
        assert!(status.is_up());
        assert_eq!(status.line(), "standing by for host-2");
        status.leading(true);
        status.stage("garden", "running");
        status.problem("garden", "two\nlines");
        assert_eq!(status.line(), "leading; garden: running (two lines)");
        status.problem("garden", &"x".repeat(5_000));
        assert_eq!(status.line().chars().count(), LINE_CHARS_MAX);
        status.begin_anew();
        assert!(!status.is_up() && status.parts().is_empty());
    }

    #[test]
    fn who_stands_by_is_ready_and_names_the_leader() {
        let status = Status::new(Clock::new(Simulated::new(Timestamp::from_unix(0), 1)));
        status.standing_by("host-2_0a1b");
        assert!(status.is_ready());
        let page = || status.report(None).text();
        assert!(page().starts_with("leading: false\nleader: host-2_0a1b\n"), "{}", page());
        status.leading(true);
        assert!(page().starts_with("leading: true\nseed lease renewed: never\n"), "{}", page());
    }
}
