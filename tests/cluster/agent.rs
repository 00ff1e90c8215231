//! The agent as a real process: started with a configuration file, watched through its log, ended by signals.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde_json::Value;

use crate::cluster;
use crate::failure::{Doing as _, Failure, Result, ensure};
use crate::lab::Lab;
use crate::process::Process;
use crate::wait;

/// The options of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The name of its files and its log.
    pub(crate) name: String,
    /// The GardenletConfiguration.
    pub(crate) config: Value,
    /// Arguments besides `--config`.
    pub(crate) arguments: Vec<String>,
    /// The whole environment.
    pub(crate) environment: Vec<(String, String)>,
    /// The content of its `/etc/resolv.conf`, if it differs from the machine's.
    pub(crate) resolver: Option<PathBuf>,
    /// The path of its network namespace, if it is not in that of the sandbox.
    pub(crate) network: Option<String>,
}

/// Replaces `/etc/resolv.conf`, which may be a dangling link in the sandbox, by a file, and becomes the agent.
const WITH_RESOLVER: &str = r#"
place=$(readlink -m /etc/resolv.conf)
[ -e "$place" ] || { mkdir -p "${place%/*}" && : > "$place"; } || exit
mount --bind "$1" "$place" || exit
shift
exec "$@"
"#;

impl Options {
    pub(crate) fn new(name: &str, config: Value) -> Self {
        Self {
            name: name.to_owned(),
            config,
            arguments: Vec::new(),
            environment: Vec::new(),
            resolver: None,
            network: None,
        }
    }

    pub(crate) fn environment(mut self, name: &str, value: impl AsRef<Path>) -> Self {
        self.environment.push((name.to_owned(), value.as_ref().display().to_string()));
        self
    }

    /// A program in the agent's network.
    fn command(&self, program: &Path) -> Command {
        let Some(network) = &self.network else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={network}")).arg(program);
        command
    }
}

/// A running agent, ended when dropped.
#[derive(Debug)]
pub(crate) struct Agent {
    options: Options,
    program: PathBuf,
    folder: PathBuf,
    process: Process,
    /// How much of the log [`Agent::wait_log`] has consumed.
    read: usize,
}

impl Agent {
    /// Starts the agent. Its log is appended to `<name>.log` in the state folder, which a failed story keeps.
    pub(crate) fn start(lab: &Lab, options: Options) -> Result<Self> {
        let program = lab.environment.agent();
        let folder = lab.place.clone();
        cluster::write(&folder.join(format!("{}.yaml", options.name)), &options.config.to_string())?;
        let process = spawn(&program, &folder, &options)?;
        Ok(Self { options, program, folder, process, read: 0 })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL: a crash.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        self.process.signal(signal)
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn terminate(&mut self) -> Result<ExitStatus> {
        self.process.terminate(60)
    }

    /// Starts it again after it ended, with the same options.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.process.kill();
        self.process = spawn(&self.program, &self.folder, &self.options)?;
        Ok(())
    }

    /// Starts it again with a changed configuration.
    pub(crate) fn reconfigure(&mut self, change: impl FnOnce(&mut Value)) -> Result<()> {
        change(&mut self.options.config);
        cluster::write(&self.configuration(), &self.options.config.to_string())?;
        self.restart()
    }

    /// Runs another command of the program, with the agent's configuration and environment. It must succeed; returns
    /// its output.
    pub(crate) fn command(&self, words: &[&str]) -> Result<String> {
        let mut command = self.options.command(&self.program);
        command.args(words).arg(format!("--config={}", self.configuration().display()));
        command.env_clear().envs(self.options.environment.iter().map(|(name, value)| (name, value)));
        let output = command.output().doing(|| format!("gardenlet {}", words.join(" ")))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure(output.status.success(), || format!("gardenlet {}: {said}", words.join(" ")))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn configuration(&self) -> PathBuf {
        self.folder.join(format!("{}.yaml", self.options.name))
    }

    /// Waits until a line that contains `text` is logged, after the last line for which a caller waited. Fails at once
    /// if the agent ends before.
    pub(crate) fn wait_log(&mut self, text: &str, seconds: u64) -> Result<String> {
        wait::until(&format!("{text:?} in the log of {}", self.options.name), seconds, || {
            let ended = self.process.ensure_running();
            if let Some(line) = self.next_line_with(text) {
                return Ok(Some(Ok(line)));
            }
            Ok::<_, Failure>(ended.err().map(Err))
        })?
    }

    /// Skips the current log: [`Agent::wait_log`] waits for later lines.
    pub(crate) fn skip_log(&mut self) {
        self.read = self.log().rfind('\n').map_or(0, |end| end + 1);
    }

    /// Fails, with the end of the log, if it has ended.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        self.process.ensure_running()
    }

    pub(crate) fn log(&self) -> String {
        self.process.log_text()
    }

    fn next_line_with(&mut self, text: &str) -> Option<String> {
        let log = self.log();
        let unread = log.get(self.read..)?;
        // A line without an end is still being written.
        let mut position = 0;
        for line in unread.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            position += line.len();
            if line.contains(text) {
                self.read += position;
                return Some(line.trim_end().to_owned());
            }
        }
        None
    }
}

fn spawn(program: &Path, folder: &Path, options: &Options) -> Result<Process> {
    let mut command = match &options.resolver {
        None => options.command(program),
        Some(file) => {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", WITH_RESOLVER, "resolver"]).arg(file).arg(program);
            command
        }
    };
    command.arg(format!("--config={}", folder.join(format!("{}.yaml", options.name)).display()));
    command.args(&options.arguments);
    // The agent gets nothing of the developer's own environment.
    command.env_clear().envs(options.environment.iter().map(|(name, value)| (name, value)));
    Process::start(&options.name, folder, command)
}
