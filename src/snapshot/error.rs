//! Errors of snapshots. The text contains a remedy where one is known.

use std::fmt;
use std::io;

use crate::net;

/// An error of a snapshot.
#[derive(Debug)]
pub enum Error {
    /// A system call failed.
    Io {
        /// The operation and its object.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The connection to a server failed.
    Net {
        /// The operation.
        doing: String,
        /// The cause.
        source: net::Error,
    },
    /// A server refused a request, or its answer is invalid.
    Refused {
        /// The operation.
        doing: String,
        /// The reason and the remedy.
        why: String,
    },
    /// The input is invalid, or the present state of a directory or store does not allow to continue.
    Unusable(String),
    /// A snapshot is damaged.
    Broken {
        /// Its name.
        name: String,
        /// The reason.
        why: String,
    },
}

impl Error {
    /// For `map_err`: the operation that failed.
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// The error of a reader or writer of a store, which may contain one of these.
    pub(super) fn of_store(doing: String, error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(ours) => ours,
            Err(source) => Self::Io { doing, source },
        }
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
