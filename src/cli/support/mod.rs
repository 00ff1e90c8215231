//! `gardenlet support-bundle`: one text with what others need to help. Known kinds of secrets are replaced in it, and people read it before
//! they send it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::mem;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lexopt::Arg::{Long, Short};
use lexopt::Parser;

use super::arguments::{CONFIG, ClusterOptions, path};
use super::unit::CommandEnvironment;
use super::usage::Usage;
use super::{
    FAILURE, Io, Variable, clusters, doctor, fail, help, lines, print, refuse, say, status, version, visible,
    write,
};
use crate::base::clock::Clock;
use crate::base::cut::{head, one_line};
use crate::base::random;
use crate::config::file;
use crate::format::time::rfc3339;
use crate::format::yaml;

mod clean;

use clean::{clean, clean_value};

const OUTPUT: &str = "gardenlet-support.txt";
const UNIT: &str = "gardenlet";
const STREAM: &str = "-";
/// The last lines of the log.
const LOG_LINES: usize = 1_000;
/// How many lines before them are cleaned, too: a secret may begin there.
const LOG_LINES_BEFORE: usize = 100;
/// Where reading a file begins, before its end.
const LOG_TAIL_BYTES: u64 = 16 << 20;
/// The longest line of a log. The rest of a longer one is left out.
const LINE_BYTES_MAX: u64 = 32 << 10;
/// The longest texts of the parts: 2 MB with their titles.
const VERSION_BYTES_MAX: usize = 10_000;
const STATUS_BYTES_MAX: usize = 500_000;
const DOCTOR_BYTES_MAX: usize = 120_000;
const CONFIG_BYTES_MAX: usize = 250_000;
const LOG_BYTES_MAX: usize = 1_100_000;
/// What is cut from a part that is too long.
const CUT: &str = "[the rest is left out]\n";

/// What to collect, and where to.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    config: PathBuf,
    output: PathBuf,
    log: Log,
}

#[derive(Debug, PartialEq, Eq)]
enum Log {
    /// The journal of a unit.
    Unit(String),
    /// A file, or standard input.
    File(PathBuf),
}

/// Runs the command and returns the exit code.
pub(super) fn main(io: &mut Io<'_>, args: Vec<OsString>, variable: Variable<'_>) -> u8 {
    let usual = clusters::set(variable, "GARDENLET_CONFIG").map(PathBuf::from);
    let order = match parse(args, usual) {
        Ok(Some(order)) => order,
        Ok(None) => return print(io, &help::page("support-bundle")),
        Err(usage) => return refuse(io, &usage.of("support-bundle")),
    };
    let text = collect(&order, io.input, variable);
    if order.output == Path::new(STREAM) {
        return write(io, &text);
    }
    let place = order.output.display();
    match save(&order.output, &text) {
        Ok(()) => {
            say(
                io,
                format_args!("Read {place} before you send it: names and addresses of the site are in it.\n"),
            );
            print(io, &format!("{place}\n"))
        }
        Err(error) => {
            fail(
                io,
                format_args!(
                    "gardenlet support-bundle: cannot write {place}: {error}; name another file with --output"
                ),
            );
            FAILURE
        }
    }
}

/// The order; none if it asks for help.
fn parse(args: Vec<OsString>, usual: Option<PathBuf>) -> Result<Option<Order>, Usage> {
    let (mut config, mut output, mut unit, mut log) = (None, None, None, None);
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("config") => path("--config", &mut config, &mut parser)?,
            Long("output") => path("--output", &mut output, &mut parser)?,
            Long("unit") => path("--unit", &mut unit, &mut parser)?,
            Long("log") => path("--log", &mut log, &mut parser)?,
            other => return Err(Usage::unexpected("support-bundle", &other)),
        }
    }
    if unit.is_some() && log.is_some() {
        return Err(Usage::new("support-bundle", "give --unit or --log, and not both"));
    }
    let or = |path: Option<PathBuf>, default: &str| path.unwrap_or_else(|| PathBuf::from(default));
    let unit = || Log::Unit(or(unit, UNIT).to_string_lossy().into_owned());
    let log = log.map_or_else(unit, Log::File);
    Ok(Some(Order { config: or(config.or(usual), CONFIG), output: or(output, OUTPUT), log }))
}

fn collect(order: &Order, input: &mut dyn Read, variable: Variable<'_>) -> String {
    let loaded = file::load(&order.config, &mut io::empty());
    let listener = loaded.as_ref().ok().map(|loaded| &loaded.settings.health_probes);
    let status = status::told(listener, false).unwrap_or_else(|why| why);
    let problems = loaded.as_ref().err().map(|problems| lines(&order.config, problems));
    let doctor = match &problems {
        Some(problems) => problems.clone(),
        None => doctor::told(
            &order.config,
            &CommandEnvironment::new(&order.config, variable, &ClusterOptions::default()),
        ),
    };
    let log = log(&order.log, input).unwrap_or_else(|why| why);
    let parts = [
        ("versions", versions(), VERSION_BYTES_MAX),
        ("status", status, STATUS_BYTES_MAX),
        ("doctor", doctor, DOCTOR_BYTES_MAX),
        ("configuration", configuration(&order.config), CONFIG_BYTES_MAX),
        ("log", log, usize::MAX),
    ];
    let mut text = String::new();
    for (title, part, bytes_max) in parts {
        text.push_str(&format!("===== {title} =====\n\n{}\n", bounded(&visible(&clean(&part)), bytes_max)));
    }
    text
}

/// The beginning of a text, in whole lines and with a last line break.
fn bounded(text: &str, bytes_max: usize) -> String {
    let text = text.trim_end();
    let kept = head(text, bytes_max);
    if kept.len() == text.len() {
        return format!("{text}\n");
    }
    let end = kept.rfind('\n').map_or(0, |end| end + 1);
    format!("{}{CUT}", &kept[..end])
}

fn versions() -> String {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let now = rfc3339(Clock::system().now());
    let system = line("/etc/os-release");
    let name = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown");
    format!("{}written at {now}\nsystem {name}\n{}", version(false), line("/proc/version"))
}

/// The configuration without known kinds of secrets. A text that is no YAML may have them anywhere.
fn configuration(path: &Path) -> String {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return format!("cannot read {}: {error}; name the file with --config", path.display()),
    };
    match yaml::parse(&text) {
        Ok(mut value) => {
            clean_value(&mut value);
            yaml::emit(&value, yaml::Dialect::V4)
        }
        Err(_) => format!("{} is no YAML, so it is left out", path.display()),
    }
}

/// The last lines, or why there are none.
fn log(log: &Log, input: &mut dyn Read) -> Result<String, String> {
    match log {
        Log::File(path) if path == Path::new(STREAM) => {
            last_lines(input, false).map_err(|error| format!("standard input: {error}"))
        }
        Log::File(path) => end_of(path).map_err(|error| format!("{}: {error}", path.display())),
        Log::Unit(unit) => journal(unit).map_err(|error| {
            format!(
                "journalctl --unit={unit}: {error}; run the command as root, or name the unit of the agent with --unit; for an agent in a pod, \
                 give the output of kubectl logs with --log=-"
            )
        }),
    }
}

/// The last lines of a file. Only regular files have an end to begin from.
fn end_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    let start = if found.is_file() { found.len().saturating_sub(LOG_TAIL_BYTES) } else { 0 };
    if start > 0 {
        file.seek(SeekFrom::Start(start))?;
    }
    last_lines(&mut file, start > 0)
}

fn journal(unit: &str) -> io::Result<String> {
    let lines = (LOG_LINES + LOG_LINES_BEFORE).to_string();
    let (mut output, end) = io::pipe()?;
    let mut command = Command::new("journalctl");
    command.args(["--no-pager", "--output=short-iso", "--lines", &lines, "--unit", unit]);
    let mut child = command.stdin(Stdio::null()).stdout(end.try_clone()?).stderr(end).spawn()?;
    // It holds the end of the pipe.
    drop(command);
    let text = last_lines(&mut output, false);
    let status = child.wait()?;
    entries(text?, &status.to_string())
}

/// What journalctl printed, if entries are in it: they begin with a date, and its own lines do not.
fn entries(text: String, status: &str) -> io::Result<String> {
    if text.lines().any(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        return Ok(text);
    }
    Err(io::Error::other(format!("{status}: {}", one_line(&text))))
}

/// The last lines of a stream, without their secrets, as many as the text has room for. If the stream begins in the middle of a line, this
/// line is left out: what would show that it is secret may be missing.
fn last_lines(input: &mut dyn Read, mut is_in_line: bool) -> io::Result<String> {
    let mut reader = BufReader::new(input);
    let (mut kept, mut bytes) = (VecDeque::new(), 0);
    loop {
        let mut line = Vec::new();
        if reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let ends = line.pop_if(|last| *last == b'\n').is_some();
        if mem::replace(&mut is_in_line, !ends) {
            continue;
        }
        if !ends && u64::try_from(line.len()) == Ok(LINE_BYTES_MAX) {
            line.extend_from_slice(CUT.trim_end().as_bytes());
        }
        bytes += line.len();
        kept.push_back(line);
        // Twice the room, because what is cleaned may become shorter.
        while kept.len() > LOG_LINES + LOG_LINES_BEFORE || bytes > 2 * LOG_BYTES_MAX {
            bytes -= kept.pop_front().map_or(bytes, |line| line.len());
        }
    }
    let text = clean(&String::from_utf8_lossy(&kept.make_contiguous().join(&b'\n')));
    let text = visible(&text);
    let mut room = LOG_BYTES_MAX;
    let fits = |line: &&str| {
        let fits = line.len() < room;
        room = room.saturating_sub(line.len() + 1);
        fits
    };
    let last: Vec<&str> = text.lines().rev().take(LOG_LINES).take_while(fits).collect();
    Ok(last.into_iter().rev().collect::<Vec<_>>().join("\n"))
}

/// Writes a new file, which only the owner may read, in place of an old one. A link or a device stays as it is.
fn save(path: &Path, text: &str) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("something other than a file has this name"));
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", random::hex(8)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let saved = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, path));
    if saved.is_err() {
        let _ = fs::remove_file(&beside);
    }
    saved
}

#[cfg(test)]
mod tests;
