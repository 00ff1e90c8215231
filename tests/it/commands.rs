//! Commands of the program, in this process: their exit code, their output and their errors.

use std::collections::BTreeMap;

use gardenlet::cli::{self, Io};
use gardenlet::config::LoadedConfig;

/// A command that needs no identity, and starts no agent.
pub fn command(words: &[&str], variables: &BTreeMap<String, String>) -> (u8, String, String) {
    command_with(None, words, variables)
}

/// The same at a terminal, if there is an answer to its question.
pub fn command_with(
    answer: Option<&str>,
    words: &[&str],
    variables: &BTreeMap<String, String>,
) -> (u8, String, String) {
    printed(answer, |io| {
        let variable = |name: &str| variables.get(name).cloned();
        let args = words.iter().map(Into::into).collect();
        let nobody = |_: &LoadedConfig, _: Vec<(String, String)>, _: &mut dyn FnMut(&str)| {
            unreachable!("no identity is needed")
        };
        cli::main(args, &variable, io, &nobody, |_, _| unreachable!("no agent is started"))
    })
}

/// What something prints that returns its exit code.
pub fn printed(answer: Option<&str>, run: impl FnOnce(&mut Io<'_>) -> u8) -> (u8, String, String) {
    let (mut output, mut errors, mut input) = (Vec::new(), Vec::new(), answer.unwrap_or_default().as_bytes());
    let is_terminal = answer.is_some();
    let code = run(&mut Io {
        input: &mut input,
        is_terminal,
        output: &mut output,
        errors: &mut errors,
        colour: false,
    });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(output), text(errors))
}
