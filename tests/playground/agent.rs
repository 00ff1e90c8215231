//! The real agent in a thread of this process. It reaches its seed with a kubeconfig, as an agent outside of the seed does.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use gardenlet::app::{self, AgentStatus, Environment};
use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::base::log as logging;
use gardenlet::base::metrics::Metrics;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use gardenlet::chart::child::Renderer;
use gardenlet::config::{self, Settings};
use gardenlet::pki::keys::{RsaKeyStock, RsaKeys as _};

use crate::World;
use crate::desk::Desk;
use crate::screen::Screen;

/// The running agent.
pub struct Agent {
    stop: Stop,
    thread: Mutex<Option<JoinHandle<bool>>>,
}

impl Agent {
    /// Its settings are those of the file that commands of the program use as well. Only an agent that stays has fixed ports:
    /// others may run on this machine.
    pub fn prepare(desk: &Desk, stays: bool) -> Settings {
        let mut settings = config::load(&desk.configuration, "gardenlet.yaml").unwrap().settings;
        if !stays {
            (settings.health_probes.port, settings.metrics.port) = (0, 0);
        }
        settings
    }

    /// Starts it.
    pub fn start(world: &World, screen: &Arc<Screen>, settings: Settings) -> Self {
        let stop = Stop::new();
        let env = Environment {
            clock: world.clock.clone(),
            built: Timestamp::default(),
            dialer: Arc::new(world.site.routes()),
            stop: stop.clone(),
            metrics: Metrics::new(),
            variables: [].into(),
            hostname: "playground".to_owned(),
            renderer: Renderer::InProcess,
            keys: Arc::new(stock(&stop)),
            service_account_dir: PathBuf::new(),
        };
        let status = AgentStatus::new(world.clock.clone());
        tell(screen, &stop);
        let (told, ended) = (screen.clone(), stop.clone());
        let body = move || {
            let result = app::run(settings, &env, &status);
            ended.stop();
            match result {
                Ok(()) => true,
                Err(error) => {
                    told.problem(&gardenlet::base::error::chain(&error));
                    false
                }
            }
        };
        let thread = thread::spawn("agent", 1 << 20, body).unwrap();
        Self { stop, thread: Mutex::new(Some(thread)) }
    }

    /// Stops it. Returns whether it ended without an error.
    pub fn stop(&self) -> bool {
        self.stop.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.is_some_and(|thread| thread.join().unwrap_or(false))
    }
}

/// RSA keys. An agent that has run for a while has some in stock; this one starts to make them at its start.
fn stock(stop: &Stop) -> RsaKeyStock {
    let stock = RsaKeyStock::new(stop);
    for bits in [3_072, 4_096] {
        assert!(stock.take(bits).is_none());
    }
    stock
}

/// The task of a Shoot that a line of the log reports as done.
fn task(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("The task is done shoot=")?;
    Some(rest.split_once(" task=")?.1.trim_matches('"'))
}

/// Shows the agent's warnings and the tasks of a Shoot that are done. The rest of its log is not shown.
fn tell(screen: &Arc<Screen>, stop: &Stop) {
    let capture = logging::capture();
    let clock = Clock::system();
    let options = logging::Options {
        level: log::LevelFilter::Debug,
        format: logging::LogFormat::Text,
        is_journal: true,
        clock: clock.clone(),
    };
    logging::start(options);
    let (screen, stop) = (screen.clone(), stop.clone());
    let body = move || {
        let mut seen = 0;
        loop {
            let stopped = stop.wait(&clock, std::time::Duration::from_millis(20));
            let lines = capture.since(seen);
            seen += lines.len();
            for line in &lines {
                // `<4>` is a warning in the journal, `<3>` an error.
                if let Some(text) = line.strip_prefix("<4>").or_else(|| line.strip_prefix("<3>")) {
                    screen.say("agent", text);
                } else if let Some(task) = task(line) {
                    screen.say("agent", &format!("done: {task}"));
                }
            }
            if stopped {
                // The agent may still write a few lines, which are not shown.
                std::mem::forget(capture);
                return;
            }
        }
    };
    thread::spawn("teller", 256 << 10, body).unwrap();
}
