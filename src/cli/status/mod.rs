//! `gardenlet status`: shows the status of the agent on this machine.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::arguments::CONFIG;
use super::colour::{Tone, paint};
use super::window::{self, WindowSize, fit};
use super::{Io, SUCCESS, code_of, fail, help, lines, load, print, put, refuse, visible, write};
use crate::app::{AgentState, BRIEF, RUN};
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::signal;
use crate::base::stop::Stop;
use crate::config::settings::ListenAddress;
use crate::format::address::authority;
use crate::format::duration;
use crate::format::time::rfc3339;
use crate::format::view;
use crate::limits;
use crate::net::dial::{Dial as _, DialAttempt, SystemDialer};

mod arguments;
mod others;

pub(super) use others::{names, told};

use arguments::{AgentPlace, Show, StatusCommand, parse};

/// There are problems, or no agent answers.
const NOT_GOOD: u8 = 1;
const PORT: u16 = 2728;
/// How long an agent on the same machine may take for its whole answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two outputs of `--watch`.
const EVERY: Duration = Duration::from_secs(2);
/// Moves the cursor into the corner and clears the screen.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Runs the command and returns the exit code. `usual` is the configuration that the environment names.
pub(super) fn main(io: &mut Io<'_>, args: Vec<OsString>, usual: Option<PathBuf>) -> u8 {
    let mut show = match parse(args) {
        Err(usage) => return refuse(io, &usage),
        Ok(StatusCommand::Help) => return print(io, &help::page("status")),
        Ok(StatusCommand::Show(show)) => show,
    };
    if let (AgentPlace::Default, Some(path)) = (&show.place, usual) {
        show.place = AgentPlace::Config(path);
    }
    let (hosts, port) = match place(io, &show, Path::new(CONFIG)) {
        Ok(place) => place,
        Err(code) => return code,
    };
    let (verbose, stop) = (show.verbose, Stop::new());
    let agent = Agent { hosts, port, verbose, patience: PATIENCE, stop };
    if show.watch {
        return watch(io, &agent, show.as_json);
    }
    match agent.ask(show.as_json) {
        Ok(answer) => {
            let printed = write(io, &answer.shown(io.colour, None));
            if answer.is_good { printed } else { NOT_GOOD }
        }
        Err(why) => failed(io, show.as_json, "gardenlet status: ", &why),
    }
}

/// There is no answer.
fn failed(io: &mut Io<'_>, as_json: bool, who: &str, why: &str) -> u8 {
    if as_json {
        let _ = print(io, &unreachable(why));
    } else {
        fail(io, format_args!("{who}{why}"));
    }
    NOT_GOOD
}

/// The document that takes the place of an answer.
fn unreachable(why: &str) -> String {
    format!("{}\n", json!({"verdict": {"state": "unreachable", "text": why}}))
}

/// Where the agent listens, or the exit code. `packaged` is the configuration of the packages, which the agent need not use.
fn place(io: &mut Io<'_>, show: &Show, packaged: &Path) -> Result<(Vec<String>, u16), u8> {
    match &show.place {
        AgentPlace::Default => {
            let listener = load(io, packaged).ok().map(|loaded| loaded.settings.health_probes);
            Ok(reached(listener.as_ref()))
        }
        AgentPlace::Address(host, port) => Ok((vec![host.clone()], *port)),
        AgentPlace::Config(path) => match load(io, path) {
            Ok(loaded) => Ok(reached(Some(&loaded.settings.health_probes))),
            Err(problems) => Err(failed(io, show.as_json, "", &lines(path, &problems))),
        },
    }
}

/// The addresses and the port of this listener, or of the default one.
fn reached(listener: Option<&ListenAddress>) -> (Vec<String>, u16) {
    listener.map_or_else(|| (inside(""), PORT), |it| (inside(&it.bind_address), it.port))
}

/// The addresses at which a program on the same machine reaches a listener, in the order in which to try them. An agent
/// that listens everywhere may do so for one family only.
fn inside(bind_address: &str) -> Vec<String> {
    let loopback = |both: &[&str]| both.iter().map(|&host| host.to_owned()).collect();
    match bind_address.parse::<IpAddr>() {
        _ if bind_address.is_empty() => loopback(&["127.0.0.1", "::1"]),
        Ok(IpAddr::V4(address)) if address.is_unspecified() => loopback(&["127.0.0.1"]),
        Ok(IpAddr::V6(address)) if address.is_unspecified() => loopback(&["::1", "127.0.0.1"]),
        _ => vec![bind_address.to_owned()],
    }
}

/// Prints the status again and again until a signal arrives.
fn watch(io: &mut Io<'_>, agent: &Agent, as_json: bool) -> u8 {
    let clock = Clock::system();
    let _signals = match signal::stop_or_end(&agent.stop) {
        Ok(signals) => signals,
        Err(error) => {
            fail(io, format_args!("gardenlet status: cannot watch for signals: {error}"));
            return NOT_GOOD;
        }
    };
    loop {
        let answer = agent.ask(as_json);
        if agent.stop.is_stopped() {
            return SUCCESS;
        }
        let text = match (answer, as_json) {
            (Ok(answer), true) => answer.shown(false, None),
            (Err(why), true) => unreachable(&why),
            (answer, false) => {
                let time = paint(io.colour, Tone::Faint, &rfc3339(clock.now()));
                let begin = if io.colour { CLEAR } else { "" };
                // The time and the cursor have lines of their own.
                let room =
                    window::size().map(|size| WindowSize { lines: size.lines.saturating_sub(2), ..size });
                let text = answer.map_or_else(
                    |why| format!("{}\n", paint(io.colour, Tone::Bad, &visible(&why))),
                    |answer| answer.shown(io.colour, room),
                );
                let end = if io.colour { "" } else { "\n" };
                format!("{begin}{time}\n{text}{end}")
            }
        };
        let written = put(io, &text);
        if written.is_err() || agent.stop.wait(&clock, EVERY) {
            return code_of(io, written);
        }
    }
}

/// Where an agent listens for probes.
struct Agent {
    /// Tried one after the other.
    hosts: Vec<String>,
    port: u16,
    /// Whether to ask for what is at rest, too.
    verbose: bool,
    patience: Duration,
    /// Ends a request, too.
    stop: Stop,
}

/// The answer of an agent.
struct Answer {
    text: String,
    is_json: bool,
    is_good: bool,
}

impl Answer {
    fn new(text: String, is_json: bool) -> Result<Self, String> {
        let is_good = if is_json {
            let page = view::json(text.as_bytes()).map_err(|_| NO_AGENT.to_owned())?;
            let verdict = page["verdict"]["text"].as_str().ok_or(NO_AGENT)?;
            AgentState::of_line(verdict).is_good()
        } else {
            AgentState::of_line(text.lines().next().unwrap_or_default()).is_good()
        };
        Ok(Self { text, is_json, is_good })
    }

    /// The text for a terminal or for a program, cut to the lines and columns of a window if it has one.
    fn shown(&self, colour: bool, window: Option<WindowSize>) -> String {
        let text = visible(&self.text);
        if self.is_json {
            return text.into_owned();
        }
        let text = window.map_or_else(|| text.clone().into_owned(), |window| fit(&text, window));
        if !colour {
            return text;
        }
        let mut out = String::with_capacity(text.len() + 512);
        let mut title = "";
        for (index, line) in text.lines().enumerate() {
            if !line.starts_with(' ') {
                title = line;
            }
            let painted = match (index, line) {
                (0, _) => paint(true, self.tone(line), line),
                (_, "") => String::new(),
                _ if !line.starts_with(' ') => paint(true, Tone::Strong, line),
                _ if line.trim_start().starts_with(RUN) => line.to_owned(),
                _ if title == "Problems" || line.starts_with("    problem: ") => paint(true, Tone::Bad, line),
                _ => line.split_once(": ").map_or_else(
                    || line.to_owned(),
                    |(label, rest)| format!("{}: {rest}", paint(true, Tone::Faint, label)),
                ),
            };
            out.push_str(&painted);
            out.push('\n');
        }
        out
    }

    fn tone(&self, verdict: &str) -> Tone {
        match AgentState::of_line(verdict) {
            _ if self.is_good => Tone::Good,
            AgentState::Starting => Tone::Odd,
            _ => Tone::Bad,
        }
    }
}

const NO_AGENT: &str = "the answer is not that of a gardenlet";
const REMEDY: &str = "\nIs the agent running on this machine? If it listens elsewhere, name its configuration (--config=FILE) or its \
    address (--address=HOST:PORT). For an agent in a pod, use kubectl exec or kubectl port-forward.";

impl Agent {
    fn name(&self) -> String {
        let host = self.hosts.first().map_or("", String::as_str);
        authority(host, self.port)
    }

    /// Requests the status. On failure, returns the reason and a remedy.
    fn ask(&self, as_json: bool) -> Result<Answer, String> {
        let format = if as_json { "json" } else { "text" };
        let refused = |why: &str| format!("{} answers, but {why}{REMEDY}", self.name());
        let brief = if self.verbose { String::new() } else { format!("&{BRIEF}") };
        let target = format!("/statusz?format={format}{brief}");
        let mut answers = self.hosts.iter().map(|host| self.get(host, &target));
        let first = answers.next().unwrap_or_else(|| Err(io::ErrorKind::AddrNotAvailable.into()));
        // If nobody answers anywhere, the first address tells.
        let answer = first.or_else(|error| answers.find_map(Result::ok).ok_or(error));
        let answer = answer
            .map_err(|error| format!("no agent answers at {}: {}{REMEDY}", self.name(), chain(&error)))?;
        match split(&answer).map_err(|why| refused(&why))? {
            (200, text) => Answer::new(text, as_json).map_err(|why| refused(&why)),
            (403, _) => Err(format!(
                "{} shows the status only to clients on its own machine: run the command there, or forward the port",
                self.name()
            )),
            (status, _) => Err(refused(&format!("with status {status}: {NO_AGENT}"))),
        }
    }

    /// One plain request, past all proxies: all that comes back until the agent closes the connection.
    fn get(&self, host: &str, target: &str) -> io::Result<Vec<u8>> {
        let clock = Clock::system();
        let deadline = clock.mono().saturating_add(self.patience);
        // The hooks end with the child: a watch asks for days.
        let stop = self.stop.child();
        let mut opening = |attempt: &Arc<DialAttempt>| {
            let attempt = Arc::clone(attempt);
            stop.on_stop(move || attempt.cancel());
            if stop.is_stopped() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        };
        let mut socket = SystemDialer.dial_telling(host, self.port, self.patience, &mut opening)?;
        let other = socket.try_clone()?;
        stop.on_stop(move || drop(other.shutdown(Shutdown::Both)));
        // The agent refuses other names than this one, and its clients are on its machine.
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        socket.set_write_timeout(Some(self.patience))?;
        socket.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        loop {
            let left = deadline.saturating_sub(clock.mono());
            if left.is_zero() {
                let why = format!("the answer takes longer than {}", duration::format(self.patience));
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            if !read_some(&mut socket, left, &mut answer)? {
                return Ok(answer);
            }
            if answer.len() > limits::STATUS_PAGE_BYTES_MAX {
                let why = format!("the answer has more than {} bytes", limits::STATUS_PAGE_BYTES_MAX);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
    }
}

/// Reads a piece if one comes in time; false at the end.
fn read_some(socket: &mut TcpStream, timeout: Duration, answer: &mut Vec<u8>) -> io::Result<bool> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    let mut piece = [0; 4 << 10];
    socket.set_read_timeout(Some(timeout))?;
    match socket.read(&mut piece) {
        Ok(length) => {
            answer.extend_from_slice(&piece[..length]);
            Ok(length > 0)
        }
        Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Status and body of an answer, or why there is none.
fn split(answer: &[u8]) -> Result<(u16, String), String> {
    let end = answer.windows(4).position(|end| end == b"\r\n\r\n").ok_or(NO_AGENT)?;
    let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or(NO_AGENT)?;
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    match length.map(|(_, value)| value.trim().parse::<usize>()) {
        Some(Ok(length)) if length > body.len() => {
            Err(format!("the answer broke off: {} of {length} bytes have arrived", body.len()))
        }
        _ => Ok((status, String::from_utf8_lossy(body).into_owned())),
    }
}

#[cfg(test)]
mod tests;
