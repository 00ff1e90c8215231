//! The commands. `run` is what a configuration alone means, and passes it on when it is checked; this module runs the others.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::chart::child;
use crate::config::file;
use crate::config::{self, ConfigProblem, LoadedConfig};
use crate::format::time::rfc3339;
use crate::format::yaml::{Dialect, emit};

mod arguments;
mod bootstrap_token;
mod bundle;
mod clusters;
mod colour;
mod doctor;
mod etcd;
mod explain;
mod help;
mod moves;
mod node;
mod question;
mod render;
mod rescue;
mod status;
mod support;
mod unit;
mod usage;
mod visible;
mod window;
mod yaml;

use arguments::Command;
pub use colour::is_wanted as is_coloured;
use colour::{ColouredText, Tone};
use unit::CommandEnvironment;
use usage::Usage;
use visible::visible;

/// Success.
pub const SUCCESS: u8 = 0;
/// The command failed. A wrong configuration is a failure, too.
pub(crate) const FAILURE: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;

/// The streams of a command.
pub struct Io<'a> {
    /// Standard input.
    pub input: &'a mut dyn Read,
    /// Whether a person writes it.
    pub is_terminal: bool,
    /// Results go here.
    pub output: &'a mut dyn Write,
    /// Errors and warnings go here.
    pub errors: &'a mut dyn Write,
    /// Whether results have colours.
    pub colour: bool,
}

/// Looks up a variable of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Gets each write of a command before it is sent.
type Announce<'a> = &'a mut dyn FnMut(&str);

/// Requests a new identity, with the variables that the unit of systemd adds to those of the process.
type Rebootstrap<'a> =
    &'a dyn Fn(&LoadedConfig, Vec<(String, String)>, Announce<'_>) -> Result<String, String>;

/// Limits the memory and processor time of a process that only renders: charts come from outside.
pub fn limit_process(args: &[OsString]) {
    if args.first().is_some_and(|word| word == "render") && !args.iter().any(|word| word == render::UNLIMITED)
    {
        child::limit_resources();
    }
}

/// Runs the command of the arguments (without the program's name) and returns the exit code. `run` is the agent and
/// also gets the path of its configuration; `rebootstrap` requests a new identity.
pub fn main(
    args: Vec<OsString>,
    variable: Variable<'_>,
    io: &mut Io<'_>,
    rebootstrap: Rebootstrap<'_>,
    run: impl FnOnce(LoadedConfig, &Path) -> u8,
) -> u8 {
    let is_yaml = yaml::is_wanted(&args);
    let command = match arguments::parse(args, usual(variable)) {
        Ok(command) => command,
        Err(usage) => return refuse(io, &usage),
    };
    if !is_yaml {
        return perform(command, variable, io, rebootstrap, run);
    }
    let (mut output, colour) = (yaml::Converter::new(io.output), false);
    let mut io =
        Io { input: io.input, is_terminal: io.is_terminal, output: &mut output, errors: io.errors, colour };
    perform(command, variable, &mut io, rebootstrap, run)
}

fn perform(
    command: Command,
    variable: Variable<'_>,
    io: &mut Io<'_>,
    rebootstrap: Rebootstrap<'_>,
    run: impl FnOnce(LoadedConfig, &Path) -> u8,
) -> u8 {
    match command {
        Command::Run { config } => match load(io, &config).and_then(|loaded| loaded.into_run(variable)) {
            Ok(loaded) => run(loaded, &config),
            Err(problems) => report(io, &config, &problems),
        },
        Command::Rebootstrap { config, way } => {
            let handed = CommandEnvironment::new(&config, variable, &way);
            let asked = handed.load().map(|loaded| {
                if let Some(other) = handed.other_seed(&loaded) {
                    say(io, format_args!("The kubeconfig of the seed is {other}\n"));
                }
                rebootstrap(&loaded, handed.variables(), &mut |write| {
                    let _ = print(io, write);
                })
            });
            match asked {
                Ok(Ok(done)) => print(io, &format!("{done}{}", handed.after_bootstrap())),
                Ok(Err(why)) => {
                    let lacks = handed.lacks().filter(|_| why.contains("supply a bootstrap kubeconfig"));
                    let lacks = lacks.map(|lacks| format!("; {lacks}")).unwrap_or_default();
                    fail(io, format_args!("gardenlet rebootstrap: {why}{lacks}"))
                }
                Err(problems) => report(io, &config, &problems),
            }
        }
        Command::ConfigValidate { config, strict, as_json } => validate(io, &config, strict, as_json),
        Command::ConfigPrintDefaults { config, as_json } => print_defaults(io, config.as_deref(), as_json),
        Command::BootstrapToken(asked) => bootstrap_token::main(io, &asked, variable),
        Command::Rescue(asked) => rescue::main(io, &asked, variable),
        Command::Doctor { config, way, as_json, is_before } => {
            doctor::main(io, &config, &CommandEnvironment::new(&config, variable, &way), as_json, is_before)
        }
        Command::Explain { config, way, as_json, kind, name, namespace } => {
            let question = explain::Question { kind, name, namespace };
            let handed = CommandEnvironment::new(&config, variable, &way);
            let variable = |name: &str| handed.variable(name);
            match handed.load() {
                Ok(loaded) => explain::main(io, &loaded.settings, &variable, &question, as_json),
                Err(problems) => report_as(io, as_json, &config, &problems),
            }
        }
        Command::Version { as_json } => print(io, &version(as_json)),
        Command::Help(about) => print(io, &help::page(&about)),
        Command::Names => print(io, &status::names(usual(variable))),
        Command::Completion(shell) => print(io, &help::completion(&shell).unwrap_or_default()),
        Command::Bundle(args) => bundle::main(io, args, usual(variable), variable),
        Command::Etcd(args) => etcd::main(io, args, variable),
        Command::Node(args) => node::main(io, args, usual(variable), variable),
        Command::Status(args) => status::main(io, args, usual(variable)),
        Command::SupportBundle(args) => support::main(io, args, variable),
        Command::Render(args) => render::main(io, args),
        Command::RenderChild(_) => child::main(io.input, io.output),
    }
}

/// The configuration that the environment names.
fn usual(variable: Variable<'_>) -> Option<PathBuf> {
    clusters::set(variable, "GARDENLET_CONFIG").map(PathBuf::from)
}

/// Prints a result and returns the exit code.
#[must_use]
fn print(io: &mut Io<'_>, text: &str) -> u8 {
    write(io, &visible(text))
}

/// Prints what was made visible before.
#[must_use]
fn print_text(io: &mut Io<'_>, text: &ColouredText) -> u8 {
    write(io, text.as_str())
}

fn write(io: &mut Io<'_>, text: &str) -> u8 {
    let written = put(io, text);
    code_of(io, written)
}

/// Writes to standard output.
fn put(io: &mut Io<'_>, text: &str) -> io::Result<()> {
    io.output.write_all(text.as_bytes())?;
    io.output.flush()
}

/// The exit code of a result that was written or not.
fn code_of(io: &mut Io<'_>, written: io::Result<()>) -> u8 {
    match written {
        // A reader that closes the pipe early has read what it wanted.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(io, format_args!("gardenlet: cannot write the output: {error}"))
        }
        _ => SUCCESS,
    }
}

fn refuse(io: &mut Io<'_>, usage: &Usage) -> u8 {
    fail(io, format_args!("{usage}"));
    USAGE
}

fn fail(io: &mut Io<'_>, message: std::fmt::Arguments<'_>) -> u8 {
    say(io, format_args!("{message}\n"));
    FAILURE
}

/// The failure of a command that prints JSON on request.
fn fail_as(io: &mut Io<'_>, as_json: bool, command: &str, why: &str) -> u8 {
    if as_json {
        let _ = print(io, &format!("{}\n", json!({"error": why})));
        return FAILURE;
    }
    fail(io, format_args!("gardenlet {command}: {why}"))
}

/// To standard error. A message that cannot be written is no reason to stop.
fn say(io: &mut Io<'_>, text: std::fmt::Arguments<'_>) {
    let text = text.to_string();
    let _ = io.errors.write_all(visible(&text).as_bytes()).and_then(|()| io.errors.flush());
}

fn load(io: &mut Io<'_>, path: &Path) -> Result<LoadedConfig, Vec<ConfigProblem>> {
    file::load(path, io.input)
}

fn validate(io: &mut Io<'_>, path: &Path, strict: bool, as_json: bool) -> u8 {
    let name = file::name_of(path);
    let found = load(io, path);
    let (problems, warnings) = match &found {
        Ok(loaded) => (&[][..], loaded.warnings.as_slice()),
        Err(problems) => (problems.as_slice(), &[][..]),
    };
    let is_refused = strict && !warnings.is_empty();
    if as_json {
        let list = |problems: &[ConfigProblem]| -> Value {
            problems.iter().map(|it| json!({"path": it.path, "message": it.message})).collect()
        };
        let is_valid = problems.is_empty() && !is_refused;
        let told =
            json!({"file": name, "valid": is_valid, "problems": list(problems), "warnings": list(warnings)});
        let printed = print(io, &format!("{told}\n"));
        return if is_valid { printed } else { FAILURE };
    }
    if !problems.is_empty() {
        return report(io, path, problems);
    }
    for warning in warnings {
        fail(io, format_args!("{name}: {}", warning.as_warning()));
    }
    if is_refused {
        return fail(io, format_args!("{name} has warnings, which --strict does not allow"));
    }
    let mut text = ColouredText::new(io.colour);
    text.plain(&format!("{name} is "));
    text.toned(Tone::Good, "valid");
    text.plain("\n");
    print_text(io, &text)
}

fn print_defaults(io: &mut Io<'_>, config: Option<&Path>, as_json: bool) -> u8 {
    let document = match config {
        None => config::defaults(),
        Some(path) => match load(io, path) {
            Ok(loaded) => loaded.settings.document,
            Err(problems) => return report_as(io, as_json, path, &problems),
        },
    };
    if as_json {
        return print(io, &format!("{document}\n"));
    }
    let comment = match config {
        None => {
            "# Every field that has a default. seedConfig has none: it describes the Seed and must be given.\n"
        }
        Some(_) => "",
    };
    print(io, &format!("{comment}{}", emit(&document, Dialect::V4)))
}

fn report(io: &mut Io<'_>, path: &Path, problems: &[ConfigProblem]) -> u8 {
    fail(io, format_args!("{}", lines(path, problems)))
}

/// The same for a command that prints JSON on request.
fn report_as(io: &mut Io<'_>, as_json: bool, path: &Path, problems: &[ConfigProblem]) -> u8 {
    match as_json {
        true => fail_as(io, true, "", &lines(path, problems)),
        false => report(io, path, problems),
    }
}

/// A line for each problem of a configuration.
fn lines(path: &Path, problems: &[ConfigProblem]) -> String {
    let file = file::name_of(path);
    let line = |problem: &ConfigProblem| match problem.path == file {
        true => problem.to_string(),
        false => format!("{file}: {problem}"),
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn version(as_json: bool) -> String {
    use config::version::{BUILT_UNIX_S, COMMIT, GARDENER, PROGRAM};
    let built = (BUILT_UNIX_S > 0).then(|| rfc3339(Timestamp::from_unix(BUILT_UNIX_S)));
    if as_json {
        let told = json!({"version": PROGRAM, "gardenerVersion": GARDENER, "architecture": std::env::consts::ARCH,
            "commit": COMMIT, "date": built.unwrap_or_default()});
        return format!("{told}\n");
    }
    format!("gardenlet {PROGRAM} (as Gardener {GARDENER}){}\n", origin(COMMIT, built.as_deref()))
}

/// The commit and the day of a build, as far as they are known.
fn origin(commit: &str, built: Option<&str>) -> String {
    let commit = if commit.is_empty() { String::new() } else { format!(", commit {commit}") };
    let day = built.and_then(|built| built.split('T').next());
    commit + &day.map(|day| format!(", {day}")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
