//! kubeconfig files.

pub mod exec;

use std::fmt;
use std::path::{Path, PathBuf};

use super::connection::Connection;
pub use super::in_cluster::connection as in_cluster;

/// Why a kubeconfig, or what it names, cannot be used.
#[derive(Debug)]
pub enum Error {
    /// A file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The text is no kubeconfig.
    Parse(String),
    /// A cluster, user or context that is named but absent, or a setting that we do not support.
    Invalid(String),
    /// A credential plugin did not deliver.
    Exec {
        /// The command.
        command: String,
        /// What went wrong.
        problem: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, .. } => write!(f, "read {}", path.display()),
            Self::Parse(problem) => write!(f, "kubeconfig: {problem}"),
            Self::Invalid(problem) => f.write_str(problem),
            Self::Exec { command, problem } => write!(f, "credential plugin {command}: {problem}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A parsed kubeconfig; several can be merged.
#[derive(Clone, Debug, Default)]
pub struct Kubeconfig {}

/// Parses a kubeconfig (YAML or JSON). Relative paths in it are relative to `directory`.
///
/// # Errors
/// [`Error::Parse`] with the position.
pub fn parse(text: &str, directory: &Path) -> Result<Kubeconfig, Error> {
    let _ = (text, directory);
    Err(Error::Parse("not built yet".to_owned()))
}

/// Reads and merges several files, as `KUBECONFIG` lists them; a file that does not exist is skipped.
///
/// # Errors
/// Those of reading and parsing.
pub fn load(paths: &[PathBuf]) -> Result<Kubeconfig, Error> {
    let _ = paths;
    Err(Error::Parse("not built yet".to_owned()))
}

impl Kubeconfig {
    /// Adds another file: what is there first wins.
    pub fn merge(&mut self, other: Self) {
        let Self {} = other;
    }

    /// The connection of a context; of `current-context` if it is empty.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is missing or not supported.
    pub fn select(&self, context: &str) -> Result<Connection, Error> {
        Err(Error::Invalid(format!("no context {context:?}")))
    }
}

/// The kubeconfig that the agent writes into its Secret: cluster, user and context are all `gardenlet`, all data inline.
///
/// # Errors
/// [`Error::Read`] if a file that the connection names cannot be read.
pub fn render(connection: &Connection) -> Result<String, Error> {
    let _ = connection;
    Err(Error::Invalid("not built yet".to_owned()))
}
