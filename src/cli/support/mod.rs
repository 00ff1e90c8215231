//! `gardenlet support-bundle`: one text with what helpers need, and no secret. People can read all of it before they send it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lexopt::Arg::{Long, Short};
use lexopt::Parser;

use super::arguments::{CONFIG, Way};
use super::unit::Handed;
use super::usage::Usage;
use super::{
    FAILURE, Io, Variable, clusters, doctor, fail, help, lines, print, refuse, say, status, version, visible,
    write,
};
use crate::base::clock::Clock;
use crate::base::cut::head;
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
/// How much of a log is read: the last lines of it may be long.
const LOG_BYTES_READ_MAX: u64 = 256 << 20;
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
    let wrong = |why: &str| Usage::new("support-bundle", why);
    let (mut config, mut output, mut log) = (None, None, None);
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        let is_again = match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("config") => config.replace(PathBuf::from(parser.value()?)).is_some(),
            Long("output") => output.replace(PathBuf::from(parser.value()?)).is_some(),
            Long("unit") => log.replace(Log::Unit(parser.value()?.to_string_lossy().into_owned())).is_some(),
            Long("log") => log.replace(Log::File(parser.value()?.into())).is_some(),
            other => return Err(Usage::unexpected("support-bundle", &other)),
        };
        if is_again {
            return Err(wrong("give each option once, and --unit or --log, and not both"));
        }
    }
    let or = |path: Option<PathBuf>, default: &str| path.unwrap_or_else(|| PathBuf::from(default));
    let log = log.unwrap_or_else(|| Log::Unit(UNIT.to_owned()));
    Ok(Some(Order { config: or(config.or(usual), CONFIG), output: or(output, OUTPUT), log }))
}

/// The whole text.
fn collect(order: &Order, input: &mut dyn Read, variable: Variable<'_>) -> String {
    let loaded = file::load(&order.config, &mut io::empty());
    let listener = loaded.as_ref().ok().map(|loaded| &loaded.settings.health_probes);
    let status = status::told(listener, false).unwrap_or_else(|why| why);
    let problems = loaded.as_ref().err().map(|problems| lines(&order.config, problems));
    let doctor = match &problems {
        Some(problems) => problems.clone(),
        None => doctor::told(&order.config, &Handed::new(&order.config, variable, &Way::default())),
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

/// The configuration without its secrets. A text that is no YAML may have them anywhere.
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
        Log::File(path) if path == Path::new(STREAM) => last_lines(input).map_err(|error| format!("standard input: {error}")),
        Log::File(path) => {
            File::open(path).and_then(|mut file| last_lines(&mut file)).map_err(|error| format!("{}: {error}", path.display()))
        }
        Log::Unit(unit) => journal(unit).map_err(|error| {
            format!("journalctl --unit={unit}: {error}; for an agent in a pod, give the output of kubectl logs with --log=-")
        }),
    }
}

fn journal(unit: &str) -> io::Result<String> {
    let mut command = Command::new("journalctl");
    command.args(["--no-pager", "--output=short-iso", "--lines", &LOG_LINES.to_string(), "--unit", unit]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let text = child.stdout.take().map_or(Ok(String::new()), |mut output| last_lines(&mut output));
    let status = child.wait()?;
    if status.success() { text } else { Err(io::Error::other(status.to_string())) }
}

/// The last lines of a stream, without their secrets, as many as the file has room for.
fn last_lines(input: &mut dyn Read) -> io::Result<String> {
    let mut kept: Vec<u8> = Vec::new();
    let mut piece = vec![0; 64 << 10];
    // Twice the room, because what is cleaned may become shorter.
    let most = 2 * LOG_BYTES_MAX;
    let mut left = LOG_BYTES_READ_MAX;
    loop {
        let length = match input.read(&mut piece) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        left = left.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
        if length == 0 || left == 0 {
            break;
        }
        kept.extend_from_slice(&piece[..length]);
        if kept.len() > 2 * most {
            kept.drain(..kept.len() - most);
        }
    }
    let text = String::from_utf8_lossy(&kept);
    let lines: Vec<&str> = text.lines().rev().take(LOG_LINES).collect();
    let text = clean(&lines.into_iter().rev().collect::<Vec<_>>().join("\n"));
    let text = visible(&text);
    let mut room = LOG_BYTES_MAX;
    let fits = |line: &&str| {
        let fits = line.len() < room;
        room = room.saturating_sub(line.len() + 1);
        fits
    };
    let last: Vec<&str> = text.lines().rev().take_while(fits).collect();
    Ok(last.into_iter().rev().collect::<Vec<_>>().join("\n"))
}

/// Only the owner may read the file.
fn save(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests;
