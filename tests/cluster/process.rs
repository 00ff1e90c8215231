//! A server or agent as a child process with its own log, ended when dropped.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::failure::{Doing, Failure, Result};
use crate::wait;

#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` and appends its output to `<folder>/<name>.log`.
    pub(crate) fn start(name: &str, folder: &Path, mut command: Command) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log);
        let file = file.doing(|| format!("open {}", log.display()))?;
        let other = file.try_clone().doing(|| format!("open {}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(file).stderr(other).spawn();
        let child = child.doing(|| format!("start {}", command.get_program().display()))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log_text(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Fails, with the end of the log, if it has ended.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        let Some(status) = self.ended() else { return Ok(()) };
        Err(Failure::new(format!("{} ended with {status}:\n{}", self.name, tail(&self.log_text(), 15))))
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal by its name, for example `TERM`, `STOP` or `CONT`.
    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        run(Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.id())])).map(drop)
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn terminate(&mut self, seconds: u64) -> Result<ExitStatus> {
        self.signal("TERM")?;
        let name = self.name.clone();
        wait::until(&format!("the end of {name}"), seconds, || Ok::<_, Failure>(self.ended()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end; its output is the result, or part of the failure.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let name = Path::new(command.get_program()).file_name().map(OsStr::to_owned).unwrap_or_default();
    let output = command.stdin(Stdio::null()).output().doing(|| format!("run {}", name.display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{} ended with {}: {}", name.display(), output.status, complaint.trim())))
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
