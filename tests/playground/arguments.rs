//! What the command line asks for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gardenlet::chart::child;

use crate::desk;

pub const USAGE: &str = "\
usage: playground [--keep | --serve FOLDER | --serve-bare FOLDER]

(nothing)             runs a garden, a seed, the agent and a Shoot, and ends
--keep                the same, and leaves everything running until Ctrl-C
--serve FOLDER        runs a garden and a seed until Ctrl-C, and writes what an agent needs into FOLDER
--serve-bare FOLDER   runs a new garden and a new seed, as README.md expects them, and writes only kubeconfigs
                      of administrators into FOLDER

A FOLDER that is missing is made. Under the name gardenlet, this program is the agent with its commands.
";

/// What the caller wants.
pub enum Wish {
    Story {
        keep: bool,
    },
    Serve(PathBuf),
    ServeBare(PathBuf),
    /// The agent's own program.
    Program,
    Help,
    /// The command line is wrong, and why.
    Wrong(String),
}

/// What the words say; the first one is the name of the program.
pub fn wish(words: &[OsString]) -> Wish {
    let name = words.first().and_then(|path| Path::new(path).file_name()).unwrap_or_default();
    let words: Vec<&str> = words.iter().skip(1).map(|word| word.to_str().unwrap_or("?")).collect();
    match words[..] {
        _ if name == desk::PROGRAM => Wish::Program,
        // The agent starts its own program to render charts.
        [child::COMMAND] => Wish::Program,
        [] => Wish::Story { keep: false },
        ["--keep"] => Wish::Story { keep: true },
        ["-h" | "--help" | "help"] => Wish::Help,
        ["--serve", folder] => Wish::Serve(folder.into()),
        ["--serve-bare", folder] => Wish::ServeBare(folder.into()),
        [option @ ("--serve" | "--serve-bare")] => Wish::Wrong(format!("{option} needs a folder")),
        ["--keep" | "--serve" | "--serve-bare", .., last] => {
            Wish::Wrong(format!("unexpected argument {last:?}"))
        }
        [first, ..] => Wish::Wrong(format!("unknown argument {first:?}")),
    }
}
