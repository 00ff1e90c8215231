//! Log lines: text for people or JSON for machines, one line per write. Messages are constant; variable parts are
//! key-value pairs. `env_logger` filters; this module formats the line.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, Weak};

use env_logger::{Builder, Target};
use log::kv::{self, Key, Value, VisitSource};
use log::{Level, LevelFilter, Record};

use super::clock::{Clock, Timestamp};
use super::cut::{head, one_line};
use super::lock::IgnorePoison;
use crate::limits;

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object: `level`, `ts`, `logger`, `msg`, then the pairs.
    Json,
    /// A text for people.
    Text,
}

/// How to log.
#[derive(Clone, Debug)]
pub struct Options {
    /// The lowest level that is written.
    pub level: LevelFilter,
    /// The form of a line.
    pub format: LogFormat,
    /// Standard error is the journal: lines carry a priority, and text lines carry no time.
    pub is_journal: bool,
    /// The source of `ts`.
    pub clock: Clock,
}

static OPTIONS: Mutex<Option<Options>> = Mutex::new(None);
static CAPTURES: Mutex<Vec<Weak<Lines>>> = Mutex::new(Vec::new());

type Lines = Mutex<Vec<String>>;

/// Starts logging to standard error. Called again, it changes the options.
pub fn start(options: Options) {
    let level = options.level;
    *OPTIONS.lock().ignore_poison() = Some(options);
    let mut builder = Builder::new();
    // Libraries log only problems: their details do not concern an operator, and may hold secrets.
    builder.filter_level(LevelFilter::Warn).filter_module("gardenlet", LevelFilter::Trace);
    builder
        .target(Target::Pipe(Box::new(Output)))
        .format(|out, record| out.write_all(line(record).as_bytes()));
    // An error means that a logger is installed already, which is this one.
    let _ = builder.try_init();
    log::set_max_level(level);
}

/// Captures all lines of the process until dropped; standard error gets none of them. For tests.
pub fn capture() -> LogCapture {
    let lines = Arc::new(Lines::default());
    CAPTURES.lock().ignore_poison().push(Arc::downgrade(&lines));
    LogCapture(lines)
}

/// Captured lines.
#[derive(Debug)]
pub struct LogCapture(Arc<Lines>);

impl LogCapture {
    /// The lines from an index on.
    pub fn since(&self, place: usize) -> Vec<String> {
        self.0.lock().ignore_poison().get(place..).unwrap_or_default().to_vec()
    }

    /// How many lines there are.
    pub fn count(&self) -> usize {
        self.0.lock().ignore_poison().len()
    }
}

/// The capture if there is one, else standard error.
struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut captures = CAPTURES.lock().ignore_poison();
        captures.retain(|capture| capture.strong_count() > 0);
        for capture in captures.iter().filter_map(Weak::upgrade) {
            capture.lock().ignore_poison().push(String::from_utf8_lossy(bytes).trim_end().to_owned());
        }
        if captures.is_empty() {
            io::stderr().write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn line(record: &Record<'_>) -> String {
    let options = OPTIONS.lock().ignore_poison().clone();
    let Some(options) = options else { return String::new() };
    let mut pairs = Pairs::default();
    // Our visitor has no errors.
    let _ = record.key_values().visit(&mut pairs);
    let mut out = String::new();
    if options.is_journal {
        let _ = write!(out, "<{}>", priority(record.level()));
    }
    let entry = Entry {
        level: record.level(),
        time: (!options.is_journal || options.format == LogFormat::Json)
            .then(|| rfc3339(options.clock.now())),
        logger: logger(record.target()),
        message: head(&record.args().to_string(), limits::LOG_VALUE_BYTES_MAX).to_owned(),
        pairs: pairs.0,
    };
    match options.format {
        LogFormat::Json => entry.json(&mut out),
        LogFormat::Text => entry.text(&mut out),
    }
    out.push('\n');
    out
}

struct Entry {
    level: Level,
    time: Option<String>,
    logger: String,
    message: String,
    pairs: Vec<(String, Datum)>,
}

impl Entry {
    fn json(&self, out: &mut String) {
        let level = self.level.as_str().to_lowercase();
        let time = self.time.as_deref().unwrap_or_default();
        let fields =
            [("level", level.as_str()), ("ts", time), ("logger", &self.logger), ("msg", &self.message)];
        for (index, (key, value)) in fields.into_iter().enumerate() {
            out.push(if index == 0 { '{' } else { ',' });
            let _ = write!(out, "{}:{}", quoted(key), quoted(value));
        }
        for (key, value) in &self.pairs {
            let value = match value {
                Datum::Bare(text) => text.clone(),
                Datum::Text(text) => quoted(text),
            };
            let _ = write!(out, ",{}:{value}", quoted(key));
        }
        out.push('}');
    }

    fn text(&self, out: &mut String) {
        if let Some(time) = &self.time {
            let _ = write!(out, "{time} ");
        }
        let _ = write!(out, "{:<5} {}: {}", self.level.as_str(), self.logger, one_line(&self.message));
        for (key, value) in &self.pairs {
            let _ = match value {
                Datum::Text(text) if is_plain(text) => write!(out, " {key}={text}"),
                Datum::Text(text) => write!(out, " {key}={text:?}"),
                Datum::Bare(text) => write!(out, " {key}={text}"),
            };
        }
    }
}

/// A value as JSON shows it: numbers and booleans bare, everything else quoted.
enum Datum {
    Bare(String),
    Text(String),
}

#[derive(Default)]
struct Pairs(Vec<(String, Datum)>);

impl<'kvs> VisitSource<'kvs> for Pairs {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let is_bare = value.to_bool().is_some() || value.to_i64().is_some() || value.to_u64().is_some();
        let text = head(&value.to_string(), limits::LOG_VALUE_BYTES_MAX).to_owned();
        self.0.push((key.to_string(), if is_bare { Datum::Bare(text) } else { Datum::Text(text) }));
        Ok(())
    }
}

/// `gardenlet::controllers::seed::act` is `controllers.seed.act`.
fn logger(target: &str) -> String {
    target.strip_prefix("gardenlet::").unwrap_or(target).replace("::", ".")
}

const fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

fn quoted(text: &str) -> String {
    miniserde::json::to_string(text)
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '"' | '='))
}

/// UTC with milliseconds.
fn rfc3339(time: Timestamp) -> String {
    let date =
        time::OffsetDateTime::from_unix_timestamp(time.unix()).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    let (hour, minute, second) = date.to_hms();
    let millis = time.subsec_nanos() / 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Simulated;

    /// One test, because the whole process has only one logger.
    #[test]
    fn lines_have_the_form_that_the_options_say() {
        let clock = Clock::new(Simulated::new(Timestamp::from_unix(1_735_787_045), 1));
        let options = Options { level: LevelFilter::Info, format: LogFormat::Json, is_journal: false, clock };
        let capture = capture();
        let mine =
            |part: &str| capture.since(0).into_iter().filter(|line| line.contains(part)).collect::<Vec<_>>();

        start(options.clone());
        log::info!(target: "gardenlet::base::log", attempt = 3, done = true, err = "a \"b\"\nc"; "Marker one");
        log::debug!(target: "gardenlet::base::log", "Marker one, too low");
        log::info!(target: "rustls::client", "Marker one, of a library");
        let lines = mine("Marker one");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(capture.since(capture.count()).is_empty());
        assert!(lines[0].starts_with(r#"{"level":"info","ts":"2025-01-02T03:04:05."#), "{}", lines[0]);
        let rest = r#"Z","logger":"base.log","msg":"Marker one","attempt":3,"done":true,"err":"a \"b\"\nc"}"#;
        assert!(lines[0].ends_with(rest), "{}", lines[0]);

        start(Options { format: LogFormat::Text, is_journal: true, level: LevelFilter::Debug, ..options });
        log::debug!(target: "gardenlet::controllers::seed", key = "edge-1", err = "x y"; "Marker two\nend");
        log::error!(target: "gardenlet::app", err:? = Some("\u{e9}".repeat(20_000)); "Marker three");
        assert_eq!(mine("Marker two"), [r#"<7>DEBUG controllers.seed: Marker two end key=edge-1 err="x y""#]);
        let long = mine("Marker three").remove(0);
        assert!(long.starts_with("<3>ERROR app: Marker three err=") && long.len() < 9_000, "{}", long.len());
        // Other tests of this process stay quiet.
        log::set_max_level(LevelFilter::Off);
    }

    #[test]
    fn dates_are_right() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_709_210_096, "2024-02-29T12:34:56.000Z"),
            (-1, "1969-12-31T23:59:59.000Z"),
        ];
        for (seconds, expected) in table {
            assert_eq!(rfc3339(Timestamp::from_unix(seconds)), expected);
        }
    }
}
