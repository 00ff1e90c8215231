//! Both real clusters, the garden and the seed, and their folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{self, Cluster};
use crate::environment::Environment;
use crate::failure::{Doing, Failure, Result};
use crate::process;

/// Both clusters.
pub(crate) struct Lab {
    pub(crate) garden: Cluster,
    pub(crate) seed: Cluster,
    pub(crate) environment: Environment,
    /// The folder for files and logs of servers and agents.
    pub(crate) state: PathBuf,
    /// The folder for the files of the running story: files and logs of its agents.
    pub(crate) place: PathBuf,
    /// The number of started stories.
    begun: u32,
    /// Whether a story ran since the start or the last reset.
    touched: bool,
}

impl Lab {
    /// Starts both clusters side by side and waits until they serve.
    pub(crate) fn start(environment: Environment) -> Result<Self> {
        let state = environment.state.clone().ok_or_else(|| Failure::new("not in the sandbox"))?;
        let mut garden = Cluster::prepare(cluster::GARDEN, &environment, &state)?;
        let mut seed = Cluster::prepare(cluster::SEED, &environment, &state)?;
        garden.start_servers()?;
        seed.start_servers()?;
        for cluster in [&mut garden, &mut seed] {
            cluster.wait_ready()?;
            cluster.remember()?;
        }
        Ok(Self { garden, seed, environment, place: state.clone(), state, begun: 0, touched: false })
    }

    /// Restores the start of both clusters, if a story ran since.
    pub(crate) fn fresh(&mut self) -> Result<()> {
        if std::mem::take(&mut self.touched) { self.reset() } else { Ok(()) }
    }

    /// Creates a folder for a story and notes that the clusters are no longer in their first state.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.touched = true;
        (self.garden.front, self.seed.front) = (None, None);
        self.begun += 1;
        self.place = self.state.join(format!("story-{}", self.begun));
        fs::create_dir_all(&self.place).doing(|| format!("create {}", self.place.display()))
    }

    /// Restores the start of both clusters, side by side: most of the time is spent waiting for both to become quiet.
    pub(crate) fn reset(&mut self) -> Result<()> {
        let (garden, seed) = (&mut self.garden, &mut self.seed);
        std::thread::scope(|scope| {
            let garden = scope.spawn(|| reset(garden));
            let seed = reset(seed);
            garden.join().unwrap_or_else(|_| Err(Failure::new("panicked, see above"))).and(seed)
        })
    }

    /// A command with the programs of the harness in its `PATH`.
    pub(crate) fn command(&self, program: &str) -> Result<Command> {
        self.environment.command(program)
    }

    /// The end of the logs of a failed story's agents, and the place where the logs of all processes are kept.
    pub(crate) fn explained(&self, story: &str) -> String {
        let mut lines = Vec::new();
        for path in logs_in(&self.place) {
            lines.push(format!("the end of {}:", path.file_name().unwrap_or_default().display()));
            let text = fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let end = process::tail(&text.unwrap_or_default(), 20);
            lines.extend(end.lines().map(|line| format!("  {line}")));
        }
        let folder = self.environment.logs.join(story.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        lines.push(match self.keep_logs(&folder) {
            Ok(()) => format!("the logs of all processes are in {}", folder.display()),
            Err(err) => format!("the logs could not be kept: {err}"),
        });
        lines.join("\n")
    }

    fn keep_logs(&self, folder: &Path) -> Result<()> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
        for cluster in [&self.garden, &self.seed] {
            let audit = folder.join(format!("{}-audit.log", cluster.role.name));
            // There may be no requests yet.
            let _ = fs::copy(cluster.audit_log(), audit);
        }
        for path in logs_in(&self.state).into_iter().chain(logs_in(&self.place)) {
            let copy = folder.join(path.file_name().unwrap_or_default());
            fs::copy(&path, copy).doing(|| format!("copy {}", path.display()))?;
        }
        Ok(())
    }

    /// Leaves everything running until the user presses Enter.
    pub(crate) fn keep(&self) {
        println!("kept: nsenter --all --target {}", std::process::id());
        println!("      then: kubectl --kubeconfig {}/{{garden,seed}}.kubeconfig", self.state.display());
        println!(
            "      (the process id is that of the sandbox: find it from outside with `pgrep -f cluster`)"
        );
        println!("      Enter ends it");
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}

/// Servers that a failed story left in a bad state, for example stopped by a signal, are replaced.
fn reset(cluster: &mut Cluster) -> Result<()> {
    cluster.rewind().or_else(|failure| {
        println!("       the {} is started again: {failure}", cluster.role.name);
        cluster.renew()
    })
}

/// The logs in a folder.
fn logs_in(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut logs: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
    logs.sort();
    logs
}
