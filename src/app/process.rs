//! The agent as a process: log, signals, environment, exit code.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::base::clock::{Clock, Timestamp};
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::base::log as logging;
use crate::base::metrics::Metrics;
use crate::base::signal;
use crate::base::sorted::SortedMap;
use crate::base::state::StateDir;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::chart::child::Renderer;

use crate::config::file::load_to_run;
use crate::config::version::{BUILT_UNIX_S, GARDENER, PROGRAM};
use crate::config::{LoadedConfig, Settings};
use crate::format::hex;
use crate::kube::in_cluster::SERVICE_ACCOUNT_DIRECTORY;
use crate::limits;
use crate::net::SystemDialer;
use crate::pki::keys::RsaKeyStock;

use super::reload::{self, Files, Reloader, needs_restart};
use super::report::Call;
use super::{AgentStatus, Environment, Error, Service, rebootstrap, run_reloading};

/// Exit code after a signal, and after an error or an overrun grace period.
const SUCCESS: u8 = 0;
const FAILURE: u8 = 1;

/// Runs the agent and returns the exit code. `config` is the file of the settings, which SIGHUP reads again;
/// `variables` are the environment of the process; `give_up` ends the process at once with a code.
pub fn process(
    loaded: LoadedConfig,
    config: &Path,
    variables: SortedMap<String, String>,
    give_up: fn(u8) -> !,
) -> u8 {
    let clock = Clock::system();
    start_log(&loaded, &variables, &clock);
    let seed = loaded.settings.seed_config.name.clone();
    log::info!(version = PROGRAM, gardener = GARDENER, seed = seed.as_str(); "Starting the gardenlet");
    warn(&loaded);
    let env = environment(clock, Stop::new(), variables);
    let status = AgentStatus::new(env.clock.clone());
    status.called(Call::new(config, &|name| env.variable(name).map(str::to_owned)));
    let settings = Arc::new(loaded.settings);
    let (service, reloader) = (Service::new(&env, &status), Reloader::new());
    let reloading = Reloading {
        config: config.to_owned(),
        files: Mutex::new(Files::read(&settings, &env).ok()),
        present: Mutex::new(Arc::clone(&settings)),
        env: env.clone(),
        service: service.clone(),
        status: status.clone(),
        reloader: reloader.clone(),
    };
    let watch = signal::watch(&env.stop, move || reloading.reload(), move || give_up(FAILURE));
    if let Err(e) = &watch {
        let err = chain(e);
        log::warn!(err = err.as_str(); "Cannot watch for signals");
    }
    limit_grace(&env.stop, &env.clock, give_up);
    let telling = service.start(&env.stop);
    let ended = run_reloading(settings, &env, &status, &reloader, &service);
    env.stop.stop();
    if let Some(telling) = telling {
        super::join("service", telling);
    }
    match ended {
        Ok(()) => {
            log::info!("The gardenlet has ended");
            SUCCESS
        }
        Err(error) => {
            let err = chain(&error);
            log::error!(err = err.as_str(); "The gardenlet cannot start");
            FAILURE
        }
    }
}

/// The command `rebootstrap`: returns a text about what it did, or why it did nothing. `announce` gets each write before it is
/// sent. Errors: as [`rebootstrap`].
pub fn ask_for_identity(
    loaded: &LoadedConfig,
    variables: SortedMap<String, String>,
    announce: &mut dyn FnMut(&str),
) -> Result<String, String> {
    rebootstrap(&loaded.settings, &environment(Clock::system(), Stop::new(), variables), announce)
}

fn environment(clock: Clock, stop: Stop, variables: SortedMap<String, String>) -> Environment {
    Environment {
        keys: Arc::new(RsaKeyStock::new(&stop)),
        clock,
        built: Timestamp::from_unix(BUILT_UNIX_S),
        dialer: Arc::new(SystemDialer),
        stop,
        metrics: Metrics::new(),
        hostname: hostname(&variables),
        variables,
        renderer: Renderer::own_program(),
        service_account_dir: PathBuf::from(SERVICE_ACCOUNT_DIRECTORY),
    }
}

/// The effect of SIGHUP: the agent reads the configuration and the kubeconfig files again, and ignores broken ones.
struct Reloading {
    config: PathBuf,
    env: Environment,
    present: Mutex<Arc<Settings>>,
    files: Mutex<Option<Files>>,
    service: Service,
    status: AgentStatus,
    reloader: Reloader,
}

impl Reloading {
    fn reload(&self) {
        log::info!("Reading the configuration again");
        match self.read() {
            // The agent reports the service as ready again when the parts that restart have ended.
            Ok(Some(settings)) => {
                self.status.forget(reload::PART);
                self.service.reloading();
                self.reloader.offer(settings);
            }
            Ok(None) => {
                log::info!("Nothing has changed that needs a restart of parts");
                self.status.forget(reload::PART);
                self.service.reloading();
                self.service.reloaded();
            }
            // The service manager hears of no reload, only of the problem.
            Err(problems) => {
                for problem in &problems {
                    log::error!(err = problem.as_str(); "The configuration cannot be used; keeping the present one");
                }
                reload::refused(&self.status, &problems.join("; "));
                self.service.look();
            }
        }
    }

    /// The new settings, if they need a restart of parts.
    fn read(&self) -> Result<Option<Arc<Settings>>, Vec<String>> {
        let variable = |name: &str| self.env.variable(name).map(str::to_owned);
        let loaded = load_to_run(&self.config, &variable)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let files = Files::read(&loaded.settings, &self.env).map_err(|error| vec![chain(&error)])?;
        start_log(&loaded, &self.env.variables, &self.env.clock);
        warn(&loaded);
        let mut present = self.present.lock().ignore_poison();
        let mut known = self.files.lock().ignore_poison();
        let restart = needs_restart(&present, &loaded.settings)
            || known.as_ref() != Some(&files)
            || self.reloader.has_returned();
        *known = Some(files);
        *present = Arc::new(loaded.settings);
        Ok(restart.then(|| Arc::clone(&present)))
    }
}

fn warn(loaded: &LoadedConfig) {
    for warning in &loaded.warnings {
        let text = warning.to_string();
        log::warn!(warning = text.as_str(); "The configuration has a warning");
    }
}

fn start_log(loaded: &LoadedConfig, variables: &SortedMap<String, String>, clock: &Clock) {
    let (level, format) = (loaded.settings.log_level, loaded.settings.log_format);
    let is_journal = variables.contains_key("JOURNAL_STREAM");
    logging::start(logging::Options { level, format, is_journal, clock: clock.clone() });
}

/// Ends the process if a stop takes too long: a stuck thread must not delay the shutdown of a node.
fn limit_grace(stop: &Stop, clock: &Clock, give_up: fn(u8) -> !) {
    let clock = clock.clone();
    stop.on_stop(move || {
        let body = move || {
            Stop::new().wait(&clock, limits::STOP_TIME_MAX);
            give_up(FAILURE)
        };
        // The thread is detached, so it ends with the process.
        if thread::spawn("grace", limits::SMALL_STACK_BYTES, body).is_err() {
            log::warn!("Cannot limit the grace period");
        }
    });
}

/// A pod without a volume is one instance as long as it lives, even if its containers restart.
pub(super) fn instance_id(state: &StateDir, env: &Environment) -> String {
    if let (None, Some(uid)) = (state.path(), env.variable("POD_UID")) {
        let digest = ring::digest::digest(&ring::digest::SHA256, uid.as_bytes());
        return hex::encode(digest.as_ref());
    }
    state.instance_id()
}

fn hostname(variables: &SortedMap<String, String>) -> String {
    let read = fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    read.ok()
        .filter(|name| !name.is_empty())
        .or_else(|| variables.get("HOSTNAME").cloned())
        .unwrap_or_else(|| "unknown".to_owned())
}

/// A self-hosted Shoot needs another agent.
pub(super) fn refuse_self_hosted(env: &Environment) -> Result<(), Error> {
    if env.variable("NAMESPACE") == Some("kube-system") {
        let why = "NAMESPACE=kube-system selects the agent of a self-hosted shoot, but this program cannot serve one";
        return Err(Error::Unsupported(why));
    }
    Ok(())
}

/// Returns the state directory of the previous round if it is the same: it is still locked, and its state in memory
/// must not get lost.
pub(super) fn open_state(
    settings: &Settings,
    env: &Environment,
    kept: &mut Option<StateDir>,
) -> Result<StateDir, Error> {
    let systemd = env.variable("STATE_DIRECTORY").map(PathBuf::from);
    let path = settings.edge.state_dir.clone().or(systemd);
    if let Some(state) = kept.as_ref().filter(|state| state.path() == path.as_deref()) {
        return Ok(state.clone());
    }
    let state = match path {
        Some(path) => StateDir::open(&path).map_err(Error::State)?,
        None => StateDir::in_memory(),
    };
    *kept = Some(state.clone());
    Ok(state)
}
