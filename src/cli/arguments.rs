//! What the command line says.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

/// What the program is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Run the agent.
    Run {
        config: PathBuf,
    },
    ConfigValidate {
        config: PathBuf,
        /// Warnings fail.
        strict: bool,
    },
    ConfigPrintDefaults {
        config: Option<PathBuf>,
    },
    /// Ask for a new identity.
    Rebootstrap {
        config: PathBuf,
    },
    /// Try each hop from this machine.
    Doctor {
        config: PathBuf,
        as_json: bool,
    },
    /// Say what an object waits for.
    Explain {
        config: PathBuf,
        as_json: bool,
        kind: String,
        name: String,
        namespace: String,
    },
    /// Carry charts; the arguments are read there.
    Bundle(Vec<OsString>),
    /// What runs in the pods of an etcd; the arguments are read there.
    Etcd(Vec<OsString>),
    /// Render a chart; the arguments are read there.
    Render(Vec<OsString>),
    /// The process that renders for an agent.
    RenderChild(Vec<OsString>),
    Version {
        raw: bool,
    },
    Help,
}

/// A command line that makes no sense.
#[derive(Debug)]
pub(super) enum Usage {
    NoConfig,
    UnknownCommand(String),
    Version(String),
    Output(String),
    Strict,
    TwoNamespaces,
    Argument(lexopt::Error),
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConfig => f.write_str("--config is missing: it names the configuration file"),
            Self::UnknownCommand(name) => write!(f, "unknown command {name:?}"),
            Self::Version(value) => write!(f, "--version={value}: expected true, false or raw"),
            Self::Output(value) => write!(f, "--output={value}: expected text or json"),
            Self::Strict => f.write_str("--strict belongs to gardenlet config validate"),
            Self::TwoNamespaces => {
                f.write_str("give the namespace as NAMESPACE/NAME, or with -n, and not twice")
            }
            Self::Argument(error) => error.fmt(f),
        }
    }
}

impl From<lexopt::Error> for Usage {
    fn from(error: lexopt::Error) -> Self {
        Self::Argument(error)
    }
}

/// Reads the arguments behind the program's name.
pub(super) fn parse(args: Vec<OsString>) -> Result<Command, Usage> {
    let command = command_of(&args);
    match command.as_str() {
        "bundle" => return Ok(Command::Bundle(args.into_iter().skip(1).collect())),
        "etcd" => return Ok(Command::Etcd(args.into_iter().skip(1).collect())),
        "render" => return Ok(Command::Render(args.into_iter().skip(1).collect())),
        "render-child" => return Ok(Command::RenderChild(args.into_iter().skip(1).collect())),
        _ => {}
    }
    let mut words = Vec::new();
    let (mut config, mut as_json, mut strict, mut namespace) = (None, false, false, String::new());
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("config") => config = Some(PathBuf::from(parser.value()?)),
            Long("strict") => strict = true,
            Long("output") | Short('o') => as_json = output(&mut parser)?,
            Long("namespace") | Short('n') => namespace = parser.value()?.to_string_lossy().into_owned(),
            Long("help") | Short('h') => return Ok(Command::Help),
            Long("version") => {
                match parser.optional_value().map(|value| value.to_string_lossy().into_owned()) {
                    None => return Ok(Command::Version { raw: false }),
                    Some(value) => match value.as_str() {
                        "true" => return Ok(Command::Version { raw: false }),
                        "raw" => return Ok(Command::Version { raw: true }),
                        "false" => {}
                        _ => return Err(Usage::Version(value)),
                    },
                }
            }
            Value(word) => words.push(word.to_string_lossy().into_owned()),
            other => return Err(other.unexpected().into()),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["config", "validate"] => {
            Ok(Command::ConfigValidate { config: config.ok_or(Usage::NoConfig)?, strict })
        }
        _ if strict => Err(Usage::Strict),
        [] | ["run"] => Ok(Command::Run { config: config.ok_or(Usage::NoConfig)? }),
        ["rebootstrap"] => Ok(Command::Rebootstrap { config: config.ok_or(Usage::NoConfig)? }),
        ["config", "print-defaults"] => Ok(Command::ConfigPrintDefaults { config }),
        ["doctor"] => Ok(Command::Doctor { config: config.ok_or(Usage::NoConfig)?, as_json }),
        ["explain", kind, name] => {
            let (namespace, name) = match name.split_once('/') {
                // No name of an object has a slash.
                Some(_) if !namespace.is_empty() => return Err(Usage::TwoNamespaces),
                Some((namespace, name)) => (namespace.to_owned(), name),
                None => (namespace, name),
            };
            let config = config.ok_or(Usage::NoConfig)?;
            Ok(Command::Explain { config, as_json, kind: kind.to_owned(), name: name.to_owned(), namespace })
        }
        ["version"] => Ok(Command::Version { raw: false }),
        ["help"] => Ok(Command::Help),
        _ => Err(Usage::UnknownCommand(words.join(" "))),
    }
}

fn output(parser: &mut Parser) -> Result<bool, Usage> {
    let value = parser.value()?.to_string_lossy().into_owned();
    match value.as_str() {
        "json" => Ok(true),
        "text" => Ok(false),
        _ => Err(Usage::Output(value)),
    }
}

fn command_of(args: &[OsString]) -> String {
    args.first().map(|first| first.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        let args = line.split_whitespace().map(OsString::from).collect();
        parse(args).map_err(|usage| usage.to_string())
    }

    #[test]
    fn command_lines_mean_what_the_go_program_means() {
        let config = || PathBuf::from("c.yaml");
        let table = [
            ("--config=c.yaml", Command::Run { config: config() }),
            ("--config c.yaml", Command::Run { config: config() }),
            ("run --config c.yaml", Command::Run { config: config() }),
            ("--version=false --config=c.yaml", Command::Run { config: config() }),
            ("--version", Command::Version { raw: false }),
            ("--version=true", Command::Version { raw: false }),
            ("--version=raw --config=c.yaml", Command::Version { raw: true }),
            ("config validate --config c.yaml", Command::ConfigValidate { config: config(), strict: false }),
            ("config --config c.yaml validate", Command::ConfigValidate { config: config(), strict: false }),
            (
                "config validate --strict --config=-",
                Command::ConfigValidate { config: PathBuf::from("-"), strict: true },
            ),
            ("doctor --config=c.yaml -o json", Command::Doctor { config: config(), as_json: true }),
            (
                "explain mr x -n garden --config c.yaml",
                Command::Explain {
                    config: config(),
                    as_json: false,
                    kind: "mr".to_owned(),
                    name: "x".to_owned(),
                    namespace: "garden".to_owned(),
                },
            ),
            (
                "explain shoot garden-p/s1 --config c.yaml",
                Command::Explain {
                    config: config(),
                    as_json: false,
                    kind: "shoot".to_owned(),
                    name: "s1".to_owned(),
                    namespace: "garden-p".to_owned(),
                },
            ),
            ("config print-defaults", Command::ConfigPrintDefaults { config: None }),
            (
                "config print-defaults --config -",
                Command::ConfigPrintDefaults { config: Some(PathBuf::from("-")) },
            ),
            ("render --set a=b x", Command::Render(["--set", "a=b", "x"].map(OsString::from).to_vec())),
            ("bundle list x", Command::Bundle(["list", "x"].map(OsString::from).to_vec())),
            ("etcd list -h", Command::Etcd(["list", "-h"].map(OsString::from).to_vec())),
            ("render-child", Command::RenderChild(Vec::new())),
            ("-h", Command::Help),
            ("config validate --help", Command::Help),
        ];
        for (line, expected) in table {
            assert_eq!(parsed(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn command_lines_without_meaning_say_why() {
        let table = [
            ("", "--config is missing: it names the configuration file"),
            ("config validate", "--config is missing: it names the configuration file"),
            ("config", "unknown command \"config\""),
            ("doctor -o yaml", "--output=yaml: expected text or json"),
            ("doctor", "--config is missing: it names the configuration file"),
            ("explain seed --config c.yaml", "unknown command \"explain seed\""),
            (
                "explain shoot a/b -n c --config c.yaml",
                "give the namespace as NAMESPACE/NAME, or with -n, and not twice",
            ),
            ("--strict --config c.yaml", "--strict belongs to gardenlet config validate"),
            ("start --config c.yaml", "unknown command \"start\""),
            ("--config", "missing argument for option '--config'"),
            ("--config c.yaml -v", "invalid option '-v'"),
            ("--version=maybe", "--version=maybe: expected true, false or raw"),
        ];
        for (line, expected) in table {
            assert_eq!(parsed(line), Err(expected.to_owned()), "{line}");
        }
    }
}
