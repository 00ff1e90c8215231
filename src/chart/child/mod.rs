//! Renders in a process of its own, to keep peak memory and hostile charts out of the agent.
//!
//! The agent starts its own program with the hidden command `render-child`. Standard input: four bytes with the length
//! of a request (big endian), the request as JSON, then the archive up to the end. Standard output: the answer as JSON.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use answer::{ChildAnswer, Unread};

use super::render::{self, KubeVersion, Options, RenderMode};
use super::{ValuesTable, archive, expand, values};
use crate::base::capped;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::base::stop::Stop;
use crate::base::thread;
use crate::format::view;
use crate::limits::{
    CHART_ARCHIVE_BYTES_MAX, RENDER_ADDRESS_BYTES_MAX, RENDER_CPU_GRACE_S, RENDER_CPU_S_MAX,
    RENDER_MEMORY_BYTES_MAX, RENDER_REQUEST_BYTES_MAX, RENDER_S_MAX, RENDER_STACK_BYTES, RENDERINGS_MAX,
    SMALL_STACK_BYTES,
};

mod answer;

/// The hidden command.
pub const COMMAND: &str = "render-child";

/// The input for rendering the chart of an extension.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenderRequest {
    /// Templates read it as `.Release.Name`.
    pub name: String,
    /// Templates read it as `.Release.Namespace`.
    pub namespace: String,
    /// Values that override the chart's own: a map, or null.
    #[serde(default)]
    pub values: Json,
    /// The data for templates in `values`; null if the texts are not templates.
    #[serde(default)]
    pub resources: Json,
    /// Values that override `values`, without templates: a map.
    #[serde(default)]
    pub mix_in: ValuesTable,
    /// `gitVersion` of the seed's API server.
    pub kubernetes_version: String,
    /// `major` of the same response.
    pub kubernetes_major: String,
    /// `minor`: some servers append `+`.
    pub kubernetes_minor: String,
    /// Whether objects of one kind, name and file in several namespaces stay apart.
    #[serde(default)]
    pub apart: bool,
}

/// A chart's archive (`.tgz`) for the rendering process.
#[derive(Clone, Copy, Debug)]
pub enum Archive<'a> {
    /// In memory.
    Bytes(&'a [u8]),
    /// The rest of a file, which is never loaded into this process's memory.
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
pub(crate) type RenderedObjects = SortedMap<String, Json>;

/// How charts are rendered.
#[derive(Clone, Debug)]
pub enum Renderer {
    /// In a child process.
    Child {
        /// The program of the agent.
        program: PathBuf,
    },
    /// In a thread: for tests and the playground, whose program is not the agent.
    InProcess,
}

/// Why a chart was not rendered.
#[derive(Debug)]
pub enum Error {
    /// The archive has more than this many bytes.
    ArchiveBytes(usize),
    /// The request has more than this many bytes.
    RequestBytes(usize),
    /// The chart is wrong; the text is Helm's.
    Chart(String),
    /// A template in the values is wrong.
    Values(String),
    /// The process or thread did not start.
    Start(io::Error),
    /// The communication with the process failed.
    Talk(io::Error),
    /// It took too long.
    Timeout(Duration),
    /// Its answer is too large.
    Output(String),
    /// It died: of too much memory or time, or of a bug.
    Died(Option<ExitStatus>),
    /// Other charts are being rendered.
    Busy,
    /// The agent is stopping.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ArchiveBytes(max) => write!(f, "chart archive with more than {max} bytes"),
            Self::RequestBytes(max) => write!(f, "chart values with more than {max} bytes"),
            Self::Chart(message) | Self::Values(message) => f.write_str(message),
            Self::Start(_) => f.write_str("cannot start the rendering process"),
            Self::Talk(_) => f.write_str("cannot communicate with the rendering process"),
            Self::Timeout(limit) => write!(f, "rendering took longer than {} s", limit.as_secs()),
            Self::Output(what) => f.write_str(what),
            Self::Died(Some(status)) => {
                write!(f, "the rendering process died ({status}): {}", cause(*status))
            }
            Self::Died(None) => f.write_str("the rendering thread died"),
            Self::Busy => f.write_str("other charts are being rendered"),
            Self::Stopped => f.write_str("rendering was stopped"),
        }
    }
}

/// Explains how a process with the limits of a rendering ended.
fn cause(status: ExitStatus) -> String {
    // These numbers are the same on every Linux.
    const SIGABRT: i32 = 6;
    const SIGKILL: i32 = 9;
    const SIGXCPU: i32 = 24;
    match status.signal() {
        Some(SIGABRT) => {
            format!(
                "it needed more than {} MiB of memory, or nested too deeply",
                RENDER_MEMORY_BYTES_MAX >> 20
            )
        }
        Some(SIGXCPU) => format!("it took more than {RENDER_CPU_S_MAX} s of processor time"),
        Some(SIGKILL) => "it was killed; perhaps the machine or the service has too little memory".to_owned(),
        _ => "too much memory, time or recursion".to_owned(),
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

impl From<Result<RenderedObjects, Self>> for ChildAnswer {
    fn from(result: Result<RenderedObjects, Self>) -> Self {
        result.map_or_else(|answer| answer, Self::Objects)
    }
}

impl Renderer {
    /// Children that run the current program.
    pub fn own_program() -> Self {
        Self::Child { program: PathBuf::from("/proc/self/exe") }
    }

    /// Renders the chart of an extension from its archive (`.tgz`). Errors: a problem of the chart
    /// or of the rendering.
    pub fn render<'a>(
        &self,
        request: &RenderRequest,
        archive: impl Into<Archive<'a>>,
        stop: &Stop,
    ) -> Result<RenderedObjects, Error> {
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
                let _turn = RENDERINGS.take(stop)?;
                let mut command = Command::new(program);
                command.arg(COMMAND).env_clear();
                ask(command, request, archive, Duration::from_secs(RENDER_S_MAX), stop)
            }
        }
    }
}

/// Renderings in progress in this process.
static RENDERINGS: RenderTurns = RenderTurns(AtomicUsize::new(0));
/// How often, and for how long, a waiting caller checks whether it may begin. Meanwhile it holds a
/// thread that others need.
const TURN_LOOK: Duration = Duration::from_millis(20);
const TURN_PATIENCE: Duration = Duration::from_millis(500);

/// Permits to render: all children together need less memory than the service may use.
struct RenderTurns(AtomicUsize);

/// One permit. Dropping it returns it.
struct RenderTurn<'a>(&'a RenderTurns);

impl RenderTurns {
    fn take(&self, stop: &Stop) -> Result<RenderTurn<'_>, Error> {
        let one_more = |now| (now < RENDERINGS_MAX).then_some(now + 1);
        // The machine's clock, because the caller waits for a real process.
        let clock = Clock::system();
        while self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_err() {
            if clock.mono() >= TURN_PATIENCE {
                return Err(Error::Busy);
            }
            if stop.wait(&clock, TURN_LOOK) {
                return Err(Error::Stopped);
            }
        }
        Ok(RenderTurn(self))
    }
}

impl Drop for RenderTurn<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The output of the process, and how it ended.
struct ChildOutput {
    answer: Result<ChildAnswer, Unread>,
    status: io::Result<ExitStatus>,
    timed_out: bool,
}

fn ask(
    mut command: Command,
    request: &RenderRequest,
    archive: Archive<'_>,
    limit: Duration,
    stop: &Stop,
) -> Result<RenderedObjects, Error> {
    let request = serde_json::to_vec(request).map_err(|e| Error::Talk(e.into()))?;
    let length = u32::try_from(request.len()).ok().filter(|_| request.len() <= RENDER_REQUEST_BYTES_MAX);
    let length = length.ok_or(Error::RequestBytes(RENDER_REQUEST_BYTES_MAX))?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().map_err(Error::Start)?;
    let input = [&length.to_be_bytes(), request.as_slice()];
    let outcome = converse(child, input, archive, limit, stop)?;
    if stop.is_stopped() {
        return Err(Error::Stopped);
    }
    if outcome.timed_out {
        return Err(Error::Timeout(limit));
    }
    match outcome.answer {
        Ok(answer) => answer.into_result(),
        Err(Unread::Excess(excess)) => Err(Error::Output(excess.to_string())),
        Err(Unread::Io(error)) => Err(Error::Talk(error)),
        Err(Unread::Incomplete) => Err(Error::Died(outcome.status.ok())),
    }
}

/// Sends the input and reads the output, while a second thread enforces the time limit. The
/// process has ended afterwards.
fn converse(
    mut child: Child,
    head: [&[u8]; 2],
    archive: Archive<'_>,
    limit: Duration,
    stop: &Stop,
) -> Result<ChildOutput, Error> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let child = Arc::new(Mutex::new(child));
    let (done, watched) = (stop.child(), child.clone());
    let finished = done.clone();
    // The machine's clock, independent of the agent's, because the process is real.
    let watch = move || {
        let timed_out = !finished.wait(&Clock::system(), limit);
        // Harmless if it is dead already: it is reaped only afterwards.
        let _ = watched.lock().ignore_poison().kill();
        timed_out
    };
    let watch = match thread::spawn("render-watch", SMALL_STACK_BYTES, watch) {
        Ok(watch) => watch,
        Err(error) => {
            let mut child = child.lock().ignore_poison();
            let _ = child.kill().and_then(|()| child.wait());
            return Err(Error::Start(error));
        }
    };
    if let Some(mut stdin) = stdin {
        // If the child dies early, its output shows it.
        let sent = head.iter().try_for_each(|part| stdin.write_all(part));
        let _ = sent.and_then(|()| archive.send(&mut stdin));
    }
    let answer = stdout.map_or(Err(Unread::Incomplete), |mut stdout| answer::read(&mut stdout));
    done.stop();
    let timed_out = watch.join().unwrap_or(false);
    let status = child.lock().ignore_poison().wait();
    Ok(ChildOutput { answer, status, timed_out })
}

/// The command `render-child`: reads one request, writes one answer, and returns the exit code.
pub(crate) fn main(input: &mut dyn Read, output: &mut dyn Write) -> u8 {
    limit_resources();
    // If the system runs out of memory, it kills this process and not the agent.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let answer = match receive(input) {
        Ok((request, archive)) => {
            let rendering = thread::spawn("render", RENDER_STACK_BYTES, move || run(request, &archive));
            match rendering.map(std::thread::JoinHandle::join) {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => ChildAnswer::Error("the rendering thread died".to_owned()),
                Err(error) => ChildAnswer::Error(error.to_string()),
            }
        }
        Err(error) => ChildAnswer::Error(format!("request: {error}")),
    };
    match serde_json::to_writer(&mut *output, &answer.into_json())
        .map_err(io::Error::from)
        .and_then(|()| output.flush())
    {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

/// Sets the resource limits of a rendering. On a system without such limits it continues without them.
pub(crate) fn limit_resources() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let cpu_s = Some(RENDER_CPU_S_MAX);
    for (resource, current, maximum) in [
        (Resource::Data, Some(RENDER_MEMORY_BYTES_MAX), Some(RENDER_MEMORY_BYTES_MAX)),
        (Resource::As, Some(RENDER_ADDRESS_BYTES_MAX), Some(RENDER_ADDRESS_BYTES_MAX)),
        // First a signal that identifies its cause.
        (Resource::Cpu, cpu_s, Some(RENDER_CPU_S_MAX + RENDER_CPU_GRACE_S)),
        // No core dump of a process that holds values.
        (Resource::Core, Some(0), Some(0)),
    ] {
        let _ = setrlimit(resource, Rlimit { current, maximum });
    }
}

fn receive(input: &mut dyn Read) -> io::Result<(RenderRequest, Vec<u8>)> {
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
    Ok((view::parse(&request)?, archive))
}

/// Renders; errors are texts for people.
fn run(request: RenderRequest, archive: &[u8]) -> ChildAnswer {
    rendered(request, archive).limited()
}

fn rendered(request: RenderRequest, archive: &[u8]) -> ChildAnswer {
    let values = match &request.resources {
        Json::Null => Ok(request.values.clone()),
        resources => expand::expand(&request.values, resources),
    };
    match values {
        Ok(Json::Object(values)) => render_over(request, values, archive).into(),
        Ok(Json::Null) => render_over(request, ValuesTable::new(), archive).into(),
        Ok(_) => ChildAnswer::Error("values must be a map".to_owned()),
        Err(message) => ChildAnswer::Values(message),
    }
}

fn render_over(
    request: RenderRequest,
    mut values: ValuesTable,
    archive: &[u8],
) -> Result<RenderedObjects, ChildAnswer> {
    let chart = archive::load(archive).map_err(|e| ChildAnswer::Error(chain(&e)))?;
    values::merge(&mut values, request.mix_in);
    values.values_mut().for_each(values::to_floats);
    let apart = request.apart;
    let options = Options {
        mode: RenderMode::Extension,
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
        is_upgrade: false,
        checks_schema: true,
    };
    let rendered = render::render(chart, &options).map_err(|e| ChildAnswer::Error(chain(&e)))?;
    Ok(if apart { rendered.objects_apart() } else { rendered.objects() })
}

#[cfg(test)]
mod tests;
