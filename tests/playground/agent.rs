//! The real agent, as a pod of the seed would run it, in a thread of this process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use gardenlet::app::{self, Environment, Status};
use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::base::log as logging;
use gardenlet::base::metrics::Metrics;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use gardenlet::chart::child::Renderer;
use gardenlet::config;
use gardenlet::pki::keys::{RsaKeys as _, Stock};
use serde_json::json;

use crate::screen::Screen;
use crate::support::garden::prepare;
use crate::{SEED, World, shoot};

/// A folder of this process; it goes with the value.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gardenlet-playground-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Kubeconfigs of an administrator of all clusters.
    pub fn kubeconfigs(world: &World) -> Kubeconfigs {
        let folder = Self::new("kubeconfigs");
        let garden = folder.file("garden", &world.garden.admin_kubeconfig());
        let seed = folder.file("seed", &world.seed.admin_kubeconfig());
        let shoot = shoot::kubeconfig(world).ok().map(|kubeconfig| folder.file("shoot", &kubeconfig));
        Kubeconfigs { garden, seed, shoot, _folder: folder }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Files, as long as the value lives.
pub struct Kubeconfigs {
    pub garden: PathBuf,
    pub seed: PathBuf,
    /// If the garden issues one.
    pub shoot: Option<PathBuf>,
    _folder: Folder,
}

/// The running agent.
pub struct Agent {
    stop: Stop,
    thread: Mutex<Option<JoinHandle<bool>>>,
    _folder: Folder,
}

impl Agent {
    /// Starts it with a configuration like that of the README.
    pub fn start(world: &World, screen: &Arc<Screen>) -> Self {
        let folder = Folder::new("agent");
        let account = world.seed.get("", "serviceaccounts", "garden", "gardenlet").unwrap();
        let token = world.seed.server().shared.tokens().issue(&account, &[], world.clock.now(), 86_400);
        folder.file("token", &token);
        folder.file("ca.crt", &world.seed.ca());
        let mut settings = config::load(&configuration(folder.path()), "config.yaml").unwrap().settings;
        // Any free ports: others may run on this machine.
        (settings.health_probes.port, settings.metrics.port) = (0, 0);
        let stop = Stop::new();
        let address = world.seed.url();
        let (host, port) = address.trim_start_matches("https://").split_once(':').unwrap();
        let env = Environment {
            clock: world.clock.clone(),
            built: Timestamp::default(),
            dialer: Arc::new(world.site.routes()),
            stop: stop.clone(),
            metrics: Metrics::new(),
            variables: [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            hostname: "playground".to_owned(),
            renderer: Renderer::InProcess,
            keys: Arc::new(stock(&stop)),
            service_account_dir: folder.path().to_owned(),
        };
        let status = Status::new(world.clock.clone());
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
        Self { stop, thread: Mutex::new(Some(thread)), _folder: folder }
    }

    /// Ends it in order; true if it did.
    pub fn stop(&self) -> bool {
        self.stop.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.is_some_and(|thread| thread.join().unwrap_or(false))
    }
}

/// RSA keys. One that has run for a while has some ahead; this one begins with them at its start.
fn stock(stop: &Stop) -> Stock {
    let stock = Stock::new(stop);
    for bits in [3_072, 4_096] {
        assert!(stock.take(bits).is_none());
    }
    stock
}

fn configuration(state: &Path) -> String {
    let mut config = prepare::configuration(SEED);
    config["server"] =
        json!({"healthProbes": {"bindAddress": "127.0.0.1"}, "metrics": {"bindAddress": "127.0.0.1"}});
    config["edge"] = json!({"stateDir": state.join("state")});
    shoot::configure(&mut config);
    config.to_string()
}

/// Which task of a Shoot is done, if a line of the log says so.
fn task(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("The task is done shoot=")?;
    Some(rest.split_once(" task=")?.1.trim_matches('"'))
}

/// What the agent warns of, and the tasks of a Shoot that are done, are shown between the news; all else stays in its log, which
/// nobody reads here.
fn tell(screen: &Arc<Screen>, stop: &Stop) {
    let capture = logging::capture();
    let clock = Clock::system();
    let options = logging::Options {
        level: log::LevelFilter::Debug,
        format: logging::Format::Text,
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
                // The capture stays for the last words: they are no news.
                std::mem::forget(capture);
                return;
            }
        }
    };
    thread::spawn("teller", 256 << 10, body).unwrap();
}
