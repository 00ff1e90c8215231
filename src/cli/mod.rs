//! The commands. `run` is the default and hands a checked configuration on; the others do their work here.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;

use serde_json::Value;

use crate::chart::child;
use crate::config::file::{self, load_to_run};
use crate::config::{self, Loaded, Problem};
use crate::format::yaml;

mod arguments;
mod bundle;
mod clusters;
#[expect(dead_code, reason = "commands take it up one by one")]
mod colour;
mod doctor;
mod etcd;
mod explain;
mod render;
mod visible;

use arguments::Command;
use visible::visible;

/// Everything went well.
pub const SUCCESS: u8 = 0;
/// The configuration or the command line is wrong, or the agent failed: what the Go program ends with, too.
pub const FAILURE: u8 = 2;

const HELP: &str = "\
gardenlet: joins a Kubernetes seed cluster to its Gardener garden

Usage:
  gardenlet --config=FILE                   run the agent
  gardenlet config validate --config=FILE [--strict]
                                            report everything that is wrong with a configuration; --strict fails for
                                            warnings, too
  gardenlet config print-defaults [--config=FILE]
                                            print a configuration with all defaults; without a file, an empty one
  gardenlet rebootstrap --config=FILE       let the agent, running or stopped, get a new identity for the garden from a
                                            bootstrap kubeconfig; nothing is deleted before the new one is there
  gardenlet doctor --config=FILE [-o json]  try each hop from this machine; name the first that breaks
  gardenlet explain KIND [NAMESPACE/]NAME [-n NAMESPACE] --config=FILE [-o json]
                                            say what an object waits for; of a Shoot, how far each task is
  gardenlet bundle ...                      carry charts to where no registry is (see gardenlet bundle --help)
  gardenlet etcd ...                        take, list and restore snapshots of an etcd (see gardenlet etcd --help)
  gardenlet render ...                      render a chart (see gardenlet render --help)
  gardenlet --version[=true|false|raw]
  gardenlet --help

--config=- reads standard input (to run the agent, config validate, config print-defaults).

Environment:
  GARDEN_KUBECONFIG  kubeconfig of the garden, before gardenClientConnection.kubeconfig
  KUBECONFIG         kubeconfig of the seed, before seedClientConnection.kubeconfig
  NAMESPACE          the agent's own namespace in the seed
";

/// What a command reads and writes.
pub struct Io<'a> {
    /// Standard input.
    pub input: &'a mut dyn Read,
    /// Results.
    pub output: &'a mut dyn Write,
    /// What went wrong.
    pub errors: &'a mut dyn Write,
}

/// Looks up a variable of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Limits memory and processor time of a process that is there for these arguments alone: charts come from outside.
pub fn limit_process(args: &[OsString]) {
    if args.first().is_some_and(|word| word == "render") && !args.iter().any(|word| word == render::UNLIMITED)
    {
        child::limit_resources();
    }
}

/// Does what the arguments (without the program's name) say and returns the exit code. `run` is the agent, which is also
/// told where its configuration stands; `rebootstrap` asks for a new identity.
pub fn main(
    args: Vec<OsString>,
    variable: Variable<'_>,
    io: &mut Io<'_>,
    rebootstrap: &dyn Fn(&Loaded) -> Result<String, String>,
    run: impl FnOnce(Loaded, &Path) -> u8,
) -> u8 {
    let command = match arguments::parse(args) {
        Ok(command) => command,
        Err(usage) => {
            return fail(io, format_args!("gardenlet: {usage}\nTry gardenlet --help."));
        }
    };
    match command {
        Command::Run { config } => match load(io, &config).and_then(|loaded| loaded.to_run(variable)) {
            Ok(loaded) => run(loaded, &config),
            Err(problems) => report(io, &config, &problems),
        },
        Command::Rebootstrap { config } => match load_to_run(&config, variable) {
            Ok(loaded) => match rebootstrap(&loaded) {
                Ok(done) => print(io, &done),
                Err(why) => fail(io, format_args!("gardenlet rebootstrap: {why}")),
            },
            Err(problems) => report(io, &config, &problems),
        },
        Command::ConfigValidate { config, strict } => validate(io, &config, strict),
        Command::ConfigPrintDefaults { config: None } => print(io, &defaults()),
        Command::ConfigPrintDefaults { config: Some(config) } => match load(io, &config) {
            Ok(loaded) => print(io, &yaml::emit(&loaded.settings.document, yaml::Dialect::V4)),
            Err(problems) => report(io, &config, &problems),
        },
        Command::Doctor { config, as_json } => doctor::main(io, &config, variable, as_json),
        Command::Explain { config, as_json, kind, name, namespace } => {
            let question = explain::Question { kind, name, namespace };
            match load_to_run(&config, variable) {
                Ok(loaded) => explain::main(io, &loaded.settings, variable, &question, as_json),
                Err(problems) => report(io, &config, &problems),
            }
        }
        Command::Version { raw } => print(io, &version(raw)),
        Command::Help => print(io, HELP),
        Command::Bundle(args) => bundle::main(io, args, variable),
        Command::Etcd(args) => etcd::main(io, args, variable),
        Command::Render(args) => render::main(io, args),
        Command::RenderChild(_) => child::main(io.input, io.output),
    }
}

fn print(io: &mut Io<'_>, text: &str) -> u8 {
    // A reader that went away early has read what it wanted.
    let _ = io.output.write_all(visible(text).as_bytes()).and_then(|()| io.output.flush());
    SUCCESS
}

fn fail(io: &mut Io<'_>, message: std::fmt::Arguments<'_>) -> u8 {
    say(io, format_args!("{message}\n"));
    FAILURE
}

/// To standard error. What cannot be told is no reason to stop.
fn say(io: &mut Io<'_>, text: std::fmt::Arguments<'_>) {
    let text = text.to_string();
    let _ = io.errors.write_all(visible(&text).as_bytes()).and_then(|()| io.errors.flush());
}

fn load(io: &mut Io<'_>, path: &Path) -> Result<Loaded, Vec<Problem>> {
    file::load(path, io.input)
}

fn validate(io: &mut Io<'_>, path: &Path, strict: bool) -> u8 {
    let name = file::name_of(path);
    match load(io, path) {
        Err(problems) => report(io, path, &problems),
        Ok(loaded) => {
            for warning in &loaded.warnings {
                fail(io, format_args!("{name}: {}", warning.as_warning()));
            }
            match loaded.warnings.len() {
                1.. if strict => fail(io, format_args!("{name} has warnings, which --strict does not allow")),
                _ => print(io, &format!("{name} is valid\n")),
            }
        }
    }
}

fn report(io: &mut Io<'_>, path: &Path, problems: &[Problem]) -> u8 {
    let file = file::name_of(path);
    for problem in problems {
        if problem.path == file {
            fail(io, format_args!("{problem}"));
        } else {
            fail(io, format_args!("{file}: {problem}"));
        }
    }
    FAILURE
}

fn defaults() -> String {
    let comment =
        "# Everything that has a default. seedConfig has none: it describes the Seed and must be given.\n";
    format!("{comment}{}", yaml::emit(&config::defaults(), yaml::Dialect::V4))
}

fn version(raw: bool) -> String {
    let (program, gardener) = (config::version::PROGRAM, config::version::GARDENER);
    if raw {
        let fields =
            [("version", program), ("gardenerVersion", gardener), ("architecture", std::env::consts::ARCH)];
        let object: serde_json::Map<_, _> =
            fields.map(|(key, value)| (key.to_owned(), Value::from(value))).into_iter().collect();
        return format!("{}\n", Value::Object(object));
    }
    format!("gardenlet {program} (as Gardener {gardener})\n")
}

#[cfg(test)]
mod tests;
