//! The program: arguments in, exit code out. Everything else is in the library.

use std::io;
use std::process::ExitCode;

use gardenlet::cli;

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).collect();
    #[allow(clippy::disallowed_methods)] // the one place that reads the environment
    let variable = |name: &str| std::env::var(name).ok();
    let (mut input, mut output, mut errors) = (io::stdin(), io::stdout(), io::stderr());
    let mut io = cli::Io { input: &mut input, output: &mut output, errors: &mut errors };
    // The agent starts here.
    ExitCode::from(cli::main(args, &variable, &mut io, |_loaded| cli::SUCCESS))
}
