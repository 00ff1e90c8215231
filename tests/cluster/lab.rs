//! Both real clusters, the garden and the seed, and where they keep things.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{self, Cluster};
use crate::environment::Environment;
use crate::failure::{Doing, Failure, Result};

/// Both clusters.
pub(crate) struct Lab {
    pub(crate) garden: Cluster,
    pub(crate) seed: Cluster,
    pub(crate) environment: Environment,
    /// Where servers and agents keep files and logs.
    pub(crate) state: PathBuf,
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
        garden.wait_ready()?;
        seed.wait_ready()?;
        Ok(Self { garden, seed, environment, state, touched: false })
    }

    /// Both clusters as they were at the start, if a story ran since.
    pub(crate) fn fresh(&mut self) -> Result<()> {
        if self.touched { self.reset() } else { Ok(()) }
    }

    /// Notes that the clusters are not as they were at the start.
    pub(crate) fn touch(&mut self) {
        self.touched = true;
    }

    /// Both clusters as they were at the start.
    pub(crate) fn reset(&mut self) -> Result<()> {
        self.touched = false;
        for cluster in [&mut self.garden, &mut self.seed] {
            cluster.stop();
            cluster.forget()?;
            cluster.start_servers()?;
        }
        self.garden.wait_ready()?;
        self.seed.wait_ready()
    }

    /// A command with the programs of the harness in its `PATH`.
    pub(crate) fn command(&self, program: &str) -> Result<Command> {
        self.environment.command(program)
    }

    /// Keeps the logs of a failed story and says where they are.
    pub(crate) fn explain(&self, story: &str) {
        let folder = self.environment.logs.join(story.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let _ = fs::remove_dir_all(&folder);
        match copy_logs(&self.state, &folder) {
            Ok(()) => println!("       the logs of all processes are in {}", folder.display()),
            Err(err) => println!("       the logs could not be kept: {err}"),
        }
    }

    /// Leaves everything running until somebody presses Enter.
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

/// Copies the `*.log` files of a folder and the folders in it.
fn copy_logs(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).doing(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).doing(|| format!("read {}", from.display()))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            fs::copy(&path, to.join(entry.file_name())).doing(|| format!("copy {}", path.display()))?;
        } else if path.join("audit.log").is_file() {
            let name = format!("{}-audit.log", entry.file_name().to_string_lossy());
            fs::copy(path.join("audit.log"), to.join(name)).doing(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}
