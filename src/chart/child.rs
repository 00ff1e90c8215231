//! Rendering in a process of its own: peak memory and hostile charts stay outside of the agent.
//!
//! The agent starts its own program with the hidden command `render-child`. Standard input: four bytes with the length
//! of a request (big endian), the request as JSON, the archive up to the end. Standard output: the answer as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::render::{self, KubeVersion, Mode, Options};
use super::{Table, archive, expand, values};
use crate::base::capped;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::limits::{
    CHART_ARCHIVE_BYTES_MAX, RENDER_CPU_S_MAX, RENDER_MEMORY_BYTES_MAX, RENDER_OUTPUT_BYTES_MAX,
    RENDER_REQUEST_BYTES_MAX, RENDER_S_MAX, RENDER_STACK_BYTES, SMALL_STACK_BYTES,
};

/// The hidden command.
pub const COMMAND: &str = "render-child";

/// What the chart of an extension is rendered with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// `.Release.Name`.
    pub name: String,
    /// `.Release.Namespace`.
    pub namespace: String,
    /// Values over the chart's own: a map, or null.
    pub values: Json,
    /// What the texts in `values` are templates over; null if they are none.
    #[serde(default)]
    pub resources: Json,
    /// Values over `values`, as they are: a map.
    #[serde(default)]
    pub mix_in: Table,
    /// `gitVersion` of the seed's API server.
    pub kubernetes_version: String,
    /// `major` of the same answer.
    pub kubernetes_major: String,
    /// `minor`: some servers append `+`.
    pub kubernetes_minor: String,
}

/// A chart's archive (`.tgz`), as it is handed to the process that renders.
#[derive(Clone, Copy, Debug)]
pub enum Archive<'a> {
    /// In memory.
    Bytes(&'a [u8]),
    /// The rest of a file, which never is in this process's memory.
    File(&'a File),
}

impl<'a> From<&'a [u8]> for Archive<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Archive<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Archive<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a File> for Archive<'a> {
    fn from(file: &'a File) -> Self {
        Self::File(file)
    }
}

impl Archive<'_> {
    fn is_too_large(self) -> bool {
        let bytes = match self {
            Self::Bytes(bytes) => u64::try_from(bytes.len()),
            Self::File(file) => Ok(file.metadata().map_or(0, |metadata| metadata.len())),
        };
        bytes.ok() > u64::try_from(CHART_ARCHIVE_BYTES_MAX).ok()
    }

    fn send(self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => to.write_all(bytes),
            Self::File(mut file) => io::copy(&mut file, to).map(drop),
        }
    }
}

/// Objects under the keys of the Secret ([`render::Rendered::objects`]).
pub type Objects = BTreeMap<String, Json>;

/// How charts are rendered.
#[derive(Clone, Debug)]
pub enum Renderer {
    /// In a child process.
    Child {
        /// The agent's program.
        program: PathBuf,
    },
    /// In a thread: for tests and the playground, whose program is not the agent's.
    InProcess,
}

/// Why a chart was not rendered.
#[derive(Debug)]
pub enum Error {
    /// The archive has more than this many bytes.
    ArchiveBytes(usize),
    /// The request has more than this many bytes.
    RequestBytes(usize),
    /// The chart is wrong: what Helm would say.
    Chart(String),
    /// A template in the values is wrong.
    Values(String),
    /// The process or thread did not start.
    Start(io::Error),
    /// Talking to the process failed.
    Talk(io::Error),
    /// It took too long.
    Timeout(Duration),
    /// It wrote more than this many bytes.
    OutputBytes(usize),
    /// It died: of too much memory or time, or of a mistake.
    Died(Option<ExitStatus>),
    /// The agent stops.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ArchiveBytes(max) => write!(f, "chart archive with more than {max} bytes"),
            Self::RequestBytes(max) => write!(f, "chart values with more than {max} bytes"),
            Self::Chart(message) | Self::Values(message) => f.write_str(message),
            Self::Start(_) => f.write_str("cannot start the process that renders"),
            Self::Talk(_) => f.write_str("cannot talk to the process that renders"),
            Self::Timeout(limit) => write!(f, "rendering took longer than {} s", limit.as_secs()),
            Self::OutputBytes(max) => write!(f, "rendering gave more than {max} bytes"),
            Self::Died(Some(status)) => {
                write!(f, "the process that renders died ({status}): too much memory, time or recursion")
            }
            Self::Died(None) => f.write_str("the thread that renders died"),
            Self::Stopped => f.write_str("rendering was stopped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start(source) | Self::Talk(source) => Some(source),
            _ => None,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Objects(Objects),
    Error(String),
    Values(String),
}

impl From<Result<Objects, Self>> for Answer {
    fn from(result: Result<Objects, Self>) -> Self {
        result.map_or_else(|answer| answer, Self::Objects)
    }
}

impl Answer {
    fn into_result(self) -> Result<Objects, Error> {
        match self {
            Self::Objects(objects) => Ok(objects),
            Self::Error(message) => Err(Error::Chart(message)),
            Self::Values(message) => Err(Error::Values(message)),
        }
    }
}

impl Renderer {
    /// Children of the program that runs now.
    pub fn own_program() -> Self {
        Self::Child { program: PathBuf::from("/proc/self/exe") }
    }

    /// Renders the chart of an extension from its archive (`.tgz`).
    ///
    /// # Errors
    /// What is wrong with the chart, or with rendering it.
    pub fn render<'a>(
        &self,
        request: &Request,
        archive: impl Into<Archive<'a>>,
        stop: &Stop,
    ) -> Result<Objects, Error> {
        let archive = archive.into();
        if archive.is_too_large() {
            return Err(Error::ArchiveBytes(CHART_ARCHIVE_BYTES_MAX));
        }
        match self {
            Self::InProcess => {
                let (request, mut bytes) = (request.clone(), Vec::new());
                archive.send(&mut bytes).map_err(Error::Talk)?;
                let rendering = thread::spawn("render", RENDER_STACK_BYTES, move || run(request, &bytes));
                match rendering.map_err(Error::Start)?.join() {
                    Ok(answer) => answer.into_result(),
                    Err(_) => Err(Error::Died(None)),
                }
            }
            Self::Child { program } => {
                let mut command = Command::new(program);
                command.arg(COMMAND).env_clear();
                ask(command, request, archive, Duration::from_secs(RENDER_S_MAX), stop)
            }
        }
    }
}

/// What came back from the process, and how it ended.
struct Outcome {
    /// Nothing if it is too long.
    output: io::Result<Option<Vec<u8>>>,
    status: io::Result<ExitStatus>,
    timed_out: bool,
}

fn ask(
    mut command: Command,
    request: &Request,
    archive: Archive<'_>,
    limit: Duration,
    stop: &Stop,
) -> Result<Objects, Error> {
    let request = serde_json::to_vec(request).map_err(|e| Error::Talk(e.into()))?;
    let length = u32::try_from(request.len()).ok().filter(|_| request.len() <= RENDER_REQUEST_BYTES_MAX);
    let length = length.ok_or(Error::RequestBytes(RENDER_REQUEST_BYTES_MAX))?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().map_err(Error::Start)?;
    let input = [&length.to_be_bytes(), request.as_slice()];
    let outcome = converse(child, (input, archive), limit, stop)?;
    if stop.is_stopped() {
        return Err(Error::Stopped);
    }
    if outcome.timed_out {
        return Err(Error::Timeout(limit));
    }
    let output = outcome.output.map_err(Error::Talk)?;
    let output = output.ok_or(Error::OutputBytes(RENDER_OUTPUT_BYTES_MAX))?;
    match serde_json::from_slice(&output) {
        Ok(answer) => Answer::into_result(answer),
        // No complete answer: it died before it could give one.
        Err(_) => Err(Error::Died(outcome.status.ok())),
    }
}

/// Hands the input over and reads the output, while a second thread watches the time. The process is gone afterwards.
fn converse(
    mut child: Child,
    (head, archive): ([&[u8]; 2], Archive<'_>),
    limit: Duration,
    stop: &Stop,
) -> Result<Outcome, Error> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let child = Arc::new(Mutex::new(child));
    let (done, watched) = (stop.child(), child.clone());
    let finished = done.clone();
    // The machine's clock, whatever clock the agent runs on: the process is a real one.
    let watch = move || {
        let timed_out = !finished.wait(&Clock::system(), limit);
        // Harmless if it is dead already: it is waited for only afterwards.
        let _ = watched.lock().unwrap_or_else(PoisonError::into_inner).kill();
        timed_out
    };
    let watch = match thread::spawn("render-watch", SMALL_STACK_BYTES, watch) {
        Ok(watch) => watch,
        Err(error) => {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = child.kill().and_then(|()| child.wait());
            return Err(Error::Start(error));
        }
    };
    if let Some(mut stdin) = stdin {
        // A child that dies early shows in its output.
        let sent = head.iter().try_for_each(|part| stdin.write_all(part));
        let _ = sent.and_then(|()| archive.send(&mut stdin));
    }
    let nothing = Ok(Some(Vec::new()));
    let output = stdout.map_or(nothing, |mut stdout| capped::read(&mut stdout, RENDER_OUTPUT_BYTES_MAX));
    done.stop();
    let timed_out = watch.join().unwrap_or(false);
    let status = child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    Ok(Outcome { output, status, timed_out })
}

/// The command `render-child`: one request in, one answer out. Returns the exit code.
pub fn main(input: &mut dyn Read, output: &mut dyn Write) -> u8 {
    limit_resources();
    let answer = match receive(input) {
        Ok((request, archive)) => {
            let rendering = thread::spawn("render", RENDER_STACK_BYTES, move || run(request, &archive));
            match rendering.map(std::thread::JoinHandle::join) {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Answer::Error("the thread that renders died".to_owned()),
                Err(error) => Answer::Error(error.to_string()),
            }
        }
        Err(error) => Answer::Error(format!("request: {error}")),
    };
    match serde_json::to_writer(&mut *output, &answer).map_err(io::Error::from).and_then(|()| output.flush())
    {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

/// On a system without such limits the child runs without them.
fn limit_resources() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    for (resource, max) in [(Resource::As, RENDER_MEMORY_BYTES_MAX), (Resource::Cpu, RENDER_CPU_S_MAX)] {
        let _ = setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) });
    }
    // No core of a process that holds values.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

fn receive(input: &mut dyn Read) -> io::Result<(Request, Vec<u8>)> {
    let too_long = || io::Error::other("too long");
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > RENDER_REQUEST_BYTES_MAX {
        return Err(too_long());
    }
    let mut request = vec![0; length];
    input.read_exact(&mut request)?;
    let archive = capped::read(input, CHART_ARCHIVE_BYTES_MAX)?.ok_or_else(too_long)?;
    Ok((serde_json::from_slice(&request)?, archive))
}

/// Renders; errors are what a person reads.
fn run(request: Request, archive: &[u8]) -> Answer {
    let values = match &request.resources {
        Json::Null => Ok(request.values.clone()),
        resources => expand::expand(&request.values, resources),
    };
    match values {
        Ok(Json::Object(values)) => render_over(request, values, archive).into(),
        Ok(Json::Null) => render_over(request, Table::new(), archive).into(),
        Ok(_) => Answer::Error("values must be a map".to_owned()),
        Err(message) => Answer::Values(message),
    }
}

fn render_over(request: Request, mut values: Table, archive: &[u8]) -> Result<Objects, Answer> {
    let chart = archive::load(archive).map_err(|e| Answer::Error(chain(&e)))?;
    values::merge(&mut values, request.mix_in);
    values.values_mut().for_each(values::to_floats);
    let options = Options {
        mode: Mode::Extension,
        name: request.name,
        namespace: request.namespace,
        values,
        kube_version: KubeVersion::of_server(
            &request.kubernetes_version,
            &request.kubernetes_major,
            &request.kubernetes_minor,
        ),
        api_versions: Vec::new(),
        clock: Clock::system(),
    };
    render::render(chart, &options).map(|rendered| rendered.objects()).map_err(|e| Answer::Error(chain(&e)))
}

#[cfg(test)]
mod tests;
