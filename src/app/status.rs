//! The state of the agent as it reports it: probes, metrics, and the stage of each part.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::clock::{Clock, Mono, Timestamp};
use crate::base::cut::one_line;
use crate::base::error::chain;
use crate::base::garden_time::GardenTime;
use crate::base::lock::IgnorePoison;
use crate::base::process;
use crate::base::sorted::SortedMap;
use crate::config::settings::Settings;
use crate::controllers::lease::LeaseHealth;
use crate::runtime::fence::Fence;
use crate::runtime::health::ThreadProgress;
use crate::runtime::store::StoreView;
use crate::serve::{Checks, HttpServer, Routes, ServerResponse};

use super::listen::listen;
use super::owed::OwedRenewal;
use super::report::{self, Call, Sources, StatusReport, Stores};
use super::{Environment, Error};

/// Time for the first list of a watch. After it, `/healthz` and `/readyz` fail (Gardener's `runtime-informer-sync`).
pub(super) const PATIENCE_OF_WATCHES: Duration = Duration::from_secs(180);

/// The status line for the service manager.
const LINE_CHARS_MAX: usize = 400;

/// The stage of a part of the agent, and its problem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartStatus {
    /// What the part is doing.
    pub stage: String,
    /// Why the part cannot continue, if it cannot.
    pub problem: Option<String>,
    /// When the problem began.
    pub(crate) since: Mono,
}

type Look = Box<dyn Fn() -> StoreView + Send>;

/// A watch on the status page.
pub(super) struct Watch {
    pub(super) name: &'static str,
    pub(super) view: StoreView,
    /// When the watch started.
    pub(super) since: Mono,
}

/// When the client certificate for the garden is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CertificateValidity {
    pub(super) begins: Timestamp,
    pub(super) expires: Timestamp,
}

/// The data of the status page at one moment.
pub(super) struct Snapshot {
    pub(super) now: Timestamp,
    pub(super) mono: Mono,
    /// When the process began.
    pub(super) begun: Mono,
    pub(super) leading: bool,
    pub(super) leader: Option<String>,
    pub(super) adrift_since: Option<Mono>,
    pub(super) was_ready: bool,
    pub(super) parts: SortedMap<&'static str, PartStatus>,
    pub(super) watches: Vec<Watch>,
    pub(super) stuck: Vec<&'static str>,
    pub(super) lease_age: Option<Duration>,
    pub(super) lease_trouble: Option<(Mono, String)>,
    pub(super) leases: SortedMap<String, Fence>,
    pub(super) validity: Option<CertificateValidity>,
    pub(super) stores: Option<Stores>,
    pub(super) known: SortedMap<&'static str, String>,
    pub(super) call: Call,
}

#[derive(Default)]
struct State {
    /// This agent's term runs; see [`State::leads`].
    leading: bool,
    fence: Option<Fence>,
    owed: OwedRenewal,
    /// The leader, if it is another agent.
    leader: Option<String>,
    /// Whether the agent was ready before; see [`AgentStatus::is_ready`].
    was_ready: bool,
    remark: Option<String>,
    clock_remark: Option<String>,
    garden_remark: Option<String>,
    webhook_remark: Option<String>,
    parts: SortedMap<&'static str, PartStatus>,
    informers: SortedMap<&'static str, (Look, Mono)>,
    validity: Option<CertificateValidity>,
    /// The leaders' Leases that this process may hold.
    leases: SortedMap<String, Fence>,
    /// The watches of the garden side.
    stores: Option<Stores>,
    /// What is known about garden and seed, by its label on the status page.
    known: SortedMap<&'static str, String>,
    call: Call,
}

impl State {
    /// Whether this agent leads now. A term needs a moment to end after the Lease was lost.
    fn leads(&self) -> bool {
        self.leading && self.fence.as_ref().is_none_or(Fence::is_held)
    }

    fn mark_leader(&mut self, now: Mono) {
        self.owed.mark_leader(self.leading, self.leader.is_some(), now);
    }

    fn mark_garden(&mut self, now: Mono) {
        let has_problem = self.parts.get(super::garden::PART).is_some_and(|part| part.problem.is_some());
        self.owed.mark_garden(has_problem, now);
    }

    fn informers_synced(&self, now: Mono, without_garden: bool) -> bool {
        self.informers.iter().all(|(name, (look, since))| {
            let excused = without_garden && name.starts_with("garden/");
            excused || now < since.saturating_add(PATIENCE_OF_WATCHES) || look().synced
        })
    }
}

/// All parts share this. A clone is cheap.
#[derive(Clone)]
pub struct AgentStatus {
    clock: Clock,
    /// When the process began.
    begun: Mono,
    pub(crate) beat: LeaseHealth,
    /// Threads that promise progress. They report each turn.
    pub(crate) progress: ThreadProgress,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for AgentStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentStatus").field("parts", &self.parts()).finish_non_exhaustive()
    }
}

impl AgentStatus {
    /// The state of an agent that has not started.
    pub fn new(clock: Clock) -> Self {
        let (progress, beat) = (ThreadProgress::new(clock.clone()), LeaseHealth::new());
        let state = State { owed: OwedRenewal::new(beat.clone(), clock.mono()), ..State::default() };
        Self { progress, begun: clock.mono(), clock, beat, state: Arc::new(Mutex::new(state)) }
    }

    /// The stage and the problem of each part.
    pub fn parts(&self) -> SortedMap<&'static str, PartStatus> {
        self.lock().parts.clone()
    }

    /// Notes that a part has reached a stage.
    pub(super) fn stage(&self, part: &'static str, stage: &str) {
        let mut state = self.lock();
        state.parts.insert(part, PartStatus { stage: stage.to_owned(), ..PartStatus::default() });
        state.mark_garden(self.clock.mono());
    }

    /// Like [`AgentStatus::stage`], but keeps the problem if the part has reached this stage before. True if the stage is new.
    pub(super) fn doing(&self, part: &'static str, stage: &str) -> bool {
        let mut state = self.lock();
        let known = &mut state.parts.entry(part).or_default().stage;
        let is_news = known != stage;
        stage.clone_into(known);
        is_news
    }

    /// Sets a remark for people who look at the Seed's conditions.
    pub(super) fn remark(&self, remark: Option<String>) {
        self.lock().remark = remark;
    }

    /// Sets a remark about the clock.
    pub(super) fn clock_remark(&self, remark: Option<String>) {
        self.lock().clock_remark = remark;
    }

    /// Sets a remark about objects that the garden withholds.
    pub(super) fn garden_remark(&self, remark: Option<String>) {
        self.lock().garden_remark = remark;
    }

    /// Sets a remark about webhooks that refuse writes to the seed.
    pub(super) fn webhook_remark(&self, remark: Option<String>) {
        self.lock().webhook_remark = remark;
    }

    /// All remarks, for the writers of conditions.
    pub(super) fn remarks(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move || {
            let state = state.lock().ignore_poison();
            let all = [&state.clock_remark, &state.garden_remark, &state.webhook_remark, &state.remark];
            let all: Vec<&str> = all.into_iter().flatten().map(String::as_str).collect();
            (!all.is_empty()).then(|| all.join(" "))
        }
    }

    /// Notes why a part cannot continue. Returns true if the reason is new.
    pub(super) fn problem(&self, part: &'static str, problem: &str) -> bool {
        let mut state = self.lock();
        let entry = state.parts.entry(part).or_default();
        let news = entry.problem.as_deref() != Some(problem);
        if entry.problem.is_none() {
            entry.since = self.clock.mono();
        }
        entry.problem = Some(problem.to_owned());
        state.mark_garden(self.clock.mono());
        news
    }

    /// Removes a part from the status.
    pub(super) fn forget(&self, part: &'static str) {
        self.lock().parts.remove(part);
    }

    /// Removes the problem of a part: it works again.
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

    /// Forgets the stages and problems: the parts have ended and restart. A ready agent stays ready.
    pub(super) fn begin_anew(&self) {
        let mut state = self.lock();
        (state.leading, state.leader, state.remark) = (false, None, None);
        (state.garden_remark, state.webhook_remark) = (None, None);
        state.parts.retain(|part, _| *part == super::reload::PART);
        state.leases.clear();
        state.fence = None;
        state.owed.begin_anew(self.clock.mono());
    }

    /// Removes what only a leader knows, after a term.
    pub(super) fn end_term(&self) {
        let mut state = self.lock();
        (state.garden_remark, state.webhook_remark, state.validity) = (None, None, None);
        state.known.clear();
        let stays = [super::clock::PART, super::clock::STATE, super::reload::PART];
        state.parts.retain(|part, _| stays.contains(part));
        state.mark_garden(self.clock.mono());
        state.owed.seed_is_gone(false);
    }

    /// Whether this agent leads, and holds the Lease.
    pub(super) fn is_leading(&self) -> bool {
        self.lock().leads()
    }

    /// Whether the agent leads, or waits for its turn while another agent leads.
    pub(super) fn is_up(&self) -> bool {
        let state = self.lock();
        state.leads() || state.leader.is_some()
    }

    /// The stage in one line, for a service manager.
    pub(super) fn line(&self) -> String {
        let state = self.lock();
        let mut line = match (state.leads(), &state.leader) {
            (true, _) => "leading".to_owned(),
            (false, Some(leader)) => format!("standing by for {leader}"),
            (false, None) => "looking for the leader's lease in the seed".to_owned(),
        };
        for (name, part) in &state.parts {
            let problem = part.problem.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
            line.push_str(&format!("; {name}: {}{problem}", part.stage));
        }
        one_line(&line).chars().take(LINE_CHARS_MAX).collect()
    }

    /// Notes that another agent leads.
    pub(super) fn standing_by(&self, leader: &str) {
        let mut state = self.lock();
        state.leader = Some(leader.to_owned());
        state.mark_leader(self.clock.mono());
    }

    /// Notes that an informer was started.
    pub(super) fn informer(&self, name: &'static str, look: impl Fn() -> StoreView + Send + 'static) {
        self.lock().informers.insert(name, (Box::new(look), self.clock.mono()));
    }

    /// Forgets the informers whose names have this prefix: they have ended.
    pub(super) fn forget_informers(&self, prefix: &str) {
        self.lock().informers.retain(|name, _| !name.starts_with(prefix));
    }

    /// Notes whether the Seed was deleted in the garden. Returns true if this is new.
    pub(super) fn seed_is_gone(&self, gone: bool) -> bool {
        self.lock().owed.seed_is_gone(gone)
    }

    /// Whether every informer has received its first list, or has waited less than [`PATIENCE_OF_WATCHES`] for it. The
    /// informers of the garden can be left out.
    fn informers_synced(&self, without_garden: bool) -> bool {
        self.lock().informers_synced(self.clock.mono(), without_garden)
    }

    /// Sets how long the first renewal of the seed's Lease may take, and whether the garden may be away.
    pub(super) fn allow(&self, patience: Duration, is_tolerant: bool) {
        self.lock().owed.allow(patience, is_tolerant);
    }

    /// Gardener's `periodic-health`.
    fn is_beating(&self) -> bool {
        self.lock().owed.passes(&self.clock)
    }

    /// The agent is ready if another agent leads, or if this one leads and has received the first list of all its
    /// watches once. Watches come and go with the garden and with the Lease of the applier. A later watch has time for
    /// its first list, so that readiness does not flap.
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

    /// Notes the validity of the present certificate for the garden.
    pub(super) fn certificate(&self, validity: Option<CertificateValidity>) {
        self.lock().validity = validity;
    }

    pub(super) fn validity(&self) -> Option<CertificateValidity> {
        self.lock().validity
    }

    /// Notes something about garden or seed that people want to know, by its label.
    pub(super) fn know(&self, label: &'static str, what: impl Into<String>) {
        self.lock().known.insert(label, what.into());
    }

    /// Sets how people call the program, for commands that they copy.
    pub(super) fn called(&self, call: Call) {
        self.lock().call = call;
    }

    /// Sets the watches of the garden side, while it runs.
    pub(super) fn watched(&self, stores: Option<Stores>) {
        self.lock().stores = stores;
    }

    pub(super) fn stores(&self) -> Option<Stores> {
        self.lock().stores.clone()
    }

    /// Notes a leader's Lease that this process may hold.
    pub(super) fn lease(&self, name: String, fence: &Fence) {
        self.lock().leases.insert(name, fence.clone());
    }

    /// Notes the Lease of the leader: while it is not held, this agent does not lead.
    pub(super) fn leaders_lease(&self, name: String, fence: &Fence) {
        self.lease(name, fence);
        self.lock().fence = Some(fence.clone());
    }

    /// The leaders' Leases that this process may hold.
    pub(super) fn leases(&self) -> SortedMap<String, Fence> {
        self.lock().leases.clone()
    }

    /// The time since the last renewal of the seed's Lease.
    pub(super) fn lease_age(&self) -> Option<Duration> {
        self.beat.age(&self.clock)
    }

    /// The data of the status page. `time` is the clock of the agent's stamps, if it has started.
    fn snapshot(&self, time: Option<&GardenTime>) -> Snapshot {
        // The first request for the page may come before the first probe.
        self.is_ready();
        let state = self.lock();
        let watch = |(name, (look, since)): (&&'static str, &(Look, Mono))| Watch {
            name,
            view: look(),
            since: *since,
        };
        Snapshot {
            now: time.map_or_else(|| self.clock.now(), |time| time.garden_clock().now()),
            mono: self.clock.mono(),
            begun: self.begun,
            leading: state.leads(),
            leader: state.leader.clone(),
            adrift_since: state.owed.adrift_since(),
            was_ready: state.was_ready,
            parts: state.parts.clone(),
            watches: state.informers.iter().map(watch).collect(),
            stuck: self.progress.stuck(),
            lease_age: self.lease_age(),
            lease_trouble: self.beat.trouble(),
            leases: state.leases.clone(),
            validity: state.validity.filter(|_| state.leads()),
            stores: state.stores.clone(),
            known: state.known.clone(),
            call: state.call.clone(),
        }
    }

    fn report(&self, sources: Option<&Sources>) -> StatusReport {
        StatusReport::of(&self.snapshot(sources.map(|sources| &sources.time)), sources)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The fields are plain values, so a panic cannot leave them half changed.
        self.state.lock().ignore_poison()
    }
}

/// Starts the listeners for probes and metrics.
pub(super) fn serve(
    settings: &Settings,
    env: &Environment,
    status: &AgentStatus,
    sources: Sources,
) -> Result<Vec<HttpServer>, Error> {
    let tolerant = settings.edge.liveness_tolerate_offline;
    status.allow(patience(settings), tolerant);
    let (page, numbers, sources) = (status.clone(), status.clone(), Arc::new(sources));
    let told = Arc::clone(&sources);
    report::introduce(&env.metrics, env.clock.now());
    let probes = Routes::new()
        .checks(checks(status, tolerant))
        .get("", report::front)
        .get_local("/statusz", move |request| page.report(Some(&told)).response(request));
    let mut metrics = Routes::new().metrics(env.metrics.clone(), move |metrics| {
        report::refresh(&numbers, &sources, metrics);
    });
    if settings.profiling {
        metrics = metrics.get("/debug/pprof", |_| ServerResponse::text(200, process::profile()));
    }
    Ok(vec![
        listen("probes", "server.healthProbes", &settings.health_probes, probes, env)?,
        listen("metrics", "server.metrics", &settings.metrics, metrics, env)?,
    ])
}

/// The time for which the first heartbeat may be blocked. It is the time for which later ones may fail.
fn patience(settings: &Settings) -> Duration {
    let seed = &settings.controllers.seed;
    seed.lease_resync.saturating_mul(seed.lease_resync_miss_threshold)
}

/// With `tolerant`, `/healthz` does not fail for a garden that does not answer.
fn checks(status: &AgentStatus, tolerant: bool) -> Checks {
    let (patient, ready, beat, alive) = (status.clone(), status.clone(), status.clone(), status.clone());
    let joined = status.clone();
    Checks::new()
        .healthz("ping", || true)
        .healthz("runtime-informer-sync", move || patient.informers_synced(tolerant))
        .healthz("periodic-health", move || beat.is_beating())
        .readyz("runtime-informer-sync", move || ready.is_ready())
        .readyz("seed", move || !joined.lock().owed.is_seed_gone())
        .livez("threads", move || alive.progress.stuck().is_empty())
}

/// Sets the problem of a part, and logs it if it is new.
pub(super) fn complain(status: &AgentStatus, part: &'static str, error: &(dyn std::error::Error + 'static)) {
    let err = chain(error);
    let stage = status.parts().get(part).map(|p| p.stage.clone()).unwrap_or_default();
    if status.problem(part, &err) {
        log::warn!(part = part, stage = stage.as_str(), err = err.as_str(); "Cannot continue; trying again");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::base::clock::Simulated;
    use crate::controllers::lease::BeatOutcome;

    fn informer(status: &AgentStatus, name: &'static str) -> Arc<AtomicBool> {
        let synced = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&synced);
        let look = move || StoreView { synced: asked.load(Ordering::SeqCst), ..StoreView::default() };
        status.informer(name, look);
        synced
    }

    #[test]
    fn readiness_comes_with_the_first_lists_and_stays() {
        let time = Simulated::new(Timestamp::from_unix(0), 1);
        let status = AgentStatus::new(Clock::new(time.clone()));
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
        // A list that never arrives does not make the agent unready.
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
        let patience = Duration::from_secs(20);
        // A plain agent, and one whose garden may be offline.
        let both = [false, true].map(|is_tolerant| {
            let status = AgentStatus::new(Clock::new(time.clone()));
            status.allow(patience, is_tolerant);
            status
        });
        let health = |act: &dyn Fn(&AgentStatus)| {
            both.iter().for_each(act);
            (both[0].is_beating(), both[1].is_beating())
        };
        let problem = |why: &'static str| {
            move |status: &AgentStatus| assert!(status.problem("garden", why), "{why} is news")
        };
        let gone = |is_gone| move |status: &AgentStatus| assert!(status.seed_is_gone(is_gone), "it is news");
        let later = |seconds| time.advance(Duration::from_secs(seconds));
        let (good, bad, offline) = ((true, true), (false, false), (false, true));
        assert_eq!(health(&|_| {}), good);
        later(21);
        assert_eq!(health(&|_| {}), bad, "nobody is known to lead");
        assert_eq!(health(&|status| status.leading(false)), bad);
        assert_eq!(health(&|status| status.standing_by("other")), good);
        health(&|status| status.leading(true));
        health(&|status| status.stage("garden", "getting an identity"));
        later(600);
        assert_eq!(health(&|_| {}), good, "an approval may take its time");
        assert_eq!(health(&problem("unreachable")), good);
        later(21);
        assert_eq!(health(&problem("still unreachable")), offline);
        assert_eq!(health(&gone(true)), good, "no beat is due");
        assert_eq!(health(&gone(false)), offline);
        assert_eq!(health(&|status| status.recovered("garden")), offline, "it has not renewed yet");
        health(&|status| status.beat.begin(status.clock.mono(), patience));
        assert_eq!(health(&|_| {}), offline);
        health(&|status| status.beat.record(BeatOutcome::Renewed, status.clock.mono(), patience));
        assert_eq!(health(&|_| {}), good);
        health(&problem("refused"));
        later(19);
        assert_eq!(health(&|_| {}), good, "the beat decides");
        health(&|status| status.beat.pause());
        assert_eq!(health(&|status| status.leading(false)), good);
        later(21);
        assert_eq!(health(&|_| {}), bad, "the lease is lost and nobody has it");
        assert_eq!(health(&|status| status.begin_anew()), bad);
    }

    #[test]
    fn who_does_not_hold_the_lease_does_not_lead() {
        let time = Simulated::new(Timestamp::from_unix(0), 1);
        let clock = Clock::new(time.clone());
        let (status, fence) = (AgentStatus::new(clock.clone()), Fence::new(clock.clone(), "l"));
        status.leaders_lease("garden/l".to_owned(), &fence);
        let leads = || {
            let line = status.line().starts_with("leading");
            assert_eq!(
                (status.is_leading(), status.is_up(), status.snapshot(None).leading),
                (line, line, line)
            );
            line
        };
        fence.renew(clock.mono(), Duration::from_secs(10));
        assert!(!leads(), "the term has not begun");
        status.leading(true);
        assert!(leads());
        time.advance(Duration::from_secs(10));
        assert!(!leads(), "the term has not ended yet");
        fence.renew(clock.mono(), Duration::from_secs(10));
        assert!(leads());
    }

    #[test]
    fn a_leader_that_loses_its_lease_leaves_its_problems_behind() {
        let status = AgentStatus::new(Clock::new(Simulated::new(Timestamp::from_unix(100), 1)));
        status.leading(true);
        status.problem("seed", "denied");
        status.problem("clock", "wrong");
        status.garden_remark(Some("a".to_owned()));
        status.webhook_remark(Some("b".to_owned()));
        status.clock_remark(Some("c".to_owned()));
        status.seed_is_gone(true);
        let (begins, expires) = (Timestamp::from_unix(0), Timestamp::from_unix(50));
        status.certificate(Some(CertificateValidity { begins, expires }));
        let page = || status.report(None).text(false);
        assert!(page().starts_with("3 problems: "), "{}", page());
        status.end_term();
        status.leading(false);
        status.standing_by("host-2");
        let expected = "1 problem: clock: wrong\n\nProblems\n  clock (for 0 s): wrong\n\nAgent\n";
        assert!(page().starts_with(expected) && !page().contains("certificate expires"), "{}", page());
        assert!(!page().contains("seed lease renewed"), "{}", page());
        assert!(!status.seed_is_gone(false), "another leader looks at the Seed");
        assert_eq!((status.remarks()().as_deref(), status.validity()), (Some("c"), None));
        status.stage("clock", "right");
        assert!(page().starts_with("standing by for host-2\n"), "{}", page());
    }

    #[test]
    fn the_page_judges_by_the_time_that_stamps_have() {
        const NOW: i64 = 1_767_600_000;
        let hour = 3_600;
        for off in [-hour, hour] {
            let machine = Clock::new(Simulated::new(Timestamp::from_unix(NOW + off), 1));
            let status = AgentStatus::new(machine.clone());
            let time = GardenTime::new(machine.clone(), Timestamp::from_unix(NOW - 10 * hour), None);
            let seen = |status: &AgentStatus| status.snapshot(Some(&time)).now.unix() - NOW;
            assert_eq!(seen(&status), off, "nobody knows better");
            time.learn(Timestamp::from_unix(NOW), machine.mono(), machine.mono());
            assert!((0..=1).contains(&seen(&status)), "{off}: {}", seen(&status));
            assert_eq!(status.snapshot(None).now.unix() - NOW, off);
            status.leading(true);
            let validity = |until: i64| {
                let at = |unix| Timestamp::from_unix(NOW + unix);
                status.certificate(Some(CertificateValidity { begins: at(-hour), expires: at(until) }));
                let snapshot = status.snapshot(Some(&time));
                StatusReport::of(&snapshot, None).text(false)
            };
            assert!(!validity(hour / 2).contains("expired"), "{off}");
            assert!(validity(-hour / 2).contains("the certificate has expired"), "{off}");
        }
    }

    #[test]
    fn the_stage_is_one_line() {
        let status = AgentStatus::new(Clock::new(Simulated::new(Timestamp::from_unix(0), 1)));
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
        let status = AgentStatus::new(Clock::new(Simulated::new(Timestamp::from_unix(0), 1)));
        status.standing_by("host-2_0a1b");
        assert!(status.is_ready());
        let page = || status.report(None).text(false);
        let expected = "standing by for host-2_0a1b\n\nAgent\n  leading: false\n  leader: host-2_0a1b\n";
        assert!(page().starts_with(expected), "{}", page());
        status.leading(true);
        assert!(page().starts_with("starting: seed: not started\n\nAgent\n  leading: true\n"), "{}", page());
        assert!(page().contains("\n  seed lease renewed: never\n"), "{}", page());
    }
}
