//! What can go wrong with snapshots. The text says what to do about it where we know.

use std::fmt;
use std::io;

use crate::net;

/// See the module.
#[derive(Debug)]
pub enum Error {
    /// The system refused something.
    Io {
        /// What was tried, and on what.
        doing: String,
        /// Its answer.
        source: io::Error,
    },
    /// A server could not be talked to.
    Net {
        /// What was tried.
        doing: String,
        /// The cause.
        source: net::Error,
    },
    /// A server refused something, or answered in a way that we do not understand.
    Refused {
        /// What was tried.
        doing: String,
        /// Its reason, and what helps.
        why: String,
    },
    /// The input cannot be used, or the present state of a directory or store forbids to go on.
    Unusable(String),
    /// A snapshot is not whole.
    Broken {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    /// For `map_err`: what was tried when the system refused it.
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, source } if source.kind() == io::ErrorKind::StorageFull => {
                write!(f, "{doing}: make room there, or keep fewer snapshots")
            }
            Self::Io { doing, .. } | Self::Net { doing, .. } => f.write_str(doing),
            Self::Refused { doing, why } => write!(f, "{doing}: {why}"),
            Self::Unusable(why) => f.write_str(why),
            Self::Broken { name, why } => write!(f, "snapshot {name} is broken: {why}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Net { source, .. } => Some(source),
            _ => None,
        }
    }
}
