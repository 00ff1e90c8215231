//! Parses the command line of `status`.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::Arg::{Long, Short};
use lexopt::Parser;

use super::super::arguments::{is_json, path};
use super::super::usage::Usage;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum StatusCommand {
    Help,
    Show(Show),
}

/// The form of the status.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Show {
    pub(super) place: AgentPlace,
    pub(super) as_json: bool,
    /// Whether to repeat it.
    pub(super) watch: bool,
    /// Whether to show what is at rest, too.
    pub(super) verbose: bool,
}

/// The agent to ask.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum AgentPlace {
    /// The agent with the default port on this machine.
    #[default]
    Default,
    /// The agent with this configuration.
    Config(PathBuf),
    Address(String, u16),
}

/// Parses the arguments after `status`.
pub(super) fn parse(args: Vec<OsString>) -> Result<StatusCommand, Usage> {
    read(args).map_err(|usage| usage.of("status"))
}

fn read(args: Vec<OsString>) -> Result<StatusCommand, Usage> {
    let mut show = Show::default();
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(StatusCommand::Help),
            Long("config") => {
                let mut file = None;
                path("--config", &mut file, &mut parser)?;
                show.to(AgentPlace::Config(file.unwrap_or_default()))?;
            }
            Long("address") => {
                let text = parser.value()?.to_string_lossy().into_owned();
                let why = || wrong(format!("--address={text}: expected HOST:PORT, such as 127.0.0.1:2728"));
                let place = address(&text).ok_or_else(why)?;
                show.to(place)?;
            }
            Long("output") | Short('o') => show.as_json = is_json(&parser.value()?)?,
            Long("watch") | Short('w') => show.watch = true,
            Long("verbose") => show.verbose = true,
            other => return Err(Usage::unexpected("status", &other)),
        }
    }
    Ok(StatusCommand::Show(show))
}

fn wrong(why: impl Into<String>) -> Usage {
    Usage::new("status", why)
}

impl Show {
    fn to(&mut self, place: AgentPlace) -> Result<(), Usage> {
        match std::mem::replace(&mut self.place, place) {
            AgentPlace::Default => Ok(()),
            _ => Err(wrong("give --config or --address, and only one of them")),
        }
    }
}

fn address(text: &str) -> Option<AgentPlace> {
    let (host, port) = text.rsplit_once(':')?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // An IPv6 address needs brackets, because it contains colons.
    let host = inner.unwrap_or(host);
    if host.is_empty() || host.contains('/') || (inner.is_none() && host.contains(':')) {
        return None;
    }
    port.parse().ok().filter(|port| *port > 0).map(|port| AgentPlace::Address(host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<StatusCommand, String> {
        parse(line.split_whitespace().map(OsString::from).collect()).map_err(|usage| usage.to_string())
    }

    #[test]
    fn command_lines_say_whom_to_ask_and_how_to_show_it() {
        let at = |host: &str, port| AgentPlace::Address(host.to_owned(), port);
        let show =
            |place, as_json, watch| Ok(StatusCommand::Show(Show { place, as_json, watch, verbose: false }));
        let table = [
            ("", show(AgentPlace::Default, false, false)),
            ("--config=c.yaml", show(AgentPlace::Config("c.yaml".into()), false, false)),
            ("--address 127.0.0.1:2728 -o json", show(at("127.0.0.1", 2728), true, false)),
            ("--address=[::1]:80 --watch", show(at("::1", 80), false, true)),
            ("--address=localhost:80 -w --output=text", show(at("localhost", 80), false, true)),
            ("--verbose", Ok(StatusCommand::Show(Show { verbose: true, ..Show::default() }))),
            (
                "--verbose -o yaml",
                Ok(StatusCommand::Show(Show { verbose: true, as_json: true, ..Show::default() })),
            ),
            ("-h", Ok(StatusCommand::Help)),
            ("--watch --help", Ok(StatusCommand::Help)),
        ];
        for (line, expected) in table {
            assert_eq!(parsed(line), expected, "{line}");
        }
    }

    #[test]
    fn command_lines_without_meaning_say_why() {
        let two = "give --config or --address, and only one of them";
        for address in ["localhost", "::1:80", ":80", "h:0", "h:99999", "http://h:80", ""] {
            let expected = format!("--address={address}: expected HOST:PORT, such as 127.0.0.1:2728");
            let found = parsed(&format!("--address={address}")).unwrap_err();
            assert!(found.starts_with(&format!("gardenlet status: {expected}\n")), "{found}");
        }
        let table = [
            ("-o xml", "--output=xml: expected text, json or yaml"),
            ("--config=c --address=h:1", two),
            ("--config=c --config=d", two),
            ("x", "unexpected argument \"x\""),
            ("--every=2", "unknown option --every"),
            ("--config", "--config needs a value"),
        ];
        for (line, expected) in table {
            let found = parsed(line).unwrap_err();
            assert_eq!(
                found,
                format!("gardenlet status: {expected}\nTry gardenlet status --help."),
                "{line}"
            );
        }
    }
}
