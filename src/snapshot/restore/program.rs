//! Runs the programs of etcd. None of them runs for ever, and none outlives a restoration that fails. If this process is killed, so is
//! its container; elsewhere, a program may go on in a working directory that no later start uses.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::base::capped;
use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::limits;
use crate::snapshot::error::Error;

/// How long a run of etcdutl may take: the disk of a small machine writes a database of 8 GiB in this time.
const TOOL_PATIENCE: Duration = Duration::from_secs(3_600);
/// How often the end of a process is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// How long a process gets after it was killed.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// A process, which is killed if nobody waits for its end.
#[derive(Debug)]
pub(super) struct RunningProgram {
    child: Child,
    clock: Clock,
    /// Its name, for messages.
    doing: String,
    has_ended: bool,
}

impl RunningProgram {
    /// Starts a program without input.
    pub(super) fn start(command: &mut Command, doing: &str) -> Result<Self, Error> {
        let child = command.stdin(Stdio::null()).spawn().map_err(Error::io(doing))?;
        Ok(Self { child, clock: Clock::system(), doing: doing.to_owned(), has_ended: false })
    }

    /// How it ended, if it did so within this time.
    pub(super) fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>, Error> {
        let begun = self.clock.mono();
        loop {
            if let Some(status) = self.child.try_wait().map_err(Error::io(self.doing.clone()))? {
                self.has_ended = true;
                return Ok(Some(status));
            }
            if self.clock.mono().saturating_sub(begun) >= patience {
                return Ok(None);
            }
            Stop::new().wait(&self.clock, LOOK);
        }
    }

    /// Asks it to end, and waits. Errors: it does not end in this time.
    pub(super) fn end(mut self, patience: Duration) -> Result<ExitStatus, Error> {
        let asked = kill_process(Pid::from_child(&self.child), Signal::TERM);
        asked.map_err(|error| Error::io(format!("{}: end it", self.doing))(error.into()))?;
        let why = || format!("it did not end within {} s", patience.as_secs());
        self.wait(patience)?.ok_or_else(|| Error::Refused { doing: self.doing.clone(), why: why() })
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.child.kill();
            let _ = self.wait(KILL_PATIENCE);
        }
    }
}

/// Runs a tool to its end. Returns what it printed, if its output is piped.
fn run(command: &mut Command, doing: &str) -> Result<Vec<u8>, Error> {
    let refused = |why: String| Error::Refused { doing: doing.to_owned(), why };
    let mut tool = RunningProgram::start(command, doing)?;
    match tool.wait(TOOL_PATIENCE)? {
        None => return Err(refused(format!("it did not end within {} s", TOOL_PATIENCE.as_secs()))),
        Some(status) if !status.success() => return Err(refused(format!("it ended with {status}"))),
        Some(_) => {}
    }
    let Some(output) = &mut tool.child.stdout else { return Ok(Vec::new()) };
    let read = capped::read(&mut output.by_ref(), limits::SNAPSHOT_ANSWER_BYTES_MAX);
    read.map_err(Error::io(doing))?.ok_or_else(|| refused("it prints too much".to_owned()))
}

/// Makes a data directory from a snapshot, or from a database, which has no digest.
pub(super) fn restore(etcdutl: &Path, from: &Path, to: &Path, options: &[String]) -> Result<(), Error> {
    let mut command = Command::new(etcdutl);
    command.args(["snapshot", "restore"]).arg(from).arg("--data-dir").arg(to).args(options);
    run(&mut command, &format!("restore a snapshot with {}", etcdutl.display())).map(drop)
}

/// Checks a database, and returns its description as JSON.
pub(super) fn describe(etcdutl: &Path, database: &Path) -> Result<Vec<u8>, Error> {
    let mut command = Command::new(etcdutl);
    command.args(["snapshot", "status"]).arg(database).arg("--write-out=json").stdout(Stdio::piped());
    run(&mut command, &format!("check a database with {}", etcdutl.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> RunningProgram {
        RunningProgram::start(Command::new("sh").args(["-c", script]), "run it").unwrap()
    }

    fn is_alive(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_program_ends_with_its_owner() {
        let program = shell("trap '' TERM; exec sleep 600");
        let pid = program.child.id();
        assert!(is_alive(pid));
        drop(program);
        assert!(!is_alive(pid));
        // One that does not want to end is killed.
        let mut program = shell("trap '' TERM; while :; do sleep 0.1; done");
        let pid = program.child.id();
        // The shell needs a moment to set the trap.
        assert_eq!(program.wait(Duration::from_millis(300)).unwrap(), None);
        let error = program.end(Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().starts_with("run it: it did not end within "), "{error}");
        assert!(!is_alive(pid));
        let status = shell("exec sleep 600").end(Duration::from_secs(60)).unwrap();
        assert!(!status.success());
    }

    #[test]
    fn a_tool_tells_how_it_ended() {
        let run = |script: &str| {
            let mut command = Command::new("sh");
            run(command.args(["-c", script]).stdout(Stdio::piped()), "ask").map_err(|error| error.to_string())
        };
        assert_eq!(run("echo yes"), Ok(b"yes\n".to_vec()));
        assert_eq!(run("exit 3"), Err("ask: it ended with exit status: 3".to_owned()));
        assert_eq!(run("kill -9 $$"), Err("ask: it ended with signal: 9 (SIGKILL)".to_owned()));
    }
}
