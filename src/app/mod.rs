//! The agent as a whole: how its parts are started, in which order, and what ends them.
//!
//! One process, one seed. Instances elect a leader over a Lease of the seed; the leader's *term* has two sides. The seed
//! side (definitions, the applier of ManagedResources) starts as soon as the seed answers. The garden side is a state
//! machine, from "who are we" to "controllers run", that goes on from where it stands after every failure: an unreachable
//! garden is a condition and a metric, never a reason to exit.

mod applier;
mod clients;
mod clock;
mod controllers;
mod error;
mod garden;
mod host;
mod networks;
mod process;
mod rebootstrap;
mod reload;
mod report;
mod seed;
mod service;
mod status;
mod versions;

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
use crate::controllers::network_policy::Sight;
use crate::controllers::seed::Registration;
use crate::controllers::token_requestor;
use crate::kube;
use crate::limits;
use crate::net::{Dial, ProxyEnv, SystemCas};
use crate::oci;
use crate::pki::keys::RsaKeys;
use crate::resources::Watched;
use crate::runtime::events::Recorder;
use crate::runtime::fence::Fence;
use crate::runtime::leader::{self, Elector, Listener};
use crate::runtime::pool::{Lanes, Pool};
use crate::runtime::source::Source;
use crate::shoot::Served;

pub use error::Error;
pub use process::{ask_for_identity, process};
pub use rebootstrap::rebootstrap;
pub use reload::Reloader;
pub use service::Service;
pub use status::Status;

/// What the agent is handed by its surroundings: `main`, a test, the playground.
#[derive(Clone)]
pub struct Environment {
    /// Time.
    pub clock: Clock,
    /// When the program was built: no clock can be before it.
    pub built: Timestamp,
    /// Opens connections.
    pub dialer: Arc<dyn Dial>,
    /// Pulled to end the agent.
    pub stop: Stop,
    /// Counters.
    pub metrics: Metrics,
    /// The process environment.
    pub variables: SortedMap<String, String>,
    /// The host's name.
    pub hostname: String,
    /// Renders charts.
    pub renderer: Renderer,
    /// Where RSA keys come from.
    pub keys: Arc<dyn RsaKeys>,
    /// Where the kubelet mounts the ServiceAccount.
    pub service_account_dir: PathBuf,
}

impl Environment {
    /// A variable of the environment; an empty one counts as absent.
    pub fn variable(&self, name: &str) -> Option<&str> {
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
        // Variables may hold passwords of proxies.
        f.debug_struct("Environment").field("hostname", &self.hostname).finish_non_exhaustive()
    }
}

/// What all parts share.
struct Shared {
    settings: Arc<Settings>,
    env: Environment,
    state: StateDir,
    /// What time it is.
    time: GardenTime,
    /// 64 hexadecimal digits, stable per instance.
    instance_id: String,
    clients: clients::Clients,
    lanes: Lanes,
    fence: Fence,
    events: Recorder,
    status: Status,
    registration: Registration,
    /// Charts of registries.
    charts: oci::Cache,
    /// The ManagedResources of the seed, kept while a term lasts.
    managed: Source<Watched>,
    /// What the NetworkPolicies of the seed are made of.
    sight: Sight,
    /// The clusters of Shoots that the applier serves.
    served: Served,
    /// What the requestors of tokens share.
    tokens: token_requestor::Shared,
    /// The images of control planes.
    images: Images,
    /// Set when the agent will begin anew at once.
    keep_leases: leader::Keep,
}

/// Runs the agent until `env.stop` is pulled.
///
/// # Errors
/// [`Error`], before anything was started.
pub fn run(settings: Settings, env: &Environment, status: &Status) -> Result<(), Error> {
    run_reloading(Arc::new(settings), env, status, &Reloader::new(), &Service::default())
}

/// The same, with settings that may change: the parts restart in place, under the same leases.
///
/// # Errors
/// As [`run`], of the first start. Later ones go back to the settings before.
pub fn run_reloading(
    settings: Arc<Settings>,
    env: &Environment,
    status: &Status,
    reloader: &Reloader,
    service: &Service,
) -> Result<(), Error> {
    let late = reload::late(env);
    let ended = run_rounds(settings, env, &late, status, reloader, service);
    reloader.end();
    late.stop();
    ended
}

/// From round to round.
fn run_rounds(
    mut settings: Arc<Settings>,
    env: &Environment,
    late: &Stop,
    status: &Status,
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
                log::error!(err = err.as_str(); "The new configuration cannot be used; going on with the one before");
                settings = before;
            }
        }
    }
}

/// From the start of all parts to their end.
fn run_round(
    settings: &Arc<Settings>,
    env: &Environment,
    release: &Stop,
    status: &Status,
    round: &reload::Round,
    kept: &mut Option<StateDir>,
) -> Result<(), Error> {
    let (mut env, status) = (Environment { stop: round.stop.clone(), ..env.clone() }, status.clone());
    process::refuse_self_hosted(&env)?;
    let images = Images::load(env.variable(images::VARIABLE).map(Path::new)).map_err(Error::Images)?;
    let state = process::open_state(settings, &env, kept)?;
    let instance_id = process::instance_id(&state, &env)?;
    let time = clock::garden_time(&env, &state);
    env.clock = time.local_clock();
    let fence = Fence::new(env.clock.clone(), &settings.leader_election.resource_name);
    let clients = clients::Clients::new(settings, &env, &time, &fence)?;
    let system = |operation: &str| {
        let operation = operation.to_owned();
        move |source| Error::System { operation, source }
    };
    let workers = settings.edge.workers;
    let mut pool = Pool::start(env.clock.clone(), &env.stop, env.metrics.clone(), workers)
        .map_err(system("start workers"))?;
    let charts = oci::Cache::new(state.path(), settings.edge.chart_cache_bytes_max);
    let sources = report::Sources {
        seed: settings.seed_config.name.clone(),
        begun: env.clock.mono(),
        workers,
        metrics: env.metrics.clone(),
        pool: pool.view(),
        charts: charts.clone(),
        chart_bytes_max: settings.edge.chart_cache_bytes_max,
        time: time.clone(),
    };
    // The workers end with the agent.
    let servers = status::serve(settings, &env, &status, sources).inspect_err(|_| env.stop.stop())?;
    let shared = Arc::new(Shared {
        settings: Arc::clone(settings),
        events: Recorder::new(&env.hostname),
        env,
        state,
        time,
        instance_id,
        clients,
        lanes: pool.lanes(),
        fence,
        status,
        registration: Registration::default(),
        charts,
        managed: Source::default(),
        sight: Sight::default(),
        served: Served::default(),
        tokens: token_requestor::Shared::default(),
        images,
        keep_leases: round.keep_leases.clone(),
    });
    let leading = Arc::new(Leading::new(&shared));
    let elector = campaign(&shared, &leading, release).map_err(system("start the leader election"))?;
    govern(&shared, &leading);
    pool.join();
    // Last: nothing of ours writes any more when another instance may begin.
    release.stop();
    if let Some(elector) = elector {
        join("leader election", elector);
    }
    drop(servers);
    log::info!("The parts of the gardenlet have ended");
    Ok(())
}

/// What the thread of the election is called where it promises progress.
const ELECTION: &str = "leader-election";

/// Whether we lead, as the elector says.
struct Leading {
    now: AtomicBool,
    changed: Stop,
    status: Status,
    /// Whose watches begin anew when the seed was restored.
    seed: kube::Seed,
    /// How long the election may take for a try, and for the wait before it.
    patience: Duration,
}

impl Leading {
    fn new(shared: &Shared) -> Self {
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

impl Listener for Leading {
    fn elected(&self) {
        self.now.store(true, Ordering::SeqCst);
        self.changed.wake();
    }

    fn lost(&self) {
        self.now.store(false, Ordering::SeqCst);
        self.changed.wake();
    }

    fn restored(&self) {
        // The connection was good before.
        let _ = self.seed.begin_anew();
    }

    fn trying(&self) {
        self.status.progress.beat(ELECTION, self.patience);
    }

    fn standing(&self, holder: &str) {
        self.status.standing_by(holder);
    }
}

/// Starts the elector, or leads at once if there is no election.
fn campaign(
    shared: &Arc<Shared>,
    leading: &Arc<Leading>,
    release: &Stop,
) -> std::io::Result<Option<JoinHandle<()>>> {
    let changed = leading.changed.clone();
    shared.env.stop.on_stop(move || changed.stop());
    let election = &shared.settings.leader_election;
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

/// A leader's term: everything that may write. A part of it that cannot be started ends it: half an agent would be worse
/// than one that begins anew.
struct Term {
    stop: Stop,
    threads: Vec<(&'static str, JoinHandle<()>)>,
    begun: Mono,
}

impl Term {
    fn new(shared: &Shared) -> Self {
        Self { stop: shared.env.stop.child(), threads: Vec::new(), begun: shared.env.clock.mono() }
    }

    fn begin(shared: &Arc<Shared>, changed: &Stop) -> Self {
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

    fn end(self, status: &Status) {
        // Before: their stores know nothing once they have ended.
        status.forget_informers("");
        self.stop.stop();
        for (name, handle) in self.threads {
            join(name, handle);
        }
    }
}

/// A thread of a term; without it the term ends, and [`govern`] begins another one.
fn started(name: &str, stop: &Stop, spawned: std::io::Result<JoinHandle<()>>) -> Option<JoinHandle<()>> {
    spawned
        .inspect_err(|e| {
            let err = chain(e);
            log::error!(thread = name, err = err.as_str(); "A thread cannot be started; everything begins anew");
            stop.stop();
        })
        .ok()
}

/// What to do about the term.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Begin,
    End,
    /// It ended by itself: a part of it is missing.
    EndAndWait,
    None,
}

/// From whether we lead, and whether there is a term and it has ended.
fn change(leading: bool, term_ended: Option<bool>) -> Change {
    match (leading, term_ended) {
        (true, None) => Change::Begin,
        (false, Some(_)) => Change::End,
        (true, Some(true)) => Change::EndAndWait,
        (true, Some(false)) | (false, None) => Change::None,
    }
}

/// Between two terms of which the first was not complete. The heartbeat pauses as long, so that it stays well within the
/// time after which the garden calls the seed lost (40 s).
const TERM_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// After a term of this length, failures of before count no more.
const LONG_TERM: Duration = Duration::from_secs(60);

/// Starts and ends terms until the agent stops.
fn govern(shared: &Arc<Shared>, leading: &Leading) {
    let (env, status) = (&shared.env, &shared.status);
    let mut term: Option<Term> = None;
    let mut backoff = Backoff::new(TERM_RETRY.0, TERM_RETRY.1);
    let mut keeper = clock::Keeper::new(shared.time.clone(), shared.state.clone());
    while !env.stop.is_stopped() {
        keeper.look(env, status);
        let seen = leading.changed.wakes();
        let ended = term.as_ref().map(|term| term.stop.is_stopped());
        let change = change(leading.now.load(Ordering::SeqCst), ended);
        if matches!(change, Change::End | Change::EndAndWait)
            && let Some(ending) = term.take()
        {
            let lasted = env.clock.mono().saturating_sub(ending.begun);
            ending.end(status);
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
        term.end(status);
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
        // No system has so much room.
        term.spawn("too large", usize::MAX / 2, || {});
        assert!(term.stop.is_stopped());
        assert_eq!(term.threads.len(), 1);
        term.end(&Status::new(Clock::system()));
    }
}
