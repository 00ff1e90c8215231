//! The agent as a process: log, signals, environment, exit code.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::{Clock, Timestamp};
use crate::base::error::chain;
use crate::base::log as logging;
use crate::base::metrics::Metrics;
use crate::base::signal;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::chart::child::Renderer;
use crate::config::Loaded;
use crate::config::version::{BUILT_UNIX_S, GARDENER, PROGRAM};
use crate::kube::in_cluster::SERVICE_ACCOUNT_DIRECTORY;
use crate::limits;
use crate::net::SystemDialer;

use super::{Environment, rebootstrap, run};

/// How long an orderly stop may take.
const GRACE: Duration = Duration::from_secs(5);

/// Exit code after a signal, and after an error or an overrun grace period (as upstream).
const SUCCESS: u8 = 0;
const FAILURE: u8 = 2;

/// Runs the agent and returns the exit code. `variables` is the process environment; `give_up` ends the process at once
/// with a code.
pub fn process(loaded: Loaded, variables: BTreeMap<String, String>, give_up: fn(u8) -> !) -> u8 {
    let clock = Clock::system();
    start_log(&loaded, &variables, &clock);
    let stop = Stop::new();
    let seed = loaded.settings.seed_config.name.clone();
    log::info!(version = PROGRAM, gardener = GARDENER, seed = seed.as_str(); "Starting the gardenlet");
    for warning in &loaded.warnings {
        let text = warning.to_string();
        log::warn!(warning = text.as_str(); "The configuration is odd");
    }
    let watch = signal::stop_on_signal(&stop, move || give_up(1));
    if let Err(e) = &watch {
        let err = chain(e);
        log::warn!(err = err.as_str(); "Signals are not watched for");
    }
    limit_grace(&stop, &clock, give_up);
    let env = environment(clock, stop, variables);
    match run(loaded.settings, env) {
        Ok(()) => SUCCESS,
        Err(error) => {
            let err = chain(&error);
            log::error!(err = err.as_str(); "The gardenlet cannot start");
            FAILURE
        }
    }
}

/// The command `rebootstrap`: what was done, or why not, in words.
///
/// # Errors
/// As [`rebootstrap`].
pub fn ask_for_identity(loaded: &Loaded, variables: BTreeMap<String, String>) -> Result<String, String> {
    rebootstrap(&loaded.settings, &environment(Clock::system(), Stop::new(), variables))
}

fn environment(clock: Clock, stop: Stop, variables: BTreeMap<String, String>) -> Environment {
    Environment {
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

fn start_log(loaded: &Loaded, variables: &BTreeMap<String, String>, clock: &Clock) {
    let (level, format) = (loaded.settings.log_level, loaded.settings.log_format);
    let is_journal = variables.contains_key("JOURNAL_STREAM");
    logging::start(logging::Options { level, format, is_journal, clock: clock.clone() });
}

/// A stop that takes too long ends the process: a stuck thread must not keep a node from shutting down.
fn limit_grace(stop: &Stop, clock: &Clock, give_up: fn(u8) -> !) {
    let clock = clock.clone();
    stop.on_stop(move || {
        let body = move || {
            Stop::new().wait(&clock, GRACE);
            give_up(FAILURE)
        };
        // Detached: it ends with the process.
        if thread::spawn("grace", limits::SMALL_STACK_BYTES, body).is_err() {
            log::warn!("The grace period is not limited");
        }
    });
}

fn hostname(variables: &BTreeMap<String, String>) -> String {
    let read = fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    read.ok()
        .filter(|name| !name.is_empty())
        .or_else(|| variables.get("HOSTNAME").cloned())
        .unwrap_or_else(|| "unknown".to_owned())
}
