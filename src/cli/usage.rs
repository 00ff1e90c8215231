//! Wrong usage of the command line: the command, the mistake, and a suggestion.

use std::fmt;

use lexopt::Arg;

use super::help::{self, COMMANDS};
use crate::base::near::nearest;

/// A wrong command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// The command as far as it was found; empty for the program.
    command: String,
    why: String,
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.command.is_empty() { "" } else { " " };
        write!(f, "gardenlet{space}{}: {}", self.command, self.why)?;
        write!(f, "\nTry gardenlet{space}{} --help.", self.command)
    }
}

impl From<lexopt::Error> for Usage {
    fn from(error: lexopt::Error) -> Self {
        let why = match error {
            lexopt::Error::MissingValue { option: Some(option) } => format!("{option} needs a value"),
            lexopt::Error::UnexpectedValue { option, .. } => format!("{option} takes no value"),
            lexopt::Error::NonUnicodeValue(text) => format!("{text:?} is not UTF-8"),
            other => other.to_string(),
        };
        Self::new("", why)
    }
}

impl Usage {
    pub(super) fn new(command: &str, why: impl Into<String>) -> Self {
        Self { command: command.to_owned(), why: why.into() }
    }

    /// Sets the command if none is known yet.
    pub(super) fn of(mut self, command: &str) -> Self {
        if self.command.is_empty() {
            command.clone_into(&mut self.command);
        }
        self
    }

    /// A command does not accept this option or word.
    pub(super) fn unexpected(command: &str, arg: &Arg<'_>) -> Self {
        let why = match arg {
            Arg::Long(name) => unknown_option(command, &format!("--{name}")),
            Arg::Short(letter) => unknown_option(command, &format!("-{letter}")),
            Arg::Value(word) => format!("unexpected argument {word:?}"),
        };
        Self::new(command, why)
    }

    /// The command does not exist.
    pub(super) fn unknown(words: &str) -> Self {
        Self::new("", unknown_command(words))
    }

    /// A group without one of its commands.
    pub(super) fn incomplete(group: &str) -> Self {
        let page = help::page(group);
        Self::new(group, format!("a command is missing:\n{}", help::section(&page, "Commands:")))
    }
}

/// Words of other programs, and the commands that do what they mean.
const ELSEWHERE: [(&str, &str); 14] = [
    ("check", "doctor"),
    ("diagnose", "doctor"),
    ("test", "doctor"),
    ("get", "explain"),
    ("describe", "explain"),
    ("why", "explain"),
    ("log", "status"),
    ("logs", "status"),
    ("top", "status"),
    ("template", "render"),
    ("evacuate", "rescue"),
    ("force-restore", "rescue"),
    ("start", "run"),
    ("bundle-support", "support-bundle"),
];

/// The message for a command that does not exist.
fn unknown_command(words: &str) -> String {
    let first = words.split(' ').next().unwrap_or_default();
    // A second word belongs to the command only in a group; otherwise it is an argument.
    let is_group =
        COMMANDS.iter().any(|known| known.split_once(' ').is_some_and(|(group, _)| group == first));
    let wanted = if is_group { words } else { first };
    let meant = ELSEWHERE.iter().find(|(word, _)| *word == wanted).map(|(_, command)| *command);
    let hint = match meant.or_else(|| nearest(wanted, COMMANDS.into_iter())) {
        Some(near) => format!("; did you mean {near:?}?"),
        None => String::new(),
    };
    format!("unknown command {wanted:?}{hint}")
}

/// The message for an option that a command does not accept.
fn unknown_option(command: &str, option: &str) -> String {
    let name = if command.is_empty() { "run" } else { command };
    let own = help::page(name);
    let owners: Vec<&str> =
        COMMANDS.into_iter().filter(|other| help::options(&help::page(other)).contains(&option)).collect();
    if matches!(option, "-o" | "--output") {
        return format!("{option} is not an option of this command: its output has only one form");
    }
    if let Some(near) = nearest(option, help::options(&own).into_iter()).filter(|_| owners.is_empty()) {
        return format!("unknown option {option}; did you mean {near}?");
    }
    match owners[..] {
        [] => format!("unknown option {option}"),
        [owner] => format!("{option} belongs to gardenlet {owner}"),
        _ => format!("{option} is not an option of this command"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_commands_are_corrected() {
        let table = [
            ("docter", "unknown command \"docter\"; did you mean \"doctor\"?"),
            ("explian mr x", "unknown command \"explian\"; did you mean \"explain\"?"),
            ("rendr x", "unknown command \"rendr\"; did you mean \"render\"?"),
            ("config valdate", "unknown command \"config valdate\"; did you mean \"config validate\"?"),
            ("cnfig validate", "unknown command \"cnfig\"; did you mean \"config\"?"),
            ("etcd lst", "unknown command \"etcd lst\"; did you mean \"etcd list\"?"),
            ("bundle inport", "unknown command \"bundle inport\"; did you mean \"bundle import\"?"),
            ("versoin", "unknown command \"versoin\"; did you mean \"version\"?"),
            ("start", "unknown command \"start\"; did you mean \"run\"?"),
            ("check", "unknown command \"check\"; did you mean \"doctor\"?"),
            ("get shoots", "unknown command \"get\"; did you mean \"explain\"?"),
            ("logs -f", "unknown command \"logs\"; did you mean \"status\"?"),
            ("stauts", "unknown command \"stauts\"; did you mean \"status\"?"),
            ("teapot", "unknown command \"teapot\""),
        ];
        for (words, expected) in table {
            assert_eq!(unknown_command(words), expected);
        }
    }

    #[test]
    fn words_of_other_programs_lead_to_commands() {
        for (word, command) in ELSEWHERE {
            assert!(COMMANDS.contains(&command) && !COMMANDS.contains(&word), "{word}");
        }
    }

    #[test]
    fn options_are_corrected_or_sent_where_they_belong() {
        let table = [
            ("doctor", "--confg", "unknown option --confg; did you mean --config?"),
            ("", "--conifg", "unknown option --conifg; did you mean --config?"),
            ("doctor", "--strict", "--strict belongs to gardenlet config validate"),
            ("", "--strict", "--strict belongs to gardenlet config validate"),
            ("doctor", "--prefix", "--prefix is not an option of this command"),
            ("render", "-o", "-o is not an option of this command: its output has only one form"),
            (
                "rebootstrap",
                "--output",
                "--output is not an option of this command: its output has only one form",
            ),
            ("bundle import", "--images", "--images belongs to gardenlet bundle list"),
            ("render", "--setjson", "unknown option --setjson; did you mean --set-json?"),
            ("doctor", "--nonsense", "unknown option --nonsense"),
            ("doctor", "-x", "unknown option -x"),
        ];
        for (command, option, expected) in table {
            assert_eq!(unknown_option(command, option), expected);
        }
    }

    #[test]
    fn groups_say_what_is_in_them() {
        let said = Usage::incomplete("config").to_string();
        let expected = "gardenlet config: a command is missing:\n  validate        report every problem of a configuration\n";
        assert!(said.starts_with(expected) && said.ends_with("\nTry gardenlet config --help."), "{said}");
    }
}
