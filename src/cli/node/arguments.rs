//! Parses the command line of `node`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

use super::super::arguments::{ClusterOptions, is_json, path};
use super::super::usage::Usage;
use crate::api::meta::Key;
use crate::format::duration;

/// How long a token is valid by default, and how long it may be.
const TTL: &str = "1h";
const TTL_MIN: Duration = Duration::from_secs(60);
const TTL_MAX: Duration = Duration::from_secs(24 * 3_600);
/// How long pods have to leave a host by default, and how long they may have. The command's token for the Shoot lasts longer.
const GRACE: &str = "5m";
const GRACE_MIN: Duration = Duration::from_secs(1);
const GRACE_MAX: Duration = Duration::from_secs(2 * 3_600);
/// The same for a lost host: the garbage collector of Kubernetes looks at its pods every 20 seconds.
const GRACE_OF_LOST: &str = "90s";
/// The configuration of the agent.
const CONFIG: &str = "/etc/gardenlet/config.yaml";

/// What a command accepts.
struct CommandForm {
    name: &'static str,
    /// How many words, and what is missing if there are fewer.
    words: usize,
    missing: &'static str,
    /// Options with a value.
    values: &'static [&'static str],
    /// Options that have no value.
    switches: &'static [&'static str],
    has_output: bool,
}

const SCRIPT: CommandForm = CommandForm {
    name: "node script",
    words: 2,
    missing: "the Shoot or its pool is missing: write NAMESPACE/NAME POOL",
    values: &["context", "name", "address", "ttl"],
    switches: &["rejoin"],
    has_output: false,
};
const LIST: CommandForm = CommandForm {
    name: "node list",
    words: 1,
    missing: "the Shoot is missing: write NAMESPACE/NAME",
    values: &["context"],
    switches: &[],
    has_output: true,
};
const REMOVE: CommandForm = CommandForm {
    name: "node remove",
    words: 2,
    missing: "the Shoot or the host is missing: write NAMESPACE/NAME HOST",
    values: &["context", "grace"],
    switches: &["lost", "yes"],
    has_output: false,
};

/// The command and its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NodeCommand {
    /// The help of this command.
    Help(&'static str),
    Task(Box<NodeTask>),
}

/// A command that reaches a Shoot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NodeTask {
    /// Its words, for messages.
    pub(super) name: &'static str,
    pub(super) place: ShootPlace,
    pub(super) as_json: bool,
    pub(super) order: NodeOrder,
}

/// A Shoot, and the way to its seed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShootPlace {
    /// The configuration of the agent.
    pub(super) config: PathBuf,
    pub(super) way: ClusterOptions,
    /// The Shoot in the garden.
    pub(super) shoot: Key,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NodeOrder {
    Script(ScriptArguments),
    List,
    Remove(RemoveArguments),
}

/// What is asked of a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScriptArguments {
    pub(super) pool: String,
    /// The name of the host, in lower case.
    pub(super) host: String,
    /// The address of the host, if it is not that of the route to the API server.
    pub(super) address: String,
    pub(super) ttl: Duration,
    /// The host takes the place of the Node with its name.
    pub(super) takes_place: bool,
}

/// What is asked of a removal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RemoveArguments {
    /// The name of the host, in lower case.
    pub(super) host: String,
    /// How long its pods have to leave.
    pub(super) grace: Duration,
    /// The host never comes back.
    pub(super) is_lost: bool,
    /// Whether to write without a question.
    pub(super) is_confirmed: bool,
}

/// Parses the arguments after `node`. Errors: wrong usage.
pub(super) fn parse(args: Vec<OsString>, config: Option<PathBuf>) -> Result<NodeCommand, Usage> {
    let mut parser = Parser::from_args(args);
    let form = match parser.next()? {
        Some(Long("help") | Short('h')) => return Ok(NodeCommand::Help("node")),
        Some(Value(word)) => match word.to_str() {
            Some("script") => SCRIPT,
            Some("list") => LIST,
            Some("remove") => REMOVE,
            _ => {
                let word = word.to_string_lossy();
                let why = format!("unknown command {word:?}: expected script, list or remove");
                return Err(Usage::new("node", why));
            }
        },
        Some(other) => return Err(Usage::unexpected("node", &other)),
        None => return Err(Usage::new("node", "the command is missing: script, list or remove")),
    };
    let Some(given) = GivenArguments::read(&form, &mut parser)? else {
        return Ok(NodeCommand::Help(form.name));
    };
    given.task(&form, config).map(|task| NodeCommand::Task(Box::new(task)))
}

/// What a command line has.
#[derive(Default)]
struct GivenArguments {
    words: Vec<String>,
    config: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    values: Vec<(&'static str, String)>,
    switches: Vec<&'static str>,
    as_json: bool,
}

impl GivenArguments {
    /// None if help is wanted.
    fn read(form: &CommandForm, parser: &mut Parser) -> Result<Option<Self>, Usage> {
        let known =
            |options: &[&'static str], name: &str| options.iter().copied().find(|known| *known == name);
        let mut given = Self::default();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("help") | Short('h') => return Ok(None),
                Long("config") => path("--config", &mut given.config, parser)?,
                Long("kubeconfig") => path("--kubeconfig", &mut given.kubeconfig, parser)?,
                Long("output") | Short('o') if form.has_output => given.as_json = is_json(&parser.value()?)?,
                Value(word) if given.words.len() < form.words => {
                    given.words.push(word.to_string_lossy().into_owned());
                }
                Long(name) => {
                    let (value, switch) = (known(form.values, name), known(form.switches, name));
                    if let Some(name) = value {
                        let is_new = given.value(name).is_none();
                        given.values.push((name, parser.value()?.to_string_lossy().into_owned()));
                        if !is_new {
                            return Err(Usage::new(form.name, format!("--{name} is given twice")));
                        }
                    } else if let Some(name) = switch {
                        given.switches.push(name);
                    } else {
                        return Err(Usage::unexpected(form.name, &Long(name)));
                    }
                }
                other => return Err(Usage::unexpected(form.name, &other)),
            }
        }
        Ok(Some(given))
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    fn is_set(&self, name: &str) -> bool {
        self.switches.contains(&name)
    }

    fn task(self, form: &CommandForm, usual: Option<PathBuf>) -> Result<NodeTask, Usage> {
        let wrong = |why: String| Usage::new(form.name, why);
        let [shoot, more @ ..] = self.words.as_slice() else { return Err(wrong(form.missing.to_owned())) };
        if self.words.len() < form.words {
            return Err(wrong(form.missing.to_owned()));
        }
        let (namespace, name) = shoot
            .split_once('/')
            .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
            .ok_or_else(|| wrong(format!("{shoot:?} is no Shoot: write NAMESPACE/NAME")))?;
        let order = match more {
            [pool] if form.name == SCRIPT.name => NodeOrder::Script(self.script(pool).map_err(wrong)?),
            [host] => NodeOrder::Remove(self.remove(host).map_err(wrong)?),
            _ => NodeOrder::List,
        };
        let shoot = Key::new(namespace, name);
        let context = self.value("context").unwrap_or_default().to_owned();
        let way = ClusterOptions { kubeconfig: self.kubeconfig, context };
        let config = self.config.or(usual).unwrap_or_else(|| PathBuf::from(CONFIG));
        Ok(NodeTask {
            name: form.name,
            place: ShootPlace { config, way, shoot },
            as_json: self.as_json,
            order,
        })
    }

    fn script(&self, pool: &str) -> Result<ScriptArguments, String> {
        let host = self.value("name").ok_or("--name is missing: it is the name of the host")?;
        let address = self.value("address").unwrap_or_default();
        if !address.is_empty() && address.parse::<std::net::IpAddr>().is_err() {
            return Err(format!("--address={address}: expected an IP address"));
        }
        let ttl = self.value("ttl").unwrap_or(TTL);
        let validity = duration::parse(ttl).ok().filter(|ttl| (TTL_MIN..=TTL_MAX).contains(ttl));
        Ok(ScriptArguments {
            pool: pool.to_owned(),
            host: name_of(host).ok_or_else(|| format!("--name={host}: expected the name of a host"))?,
            address: address.to_owned(),
            ttl: validity.ok_or_else(|| format!("--ttl={ttl}: expected a duration from 1m to 24h"))?,
            takes_place: self.is_set("rejoin"),
        })
    }

    fn remove(&self, host: &str) -> Result<RemoveArguments, String> {
        let is_lost = self.is_set("lost");
        let grace = self.value("grace").unwrap_or(if is_lost { GRACE_OF_LOST } else { GRACE });
        let time = duration::parse(grace).ok().filter(|time| (GRACE_MIN..=GRACE_MAX).contains(time));
        Ok(RemoveArguments {
            host: name_of(host).ok_or_else(|| format!("{host:?} is not the name of a host"))?,
            grace: time.ok_or_else(|| format!("--grace={grace}: expected a duration from 1s to 2h"))?,
            is_lost,
            is_confirmed: self.is_set("yes"),
        })
    }
}

/// The name of a host as a Node has it.
fn name_of(host: &str) -> Option<String> {
    let name = host.to_ascii_lowercase();
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(|c| is_letter(c) || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    (name.len() <= 63 && name.split('.').all(is_label)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<NodeCommand, Usage> {
        parse(line.split_whitespace().map(OsString::from).collect(), None)
    }

    fn task(line: &str) -> NodeTask {
        match of(line) {
            Ok(NodeCommand::Task(task)) => *task,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_script_is_for_one_host() {
        let script = |line: &str| match task(line) {
            NodeTask { order: NodeOrder::Script(asked), place, .. } => (asked, place),
            other => panic!("{line}: {other:?}"),
        };
        let (asked, place) =
            script("script garden-p/s1 a --name H1.example --ttl=2h --context=c --kubeconfig k");
        assert_eq!((place.shoot, asked.pool.as_str()), (Key::new("garden-p", "s1"), "a"));
        assert_eq!((place.way.context.as_str(), place.way.kubeconfig), ("c", Some(PathBuf::from("k"))));
        assert_eq!((asked.host.as_str(), asked.ttl), ("h1.example", Duration::from_secs(7_200)));
        assert!(!asked.takes_place && asked.address.is_empty());
        let (asked, _) = script("script garden-p/s1 a --name=h --address=10.0.0.7 --rejoin");
        assert!(asked.takes_place && asked.address == "10.0.0.7" && asked.ttl == Duration::from_secs(3_600));
    }

    #[test]
    fn a_list_has_a_form() {
        let table = [
            ("list p/s1", false),
            ("list p/s1 -o json", true),
            ("list --output=yaml p/s1", true),
            ("list p/s1 -o text", false),
        ];
        for (line, expected) in table {
            let found = task(line);
            assert_eq!((found.as_json, found.order), (expected, NodeOrder::List), "{line}");
        }
        assert_eq!(task("list p/s1 --config=c.yaml").place.config, PathBuf::from("c.yaml"));
    }

    #[test]
    fn a_removal_has_a_time_limit() {
        let remove = |host: &str, seconds, is_lost, is_confirmed| {
            let grace = Duration::from_secs(seconds);
            NodeOrder::Remove(RemoveArguments { host: host.to_owned(), grace, is_lost, is_confirmed })
        };
        let table = [
            ("remove p/s1 Shed-1", remove("shed-1", 300, false, false)),
            ("remove p/s1 h --grace=10m --yes", remove("h", 600, false, true)),
            ("remove p/s1 h --lost", remove("h", 90, true, false)),
            ("remove p/s1 h --lost --grace 5s", remove("h", 5, true, false)),
        ];
        for (line, expected) in table {
            assert_eq!(task(line).order, expected, "{line}");
        }
    }

    #[test]
    fn help_is_that_of_the_command() {
        for (line, expected) in
            [("-h", "node"), ("script --help", "node script"), ("remove x -h", "node remove")]
        {
            assert_eq!(of(line).unwrap(), NodeCommand::Help(expected));
        }
    }

    #[test]
    fn wrong_usage_names_what_is_missing() {
        for (line, expected) in [
            ("", "the command is missing"),
            ("print", "unknown command \"print\": expected script, list or remove"),
            ("script", "the Shoot or its pool is missing"),
            ("script s1 a --name=h", "\"s1\" is no Shoot"),
            ("script p/s1 a", "--name is missing"),
            ("script p/s1 a --name=h_1", "--name=h_1: expected the name of a host"),
            ("script p/s1 a --name=h --ttl=25h", "--ttl=25h: expected a duration from 1m to 24h"),
            ("script p/s1 a --name=h --address=x", "--address=x: expected an IP address"),
            ("script p/s1 a b --name=h", "unexpected argument"),
            ("script p/s1 a --name=h --name=i", "--name is given twice"),
            ("script p/s1 a --name=h -o json", "-o is not an option of this command"),
            ("list", "the Shoot is missing: write NAMESPACE/NAME"),
            ("list p/", "\"p/\" is no Shoot"),
            ("list p/s1 h", "unexpected argument"),
            ("list p/s1 --lost", "--lost belongs to gardenlet node remove"),
            ("list p/s1 -o xml", "--output=xml: expected text, json or yaml"),
            ("remove p/s1", "the Shoot or the host is missing"),
            ("remove p/s1 h_1", "\"h_1\" is not the name of a host"),
            ("remove p/s1 h --grace=0s", "--grace=0s: expected a duration from 1s to 2h"),
            ("remove p/s1 h --grace=3h", "--grace=3h: expected a duration from 1s to 2h"),
            ("remove p/s1 h --ttl=1h", "--ttl belongs to gardenlet node script"),
        ] {
            let why = of(line).unwrap_err().to_string();
            assert!(why.contains(expected), "{line}: {why}");
        }
    }
}
