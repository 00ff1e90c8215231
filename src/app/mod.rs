//! The whole agent: how it starts its parts, in which order, and what ends them.
//!
//! One process serves one seed. The instances elect a leader with a Lease of the seed. A leader's *term* has two sides.
//! The seed side (definitions, the applier of ManagedResources) starts as soon as the seed answers. The garden side is
//! a state machine from "find the identity" to "run the controllers". After a failure it continues with the state that
//! it has reached. An unreachable garden is a condition and a metric, and never a reason to exit.

mod applier;
mod clients;
mod clock;
mod controllers;
mod error;
mod garden;
pub(crate) mod host;
mod listen;
pub(crate) mod networks;
mod owed;
mod process;
mod rebootstrap;
mod reload;
mod report;
mod seed;
mod service;
mod status;
pub(crate) mod versions;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::backoff::Backoff;
use crate::base::clock::{Clock, Mono, Timestamp};
use crate::base::error::chain;
use crate::base::garden_time::GardenTime;
use crate::base::metrics::Metrics;
use crate::base::sorted::SortedMap;
use crate::base::state::StateDir;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::chart::child::Renderer;
use crate::components::images::{self, Images};
use crate::config::settings::Settings;
use crate::controllers::network_policy::NetworkPolicyWatches;
use crate::controllers::seed::SeedRegistration;
use crate::controllers::token_requestor;
use crate::kube;
use crate::limits;
use crate::net::{Dial, ProxyEnv, SystemCas};
use crate::oci;
use crate::pki::keys::RsaKeys;
use crate::resources::ManagedResourceHead;
use crate::runtime::events::EventRecorder;
use crate::runtime::fence::Fence;
use crate::runtime::leader::{self, ElectionListener, Elector};
use crate::runtime::pool::{Lanes, Pool};
use crate::runtime::source::WatchSource;
use crate::shoot::ServedShoots;

pub use error::Error;
pub use process::{ask_for_identity, process};
pub use rebootstrap::rebootstrap;
pub use reload::Reloader;
pub(crate) use report::{BRIEF, RUN, State as AgentState};
pub use service::Service;
pub use status::AgentStatus;

/// What the surroundings (`main`, a test, the playground) give to the agent.
#[derive(Clone)]
pub struct Environment {
    /// Time.
    pub clock: Clock,
    /// When the program was built: the time cannot be earlier.
    pub built: Timestamp,
    /// It opens the sockets of connections.
    pub dialer: Arc<dyn Dial>,
    /// Ends the agent when it is pulled.
    pub stop: Stop,
    /// The metrics.
    pub metrics: Metrics,
    /// The process environment.
    pub variables: SortedMap<String, String>,
    /// The name of the host.
    pub hostname: String,
    /// Renders charts.
    pub renderer: Renderer,
    /// The source of RSA keys.
    pub keys: Arc<dyn RsaKeys>,
    /// Where the kubelet mounts the ServiceAccount.
    pub service_account_dir: PathBuf,
}

impl Environment {
    /// A variable of the environment; an empty one counts as absent.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn proxies(&self) -> ProxyEnv {
        ProxyEnv::from_lookup(|name| self.variable(name).map(str::to_owned))
    }

    fn system_cas(&self) -> SystemCas {
        SystemCas::from_lookup(|name| self.variable(name).map(str::to_owned))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Variables may contain passwords of proxies.
        f.debug_struct("Environment").field("hostname", &self.hostname).finish_non_exhaustive()
    }
}

/// What all parts share.
struct AgentContext {
    settings: Arc<Settings>,
    env: Environment,
    state: StateDir,
    /// The time of day.
    time: GardenTime,
    /// 64 hexadecimal digits, stable per instance.
    instance_id: String,
    clients: clients::Clients,
    lanes: Lanes,
    fence: Fence,
    events: EventRecorder,
    status: AgentStatus,
    registration: SeedRegistration,
    charts: oci::Cache,
    /// The applied ManagedResources of the seed during a term.
    managed: WatchSource<ManagedResourceHead>,
    /// The inputs of the seed's NetworkPolicies.
    policy_watches: NetworkPolicyWatches,
    /// The clusters of Shoots that the applier serves.
    served: ServedShoots,
    /// What the requestors of tokens share.
    tokens: token_requestor::TokenRequestorState,
    /// The images of control planes.
    images: Images,
    /// Set when all parts are about to restart.
    keep_leases: leader::KeepLease,
}

/// Runs the agent until `env.stop` is pulled. Errors: [`Error`] if the agent cannot start.
pub fn run(settings: Settings, env: &Environment, status: &AgentStatus) -> Result<(), Error> {
    run_reloading(Arc::new(settings), env, status, &Reloader::new(), &Service::default())
}

/// Like [`run`], with settings that may change: then the parts restart in place and keep their
/// leases. Errors: like [`run`], for the first start only. When a later start fails, the agent
/// returns to the previous settings.
pub fn run_reloading(
    settings: Arc<Settings>,
    env: &Environment,
    status: &AgentStatus,
    reloader: &Reloader,
    service: &Service,
) -> Result<(), Error> {
    let late = reload::late(env);
    let ended = run_rounds(settings, env, &late, status, reloader, service);
    reloader.end();
    late.stop();
    ended
}

/// State that a restart of the parts keeps.
fn run_rounds(
    mut settings: Arc<Settings>,
    env: &Environment,
    late: &Stop,
    status: &AgentStatus,
    reloader: &Reloader,
    service: &Service,
) -> Result<(), Error> {
    let mut kept = None;
    let mut previous: Option<Arc<Settings>> = None;
    loop {
        let round = reloader.begin(&settings, &env.stop);
        let ended = run_round(&settings, env, &late.child(), status, &round, &mut kept);
        if env.stop.is_stopped() {
            return ended;
        }
        match ended {
            Ok(()) => {
                status.begin_anew();
                service.reloaded();
                let Some(next) = reloader.take() else { return Ok(()) };
                previous = Some(std::mem::replace(&mut settings, next));
                log::info!("Restarting the parts in place");
            }
            Err(error) => {
                let Some(before) = previous.take() else { return Err(error) };
                let err = chain(&error);
                log::error!(err = err.as_str(); "The new configuration cannot be used; keeping the previous one");
                reload::refused(status, &err);
                reloader.returned();
                settings = before;
            }
        }
    }
}

/// Starts all parts, and waits for their end.
fn run_round(
    settings: &Arc<Settings>,
    env: &Environment,
    release: &Stop,
    status: &AgentStatus,
    round: &reload::RestartSignals,
    kept: &mut Option<StateDir>,
) -> Result<(), Error> {
    let (mut env, status) = (Environment { stop: round.stop.clone(), ..env.clone() }, status.clone());
    process::refuse_self_hosted(&env)?;
    let images = Images::load(env.variable(images::VARIABLE).map(Path::new)).map_err(Error::Images)?;
    let state = process::open_state(settings, &env, kept)?;
    let instance_id = process::instance_id(&state, &env);
    let time = clock::garden_time(&env, &state);
    env.clock = time.local_clock();
    let fence = Fence::new(env.clock.clone(), &settings.leader_election.resource_name);
    let clients = clients::Clients::new(settings, &env, &time, &fence)?;
    let system = |operation: &str| {
        let operation = operation.to_owned();
        move |source| Error::System { operation, source }
    };
    let mut pool = Pool::start(env.clock.clone(), &env.stop, env.metrics.clone(), settings.edge.workers)
        .map_err(system("start workers"))?;
    let sources = report::Sources::new(settings, &env, &pool, &state, &time);
    let (managed, charts) = (sources.managed.clone(), sources.charts.clone());
    // The workers end with the agent.
    let servers = status::serve(settings, &env, &status, sources).inspect_err(|_| env.stop.stop())?;
    let shared = Arc::new(AgentContext {
        settings: Arc::clone(settings),
        events: EventRecorder::new(&env.hostname),
        env,
        state,
        time,
        instance_id,
        clients,
        lanes: pool.lanes(),
        fence,
        status,
        registration: SeedRegistration::default(),
        charts,
        managed,
        policy_watches: NetworkPolicyWatches::default(),
        served: ServedShoots::default(),
        tokens: token_requestor::TokenRequestorState::default(),
        images,
        keep_leases: round.keep_leases.clone(),
    });
    let leading = Arc::new(Leading::new(&shared));
    let elector = campaign(&shared, &leading, release).map_err(system("start the leader election"))?;
    govern(&shared, &leading);
    pool.join();
    // This comes last: no part of this process writes any more when another instance takes the Lease.
    release.stop();
    if let Some(elector) = elector {
        join("leader election", elector);
    }
    drop(servers);
    log::info!("The parts of the gardenlet have ended");
    Ok(())
}

/// The name of the election's thread in the list of threads that promise progress.
const ELECTION: &str = "leader-election";

/// What the elector decides: whether this process leads.
struct Leading {
    now: AtomicBool,
    changed: Stop,
    status: AgentStatus,
    /// The watches that start again after a restore of the seed.
    seed: kube::Seed,
    /// The limit for one attempt of the election and the wait before it.
    patience: Duration,
}

impl Leading {
    fn new(shared: &AgentContext) -> Self {
        let election = &shared.settings.leader_election;
        let patience = (election.renew_deadline + election.renew_period) * 2;
        Self {
            now: AtomicBool::new(false),
            changed: Stop::new(),
            status: shared.status.clone(),
            seed: shared.clients.seed.clone(),
            patience: patience.max(shared.settings.edge.liveness_stall_timeout),
        }
    }
}

impl ElectionListener for Leading {
    fn elected(&self) {
        self.now.store(true, Ordering::SeqCst);
        self.changed.wake();
    }

    fn lost(&self) {
        self.now.store(false, Ordering::SeqCst);
        self.changed.wake();
    }

    fn restored(&self) {
        // The connection worked before.
        let _ = self.seed.begin_anew();
    }

    fn trying(&self) {
        self.status.progress.beat(ELECTION, self.patience);
    }

    fn standing_by(&self, holder: &str) {
        self.status.standing_by(holder);
    }
}

/// Starts the elector. Without an election this process leads at once.
fn campaign(
    shared: &Arc<AgentContext>,
    leading: &Arc<Leading>,
    release: &Stop,
) -> std::io::Result<Option<JoinHandle<()>>> {
    let changed = leading.changed.clone();
    shared.env.stop.on_stop(move || changed.stop());
    let election = &shared.settings.leader_election;
    shared
        .status
        .leaders_lease(format!("{}/{}", election.resource_namespace, election.resource_name), &shared.fence);
    if !election.leader_elect {
        shared.fence.extend(Duration::MAX);
        leading.elected();
        return Ok(None);
    }
    let options = leader::Options {
        namespace: election.resource_namespace.clone(),
        name: election.resource_name.clone(),
        holder: format!("{}_{}", shared.env.hostname, &shared.instance_id),
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
        renew_period: election.renew_period,
        keep: shared.keep_leases.clone(),
    };
    let mut elector = Elector::new(
        shared.clients.election.clone(),
        shared.env.clock.clone(),
        options,
        shared.fence.clone(),
        shared.env.metrics.clone(),
        Arc::<Leading>::clone(leading),
    );
    let (stop, progress) = (release.clone(), shared.status.progress.clone());
    let run = move || {
        elector.run(&stop);
        progress.end(ELECTION);
    };
    thread::spawn(ELECTION, limits::SMALL_STACK_BYTES, run).map(Some)
}

/// The term of a leader: every part that may write. If one part cannot start, the whole term ends: a restart of all
/// parts is better than an incomplete agent.
struct Term {
    stop: Stop,
    threads: Vec<(&'static str, JoinHandle<()>)>,
    begun: Mono,
}

impl Term {
    fn new(shared: &AgentContext) -> Self {
        Self { stop: shared.env.stop.child(), threads: Vec::new(), begun: shared.env.clock.mono() }
    }

    fn begin(shared: &Arc<AgentContext>, changed: &Stop) -> Self {
        let mut term = Self::new(shared);
        let (changed, stop) = (changed.clone(), term.stop.clone());
        stop.on_stop(move || changed.wake());
        let (side, seed_stop) = (Arc::clone(shared), stop.clone());
        term.spawn("seed-side", limits::WORKER_STACK_BYTES, move || seed::run(&side, &seed_stop));
        let side = Arc::clone(shared);
        term.spawn("garden-side", limits::WORKER_STACK_BYTES, move || garden::run(&side, &stop));
        term
    }

    fn spawn(&mut self, name: &'static str, stack_bytes: usize, body: impl FnOnce() + Send + 'static) {
        if let Some(handle) = started(name, &self.stop, thread::spawn(name, stack_bytes, body)) {
            self.threads.push((name, handle));
        }
    }

    fn end(self, status: &AgentStatus, metrics: &Metrics) {
        // Do this first: the stores are empty when their threads have ended.
        status.forget_informers("");
        self.stop.stop();
        for (name, handle) in self.threads {
            join(name, handle);
        }
        status.end_term();
        report::withdraw(metrics);
    }
}

/// Starts a thread of a term. If this fails, the term ends and [`govern`] starts another one.
fn started(name: &str, stop: &Stop, spawned: std::io::Result<JoinHandle<()>>) -> Option<JoinHandle<()>> {
    spawned
        .inspect_err(|e| {
            let err = chain(e);
            log::error!(thread = name, err = err.as_str(); "Cannot start a thread; all parts restart");
            stop.stop();
        })
        .ok()
}

/// How the term has to change.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Begin,
    End,
    /// The term ended by itself, because one of its parts is missing.
    EndAndWait,
    None,
}

/// Decides by whether this process leads, whether there is a term, and whether the term has ended.
fn change(leading: bool, term_ended: Option<bool>) -> Change {
    match (leading, term_ended) {
        (true, None) => Change::Begin,
        (false, Some(_)) => Change::End,
        (true, Some(true)) => Change::EndAndWait,
        (true, Some(false)) | (false, None) => Change::None,
    }
}

/// The pause after a term that could not start all its parts. The heartbeat pauses too, so this must be well below 40
/// s: then the garden considers the seed lost.
const TERM_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// A term of this length resets the count of failures.
const LONG_TERM: Duration = Duration::from_secs(60);

/// Starts and ends terms until the agent stops.
fn govern(shared: &Arc<AgentContext>, leading: &Leading) {
    let (env, status) = (&shared.env, &shared.status);
    let mut term: Option<Term> = None;
    let mut backoff = Backoff::new(TERM_RETRY.0, TERM_RETRY.1);
    let mut keeper = clock::ClockWatch::new(shared.time.clone(), shared.state.clone());
    while !env.stop.is_stopped() {
        keeper.look(env, status);
        let seen = leading.changed.wakes();
        let ended = term.as_ref().map(|term| term.stop.is_stopped());
        let change = change(leading.now.load(Ordering::SeqCst), ended);
        if matches!(change, Change::End | Change::EndAndWait)
            && let Some(ending) = term.take()
        {
            let lasted = env.clock.mono().saturating_sub(ending.begun);
            ending.end(status, &env.metrics);
            if lasted >= LONG_TERM {
                backoff.reset();
            }
        }
        match change {
            Change::Begin => term = Some(Term::begin(shared, &leading.changed)),
            Change::EndAndWait => {
                env.stop.wait(&env.clock, backoff.next_delay());
                continue;
            }
            Change::End | Change::None => {}
        }
        status.leading(term.is_some());
        leading.changed.wait_since(&env.clock, seen, clock::LOOK);
    }
    keeper.store();
    if let Some(term) = term {
        term.end(status, &env.metrics);
    }
}

fn join(name: &str, handle: JoinHandle<()>) {
    if handle.join().is_err() {
        log::error!(thread = name; "A thread ended with a panic");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_a_term() {
        let table = [
            (false, None, Change::None),
            (true, None, Change::Begin),
            (true, Some(false), Change::None),
            (true, Some(true), Change::EndAndWait),
            (false, Some(false), Change::End),
            (false, Some(true), Change::End),
        ];
        for (leading, ended, expected) in table {
            assert_eq!(change(leading, ended), expected, "{leading} {ended:?}");
        }
    }

    #[test]
    fn a_term_without_one_of_its_threads_is_over() {
        let mut term = Term { stop: Stop::new(), threads: Vec::new(), begun: Mono::ZERO };
        term.spawn("good", 64 << 10, || {});
        assert!(!term.stop.is_stopped());
        // No system has that much memory.
        term.spawn("too large", usize::MAX / 2, || {});
        assert!(term.stop.is_stopped());
        assert_eq!(term.threads.len(), 1);
        let (status, metrics) = (AgentStatus::new(Clock::system()), Metrics::new());
        status.problem("garden", "away");
        metrics.set(kube::REACHABLE, "", &[("peer", "garden")], 0.0);
        term.end(&status, &metrics);
        assert!(status.parts().is_empty() && metrics.text().is_empty(), "the last term has left something");
    }
}
