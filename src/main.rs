//! The program: arguments in, exit code out. Everything else is in the library. The playground contains this file, too.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use gardenlet::{app, cli};

pub(crate) fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    cli::limit_process(&args);
    #[allow(clippy::disallowed_methods)] // the one place that reads the environment
    let variable = |name: &str| std::env::var(name).ok();
    let (mut input, mut output, mut errors) = (io::stdin(), io::stdout(), io::stderr());
    let colour = cli::is_coloured(output.is_terminal(), &variable);
    let is_terminal = input.is_terminal();
    let mut io = cli::Io { input: &mut input, is_terminal, output: &mut output, errors: &mut errors, colour };
    let variables = || -> Vec<(String, String)> {
        let all = std::env::vars_os();
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
    };
    let rebootstrap = |loaded: &_, of_unit: Vec<_>, announce: &mut dyn FnMut(&str)| {
        app::ask_for_identity(loaded, variables().into_iter().chain(of_unit).collect(), announce)
    };
    ExitCode::from(cli::main(args, &variable, &mut io, &rebootstrap, |loaded, config| {
        app::process(loaded, config, variables().into_iter().collect(), give_up)
    }))
}

#[allow(clippy::disallowed_methods)] // a second signal, or a stop that hangs: nothing is left to return to
fn give_up(code: u8) -> ! {
    std::process::exit(code.into())
}
