//! Parses the command line of `node`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

use super::super::arguments::{ClusterOptions, path};
use super::super::usage::Usage;
use crate::api::meta::Key;
use crate::format::duration;

/// How long a token is valid by default, and how long it may be.
const TTL: &str = "1h";
const TTL_MIN: Duration = Duration::from_secs(60);
const TTL_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The configuration of the agent.
const CONFIG: &str = "/etc/gardenlet/config.yaml";

/// The command and its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NodeCommand {
    /// The help of this command.
    Help(&'static str),
    Script(ScriptArguments),
}

/// What is asked of a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScriptArguments {
    pub(super) config: PathBuf,
    /// The way to the seed.
    pub(super) way: ClusterOptions,
    /// The Shoot in the garden.
    pub(super) shoot: Key,
    pub(super) pool: String,
    /// The name of the host, in lower case.
    pub(super) host: String,
    /// The address of the host, if it is not that of the route to the API server.
    pub(super) address: String,
    pub(super) ttl: Duration,
    /// The host takes the place of the Node with its name.
    pub(super) takes_place: bool,
}

/// Parses the arguments after `node`. Errors: wrong usage.
pub(super) fn parse(args: Vec<OsString>, config: Option<PathBuf>) -> Result<NodeCommand, Usage> {
    let mut parser = Parser::from_args(args);
    let command = match parser.next()? {
        Some(Long("help") | Short('h')) => return Ok(NodeCommand::Help("node")),
        Some(Value(word)) if word == "script" => "node script",
        Some(Value(word)) => {
            let why = format!("unknown command {:?}: expected script", word.to_string_lossy());
            return Err(Usage::new("node", why));
        }
        Some(other) => return Err(Usage::unexpected("node", &other)),
        None => return Err(Usage::new("node", "the command is missing: script")),
    };
    let wrong = |why: String| Usage::new(command, why);
    let (mut given, mut kubeconfig, mut context, mut words) = (None, None, None, Vec::new());
    let (mut host, mut address, mut ttl, mut takes_place) = (None, None, None, false);
    while let Some(argument) = parser.next()? {
        let slot = match argument {
            Long("help") | Short('h') => return Ok(NodeCommand::Help(command)),
            Long("config") => {
                path("--config", &mut given, &mut parser)?;
                continue;
            }
            Long("kubeconfig") => {
                path("--kubeconfig", &mut kubeconfig, &mut parser)?;
                continue;
            }
            Long("rejoin") => {
                takes_place = true;
                continue;
            }
            Long("context") => &mut context,
            Long("name") => &mut host,
            Long("address") => &mut address,
            Long("ttl") => &mut ttl,
            Value(word) if words.len() < 2 => {
                words.push(word.to_string_lossy().into_owned());
                continue;
            }
            other => return Err(Usage::unexpected(command, &other)),
        };
        let value = parser.value()?.to_string_lossy().into_owned();
        if slot.replace(value).is_some() {
            return Err(wrong("an option is given twice".to_owned()));
        }
    }
    let [shoot, pool] = <[String; 2]>::try_from(words)
        .map_err(|_| wrong("the Shoot or its pool is missing: write NAMESPACE/NAME POOL".to_owned()))?;
    let (namespace, name) = shoot
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
        .ok_or_else(|| wrong(format!("{shoot:?} is no Shoot: write NAMESPACE/NAME")))?;
    let host = host.ok_or_else(|| wrong("--name is missing: it is the name of the host".to_owned()))?;
    let address = address.unwrap_or_default();
    if !address.is_empty() && address.parse::<std::net::IpAddr>().is_err() {
        return Err(wrong(format!("--address={address}: expected an IP address")));
    }
    let ttl = ttl.as_deref().unwrap_or(TTL);
    let validity = duration::parse(ttl).ok().filter(|ttl| (TTL_MIN..=TTL_MAX).contains(ttl));
    Ok(NodeCommand::Script(ScriptArguments {
        config: given.or(config).unwrap_or_else(|| PathBuf::from(CONFIG)),
        way: ClusterOptions { kubeconfig, context: context.unwrap_or_default() },
        shoot: Key::new(namespace, name),
        pool,
        host: name_of(&host).ok_or_else(|| wrong(format!("--name={host}: expected the name of a host")))?,
        address,
        ttl: validity.ok_or_else(|| wrong(format!("--ttl={ttl}: expected a duration from 1m to 24h")))?,
        takes_place,
    }))
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

    #[test]
    fn a_script_is_for_one_host() {
        let Ok(NodeCommand::Script(asked)) = of("script garden-p/s1 a --name H1.example --ttl=2h") else {
            panic!("not parsed")
        };
        assert_eq!((asked.shoot, asked.pool.as_str()), (Key::new("garden-p", "s1"), "a"));
        assert_eq!((asked.host.as_str(), asked.ttl), ("h1.example", Duration::from_secs(7_200)));
        assert!(!asked.takes_place && asked.address.is_empty());
        let Ok(NodeCommand::Script(asked)) = of("script garden-p/s1 a --name=h --address=10.0.0.7 --rejoin")
        else {
            panic!("not parsed")
        };
        assert!(asked.takes_place && asked.address == "10.0.0.7" && asked.ttl == Duration::from_secs(3_600));
    }

    #[test]
    fn wrong_usage_names_what_is_missing() {
        for (line, expected) in [
            ("", "the command is missing"),
            ("print", "unknown command \"print\""),
            ("script", "the Shoot or its pool is missing"),
            ("script s1 a --name=h", "\"s1\" is no Shoot"),
            ("script p/s1 a", "--name is missing"),
            ("script p/s1 a --name=h_1", "--name=h_1: expected the name of a host"),
            ("script p/s1 a --name=h --ttl=25h", "--ttl=25h: expected a duration from 1m to 24h"),
            ("script p/s1 a --name=h --address=x", "--address=x: expected an IP address"),
            ("script p/s1 a b --name=h", "unexpected argument"),
            ("script p/s1 a --name=h --name=i", "an option is given twice"),
        ] {
            let why = of(line).unwrap_err().to_string();
            assert!(why.contains(expected), "{line}: {why}");
        }
    }
}
