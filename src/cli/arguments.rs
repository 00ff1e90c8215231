//! Parses the command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

use super::bootstrap_token::BootstrapTokenArguments;
use super::help::{self, COMMANDS};
use super::usage::Usage;
use crate::api::meta::Key;
use crate::format::duration;

/// The configuration of the packages.
pub(super) const CONFIG: &str = "/etc/gardenlet/config.yaml";
/// The default validity of a bootstrap token, and its bounds.
const VALIDITY: &str = "24h";
const VALIDITY_MIN: Duration = Duration::from_secs(600);
const VALIDITY_MAX: Duration = Duration::from_secs(8_760 * 3_600);

/// The way to a cluster, if options name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterOptions {
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; empty for the current one.
    pub(super) context: String,
}

/// What `rescue` was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RescueArguments {
    pub(super) shoot: Key,
    /// The seed that is lost.
    pub(super) from: String,
    /// The seed that restores the Shoot.
    pub(super) to: String,
    /// The way to the garden.
    pub(super) way: ClusterOptions,
    /// Whether to write without a question.
    pub(super) is_confirmed: bool,
}

/// The command and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Run {
        config: PathBuf,
    },
    ConfigValidate {
        config: PathBuf,
        /// Treats warnings as failures.
        strict: bool,
        as_json: bool,
    },
    ConfigPrintDefaults {
        config: Option<PathBuf>,
        as_json: bool,
    },
    /// Requests a new identity.
    Rebootstrap {
        config: PathBuf,
        way: ClusterOptions,
    },
    /// Makes a bootstrap token for a seed.
    BootstrapToken(BootstrapTokenArguments),
    /// Lets another seed restore a Shoot whose seed is lost.
    Rescue(RescueArguments),
    /// Tries each hop from this machine.
    Doctor {
        config: PathBuf,
        way: ClusterOptions,
        as_json: bool,
        /// Before the agent is installed.
        is_before: bool,
    },
    /// Explains whether an object is ready, and why not.
    Explain {
        config: PathBuf,
        way: ClusterOptions,
        as_json: bool,
        kind: String,
        name: String,
        namespace: String,
    },
    /// Handles bundles of charts; another module parses the arguments.
    Bundle(Vec<OsString>),
    /// The commands in the pods of an etcd; another module parses the arguments.
    Etcd(Vec<OsString>),
    /// What an operator does with hosts; another module parses the arguments.
    Node(Vec<OsString>),
    /// Shows the status of the running agent; another module parses the arguments.
    Status(Vec<OsString>),
    /// Collects what others need to help; another module parses the arguments.
    SupportBundle(Vec<OsString>),
    /// Prints the objects that the agent knows, for the completions of shells.
    Names,
    /// Renders a chart; another module parses the arguments.
    Render(Vec<OsString>),
    /// Renders charts for an agent, as its child process.
    RenderChild(Vec<OsString>),
    Version {
        as_json: bool,
    },
    /// The completion script for a shell.
    Completion(String),
    /// The help of a command, or of the program if the name is empty.
    Help(String),
}

/// The options that this module parses, and the commands that accept them.
const OWNERS: [(&str, &[&str]); 11] = [
    ("--config", &["run", "config validate", "config print-defaults", "rebootstrap", "doctor", "explain"]),
    ("--strict", &["config validate"]),
    ("--output", &["config validate", "config print-defaults", "doctor", "explain", "version"]),
    ("--namespace", &["explain"]),
    ("--kubeconfig", &TO_CLUSTERS),
    ("--context", &TO_CLUSTERS),
    ("--pre", &["doctor"]),
    ("--validity", &["bootstrap-token"]),
    ("--to", &["bootstrap-token", "rescue"]),
    ("--from", &["rescue"]),
    ("--yes", &["rescue"]),
];
const TO_CLUSTERS: [&str; 5] = ["rebootstrap", "bootstrap-token", "rescue", "doctor", "explain"];

/// Commands that read their arguments themselves, and therefore take none before them.
const READERS: [&str; 6] = ["bundle", "etcd", "node", "status", "support-bundle", "render"];

#[derive(Default)]
struct ParsedCommand {
    words: Vec<String>,
    /// The options of [`OWNERS`]: the long name and the form that the user wrote.
    options: Vec<(&'static str, &'static str)>,
    config: Option<PathBuf>,
    /// The configuration that the environment names.
    usual: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    to: Option<PathBuf>,
    from: Option<PathBuf>,
    context: String,
    is_confirmed: bool,
    validity: Option<String>,
    as_json: bool,
    strict: bool,
    is_before: bool,
    namespace: String,
    version: Option<String>,
}

/// Parses the arguments after the program's name. `usual` is the configuration that the environment names.
pub(super) fn parse(args: Vec<OsString>, usual: Option<PathBuf>) -> Result<Command, Usage> {
    let first = args.first().map(|first| first.to_string_lossy().into_owned()).unwrap_or_default();
    let others = |args: Vec<OsString>| args.into_iter().skip(1).collect();
    match first.as_str() {
        "bundle" => return Ok(Command::Bundle(others(args))),
        "etcd" => return Ok(Command::Etcd(others(args))),
        "node" => return Ok(Command::Node(others(args))),
        "status" => return Ok(Command::Status(others(args))),
        "support-bundle" => return Ok(Command::SupportBundle(others(args))),
        "render" => return Ok(Command::Render(others(args))),
        "render-child" => return Ok(Command::RenderChild(others(args))),
        _ => {}
    }
    let mut given = ParsedCommand { usual, ..ParsedCommand::default() };
    let reader = args.iter().find_map(|word| READERS.into_iter().find(|reader| word == reader));
    let read = given.read(args);
    let is_own = |reader: &&str| match (given.words.first(), &read) {
        (Some(word), Ok(false) | Err(_)) => word == reader,
        (None, Err(_)) => true,
        _ => false,
    };
    if let Some(reader) = reader.filter(is_own) {
        let sign = if first.contains('=') { "=" } else { " " };
        let option = first.split('=').next().unwrap_or_default();
        let why = format!("write the options after the command: gardenlet {reader} {option}{sign}...");
        return Err(Usage::new(reader, why));
    }
    match read {
        Ok(true) => given.into_help(),
        Ok(false) => given.into_command(),
        Err(usage) => Err(usage.of(given.command())),
    }
}

/// The command that the words begin with; none means to run the agent.
fn command_of(words: &[String]) -> &'static str {
    let words = |count: usize| words.iter().take(count).map(String::as_str).collect::<Vec<_>>().join(" ");
    let known = |wanted: String| COMMANDS.into_iter().find(|known| *known == wanted);
    known(words(2)).or_else(|| known(words(1))).unwrap_or_default()
}

/// The command with exactly these words.
fn whole_command(words: &[String]) -> Result<&'static str, Usage> {
    let command = command_of(words);
    let is_group =
        COMMANDS.iter().any(|known| known.strip_prefix(command).is_some_and(|rest| rest.starts_with(' ')));
    match words.get(command.split_terminator(' ').count()) {
        None => Ok(command),
        Some(word) if !command.is_empty() && !is_group => Err(Usage::unexpected("help", &Value(word.into()))),
        Some(_) => Err(Usage::unknown(&words.join(" "))),
    }
}

impl ParsedCommand {
    /// Parses all arguments. Returns true as soon as it finds a request for help.
    fn read(&mut self, args: Vec<OsString>) -> Result<bool, Usage> {
        let mut parser = Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Long("config") => {
                    self.options.push(("--config", "--config"));
                    path("--config", &mut self.config, &mut parser)?;
                }
                Long("kubeconfig") => {
                    self.options.push(("--kubeconfig", "--kubeconfig"));
                    path("--kubeconfig", &mut self.kubeconfig, &mut parser)?;
                }
                Long("to") => {
                    self.options.push(("--to", "--to"));
                    path("--to", &mut self.to, &mut parser)?;
                }
                Long("from") => {
                    self.options.push(("--from", "--from"));
                    path("--from", &mut self.from, &mut parser)?;
                }
                Long("yes") => {
                    self.options.push(("--yes", "--yes"));
                    self.is_confirmed = true;
                }
                Long("context") => {
                    self.options.push(("--context", "--context"));
                    self.context = parser.value()?.to_string_lossy().into_owned();
                }
                Long("validity") => {
                    self.options.push(("--validity", "--validity"));
                    self.validity = Some(parser.value()?.to_string_lossy().into_owned());
                }
                Long("pre") => {
                    self.options.push(("--pre", "--pre"));
                    self.is_before = true;
                }
                Long("strict") => {
                    self.options.push(("--strict", "--strict"));
                    self.strict = true;
                }
                Long("output") | Short('o') => {
                    let written = if matches!(arg, Short(_)) { "-o" } else { "--output" };
                    self.options.push(("--output", written));
                    self.as_json = is_json(&parser.value()?)?;
                }
                Long("namespace") | Short('n') => {
                    let written = if matches!(arg, Short(_)) { "-n" } else { "--namespace" };
                    self.options.push(("--namespace", written));
                    self.namespace = parser.value()?.to_string_lossy().into_owned();
                }
                Long("help") | Short('h') => return Ok(true),
                Long("version") => {
                    let value = parser.optional_value().map(|value| value.to_string_lossy().into_owned());
                    self.version = Some(value.unwrap_or_else(|| "true".to_owned()));
                }
                Value(word) => self.words.push(word.to_string_lossy().into_owned()),
                other => return Err(Usage::unexpected(self.command(), &other)),
            }
        }
        Ok(false)
    }

    fn command(&self) -> &'static str {
        command_of(&self.words)
    }

    /// The help that an option asks for. Of a mistyped command there is none.
    fn into_help(self) -> Result<Command, Usage> {
        let command = self.command();
        if command.is_empty() || command == "config" {
            whole_command(&self.words)?;
        }
        Ok(Command::Help(command.to_owned()))
    }

    fn into_command(mut self) -> Result<Command, Usage> {
        let command = self.command();
        let name = if command.is_empty() { "run" } else { command };
        if self.words.first().is_some_and(|_| command.is_empty()) {
            return Err(Usage::unknown(&self.words.join(" ")));
        }
        if command == "config" {
            return Err(match self.words.len() {
                1 => Usage::incomplete(command),
                _ => Usage::unknown(&self.words.join(" ")),
            });
        }
        if let Some(command) = self.asks_for_version(name)? {
            return Ok(command);
        }
        for (option, written) in &self.options {
            let owners =
                OWNERS.iter().find(|(known, _)| known == option).map_or(&[][..], |(_, owners)| *owners);
            if !owners.contains(&name) {
                let arg = match written.strip_prefix("--") {
                    Some(long) => Long(long),
                    None => Short(written.chars().nth(1).unwrap_or_default()),
                };
                return Err(Usage::unexpected(command, &arg));
            }
        }
        let words = self.words.split_off(command.split_terminator(' ').count());
        self.with_words(command, &words)
    }

    /// `--version` is a command of its own, except `--version=false`.
    fn asks_for_version(&mut self, name: &str) -> Result<Option<Command>, Usage> {
        let as_json = match self.version.take().as_deref() {
            None => return Ok(None),
            Some(_) if name != "run" => return Err(Usage::unexpected(name, &Long("version"))),
            Some("raw") => true,
            Some(value) => match truth(value) {
                Some(true) => self.as_json,
                Some(false) => return Ok(None),
                None => {
                    return Err(Usage::new("", format!("--version={value}: expected true, false or raw")));
                }
            },
        };
        Ok(Some(Command::Version { as_json }))
    }

    fn with_words(self, command: &str, words: &[String]) -> Result<Command, Usage> {
        let Self { config, usual, as_json, strict, namespace, kubeconfig, context, .. } = self;
        let way = ClusterOptions { kubeconfig, context };
        let wanted = match command {
            "explain" | "help" => usize::MAX,
            "completion" | "bootstrap-token" | "rescue" => 1,
            _ => 0,
        };
        if let Some(word) = words.get(wanted) {
            return Err(Usage::unexpected(command, &Value(word.into())));
        }
        let found = config.clone().or(usual);
        if command.is_empty() && found.is_none() {
            let why =
                format!("--config is missing: it names the configuration file; gardenlet run reads {CONFIG}");
            return Err(Usage::new(command, why));
        }
        let used = found.unwrap_or_else(|| PathBuf::from(CONFIG));
        Ok(match command {
            "config validate" => Command::ConfigValidate { config: used, strict, as_json },
            "config print-defaults" => Command::ConfigPrintDefaults { config, as_json },
            "rebootstrap" => Command::Rebootstrap { config: used, way },
            "bootstrap-token" => {
                let validity = validity(self.validity.as_deref().unwrap_or(VALIDITY))?;
                Command::BootstrapToken(BootstrapTokenArguments {
                    seed: seed(words)?,
                    validity,
                    way,
                    to: self.to,
                })
            }
            "rescue" => {
                let (shoot, from, to) = rescued(words, self.from, self.to)?;
                Command::Rescue(RescueArguments { shoot, from, to, way, is_confirmed: self.is_confirmed })
            }
            "doctor" => Command::Doctor { config: used, way, as_json, is_before: self.is_before },
            "explain" => {
                let (kind, namespace, name) = object(words, namespace)?;
                Command::Explain { config: used, way, as_json, kind, name, namespace }
            }
            "completion" => match words.first() {
                Some(word) if word == "names" => Command::Names,
                Some(shell) if help::completion(shell).is_some() => Command::Completion(shell.clone()),
                Some(other) => {
                    return Err(Usage::new(
                        command,
                        format!("unknown shell {other:?}: expected bash, zsh or fish"),
                    ));
                }
                None => return Err(Usage::new(command, "the shell is missing: bash, zsh or fish")),
            },
            "version" => Command::Version { as_json },
            "help" => Command::Help(whole_command(words)?.to_owned()),
            _ => Command::Run { config: used },
        })
    }
}

/// Reads the path of an option that may be given once.
pub(super) fn path(option: &str, into: &mut Option<PathBuf>, parser: &mut Parser) -> Result<(), Usage> {
    let value = PathBuf::from(parser.value()?);
    if value.as_os_str().is_empty() {
        return Err(Usage::new("", format!("{option} needs a value")));
    }
    match into.replace(value) {
        Some(_) => Err(Usage::new("", format!("{option} is given twice"))),
        None => Ok(()),
    }
}

fn validity(text: &str) -> Result<Duration, Usage> {
    let why = || format!("--validity={text}: expected a duration from 10m to 8760h, such as {VALIDITY}");
    let found = duration::parse(text).ok().filter(|it| (VALIDITY_MIN..=VALIDITY_MAX).contains(it));
    found.ok_or_else(|| Usage::new("bootstrap-token", why()))
}

/// The name of a Seed.
fn seed(words: &[String]) -> Result<String, Usage> {
    let wrong = |why: String| Usage::new("bootstrap-token", why);
    let name = words.first().ok_or_else(|| wrong("the name of the Seed is missing".to_owned()))?;
    let is_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_name = !name.is_empty() && name.len() <= 63 && name.chars().all(is_char);
    if is_name && !name.starts_with(['-', '.']) && !name.ends_with(['-', '.']) {
        return Ok(name.clone());
    }
    Err(wrong(format!("{name:?} is no name of a Seed: expected lower-case letters, digits, dashes and dots")))
}

/// The Shoot `NAMESPACE/NAME`, its lost seed and the one that restores it.
fn rescued(
    words: &[String],
    from: Option<PathBuf>,
    to: Option<PathBuf>,
) -> Result<(Key, String, String), Usage> {
    let wrong = |why: &str| Usage::new("rescue", why);
    let place = words.first().and_then(|word| word.split_once('/'));
    let (namespace, name) = place
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
        .ok_or_else(|| wrong("the Shoot is missing: give it as NAMESPACE/NAME"))?;
    let (Some(from), Some(to)) = (from, to) else {
        return Err(wrong("name the lost seed with --from, and the one that restores the Shoot with --to"));
    };
    let seed = |name: PathBuf| name.to_string_lossy().into_owned();
    let (from, to) = (seed(from), seed(to));
    if from == to {
        Err(wrong("--from and --to name the same seed"))
    } else {
        Ok((Key::new(namespace, name), from, to))
    }
}

/// Kind, namespace and name of `KIND/NAME`, `KIND/NAMESPACE/NAME`, `KIND NAME` or `KIND NAMESPACE/NAME`.
fn object(words: &[String], namespace: String) -> Result<(String, String, String), Usage> {
    let wrong = |why: &str| Err(Usage::new("explain", why));
    // No kind and no name of an object has a slash.
    let parts: Vec<&str> = words.iter().flat_map(|word| word.split('/')).collect();
    if words.first().is_some_and(|kind| words.len() == 2 && kind.contains('/')) {
        return wrong("give one object, as KIND/NAME or KIND NAME");
    }
    match parts[..] {
        _ if words.len() > 2 || parts.iter().any(|part| part.is_empty()) => {
            wrong("give one object, as KIND/NAME or KIND NAME")
        }
        [kind, name] => Ok((kind.to_owned(), namespace, name.to_owned())),
        [_, _, _] if !namespace.is_empty() => {
            wrong("give the namespace as NAMESPACE/NAME, or with -n, and not twice")
        }
        [kind, namespace, name] => Ok((kind.to_owned(), namespace.to_owned(), name.to_owned())),
        _ => wrong("the object is missing: give KIND/NAME or KIND NAME"),
    }
}

/// Whether a value says yes, as Go's options read it.
pub(super) fn truth(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Whether the value of `--output` is json. YAML is made of it at the end.
pub(super) fn is_json(value: &OsStr) -> Result<bool, Usage> {
    match value.to_str() {
        Some("json" | "yaml") => Ok(true),
        Some("text") => Ok(false),
        _ => {
            Err(Usage::new("", format!("--output={}: expected text, json or yaml", value.to_string_lossy())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        let args = line.split_whitespace().map(OsString::from).collect();
        parse(args, None).map_err(|usage| usage.to_string())
    }

    fn explain(kind: &str, namespace: &str, name: &str) -> Command {
        let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        Command::Explain {
            config: PathBuf::from("c.yaml"),
            way: ClusterOptions::default(),
            as_json: false,
            kind,
            name,
            namespace,
        }
    }

    #[test]
    fn command_lines_mean_what_the_go_program_means() {
        let config = || PathBuf::from("c.yaml");
        let validate = |config, strict, as_json| Command::ConfigValidate { config, strict, as_json };
        let help = |about: &str| Command::Help(about.to_owned());
        let usual = || PathBuf::from(CONFIG);
        let way = || ClusterOptions { kubeconfig: Some(PathBuf::from("k")), context: "c".to_owned() };
        let doctor = |config, way, as_json, is_before| Command::Doctor { config, way, as_json, is_before };
        let token = |hours: u64, way, to| {
            let validity = Duration::from_secs(hours * 3_600);
            Command::BootstrapToken(BootstrapTokenArguments { seed: "edge-1".to_owned(), validity, way, to })
        };
        let rescue = |way, is_confirmed| {
            let (shoot, from, to) = (Key::new("garden-p", "s1"), "edge-1".to_owned(), "edge-2".to_owned());
            Command::Rescue(RescueArguments { shoot, from, to, way, is_confirmed })
        };
        let table = [
            ("--config=c.yaml", Command::Run { config: config() }),
            ("--config c.yaml", Command::Run { config: config() }),
            ("run --config c.yaml", Command::Run { config: config() }),
            ("--version=false --config=c.yaml", Command::Run { config: config() }),
            ("--version", Command::Version { as_json: false }),
            ("--version=true", Command::Version { as_json: false }),
            ("--version=T", Command::Version { as_json: false }),
            ("--version=0 --config=c.yaml", Command::Run { config: config() }),
            ("--config status", Command::Run { config: PathBuf::from("status") }),
            ("--config=c.yaml status --help", help("status")),
            ("-h docter", help("")),
            ("--version=raw --config=c.yaml", Command::Version { as_json: true }),
            ("--version -o json", Command::Version { as_json: true }),
            ("version -o json", Command::Version { as_json: true }),
            ("config validate --config c.yaml", validate(config(), false, false)),
            ("config --config c.yaml validate", validate(config(), false, false)),
            ("config validate --strict --config=- --output=json", validate(PathBuf::from("-"), true, true)),
            ("doctor --config=c.yaml -o json", doctor(config(), ClusterOptions::default(), true, false)),
            ("doctor", doctor(usual(), ClusterOptions::default(), false, false)),
            ("doctor --pre --kubeconfig=k --context c", doctor(usual(), way(), false, true)),
            ("rebootstrap --context=c --kubeconfig k", Command::Rebootstrap { config: usual(), way: way() }),
            ("run", Command::Run { config: usual() }),
            ("config validate", validate(usual(), false, false)),
            ("bootstrap-token edge-1", token(24, ClusterOptions::default(), None)),
            (
                "bootstrap-token edge-1 --validity=48h --kubeconfig=k --context=c --to=b",
                token(48, way(), Some(PathBuf::from("b"))),
            ),
            ("rescue garden-p/s1 --from=edge-1 --to edge-2", rescue(ClusterOptions::default(), false)),
            (
                "rescue garden-p/s1 --from edge-1 --to=edge-2 --kubeconfig=k --context c --yes",
                rescue(way(), true),
            ),
            ("explain mr x -n garden --config c.yaml", explain("mr", "garden", "x")),
            ("explain mr/x -n garden --config c.yaml", explain("mr", "garden", "x")),
            ("explain seed/edge-1 --config c.yaml", explain("seed", "", "edge-1")),
            ("explain shoot garden-p/s1 --config c.yaml", explain("shoot", "garden-p", "s1")),
            ("explain shoot/garden-p/s1 --config c.yaml", explain("shoot", "garden-p", "s1")),
            ("config print-defaults", Command::ConfigPrintDefaults { config: None, as_json: false }),
            (
                "config print-defaults --config - -o json",
                Command::ConfigPrintDefaults { config: Some(PathBuf::from("-")), as_json: true },
            ),
            ("render --set a=b x", Command::Render(["--set", "a=b", "x"].map(OsString::from).to_vec())),
            ("bundle list x", Command::Bundle(["list", "x"].map(OsString::from).to_vec())),
            ("etcd list -h", Command::Etcd(["list", "-h"].map(OsString::from).to_vec())),
            ("status --watch", Command::Status(vec![OsString::from("--watch")])),
            ("render-child", Command::RenderChild(Vec::new())),
            ("support-bundle --log -", Command::SupportBundle(["--log", "-"].map(OsString::from).to_vec())),
            ("completion names", Command::Names),
            ("completion zsh", Command::Completion("zsh".to_owned())),
            ("-h", help("")),
            ("help", help("")),
            ("help config", help("config")),
            ("help etcd list", help("etcd list")),
            ("help doctor", help("doctor")),
            ("doctor -h", help("doctor")),
            ("explain mr x --help", help("explain")),
            ("config validate --help", help("config validate")),
            ("config --help", help("config")),
        ];
        for (line, expected) in table {
            assert_eq!(parsed(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn command_lines_without_meaning_say_why() {
        let table = [
            ("", ": --config is missing: it names the configuration file"),
            ("config", " config: a command is missing:\n  validate "),
            ("config valdate", ": unknown command \"config valdate\"; did you mean \"config validate\"?"),
            ("doctor -o xml", " doctor: --output=xml: expected text, json or yaml"),
            ("--config=", ": --config needs a value"),
            ("doctor --config=", " doctor: --config needs a value"),
            ("doctor --config=a --config b", " doctor: --config is given twice"),
            ("doctor --kubeconfig=a --kubeconfig=b", " doctor: --kubeconfig is given twice"),
            ("run --pre", " run: --pre belongs to gardenlet doctor"),
            ("run --kubeconfig=k", " run: --kubeconfig is not an option of this command"),
            ("bootstrap-token", " bootstrap-token: the name of the Seed is missing"),
            ("bootstrap-token Edge", " bootstrap-token: \"Edge\" is no name of a Seed"),
            ("bootstrap-token a b", " bootstrap-token: unexpected argument \"b\""),
            (
                "bootstrap-token a --validity=1s",
                " bootstrap-token: --validity=1s: expected a duration from 10m to 8760h",
            ),
            ("bootstrap-token a --validity=soon", " bootstrap-token: --validity=soon: expected"),
            ("rescue s1 --from=a --to=b", " rescue: the Shoot is missing: give it as NAMESPACE/NAME"),
            ("rescue p/s1/x --from=a --to=b", " rescue: the Shoot is missing: give it as NAMESPACE/NAME"),
            ("rescue p/s1 --from=a", " rescue: name the lost seed with --from, and the one"),
            ("rescue p/s1 --from=a --to=a", " rescue: --from and --to name the same seed"),
            ("bootstrap-token a --yes", " bootstrap-token: --yes is not an option of this command"),
            ("doctor seed --config c", " doctor: unexpected argument \"seed\""),
            ("doctor --strict", " doctor: --strict belongs to"),
            ("doctor -n x", " doctor: -n is not an option of this command"),
            ("doctor --version", " doctor: --version belongs to gardenlet run"),
            ("explain seed --config c.yaml", " explain: the object is missing: give KIND/NAME"),
            ("explain a b c --config c.yaml", " explain: give one object, as KIND/NAME or KIND NAME"),
            ("explain a/b c --config c.yaml", " explain: give one object, as KIND/NAME or KIND NAME"),
            ("explain a/ --config c.yaml", " explain: give one object, as KIND/NAME or KIND NAME"),
            (
                "explain shoot a/b -n c --config c.yaml",
                " explain: give the namespace as NAMESPACE/NAME, or with -n",
            ),
            (
                "explain shoot/a/b -n c --config c.yaml",
                " explain: give the namespace as NAMESPACE/NAME, or with -n",
            ),
            ("--strict --config c.yaml", ": --strict belongs to"),
            (
                "--config c.yaml -o json",
                ": -o is not an option of this command: its output has only one form",
            ),
            ("rebootstrap --config c.yaml -o json", " rebootstrap: -o is not an option of this command: its"),
            ("docter --config c.yaml", ": unknown command \"docter\"; did you mean \"doctor\"?"),
            ("help docter", ": unknown command \"docter\"; did you mean \"doctor\"?"),
            ("docter --help", ": unknown command \"docter\"; did you mean \"doctor\"?"),
            ("config valdate -h", ": unknown command \"config valdate\"; did you mean \"config validate\"?"),
            ("help status extra", " help: unexpected argument \"extra\""),
            ("help config validate x", " help: unexpected argument \"x\""),
            ("help config valdate", ": unknown command \"config valdate\"; did you mean"),
            (
                "--config=c.yaml status",
                " status: write the options after the command: gardenlet status --config=...\nTry gardenlet status",
            ),
            (
                "--config c.yaml bundle export",
                " bundle: write the options after the command: gardenlet bundle --config ...",
            ),
            ("-o json status", " status: write the options after the command: gardenlet status -o ..."),
            ("-o xml status", " status: write the options after the command: gardenlet status -o ..."),
            ("--watch status", " status: write the options after the command: gardenlet status --watch ..."),
            (
                "--version=false etcd",
                " etcd: write the options after the command: gardenlet etcd --version=...",
            ),
            (
                "--set a=b render x",
                " render: write the options after the command: gardenlet render --set ...",
            ),
            ("--config=c.yaml doctor status", " doctor: unexpected argument \"status\""),
            ("completion", " completion: the shell is missing: bash, zsh or fish"),
            ("completion tcsh", " completion: unknown shell \"tcsh\": expected bash, zsh or fish"),
            ("completion bash zsh", " completion: unexpected argument \"zsh\""),
            ("--config", ": --config needs a value"),
            ("doctor --strict=x", " doctor: --strict takes no value"),
            ("--config c.yaml -v", ": unknown option -v"),
            ("--version=maybe", ": --version=maybe: expected true, false or raw"),
        ];
        for (line, expected) in table {
            let said = parsed(line).unwrap_err();
            assert!(said.starts_with(&format!("gardenlet{expected}")), "{line}: {said}");
        }
    }

    #[test]
    fn the_environment_names_the_usual_configuration() {
        let parsed = |line: &str| {
            let args = line.split_whitespace().map(OsString::from).collect();
            parse(args, Some(PathBuf::from("e.yaml"))).map_err(|usage| usage.to_string())
        };
        let run = |config: &str| Ok(Command::Run { config: PathBuf::from(config) });
        assert_eq!(parsed(""), run("e.yaml"));
        assert_eq!(parsed("run"), run("e.yaml"));
        assert_eq!(parsed("--config=c.yaml"), run("c.yaml"));
        let rebootstrap =
            Command::Rebootstrap { config: PathBuf::from("e.yaml"), way: ClusterOptions::default() };
        assert_eq!(parsed("rebootstrap"), Ok(rebootstrap));
        // This one prints the defaults alone.
        assert_eq!(
            parsed("config print-defaults"),
            Ok(Command::ConfigPrintDefaults { config: None, as_json: false })
        );
    }

    #[test]
    fn pages_list_the_options_that_are_taken() {
        for command in COMMANDS {
            let (page, group) = (help::page(command), command.split(' ').next().unwrap());
            if READERS.contains(&group) {
                continue;
            }
            for (option, owners) in OWNERS {
                let is_listed = help::options(&page).contains(&option);
                assert_eq!(is_listed, owners.contains(&command), "{command} {option}");
            }
        }
    }
}
